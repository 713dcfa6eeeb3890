//! `ipsec`: ESP and AH (RFC 4303, RFC 4302) in tunnel and transport mode, by the policies of RFC 4301.
//!
//! The host half matches policies, hands out sequence numbers and keeps replay windows (`host`); everything that touches
//! keys is in the kernel. `docs/functions/ipsec.md` says what the operator can write, and what is not there.
//!
//! | file | holds |
//! |---|---|
//! | `config.rs`, `config_sa.rs`, `key.rs` | what the operator writes |
//! | `sa.rs`, `suite.rs`, `selector.rs` | what an SA is |
//! | `frame.rs`, `burst.rs`, `database.rs`, `policies.rs`, `lookup.rs` | which SA a packet belongs to |
//! | `state.rs`, `replay.rs`, `host.rs` | what changes per packet |
//! | `arrange.rs`, `lengths.rs`, `keepalive.rs` | fragments, packets that are too long, keepalives |
//! | `tables.rs`, `key_area.rs`, `aes_key.rs`, `room.rs` | what the kernel gets |
//! | `control.rs`, `places.rs`, `commands.rs` | changes while packets flow |
//! | `reference.rs` | `ref` |

mod aes_key;
mod arrange;
mod burst;
mod commands;
mod config;
mod config_sa;
mod control;
mod database;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod host;
mod keepalive;
mod key;
pub mod key_area;
mod lengths;
mod lookup;
mod places;
mod policies;
mod reference;
mod replay;
mod room;
mod sa;
mod selector;
mod state;
pub mod suite;
mod tables;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{BUCKETS, Image, ImageRef, SteerKey, wipe_stack};
use toml::Spanned;
use toml::de::DeTable;

use crate::{BuildContext, Contract, Error, Function, HostHalf, Kind, Running, Verdict};
use config::within;
use control::Control;
use database::Database;
use host::IpsecHost;
use room::Room;
use sa::Sa;
use tables::Shape;

pub use config::Config;

/// The packet is now an ESP packet.
pub const VERDICT_ENCRYPTED: u8 = 0;
/// The packet is now what was inside.
pub const VERDICT_DECRYPTED: u8 = 1;
/// A policy lets the packet pass.
pub const VERDICT_BYPASS: u8 = 2;
/// Not IP; passes.
pub const VERDICT_NOT_IP: u8 = 3;

/// The frame was too long for its tunnel: it is now the ICMP message to its sender.
pub const VERDICT_TOO_BIG: u8 = 4;

/// The frame ends early.
pub const DROP_TRUNCATED: u8 = 0;
/// A header is wrong.
pub const DROP_MALFORMED: u8 = 1;
/// A policy discards the packet, or none matches.
pub const DROP_POLICY_DISCARD: u8 = 2;
/// Unknown SPI.
pub const DROP_NO_SA: u8 = 3;
/// No room for what ESP adds.
pub const DROP_NO_ROOM: u8 = 4;
/// Wrong ICV.
pub const DROP_AUTHENTICATION: u8 = 5;
/// Wrong padding.
pub const DROP_PADDING: u8 = 6;
/// No sequence number left.
pub const DROP_SEQUENCE_EXHAUSTED: u8 = 7;
/// Another worker's SA.
pub const DROP_WRONG_WORKER: u8 = 8;
/// The SA is not for what was inside.
pub const DROP_POLICY_MISMATCH: u8 = 9;
/// A fragment of an ESP packet.
pub const DROP_FRAGMENT: u8 = 10;
/// Traffic flow padding.
pub const DROP_DUMMY: u8 = 11;
/// A congestion mark that the packet inside cannot carry.
pub const DROP_CONGESTION: u8 = 12;
/// A sequence number that came before, or is too old.
pub const DROP_REPLAYED: u8 = 13;
/// The SA's hard lifetime is over.
pub const DROP_LIFETIME: u8 = 14;
/// It only keeps a NAT's state alive.
pub const DROP_KEEPALIVE: u8 = 15;

/// Too long for its tunnel, and nobody to tell.
pub const DROP_TOO_BIG: u8 = 16;
/// A fragment that overlaps or contradicts others.
pub const DROP_FRAGMENT_OVERLAP: u8 = 17;
/// A fragment for which there is no room.
pub const DROP_FRAGMENT_LIMIT: u8 = 18;
/// A fragment whose others did not come.
pub const DROP_FRAGMENT_TIMEOUT: u8 = 19;

/// The variant of packets that AES-128-CBC with HMAC-SHA1-96 encrypts.
pub const VARIANT_ENCRYPT: u8 = suite::variant(0, false);
/// The same, decrypts.
pub const VARIANT_DECRYPT: u8 = suite::variant(0, true);

/// Names of both variants of each suite, in the order of [`suite::SUITES`].
macro_rules! variants {
    ($($suite:literal),*) => { &[$(concat!($suite, "_out"), concat!($suite, "_in")),*] };
}

/// The contract block of `kernels/ipsec/`, as data.
pub const CONTRACT: Contract = Contract {
    kind: "ipsec",
    summary: "Protects and opens IP packets by policy: ESP and AH, in tunnel and transport mode.",
    kernel: godwit_kernels::IPSEC,
    verdicts: &[
        said(
            "encrypted",
            "A policy protects the packet: it is now an ESP or AH packet. Keepalives of SAs count here too.",
        ),
        said("decrypted", "An ESP or AH packet for one of our endpoints was authentic: it is now what was inside."),
        said("bypass", "A policy lets the packet pass as it is."),
        said("not_ip", "The frame carries no IP and passes as it is."),
        said("too_big", "The packet is too long for its tunnel: the frame is now the ICMP message to its sender."),
    ],
    drops: &[
        dropped("truncated", "The frame ends before the IP packet does."),
        dropped("malformed", "A header contradicts itself, or the outer checksum is wrong."),
        dropped("policy_discard", "A policy discards the packet, or none matches it (RFC 4301, section 4.4.1)."),
        dropped("no_sa", "An ESP or AH packet for one of our endpoints names an SPI that is not configured for it."),
        dropped(
            "no_room",
            "The buffer has no room for what is added, or more of an IPv6 packet's options may change than AH keeps aside.",
        ),
        dropped("authentication", "The ICV is wrong: the packet was changed, or the keys differ."),
        dropped("padding", "The padding of an authentic packet is not 1, 2, 3 … (RFC 4303, section 2.4)."),
        dropped("sequence_exhausted", "The SA has used all its sequence numbers (RFC 4303, section 3.3.3)."),
        dropped("wrong_worker", "The packet came to a worker that does not own the SA."),
        dropped("policy_mismatch", "What was inside is not what the SA is for (RFC 4301, section 5.2)."),
        dropped(
            "fragment",
            "A fragment of a packet for one of our endpoints, or one that transport mode is to protect.",
        ),
        dropped("dummy", "A packet that only hides how much traffic there is: next header 59 (RFC 4303, section 2.6)."),
        dropped("congestion", "A congestion mark that the packet inside cannot carry (RFC 6040, section 4.2)."),
        dropped(
            "replayed",
            "The sequence number came before, or is older than the replay window (RFC 4303, section 3.4.3).",
        ),
        dropped("lifetime", "The SA's hard lifetime is over (RFC 4301, section 4.4.2.1)."),
        dropped("keepalive", "It only kept a NAT's state alive (RFC 3948, section 2.3)."),
        dropped(
            "too_big",
            "The packet is too long for its tunnel, and its sender must not, or need not, be told again.",
        ),
        dropped(
            "fragment_overlap",
            "A fragment that overlaps others of its packet, or contradicts them; or one of such a packet.",
        ),
        dropped("fragment_limit", "A fragment of a packet that would be too long, or for which there is no room."),
        dropped("fragment_timeout", "A fragment of a packet of which the others did not come in time."),
    ],
    variants: variants![
        "cbc128_sha1",
        "cbc192_sha1",
        "cbc256_sha1",
        "cbc128_sha256",
        "cbc192_sha256",
        "cbc256_sha256",
        "cbc128_none",
        "ctr128_sha1",
        "ctr192_sha1",
        "ctr256_sha1",
        "ctr128_sha256",
        "ctr192_sha256",
        "ctr256_sha256",
        "null_sha1",
        "null_sha256",
        "gcm128",
        "gcm192",
        "gcm256",
        "gmac128",
        "gmac192",
        "gmac256",
        "chacha20_poly1305",
        "ah_sha1",
        "ah_sha256",
        "ah_gmac128",
        "ah_gmac192",
        "ah_gmac256"
    ],
    in_order: true,
    reads_bytes: Contract::ALL,
    writes_bytes: Contract::ALL,
    // The most that any SA needs; `Function::headroom_bytes` and its like say what those that are configured need.
    // Outer IPv6 header, AH, IV and ICV of GMAC, padding to 8 bytes.
    headroom_bytes: 40 + 40,
    // Padding to the block, pad length and next header, ICV.
    tailroom_bytes: 15 + 2 + 16,
    tailroom_saved: [0; 16],
    counters: &[],
    spec: "RFC 4301, RFC 4302, RFC 4303, RFC 2404, RFC 3602, RFC 3686, RFC 3948, RFC 4106, RFC 4543, RFC 4868, RFC 6040, \
           RFC 7634",
};

const fn said(name: &'static str, sentence: &'static str) -> Verdict {
    Verdict { name, sentence, chooses_port: false }
}

const fn dropped(name: &'static str, sentence: &'static str) -> crate::Drop {
    crate::Drop { name, sentence }
}

/// The registration.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Bits of a sequence number in the kernel's parameter.
const SEQUENCE_BITS: u32 = 44;

/// The kernel's parameter: index of the SA, and the packet's sequence number.
pub const fn parameter(sa: u32, sequence: u64) -> u64 {
    (sa as u64) << SEQUENCE_BITS | sequence
}

/// What [`parameter`] is made of.
const fn sa_and_sequence(parameter: u64) -> (u32, u64) {
    ((parameter >> SEQUENCE_BITS) as u32, parameter & ((1 << SEQUENCE_BITS) - 1))
}

/// How often SAs are looked for whose last packets are gone.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);
/// SAs that the parameter can name.
const SAS_MAX: usize = 1 << 20;
/// Policies: more than anybody writes by hand.
const POLICIES_MAX: usize = 1 << 20;

/// The configured function.
pub struct Ipsec {
    database: Arc<Database>,
    image: Arc<Image>,
    room: Room,
    arranges: bool,
    control: Mutex<Control>,
}

fn build(stanza: Spanned<DeTable<'_>>, _site: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let built = read(stanza);
    wipe_stack();
    built
}

#[inline(never)]
fn read(stanza: Spanned<DeTable<'_>>) -> Result<Arc<dyn Function>, Error> {
    Ok(Arc::new(Ipsec::new(crate::config::read(stanza)?)?))
}

/// Most inbound SAs between the same endpoints.
fn most_between_two(sas: &[Sa]) -> usize {
    let mut counts = std::collections::HashMap::new();
    let inbound = sas.iter().filter(|sa| sa.is_inbound());
    inbound.for_each(|sa| *counts.entry((sa.source, sa.destination)).or_insert(0) += 1);
    counts.into_values().max().unwrap_or(0)
}

impl Ipsec {
    fn new(config: Config) -> Result<Self, Error> {
        let Config { sa, policy, sa_capacity, selector_capacity, path_mtu, reassembly, headroom_bytes, tailroom_bytes } =
            config;
        if sa.len() > SAS_MAX || policy.len() > POLICIES_MAX {
            let message = format!("ipsec takes at most {SAS_MAX} SAs and as many policies");
            return Err(Error::Value { span: None, message });
        }
        let mut sas = sa.iter().map(config_sa::SaConfig::resolve).collect::<Result<Vec<Sa>, _>>()?;
        let reassembly = reassembly.as_ref().map(config::ReassemblyConfig::limits).transpose()?;
        let path_mtu = path_mtu.as_ref().map(config_sa::check_path_mtu).transpose()?;
        sas.iter_mut().for_each(|sa| sa.inherit_path_mtu(path_mtu));
        let asks = |sa: &Sa| sa.path_mtu > 0 || sa.keepalive_s > 0;
        let arranges = reassembly.is_some() || path_mtu.is_some() || sas.iter().any(asks);
        let capacity = match &sa_capacity {
            Some(given) => within("sa_capacity", given, sas.len().max(1)..SAS_MAX + 1)?,
            None => {
                let even = |count: usize| count + count / 4 + 2 * BUCKETS;
                // With reassembly, SAs of the same endpoints share a bucket.
                let most = reassembly.map_or(0, |_| most_between_two(&sas));
                even(sas.len()).max(BUCKETS * (most + most / 4 + 2)).min(SAS_MAX)
            }
        };
        let own_selectors: usize = sas.iter().map(|sa| sa.selectors.len()).sum();
        let selectors = match &selector_capacity {
            Some(given) => within("selector_capacity", given, own_selectors.max(1)..(1 << 24) + 1)?,
            None => own_selectors + own_selectors / 4 + 2 * BUCKETS,
        };
        // One more that accepts everything, for all SAs.
        let shape = Shape { sas: capacity.next_multiple_of(BUCKETS), selectors: selectors + 1 };
        let room = Room::of(&sas, headroom_bytes.unwrap_or(0), tailroom_bytes.unwrap_or(0));
        let mut control = Control::new(shape, room, reassembly, arranges, path_mtu)?;
        for (keys, sa) in sa.iter().zip(sas) {
            let placed = control.place(sa, None).and_then(|index| control.publish(index));
            placed.map_err(|refusal| {
                let span = if refusal.is_of_spi { keys.spi.span() } else { keys.name.span() };
                crate::config::value(span, refusal.message)
            })?;
        }
        let policies = policy.iter().map(|policy| policy.resolve(&|name| control.outbound(name)));
        let policies = policies.collect::<Result<Vec<_>, _>>()?;
        control.set_policies(policies);
        let (database, image) = (Arc::clone(&control.database), Arc::clone(&control.image));
        Ok(Self { database, image, room, arranges, control: Mutex::new(control) })
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Function for Ipsec {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        (&*self.image).into()
    }

    fn headroom_bytes(&self) -> u16 {
        self.room.headroom_bytes
    }

    fn tailroom_bytes(&self) -> u16 {
        self.room.tailroom_bytes
    }

    fn tailroom_saved(&self) -> [u8; 16] {
        self.room.tailroom_saved
    }

    fn host_half(&self, worker: usize, workers: usize) -> Option<Box<dyn HostHalf>> {
        Some(Box::new(IpsecHost::new(Arc::clone(&self.database), worker, workers, self.arranges)))
    }

    fn steer_key(&self) -> Option<Arc<dyn SteerKey>> {
        Some(Arc::clone(&self.database) as Arc<dyn SteerKey>)
    }

    fn command(&self, request: &serde_json::Value, running: &dyn Running) -> Result<serde_json::Value, Error> {
        let said = commands::run(&mut self.control(), request, running);
        wipe_stack();
        said
    }

    fn housekeeping_interval(&self) -> Option<Duration> {
        Some(HOUSEKEEPING_INTERVAL)
    }

    fn housekeeping(&self, running: &dyn Running) -> Result<(), Error> {
        if self.control().forget_retired(running) {
            wipe_stack();
        }
        Ok(())
    }

    fn notices(&self) -> Vec<String> {
        // A command that waits for packets does not make who asks wait: he comes again.
        match self.control.try_lock() {
            Ok(mut control) if self.database.states.take_events() => control.notices(),
            _ => Vec::new(),
        }
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        let sa = self.database.sa(sa_and_sequence(parameter).0);
        reference::run_ref(buffer, descriptor, sa.as_deref(), variant, parameter)
    }
}

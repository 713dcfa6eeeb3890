//! `ipsec`: ESP and AH (RFC 4303, RFC 4302) in tunnel and transport mode, controlled by RFC 4301
//! policies.
//!
//! The host half (`host`) matches policies, assigns sequence numbers and maintains replay windows.
//! Only the kernel works with keys. `docs/functions/ipsec.md` describes the configuration and the
//! limitations.
//!
//! | file | contents |
//! |---|---|
//! | `config.rs`, `config_sa.rs`, `key.rs` | configuration |
//! | `sa.rs`, `suite.rs`, `selector.rs` | security associations and selectors |
//! | `frame.rs`, `burst.rs`, `database.rs`, `policies.rs`, `lookup.rs` | SA look-up |
//! | `state.rs`, `replay.rs`, `host.rs` | per-packet state |
//! | `arrange.rs`, `lengths.rs`, `keepalive.rs` | fragmentation, reassembly, keepalives |
//! | `tables.rs`, `key_area.rs`, `aes_key.rs`, `room.rs` | table image, headroom and tailroom |
//! | `control.rs`, `slots.rs`, `commands.rs` | changes at run time |
//! | `reference/` | `ref` implementation |

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
mod policies;
mod reference;
mod replay;
mod room;
mod sa;
mod selector;
mod slots;
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

/// Verdict: the packet was encapsulated.
pub const VERDICT_ENCRYPTED: u8 = 0;
/// Verdict: the packet was decapsulated.
pub const VERDICT_DECRYPTED: u8 = 1;
/// Verdict: a policy lets the packet pass.
pub const VERDICT_BYPASS: u8 = 2;
/// Verdict: the frame carries no IP packet and passes.
pub const VERDICT_NOT_IP: u8 = 3;

/// Verdict: the packet exceeded the MTU of its tunnel. The frame is now the ICMP error to its
/// sender.
pub const VERDICT_TOO_BIG: u8 = 4;

/// Drop reason: the frame is shorter than its headers indicate.
pub const DROP_TRUNCATED: u8 = 0;
/// Drop reason: a header is malformed.
pub const DROP_MALFORMED: u8 = 1;
/// Drop reason: a policy discards the packet, or no policy matches it.
pub const DROP_POLICY_DISCARD: u8 = 2;
/// Drop reason: unknown SPI.
pub const DROP_NO_SA: u8 = 3;
/// Drop reason: the buffer has too little headroom or tailroom.
pub const DROP_NO_ROOM: u8 = 4;
/// Drop reason: wrong ICV.
pub const DROP_AUTHENTICATION: u8 = 5;
/// Drop reason: wrong ESP padding.
pub const DROP_PADDING: u8 = 6;
/// Drop reason: the SA has no sequence numbers left.
pub const DROP_SEQUENCE_EXHAUSTED: u8 = 7;
/// Drop reason: another worker owns the SA.
pub const DROP_WRONG_WORKER: u8 = 8;
/// Drop reason: the inner packet does not match the SA.
pub const DROP_POLICY_MISMATCH: u8 = 9;
/// Drop reason: the packet is a fragment and cannot be processed.
pub const DROP_FRAGMENT: u8 = 10;
/// Drop reason: dummy packet for traffic flow confidentiality.
pub const DROP_DUMMY: u8 = 11;
/// Drop reason: the inner packet cannot carry the congestion mark of the outer header.
pub const DROP_CONGESTION: u8 = 12;
/// Drop reason: the sequence number was already received or is too old.
pub const DROP_REPLAYED: u8 = 13;
/// Drop reason: the hard lifetime of the SA has expired.
pub const DROP_LIFETIME: u8 = 14;
/// Drop reason: NAT keepalive.
pub const DROP_KEEPALIVE: u8 = 15;

/// Drop reason: the packet exceeds the MTU of its tunnel, and no ICMP error is sent.
pub const DROP_TOO_BIG: u8 = 16;
/// Drop reason: the fragment overlaps or contradicts another fragment.
pub const DROP_FRAGMENT_OVERLAP: u8 = 17;
/// Drop reason: the fragment exceeds a reassembly limit.
pub const DROP_FRAGMENT_LIMIT: u8 = 18;
/// Drop reason: the other fragments of the packet did not arrive in time.
pub const DROP_FRAGMENT_TIMEOUT: u8 = 19;

/// Variant for packets to encapsulate with AES-128-CBC and HMAC-SHA1-96.
pub const VARIANT_ENCRYPT: u8 = suite::variant(0, false);
/// Variant for packets to decapsulate with AES-128-CBC and HMAC-SHA1-96.
pub const VARIANT_DECRYPT: u8 = suite::variant(0, true);

/// Expands to the outbound and the inbound variant name of each suite, in the order of
/// [`suite::SUITES`].
macro_rules! variants {
    ($($suite:literal),*) => { &[$(concat!($suite, "_out"), concat!($suite, "_in")),*] };
}

/// Contract block of `kernels/ipsec/`, as data.
pub const CONTRACT: Contract = Contract {
    kind: "ipsec",
    summary: "Encapsulates and decapsulates IP packets by policy: ESP and AH, in tunnel and transport mode.",
    kernel: godwit_kernels::IPSEC,
    verdicts: &[
        verdict(
            "encrypted",
            "The packet was encapsulated and is now an ESP or AH packet. Keepalives of SAs count here too.",
        ),
        verdict("decrypted", "An ESP or AH packet for a local endpoint was authentic and was decapsulated."),
        verdict("bypass", "A policy lets the packet pass unchanged."),
        verdict("not_ip", "The frame carries no IP packet and passes unchanged."),
        verdict("too_big", "The packet is too long for its tunnel: the frame is now the ICMP error to its sender."),
    ],
    drops: &[
        drop_reason("truncated", "The frame is shorter than its IP packet."),
        drop_reason("malformed", "A header is inconsistent, or the outer checksum is wrong."),
        drop_reason(
            "policy_discard",
            "A policy discards the packet, or no policy matches it (RFC 4301, section 4.4.1).",
        ),
        drop_reason("no_sa", "An ESP or AH packet for a local endpoint has an SPI that belongs to no inbound SA."),
        drop_reason(
            "no_room",
            "The buffer has too little headroom or tailroom, or the packet has more mutable IPv6 options than AH supports.",
        ),
        drop_reason("authentication", "The ICV is wrong: the packet was changed, or the keys differ."),
        drop_reason("padding", "The padding of an authentic packet is not 1, 2, 3 … (RFC 4303, section 2.4)."),
        drop_reason("sequence_exhausted", "The SA has used all its sequence numbers (RFC 4303, section 3.3.3)."),
        drop_reason("wrong_worker", "The packet arrived at a worker that does not own its SA."),
        drop_reason(
            "policy_mismatch",
            "The packet does not match the selectors or mode of its SA (RFC 4301, section 5.2).",
        ),
        drop_reason(
            "fragment",
            "A fragment addressed to a local endpoint, or a fragment that a policy assigns to a transport mode SA.",
        ),
        drop_reason(
            "dummy",
            "A dummy packet for traffic flow confidentiality: next header 59 (RFC 4303, section 2.6).",
        ),
        drop_reason(
            "congestion",
            "The outer header has a congestion mark that the inner packet cannot carry (RFC 6040, section 4.2).",
        ),
        drop_reason(
            "replayed",
            "The sequence number was already received, or is older than the replay window (RFC 4303, section 3.4.3).",
        ),
        drop_reason("lifetime", "The hard lifetime of the SA has expired (RFC 4301, section 4.4.2.1)."),
        drop_reason("keepalive", "A NAT keepalive packet (RFC 3948, section 2.3)."),
        drop_reason(
            "too_big",
            "The packet is too long for its tunnel, and an ICMP error to its sender is not possible or not allowed.",
        ),
        drop_reason(
            "fragment_overlap",
            "A fragment overlaps or contradicts another one: all fragments of the packet are dropped.",
        ),
        drop_reason(
            "fragment_limit",
            "A fragment of a packet that would be too long, or beyond the reassembly limits.",
        ),
        drop_reason("fragment_timeout", "A fragment of a packet whose other fragments did not arrive in time."),
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
    // Upper bounds over all possible SAs. `Function::headroom_bytes` and `Function::tailroom_bytes`
    // return the needs of the configured SAs. Headroom: outer IPv6 header, then AH with IV and ICV
    // of GMAC, padded to 8 bytes.
    headroom_bytes: 40 + 40,
    // Padding to the cipher block, pad length and next header, ICV.
    tailroom_bytes: 15 + 2 + 16,
    tailroom_saved: [0; 16],
    counters: &[],
    spec: "RFC 4301, RFC 4302, RFC 4303, RFC 2404, RFC 3602, RFC 3686, RFC 3948, RFC 4106, RFC 4543, RFC 4868, RFC 6040, \
           RFC 7634",
};

const fn verdict(name: &'static str, sentence: &'static str) -> Verdict {
    Verdict { name, sentence, chooses_port: false }
}

const fn drop_reason(name: &'static str, sentence: &'static str) -> crate::Drop {
    crate::Drop { name, sentence }
}

/// Registration of this function kind.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Bits of the kernel parameter that hold the sequence number.
const SEQUENCE_BITS: u32 = 44;

/// Packs the index of the SA and the packet's sequence number into the kernel parameter.
pub const fn parameter(sa: u32, sequence: u64) -> u64 {
    (sa as u64) << SEQUENCE_BITS | sequence
}

/// Unpacks the SA index and the sequence number from a [`parameter`].
const fn sa_and_sequence(parameter: u64) -> (u32, u64) {
    ((parameter >> SEQUENCE_BITS) as u32, parameter & ((1 << SEQUENCE_BITS) - 1))
}

/// Interval between searches for retired SAs that can be wiped.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of SAs: the parameter has 20 bits for the index.
const SAS_MAX: usize = 1 << 20;
/// Maximum number of policies.
const POLICIES_MAX: usize = 1 << 20;

/// Configured `ipsec` function.
pub struct Ipsec {
    database: Arc<Database>,
    image: Arc<Image>,
    room: Room,
    arranges: bool,
    control: Mutex<Control>,
}

fn build(stanza: Spanned<DeTable<'_>>, _context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let built = read(stanza);
    wipe_stack();
    built
}

#[inline(never)]
fn read(stanza: Spanned<DeTable<'_>>) -> Result<Arc<dyn Function>, Error> {
    Ok(Arc::new(Ipsec::new(crate::config::read(stanza)?)?))
}

/// Returns the largest number of inbound SAs that share both endpoints.
fn max_sas_per_endpoint_pair(sas: &[Sa]) -> usize {
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
            let message = format!("ipsec takes at most {SAS_MAX} SAs and {POLICIES_MAX} policies");
            return Err(Error::Value { span: None, message });
        }
        let mut sas = sa.iter().map(config_sa::SaConfig::resolve).collect::<Result<Vec<Sa>, _>>()?;
        let reassembly = reassembly.as_ref().map(config::ReassemblyConfig::limits).transpose()?;
        let path_mtu = path_mtu.as_ref().map(config_sa::check_path_mtu).transpose()?;
        sas.iter_mut().for_each(|sa| sa.inherit_path_mtu(path_mtu));
        let needs_arranging = |sa: &Sa| sa.path_mtu > 0 || sa.keepalive_s > 0;
        let arranges = reassembly.is_some() || path_mtu.is_some() || sas.iter().any(needs_arranging);
        let capacity = match &sa_capacity {
            Some(given) => within("sa_capacity", given, sas.len().max(1)..SAS_MAX + 1)?,
            None => {
                let spread_evenly = |count: usize| count + count / 4 + 2 * BUCKETS;
                // With reassembly, SAs with the same endpoints share a bucket.
                let per_bucket = reassembly.map_or(0, |_| max_sas_per_endpoint_pair(&sas));
                spread_evenly(sas.len()).max(BUCKETS * (per_bucket + per_bucket / 4 + 2)).min(SAS_MAX)
            }
        };
        let own_selectors: usize = sas.iter().map(|sa| sa.selectors.len()).sum();
        let selectors = match &selector_capacity {
            Some(given) => within("selector_capacity", given, own_selectors.max(1)..(1 << 24) + 1)?,
            None => own_selectors + own_selectors / 4 + 2 * BUCKETS,
        };
        // One more selector, which accepts everything and is shared by all SAs.
        let shape = Shape { sas: capacity.next_multiple_of(BUCKETS), selectors: selectors + 1 };
        let room = Room::new(&sas, headroom_bytes.unwrap_or(0), tailroom_bytes.unwrap_or(0));
        let mut control = Control::new(shape, room, reassembly, arranges, path_mtu)?;
        for (keys, sa) in sa.iter().zip(sas) {
            let published = control.stage(sa, None).and_then(|index| control.publish(index));
            published.map_err(|refusal| {
                let span = if refusal.concerns_spi { keys.spi.span() } else { keys.name.span() };
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
        let response = commands::run(&mut self.control(), request, running);
        wipe_stack();
        response
    }

    fn housekeeping_interval(&self) -> Option<Duration> {
        Some(HOUSEKEEPING_INTERVAL)
    }

    fn housekeeping(&self, running: &dyn Running) -> Result<(), Error> {
        if self.control().wipe_retired(running) {
            wipe_stack();
        }
        Ok(())
    }

    fn notices(&self) -> Vec<String> {
        // A command may hold the lock while it waits for packets to drain. Return at once: the
        // caller retries.
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

//! The function `ipsec` implements ESP and AH (RFC 4303, RFC 4302) in tunnel and transport mode,
//! controlled by RFC 4301 policies.
//!
//! The host half (`host`) matches policies, assigns sequence numbers and maintains replay windows.
//! Only the kernel uses cryptographic keys. `docs/functions/ipsec.md` describes the configuration
//! and the limitations.
//!
//! | file | contents |
//! |---|---|
//! | `config.rs`, `config_sa.rs`, `key.rs` | configuration |
//! | `sa.rs`, `suite.rs`, `selector.rs` | security associations and selectors |
//! | `frame.rs`, `burst.rs`, `database.rs`, `policies.rs`, `lookup.rs` | SA lookup |
//! | `state.rs`, `replay.rs`, `host.rs` | per-packet state |
//! | `grants.rs` | sequence numbers that survive a restart |
//! | `arrange.rs`, `lengths.rs`, `keepalive.rs` | fragmentation, reassembly, keepalives |
//! | `tables.rs`, `key_area.rs`, `room.rs` | table image, headroom and tailroom |
//! | `control.rs`, `slots.rs`, `commands.rs` | changes at run time |
//! | `reference/` | `ref` implementation |

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
mod grants;
mod host;
mod in_flight;
mod keepalive;
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
use godwit_state::State;
use toml::Spanned;
use toml::de::DeTable;

use crate::sizes::Sizes;
use crate::{
    BuildContext, Contract, Durable, Error, Function, HostHalf, Housekeeping, Kind, Notice, Operate, Properties,
    Running, SendingKey,
};
use config::within;
use control::Control;
use database::Database;
use host::IpsecHost;
use room::Room;
use sa::Sa;
use tables::Shape;

pub use config::Config;

/// Contract of the function with its verdicts and drop reasons, as declared in
/// `kernels/ipsec/ipsec.h`.
pub use godwit_kernels::declared::ipsec::*;

/// Variant that encapsulates with AES-128-CBC and HMAC-SHA1-96.
pub const VARIANT_ENCRYPT: u8 = suite::variant(0, false);
/// Variant that decapsulates with AES-128-CBC and HMAC-SHA1-96.
pub const VARIANT_DECRYPT: u8 = suite::variant(0, true);

/// Registration of this function kind.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Width of the sequence number in the kernel's packet parameter, in bits.
const SEQUENCE_BITS: u32 = 44;

/// Packs an SA index and a sequence number into the packet parameter that the kernel receives.
pub const fn parameter(sa: u32, sequence: u64) -> u64 {
    (sa as u64) << SEQUENCE_BITS | sequence
}

const fn sa_and_sequence(parameter: u64) -> (u32, u64) {
    ((parameter >> SEQUENCE_BITS) as u32, parameter & ((1 << SEQUENCE_BITS) - 1))
}

/// Interval at which the function tries to wipe replaced and deleted SAs.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of SAs. The kernel receives the SA index of a packet as a 20-bit number.
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
    sizes: Sizes<2>,
}

fn build(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let built = read(stanza, context);
    wipe_stack();
    built
}

#[inline(never)]
fn read(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    Ok(Arc::new(Ipsec::new(crate::config::read(stanza)?, context.ports)?))
}

fn max_sas_per_endpoint_pair(sas: &[Sa]) -> usize {
    let mut counts = std::collections::HashMap::new();
    let inbound = sas.iter().filter(|sa| sa.is_inbound());
    inbound.for_each(|sa| *counts.entry((sa.source, sa.destination)).or_insert(0) += 1);
    counts.into_values().max().unwrap_or(0)
}

impl Ipsec {
    /// Creates the function from its configuration. `ports` contains all port names in the order of
    /// their numbers.
    fn new(config: Config, ports: &[String]) -> Result<Self, Error> {
        let unprotected = config::port_set(&config.unprotected_ports, ports)?;
        let Config { sa, policy, sa_capacity, selector_capacity, path_mtu, reassembly, .. } = config;
        let Config { headroom_bytes, tailroom_bytes, .. } = config;
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
                // Reassembly requires that all SAs between the same two endpoints share a steering
                // bucket.
                let per_bucket = reassembly.map_or(0, |_| max_sas_per_endpoint_pair(&sas));
                spread_evenly(sas.len()).max(BUCKETS * (per_bucket + per_bucket / 4 + 2)).min(SAS_MAX)
            }
        };
        let own_selectors: usize = sas.iter().map(|sa| sa.selectors.len()).sum();
        let selectors = match &selector_capacity {
            Some(given) => within("selector_capacity", given, own_selectors.max(1)..(1 << 24) + 1)?,
            None => own_selectors + own_selectors / 4 + 2 * BUCKETS,
        };
        // One more slot holds the shared selector that accepts every packet.
        let shape = Shape { sas: capacity.next_multiple_of(BUCKETS), selectors: selectors + 1 };
        // Without a configured SA, the suites of later SAs are unknown.
        let spare = if sas.is_empty() { (CONTRACT.headroom_bytes, CONTRACT.tailroom_bytes) } else { (0, 0) };
        let room = Room::new(&sas, headroom_bytes.unwrap_or(spare.0), tailroom_bytes.unwrap_or(spare.1));
        let mut control = Control::new(shape, room, reassembly, arranges, path_mtu, unprotected)?;
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
        Ok(Self {
            database,
            image,
            room,
            arranges,
            control: Mutex::new(control),
            sizes: Sizes::new(["sas", "policies"]),
        })
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

    fn host_half(&self, worker: usize, workers: usize) -> Option<HostHalf> {
        let host = Box::new(IpsecHost::new(Arc::clone(&self.database), worker, workers, self.arranges));
        Some(if self.arranges { HostHalf::Arrange(host) } else { HostHalf::Prepare(host) })
    }

    fn steer_key(&self) -> Option<Arc<dyn SteerKey>> {
        Some(Arc::clone(&self.database) as Arc<dyn SteerKey>)
    }

    fn durable(&self) -> Option<&dyn Durable> {
        Some(self)
    }

    fn properties(&self) -> Properties {
        Properties {
            headroom_bytes: self.room.headroom_bytes,
            tailroom_bytes: self.room.tailroom_bytes,
            tailroom_saved: self.room.tailroom_saved,
            ..Properties::of(&CONTRACT)
        }
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn housekeeping(&self) -> Option<&dyn Housekeeping> {
        Some(self)
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        let sa = self.database.sa(sa_and_sequence(parameter).0);
        reference::run_ref(buffer, descriptor, sa.as_deref(), variant, parameter)
    }
}

impl Operate for Ipsec {
    fn command(&self, request: &serde_json::Value, running: &dyn Running) -> Result<serde_json::Value, Error> {
        let response = commands::run(&mut self.control(), request, running);
        wipe_stack();
        response
    }

    fn tables(&self) -> Vec<(String, u64)> {
        self.sizes.read(&self.control, |control| [control.indexes().len(), control.policies().len()])
    }

    fn warnings(&self) -> Vec<String> {
        let control = self.control();
        let sas = control.indexes().into_iter().filter_map(|index| control.database.sa(index));
        sas.filter_map(|sa| sa.warning()).collect()
    }

    fn notices(&self) -> Vec<Notice> {
        // A command may hold the lock for a long time while it waits for packets in flight. The
        // caller then gets no notices, and tries again later.
        match self.control.try_lock() {
            Ok(mut control) if self.database.states.take_events() => control.notices(),
            _ => Vec::new(),
        }
    }
}

impl Housekeeping for Ipsec {
    fn interval(&self) -> Duration {
        HOUSEKEEPING_INTERVAL
    }

    fn run(&self, running: &dyn Running) -> Result<(), Error> {
        if self.control().wipe_retired(running) {
            wipe_stack();
        }
        Ok(())
    }
}

impl Durable for Ipsec {
    fn keys(&self) -> Vec<SendingKey> {
        let control = self.control();
        let key = |index: u32| {
            let sa = control.database.sa(index)?;
            let needs_folder = sa.suite().is_counter_mode() && !sa.key_is_new;
            Some(SendingKey { name: sa.nonce_name()?, owner: format!("SA \"{}\"", sa.name), needs_folder })
        };
        control.indexes().into_iter().filter_map(key).collect()
    }

    fn start(&self, name: &str, state: &Arc<State>) -> Result<(), Error> {
        self.control().start(name, state)
    }
}

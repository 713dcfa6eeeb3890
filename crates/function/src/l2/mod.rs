//! `l2`: an Ethernet switch with VLANs.
//!
//! | file | holds |
//! |---|---|
//! | `switch.rs`, `tags.rs` | ports and VLANs; adding and removing tags |
//! | `hash.rs`, `cuckoo.rs`, `waves.rs` | the address table: hashing, insertion, and the order of writes |
//! | `control.rs`, `commands.rs` | the control side: learning, ageing and commands |
//! | `host.rs` | the host half: tags, and notices of source addresses |
//! | `macs.rs` | the file of static addresses |
//!
//! The table changes in place while look-ups run. `kernels/l2/image.h` explains why each look-up
//! finds an address that is in the table.

mod commands;
mod config;
mod control;
mod cuckoo;
#[doc(hidden)]
pub mod fuzz;
mod hash;
mod host;
mod macs;
mod reference;
mod switch;
mod tables;
mod tags;
#[cfg(test)]
mod tests;
mod waves;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{Image, ImageRef};
use godwit_wire::MacAddress;
use serde_json::Value;
use toml::Spanned;
use toml::de::DeTable;

use crate::{BuildContext, Contract, Counter, Drop, Error, Function, HostHalf, Kind, Running, Verdict};

use config::Config;
use control::{Control, Entries};
use host::{Host, SharedState};
use switch::Switch;

#[doc(hidden)]
pub use macs::parse as parse_macs;

/// The destination is at another port, `Outcome::port`. `Outcome::value` is the VID.
pub const VERDICT_FORWARD: u8 = 0;
/// The frame goes to all other ports of its VLAN. `Outcome::value` is the VID.
pub const VERDICT_FLOOD: u8 = 1;
/// The destination is reserved for bridges.
pub const VERDICT_RESERVED: u8 = 2;

/// The frame ends within its Ethernet header or its VLAN tag.
pub const DROP_TRUNCATED: u8 = 0;
/// The frame arrived on a port that does not belong to the switch.
pub const DROP_PORT: u8 = 1;
/// The port does not accept frames of this VLAN, untagged frames, or tagged frames.
pub const DROP_VLAN: u8 = 2;
/// The source is a group address or all zeros.
pub const DROP_SOURCE: u8 = 3;
/// The destination is at the port that the frame arrived on.
pub const DROP_SAME_PORT: u8 = 4;

/// Flag in [`Outcome::value`]: the control side must be notified of the source.
const NOTICE: u32 = 0x8000_0000;
/// Flag in [`Outcome::value`]: remove the tag.
const POP: u32 = 0x0001_0000;
/// Flag in [`Outcome::value`]: add a tag of the VLAN.
const PUSH: u32 = 0x0002_0000;
/// Flags in [`Outcome::value`]: replace VID 0 of the tag by the VLAN.
const SET: u32 = 0x0003_0000;
/// Mask of all flags in [`Outcome::value`]. The remaining bits hold the VID.
const FLAGS: u32 = 0xffff_0000;

/// Interval at which the control side reads the notices of workers.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(10);

/// Contract of the function; see also `kernels/l2/`.
pub const CONTRACT: Contract = Contract {
    kind: "l2",
    summary: "Switches Ethernet frames by VLAN and address, and learns the ports of addresses (a cuckoo hash table).",
    kernel: godwit_kernels::L2,
    verdicts: &[
        Verdict {
            name: "forward",
            sentence: "The destination is at another port; the frame is tagged or untagged as that port requires.",
            chooses_port: true,
        },
        Verdict {
            name: "flood",
            sentence: "The destination is a group address or unknown; the frame goes to all other ports of the VLAN.",
            chooses_port: true,
        },
        Verdict {
            name: "reserved",
            sentence: "The destination is one of 01-80-C2-00-00-00 to -0F, which bridges do not forward.",
            chooses_port: false,
        },
    ],
    drops: &[
        Drop { name: "truncated", sentence: "The frame ends within its Ethernet header or its VLAN tag." },
        Drop { name: "port", sentence: "The frame arrived on a port that does not belong to the switch." },
        Drop {
            name: "vlan",
            sentence: "The port does not accept frames of this VLAN, untagged frames, or tagged frames.",
        },
        Drop { name: "source", sentence: "The source is a group address or all zeros." },
        Drop { name: "same_port", sentence: "The destination is at the port that the frame arrived on." },
    ],
    variants: &["all"],
    in_order: false,
    reads_bytes: 18,
    writes_bytes: 0,
    headroom_bytes: tags::TAG_BYTES as u16,
    tailroom_bytes: 0,
    tailroom_saved: [0; 16],
    counters: &[
        Counter { name: "addresses", unit: "addresses", sentence: "Addresses in the table now, learned and static." },
        Counter { name: "learned", unit: "addresses", sentence: "Addresses learned from frames." },
        Counter { name: "moved", unit: "addresses", sentence: "Addresses learned at a different port than before." },
        Counter { name: "aged", unit: "addresses", sentence: "Addresses removed because no frame arrived from them." },
        Counter { name: "displaced", unit: "entries", sentence: "Entries moved to their other bucket to make room." },
        Counter {
            name: "unheard",
            unit: "notices",
            sentence: "Notices of source addresses that did not fit into the queue to the control side.",
        },
        Counter {
            name: "not_learned",
            unit: "addresses",
            sentence: "Addresses that did not fit into the table or exceeded the limit of their port.",
        },
    ],
    spec: "IEEE 802.1Q-2018 clauses 6.9, 8.6 to 8.8; Zhou et al., CoNEXT 2013",
};

/// Registration of the function.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Returns the key of an address in the table: `VID << 48 | MAC`.
pub fn key(vid: u16, mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from(vid) << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// Returns the VID and address of a key.
pub fn vid_and_mac(key: u64) -> (u16, MacAddress) {
    let [_, _, a, b, c, d, e, f] = key.to_be_bytes();
    ((key >> 48) as u16, MacAddress([a, b, c, d, e, f]))
}

/// Configured switch.
pub struct L2 {
    switch: Arc<Switch>,
    image: Arc<Image>,
    /// Known addresses, for `ref`.
    entries: Arc<RwLock<Entries>>,
    /// Counters. They can be read while the control side holds its lock.
    shared: Arc<SharedState>,
    control: Mutex<Control>,
    started: Instant,
}

impl L2 {
    fn new(config: &Config, context: &BuildContext<'_>) -> Result<Self, Error> {
        let switch = Arc::new(config.switch(context)?);
        let control = Control::new(Arc::clone(&switch), config.limits()?)?;
        let function = Self {
            image: Arc::clone(&control.image),
            entries: Arc::clone(&control.entries),
            shared: Arc::clone(&control.shared),
            switch,
            control: Mutex::new(control),
            started: Instant::now(),
        };
        config.add_static(&function.switch, context, &mut function.control())?;
        Ok(function)
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds addresses (see [`key`]) as if they had been learned at these ports. Used by benchmarks
    /// and tests, before packets flow.
    ///
    /// # Errors
    /// [`Error::Command`] if the table has no room.
    pub fn learn_all(&self, addresses: &[(u64, u8)]) -> Result<(), Error> {
        self.control().learn_all(addresses, None)
    }

    /// Returns the port of an address, without using the table image.
    pub fn lookup_ref(&self, key: u64) -> Option<u8> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(&key).map(|entry| entry.port)
    }
}

/// Builds the switch itself, for callers of [`L2::learn_all`].
///
/// # Errors
/// Returns an error if the stanza is not valid.
pub fn build_switch(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<L2, Error> {
    L2::new(&crate::config::read(stanza)?, context)
}

fn build(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    Ok(Arc::new(build_switch(stanza, context)?))
}

impl Function for L2 {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        (&*self.image).into()
    }

    fn headroom_bytes(&self) -> u16 {
        if self.switch.pushes() { CONTRACT.headroom_bytes } else { 0 }
    }

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<Box<dyn HostHalf>> {
        let sender = self.control().notice_sender();
        Some(Box::new(Host::new(sender)))
    }

    fn command(&self, request: &Value, running: &dyn Running) -> Result<Value, Error> {
        commands::run(&mut self.control(), request, self.started.elapsed(), running)
    }

    fn flood_ports(&self, set: u32) -> &[u8] {
        self.switch.members(set as u16)
    }

    fn prepare_copy(&self, buffer: &mut [u8], descriptor: &mut Descriptor, port: u8, set: u32) {
        let vid = set as u16;
        tags::retag(buffer, descriptor, vid, self.switch.is_tagged(vid, port));
    }

    fn housekeeping_interval(&self) -> Option<Duration> {
        Some(HOUSEKEEPING_INTERVAL)
    }

    fn housekeeping(&self, running: &dyn Running) -> Result<(), Error> {
        self.control().housekeeping(self.started.elapsed(), running)
    }

    fn counts(&self) -> Vec<u64> {
        self.shared.counts()
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        reference::run_ref(buffer, descriptor, &self.switch, &entries)
    }
}

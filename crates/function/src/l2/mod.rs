//! `l2`: an Ethernet switch with VLANs.
//!
//! | file | holds |
//! |---|---|
//! | `switch.rs`, `tags.rs` | ports and VLANs; tags put on and taken off |
//! | `hash.rs`, `cuckoo.rs`, `waves.rs` | the table of addresses: where an address lies, how one gets in, in which order it is written down |
//! | `control.rs`, `commands.rs` | what is learned, ages, is added and deleted, on the control side |
//! | `host.rs` | what a worker does behind the kernel: tags, and telling the control side of sources |
//! | `macs.rs` | the file of static addresses |
//!
//! The table changes in place while look-ups run; `kernels/l2/image.h` says why each of them finds what is there.

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
use host::{Host, Shared};
use switch::Switch;

#[doc(hidden)]
pub use macs::parse as parse_macs;

/// The destination is behind another port, `Outcome::port`; `Outcome::value` is the VID.
pub const VERDICT_FORWARD: u8 = 0;
/// The frame goes to all ports of its VLAN, whose VID `Outcome::value` is.
pub const VERDICT_FLOOD: u8 = 1;
/// The frame is for this bridge itself.
pub const VERDICT_RESERVED: u8 = 2;

/// The frame ends too early.
pub const DROP_TRUNCATED: u8 = 0;
/// It came by a port that is none of the switch's.
pub const DROP_PORT: u8 = 1;
/// Its VLAN is not one of the port's.
pub const DROP_VLAN: u8 = 2;
/// Nobody can have sent it.
pub const DROP_SOURCE: u8 = 3;
/// Its destination is where it came from.
pub const DROP_SAME_PORT: u8 = 4;

/// [`Outcome::value`] of the kernel: the control side is to hear of the source.
const NOTICE: u32 = 0x8000_0000;
/// The tag comes off.
const POP: u32 = 0x0001_0000;
/// A tag of the VLAN is put on.
const PUSH: u32 = 0x0002_0000;
/// The tag has VID 0 and gets that of the VLAN.
const SET: u32 = 0x0003_0000;
/// All of these; below them is the VID.
const FLAGS: u32 = 0xffff_0000;

/// How often the control side looks at what workers have heard.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(10);

/// The contract block of `kernels/l2/`, as data.
pub const CONTRACT: Contract = Contract {
    kind: "l2",
    summary: "Switches Ethernet frames by VLAN and address, and learns where addresses are (a cuckoo hash table).",
    kernel: godwit_kernels::L2,
    verdicts: &[
        Verdict {
            name: "forward",
            sentence: "The destination is behind another port; the tag is as that port has it.",
            chooses_port: true,
        },
        Verdict {
            name: "flood",
            sentence: "The destination is a group, or unknown: for all ports of the VLAN but the one it came by.",
            chooses_port: true,
        },
        Verdict {
            name: "reserved",
            sentence: "The destination is one of 01-80-C2-00-00-00 to -0F, which no bridge forwards.",
            chooses_port: false,
        },
    ],
    drops: &[
        Drop { name: "truncated", sentence: "The frame ends before its Ethernet header or its tag does." },
        Drop { name: "port", sentence: "The frame came by a port that is none of the switch's." },
        Drop { name: "vlan", sentence: "The port does not take frames of this VLAN, or without a tag, or with one." },
        Drop { name: "source", sentence: "The source is a group address or all zeros." },
        Drop { name: "same_port", sentence: "The destination is behind the port that the frame came by." },
    ],
    variants: &["all"],
    in_order: false,
    reads_bytes: 18,
    writes_bytes: 0,
    headroom_bytes: tags::TAG_BYTES as u16,
    tailroom_bytes: 0,
    tailroom_saved: [0; 16],
    counters: &[
        Counter { name: "addresses", unit: "addresses", sentence: "In the table now, learned and static." },
        Counter { name: "learned", unit: "addresses", sentence: "Learned from frames." },
        Counter { name: "moved", unit: "addresses", sentence: "Learned at another port than before." },
        Counter { name: "aged", unit: "addresses", sentence: "Removed because nothing was heard of them." },
        Counter { name: "displaced", unit: "entries", sentence: "Moved to their other bucket to make room." },
        Counter {
            name: "unheard",
            unit: "notices",
            sentence: "Sources that the control side was not told of, because it was told of too many.",
        },
        Counter {
            name: "not_learned",
            unit: "addresses",
            sentence: "Addresses for which the table, or the limit of their port, had no room.",
        },
    ],
    spec: "IEEE 802.1Q-2018 clauses 6.9, 8.6 to 8.8; Zhou et al., CoNEXT 2013",
};

/// The registration.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// VLAN and address, as the table has them: `VID << 48 | MAC`.
pub fn key(vid: u16, mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from(vid) << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// The other way round.
pub fn vid_and_mac(key: u64) -> (u16, MacAddress) {
    let [_, _, a, b, c, d, e, f] = key.to_be_bytes();
    ((key >> 48) as u16, MacAddress([a, b, c, d, e, f]))
}

/// The configured function.
pub struct L2 {
    switch: Arc<Switch>,
    image: Arc<Image>,
    /// What is known, for `ref`.
    entries: Arc<RwLock<Entries>>,
    /// Counters, which are read while the control side waits for packets.
    shared: Arc<Shared>,
    control: Mutex<Control>,
    started: Instant,
}

impl L2 {
    fn new(config: &Config, site: &BuildContext<'_>) -> Result<Self, Error> {
        let switch = Arc::new(config.switch(site)?);
        let control = Control::new(Arc::clone(&switch), config.limits()?)?;
        let function = Self {
            image: Arc::clone(&control.image),
            entries: Arc::clone(&control.entries),
            shared: Arc::clone(&control.shared),
            switch,
            control: Mutex::new(control),
            started: Instant::now(),
        };
        config.add_static(&function.switch, site, &mut function.control())?;
        Ok(function)
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts addresses (see [`key`]) into the table as if they had been learned, at these ports: for benches and tests, before
    /// packets flow.
    ///
    /// # Errors
    /// [`Error::Command`] where the table has no room.
    pub fn learn_all(&self, addresses: &[(u64, u8)]) -> Result<(), Error> {
        self.control().learn_all(addresses, None)
    }

    /// The port of an address, found without the table image.
    pub fn lookup_ref(&self, key: u64) -> Option<u8> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(&key).map(|entry| entry.port)
    }
}

/// Builds the function itself, for those who learn by [`L2::learn_all`].
///
/// # Errors
/// As a stanza is refused.
pub fn build_switch(stanza: Spanned<DeTable<'_>>, site: &BuildContext<'_>) -> Result<L2, Error> {
    L2::new(&crate::config::read(stanza)?, site)
}

fn build(stanza: Spanned<DeTable<'_>>, site: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    Ok(Arc::new(build_switch(stanza, site)?))
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
        let ear = self.control().ear();
        Some(Box::new(Host::new(ear)))
    }

    fn command(&self, request: &Value, running: &dyn Running) -> Result<Value, Error> {
        commands::run(&mut self.control(), request, self.started.elapsed(), running)
    }

    fn flood_ports(&self, set: u32) -> &[u8] {
        self.switch.members(set as u16)
    }

    fn dress(&self, buffer: &mut [u8], descriptor: &mut Descriptor, port: u8, set: u32) {
        let vid = set as u16;
        tags::dress(buffer, descriptor, vid, self.switch.is_tagged(vid, port));
    }

    fn housekeeping_interval(&self) -> Option<Duration> {
        Some(HOUSEKEEPING_INTERVAL)
    }

    fn housekeeping(&self, running: &dyn Running) -> Result<(), Error> {
        self.control().keep_house(self.started.elapsed(), running)
    }

    fn counts(&self) -> Vec<u64> {
        self.shared.counts()
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        reference::run_ref(buffer, descriptor, &self.switch, &entries)
    }
}

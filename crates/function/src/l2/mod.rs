//! The function `l2` is an Ethernet switch with VLANs.
//!
//! | file | holds |
//! |---|---|
//! | `switch.rs`, `tags.rs` | ports and VLANs; adding and removing tags |
//! | `table.rs` | the address table, a table of `crate::tables::exact` |
//! | `control.rs`, `commands.rs` | learning, ageing and commands, outside the workers |
//! | `host.rs` | the part that runs on the CPU: tags, and reports of source addresses |
//! | `macs.rs` | the file of static addresses |
//!
//! The address table changes in place while kernels look up addresses. `kernels/l2/l2.h` explains
//! why lookups still find every address.

mod commands;
mod config;
mod control;
#[doc(hidden)]
pub mod fuzz;
mod host;
mod macs;
mod reference;
mod switch;
mod table;
mod tables;
mod tags;
#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use godwit_abi::{Descriptor, Outcome};
use godwit_kernels::image::{L2_NOTICE as NOTICE, L2_POP as POP, L2_PUSH as PUSH, L2_SET as SET};
use godwit_packet::{Image, ImageRef};
use godwit_wire::MacAddress;
use serde_json::Value;
use toml::Spanned;
use toml::de::DeTable;

use crate::{
    BuildContext, Contract, Error, Flood, Function, HostHalf, Housekeeping, Kind, Operate, Properties, Running,
};

/// Properties, verdicts and drop reasons of the function, as declared in `kernels/l2/l2.h`.
pub use godwit_kernels::declared::l2::*;

use config::Config;
use control::{Control, Entries};
use host::{Host, SharedState};
use switch::Switch;

#[doc(hidden)]
pub use macs::parse as parse_macs;

/// Mask of all flags in [`Outcome::value`]. The remaining bits hold the VLAN identifier (VID).
const FLAGS: u32 = 0xffff_0000;

/// Interval at which source address reports are read.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(10);

/// Registration of the function kind `l2`.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Returns the lookup key for the address of a station in a VLAN: `VID << 48 | MAC`.
pub fn key(vid: u16, mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from(vid) << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// Returns the VLAN identifier (VID) and the MAC address in a lookup key.
pub fn vid_and_mac(key: u64) -> (u16, MacAddress) {
    let [_, _, a, b, c, d, e, f] = key.to_be_bytes();
    ((key >> 48) as u16, MacAddress([a, b, c, d, e, f]))
}

/// Ethernet switch that was built from its configuration.
pub struct L2 {
    switch: Arc<Switch>,
    image: Arc<Image>,
    /// Known addresses, for the reference implementation.
    entries: Arc<RwLock<Entries>>,
    /// Counters that can be read without locking the state.
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

    /// Adds addresses with their ports to the table, as if a frame from each address had arrived.
    /// [`key`] describes the format of an address. Benchmarks and tests call this method before
    /// packets flow.
    ///
    /// # Errors
    /// Returns [`Error::Command`] if the table has no room for all addresses.
    pub fn learn_all(&self, addresses: &[(u64, u8)]) -> Result<(), Error> {
        self.control().learn_all(addresses, None)
    }

    /// Returns the port of an address. The search uses the host's map instead of the kernel's
    /// table.
    pub fn lookup_ref(&self, key: u64) -> Option<u8> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(&key).map(|entry| entry.port)
    }
}

/// Builds the switch as an [`L2`], so that the caller can use [`L2::learn_all`].
///
/// # Errors
/// Returns an error if the configuration is not valid.
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

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<HostHalf> {
        let sender = self.control().notice_sender();
        Some(HostHalf::Complete(Box::new(Host::new(sender))))
    }

    fn properties(&self) -> Properties {
        let headroom_bytes = if self.switch.pushes() { CONTRACT.headroom_bytes } else { 0 };
        Properties { headroom_bytes, ..Properties::of(&CONTRACT) }
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn housekeeping(&self) -> Option<&dyn Housekeeping> {
        Some(self)
    }

    fn flood(&self) -> Option<&dyn Flood> {
        Some(self)
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        reference::run_ref(buffer, descriptor, &self.switch, &entries)
    }
}

impl Operate for L2 {
    fn command(&self, request: &Value, running: &dyn Running) -> Result<Value, Error> {
        commands::run(&mut self.control(), request, self.started.elapsed(), running)
    }

    fn tables(&self) -> Vec<(String, u64)> {
        vec![("addresses".to_owned(), self.shared.addresses.load(Ordering::Relaxed))]
    }

    fn counts(&self) -> Vec<u64> {
        self.shared.counts()
    }
}

impl Housekeeping for L2 {
    fn interval(&self) -> Duration {
        HOUSEKEEPING_INTERVAL
    }

    fn run(&self, running: &dyn Running) -> Result<(), Error> {
        self.control().housekeeping(self.started.elapsed(), running)
    }
}

impl Flood for L2 {
    fn ports(&self, set: u32) -> &[u8] {
        self.switch.members(set as u16)
    }

    fn prepare_copy(&self, buffer: &mut [u8], descriptor: &mut Descriptor, port: u8, set: u32) {
        let vid = set as u16;
        tags::retag(buffer, descriptor, vid, self.switch.is_tagged(vid, port));
    }
}

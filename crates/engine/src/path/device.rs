//! A device as one worker uses it.

use godwit_device::Lane;
use godwit_sched::Packer;

use crate::place::balance::{Load, Offer};

/// A device as one worker uses it: packer, lane, and measured load.
pub(crate) struct WorkerDevice {
    /// Configured name of the device.
    pub(crate) id: String,
    pub(crate) packer: Packer,
    pub(crate) lane: Box<dyn Lane>,
    pub(crate) load: Load,
}

impl WorkerDevice {
    pub(crate) fn new(id: &str, packer: Packer, lane: Box<dyn Lane>) -> Self {
        Self { id: id.to_owned(), packer, lane, load: Load::default() }
    }

    /// Returns whether the filling chunk should go to the device now. If `is_idle` is set, a device
    /// without chunks in flight also gets a chunk that is not full. If `flush` is set, every device
    /// does.
    pub(crate) fn is_due(&self, now_ns: u64, is_idle: bool, flush: bool) -> bool {
        let early = flush || (is_idle && self.lane.in_flight() == 0);
        self.packer.ready(now_ns) || (early && self.packer.waiting() > 0)
    }

    /// Returns whether no packet is in bins or in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.packer.waiting() == 0 && self.lane.in_flight() == 0
    }

    /// Returns the properties on which the choice of a device depends. `device` is its index.
    pub(crate) fn offer(&self, device: usize) -> Offer {
        Offer {
            device,
            load: self.load,
            chunk_packets: self.packer.config().chunk_packets,
            // The filling chunk is not full, or another set of bins is free.
            has_room: self.packer.has_free_set() || !self.packer.is_full(),
        }
    }
}

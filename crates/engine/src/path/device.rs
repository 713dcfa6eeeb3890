//! The view that one worker has of a device.

use godwit_device::Lane;
use godwit_sched::Packer;

use crate::place::balance::{Load, Offer};

/// A device of one worker, with the waiting batches, the connection to the device, and its measured
/// speed.
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

    /// Returns whether the waiting packets must now be submitted to the device. A submission is due
    /// if it is full or has reached its deadline. Any packets are due if `flush` is set, or if
    /// `is_idle` is set and the device has no work.
    pub(crate) fn is_due(&self, now_ns: u64, is_idle: bool, flush: bool) -> bool {
        let early = flush || (is_idle && self.lane.in_flight() == 0);
        self.packer.ready(now_ns) || (early && self.packer.waiting() > 0)
    }

    /// Returns whether no packet waits for the device or is on the device.
    pub(crate) fn is_empty(&self) -> bool {
        self.packer.waiting() == 0 && self.lane.in_flight() == 0
    }

    /// Returns the properties by which the scheduler compares devices. `device` is the index of
    /// this device.
    pub(crate) fn offer(&self, device: usize) -> Offer {
        Offer {
            device,
            load: self.load,
            chunk_packets: self.packer.config().chunk_packets,
            has_room: self.packer.has_free_set() || !self.packer.is_full(),
        }
    }
}

//! The view that one worker has of a device.

use godwit_device::Lane;
use godwit_sched::Packer;

use crate::place::balance::{Load, Offer};

/// A device as one worker uses it. The packer fills batches of packets, the lane is the worker's
/// connection to the device, and the load is the measured speed.
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

    /// Returns whether the worker should now submit the chunk that is being filled for the device.
    /// A full chunk is always submitted. If `is_idle` is set, a device without work also gets a
    /// chunk that is not full. If `flush` is set, every device gets it.
    pub(crate) fn is_due(&self, now_ns: u64, is_idle: bool, flush: bool) -> bool {
        let early = flush || (is_idle && self.lane.in_flight() == 0);
        self.packer.ready(now_ns) || (early && self.packer.waiting() > 0)
    }

    /// Returns whether no packet waits in a bin (a batch for the device) and none is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.packer.waiting() == 0 && self.lane.in_flight() == 0
    }

    /// Returns the properties of the device from which the scheduler chooses a device for the next
    /// packets. `device` is the index of this device.
    pub(crate) fn offer(&self, device: usize) -> Offer {
        Offer {
            device,
            load: self.load,
            chunk_packets: self.packer.config().chunk_packets,
            // Packets fit into the chunk that is being filled, or another set of bins is free.
            has_room: self.packer.has_free_set() || !self.packer.is_full(),
        }
    }
}

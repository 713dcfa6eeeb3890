//! Batches of packets. A port passes received packets to a worker in a batch.

use crate::Descriptor;

/// Arrival number and time of a packet. The worker keeps them until the packet leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Position of the packet among all packets of its arrival port. It does not depend on the
    /// number of workers.
    pub sequence: u64,
    /// Arrival time in nanoseconds, from the capture file or the machine's clock.
    pub time_ns: u64,
}

/// Packets that arrived together, in arrival order. Both vectors have one entry per packet.
#[derive(Debug, Default)]
pub struct Batch {
    /// Descriptors of the packets.
    pub descriptors: Vec<Descriptor>,
    /// Arrival data of each packet.
    pub stamps: Vec<Stamp>,
}

impl Batch {
    /// Creates an empty batch with capacity for `packets` packets.
    pub fn with_capacity(packets: usize) -> Self {
        Self { descriptors: Vec::with_capacity(packets), stamps: Vec::with_capacity(packets) }
    }

    /// Appends one packet.
    #[inline]
    pub fn push(&mut self, descriptor: Descriptor, stamp: Stamp) {
        self.descriptors.push(descriptor);
        self.stamps.push(stamp);
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.descriptors.len()
    }

    /// Returns whether the batch has no packets.
    pub fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// Removes all packets and keeps the capacity.
    pub fn clear(&mut self) {
        self.descriptors.clear();
        self.stamps.clear();
    }
}

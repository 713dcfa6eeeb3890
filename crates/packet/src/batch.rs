//! What a port hands to a worker.

use crate::Descriptor;

/// What the host remembers of a packet from its arrival to its departure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The packet's number in its source: unique per source, the same whatever the number of workers.
    pub sequence: u64,
    /// Time of arrival in nanoseconds: of the capture where there is one, else of the machine's clock.
    pub time_ns: u64,
}

/// Packets that arrived together, in order. Both vectors have one entry a packet.
#[derive(Debug, Default)]
pub struct Batch {
    /// The packets.
    pub descriptors: Vec<Descriptor>,
    /// What the host remembers of each.
    pub stamps: Vec<Stamp>,
}

impl Batch {
    /// An empty batch with room for `packets`.
    pub fn with_capacity(packets: usize) -> Self {
        Self { descriptors: Vec::with_capacity(packets), stamps: Vec::with_capacity(packets) }
    }

    /// Appends one packet.
    #[inline]
    pub fn push(&mut self, descriptor: Descriptor, stamp: Stamp) {
        self.descriptors.push(descriptor);
        self.stamps.push(stamp);
    }

    /// Packets in it.
    pub fn len(&self) -> usize {
        self.descriptors.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// Forgets all packets, keeps the room.
    pub fn clear(&mut self) {
        self.descriptors.clear();
        self.stamps.clear();
    }
}

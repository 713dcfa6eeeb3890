//! Restores the arrival order of packets. All packets in flight are in a ring, and wait at gates
//! until they are next in arrival order.
//!
//! ```text
//!         exit              gate 2        gate 1            arrival
//!          |                  |             |                  |
//!    ring  v [out][fn ][out ][ 2 ][fn ][ 2 ][ 1 ][fn ][ 1 ][fn ] v
//!             oldest packet in flight               newest packet
//! ```
//! Each function that needs arrival order has a gate in front of it. The last gate is the exit, in
//! front of the ports. Gates are numbered in an order that every function chain respects, so the
//! `progress` of a packet only increases. A gate passes the next packet once the packet waits
//! there. It skips packets that have taken another path beyond the gate, and packets that have left
//! or were dropped. No packet overtakes another at a gate.
//!
//! If a function creates packets from another packet, all of them share its ring slot. The progress
//! of a shared slot is that of its slowest packet. A gate passes all packets of a slot together, in
//! their order.

mod arrival;
mod class;
mod exit;
mod gate;
mod shared;

use std::collections::HashMap;
use std::ops::Range;

use godwit_packet::{Descriptor, Stamp, are_in_order};

pub(crate) use self::exit::Copies;
use self::shared::SharedPacket;

const GONE: u8 = u8::MAX;
/// Value of `progress` for a ring slot with several packets, all of which wait to leave. Packets
/// that have not passed all functions have smaller values.
const SHARED: u8 = u8::MAX - 1;
/// Value of `progress` for a packet that waits to leave through several ports. Packets that have
/// not passed all functions have smaller values.
const FLOODED: u8 = u8::MAX - 2;

/// Destination of a packet that leaves through several ports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flood {
    /// Number of the function that sends the packet to several ports.
    pub(crate) function: usize,
    /// Number of the port set, as defined by the function.
    pub(crate) set: u32,
}

/// The packets in flight of one worker, in arrival order. A packet occupies the ring slot
/// `descriptor.order`. The slot becomes free when this packet and all earlier packets have left or
/// were dropped.
#[derive(Debug)]
pub(crate) struct Order {
    mask: usize,
    /// Number of ring slots assigned since the start.
    arrived: usize,
    /// For each gate, the number of ring slots that have passed it since the start. Packets wait at
    /// gates for their turn in arrival order. The last gate is in front of the ports.
    passed: Vec<usize>,
    progress: Vec<u8>,
    descriptors: Vec<Descriptor>,
    stamps: Vec<Stamp>,
    arrivals_ns: Vec<u64>,
    classes: Vec<u8>,
    egress: Vec<u8>,
    /// Destination of each packet that leaves through several ports, at the index of its ring slot.
    /// The list is empty until the first such packet.
    floods: Vec<Flood>,
    shared: HashMap<usize, Vec<SharedPacket>>,
}

impl Order {
    /// Creates a ring for `packets` packets in flight. `gates` is the number of functions that
    /// require arrival order.
    ///
    /// `packets` must be a power of two and at most 65536, because `Descriptor::order` has 16 bits.
    pub(crate) fn new(packets: usize, gates: usize) -> Self {
        assert!(packets.is_power_of_two() && packets <= 1 << 16, "ring of {packets} slots");
        assert!(gates < 100, "{gates} gates");
        Self {
            mask: packets - 1,
            arrived: 0,
            passed: vec![0; gates + 1],
            progress: vec![GONE; packets],
            descriptors: vec![Descriptor::default(); packets],
            stamps: vec![Stamp::default(); packets],
            arrivals_ns: vec![0; packets],
            classes: vec![0; packets],
            egress: vec![0; packets],
            floods: Vec::new(),
            shared: HashMap::new(),
        }
    }

    /// Returns the progress of a packet that has passed this number of gates and does not wait at
    /// the next gate. Packets wait at gates for their turn in arrival order.
    pub(crate) fn after(gates: usize) -> u8 {
        2 * gates as u8
    }

    fn waiting_at(gate: usize) -> u8 {
        2 * gate as u8 + 1
    }

    fn exit(&self) -> usize {
        self.passed.len() - 1
    }

    /// Returns the number of ring slots, which limits the packets in flight.
    pub(crate) fn capacity(&self) -> usize {
        self.mask + 1
    }

    /// Returns the number of free slots of the ring.
    pub(crate) fn room(&self) -> usize {
        self.capacity() - self.in_flight()
    }

    /// Returns the number of ring slots that were assigned since the start.
    pub(crate) fn arrived(&self) -> usize {
        self.arrived
    }

    /// Returns the number of ring slots that have become free since the start.
    pub(crate) fn passed(&self) -> usize {
        self.passed[self.exit()]
    }

    /// Returns the number of ring slots that packets occupy.
    pub(crate) fn in_flight(&self) -> usize {
        self.arrived - self.passed[self.exit()]
    }

    /// Returns the ring slots of up to `count` consecutive packets. `first` is the number of
    /// packets that arrived before them. The result does not extend beyond the end of the ring.
    #[inline]
    fn contiguous(&self, first: usize, count: usize) -> Range<usize> {
        let slot = first & self.mask;
        slot..(slot + count).min(self.mask + 1)
    }

    #[inline]
    fn slot(&self, descriptor: &Descriptor) -> usize {
        usize::from(descriptor.order) & self.mask
    }

    /// Returns the ring slots of packets that arrived one after another. Returns `None` for an
    /// empty list, or if the slots wrap around the end of the ring. Also returns `None` while any
    /// slot of the ring contains several packets.
    #[inline]
    fn slots(&self, descriptors: &[Descriptor]) -> Option<Range<usize>> {
        let [first, ..] = descriptors else { return None };
        let last = descriptors.last().filter(|_| self.shared.is_empty())?;
        let slot = self.slot(first);
        let slots = slot..slot + descriptors.len();
        let may_be_in_order = usize::from(last.order.wrapping_sub(first.order)) + 1 == descriptors.len();
        (slots.end <= self.mask + 1 && may_be_in_order && are_in_order(descriptors)).then_some(slots)
    }

    /// Removes a packet from the ring without regard to arrival order. The packet was dropped, or
    /// its egress port does not require arrival order.
    #[inline]
    pub(crate) fn leave(&mut self, descriptor: &Descriptor) {
        let slot = self.slot(descriptor);
        debug_assert_ne!(self.progress[slot], GONE, "a packet left twice");
        if !self.shared.is_empty() && self.update_shared(slot, descriptor, GONE, None) {
            return;
        }
        self.progress[slot] = GONE;
    }

    /// Returns the stamp of a packet, which contains its sequence number and source time. Also
    /// returns its arrival time in nanoseconds.
    #[inline]
    pub(crate) fn stamp_and_arrival(&self, descriptor: &Descriptor) -> (Stamp, u64) {
        let slot = self.slot(descriptor);
        (self.stamps[slot], self.arrivals_ns[slot])
    }
}

#[cfg(test)]
mod tests;

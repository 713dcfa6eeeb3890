//! Arrival: assigns ring slots to packets.

use godwit_packet::{Descriptor, Stamp};

use super::Order;

impl Order {
    /// Assigns slots of the order ring to packets that arrive together. The ring stores packets in
    /// arrival order. The caller has checked that enough slots are free.
    #[inline]
    pub(crate) fn arrive(&mut self, descriptors: &mut [Descriptor], stamps: &[Stamp], now_ns: u64) {
        debug_assert!(self.room() >= descriptors.len() && descriptors.len() == stamps.len());
        for (index, descriptor) in descriptors.iter_mut().enumerate() {
            descriptor.order = (self.arrived + index) as u16;
        }
        let mut rest = stamps;
        while !rest.is_empty() {
            let slots = self.contiguous(self.arrived, rest.len());
            let (stamps, remaining) = rest.split_at(slots.len());
            self.arrived += slots.len();
            self.progress[slots.clone()].fill(0);
            self.stamps[slots.clone()].copy_from_slice(stamps);
            self.arrivals_ns[slots].fill(now_ns);
            rest = remaining;
        }
    }

    /// Assigns slots of the order ring to packets that arrived at other workers, as
    /// [`arrive`](Self::arrive) does. `arrivals_ns` contains the arrival time of each packet.
    pub(crate) fn arrive_at(&mut self, descriptors: &mut [Descriptor], stamps: &[Stamp], arrivals_ns: &[u64]) {
        let (mut packets, mut stamps, mut times) = (descriptors, stamps, arrivals_ns);
        while let Some(&time_ns) = times.first() {
            let alike = times.iter().take_while(|time| **time == time_ns).count();
            let (run, other_packets) = packets.split_at_mut(alike);
            let (run_stamps, other_stamps) = stamps.split_at(alike);
            self.arrive(run, run_stamps, time_ns);
            (packets, stamps, times) = (other_packets, other_stamps, &times[alike..]);
        }
    }
}

//! Makes packets wait until they can enter a function in arrival order. They wait at a gate in
//! front of the function.

use godwit_packet::Descriptor;

use super::Order;

impl Order {
    /// Records the progress of a packet that does not wait. The value is twice the number of gates
    /// that the packet has passed. Packets wait at gates for their turn in arrival order.
    #[inline]
    pub(crate) fn advance(&mut self, descriptor: &Descriptor, progress: u8) {
        let slot = self.slot(descriptor);
        debug_assert!(self.progress[slot] <= progress, "a packet moved backward in its chain");
        if !self.shared.is_empty() && self.update_shared(slot, descriptor, progress, None) {
            return;
        }
        self.progress[slot] = progress;
    }

    /// Records that a packet waits at a gate for its turn in arrival order. `gate` is the number of
    /// the gate.
    #[inline]
    pub(crate) fn wait(&mut self, descriptor: &Descriptor, gate: usize) {
        let slot = self.slot(descriptor);
        debug_assert!(self.progress[slot] < Self::waiting_at(gate), "a packet moved backward in its chain");
        if !self.shared.is_empty() && self.update_shared(slot, descriptor, Self::waiting_at(gate), None) {
            return;
        }
        self.descriptors[slot] = *descriptor;
        self.progress[slot] = Self::waiting_at(gate);
    }

    /// Lets consecutive packets pass a gate and enter its function if they are next in arrival
    /// order. Returns false if the packets did not enter. They must then [wait](Self::wait).
    #[inline]
    pub(crate) fn enter(&mut self, gate: usize, descriptors: &[Descriptor]) -> bool {
        let passed = self.passed[gate].max(self.passed[self.exit()]);
        match self.slots(descriptors) {
            // The ring holds at most 2^16 packets, so 16 bits identify a packet in the ring.
            Some(slots) if passed as u16 == descriptors[0].order => {
                self.progress[slots].fill(Self::after(gate + 1));
                self.passed[gate] = passed + descriptors.len();
                true
            }
            _ => false,
        }
    }

    /// Lets the packets that wait at a gate enter its function if they are next in arrival order,
    /// and appends them to `next`.
    pub(crate) fn open(&mut self, gate: usize, next: &mut Vec<Descriptor>) {
        debug_assert!(gate < self.exit());
        let mut passed = self.passed[gate].max(self.passed[self.exit()]);
        while passed < self.arrived {
            let slot = passed & self.mask;
            if self.progress[slot] < Self::waiting_at(gate) {
                break;
            }
            let waits = self.progress[slot] == Self::waiting_at(gate);
            if waits && (self.shared.is_empty() || !self.pass_shared(slot, gate, next)) {
                self.progress[slot] = Self::after(gate + 1);
                next.push(self.descriptors[slot]);
            }
            passed += 1;
        }
        self.passed[gate] = passed;
    }
}

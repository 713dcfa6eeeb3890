//! Handles ring slots that several packets share, because a function created them from one packet.

use godwit_packet::Descriptor;

use super::{Flood, GONE, Order, SHARED};

/// A packet in a ring slot that contains several packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedPacket {
    /// Descriptor of the packet. Its buffer identifies the packet.
    pub(super) descriptor: Descriptor,
    pub(super) progress: u8,
    pub(super) destination: Destination,
}

/// Egress port or set of egress ports of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Destination {
    Port(u8),
    Flood(Flood),
}

impl Order {
    /// Puts `packet`, which a function created from `original`, into the ring slot of `original`.
    /// It directly follows `original` in arrival order.
    #[cold]
    pub(crate) fn share_slot(&mut self, original: &Descriptor, packet: &mut Descriptor) {
        let slot = self.slot(original);
        packet.order = original.order;
        let first =
            SharedPacket { descriptor: *original, progress: self.progress[slot], destination: Destination::Port(0) };
        let members = self.shared.entry(slot).or_insert_with(|| vec![first]);
        let index = Self::index_of(members, original);
        members.insert(index + 1, SharedPacket { descriptor: *packet, ..members[index] });
    }

    /// Replaces `packet` in its ring slot with `whole`, which was joined from `packet` and others.
    #[cold]
    pub(crate) fn replace_packet(&mut self, packet: &Descriptor, whole: &Descriptor) {
        let slot = self.slot(packet);
        if let Some(members) = self.shared.get_mut(&slot) {
            let index = Self::index_of(members, packet);
            members[index].descriptor = *whole;
        }
    }

    fn index_of(members: &[SharedPacket], descriptor: &Descriptor) -> usize {
        let index = members.iter().position(|member| member.descriptor.buffer == descriptor.buffer);
        index.unwrap_or_else(|| unreachable!("a packet outside its slot: {descriptor:?}"))
    }

    /// Updates a packet in a ring slot that contains several packets. A function created all of
    /// them from one packet. Returns false if the slot contains only one packet.
    #[cold]
    pub(super) fn update_shared(
        &mut self,
        slot: usize,
        descriptor: &Descriptor,
        progress: u8,
        destination: Option<Destination>,
    ) -> bool {
        let Some(members) = self.shared.get_mut(&slot) else { return false };
        let index = Self::index_of(members, descriptor);
        if progress == GONE {
            members.remove(index);
        } else {
            let destination = destination.unwrap_or(members[index].destination);
            members[index] = SharedPacket { descriptor: *descriptor, progress, destination };
        }
        self.update_shared_slot(slot);
        true
    }

    /// Sets the progress of a ring slot to the smallest progress of its packets. Frees the slot if
    /// no packet is left in it.
    fn update_shared_slot(&mut self, slot: usize) {
        let slowest = self.shared.get(&slot).and_then(|members| members.iter().map(|member| member.progress).min());
        self.progress[slot] = match slowest {
            Some(progress) if progress == Self::waiting_at(self.exit()) => SHARED,
            slowest => slowest.unwrap_or(GONE),
        };
        if slowest.is_none() {
            self.shared.remove(&slot);
        }
    }

    /// Lets the packets in a ring slot enter a function if they wait in front of it, and appends
    /// them to `next`. Returns false if the slot contains only one packet.
    #[cold]
    pub(super) fn pass_shared(&mut self, slot: usize, gate: usize, next: &mut Vec<Descriptor>) -> bool {
        let Some(members) = self.shared.get_mut(&slot) else { return false };
        for member in members.iter_mut().filter(|member| member.progress == Self::waiting_at(gate)) {
            member.progress = Self::after(gate + 1);
            next.push(member.descriptor);
        }
        self.update_shared_slot(slot);
        true
    }
}

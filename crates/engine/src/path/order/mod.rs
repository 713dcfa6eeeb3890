//! Restores the arrival order of packets: a ring of all packets in flight, and gates that packets
//! pass in arrival order.
//!
//! ```text
//!         exit              gate 2        gate 1            arrival
//!          |                  |             |                  |
//!    ring  v [out][fn ][out ][ 2 ][fn ][ 2 ][ 1 ][fn ][ 1 ][fn ] v
//!             oldest packet in flight               newest packet
//! ```
//! Each function that needs arrival order has a gate in front of it. The last gate is the exit, in
//! front of the ports. Gates are numbered in an order that every chain respects, so the `progress`
//! of a packet only increases. A gate passes the next packet once the packet waits there. It skips
//! packets that have taken another path beyond the gate, and packets that are gone. No packet
//! overtakes another at a gate.
//!
//! If a function creates packets from another packet, all of them share its ring slot. The progress
//! of a shared slot is that of its slowest packet. A gate passes all packets of a slot together, in
//! their order.

use std::collections::HashMap;
use std::ops::Range;

use godwit_io::Departure;
use godwit_packet::{Descriptor, Stamp, are_in_order};

/// Value of `progress` for a packet that has left or was dropped.
const GONE: u8 = u8::MAX;
/// Value of `progress` for a slot that several packets share, all of which wait at the exit. It is
/// greater than the progress at any gate.
const SHARED: u8 = u8::MAX - 1;
/// Value of `progress` for a packet that waits at the exit to leave by several ports. It is greater
/// than the progress at any gate.
const FLOODED: u8 = u8::MAX - 2;

/// Minimum number of packets that are stored at the exit with copies of whole ring ranges. Fewer
/// packets are stored one by one.
const RANGE_COPY_PACKETS_MIN: usize = 4;

/// Minimum number of consecutive packets for the same port that leave the exit as one run. If runs
/// are shorter, packets were dropped between them, and a loop without branches separates these.
const RUN_PACKETS_MIN: usize = 32;

/// Destination of a flooded packet: a port set of a function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flood {
    /// Number of the function that floods the packet.
    pub(crate) function: usize,
    /// Number of the port set. The function defines it.
    pub(crate) set: u32,
}

/// Packets in flight of one worker. A packet owns the ring slot `descriptor.order` from its arrival
/// until the exit has passed the slot.
#[derive(Debug)]
pub(crate) struct Order {
    mask: usize,
    /// Number of slots assigned since the start.
    arrived: usize,
    /// Number of slots passed since the start, for each gate. The last element is that of the exit.
    passed: Vec<usize>,
    progress: Vec<u8>,
    descriptors: Vec<Descriptor>,
    stamps: Vec<Stamp>,
    arrivals_ns: Vec<u64>,
    classes: Vec<u8>,
    egress: Vec<u8>,
    /// Port set of each flooded packet. The index is the slot. Empty until the first packet is
    /// flooded.
    floods: Vec<Flood>,
    /// Packets of each shared slot. Almost always empty.
    shared: HashMap<usize, Vec<SharedPacket>>,
}

/// A packet in a shared slot.
#[derive(Clone, Copy, Debug)]
struct SharedPacket {
    /// Descriptor of the packet at its last gate. The buffer identifies the packet.
    descriptor: Descriptor,
    progress: u8,
    destination: Destination,
}

/// Egress port, or port set, of a packet.
#[derive(Clone, Copy, Debug)]
enum Destination {
    Port(u8),
    Flood(Flood),
}

impl Order {
    /// Creates a ring for `packets` packets and `gates` functions that need arrival order.
    /// `packets` must be a power of two, at most 65536, because `Descriptor::order` has 16 bits.
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

    /// Returns the progress of a packet that has passed the first `gates` gates and is on its way
    /// to a function.
    pub(crate) fn after(gates: usize) -> u8 {
        2 * gates as u8
    }

    /// Returns the progress of a packet that waits at `gate`.
    fn waiting_at(gate: usize) -> u8 {
        2 * gate as u8 + 1
    }

    fn exit(&self) -> usize {
        self.passed.len() - 1
    }

    /// Returns the number of slots, which is the maximum number of packets in flight.
    pub(crate) fn capacity(&self) -> usize {
        self.mask + 1
    }

    /// Returns the number of free slots.
    pub(crate) fn room(&self) -> usize {
        self.capacity() - self.in_flight()
    }

    /// Returns the number of slots assigned since the start.
    pub(crate) fn arrived(&self) -> usize {
        self.arrived
    }

    /// Returns the number of slots that the exit has passed since the start.
    pub(crate) fn passed(&self) -> usize {
        self.passed[self.exit()]
    }

    /// Returns the number of slots that the exit has not passed.
    pub(crate) fn in_flight(&self) -> usize {
        self.arrived - self.passed[self.exit()]
    }

    /// Assigns the next slots to packets that arrive together. The caller has checked that enough
    /// slots are free.
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

    /// Returns the contiguous slots of up to `count` packets, up to the end of the ring. `first`
    /// counts arrivals since the start.
    #[inline]
    fn contiguous(&self, first: usize, count: usize) -> Range<usize> {
        let slot = first & self.mask;
        slot..(slot + count).min(self.mask + 1)
    }

    /// Stores the class of a packet. It is used only if the chain has class rules.
    #[inline]
    pub(crate) fn classify(&mut self, descriptor: &Descriptor, class: u8) {
        let slot = self.slot(descriptor);
        self.classes[slot] = class;
    }

    #[inline]
    fn slot(&self, descriptor: &Descriptor) -> usize {
        usize::from(descriptor.order) & self.mask
    }

    /// Returns the stored class of a packet.
    #[inline]
    pub(crate) fn class(&self, descriptor: &Descriptor) -> u8 {
        self.classes[self.slot(descriptor)]
    }

    /// Records that the packet is on its way to a function, past `progress / 2` gates.
    #[inline]
    pub(crate) fn advance(&mut self, descriptor: &Descriptor, progress: u8) {
        let slot = self.slot(descriptor);
        debug_assert!(self.progress[slot] <= progress, "a packet moved backward in its chain");
        if !self.shared.is_empty() && self.update_shared(slot, descriptor, progress, None) {
            return;
        }
        self.progress[slot] = progress;
    }

    /// Records that the packet waits at `gate`.
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

    /// Lets packets pass `gate` at once if they are next in arrival order. Returns false if this
    /// cannot be determined quickly. The packets must then [wait](Self::wait).
    #[inline]
    pub(crate) fn enter(&mut self, gate: usize, descriptors: &[Descriptor]) -> bool {
        let passed = self.passed[gate].max(self.passed[self.exit()]);
        match self.slots(descriptors) {
            // The ring holds at most 2^16 packets, so 16 bits identify each packet in flight.
            Some(slots) if passed as u16 == descriptors[0].order => {
                self.progress[slots].fill(Self::after(gate + 1));
                self.passed[gate] = passed + descriptors.len();
                true
            }
            _ => false,
        }
    }

    /// Returns the ring slots of packets that arrived consecutively. Returns `None` if there are no
    /// packets, if they did not arrive consecutively, if the range wraps, or if any slot is shared.
    #[inline]
    fn slots(&self, descriptors: &[Descriptor]) -> Option<Range<usize>> {
        let first = descriptors.first().filter(|_| self.shared.is_empty())?;
        let slot = self.slot(first);
        let slots = slot..slot + descriptors.len();
        (slots.end <= self.mask + 1 && are_in_order(descriptors)).then_some(slots)
    }

    /// Lets packets pass the exit at once if they are next in arrival order, and appends them to
    /// `out`. Calls `arrived` with each arrival time and its number of packets. Returns false if
    /// the order cannot be determined quickly. The packets must then [wait](Self::wait_exit).
    #[inline]
    pub(crate) fn pass_exit(
        &mut self,
        descriptors: &[Descriptor],
        out: &mut Vec<Departure>,
        arrived: impl FnMut(u64, u64),
    ) -> bool {
        let (exit, passed) = (self.exit(), self.passed());
        match self.slots(descriptors) {
            Some(slots) if passed as u16 == descriptors[0].order => {
                self.progress[slots.clone()].fill(GONE);
                self.passed[exit] = passed + descriptors.len();
                append_consecutive(descriptors, &self.stamps[slots.clone()], &self.arrivals_ns[slots], out, arrived);
                true
            }
            _ => false,
        }
    }

    /// Records that the packets wait at the exit to leave by `port`.
    #[inline]
    pub(crate) fn wait_exit(&mut self, descriptors: &[Descriptor], port: u8) {
        let exit = self.exit();
        // Packets usually come in arrival order, so whole ring ranges are copied. For a few
        // packets, single stores are as fast.
        if descriptors.len() >= RANGE_COPY_PACKETS_MIN
            && let Some(slots) = self.slots(descriptors)
        {
            self.descriptors[slots.clone()].copy_from_slice(descriptors);
            self.egress[slots.clone()].fill(port);
            self.progress[slots].fill(Self::waiting_at(exit));
            return;
        }
        for descriptor in descriptors {
            let slot = self.slot(descriptor);
            if !self.shared.is_empty()
                && self.update_shared(slot, descriptor, Self::waiting_at(exit), Some(Destination::Port(port)))
            {
                continue;
            }
            self.egress[slot] = port;
            self.wait(descriptor, exit);
        }
    }

    /// Records that the packet waits at the exit to leave by several ports.
    pub(crate) fn wait_flood(&mut self, descriptor: &Descriptor, flood: Flood) {
        let slot = self.slot(descriptor);
        let at_exit = Self::waiting_at(self.exit());
        if !self.shared.is_empty() && self.update_shared(slot, descriptor, at_exit, Some(Destination::Flood(flood))) {
            return;
        }
        debug_assert!(self.progress[slot] < at_exit, "a packet moved backward in its chain");
        self.floods.resize(self.mask + 1, Flood::default());
        self.floods[slot] = flood;
        self.descriptors[slot] = *descriptor;
        self.progress[slot] = FLOODED;
    }

    /// Removes a packet from the ring, because it is dropped or leaves by a port that keeps no
    /// order.
    #[inline]
    pub(crate) fn leave(&mut self, descriptor: &Descriptor) {
        let slot = self.slot(descriptor);
        debug_assert_ne!(self.progress[slot], GONE, "a packet left twice");
        if !self.shared.is_empty() && self.update_shared(slot, descriptor, GONE, None) {
            return;
        }
        self.progress[slot] = GONE;
    }

    /// Puts `packet` into the ring slot of `original`, directly after it. A function created
    /// `packet` from `original`.
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

    /// Replaces `packet` by `whole`, which is in another buffer, in the ring slot of `packet`.
    #[cold]
    pub(crate) fn replace_packet(&mut self, packet: &Descriptor, whole: &Descriptor) {
        let slot = self.slot(packet);
        if let Some(members) = self.shared.get_mut(&slot) {
            let index = Self::index_of(members, packet);
            members[index].descriptor = *whole;
        }
    }

    /// Returns the index of a packet in the list of packets that share its slot.
    fn index_of(members: &[SharedPacket], descriptor: &Descriptor) -> usize {
        let named = members.iter().position(|index_of| index_of.descriptor.buffer == descriptor.buffer);
        named.unwrap_or_else(|| unreachable!("a packet outside its slot: {descriptor:?}"))
    }

    /// Updates the progress and destination of a packet in a shared slot. Returns false if the slot
    /// is not shared.
    #[cold]
    fn update_shared(
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

    /// Sets the progress of a shared slot to that of its slowest packet, and frees the entry when
    /// no packet remains.
    fn update_shared_slot(&mut self, slot: usize) {
        let slowest = self.shared.get(&slot).and_then(|members| members.iter().map(|index_of| index_of.progress).min());
        self.progress[slot] = match slowest {
            Some(progress) if progress == Self::waiting_at(self.exit()) => SHARED,
            slowest => slowest.unwrap_or(GONE),
        };
        if slowest.is_none() {
            self.shared.remove(&slot);
        }
    }

    /// Lets those packets of a shared slot pass `gate` that wait there. Returns false if the slot
    /// is not shared.
    #[cold]
    fn pass_shared(&mut self, slot: usize, gate: usize, next: &mut Vec<Descriptor>) -> bool {
        let Some(members) = self.shared.get_mut(&slot) else { return false };
        for index_of in members.iter_mut().filter(|index_of| index_of.progress == Self::waiting_at(gate)) {
            index_of.progress = Self::after(gate + 1);
            next.push(index_of.descriptor);
        }
        self.update_shared_slot(slot);
        true
    }

    /// Returns the stamp of a packet and its arrival time in nanoseconds.
    #[inline]
    pub(crate) fn stamp_and_arrival(&self, descriptor: &Descriptor) -> (Stamp, u64) {
        let slot = self.slot(descriptor);
        (self.stamps[slot], self.arrivals_ns[slot])
    }

    /// Appends the packets that may pass `gate` to `next`, in arrival order. `gate` is not the
    /// exit.
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

    /// Appends the packets that may leave to `outs`, by egress port and in arrival order. Calls
    /// `arrived` with each arrival time and its number of packets. `flood` appends the copies of a
    /// flooded packet and returns their number.
    #[inline]
    pub(crate) fn open_exit(
        &mut self,
        outs: &mut [Vec<Departure>],
        mut arrived: impl FnMut(u64, u64),
        mut flood: impl FnMut(Flood, Departure, &mut [Vec<Departure>]) -> u64,
    ) {
        let exit = self.exit();
        let at_exit = Self::waiting_at(exit);
        loop {
            let passed = self.passed[exit];
            let Range { start, end } = self.contiguous(passed, self.arrived - passed);
            let (progress, egress) = (&mut self.progress[start..end], &self.egress[start..end]);
            let gone = leading(progress, GONE);
            self.passed[exit] = passed + gone;
            if gone > 0 {
                continue;
            }
            let Some(&port) = egress.first() else { return };
            // Most consecutive packets leave by the same port.
            let count = leading(&egress[..leading(progress, at_exit)], port);
            if count >= RUN_PACKETS_MIN.min(progress.len()) {
                progress[..count].fill(GONE);
                let slots = start..start + count;
                let (descriptors, stamps) = (&self.descriptors[slots.clone()], &self.stamps[slots.clone()]);
                append_consecutive(
                    descriptors,
                    stamps,
                    &self.arrivals_ns[slots],
                    &mut outs[usize::from(port)],
                    &mut arrived,
                );
                self.passed[exit] = passed + count;
                continue;
            }
            if count > 0 {
                self.leave_with_gaps(start..end, port, &mut outs[usize::from(port)], &mut arrived);
                continue;
            }
            if progress[0] == SHARED {
                progress[0] = GONE;
                let (stamp, members) = (self.stamps[start], self.shared.remove(&start).unwrap_or_default());
                let mut packets = 0;
                for SharedPacket { descriptor, destination, .. } in members {
                    let departure = Departure { descriptor, stamp };
                    packets += match destination {
                        Destination::Flood(set) => flood(set, departure, outs),
                        Destination::Port(port) => {
                            outs[usize::from(port)].push(departure);
                            1
                        }
                    };
                }
                arrived(self.arrivals_ns[start], packets);
                self.passed[exit] = passed + 1;
                continue;
            }
            if progress[0] == FLOODED {
                progress[0] = GONE;
                let departure = Departure { descriptor: self.descriptors[start], stamp: self.stamps[start] };
                arrived(self.arrivals_ns[start], flood(self.floods[start], departure, outs));
                self.passed[exit] = passed + 1;
                continue;
            }
            return;
        }
    }

    /// Passes a run of slots in which packets for `port` and dropped packets are mixed, and appends
    /// the packets to `out`. The loop has no branch per packet, because the positions of dropped
    /// packets are unpredictable.
    fn leave_with_gaps(
        &mut self,
        slots: Range<usize>,
        port: u8,
        out: &mut Vec<Departure>,
        arrived: &mut impl FnMut(u64, u64),
    ) {
        let (exit, start) = (self.exit(), slots.start);
        let at_exit = Self::waiting_at(exit);
        let states = self.progress[slots.clone()].iter().zip(&self.egress[slots]);
        let settled =
            |(progress, egress): &(&u8, &u8)| (**progress == GONE) | (**progress == at_exit) & (**egress == port);
        let slots = start..start + states.take_while(settled).count();
        self.passed[exit] += slots.len();
        let (progress, out_start) = (&mut self.progress[slots.clone()], out.len());
        out.resize(out_start + slots.len(), Departure::default());
        let (mut out_end, mut at) = (out_start, slots.start);
        for run in self.arrivals_ns[slots].chunk_by(|one, next| one == next) {
            let run_start = out_end;
            for progress in &mut progress[at - start..][..run.len()] {
                out[out_end] = Departure { descriptor: self.descriptors[at], stamp: self.stamps[at] };
                out_end += usize::from(*progress == at_exit);
                *progress = GONE;
                at += 1;
            }
            if out_end > run_start {
                arrived(run[0], (out_end - run_start) as u64);
            }
        }
        out.truncate(out_end);
    }

    /// Returns the lowest sequence number of all packets in flight. Packets of one source arrive in
    /// sequence order, so the oldest packet has the lowest number. For `several` sources, all slots
    /// are searched.
    pub(crate) fn sequence_min(&self, several: bool) -> u64 {
        let passed = self.passed[self.exit()];
        let end = if several { self.arrived } else { self.arrived.min(passed + 1) };
        let sequences = (passed..end).map(|slot| self.stamps[slot & self.mask].sequence);
        sequences.min().unwrap_or(u64::MAX)
    }
}

/// Appends packets that arrived consecutively to `out`, and calls `arrived` with each arrival time
/// and its number of packets.
#[inline]
fn append_consecutive(
    descriptors: &[Descriptor],
    stamps: &[Stamp],
    mut arrivals_ns: &[u64],
    out: &mut Vec<Departure>,
    mut arrived: impl FnMut(u64, u64),
) {
    let packets = descriptors.iter().zip(stamps);
    out.extend(packets.map(|(&descriptor, &stamp)| Departure { descriptor, stamp }));
    while let Some(&arrival_ns) = arrivals_ns.first() {
        let packets = leading(arrivals_ns, arrival_ns);
        arrived(arrival_ns, packets as u64);
        arrivals_ns = &arrivals_ns[packets..];
    }
}

/// Returns the number of leading elements that equal `value`. The loop compares eight elements at a
/// time, because runs of hundreds of equal values are common.
#[inline]
fn leading<T: Copy + PartialEq>(values: &[T], value: T) -> usize {
    let (eights, _) = values.as_chunks::<8>();
    // Element by element, the comparison is vectorized. A comparison of whole arrays would call
    // `memcmp`.
    let are_alike = |eight: &&[T; 8]| eight.iter().fold(true, |alike, other| alike & (*other == value));
    let whole = eights.iter().take_while(are_alike).count() * 8;
    whole + values[whole..].iter().take_while(|other| **other == value).count()
}

#[cfg(test)]
mod tests;

//! Restores the arrival order of packets before they leave through the ports. Most consecutive
//! packets leave through the same port, so whole runs of packets are handled together.

use std::ops::Range;

use godwit_io::Departure;
use godwit_packet::{Descriptor, Stamp};

use super::shared::{Destination, SharedPacket};
use super::{FLOODED, Flood, GONE, Order, SHARED};

/// Minimum number of waiting packets that one bulk copy writes to the ring of packets in flight.
/// Fewer packets are copied one by one.
const RANGE_COPY_PACKETS_MIN: usize = 4;

/// Minimum number of consecutive packets for one port that leave together. A loop without branches
/// handles shorter runs, which often end at a dropped packet.
const RUN_PACKETS_MIN: usize = 32;

/// Copies packets that leave through several ports.
pub(crate) trait Copies {
    /// Returns whether buffers are free for the copies of `packets` packets. Otherwise, the packets
    /// wait.
    fn has_room(&mut self, packets: usize) -> bool;

    /// Appends the packet and its copies to `outs`, which has one list per egress port. Returns the
    /// number of appended packets.
    fn flood(&mut self, flood: Flood, departure: Departure, outs: &mut [Vec<Departure>]) -> u64;
}

/// No packet leaves through several ports.
#[cfg(test)]
impl Copies for () {
    fn has_room(&mut self, packets: usize) -> bool {
        packets == 0
    }

    fn flood(&mut self, _flood: Flood, _departure: Departure, _outs: &mut [Vec<Departure>]) -> u64 {
        0
    }
}

impl Order {
    /// Lets consecutive packets leave if they are next in arrival order, and appends them to `out`.
    /// Calls `arrived` with each arrival time and the number of packets that arrived then.
    ///
    /// Returns false if the packets did not leave. They must then [wait](Self::wait_exit).
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

    /// Records that the packets wait for their turn in arrival order, to leave through `port`.
    #[inline]
    pub(crate) fn wait_exit(&mut self, descriptors: &[Descriptor], port: u8) {
        let exit = self.exit();
        // Packets usually come in arrival order, so whole ranges are copied into the ring.
        if descriptors.len() >= RANGE_COPY_PACKETS_MIN
            && let Some(slots) = self.slots(descriptors)
        {
            self.descriptors[slots.clone()].copy_from_slice(descriptors);
            self.egress[slots.clone()].fill(port);
            self.progress[slots].fill(Self::waiting_at(exit));
            return;
        }
        if self.shared.is_empty() {
            self.scatter(descriptors, port);
            return;
        }
        for descriptor in descriptors {
            let slot = self.slot(descriptor);
            if self.update_shared(slot, descriptor, Self::waiting_at(exit), Some(Destination::Port(port))) {
                continue;
            }
            self.egress[slot] = port;
            self.wait(descriptor, exit);
        }
    }

    /// Records that packets wait for their turn to leave. The packets need not have arrived one
    /// after another, but no two packets may share a ring slot.
    fn scatter(&mut self, descriptors: &[Descriptor], port: u8) {
        let (mask, at_exit) = (self.mask, Self::waiting_at(self.exit()));
        // The slices have the length of the ring, so the loop needs no bounds checks.
        let (waiting, egress, progress) =
            (&mut self.descriptors[..=mask], &mut self.egress[..=mask], &mut self.progress[..=mask]);
        for descriptor in descriptors {
            let slot = usize::from(descriptor.order) & mask;
            debug_assert!(progress[slot] < at_exit, "a packet moved backward in its chain");
            (waiting[slot], egress[slot], progress[slot]) = (*descriptor, port, at_exit);
        }
    }

    /// Records that the packet waits for its turn in arrival order, to leave through several ports.
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

    /// Appends the packets that are next in arrival order to `outs`, which has one list per egress
    /// port. Calls `arrived` with each arrival time and the number of packets that arrived then.
    /// `flooder` copies packets that leave through several ports.
    ///
    /// Returns whether the next packet waits for free buffers for its copies.
    #[inline]
    pub(crate) fn open_exit(
        &mut self,
        outs: &mut [Vec<Departure>],
        mut arrived: impl FnMut(u64, u64),
        flooder: &mut impl Copies,
    ) -> bool {
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
            let Some(&port) = egress.first() else { return false };
            // Most consecutive packets leave through the same port.
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
                let is_flood = |member: &&SharedPacket| matches!(member.destination, Destination::Flood(_));
                let floods = self.shared.get(&start).map_or(0, |members| members.iter().filter(is_flood).count());
                if !flooder.has_room(floods) {
                    return true;
                }
                progress[0] = GONE;
                let (stamp, members) = (self.stamps[start], self.shared.remove(&start).unwrap_or_default());
                let mut packets = 0;
                for SharedPacket { descriptor, destination, .. } in members {
                    let departure = Departure { descriptor, stamp };
                    packets += match destination {
                        Destination::Flood(set) => flooder.flood(set, departure, outs),
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
                if !flooder.has_room(1) {
                    return true;
                }
                progress[0] = GONE;
                let departure = Departure { descriptor: self.descriptors[start], stamp: self.stamps[start] };
                arrived(self.arrivals_ns[start], flooder.flood(self.floods[start], departure, outs));
                self.passed[exit] = passed + 1;
                continue;
            }
            return false;
        }
    }

    /// Lets consecutive packets leave through `port`, and appends them to `out`. Skips dropped
    /// packets among them. The loop has no branch per packet, because dropped packets are
    /// unpredictable.
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

    /// Returns the lowest sequence number of all packets in flight. With one source, the oldest
    /// packet has the lowest number. If `several` is set, the packets come from several sources,
    /// and the method searches all of them.
    pub(crate) fn sequence_min(&self, several: bool) -> u64 {
        let passed = self.passed[self.exit()];
        let end = if several { self.arrived } else { self.arrived.min(passed + 1) };
        let sequences = (passed..end).map(|slot| self.stamps[slot & self.mask].sequence);
        sequences.min().unwrap_or(u64::MAX)
    }
}

/// Appends packets that arrived one after the other to `out`. Calls `arrived` with each arrival
/// time and the number of packets that arrived then.
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

/// Returns how many elements at the start of `values` equal `value`. The loop compares eight
/// elements at a time, because long runs of equal values are common.
#[inline]
fn leading<T: Copy + PartialEq>(values: &[T], value: T) -> usize {
    let (eights, _) = values.as_chunks::<8>();
    // The compiler vectorizes these comparisons of array elements. For a comparison of whole
    // arrays, it would call `memcmp`.
    let are_alike = |eight: &&[T; 8]| eight.iter().fold(true, |alike, other| alike & (*other == value));
    let whole = eights.iter().take_while(are_alike).count() * 8;
    whole + values[whole..].iter().take_while(|other| **other == value).count()
}

//! Order of arrival, restored: the ring of packets in flight, and the gates that let them through in order.
//!
//! ```text
//!        exit              gate 2        gate 1            arrival
//!         |                  |             |                  |
//!   ring  v [out][fn ][out ][ 2 ][fn ][ 2 ][ 1 ][fn ][ 1 ][fn ] v
//!            oldest packet in flight               newest packet
//! ```
//! A gate stands in front of every function that needs order, and one, the exit, in front of the ports.
//! Functions are numbered in an order that every chain respects, so a packet only ever moves to higher
//! numbers: its `progress` grows. A gate passes the next packet once that packet has come as far as the gate,
//! and steps over those that have gone further by another way or are gone. Nothing overtakes at a gate.
//!
//! Packets that were made of one packet share its place (a *train*): it has come as far as the last of them, and gates let
//! all of them through together, in their order.

use std::collections::HashMap;
use std::ops::Range;

use godwit_io::Departure;
use godwit_packet::{Descriptor, Stamp, are_in_order};

use crate::flood::Flood;

/// `progress` of a packet that left or was dropped.
const GONE: u8 = u8::MAX;
/// `progress` of a place whose packets, several, have all come to the exit. Beyond all gates.
const TRAIN: u8 = u8::MAX - 1;
/// `progress` of a packet at the exit that leaves by several ports. Beyond all gates.
const FLOODED: u8 = u8::MAX - 2;

/// Fewer packets that come to the exit are not worth filling and copying stretches of the ring for.
const TOGETHER_PACKETS_MIN: usize = 4;

/// Where fewer than this leave before one that is gone, they are sorted from those without a branch for each.
const RUN_PACKETS_MIN: usize = 32;

/// The packets of one worker in flight. Every packet has a place, `descriptor.order`, from arrival until the
/// exit has passed it.
#[derive(Debug)]
pub(crate) struct Order {
    mask: usize,
    /// Places handed out since the start.
    arrived: usize,
    /// For each gate, and the exit at the end: places passed since the start.
    passed: Vec<usize>,
    progress: Vec<u8>,
    descriptors: Vec<Descriptor>,
    stamps: Vec<Stamp>,
    arrivals_ns: Vec<u64>,
    classes: Vec<u8>,
    egress: Vec<u8>,
    /// By place: where those that leave by several ports go. Empty as long as there was none.
    floods: Vec<Flood>,
    /// By place: packets that share it. Nearly always empty.
    trains: HashMap<usize, Vec<Member>>,
}

/// One of several packets in one place.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// As it was when it last waited at a gate; its buffer names it at any time.
    descriptor: Descriptor,
    progress: u8,
    way: Way,
}

/// How a packet leaves.
#[derive(Clone, Copy, Debug)]
enum Way {
    Port(u8),
    Flood(Flood),
}

impl Order {
    /// Room for `packets` (a power of two, at most 65536: `order` has 16 bits), with `gates` functions that need order.
    pub(crate) fn new(packets: usize, gates: usize) -> Self {
        assert!(packets.is_power_of_two() && packets <= 1 << 16, "ring of {packets} places");
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
            trains: HashMap::new(),
        }
    }

    /// The progress of a packet on its way to a function behind the first `gates` gates.
    pub(crate) fn behind(gates: usize) -> u8 {
        2 * gates as u8
    }

    /// The progress of a packet that waits at gate `gate`.
    fn at(gate: usize) -> u8 {
        2 * gate as u8 + 1
    }

    fn exit(&self) -> usize {
        self.passed.len() - 1
    }

    /// All places: how many packets can be in flight.
    pub(crate) fn capacity(&self) -> usize {
        self.mask + 1
    }

    /// Free places.
    pub(crate) fn room(&self) -> usize {
        self.capacity() - self.in_flight()
    }

    /// Places handed out since the start.
    pub(crate) fn arrived(&self) -> usize {
        self.arrived
    }

    /// Places that the exit has passed since the start.
    pub(crate) fn passed(&self) -> usize {
        self.passed[self.exit()]
    }

    /// Places that the exit has not passed.
    pub(crate) fn in_flight(&self) -> usize {
        self.arrived - self.passed[self.exit()]
    }

    /// Gives packets that arrive together the next places; the caller checked that there is room.
    #[inline]
    pub(crate) fn arrive(&mut self, descriptors: &mut [Descriptor], stamps: &[Stamp], now_ns: u64) {
        debug_assert!(self.room() >= descriptors.len() && descriptors.len() == stamps.len());
        for (index, descriptor) in descriptors.iter_mut().enumerate() {
            descriptor.order = (self.arrived + index) as u16;
        }
        let mut rest = stamps;
        while !rest.is_empty() {
            let places = self.stretch(self.arrived, rest.len());
            let (stamps, behind) = rest.split_at(places.len());
            self.arrived += places.len();
            self.progress[places.clone()].fill(0);
            self.stamps[places.clone()].copy_from_slice(stamps);
            self.arrivals_ns[places].fill(now_ns);
            rest = behind;
        }
    }

    /// The places of up to `count` packets from the `first` since the start on: those before the ring begins anew.
    #[inline]
    fn stretch(&self, first: usize, count: usize) -> Range<usize> {
        let place = first & self.mask;
        place..(place + count).min(self.mask + 1)
    }

    /// Notes the class of a packet. Nobody asks for classes where there are no rules.
    #[inline]
    pub(crate) fn classify(&mut self, descriptor: &Descriptor, class: u8) {
        let place = self.place(descriptor);
        self.classes[place] = class;
    }

    #[inline]
    fn place(&self, descriptor: &Descriptor) -> usize {
        usize::from(descriptor.order) & self.mask
    }

    /// The class of a packet.
    #[inline]
    pub(crate) fn class(&self, descriptor: &Descriptor) -> u8 {
        self.classes[self.place(descriptor)]
    }

    /// The packet goes to a function behind `progress / 2` gates.
    #[inline]
    pub(crate) fn advance(&mut self, descriptor: &Descriptor, progress: u8) {
        let place = self.place(descriptor);
        debug_assert!(self.progress[place] <= progress, "a packet went back in its chain");
        if !self.trains.is_empty() && self.move_member(place, descriptor, progress, None) {
            return;
        }
        self.progress[place] = progress;
    }

    /// The packet waits at gate `gate` until its turn.
    #[inline]
    pub(crate) fn wait(&mut self, descriptor: &Descriptor, gate: usize) {
        let place = self.place(descriptor);
        debug_assert!(self.progress[place] < Self::at(gate), "a packet went back in its chain");
        if !self.trains.is_empty() && self.move_member(place, descriptor, Self::at(gate), None) {
            return;
        }
        self.descriptors[place] = *descriptor;
        self.progress[place] = Self::at(gate);
    }

    /// Packets come to gate `gate`, and pass it at once where it is their turn. False: it may not be, and they have to
    /// [wait](Self::wait).
    #[inline]
    pub(crate) fn enter(&mut self, gate: usize, descriptors: &[Descriptor]) -> bool {
        let passed = self.passed[gate].max(self.passed[self.exit()]);
        match self.places(descriptors) {
            // No more packets than 16 bits can tell apart are in flight.
            Some(places) if passed as u16 == descriptors[0].order => {
                self.progress[places].fill(Self::behind(gate + 1));
                self.passed[gate] = passed + descriptors.len();
                true
            }
            _ => false,
        }
    }

    /// The places of packets that arrived one after the other; `None` where there is none, or they did not, or the ring begins
    /// anew among them, or packets share places.
    #[inline]
    fn places(&self, descriptors: &[Descriptor]) -> Option<Range<usize>> {
        let first = descriptors.first().filter(|_| self.trains.is_empty())?;
        let place = self.place(first);
        let places = place..place + descriptors.len();
        (places.end <= self.mask + 1 && are_in_order(descriptors)).then_some(places)
    }

    /// Packets come to the exit, and leave at once where it is their turn: they are appended to `out`, and `arrived` is told times of
    /// arrival, and how many of them had each. False: it may not be, and they have to [wait](Self::wait_exit).
    #[inline]
    pub(crate) fn pass_exit(
        &mut self,
        descriptors: &[Descriptor],
        out: &mut Vec<Departure>,
        arrived: impl FnMut(u64, u64),
    ) -> bool {
        let (exit, passed) = (self.exit(), self.passed());
        match self.places(descriptors) {
            Some(places) if passed as u16 == descriptors[0].order => {
                self.progress[places.clone()].fill(GONE);
                self.passed[exit] = passed + descriptors.len();
                leave(descriptors, &self.stamps[places.clone()], &self.arrivals_ns[places], out, arrived);
                true
            }
            _ => false,
        }
    }

    /// The packets wait at the exit to leave by `port`.
    #[inline]
    pub(crate) fn wait_exit(&mut self, descriptors: &[Descriptor], port: u8) {
        let exit = self.exit();
        // Most come as they arrived; few at a time are as well looked at one by one.
        if descriptors.len() >= TOGETHER_PACKETS_MIN
            && let Some(places) = self.places(descriptors)
        {
            self.descriptors[places.clone()].copy_from_slice(descriptors);
            self.egress[places.clone()].fill(port);
            self.progress[places].fill(Self::at(exit));
            return;
        }
        for descriptor in descriptors {
            let place = self.place(descriptor);
            if !self.trains.is_empty() && self.move_member(place, descriptor, Self::at(exit), Some(Way::Port(port))) {
                continue;
            }
            self.egress[place] = port;
            self.wait(descriptor, exit);
        }
    }

    /// The packet waits at the exit to leave by several ports.
    pub(crate) fn wait_flood(&mut self, descriptor: &Descriptor, flood: Flood) {
        let place = self.place(descriptor);
        let at_exit = Self::at(self.exit());
        if !self.trains.is_empty() && self.move_member(place, descriptor, at_exit, Some(Way::Flood(flood))) {
            return;
        }
        debug_assert!(self.progress[place] < at_exit, "a packet went back in its chain");
        self.floods.resize(self.mask + 1, Flood::default());
        self.floods[place] = flood;
        self.descriptors[place] = *descriptor;
        self.progress[place] = FLOODED;
    }

    /// The packet is no longer in flight: dropped, or sent by a port without order.
    #[inline]
    pub(crate) fn leave(&mut self, descriptor: &Descriptor) {
        let place = self.place(descriptor);
        debug_assert_ne!(self.progress[place], GONE, "a packet left twice");
        if !self.trains.is_empty() && self.move_member(place, descriptor, GONE, None) {
            return;
        }
        self.progress[place] = GONE;
    }

    /// Gives `packet`, which was made of `of`, the place behind it.
    #[cold]
    pub(crate) fn couple(&mut self, of: &Descriptor, packet: &mut Descriptor) {
        let place = self.place(of);
        packet.order = of.order;
        let first = Member { descriptor: *of, progress: self.progress[place], way: Way::Port(0) };
        let members = self.trains.entry(place).or_insert_with(|| vec![first]);
        let index = Self::member(members, of);
        members.insert(index + 1, Member { descriptor: *packet, ..members[index] });
    }

    /// `whole` takes the place of `packet`, in another buffer.
    #[cold]
    pub(crate) fn exchange(&mut self, packet: &Descriptor, whole: &Descriptor) {
        let place = self.place(packet);
        if let Some(members) = self.trains.get_mut(&place) {
            let index = Self::member(members, packet);
            members[index].descriptor = *whole;
        }
    }

    /// Which of the packets in a place it is.
    fn member(members: &[Member], descriptor: &Descriptor) -> usize {
        let named = members.iter().position(|member| member.descriptor.buffer == descriptor.buffer);
        named.unwrap_or_else(|| unreachable!("a packet in a place of others: {descriptor:?}"))
    }

    /// What becomes of a packet that shares its place; false: it does not.
    #[cold]
    fn move_member(&mut self, place: usize, descriptor: &Descriptor, progress: u8, way: Option<Way>) -> bool {
        let Some(members) = self.trains.get_mut(&place) else { return false };
        let index = Self::member(members, descriptor);
        if progress == GONE {
            members.remove(index);
        } else {
            let way = way.unwrap_or(members[index].way);
            members[index] = Member { descriptor: *descriptor, progress, way };
        }
        self.settle_train(place);
        true
    }

    /// A place has come as far as the last of its packets.
    fn settle_train(&mut self, place: usize) {
        let slowest = self.trains.get(&place).and_then(|members| members.iter().map(|member| member.progress).min());
        self.progress[place] = match slowest {
            Some(progress) if progress == Self::at(self.exit()) => TRAIN,
            slowest => slowest.unwrap_or(GONE),
        };
        if slowest.is_none() {
            self.trains.remove(&place);
        }
    }

    /// Lets packets that share a place, and have all come to a gate, through.
    #[cold]
    fn open_train(&mut self, place: usize, gate: usize, next: &mut Vec<Descriptor>) -> bool {
        let Some(members) = self.trains.get_mut(&place) else { return false };
        for member in members.iter_mut().filter(|member| member.progress == Self::at(gate)) {
            member.progress = Self::behind(gate + 1);
            next.push(member.descriptor);
        }
        self.settle_train(place);
        true
    }

    /// What the host remembers of a packet: its stamp and its time of arrival.
    #[inline]
    pub(crate) fn remembered(&self, descriptor: &Descriptor) -> (Stamp, u64) {
        let place = self.place(descriptor);
        (self.stamps[place], self.arrivals_ns[place])
    }

    /// Appends to `next` the packets whose turn it is at gate `gate` (not the exit), in order of arrival.
    pub(crate) fn open(&mut self, gate: usize, next: &mut Vec<Descriptor>) {
        debug_assert!(gate < self.exit());
        let mut passed = self.passed[gate].max(self.passed[self.exit()]);
        while passed < self.arrived {
            let place = passed & self.mask;
            if self.progress[place] < Self::at(gate) {
                break;
            }
            let waits = self.progress[place] == Self::at(gate);
            if waits && (self.trains.is_empty() || !self.open_train(place, gate, next)) {
                self.progress[place] = Self::behind(gate + 1);
                next.push(self.descriptors[place]);
            }
            passed += 1;
        }
        self.passed[gate] = passed;
    }

    /// Appends the packets that may leave, in order of arrival, to `outs` by port. `arrived` is told times of arrival, and how
    /// many of them had each; `flood` appends those that leave by several ports, and says how many they have become.
    #[inline]
    pub(crate) fn open_exit(
        &mut self,
        outs: &mut [Vec<Departure>],
        mut arrived: impl FnMut(u64, u64),
        mut flood: impl FnMut(Flood, Departure, &mut [Vec<Departure>]) -> u64,
    ) {
        let exit = self.exit();
        let at_exit = Self::at(exit);
        loop {
            let passed = self.passed[exit];
            let Range { start, end } = self.stretch(passed, self.arrived - passed);
            let (progress, egress) = (&mut self.progress[start..end], &self.egress[start..end]);
            let gone = leading(progress, GONE);
            self.passed[exit] = passed + gone;
            if gone > 0 {
                continue;
            }
            let Some(&port) = egress.first() else { return };
            // Those that leave by one port, as most do that stand together.
            let count = leading(&egress[..leading(progress, at_exit)], port);
            if count >= RUN_PACKETS_MIN.min(progress.len()) {
                progress[..count].fill(GONE);
                let places = start..start + count;
                let (descriptors, stamps) = (&self.descriptors[places.clone()], &self.stamps[places.clone()]);
                leave(descriptors, stamps, &self.arrivals_ns[places], &mut outs[usize::from(port)], &mut arrived);
                self.passed[exit] = passed + count;
                continue;
            }
            if count > 0 {
                self.leave_among_gone(start..end, port, &mut outs[usize::from(port)], &mut arrived);
                continue;
            }
            if progress[0] == TRAIN {
                progress[0] = GONE;
                let (stamp, members) = (self.stamps[start], self.trains.remove(&start).unwrap_or_default());
                let mut packets = 0;
                for Member { descriptor, way, .. } in members {
                    let departure = Departure { descriptor, stamp };
                    packets += match way {
                        Way::Flood(set) => flood(set, departure, outs),
                        Way::Port(port) => {
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

    /// Lets packets out that leave by `port` and stand among others that are gone, as where some are dropped: nobody can predict
    /// which, so nothing branches on it. The first of the places is one of theirs.
    fn leave_among_gone(
        &mut self,
        places: Range<usize>,
        port: u8,
        out: &mut Vec<Departure>,
        arrived: &mut impl FnMut(u64, u64),
    ) {
        let (exit, start) = (self.exit(), places.start);
        let at_exit = Self::at(exit);
        let states = self.progress[places.clone()].iter().zip(&self.egress[places]);
        let settled =
            |(progress, egress): &(&u8, &u8)| (**progress == GONE) | (**progress == at_exit) & (**egress == port);
        let places = start..start + states.take_while(settled).count();
        self.passed[exit] += places.len();
        let (progress, before) = (&mut self.progress[places.clone()], out.len());
        out.resize(before + places.len(), Departure::default());
        let (mut left, mut at) = (before, places.start);
        for run in self.arrivals_ns[places].chunk_by(|one, next| one == next) {
            let left_before = left;
            for progress in &mut progress[at - start..][..run.len()] {
                out[left] = Departure { descriptor: self.descriptors[at], stamp: self.stamps[at] };
                left += usize::from(*progress == at_exit);
                *progress = GONE;
                at += 1;
            }
            if left > left_before {
                arrived(run[0], (left - left_before) as u64);
            }
        }
        out.truncate(left);
    }

    /// No packet in flight has a lower sequence number than this. Packets of one source arrive in order of
    /// their numbers, so the oldest has the lowest; with `several` sources all places are looked at.
    pub(crate) fn sequence_min(&self, several: bool) -> u64 {
        let passed = self.passed[self.exit()];
        let end = if several { self.arrived } else { self.arrived.min(passed + 1) };
        let sequences = (passed..end).map(|place| self.stamps[place & self.mask].sequence);
        sequences.min().unwrap_or(u64::MAX)
    }
}

/// Packets that arrived one after the other leave together.
#[inline]
fn leave(
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

/// How many at the beginning have this value: eight are compared at a time, for hundreds do.
#[inline]
fn leading<T: Copy + PartialEq>(values: &[T], value: T) -> usize {
    let (eights, _) = values.as_chunks::<8>();
    // Arrays compared as such would be a call of `memcmp` each.
    let are_alike = |eight: &&[T; 8]| eight.iter().fold(true, |alike, other| alike & (*other == value));
    let whole = eights.iter().take_while(are_alike).count() * 8;
    whole + values[whole..].iter().take_while(|other| **other == value).count()
}

#[cfg(test)]
mod tests;

//! A worker's part of a trace: it chooses packets as they arrive, and notes what happens to them.
//!
//! A chosen packet is known by its buffer, which is its own until it has left; places in the order, which others may share,
//! only say quickly that a packet is none of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use godwit_abi::{Outcome, PORT_FLOOD, VERDICT_DROP};
use godwit_chain::Next as Decided;
use godwit_function::{Work, WorkColumns};
use godwit_io::Departure;
use godwit_packet::{Descriptor, Region, Stamp};
use godwit_sched::Chunk;
use godwit_wire::{IpAddress, Parsed};

use super::record::{Fate, Flow, Left, Next, Packet, What};
use super::{ENDED, PACKETS_MAX, Session, Traces, lock};
use crate::egress::Sent;
use crate::order::Order;
use crate::plan::Plan;

/// Places in the order that are told apart at once; a power of two.
const SIEVE_PLACES: usize = 4096;

/// See the module.
pub(crate) struct Tracer {
    /// Whether packets that arrive are to be looked at.
    is_choosing: bool,
    /// By buffer: the number of the packet that has it, or of the one that it is a copy of.
    buffers: HashMap<u32, u64>,
    /// By number.
    live: HashMap<u64, Live>,
    /// How many of `buffers` are of each place in the order, modulo [`SIEVE_PLACES`].
    sieve: Box<[u16]>,
    /// Those that are on their way out: number, port, and bytes.
    leaving: Vec<(u64, String, u16)>,
    traces: Arc<Traces>,
    worker: usize,
    clock: Instant,
    session: Option<Arc<Session>>,
    /// The last change that was seen.
    seen: u64,
}

/// A packet that is followed.
struct Live {
    packet: Packet,
    arrival_ns: u64,
    /// It, and its copies: those that have not left.
    parts: usize,
    is_sent: bool,
}

impl Live {
    fn note(&mut self, now_ns: u64, what: What) {
        self.packet.note(now_ns.saturating_sub(self.arrival_ns), what);
    }
}

/// Where a packet comes from.
pub(crate) enum Origin<'a> {
    Port,
    /// A function made it.
    Function(&'a str),
}

impl Tracer {
    pub(super) fn new(traces: Arc<Traces>, worker: usize, clock: Instant) -> Self {
        Self {
            is_choosing: false,
            buffers: HashMap::new(),
            live: HashMap::new(),
            sieve: Box::default(),
            leaving: Vec::new(),
            traces,
            worker,
            clock,
            session: None,
            seen: 0,
        }
    }

    /// Whether packets that arrive are to be shown to [`Tracer::choose`].
    #[inline]
    pub(crate) fn is_choosing(&self) -> bool {
        self.is_choosing
    }

    /// Whether any packet is followed: only then there is something to note.
    #[inline]
    pub(crate) fn follows(&self) -> bool {
        !self.buffers.is_empty()
    }

    /// Once a turn, before packets arrive.
    #[inline]
    pub(crate) fn turn(&mut self) {
        if self.traces.changes.load(Ordering::Acquire) != self.seen {
            self.change();
        }
    }

    #[cold]
    fn change(&mut self) {
        self.end();
        let current = lock(&self.traces.session);
        // Under the lock, under which it changes.
        self.seen = self.traces.changes.load(Ordering::Acquire);
        self.session.clone_from(&current);
        drop(current);
        self.is_choosing = self.session.is_some();
        if self.is_choosing && self.sieve.is_empty() {
            self.sieve = vec![0; SIEVE_PLACES].into();
        }
        self.traces.workers[self.worker].0.store(self.seen, Ordering::Release);
    }

    /// Hands over what is still followed.
    fn end(&mut self) {
        self.leaving.clear();
        for (_, mut live) in std::mem::take(&mut self.live) {
            live.packet.fate = if live.is_sent { Fate::Sent } else { Fate::InFlight };
            if let Some(session) = &self.session {
                session.finish(live.packet);
            }
        }
        self.buffers.clear();
        self.sieve.fill(0);
        self.is_choosing = false;
        self.session = None;
    }

    fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn sieve_place(packet: &Descriptor) -> usize {
        usize::from(packet.order) % SIEVE_PLACES
    }

    /// The packet's number, if it is followed.
    fn number(&self, packet: &Descriptor) -> Option<u64> {
        let is_none = self.sieve[Self::sieve_place(packet)] == 0;
        if is_none { None } else { self.buffers.get(&packet.buffer).copied() }
    }

    fn live(&mut self, packet: &Descriptor) -> Option<&mut Live> {
        let number = self.number(packet)?;
        self.live.get_mut(&number)
    }

    fn know(&mut self, packet: &Descriptor, number: u64) {
        self.sieve[Self::sieve_place(packet)] += 1;
        let other = self.buffers.insert(packet.buffer, number);
        debug_assert_eq!(other, None, "a buffer has one packet");
    }

    /// The packet's buffer is its own no longer. Returns its number.
    fn forget(&mut self, packet: &Descriptor) -> Option<u64> {
        let number = self.number(packet)?;
        self.sieve[Self::sieve_place(packet)] -= 1;
        self.buffers.remove(&packet.buffer);
        Some(number)
    }

    /// Notes a step of those packets that are followed.
    fn note(&mut self, packets: &[Descriptor], what: impl Fn(&Self, usize) -> What) {
        let now_ns = self.now_ns();
        for (index, packet) in packets.iter().enumerate() {
            let Some(number) = self.number(packet) else { continue };
            let what = what(self, index);
            if let Some(live) = self.live.get_mut(&number) {
                live.note(now_ns, what);
            }
        }
    }

    fn finish(&mut self, number: u64, fate: Fate) {
        if let (Some(mut live), Some(session)) = (self.live.remove(&number), &self.session) {
            live.packet.fate = fate;
            session.finish(live.packet);
        }
    }

    /// A part of a packet is gone: the packet, or a copy of it.
    fn part_gone(&mut self, number: u64) {
        let Some(live) = self.live.get_mut(&number) else { return };
        live.parts -= 1;
        if live.parts == 0 {
            let fate = if live.is_sent { Fate::Sent } else { Fate::Dropped };
            self.finish(number, fate);
        }
    }

    fn port(&self, port: u16) -> String {
        self.traces.ports.get(usize::from(port)).cloned().unwrap_or_else(|| port.to_string())
    }

    fn next(&self, plan: &Plan, next: Decided, said: Option<(usize, Outcome)>) -> Next {
        match (next, said) {
            (Decided::Function(next), _) => Next::Function(plan.stages[usize::from(next)].name.clone()),
            (Decided::Port(port), _) => Next::Port(self.port(port.into())),
            (Decided::Egress, Some((function, Outcome { port: PORT_FLOOD, value: set, .. }))) => {
                let ports = plan.stages[function].function.flood_ports(set);
                Next::Flood(ports.iter().map(|&port| self.port(port.into())).collect())
            }
            (Decided::Egress, Some((_, outcome))) => Next::Port(self.port(outcome.port)),
            (Decided::Drop, _) => Next::Drop,
            (Decided::None | Decided::Egress, _) => Next::Nowhere,
        }
    }
}

/// What happens to packets, in the order of their journey. All but the first are called where packets
/// [are followed](Tracer::follows).
impl Tracer {
    /// Packets have arrived, or were made of nothing that did: chooses those that fit.
    #[cold]
    pub(crate) fn choose(
        &mut self,
        plan: &Plan,
        region: &Region,
        packets: &[Descriptor],
        stamps: &[Stamp],
        now_ns: u64,
        origin: &Origin<'_>,
    ) {
        let Some(session) = self.session.clone() else { return };
        for (packet, stamp) in packets.iter().zip(stamps) {
            if !session.request.filter.fits_port(packet.port) {
                continue;
            }
            let parsed = godwit_wire::parse(region.frame(packet));
            let class = plan.classifier.classify(&parsed);
            let class_name = &plan.classes[usize::from(class)];
            if !session.request.filter.fits(&parsed, class_name) {
                continue;
            }
            if self.buffers.len() >= PACKETS_MAX {
                session.miss();
                continue;
            }
            let Some(number) = session.choose() else {
                self.is_choosing = false;
                return;
            };
            let class = class_name.clone();
            let what = match origin {
                Origin::Function(function) => What::Created { function: (*function).to_owned(), class },
                Origin::Port => {
                    let next = plan.decider.entry(packet.port, plan.classifier.classify(&parsed));
                    What::Received { class, next: self.next(plan, next, None) }
                }
            };
            self.follow(&session, region, packet, *stamp, (number, now_ns), what);
        }
    }

    fn follow(
        &mut self,
        session: &Session,
        region: &Region,
        packet: &Descriptor,
        stamp: Stamp,
        (number, arrival_ns): (u64, u64),
        what: What,
    ) {
        let frame = region.frame(packet);
        let parsed = godwit_wire::parse(frame);
        let mut found = Packet {
            number,
            worker: self.worker,
            port: self.port(packet.port.into()),
            sequence: stamp.sequence,
            time_ns: stamp.time_ns,
            length: packet.length,
            ethertype: parsed.ethertype,
            flow: flow(&parsed),
            steps: Vec::new(),
            steps_left_out: 0,
            fate: Fate::InFlight,
            frame: if session.request.frames { frame.to_vec() } else { Vec::new() },
            left: Vec::new(),
        };
        found.note(self.now_ns().saturating_sub(arrival_ns), what);
        let live = Live { packet: found, arrival_ns, parts: 1, is_sent: false };
        self.live.insert(number, live);
        self.know(packet, number);
    }

    /// A host half has looked at these.
    #[cold]
    pub(crate) fn prepared(&mut self, plan: &Plan, function: usize, packets: &[Descriptor], work: &WorkColumns) {
        let stage = &plan.stages[function];
        // Without a host half there is no work to tell of.
        let packets = &packets[..work.len().min(packets.len())];
        self.note(packets, |_, packet| {
            let variant = match work.at(packet) {
                Work::Run { variant, .. } => Some(variant_name(plan, function, variant)),
                Work::Done(_) => None,
            };
            What::Prepared { function: stage.name.clone(), variant }
        });
    }

    /// These were put into bins.
    #[cold]
    pub(crate) fn binned(&mut self, plan: &Plan, function: usize, device: &str, variant: u8, packets: &[Descriptor]) {
        self.note(packets, |_, _| What::Binned {
            function: plan.stages[function].name.clone(),
            device: device.to_owned(),
            variant: variant_name(plan, function, variant),
        });
    }

    /// A chunk, the worker's `number`th for that device, goes to it.
    #[cold]
    pub(crate) fn submitted(&mut self, device: &str, number: u64, chunk: &Chunk) {
        for (index, bin) in chunk.bins.iter().enumerate() {
            self.note(&chunk.descriptors[chunk.range(bin)], |_, _| What::Submitted {
                device: device.to_owned(),
                chunk: number,
                bin: index + 1,
                bins: chunk.bins.len(),
                bin_packets: bin.count,
                chunk_packets: chunk.packets,
            });
        }
    }

    /// The device did not take it.
    #[cold]
    pub(crate) fn not_taken(&mut self, device: &str, chunk: &Chunk) {
        for bin in &chunk.bins {
            self.note(&chunk.descriptors[chunk.range(bin)], |_, _| What::NotTaken { device: device.to_owned() });
        }
    }

    /// The device has finished it.
    #[cold]
    pub(crate) fn returned(&mut self, device: &str, chunk: &Chunk) {
        for bin in &chunk.bins {
            self.note(&chunk.descriptors[chunk.range(bin)], |_, _| What::Returned { device: device.to_owned() });
        }
    }

    /// A device has led these on to `next`.
    #[cold]
    pub(crate) fn led(&mut self, plan: &Plan, function: usize, verdict: u8, next: usize, packets: &[Descriptor]) {
        self.note(packets, |_, _| What::Verdict {
            function: plan.stages[function].name.clone(),
            verdict: verdict_name(plan, function, verdict),
            next: Next::Function(plan.stages[next].name.clone()),
            on_device: true,
        });
    }

    /// What a function said of these. Those that it drops are told of by [`Tracer::dropped`].
    #[cold]
    pub(crate) fn said(
        &mut self,
        plan: &Plan,
        order: &Order,
        function: usize,
        packets: &[Descriptor],
        outcomes: &[Outcome],
    ) {
        let is_trivial = plan.classifier.is_trivial();
        let now_ns = self.now_ns();
        for (packet, outcome) in packets.iter().zip(outcomes).filter(|(_, outcome)| outcome.verdict != VERDICT_DROP) {
            let Some(number) = self.number(packet) else { continue };
            let class = if is_trivial { 0 } else { order.class(packet) };
            let next = plan.decider.next(function as u16, class, outcome.verdict);
            let what = What::Verdict {
                function: plan.stages[function].name.clone(),
                verdict: verdict_name(plan, function, outcome.verdict),
                next: self.next(plan, next, Some((function, *outcome))),
                on_device: false,
            };
            if let Some(live) = self.live.get_mut(&number) {
                live.note(now_ns, what);
            }
        }
    }

    /// A function made `packet` of `of`.
    #[cold]
    pub(crate) fn split(&mut self, function: &str, region: &Region, of: &Descriptor, packet: &Descriptor) {
        let now_ns = self.now_ns();
        let (Some(session), Some(parent)) = (self.session.clone(), self.number(of)) else { return };
        if self.buffers.len() >= PACKETS_MAX {
            session.miss();
            return;
        }
        let number = session.choose_child();
        let Some(live) = self.live.get_mut(&parent) else { return };
        live.note(now_ns, What::Split { function: function.to_owned(), packet: number });
        let stamp = Stamp { sequence: live.packet.sequence, time_ns: live.packet.time_ns };
        let what = What::MadeOf { function: function.to_owned(), packet: parent };
        let arrival_ns = live.arrival_ns;
        self.follow(&session, region, packet, stamp, (number, arrival_ns), what);
    }

    /// A function keeps it.
    #[cold]
    pub(crate) fn held(&mut self, function: &str, packet: &Descriptor) {
        self.note(std::slice::from_ref(packet), |_, _| What::Held { function: function.to_owned() });
        if let Some(number) = self.forget(packet) {
            self.finish(number, Fate::Held);
        }
    }

    /// A function joined it with `held` others; `whole` takes its place.
    #[cold]
    pub(crate) fn joined(&mut self, function: &str, packet: &Descriptor, whole: &Descriptor, held: u32) {
        let length = whole.length;
        self.note(std::slice::from_ref(packet), |_, _| What::Joined { function: function.to_owned(), held, length });
        if let Some(number) = self.forget(packet) {
            self.know(whole, number);
        }
    }

    /// It is dropped; `reason` is the counter that counts it.
    #[cold]
    pub(crate) fn dropped(&mut self, plan: &Plan, packet: &Descriptor, reason: usize) {
        let now_ns = self.now_ns();
        let Some(live) = self.live(packet) else { return };
        let (counter, reason) = why(plan, reason);
        live.note(now_ns, What::Dropped { counter, reason });
        if let Some(number) = self.forget(packet) {
            self.part_gone(number);
        }
    }

    /// A copy of it is to leave by this port.
    #[cold]
    pub(crate) fn copied(&mut self, packet: &Descriptor, copy: &Descriptor, port: u8) {
        let (now_ns, port) = (self.now_ns(), self.port(port.into()));
        let Some(number) = self.number(packet) else { return };
        if let Some(live) = self.live.get_mut(&number) {
            live.note(now_ns, What::Copied { port });
            live.parts += 1;
        }
        self.know(copy, number);
    }

    /// A copy of it for this port is dropped.
    #[cold]
    pub(crate) fn copy_dropped(&mut self, plan: &Plan, packet: &Descriptor, port: u8, reason: usize) {
        let (now_ns, port) = (self.now_ns(), self.port(port.into()));
        let Some(live) = self.live(packet) else { return };
        let (counter, reason) = why(plan, reason);
        live.note(now_ns, What::CopyDropped { port, counter, reason });
    }

    /// These are given to ports, by port; from now on their buffers are the ports'.
    #[cold]
    pub(crate) fn leaving(&mut self, region: &Region, outs: &[Vec<Departure>]) {
        let now_ns = self.now_ns();
        let frames = self.session.as_ref().is_some_and(|session| session.request.frames);
        for (port, out) in outs.iter().enumerate() {
            for Departure { descriptor, .. } in out {
                let Some(number) = self.forget(descriptor) else { continue };
                let port = self.port(port as u16);
                if let Some(live) = self.live.get_mut(&number).filter(|_| frames) {
                    let at_ns = now_ns.saturating_sub(live.arrival_ns);
                    live.packet.left.push(Left { port: port.clone(), at_ns, frame: region.frame(descriptor).to_vec() });
                }
                self.leaving.push((number, port, descriptor.length));
            }
        }
    }

    /// Whether any packet that was told to be leaving has not been told to be gone.
    #[inline]
    pub(crate) fn sees_off(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// What was leaving was given to the sender, or has become that.
    #[cold]
    pub(crate) fn gone(&mut self, to_sender: bool, sent: Sent) {
        let now_ns = self.now_ns();
        for (number, port, length) in std::mem::take(&mut self.leaving) {
            let Some(live) = self.live.get_mut(&number) else { continue };
            let Sent { accepted, refused } = sent;
            let what = match (accepted, refused) {
                _ if to_sender => What::HandedOver { port, length },
                (_, 0) => What::Sent { port, length },
                (0, _) => {
                    let (counter, reason) = refusal();
                    What::Dropped { counter, reason }
                }
                _ => What::SentOrRefused { port, length, refused, packets: accepted + refused },
            };
            live.is_sent |= !matches!(what, What::Dropped { .. });
            live.note(now_ns, what);
            self.part_gone(number);
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.end();
        self.traces.workers[self.worker].0.store(ENDED, Ordering::Release);
    }
}

fn flow(parsed: &Parsed) -> Option<Flow> {
    let five_tuple = parsed.five_tuple.as_ref()?;
    let address = |address| match address {
        IpAddress::V4(bytes) => IpAddr::from(bytes),
        IpAddress::V6(bytes) => IpAddr::from(bytes),
    };
    Some(Flow {
        source: address(five_tuple.source),
        destination: address(five_tuple.destination),
        protocol: five_tuple.protocol,
        source_port: five_tuple.source_port,
        destination_port: five_tuple.destination_port,
    })
}

fn variant_name(plan: &Plan, function: usize, variant: u8) -> String {
    let variants = plan.stages[function].function.contract().variants;
    variants.get(usize::from(variant)).map_or_else(|| variant.to_string(), |name| (*name).to_owned())
}

/// As it is counted: a number beyond the contract is the last.
fn verdict_name(plan: &Plan, function: usize, verdict: u8) -> String {
    let verdicts = plan.stages[function].function.contract().verdicts;
    verdicts.get(usize::from(verdict)).or(verdicts.last()).map_or_else(String::new, |verdict| verdict.name.to_owned())
}

/// The name of a counter of drops, and what it means.
fn why(plan: &Plan, reason: usize) -> (String, &'static str) {
    let engine = crate::counters::WORKER_COUNTERS.get(reason).map(|spec| spec.sentence);
    let function = || {
        let mut all = plan.stages.iter().flat_map(|stage| {
            let drops = stage.function.contract().drops.iter().enumerate();
            drops.map(|(number, drop)| (stage.counters.drop(number as u8), drop.sentence))
        });
        all.find(|(counter, _)| *counter == reason).map(|(_, sentence)| sentence)
    };
    (plan.layout.name(reason).to_owned(), engine.or_else(function).unwrap_or_default())
}

fn refusal() -> (String, &'static str) {
    let spec = &crate::counters::WORKER_COUNTERS[crate::counters::DROPPED_REFUSED];
    (spec.name.to_owned(), spec.sentence)
}

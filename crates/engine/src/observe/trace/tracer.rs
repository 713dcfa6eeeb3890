//! Tracer, which chooses packets that arrive at one worker and records their steps. A packet is
//! identified by its buffer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use godwit_abi::{Outcome, PORT_FLOOD, VERDICT_DROP};
use godwit_chain::Next as Decided;
use godwit_function::{Work, WorkColumns};
use godwit_io::Departure;
use godwit_packet::{Descriptor, Region, Stamp};
use godwit_sched::Chunk;

use super::names::{drop_reason, flow, refusal, variant_name, verdict_name};
use super::record::{Fate, Next, Packet, SentFrame, StepKind};
use super::{PACKETS_MAX, Session, Traces, lock};
use crate::plan::chain_plan::ChainPlan;
use crate::plan::epoch::WorkerEpoch;

/// Number of counters in [`Tracer::sieve`], which quickly excludes packets that are not traced. It
/// must be a power of two.
const SIEVE_SLOTS: usize = 4096;
/// Number of arriving packets in a sample. A live trace of dropped packets looks only at samples,
/// because a trace of all packets would be slow.
const SAMPLE_PACKETS: usize = 32;
/// Length of the pause after a sample, as a multiple of the sample's duration. The worker traces
/// nothing during the pause.
const PAUSE_FACTOR: u64 = 24;
/// Limits for the duration of a sample, in nanoseconds. The pause is computed from the limited
/// duration.
const SAMPLE_NS: std::ops::RangeInclusive<u64> = 50_000..=1_000_000;

/// Part of a packet trace that runs on one worker.
pub(crate) struct Tracer {
    is_choosing: bool,
    /// Trace number of each traced packet, by packet buffer. Copies have the number of their
    /// original.
    buffers: HashMap<u32, u64>,
    traced: HashMap<u64, TracedPacket>,
    /// Counters of traced packets. The arrival number of a packet, modulo [`SIEVE_SLOTS`], selects
    /// its counter. If the counter is 0, the packet is not traced.
    sieve: Box<[u16]>,
    /// Traced packets that are about to leave: trace number, name of the egress port, and frame
    /// length.
    departing: Vec<(u64, String, u16)>,
    traces: Arc<Traces>,
    worker: usize,
    clock: Instant,
    session: Option<Arc<Session>>,
    epoch: WorkerEpoch,
    sample: Sample,
}

/// Current sample of arriving packets in a live trace of dropped packets.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    is_used: bool,
    /// Number of packets that arrived since the sample began.
    looked: usize,
    /// Arrival time of the sample's first packet, in nanoseconds.
    since_ns: u64,
    /// End of the pause after the sample, in nanoseconds. It is `None` until the sample ends.
    resume_ns: Option<u64>,
}

/// A packet that is being traced.
struct TracedPacket {
    packet: Packet,
    arrival_ns: u64,
    /// Number of copies that have not left. The packet itself counts as one copy.
    copies: usize,
    is_sent: bool,
}

impl TracedPacket {
    fn record(&mut self, now_ns: u64, kind: StepKind) {
        self.packet.record(now_ns.saturating_sub(self.arrival_ns), kind);
    }
}

/// Origin of a traced packet.
pub(crate) enum Origin<'a> {
    Port,
    /// The function with this name created the packet.
    Function(&'a str),
}

impl Tracer {
    pub(super) fn new(traces: Arc<Traces>, epoch: WorkerEpoch, worker: usize, clock: Instant) -> Self {
        Self {
            is_choosing: false,
            buffers: HashMap::new(),
            traced: HashMap::new(),
            sieve: Box::default(),
            departing: Vec::new(),
            traces,
            worker,
            clock,
            session: None,
            epoch,
            sample: Sample::default(),
        }
    }

    /// Returns whether the worker must pass arriving packets to [`Tracer::choose`].
    #[inline]
    pub(crate) fn is_choosing(&self) -> bool {
        self.is_choosing
    }

    /// Returns whether any packet is being traced.
    #[inline]
    pub(crate) fn is_tracing(&self) -> bool {
        !self.buffers.is_empty()
    }

    /// Checks whether a trace session has started or ended. The worker calls this method before it
    /// receives packets.
    #[inline]
    pub(crate) fn poll(&mut self) {
        if self.epoch.requested().is_some() {
            self.change();
        }
        if self.sample.is_used {
            self.poll_sample();
        }
    }

    /// Ends the sample once all its packets have left. After a pause, starts the next sample.
    #[cold]
    fn poll_sample(&mut self) {
        match self.sample.resume_ns {
            None if self.is_choosing || self.is_tracing() || self.has_departing() => {}
            None => {
                let now_ns = self.now_ns();
                let duration_ns = now_ns.saturating_sub(self.sample.since_ns);
                let duration_ns = duration_ns.clamp(*SAMPLE_NS.start(), *SAMPLE_NS.end());
                self.sample.resume_ns = Some(now_ns + PAUSE_FACTOR * duration_ns);
            }
            Some(resume_ns) if self.now_ns() >= resume_ns => {
                let is_over = self.session.as_ref().is_none_or(|session| session.is_enough(&lock(&session.kept)));
                self.sample = Sample { is_used: !is_over, ..Sample::default() };
                self.is_choosing = !is_over;
            }
            Some(_) => {}
        }
    }

    #[cold]
    fn change(&mut self) {
        self.end();
        let current = lock(&self.traces.session);
        // Requests to workers are made under this lock. The request number therefore belongs to
        // this session.
        let requested = self.epoch.requested();
        self.session.clone_from(&current);
        drop(current);
        self.is_choosing = self.session.is_some();
        let is_used = self.traces.is_live && self.session.as_ref().is_some_and(|session| session.request.dropped);
        self.sample = Sample { is_used, ..Sample::default() };
        if self.is_choosing && self.sieve.is_empty() {
            self.sieve = vec![0; SIEVE_SLOTS].into();
        }
        if let Some(number) = requested {
            self.epoch.answer(number);
        }
    }

    /// Ends the trace session on this worker. Hands over the records of packets that are still
    /// traced.
    fn end(&mut self) {
        self.departing.clear();
        for (_, mut traced) in std::mem::take(&mut self.traced) {
            traced.packet.fate = if traced.is_sent { Fate::Sent } else { Fate::InFlight };
            if let Some(session) = &self.session {
                session.finish(traced.packet);
            }
        }
        self.buffers.clear();
        self.sieve.fill(0);
        self.is_choosing = false;
        self.sample = Sample::default();
        self.session = None;
    }

    fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn sieve_slot(packet: &Descriptor) -> usize {
        usize::from(packet.order) % SIEVE_SLOTS
    }

    /// Returns the trace number of a packet, or `None` if the packet is not traced.
    fn number(&self, packet: &Descriptor) -> Option<u64> {
        let is_none = self.sieve[Self::sieve_slot(packet)] == 0;
        if is_none { None } else { self.buffers.get(&packet.buffer).copied() }
    }

    fn traced(&mut self, packet: &Descriptor) -> Option<&mut TracedPacket> {
        let number = self.number(packet)?;
        self.traced.get_mut(&number)
    }

    fn register(&mut self, packet: &Descriptor, number: u64) {
        self.sieve[Self::sieve_slot(packet)] += 1;
        let other = self.buffers.insert(packet.buffer, number);
        debug_assert_eq!(other, None, "a buffer has one packet");
    }

    /// Stops tracing a packet's buffer. Returns the packet's trace number if it was traced.
    fn unregister(&mut self, packet: &Descriptor) -> Option<u64> {
        let number = self.number(packet)?;
        self.sieve[Self::sieve_slot(packet)] -= 1;
        self.buffers.remove(&packet.buffer);
        Some(number)
    }

    fn record(&mut self, packets: &[Descriptor], kind: impl Fn(&Self, usize) -> StepKind) {
        let now_ns = self.now_ns();
        for (index, packet) in packets.iter().enumerate() {
            let Some(number) = self.number(packet) else { continue };
            let kind = kind(self, index);
            if let Some(traced) = self.traced.get_mut(&number) {
                traced.record(now_ns, kind);
            }
        }
    }

    fn finish(&mut self, number: u64, fate: Fate) {
        if let (Some(mut traced), Some(session)) = (self.traced.remove(&number), &self.session) {
            traced.packet.fate = fate;
            session.finish(traced.packet);
        }
    }

    /// Records that a copy of a packet left or was dropped. The last copy completes the record.
    fn copy_gone(&mut self, number: u64) {
        let Some(traced) = self.traced.get_mut(&number) else { return };
        traced.copies -= 1;
        if traced.copies == 0 {
            let fate = if traced.is_sent { Fate::Sent } else { Fate::Dropped };
            self.finish(number, fate);
        }
    }

    fn port(&self, port: u16) -> String {
        self.traces.ports.get(usize::from(port)).cloned().unwrap_or_else(|| port.to_string())
    }

    fn next(&self, plan: &ChainPlan, next: Decided, verdicts: Option<(usize, Outcome)>) -> Next {
        match (next, verdicts) {
            (Decided::Function(next), _) => Next::Function(plan.stages[usize::from(next)].name.clone()),
            (Decided::Port(port), _) => Next::Port(self.port(port.into())),
            (Decided::Egress, Some((function, Outcome { port: PORT_FLOOD, value: set, .. }))) => {
                let ports = plan.stages[function].function.flood().map_or(&[][..], |flood| flood.ports(set));
                Next::Flood(ports.iter().map(|&port| self.port(port.into())).collect())
            }
            (Decided::Egress, Some((_, outcome))) => Next::Port(self.port(outcome.port)),
            (Decided::Drop, _) => Next::Drop,
            (Decided::None | Decided::Egress, _) => Next::Nowhere,
        }
    }
}

/// Methods that record steps of packets, in the order of the steps. Except for [`Tracer::choose`],
/// the worker calls them only while a packet is being traced.
impl Tracer {
    /// Chooses new packets that match the filter of the trace.
    #[cold]
    pub(crate) fn choose(
        &mut self,
        plan: &ChainPlan,
        region: &Region,
        packets: &[Descriptor],
        stamps: &[Stamp],
        now_ns: u64,
        origin: &Origin<'_>,
    ) {
        let Some(session) = self.session.clone() else { return };
        for (packet, stamp) in packets.iter().zip(stamps) {
            if self.sample.is_used {
                if self.sample.looked == SAMPLE_PACKETS {
                    self.is_choosing = false;
                    return;
                }
                if self.sample.looked == 0 {
                    self.sample.since_ns = self.now_ns();
                }
                self.sample.looked += 1;
            }
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
                self.sample.is_used = false;
                return;
            };
            let class = class_name.clone();
            let kind = match origin {
                Origin::Function(function) => StepKind::Created { function: (*function).to_owned(), class },
                Origin::Port => {
                    let next = plan.decider.entry(packet.port, plan.classifier.classify(&parsed));
                    StepKind::Received { class, next: self.next(plan, next, None) }
                }
            };
            self.begin(&session, region, packet, *stamp, (number, now_ns), kind);
        }
    }

    fn begin(
        &mut self,
        session: &Session,
        region: &Region,
        packet: &Descriptor,
        stamp: Stamp,
        (number, arrival_ns): (u64, u64),
        kind: StepKind,
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
        found.record(self.now_ns().saturating_sub(arrival_ns), kind);
        let traced = TracedPacket { packet: found, arrival_ns, copies: 1, is_sent: false };
        self.traced.insert(number, traced);
        self.register(packet, number);
    }

    /// Records that a function has prepared packets for its kernel.
    #[cold]
    pub(crate) fn prepared(&mut self, plan: &ChainPlan, function: usize, packets: &[Descriptor], work: &WorkColumns) {
        let stage = &plan.stages[function];
        let packets = &packets[..work.len().min(packets.len())];
        self.record(packets, |_, packet| {
            let variant = match work.at(packet) {
                Work::Run { variant, .. } => Some(variant_name(plan, function, variant)),
                Work::Done(_) => None,
            };
            StepKind::Prepared { function: stage.name.clone(), variant }
        });
    }

    /// Records that packets were put into batches for a device.
    #[cold]
    pub(crate) fn binned(
        &mut self,
        plan: &ChainPlan,
        function: usize,
        device: &str,
        variant: u8,
        packets: &[Descriptor],
    ) {
        self.record(packets, |_, _| StepKind::Binned {
            function: plan.stages[function].name.clone(),
            device: device.to_owned(),
            variant: variant_name(plan, function, variant),
        });
    }

    /// Records that packets were submitted to a device. `number` counts this worker's submissions
    /// to the device.
    #[cold]
    pub(crate) fn submitted(&mut self, device: &str, number: u64, chunk: &Chunk) {
        for (index, bin) in chunk.bins.iter().enumerate() {
            self.record(&chunk.descriptors[chunk.range(bin)], |_, _| StepKind::Submitted {
                device: device.to_owned(),
                chunk: number,
                bin: index + 1,
                bins: chunk.bins.len(),
                bin_packets: bin.count,
                chunk_packets: chunk.packets,
            });
        }
    }

    /// Records that a device rejected a submission.
    #[cold]
    pub(crate) fn rejected(&mut self, device: &str, chunk: &Chunk) {
        for bin in &chunk.bins {
            self.record(&chunk.descriptors[chunk.range(bin)], |_, _| StepKind::NotTaken { device: device.to_owned() });
        }
    }

    /// Records that a device has finished a submission.
    #[cold]
    pub(crate) fn returned(&mut self, device: &str, chunk: &Chunk) {
        for bin in &chunk.bins {
            self.record(&chunk.descriptors[chunk.range(bin)], |_, _| StepKind::Returned { device: device.to_owned() });
        }
    }

    /// Records that packets went from `function` to `next` without leaving the device.
    #[cold]
    pub(crate) fn continued(
        &mut self,
        plan: &ChainPlan,
        function: usize,
        verdict: u8,
        next: usize,
        packets: &[Descriptor],
    ) {
        self.record(packets, |_, _| StepKind::Verdict {
            function: plan.stages[function].name.clone(),
            verdict: verdict_name(plan, function, verdict),
            next: Next::Function(plan.stages[next].name.clone()),
            on_device: true,
        });
    }

    /// Records the verdicts of a function. Drops are recorded by [`Tracer::dropped`].
    #[cold]
    pub(crate) fn verdicts(
        &mut self,
        plan: &ChainPlan,
        class: impl Fn(&Descriptor) -> u8,
        function: usize,
        packets: &[Descriptor],
        outcomes: &[Outcome],
    ) {
        let is_trivial = plan.classifier.is_trivial();
        let now_ns = self.now_ns();
        for (packet, outcome) in packets.iter().zip(outcomes).filter(|(_, outcome)| outcome.verdict != VERDICT_DROP) {
            let Some(number) = self.number(packet) else { continue };
            let class = if is_trivial { 0 } else { class(packet) };
            let next = plan.decider.next(function as u16, class, outcome.verdict);
            let kind = StepKind::Verdict {
                function: plan.stages[function].name.clone(),
                verdict: verdict_name(plan, function, outcome.verdict),
                next: self.next(plan, next, Some((function, *outcome))),
                on_device: false,
            };
            if let Some(traced) = self.traced.get_mut(&number) {
                traced.record(now_ns, kind);
            }
        }
    }

    /// Records that a function created `packet` from `original`, and starts the trace of `packet`.
    #[cold]
    pub(crate) fn split(&mut self, function: &str, region: &Region, original: &Descriptor, packet: &Descriptor) {
        let now_ns = self.now_ns();
        let (Some(session), Some(parent)) = (self.session.clone(), self.number(original)) else { return };
        if self.buffers.len() >= PACKETS_MAX {
            session.miss();
            return;
        }
        let number = session.choose_child();
        let Some(traced) = self.traced.get_mut(&parent) else { return };
        traced.record(now_ns, StepKind::Split { function: function.to_owned(), packet: number });
        let stamp = Stamp { sequence: traced.packet.sequence, time_ns: traced.packet.time_ns };
        let kind = StepKind::MadeOf { function: function.to_owned(), packet: parent };
        let arrival_ns = traced.arrival_ns;
        self.begin(&session, region, packet, stamp, (number, arrival_ns), kind);
    }

    /// Records that a function holds the packet, and completes its record.
    #[cold]
    pub(crate) fn held(&mut self, function: &str, packet: &Descriptor) {
        self.record(std::slice::from_ref(packet), |_, _| StepKind::Held { function: function.to_owned() });
        if let Some(number) = self.unregister(packet) {
            self.finish(number, Fate::Held);
        }
    }

    /// Records that a function joined `packet` with `held` earlier packets. `whole` is the
    /// resulting packet.
    #[cold]
    pub(crate) fn joined(&mut self, function: &str, packet: &Descriptor, whole: &Descriptor, held: u32) {
        let length = whole.length;
        self.record(std::slice::from_ref(packet), |_, _| StepKind::Joined {
            function: function.to_owned(),
            held,
            length,
        });
        if let Some(number) = self.unregister(packet) {
            self.register(whole, number);
        }
    }

    /// Records that a packet was dropped. `reason` is the index of the drop reason's counter.
    #[cold]
    pub(crate) fn dropped(&mut self, plan: &ChainPlan, packet: &Descriptor, reason: usize) {
        let now_ns = self.now_ns();
        let Some(traced) = self.traced(packet) else { return };
        let (counter, reason) = drop_reason(plan, reason);
        traced.record(now_ns, StepKind::Dropped { counter, reason });
        if let Some(number) = self.unregister(packet) {
            self.copy_gone(number);
        }
    }

    /// Records that a traced packet was copied to `copy`. The copy leaves through `port`.
    #[cold]
    pub(crate) fn copied(&mut self, packet: &Descriptor, copy: &Descriptor, port: u8) {
        let (now_ns, port) = (self.now_ns(), self.port(port.into()));
        let Some(number) = self.number(packet) else { return };
        if let Some(traced) = self.traced.get_mut(&number) {
            traced.record(now_ns, StepKind::Copied { port });
            traced.copies += 1;
        }
        self.register(copy, number);
    }

    /// Records the drop of a traced packet's copy, which was meant for `port`.
    #[cold]
    pub(crate) fn copy_dropped(&mut self, plan: &ChainPlan, packet: &Descriptor, port: u8, reason: usize) {
        let (now_ns, port) = (self.now_ns(), self.port(port.into()));
        let Some(traced) = self.traced(packet) else { return };
        let (counter, reason) = drop_reason(plan, reason);
        traced.record(now_ns, StepKind::CopyDropped { port, counter, reason });
    }

    /// Records that packets are about to leave. `outs` has one list of packets per port.
    #[cold]
    pub(crate) fn departing(&mut self, region: &Region, outs: &[Vec<Departure>]) {
        let now_ns = self.now_ns();
        let frames = self.session.as_ref().is_some_and(|session| session.request.frames);
        for (port, out) in outs.iter().enumerate() {
            for Departure { descriptor, .. } in out {
                let Some(number) = self.unregister(descriptor) else { continue };
                let port = self.port(port as u16);
                if let Some(traced) = self.traced.get_mut(&number).filter(|_| frames) {
                    let at_ns = now_ns.saturating_sub(traced.arrival_ns);
                    traced.packet.left.push(SentFrame {
                        port: port.clone(),
                        at_ns,
                        frame: region.frame(descriptor).to_vec(),
                    });
                }
                self.departing.push((number, port, descriptor.length));
            }
        }
    }

    /// Returns whether traced packets are about to leave. The caller must then call
    /// [`Tracer::departed`].
    #[inline]
    pub(crate) fn has_departing(&self) -> bool {
        !self.departing.is_empty()
    }

    /// Records the last step of all departing packets. If `to_sender` is set, the sender thread
    /// took them. Otherwise, the ports accepted or refused them.
    #[cold]
    pub(crate) fn departed(&mut self, to_sender: bool, accepted: usize, refused: usize) {
        let now_ns = self.now_ns();
        for (number, port, length) in std::mem::take(&mut self.departing) {
            let Some(traced) = self.traced.get_mut(&number) else { continue };
            let kind = match (accepted, refused) {
                _ if to_sender => StepKind::HandedOver { port, length },
                (_, 0) => StepKind::Sent { port, length },
                (0, _) => {
                    let (counter, reason) = refusal();
                    StepKind::Dropped { counter, reason }
                }
                _ => StepKind::SentOrRefused { port, length, refused, packets: accepted + refused },
            };
            traced.is_sent |= !matches!(kind, StepKind::Dropped { .. });
            traced.record(now_ns, kind);
            self.copy_gone(number);
        }
    }
}

impl Drop for Tracer {
    /// Hands over the records of packets that are still traced, before other threads see the end of
    /// the worker.
    fn drop(&mut self) {
        self.end();
    }
}

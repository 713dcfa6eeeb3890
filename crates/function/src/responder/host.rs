//! Handles each packet of the responder on the CPU, depending on the verdict of the previous
//! function.

use std::net::IpAddr;
use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::Region;
use godwit_wire::MacAddress;
use godwit_wire::checksum::update;

use super::config::Settings;
use super::unreachable::{SILENCE_NS, Unreachable};
use super::waiting::{Held, Waiting};
use super::{
    DROP_NO_ROOM, DROP_POLICED, DROP_UNRESOLVED, DROP_UNTOLD, VERDICT_FORWARD, VERDICT_OTHER, VERDICT_REPLY, answers,
    questions,
};
use crate::fragments::{Fault, Split, ip_at, message};
use crate::neighbours::{Bucket, Request, Resolution, Station, Target};
use crate::{Arrange, Arrangement, Complete, PreviousOutcome, Step, Work};

/// Interval at which a worker that holds packets checks the neighbour table, in nanoseconds.
/// Another worker may have received the awaited answer.
const LOOK_NS: u64 = 1_000_000;

/// State of the responder on one worker.
pub(super) struct ResponderHost {
    settings: Arc<Settings>,
    /// Rate limit of ICMP errors.
    messages: Bucket,
    /// Whether the rate limit for ICMP errors applies. Each worker has its own limit, so a replay
    /// ignores it. Otherwise, the output would depend on the number of workers.
    is_limited: bool,
    /// Stations that the operating system resolves.
    unreachable: Unreachable,
    /// Held packets to stations whose addresses are not known.
    waiting: Waiting,
    /// Version of the neighbour table when this worker last checked its held packets.
    seen_version: u64,
    requests: Vec<Request>,
}

impl ResponderHost {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        let messages = Bucket::new(settings.messages_a_second);
        let (unreachable, waiting, seen_version, requests) = Default::default();
        Self { settings, messages, is_limited: true, unreachable, waiting, seen_version, requests }
    }

    fn handle(
        &mut self,
        region: &mut Region,
        packet: &Descriptor,
        previous: Option<&PreviousOutcome>,
        now_ns: u64,
        live: bool,
    ) -> Vec<Step> {
        let drop = |reason| vec![Step::Drop { packet: *packet, reason }];
        let outcome = previous.map_or(Outcome::default(), |previous| previous.outcome);
        let fault = match previous.and_then(PreviousOutcome::verdict) {
            Some("ttl_exceeded" | "hop_limit_exceeded") => Fault::HopLimit,
            Some("no_route") => Fault::NoRoute,
            Some("too_big") => Fault::TooBig(outcome.value as usize),
            Some("fragment") => return split(region, packet, outcome).unwrap_or_else(|| drop(DROP_NO_ROOM)),
            Some("unresolved") => {
                // The destination is an address of this machine within an on-link prefix. No other
                // station has this address, so the machine itself answers.
                if destination(region.frame(packet)).is_some_and(|address| self.settings.has(address)) {
                    return self.answer(region, packet, now_ns, live);
                }
                if let Some(steps) =
                    previous.filter(|_| live).and_then(|previous| self.resolve(region, packet, previous, now_ns))
                {
                    return steps;
                }
                let is_unreachable = destination(region.frame(packet)).is_some_and(|address| {
                    let station = (outcome.port, address);
                    self.unreachable.look_up(station, packet.port.into(), now_ns) == Resolution::Silent
                });
                if !is_unreachable {
                    return drop(DROP_UNRESOLVED);
                }
                Fault::NoHost
            }
            _ => return self.answer(region, packet, now_ns, live),
        };
        self.send_error(region, packet, fault, now_ns)
    }

    fn send_error(&mut self, region: &mut Region, packet: &Descriptor, fault: Fault, now_ns: u64) -> Vec<Step> {
        match self.message(region.frame(packet), packet.port.into(), fault, now_ns) {
            Some(frame) => send_reply(region, packet, &frame),
            None => vec![Step::Drop { packet: *packet, reason: DROP_UNTOLD }],
        }
    }

    /// Handles a packet to a station whose address is being resolved, by the responder or by the
    /// operating system. Returns `None` for any other packet.
    fn resolve(
        &mut self,
        region: &mut Region,
        packet: &Descriptor,
        previous: &PreviousOutcome,
        now_ns: u64,
    ) -> Option<Vec<Step>> {
        let drop = vec![Step::Drop { packet: *packet, reason: DROP_UNRESOLVED }];
        let frame = region.frame(packet);
        let (at, to) = (ip_at(frame)?, destination(frame)?);
        let settings = Arc::clone(&self.settings);
        let (function, next_hop, from) = (previous.function, previous.outcome.value, packet.port.into());
        let resolved = settings.neighbours.resolve(function, next_hop, to, from, now_ns);
        let (station, target, resolution) =
            resolved.or_else(|| self.await_kernel(function, next_hop, to, from, now_ns))?;
        if ip_bytes(&frame[at..])? > usize::from(target.mtu) {
            // For an unresolved next hop, the kernel does not compare the packet length with the
            // MTU. A packet that needs fragmentation is dropped rather than held.
            let may_be_cut = frame[at] >> 4 == 4 && frame.get(at + 6)? & 0x40 == 0;
            let fault = Fault::TooBig(target.mtu.into());
            return Some(if may_be_cut { drop } else { self.send_error(region, packet, fault, now_ns) });
        }
        match resolution {
            Resolution::Known { address, is_settled: true } => {
                let work = forwarded(&settings, region.frame_mut(packet), at, station, address);
                Some(work.map_or(drop, |work| vec![Step::Keep { packet: *packet, work }]))
            }
            // Earlier packets to the station may still be held, and must leave before this one.
            Resolution::Known { is_settled: false, .. } | Resolution::Pending => {
                let is_known = resolution != Resolution::Pending;
                let limit = if is_known { usize::MAX } else { settings.held_packets };
                let is_held = self.waiting.hold(station, packet, frame, limit, now_ns);
                if is_known {
                    self.seen_version = u64::MAX;
                }
                Some(if is_held { vec![Step::Hold { packet: *packet }] } else { drop })
            }
            Resolution::Silent => Some(self.send_error(region, packet, Fault::NoHost, now_ns)),
            Resolution::Policed => Some(vec![Step::Drop { packet: *packet, reason: DROP_POLICED }]),
            Resolution::TableFull => Some(drop),
        }
    }

    /// Returns the station of a packet and its state, if the operating system resolves and reports
    /// its address.
    fn await_kernel(
        &mut self,
        function: usize,
        next_hop: u32,
        to: IpAddr,
        from: u16,
        now_ns: u64,
    ) -> Option<(Station, Target, Resolution)> {
        let kernel = self.settings.neighbours.kernel();
        let (station, target) = kernel.station(function, next_hop, to)?;
        let mut resolution = self.unreachable.look_up(station, from, now_ns);
        if resolution != Resolution::Policed {
            match kernel.enter(function, station, now_ns) {
                Some(Some(address)) => resolution = Resolution::Known { address, is_settled: false },
                Some(None) => {}
                None => resolution = Resolution::TableFull,
            }
        }
        Some((station, target, resolution))
    }

    /// Returns the state of a station for which packets are held.
    fn resolution(&self, station: Station, now_ns: u64) -> Resolution {
        let neighbours = &self.settings.neighbours;
        match neighbours.kernel().address(station) {
            Some(Some(address)) => Resolution::Known { address, is_settled: false },
            Some(None) if self.waiting.is_older(station, now_ns.saturating_sub(SILENCE_NS)) => Resolution::Silent,
            Some(None) => Resolution::Pending,
            None => neighbours.resolution(station),
        }
    }

    /// Sends the address requests that are due. Releases the held packets of stations that have
    /// answered or have not answered in time.
    fn poll_neighbours(&mut self, region: &mut Region, steps: &mut Vec<Step>, now_ns: u64) {
        let settings = Arc::clone(&self.settings);
        let neighbours = &settings.neighbours;
        let mut requests = std::mem::take(&mut self.requests);
        neighbours.poll(now_ns, &mut requests);
        steps.extend(requests.drain(..).filter_map(|request| request_step(&settings, region, request)));
        self.requests = requests;
        // Both versions only grow, so their sum changes whenever one of them does.
        let version = neighbours.version() + neighbours.kernel().version();
        if self.seen_version == version && !self.waiting.has_older(now_ns.saturating_sub(SILENCE_NS)) {
            return;
        }
        self.seen_version = version;
        for station in self.waiting.stations() {
            let resolution = self.resolution(station, now_ns);
            if resolution == Resolution::Pending {
                continue;
            }
            for held in self.waiting.take(station) {
                steps.push(self.resume(region, station, resolution, held, now_ns));
            }
        }
    }

    /// Forwards a held packet, or replaces it with an ICMP error.
    fn resume(
        &mut self,
        region: &mut Region,
        station: Station,
        resolution: Resolution,
        held: Held,
        now_ns: u64,
    ) -> Step {
        let Held { mut frame, packet, .. } = held;
        let lost = |reason| Step::Expire { held: 1, reason };
        let work = match resolution {
            Resolution::Known { address, .. } => {
                let settings = &self.settings;
                ip_at(&frame).and_then(|at| forwarded(settings, &mut frame, at, station, address))
            }
            _ => self.message(&frame, packet.port.into(), Fault::NoHost, now_ns).map(|message| {
                frame = message;
                Work::Done(Outcome { port: packet.port.into(), ..Outcome::verdict(VERDICT_REPLY) })
            }),
        };
        let Some(work) = work else { return lost(DROP_UNTOLD) };
        let Some(descriptor) = region.allocate(frame.len()) else { return lost(DROP_NO_ROOM) };
        region.frame_mut(&descriptor).copy_from_slice(&frame);
        let packet = Descriptor { port: packet.port, flow_hash: packet.flow_hash, ..descriptor };
        Step::Resume { packet, work, reason: DROP_NO_ROOM }
    }

    fn answer(&self, region: &mut Region, packet: &Descriptor, now_ns: u64, live: bool) -> Vec<Step> {
        let neighbours = &self.settings.neighbours;
        if live
            && neighbours.is_used()
            && let Some((station, address)) =
                questions::announced(&self.settings, packet.port.into(), region.frame(packet))
        {
            neighbours.learn(station, address, now_ns);
        }
        match answers::answer(&self.settings, packet.port.into(), region.frame(packet)) {
            Some(answer) => send_reply(region, packet, &answer),
            None => vec![Step::Keep { packet: *packet, work: Work::Done(Outcome::verdict(VERDICT_OTHER)) }],
        }
    }

    /// Returns a frame with an ICMP error about a packet that arrived on `port`. Returns `None` if
    /// no error may be sent.
    fn message(&mut self, frame: &[u8], port: u16, fault: Fault, now_ns: u64) -> Option<Vec<u8>> {
        let at = ip_at(frame)?;
        // Frames addressed to several stations cause no ICMP error (RFC 1812, section 4.3.2.7).
        if frame[0] & 1 != 0 {
            return None;
        }
        let bytes = ip_bytes(&frame[at..])?;
        let from = self.settings.interface(port)?.of_family(frame[at] >> 4 == 4)?;
        let message = message(&frame[at..at + bytes], fault, from)?;
        if self.is_limited && !self.messages.take(self.settings.messages_a_second, now_ns) {
            return None;
        }
        let mut answer = Vec::with_capacity(at + message.len());
        answer.extend_from_slice(&frame[6..12]);
        answer.extend_from_slice(&frame[..6]);
        answer.extend_from_slice(&frame[12..at]);
        answer.extend_from_slice(&message);
        Some(answer)
    }
}

impl Complete for ResponderHost {}

impl Arrange for ResponderHost {
    fn arrange(&mut self, packets: &mut Arrangement<'_>) -> u64 {
        let now_ns = packets.now_ns;
        self.is_limited = packets.live;
        for (index, packet) in packets.arrived.iter().enumerate() {
            let steps = self.handle(packets.region, packet, packets.previous.get(index), now_ns, packets.live);
            packets.steps.extend(steps);
        }
        let neighbours = &self.settings.neighbours;
        if !packets.live || !(neighbours.is_used() || neighbours.kernel().is_used()) {
            return u64::MAX;
        }
        if packets.ending {
            if !self.waiting.is_empty() {
                let held = self.waiting.clear() as u32;
                packets.steps.push(Step::Expire { held, reason: DROP_UNRESOLVED });
            }
            return u64::MAX;
        }
        self.poll_neighbours(packets.region, packets.steps, now_ns);
        let next_ns = self.settings.neighbours.next_ns();
        if self.waiting.is_empty() { next_ns } else { next_ns.min(now_ns + LOOK_NS) }
    }
}

/// Creates an address request, and returns the step that sends it.
fn request_step(settings: &Settings, region: &mut Region, request: Request) -> Option<Step> {
    let (port, address) = request.station;
    let frame = questions::request(settings.interface(port)?, address, request.to)?;
    let descriptor = region.allocate(frame.len())?;
    region.frame_mut(&descriptor).copy_from_slice(&frame);
    let work = Work::Done(Outcome { port, ..Outcome::verdict(VERDICT_FORWARD) });
    Some(Step::Create { packet: Descriptor { port: port as u8, flow_hash: 0, ..descriptor }, work })
}

/// Rewrites the headers of a frame as a router does. Returns `None` if the hop limit is used up.
fn forwarded(settings: &Settings, frame: &mut [u8], at: usize, station: Station, address: MacAddress) -> Option<Work> {
    let (port, _) = station;
    let interface = settings.interface(port)?;
    let is_v4 = frame[at] >> 4 == 4;
    let hops = at + if is_v4 { 8 } else { 7 };
    if *frame.get(hops)? <= 1 {
        return None;
    }
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let before = word(frame, hops);
    frame[hops] -= 1;
    if is_v4 {
        let sum = update(word(frame, at + 10), before, word(frame, hops));
        frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    }
    frame[..6].copy_from_slice(&address.0);
    frame[6..12].copy_from_slice(&interface.mac.0);
    Some(Work::Done(Outcome { port, ..Outcome::verdict(VERDICT_FORWARD) }))
}

/// Replaces the frame of `packet`, and sends it back through its ingress port.
fn send_reply(region: &mut Region, packet: &Descriptor, frame: &[u8]) -> Vec<Step> {
    let room = usize::from(packet.room) * godwit_abi::BUFFER_UNIT_BYTES - usize::from(packet.head);
    if frame.len() > room {
        return vec![Step::Drop { packet: *packet, reason: DROP_NO_ROOM }];
    }
    let packet = Descriptor { length: frame.len() as u16, ..*packet };
    region.frame_mut(&packet).copy_from_slice(frame);
    let outcome = Outcome { port: packet.port.into(), ..Outcome::verdict(VERDICT_REPLY) };
    vec![Step::Keep { packet, work: Work::Done(outcome) }]
}

/// Splits a packet into fragments that fit into the MTU in `outcome.value`. Returns `None` if there
/// are too few free buffers for the fragments.
fn split(region: &mut Region, packet: &Descriptor, outcome: Outcome) -> Option<Vec<Step>> {
    let whole = region.frame(packet).to_vec();
    let at = ip_at(&whole)?;
    let bytes = ip_bytes(&whole[at..])?;
    let split = Split::new(&whole[at..at + bytes], outcome.value as usize)?;
    let parts: Vec<Descriptor> =
        (1..split.count()).map_while(|index| region.allocate(at + split.bytes(index))).collect();
    if parts.len() + 1 < split.count() {
        parts.iter().for_each(|part| region.release(part));
        return None;
    }
    let work = Work::Done(Outcome { port: outcome.port, ..Outcome::verdict(VERDICT_FORWARD) });
    for (part, index) in parts.iter().zip(1..) {
        let frame = region.frame_mut(part);
        frame[..at].copy_from_slice(&whole[..at]);
        split.emit(index, &mut frame[at..]);
    }
    let (header, header_bytes) = split.first_header();
    region.frame_mut(packet)[at..at + header_bytes].copy_from_slice(&header[..header_bytes]);
    let first = Descriptor { length: (at + split.bytes(0)) as u16, ..*packet };
    let others = parts.into_iter().map(|packet| Step::Split { packet, work });
    Some(std::iter::once(Step::Keep { packet: first, work }).chain(others).collect())
}

/// Returns the length of the packet according to its IP header, in bytes. Returns `None` if
/// `packet` contains fewer bytes.
fn ip_bytes(packet: &[u8]) -> Option<usize> {
    let word = |at: usize| Some(usize::from(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?])));
    let bytes = match packet.first()? >> 4 {
        4 => word(2)?,
        6 => 40 + word(4)?,
        _ => return None,
    };
    (bytes <= packet.len()).then_some(bytes)
}

fn destination(frame: &[u8]) -> Option<IpAddr> {
    let packet = &frame[ip_at(frame)?..];
    match packet.first()? >> 4 {
        4 => packet.get(16..20)?.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes)),
        6 => packet.get(24..40)?.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes)),
        _ => None,
    }
}

//! What becomes of each packet, by what the function before said of it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::Region;
use godwit_wire::MacAddress;
use godwit_wire::checksum::update;

use super::config::Settings;
use super::waiting::{Held, Waiting};
use super::{
    DROP_NO_ROOM, DROP_UNRESOLVED, DROP_UNTOLD, VERDICT_FORWARD, VERDICT_OTHER, VERDICT_REPLY, answers, questions,
};
use crate::fragments::{Fault, Split, ip_at, message};
use crate::neighbours::{Question, Reach, Station};
use crate::{Arrangement, HostHalf, Said, Step, Work};

/// A message has at most so many bytes more than the packet that it is about; an advertisement, than what asks for it.
pub(super) const GROWTH_BYTES_MAX: u16 = 48;
const SECOND_NS: u64 = 1_000_000_000;
/// A station that has not answered for so long is not there (as Linux: three questions, a second between them).
const SILENCE_NS: u64 = 3 * SECOND_NS;
/// A station that nobody wanted for so long is asked for anew.
const FORGET_NS: u64 = 10 * SECOND_NS;
/// Stations without an answer that are remembered.
const SILENT_MAX: usize = 1024;
/// How soon a worker sees that another one has heard what its packets wait for.
const LOOK_NS: u64 = 1_000_000;

/// What one worker keeps.
pub(super) struct ResponderHost {
    settings: Arc<Settings>,
    /// Messages that may still be sent, and when that was.
    tokens: (u32, u64),
    /// Stations that are asked for: since when, and when last.
    silent: HashMap<(u16, IpAddr), (u64, u64)>,
    /// Packets whose stations this machine asks for by itself.
    waiting: Waiting,
    /// What of the neighbours those that wait have been told.
    seen: u64,
    questions: Vec<Question>,
}

impl ResponderHost {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        let tokens = (settings.messages_a_second, 0);
        let (silent, waiting, seen, questions) = Default::default();
        Self { settings, tokens, silent, waiting, seen, questions }
    }

    fn step(
        &mut self,
        region: &mut Region,
        packet: &Descriptor,
        said: Option<&Said>,
        now_ns: u64,
        live: bool,
    ) -> Vec<Step> {
        let drop = |reason| vec![Step::Drop { packet: *packet, reason }];
        let outcome = said.map_or(Outcome::default(), |said| said.outcome);
        let fault = match said.and_then(Said::verdict) {
            Some("ttl_exceeded" | "hop_limit_exceeded") => Fault::HopLimit,
            Some("no_route") => Fault::NoRoute,
            Some("too_big") => Fault::TooBig(outcome.value as usize),
            Some("fragment") => return split(region, packet, outcome).unwrap_or_else(|| drop(DROP_NO_ROOM)),
            Some("unresolved") => {
                // A net's route covers this machine's address there: nobody else has it.
                if destination(region.frame(packet)).is_some_and(|address| self.settings.has(address)) {
                    return self.answer(region, packet, now_ns, live);
                }
                if let Some(steps) = said.filter(|_| live).and_then(|said| self.resolve(region, packet, said, now_ns)) {
                    return steps;
                }
                let asked_long = destination(region.frame(packet))
                    .is_some_and(|address| self.asked_long(outcome.port, address, now_ns));
                if !asked_long {
                    return drop(DROP_UNRESOLVED);
                }
                Fault::NoHost
            }
            _ => return self.answer(region, packet, now_ns, live),
        };
        self.tell(region, packet, fault, now_ns)
    }

    fn tell(&mut self, region: &mut Region, packet: &Descriptor, fault: Fault, now_ns: u64) -> Vec<Step> {
        match self.message(region.frame(packet), packet.port.into(), fault, now_ns) {
            Some(frame) => reply(region, packet, &frame),
            None => vec![Step::Drop { packet: *packet, reason: DROP_UNTOLD }],
        }
    }

    /// A packet whose station this machine asks for by itself; `None`: it does not.
    fn resolve(&mut self, region: &mut Region, packet: &Descriptor, said: &Said, now_ns: u64) -> Option<Vec<Step>> {
        let drop = vec![Step::Drop { packet: *packet, reason: DROP_UNRESOLVED }];
        let frame = region.frame(packet);
        let (at, to) = (ip_at(frame)?, destination(frame)?);
        let settings = Arc::clone(&self.settings);
        let (station, target, reach) = settings.neighbours.want(said.function, said.outcome.value, to, now_ns)?;
        if ip_bytes(&frame[at..])? > usize::from(target.mtu) {
            // Nobody has looked at its length yet. Fragments do not wait: those of a later packet will go.
            let may_be_cut = frame[at] >> 4 == 4 && frame.get(at + 6)? & 0x40 == 0;
            let fault = Fault::TooBig(target.mtu.into());
            return Some(if may_be_cut { drop } else { self.tell(region, packet, fault, now_ns) });
        }
        match reach {
            Reach::Known { address, is_settled: true } => {
                let work = forwarded(&settings, region.frame_mut(packet), at, station, address);
                Some(work.map_or(drop, |work| vec![Step::Keep { packet: *packet, work }]))
            }
            // Those that waited before have taken new places, and it goes behind them.
            Reach::Known { is_settled: false, .. } | Reach::Asking => {
                // It waits for the end of this call where the station is known.
                let is_known = reach != Reach::Asking;
                let each = if is_known { usize::MAX } else { settings.held_packets };
                let is_held = self.waiting.hold(station, packet, frame, each, now_ns);
                if is_known {
                    self.seen = u64::MAX;
                }
                Some(if is_held { vec![Step::Hold { packet: *packet }] } else { drop })
            }
            Reach::Silent => Some(self.tell(region, packet, Fault::NoHost, now_ns)),
            Reach::Full => Some(drop),
        }
    }

    /// Asks what is due, and lets those go on whose stations have answered, or have not.
    fn attend(&mut self, region: &mut Region, steps: &mut Vec<Step>, now_ns: u64) {
        let settings = Arc::clone(&self.settings);
        let neighbours = &settings.neighbours;
        let mut questions = std::mem::take(&mut self.questions);
        neighbours.due(now_ns, &mut questions);
        steps.extend(questions.drain(..).filter_map(|question| ask(&settings, region, question)));
        self.questions = questions;
        let version = neighbours.version();
        if self.seen == version {
            return;
        }
        self.seen = version;
        for station in self.waiting.stations() {
            let reach = neighbours.reach(station);
            if reach == Reach::Asking {
                continue;
            }
            for held in self.waiting.take(station) {
                steps.push(self.let_go(region, station, reach, held, now_ns));
            }
        }
    }

    /// What becomes of a packet that waited.
    fn let_go(&mut self, region: &mut Region, station: Station, reach: Reach, held: Held, now_ns: u64) -> Step {
        let Held { mut frame, packet, .. } = held;
        let lost = |reason| Step::Expire { held: 1, reason };
        let work = match reach {
            Reach::Known { address, .. } => {
                let settings = &self.settings;
                ip_at(&frame).and_then(|at| forwarded(settings, &mut frame, at, station, address))
            }
            _ => self.message(&frame, packet.port.into(), Fault::NoHost, now_ns).map(|message| {
                frame = message;
                Work::Done(Outcome { port: packet.port.into(), ..Outcome::verdict(VERDICT_REPLY) })
            }),
        };
        let Some(work) = work else { return lost(DROP_UNTOLD) };
        let Some(place) = region.allocate(frame.len()) else { return lost(DROP_NO_ROOM) };
        region.frame_mut(&place).copy_from_slice(&frame);
        let packet = Descriptor { port: packet.port, flow_hash: packet.flow_hash, ..place };
        Step::Resume { packet, work, reason: DROP_NO_ROOM }
    }

    fn answer(&self, region: &mut Region, packet: &Descriptor, now_ns: u64, live: bool) -> Vec<Step> {
        let neighbours = &self.settings.neighbours;
        if live
            && neighbours.is_used()
            && let Some((station, address)) = questions::heard(&self.settings, packet.port.into(), region.frame(packet))
        {
            neighbours.heard(station, address, now_ns);
        }
        match answers::answer(&self.settings, packet.port.into(), region.frame(packet)) {
            Some(answer) => reply(region, packet, &answer),
            None => vec![Step::Keep { packet: *packet, work: Work::Done(Outcome::verdict(VERDICT_OTHER)) }],
        }
    }

    /// The frame that tells the sender of a packet that came by a port.
    fn message(&mut self, frame: &[u8], port: u16, fault: Fault, now_ns: u64) -> Option<Vec<u8>> {
        let at = ip_at(frame)?;
        // Nothing about what was sent to many stations (RFC 1812, section 4.3.2.7).
        if frame[0] & 1 != 0 {
            return None;
        }
        let bytes = ip_bytes(&frame[at..])?;
        let from = self.settings.interface(port)?.of_family(frame[at] >> 4 == 4)?;
        let message = message(&frame[at..at + bytes], fault, from)?;
        if !self.may_tell(now_ns) {
            return None;
        }
        let mut answer = Vec::with_capacity(at + message.len());
        answer.extend_from_slice(&frame[6..12]);
        answer.extend_from_slice(&frame[..6]);
        answer.extend_from_slice(&frame[12..at]);
        answer.extend_from_slice(&message);
        Some(answer)
    }

    /// A bucket of as many tokens as messages a second.
    fn may_tell(&mut self, now_ns: u64) -> bool {
        let rate = self.settings.messages_a_second;
        let (tokens, since_ns) = &mut self.tokens;
        let new = u64::from(rate) * now_ns.saturating_sub(*since_ns).min(SECOND_NS) / SECOND_NS;
        if new > 0 {
            *tokens = rate.min(tokens.saturating_add(new as u32));
            *since_ns = now_ns;
        }
        let may = *tokens > 0;
        *tokens = tokens.saturating_sub(1);
        may
    }

    /// Whether a station has been asked for so long that it is not there.
    fn asked_long(&mut self, port: u16, address: IpAddr, now_ns: u64) -> bool {
        if self.silent.len() >= SILENT_MAX {
            self.silent.retain(|_, (_, last_ns)| now_ns.saturating_sub(*last_ns) < FORGET_NS);
        }
        if self.silent.len() >= SILENT_MAX && !self.silent.contains_key(&(port, address)) {
            return false;
        }
        let (first_ns, last_ns) = self.silent.entry((port, address)).or_insert((now_ns, now_ns));
        if now_ns.saturating_sub(*last_ns) >= FORGET_NS {
            *first_ns = now_ns;
        }
        *last_ns = now_ns;
        now_ns.saturating_sub(*first_ns) >= SILENCE_NS
    }
}

impl HostHalf for ResponderHost {
    /// Never called: it arranges.
    fn prepare(&mut self, _region: &Region, descriptors: &[Descriptor], work: &mut Vec<Work>) {
        work.extend(descriptors.iter().map(|_| Work::Done(Outcome::verdict(VERDICT_OTHER))));
    }

    fn arranges(&self) -> bool {
        true
    }

    fn hears(&self) -> bool {
        true
    }

    fn arrange(&mut self, packets: &mut Arrangement<'_>) -> u64 {
        let now_ns = packets.now_ns;
        for (at, packet) in packets.arrived.iter().enumerate() {
            let steps = self.step(packets.region, packet, packets.said.get(at), now_ns, packets.live);
            packets.steps.extend(steps);
        }
        if !packets.live || !self.settings.neighbours.is_used() {
            return u64::MAX;
        }
        if packets.ending {
            if !self.waiting.is_empty() {
                let held = self.waiting.clear() as u32;
                packets.steps.push(Step::Expire { held, reason: DROP_UNRESOLVED });
            }
            return u64::MAX;
        }
        self.attend(packets.region, packets.steps, now_ns);
        let next_ns = self.settings.neighbours.next_ns();
        if self.waiting.is_empty() { next_ns } else { next_ns.min(now_ns + LOOK_NS) }
    }
}

/// A question in a frame of its own.
fn ask(settings: &Settings, region: &mut Region, question: Question) -> Option<Step> {
    let (port, address) = question.station;
    let frame = questions::question(settings.interface(port)?, address, question.to)?;
    let place = region.allocate(frame.len())?;
    region.frame_mut(&place).copy_from_slice(&frame);
    let work = Work::Done(Outcome { port, ..Outcome::verdict(VERDICT_FORWARD) });
    Some(Step::Create { packet: Descriptor { port: port as u8, flow_hash: 0, ..place }, work })
}

/// Makes the frame of an IP packet, as a router does, one for the next station. `None`: it may not make another hop.
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

/// A frame in the place of the packet, back by the port that it came by.
fn reply(region: &mut Region, packet: &Descriptor, frame: &[u8]) -> Vec<Step> {
    let room = usize::from(packet.room) * godwit_abi::BUFFER_UNIT_BYTES - usize::from(packet.head);
    if frame.len() > room {
        return vec![Step::Drop { packet: *packet, reason: DROP_NO_ROOM }];
    }
    let packet = Descriptor { length: frame.len() as u16, ..*packet };
    region.frame_mut(&packet).copy_from_slice(frame);
    let outcome = Outcome { port: packet.port.into(), ..Outcome::verdict(VERDICT_REPLY) };
    vec![Step::Keep { packet, work: Work::Done(outcome) }]
}

/// The packet in fragments of the MTU that the function before told; `None`: there is no room for them.
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

/// Bytes of the IP packet; `None`: fewer are there.
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

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

/// Interval between two checks for packets that have been held for too long, in nanoseconds. A
/// worker that holds packets also checks the neighbour table at least this often, because another
/// worker may have received the awaited answer.
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
    /// Time of the next check for packets that have been held for too long.
    look_ns: u64,
    requests: Vec<Request>,
    /// List that is reused, with the stations for which packets are held, and their states.
    resolutions: Vec<(Station, Resolution)>,
}

impl ResponderHost {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        let messages = Bucket::new(settings.messages_a_second);
        let (unreachable, waiting, seen_version, look_ns) = Default::default();
        let (requests, resolutions) = Default::default();
        Self {
            settings,
            messages,
            is_limited: true,
            unreachable,
            waiting,
            seen_version,
            look_ns,
            requests,
            resolutions,
        }
    }

    /// Appends the steps for one packet.
    fn handle(
        &mut self,
        region: &mut Region,
        steps: &mut Vec<Step>,
        packet: &Descriptor,
        previous: Option<&PreviousOutcome>,
        now_ns: u64,
        live: bool,
    ) {
        let outcome = previous.map_or(Outcome::default(), |previous| previous.outcome);
        let fault = match previous.and_then(PreviousOutcome::verdict) {
            Some("ttl_exceeded" | "hop_limit_exceeded") => Fault::HopLimit,
            Some("no_route") => Fault::NoRoute,
            Some("too_big") => Fault::TooBig(outcome.value as usize),
            Some("fragment") => {
                let parts = split(region, packet, outcome);
                return steps.extend(parts.unwrap_or_else(|| vec![drop(packet, DROP_NO_ROOM)]));
            }
            Some("unresolved") => {
                let to = destination(region.frame(packet));
                // The destination is an address of this machine within an on-link prefix. No other
                // station has this address, so the machine itself answers.
                if to.is_some_and(|address| self.settings.has(address)) {
                    return steps.push(self.answer(region, packet, now_ns, live));
                }
                if let Some(step) =
                    previous.filter(|_| live).and_then(|previous| self.resolve(region, packet, to?, previous, now_ns))
                {
                    return steps.push(step);
                }
                let is_unreachable = to.is_some_and(|address| {
                    let station = (outcome.port, address);
                    self.unreachable.look_up(station, packet.port.into(), now_ns) == Resolution::Silent
                });
                if !is_unreachable {
                    return steps.push(drop(packet, DROP_UNRESOLVED));
                }
                Fault::NoHost
            }
            _ => return steps.push(self.answer(region, packet, now_ns, live)),
        };
        steps.push(self.send_error(region, packet, fault, now_ns));
    }

    fn send_error(&mut self, region: &mut Region, packet: &Descriptor, fault: Fault, now_ns: u64) -> Step {
        match self.message(region.frame(packet), packet.port.into(), fault, now_ns) {
            Some(frame) => send_reply(region, packet, &frame),
            None => drop(packet, DROP_UNTOLD),
        }
    }

    /// Handles a packet to a station whose address is being resolved, by the responder or by the
    /// operating system. `to` is the packet's destination. Returns `None` for any other packet.
    fn resolve(
        &mut self,
        region: &mut Region,
        packet: &Descriptor,
        to: IpAddr,
        previous: &PreviousOutcome,
        now_ns: u64,
    ) -> Option<Step> {
        let (function, next_hop, from) = (previous.function, previous.outcome.value, packet.port.into());
        let resolved = self.settings.neighbours.resolve(function, next_hop, to, from, now_ns);
        let (station, target, resolution) =
            resolved.or_else(|| self.await_kernel(function, next_hop, to, from, now_ns))?;
        if resolution == Resolution::Policed {
            return Some(drop(packet, DROP_POLICED));
        }
        let frame = region.frame(packet);
        let at = ip_at(frame)?;
        if ip_bytes(&frame[at..])? > usize::from(target.mtu) {
            // For an unresolved next hop, the kernel does not compare the packet length with the
            // MTU. A packet that needs fragmentation is dropped rather than held.
            let may_be_cut = frame[at] >> 4 == 4 && frame.get(at + 6)? & 0x40 == 0;
            let fault = Fault::TooBig(target.mtu.into());
            return Some(if may_be_cut {
                drop(packet, DROP_UNRESOLVED)
            } else {
                self.send_error(region, packet, fault, now_ns)
            });
        }
        Some(match resolution {
            Resolution::Known { address, is_settled: true } => {
                match forwarded(&self.settings, region.frame_mut(packet), at, station, address) {
                    Some(work) => Step::Keep { packet: *packet, work },
                    None => drop(packet, DROP_UNRESOLVED),
                }
            }
            // Earlier packets to the station may still be held, and must leave before this one.
            Resolution::Known { is_settled: false, .. } | Resolution::Pending => {
                let is_known = resolution != Resolution::Pending;
                let limit = if is_known { usize::MAX } else { self.settings.held_packets };
                if is_known {
                    self.seen_version = u64::MAX;
                }
                match self.waiting.hold(station, packet, frame, limit, now_ns) {
                    true => Step::Hold { packet: *packet },
                    false => drop(packet, DROP_UNRESOLVED),
                }
            }
            Resolution::Silent => self.send_error(region, packet, Fault::NoHost, now_ns),
            Resolution::Policed | Resolution::TableFull => drop(packet, DROP_UNRESOLVED),
        })
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

    /// Determines the states of stations for which packets are held.
    fn find_states(&self, stations: &mut Vec<(Station, Resolution)>, now_ns: u64) {
        let neighbours = &self.settings.neighbours;
        neighbours.find_states(stations);
        let kernel = neighbours.kernel();
        if !kernel.is_used() {
            return;
        }
        for (station, resolution) in stations {
            *resolution = match kernel.address(*station) {
                Some(Some(address)) => Resolution::Known { address, is_settled: false },
                Some(None) if self.waiting.is_older(*station, now_ns.saturating_sub(SILENCE_NS)) => Resolution::Silent,
                Some(None) => Resolution::Pending,
                None => continue,
            };
        }
    }

    /// Sends the address requests that are due. Releases the held packets of stations that have
    /// answered or have not answered in time.
    fn poll_neighbours(&mut self, region: &mut Region, steps: &mut Vec<Step>, now_ns: u64) {
        let neighbours = &self.settings.neighbours;
        neighbours.poll(now_ns, &mut self.requests);
        if !self.requests.is_empty() {
            let settings = &self.settings;
            steps.extend(self.requests.drain(..).filter_map(|request| request_step(settings, region, request)));
        }
        // Both versions only grow, so their sum changes whenever one of them does.
        let version = neighbours.version() + neighbours.kernel().version();
        let has_news = self.seen_version != version;
        if !has_news && now_ns < self.look_ns {
            return;
        }
        self.seen_version = version;
        self.look_ns = now_ns + LOOK_NS;
        let mut stations = std::mem::take(&mut self.resolutions);
        let with_state = |station| (station, Resolution::Pending);
        if has_news {
            stations.extend(self.waiting.stations().map(with_state));
        } else {
            stations.extend(self.waiting.older(now_ns.saturating_sub(SILENCE_NS)).map(with_state));
        }
        self.find_states(&mut stations, now_ns);
        stations.retain(|(_, resolution)| *resolution != Resolution::Pending);
        stations.sort_unstable_by_key(|(station, _)| *station);
        for (station, resolution) in stations.drain(..) {
            for held in self.waiting.take(station) {
                steps.push(self.resume(region, station, resolution, held, now_ns));
            }
        }
        self.resolutions = stations;
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

    fn answer(&self, region: &mut Region, packet: &Descriptor, now_ns: u64, live: bool) -> Step {
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
            None => Step::Keep { packet: *packet, work: Work::Done(Outcome::verdict(VERDICT_OTHER)) },
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
            let previous = packets.previous.get(index);
            self.handle(packets.region, packets.steps, packet, previous, now_ns, packets.live);
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

/// Replaces the frame of `packet` and sends it back through the port on which the packet arrived.
fn send_reply(region: &mut Region, packet: &Descriptor, frame: &[u8]) -> Step {
    let room = usize::from(packet.room) * godwit_abi::BUFFER_UNIT_BYTES - usize::from(packet.head);
    if frame.len() > room {
        return drop(packet, DROP_NO_ROOM);
    }
    let packet = Descriptor { length: frame.len() as u16, ..*packet };
    region.frame_mut(&packet).copy_from_slice(frame);
    let outcome = Outcome { port: packet.port.into(), ..Outcome::verdict(VERDICT_REPLY) };
    Step::Keep { packet, work: Work::Done(outcome) }
}

fn drop(packet: &Descriptor, reason: u8) -> Step {
    Step::Drop { packet: *packet, reason }
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

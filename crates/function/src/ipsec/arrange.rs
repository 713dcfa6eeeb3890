//! Handles packets that exceed the MTU of an SA, reassembles fragments for local endpoints, and
//! sends keepalives. `docs/decisions/0006-fragments.md` explains the design.

use std::net::IpAddr;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::Region;

use super::database::{Decided, Decision};
use super::host::IpsecHost;
use super::keepalive::Keepalives;
use super::{
    DROP_FRAGMENT_LIMIT, DROP_FRAGMENT_OVERLAP, DROP_FRAGMENT_TIMEOUT, DROP_MALFORMED, DROP_NO_ROOM, DROP_TOO_BIG,
    VERDICT_ENCRYPTED, VERDICT_TOO_BIG, sa_and_sequence,
};
use crate::fragments::{Added, Limits, Reassembler, Refusal, Split, ip_at, too_big};
use crate::{Arrangement, Step, Work, WorkColumns};

/// Maximum number of ICMP errors that a worker sends per second (RFC 1812, section 4.3.2.8).
const MESSAGES_A_SECOND: u32 = 100;
const SECOND_NS: u64 = 1_000_000_000;
/// MTU that every IPv6 link supports, in bytes (RFC 8200, section 5).
const IPV6_MTU_MIN: usize = 1280;
const DONT_FRAGMENT: u8 = 0x40;

/// Packet that may exceed the MTU of its outbound SA. `joined` identifies the fragments of a
/// reassembled packet.
#[derive(Clone, Copy)]
struct Origin {
    packet: Descriptor,
    /// For a reassembled packet, the descriptor of its last fragment and the number of earlier
    /// fragments.
    joined: Option<(Descriptor, u32)>,
}

impl Origin {
    fn keep(self, packet: Descriptor, work: Work) -> Step {
        match self.joined {
            Some((last, held)) => Step::Join { packet: last, whole: packet, held, work },
            None => Step::Keep { packet, work },
        }
    }

    fn drop(self, reason: u8) -> Step {
        match self.joined {
            Some(_) => self.keep(self.packet, Work::Done(Outcome::drop(reason))),
            None => Step::Drop { packet: self.packet, reason },
        }
    }
}

/// Fragmentation, reassembly and keepalive state of one worker.
#[derive(Default)]
pub(super) struct Arranger {
    reassembler: Option<Reassembler>,
    keepalives: Keepalives,
    /// Current second, and the number of ICMP errors sent in it.
    messages: (u64, u32),
    work: WorkColumns,
    /// Copy of the current packet.
    packet: Vec<u8>,
}

impl Arranger {
    /// See [`crate::Arrange::arrange`].
    pub(super) fn arrange(&mut self, host: &mut IpsecHost, packets: &mut Arrangement<'_>) -> u64 {
        let arrived = packets.arrived;
        let mut first = 0;
        for (at, packet) in arrived.iter().enumerate() {
            if host.database.lengths.needs_arranging(packets.region.frame(packet)) {
                self.keep_run(host, packets, &arrived[first..at]);
                self.arrange_one(host, packets, packet);
                first = at + 1;
            }
        }
        self.keep_run(host, packets, &arrived[first..]);
        self.run_timers(host, packets)
    }

    /// Prepares the encapsulation or decapsulation of consecutive packets that need neither
    /// fragmentation nor reassembly.
    fn keep_run(&mut self, host: &mut IpsecHost, packets: &mut Arrangement<'_>, run: &[Descriptor]) {
        self.work.clear();
        host.prepare_all(packets.region, run, &mut self.work);
        for (&packet, work) in run.iter().zip(self.work.iter()) {
            packets.steps.push(Step::Keep { packet, work });
        }
        if packets.live && host.database.lengths.has_keepalives() {
            for (packet, work) in run.iter().zip(self.work.iter()) {
                record_sent(&mut self.keepalives, host, packets.region, packet, work, packets.now_ns);
            }
        }
    }

    fn arrange_one(&mut self, host: &mut IpsecHost, packets: &mut Arrangement<'_>, packet: &Descriptor) {
        let frame = packets.region.frame(packet);
        let Some(at) = ip_at(frame) else { return self.keep_run(host, packets, &[*packet]) };
        if host.database.lengths.bucket_of_fragment(frame).is_some() {
            return self.join(host, packets, packet, at);
        }
        if !self.handle_too_long(host, packets, Origin { packet: *packet, joined: None }, at) {
            self.keep_run(host, packets, &[*packet]);
        }
    }

    /// Handles a packet that exceeds the MTU of its outbound SA. Returns false and does nothing if
    /// the packet fits or has no outbound SA.
    fn handle_too_long(
        &mut self,
        host: &mut IpsecHost,
        packets: &mut Arrangement<'_>,
        origin: Origin,
        at: usize,
    ) -> bool {
        let frame = packets.region.frame(&origin.packet);
        let policies = host.database.policies.load();
        let decision = host.database.decide(&policies, frame);
        let decision = host.database.apply_port(decision, origin.packet.port);
        let Decided::Encrypt(sa) = decision.decided() else { return false };
        let bytes = ip_bytes(&frame[at..]);
        let Some(mtu) = host.database.lengths.inner_mtu(sa) else { return false };
        let version = frame[at] >> 4;
        let mtu = if version == 6 { mtu.max(IPV6_MTU_MIN) } else { mtu };
        if bytes <= mtu {
            return false;
        }
        self.packet.clear();
        self.packet.extend(&frame[at..at + bytes]);
        if version == 4 && self.packet[6] & DONT_FRAGMENT == 0 {
            self.split(host, packets, origin, at, mtu, decision);
        } else {
            self.send_too_big(host, packets, origin, at, mtu, sa);
        }
        true
    }

    /// Splits a packet into fragments. The first fragment stays in the packet's buffer, and each
    /// later fragment gets a new buffer.
    fn split(
        &mut self,
        host: &mut IpsecHost,
        packets: &mut Arrangement<'_>,
        origin: Origin,
        at: usize,
        mtu: usize,
        decision: Decision,
    ) {
        let packet = &origin.packet;
        let region = &mut *packets.region;
        let Some(split) = Split::new(&self.packet, mtu) else {
            return packets.steps.push(origin.drop(DROP_MALFORMED));
        };
        let l2 = region.frame(packet)[..at].to_vec();
        let parts: Vec<Descriptor> =
            (1..split.count()).map_while(|index| region.allocate(at + split.bytes(index))).collect();
        if parts.len() + 1 < split.count() {
            parts.iter().for_each(|part| region.release(part));
            return packets.steps.push(origin.drop(DROP_NO_ROOM));
        }
        for (part, index) in parts.iter().zip(1..) {
            let frame = region.frame_mut(part);
            frame[..at].copy_from_slice(&l2);
            split.emit(index, &mut frame[at..]);
        }
        let (header, header_bytes) = split.first_header();
        region.frame_mut(packet)[at..at + header_bytes].copy_from_slice(&header[..header_bytes]);
        let first = Descriptor { length: (at + split.bytes(0)) as u16, ..*packet };
        let work = host.work(decision, first.length);
        if packets.live && host.database.lengths.has_keepalives() {
            record_sent(&mut self.keepalives, host, region, &first, work, packets.now_ns);
        }
        packets.steps.push(origin.keep(first, work));
        for part in parts {
            packets.steps.push(Step::Split { packet: part, work: host.work(decision, part.length) });
        }
    }

    /// Sends an ICMP error about a packet that must not be fragmented, or drops the packet.
    fn send_too_big(
        &mut self,
        host: &IpsecHost,
        packets: &mut Arrangement<'_>,
        origin: Origin,
        at: usize,
        mtu: usize,
        sa: u32,
    ) {
        let packet = &origin.packet;
        let from: Option<IpAddr> = host.database.sa(sa).map(|sa| sa.source);
        let message = from.and_then(|from| too_big(&self.packet, mtu, from));
        let message =
            message.filter(|message| message.len() <= self.packet.len() && self.may_send_message(packets.now_ns));
        let Some(message) = message else {
            return packets.steps.push(origin.drop(DROP_TOO_BIG));
        };
        let frame = packets.region.frame_mut(packet);
        let (destination, source) = frame[..12].split_at_mut(6);
        destination.swap_with_slice(source);
        frame[at..at + message.len()].copy_from_slice(&message);
        let packet = Descriptor { length: (at + message.len()) as u16, ..*packet };
        packets.steps.push(origin.keep(packet, Work::Done(Outcome::verdict(VERDICT_TOO_BIG))));
    }

    fn may_send_message(&mut self, now_ns: u64) -> bool {
        let second = now_ns / SECOND_NS;
        if self.messages.0 != second {
            self.messages = (second, 0);
        }
        self.messages.1 += 1;
        self.messages.1 <= MESSAGES_A_SECOND
    }

    /// Stores a fragment, and reassembles the packet if it is complete.
    fn join(&mut self, host: &mut IpsecHost, packets: &mut Arrangement<'_>, packet: &Descriptor, at: usize) {
        let region = &mut *packets.region;
        let frame_bytes = region.frame_bytes_max();
        let limits = host.database.lengths.reassembly.map(|limits| Limits { frame_bytes, ..limits });
        let Some(limits) = limits else { return self.keep_run(host, packets, &[*packet]) };
        let reassembler = self.reassembler.get_or_insert_with(|| Reassembler::new(limits));
        let added = reassembler.add(region.frame(packet), at, packets.now_ns);
        let expired = |(held, refusal)| Step::Expire { held, reason: reason(refusal) };
        packets.steps.extend(reassembler.take_expired().map(expired));
        match added {
            Ok(Added::Held) => packets.steps.push(Step::Hold { packet: *packet }),
            Err(refusal) => packets.steps.push(Step::Drop { packet: *packet, reason: reason(refusal) }),
            Ok(Added::Whole { held }) => {
                let Some(whole) = region.allocate(reassembler.whole().len()) else {
                    packets.steps.push(Step::Drop { packet: *packet, reason: DROP_NO_ROOM });
                    return packets.steps.push(Step::Expire { held, reason: DROP_NO_ROOM });
                };
                region.frame_mut(&whole).copy_from_slice(reassembler.whole());
                let whole = Descriptor { port: packet.port, ..whole };
                // A reassembled packet that no inbound SA accepts may exceed the MTU of an outbound
                // tunnel.
                if self.handle_too_long(host, packets, Origin { packet: whole, joined: Some((*packet, held)) }, at) {
                    return;
                }
                let region = &mut *packets.region;
                self.work.clear();
                host.prepare_all(region, &[whole], &mut self.work);
                packets.steps.push(Step::Join { packet: *packet, whole, held, work: self.work.at(0) });
            }
        }
    }

    /// Drops fragments that have waited too long, and sends keepalives. Returns the time of the
    /// next call, in nanoseconds.
    fn run_timers(&mut self, host: &IpsecHost, packets: &mut Arrangement<'_>) -> u64 {
        let mut wake_ns = u64::MAX;
        if let Some(reassembler) = &mut self.reassembler {
            match packets.ending {
                true => reassembler.expire_all(),
                false => reassembler.expire(packets.now_ns),
            }
            let expired = |(held, refusal)| Step::Expire { held, reason: reason(refusal) };
            packets.steps.extend(reassembler.take_expired().map(expired));
            wake_ns = reassembler.wake_ns();
        }
        if packets.live && !packets.ending {
            let Arrangement { region, steps, now_ns, .. } = packets;
            let work = Work::Done(Outcome::verdict(VERDICT_ENCRYPTED));
            self.keepalives.send(&host.database, region, *now_ns, |packet| steps.push(Step::Create { packet, work }));
            wake_ns = wake_ns.min(self.keepalives.wake_ns());
        }
        wake_ns
    }
}

fn record_sent(
    keepalives: &mut Keepalives,
    host: &IpsecHost,
    region: &Region,
    packet: &Descriptor,
    work: Work,
    now_ns: u64,
) {
    let Work::Run { variant, parameter } = work else { return };
    let (sa, _) = sa_and_sequence(parameter);
    let seconds = host.database.lengths.keepalive_s(sa);
    if variant & 1 == 0 && seconds > 0 {
        keepalives.sent(sa, seconds, packet, region.frame(packet), now_ns);
    }
}

fn reason(refusal: Refusal) -> u8 {
    match refusal {
        Refusal::Malformed => DROP_MALFORMED,
        Refusal::Overlap => DROP_FRAGMENT_OVERLAP,
        Refusal::Limit => DROP_FRAGMENT_LIMIT,
        Refusal::Timeout => DROP_FRAGMENT_TIMEOUT,
    }
}

fn ip_bytes(packet: &[u8]) -> usize {
    let at = if packet[0] >> 4 == 4 { 2 } else { 4 };
    let stated = usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    if packet[0] >> 4 == 4 { stated } else { 40 + stated }
}

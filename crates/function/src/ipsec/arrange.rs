//! Packets that are too long for their SA, fragments of those that are for us, and keepalives (`docs/decisions/0006-fragments.md`).

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

/// Messages to senders, of one worker in one second (RFC 1812, section 4.3.2.8).
const MESSAGES_A_SECOND: u32 = 100;
const SECOND_NS: u64 = 1_000_000_000;
/// No IPv6 packet of this size is too big (RFC 8200, section 5).
const IPV6_MTU_MIN: usize = 1280;
const DONT_FRAGMENT: u8 = 0x40;

/// A packet that may be too long, and what it came of.
#[derive(Clone, Copy)]
struct Origin {
    packet: Descriptor,
    /// The last fragment of it, as it arrived, and how many were held before; the packet lies in a buffer of its own.
    joined: Option<(Descriptor, u32)>,
}

impl Origin {
    /// It goes on, perhaps as another.
    fn keep(self, packet: Descriptor, work: Work) -> Step {
        match self.joined {
            Some((last, held)) => Step::Join { packet: last, whole: packet, held, work },
            None => Step::Keep { packet, work },
        }
    }

    /// It is dropped: a packet that was joined takes the fragments' place first.
    fn drop(self, reason: u8) -> Step {
        match self.joined {
            Some(_) => self.keep(self.packet, Work::Done(Outcome::drop(reason))),
            None => Step::Drop { packet: self.packet, reason },
        }
    }
}

/// What one worker keeps for it.
#[derive(Default)]
pub(super) struct Arranger {
    reassembler: Option<Reassembler>,
    keepalives: Keepalives,
    /// Which second it is, and the messages sent in it.
    messages: (u64, u32),
    work: WorkColumns,
    /// A copy of the packet at hand.
    packet: Vec<u8>,
}

impl Arranger {
    /// See [`crate::HostHalf::arrange`].
    pub(super) fn arrange(&mut self, host: &mut IpsecHost, packets: &mut Arrangement<'_>) -> u64 {
        let arrived = packets.arrived;
        let mut first = 0;
        for (at, packet) in arrived.iter().enumerate() {
            if host.database.lengths.is_special(packets.region.frame(packet)) {
                self.ordinary(host, packets, &arrived[first..at]);
                self.special(host, packets, packet);
                first = at + 1;
            }
        }
        self.ordinary(host, packets, &arrived[first..]);
        self.look_at_the_time(host, packets)
    }

    /// Packets that are prepared as they are.
    fn ordinary(&mut self, host: &mut IpsecHost, packets: &mut Arrangement<'_>, run: &[Descriptor]) {
        self.work.clear();
        host.prepare_all(packets.region, run, &mut self.work);
        for (&packet, work) in run.iter().zip(self.work.iter()) {
            packets.steps.push(Step::Keep { packet, work });
        }
        if packets.live && host.database.lengths.has_keepalives() {
            for (packet, work) in run.iter().zip(self.work.iter()) {
                note(&mut self.keepalives, host, packets.region, packet, work, packets.now_ns);
            }
        }
    }

    fn special(&mut self, host: &mut IpsecHost, packets: &mut Arrangement<'_>, packet: &Descriptor) {
        let frame = packets.region.frame(packet);
        let Some(at) = ip_at(frame) else { return self.ordinary(host, packets, &[*packet]) };
        if host.database.lengths.bucket_of_fragment(frame).is_some() {
            return self.join(host, packets, packet, at);
        }
        if !self.fit(host, packets, Origin { packet: *packet, joined: None }, at) {
            self.ordinary(host, packets, &[*packet]);
        }
    }

    /// False: the packet is not too long for its SA, or has none. Else it is settled.
    fn fit(&mut self, host: &mut IpsecHost, packets: &mut Arrangement<'_>, origin: Origin, at: usize) -> bool {
        let frame = packets.region.frame(&origin.packet);
        let policies = host.database.policies.load();
        let decision = host.database.decide(&policies, frame);
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
            self.tell_sender(host, packets, origin, at, mtu, sa);
        }
        true
    }

    /// A packet becomes several, each with a number of its own: the first where it is, the others in buffers of their own.
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
            note(&mut self.keepalives, host, region, &first, work, packets.now_ns);
        }
        packets.steps.push(origin.keep(first, work));
        for part in parts {
            packets.steps.push(Step::Split { packet: part, work: host.work(decision, part.length) });
        }
    }

    /// A packet that must not be taken apart becomes the message to its sender, or is dropped.
    fn tell_sender(
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
        let message = message.filter(|message| message.len() <= self.packet.len() && self.may_tell(packets.now_ns));
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

    fn may_tell(&mut self, now_ns: u64) -> bool {
        let second = now_ns / SECOND_NS;
        if self.messages.0 != second {
            self.messages = (second, 0);
        }
        self.messages.1 += 1;
        self.messages.1 <= MESSAGES_A_SECOND
    }

    /// A fragment is held, or completes a packet.
    fn join(&mut self, host: &mut IpsecHost, packets: &mut Arrangement<'_>, packet: &Descriptor, at: usize) {
        let region = &mut *packets.region;
        let frame_bytes = region.frame_bytes_max();
        let limits = host.database.lengths.reassembly.map(|limits| Limits { frame_bytes, ..limits });
        let Some(limits) = limits else { return self.ordinary(host, packets, &[*packet]) };
        let reassembler = self.reassembler.get_or_insert_with(|| Reassembler::new(limits));
        let said = reassembler.add(region.frame(packet), at, packets.now_ns);
        let expired = |(held, refusal)| Step::Expire { held, reason: reason(refusal) };
        packets.steps.extend(reassembler.take_expired().map(expired));
        match said {
            Ok(Added::Held) => packets.steps.push(Step::Hold { packet: *packet }),
            Err(refusal) => packets.steps.push(Step::Drop { packet: *packet, reason: reason(refusal) }),
            Ok(Added::Whole { held }) => {
                let Some(whole) = region.allocate(reassembler.whole().len()) else {
                    packets.steps.push(Step::Drop { packet: *packet, reason: DROP_NO_ROOM });
                    return packets.steps.push(Step::Expire { held, reason: DROP_NO_ROOM });
                };
                region.frame_mut(&whole).copy_from_slice(reassembler.whole());
                // What was joined may be no packet for us, and go into another tunnel.
                if self.fit(host, packets, Origin { packet: whole, joined: Some((*packet, held)) }, at) {
                    return;
                }
                let region = &mut *packets.region;
                self.work.clear();
                host.prepare_all(region, &[whole], &mut self.work);
                packets.steps.push(Step::Join { packet: *packet, whole, held, work: self.work.at(0) });
            }
        }
    }

    /// Gives up old fragments, sends keepalives, and says when to come again.
    fn look_at_the_time(&mut self, host: &IpsecHost, packets: &mut Arrangement<'_>) -> u64 {
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

/// Remembers that an SA has sent something.
fn note(keepalives: &mut Keepalives, host: &IpsecHost, region: &Region, packet: &Descriptor, work: Work, now_ns: u64) {
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

/// Bytes of an IP packet whose lengths were checked.
fn ip_bytes(packet: &[u8]) -> usize {
    let at = if packet[0] >> 4 == 4 { 2 } else { 4 };
    let stated = usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    if packet[0] >> 4 == 4 { stated } else { 40 + stated }
}

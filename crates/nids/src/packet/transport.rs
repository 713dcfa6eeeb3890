//! Decodes TCP, UDP, ICMP and SCTP headers, and tunnels in UDP.

use super::decode::{Decoder, Step};
use super::{Icmp, Origin, Packet, Tcp, Transport};
use std::net::IpAddr;

/// Decodes a TCP header. If it is malformed, the packet gets no transport header.
pub(super) fn tcp(packet: &mut Packet<'_>, at: usize, end: usize) {
    let bytes = &packet.data[at..end];
    if bytes.len() < 20 {
        return;
    }
    let header_bytes = usize::from(bytes[12] >> 4) * 4;
    if header_bytes < 20 || header_bytes > bytes.len() {
        return;
    }
    let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let mut tcp =
        Tcp { seq: word(4), ack: word(8), flags: bytes[13], window: half(14), urgent: half(18), ..Tcp::default() };
    options(&bytes[20..header_bytes], &mut tcp);
    packet.source_port = half(0);
    packet.destination_port = half(2);
    packet.transport = Transport::Tcp(tcp);
    packet.transport_at = at..at + header_bytes;
    packet.payload = at + header_bytes..end;
}

fn options(mut options: &[u8], tcp: &mut Tcp) {
    while let [kind, rest @ ..] = options {
        match kind {
            0 => return,
            1 => {
                options = rest;
                continue;
            }
            _ => {}
        }
        let length = usize::from(*rest.first().unwrap_or(&0));
        if length < 2 || length > options.len() {
            return;
        }
        let value = &options[2..length];
        match (kind, value) {
            (2, [a, b]) => tcp.mss = Some(u16::from_be_bytes([*a, *b])),
            (3, [shift]) => tcp.scale = Some((*shift).min(14)),
            (4, []) => tcp.sack_permitted = true,
            (8, [a, b, c, d, e, f, g, h]) => {
                tcp.timestamp = Some((u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])));
            }
            (34, _) => tcp.fast_open = true,
            (254, [0xf9, 0x89, ..]) => tcp.fast_open = true,
            _ => {}
        }
        options = &options[length..];
    }
}

/// Decodes a UDP header.
pub(super) fn udp(packet: &mut Packet<'_>, at: usize, end: usize) {
    let bytes = &packet.data[at..end];
    if bytes.len() < 8 {
        return;
    }
    let length = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
    packet.source_port = u16::from_be_bytes([bytes[0], bytes[1]]);
    packet.destination_port = u16::from_be_bytes([bytes[2], bytes[3]]);
    packet.transport = Transport::Udp;
    packet.transport_at = at..at + 8;
    let stop = if length >= 8 { (at + length).min(end) } else { end };
    packet.payload = at + 8..stop;
}

/// Decodes an ICMP header.
pub(super) fn icmp(packet: &mut Packet<'_>, at: usize, end: usize) {
    let bytes = &packet.data[at..end];
    if bytes.len() < 4 {
        return;
    }
    let (kind, code) = (bytes[0], bytes[1]);
    let is_echo = if packet.version == 4 {
        matches!(kind, 0 | 8 | 13 | 14 | 15 | 16 | 17 | 18)
    } else {
        matches!(kind, 128 | 129)
    };
    let echo = (is_echo && bytes.len() >= 8)
        .then(|| (u16::from_be_bytes([bytes[4], bytes[5]]), u16::from_be_bytes([bytes[6], bytes[7]])));
    packet.transport = Transport::Icmp(Icmp { kind, code, echo });
    let header = bytes.len().min(8);
    packet.transport_at = at..at + header;
    packet.payload = at + header..end;
}

/// Decodes an SCTP header. The payload begins with the first SCTP chunk.
pub(super) fn sctp(packet: &mut Packet<'_>, at: usize, end: usize) {
    let bytes = &packet.data[at..end];
    if bytes.len() < 12 {
        return;
    }
    packet.source_port = u16::from_be_bytes([bytes[0], bytes[1]]);
    packet.destination_port = u16::from_be_bytes([bytes[2], bytes[3]]);
    packet.transport = Transport::Sctp(u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]));
    packet.transport_at = at..at + 12;
    packet.payload = at + 12..end;
}

/// Returns whether the transport checksum is correct.
pub(super) fn checksum_ok(packet: &Packet<'_>, at: usize, end: usize) -> bool {
    let bytes = &packet.data[at..end];
    let pseudo = match packet.transport {
        Transport::Tcp(_) => true,
        // A UDP checksum of zero means that the sender did not compute one (RFC 768).
        Transport::Udp if packet.version == 4 && bytes[6..8] == [0, 0] => return true,
        Transport::Udp => true,
        Transport::Icmp(_) => packet.version == 6,
        _ => return true,
    };
    let mut sum = 0u32;
    let mut add = |bytes: &[u8]| {
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        }
    };
    if pseudo {
        for address in [packet.source, packet.destination] {
            match address {
                IpAddr::V4(v4) => add(&v4.octets()),
                IpAddr::V6(v6) => add(&v6.octets()),
            }
        }
        add(&[0, packet.protocol]);
        add(&(bytes.len() as u32).to_be_bytes());
    }
    add(bytes);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

impl Decoder {
    /// Decodes the tunnelled packets in VXLAN, Geneve and Teredo.
    pub(super) fn udp_tunnels(&mut self, step: &mut Step<'_, '_>) {
        let port = step.packet.destination_port;
        let start = step.packet.payload.start;
        let payload = step.packet.payload();
        if self.ports.vxlan.contains(&port) && payload.len() > 8 && payload[0] & 0x08 != 0 {
            self.inner(step, start + 8, Origin::Vxlan, "UDP", Some(0x6558));
        } else if self.ports.geneve.contains(&port) && payload.len() > 8 && payload[0] >> 6 == 0 {
            let ethertype = u16::from_be_bytes([payload[2], payload[3]]);
            let header = 8 + usize::from(payload[0] & 0x3f) * 4;
            if header < payload.len() && matches!(ethertype, 0x6558 | 0x0800 | 0x86dd) {
                self.inner(step, start + header, Origin::Geneve, "UDP", Some(ethertype));
            }
        } else if (self.ports.teredo.contains(&port) || self.ports.teredo.contains(&step.packet.source_port))
            && let Some(skip) = teredo_header(payload)
        {
            self.inner(step, start + skip, Origin::Teredo, "UDP", None);
        }
    }
}

/// Returns the length of the Teredo headers before an IPv6 packet (RFC 4380, section 5.1.1).
fn teredo_header(payload: &[u8]) -> Option<usize> {
    let mut at = 0;
    if payload.get(..2)? == [0, 1] {
        let lengths = usize::from(*payload.get(2)?) + usize::from(*payload.get(3)?);
        at += 4 + lengths + 9;
    }
    if payload.get(at..at + 2)? == [0, 0] {
        at += 8;
    }
    let header = payload.get(at..at + 40)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    (header[0] >> 4 == 6 && at + 40 + length == payload.len()).then_some(at)
}

//! Decodes IPv4 and IPv6 headers, and tunnels directly above IP.

use super::decode::{Decoder, Step};
use super::fragments::Fragment;
use super::{Origin, Packet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of IPv6 extension headers.
const EXTENSIONS_MAX: usize = 16;

impl Decoder {
    /// Decodes the IP header at offset `step.at`. Its version field selects IPv4 or IPv6.
    pub(super) fn ip(&mut self, step: Step<'_, '_>) {
        match step.packet.data.get(step.at).map(|byte| byte >> 4) {
            Some(4) => self.ipv4(step),
            Some(6) => self.ipv6(step),
            _ => (step.sink)(&step.packet),
        }
    }

    fn ipv4(&mut self, mut step: Step<'_, '_>) {
        let data = step.packet.data;
        let start = step.at;
        let header = &data[start..];
        if header.len() < 20 {
            return (step.sink)(&step.packet);
        }
        let header_bytes = usize::from(header[0] & 0x0f) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header_bytes < 20 || total < header_bytes || header.len() < header_bytes {
            return (step.sink)(&step.packet);
        }
        // Capture files may contain only the first bytes of a packet. They are decoded as usual.
        let end = start + total.min(header.len());
        let packet = &mut step.packet;
        packet.version = 4;
        packet.network = start..start + header_bytes;
        packet.ttl = header[8];
        packet.protocol = header[9];
        let address = |at: usize| IpAddr::V4(Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]));
        packet.source = address(12);
        packet.destination = address(16);
        let flags = u16::from_be_bytes([header[6], header[7]]);
        step.at = start + header_bytes;
        if flags & 0x3fff != 0 {
            let fragment = Fragment {
                id: u32::from(u16::from_be_bytes([header[4], header[5]])),
                offset: usize::from(flags & 0x1fff) * 8,
                more: flags & 0x2000 != 0,
                next: packet.protocol,
                bytes: &data[step.at..end],
            };
            return self.fragment(step, &fragment);
        }
        self.transport(step, end);
    }

    fn ipv6(&mut self, mut step: Step<'_, '_>) {
        let data = step.packet.data;
        let start = step.at;
        let header = &data[start..];
        if header.len() < 40 {
            return (step.sink)(&step.packet);
        }
        let packet = &mut step.packet;
        packet.version = 6;
        packet.network = start..start + 40;
        packet.ttl = header[7];
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&header[at..at + 16]);
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        packet.source = address(8);
        packet.destination = address(24);
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let end = start + (40 + length).min(header.len());
        let mut next = header[6];
        step.at = start + 40;
        for _ in 0..EXTENSIONS_MAX {
            let rest = &data[step.at..end];
            let bytes = match next {
                0 | 43 | 60 | 135 | 139 | 140 if rest.len() >= 8 => 8 + usize::from(rest[1]) * 8,
                51 if rest.len() >= 8 => 8 + usize::from(rest[1]) * 4,
                44 if rest.len() >= 8 => {
                    let word = u16::from_be_bytes([rest[2], rest[3]]);
                    let (offset, more) = (usize::from(word & 0xfff8), word & 1 == 1);
                    let first = rest[0];
                    step.packet.network.end = step.at + 8;
                    if offset == 0 && !more {
                        next = first;
                        step.at += 8;
                        continue;
                    }
                    let id = u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]);
                    let fragment = Fragment { id, offset, more, next: first, bytes: &rest[8..] };
                    step.packet.protocol = first;
                    return self.fragment(step, &fragment);
                }
                _ => break,
            };
            if bytes > rest.len() {
                break;
            }
            next = rest[0];
            step.at += bytes;
            step.packet.network.end = step.at;
        }
        step.packet.protocol = next;
        self.transport(step, end);
    }

    /// Stores a fragment. If the datagram is now complete, it is reported before the fragment.
    fn fragment(&mut self, mut step: Step<'_, '_>, fragment: &Fragment<'_>) {
        step.packet.fragment = true;
        let packet = &step.packet;
        let (complete, overlap) = self.fragments.insert(packet, fragment);
        if overlap {
            step.packet.events.push(if step.packet.version == 4 { "ipv4.frag_overlap" } else { "ipv6.frag_overlap" });
        }
        if let Some((next, bytes)) = complete {
            let datagram = rebuild(&step.packet, next, &bytes);
            let mut whole = Packet::empty(&datagram, step.packet.number, step.packet.time);
            whole.origin = Origin::Fragments;
            whole.outer = step.packet.outer;
            whole.vlans = step.packet.vlans;
            whole.vlan_count = step.packet.vlan_count;
            whole.ethertype = step.packet.ethertype;
            self.ip(Step { packet: whole, at: 0, depth: step.depth + 1, sink: step.sink });
        }
        step.packet.payload = step.at..step.at;
        (step.sink)(&step.packet);
    }

    /// Decodes the header after the IP header. The datagram ends at offset `end`.
    fn transport(&mut self, mut step: Step<'_, '_>, end: usize) {
        let at = step.at;
        step.packet.transport_at = at..at;
        step.packet.payload = at..end;
        match step.packet.protocol {
            6 => super::transport::tcp(&mut step.packet, at, end),
            17 => {
                super::transport::udp(&mut step.packet, at, end);
                self.udp_tunnels(&mut step);
            }
            1 | 58 => super::transport::icmp(&mut step.packet, at, end),
            132 => super::transport::sctp(&mut step.packet, at, end),
            4 => {
                let origin = if step.packet.version == 4 { Origin::Ipv4Tunnel } else { Origin::Ipv6Tunnel };
                self.inner(&mut step, at, origin, "IP-in-IP", None);
            }
            41 => {
                let origin = if step.packet.version == 4 { Origin::Ipv4Tunnel } else { Origin::Ipv6Tunnel };
                self.inner(&mut step, at, origin, "IPv6", None);
            }
            47 => self.gre(&mut step, at, end),
            _ => {}
        }
        if self.check && !step.packet.fragment {
            step.packet.checksum_ok = super::transport::checksum_ok(&step.packet, at, end);
        }
        (step.sink)(&step.packet);
    }

    fn gre(&mut self, step: &mut Step<'_, '_>, at: usize, end: usize) {
        let rest = &step.packet.data[at..end];
        if rest.len() < 4 {
            return;
        }
        let flags = u16::from_be_bytes([rest[0], rest[1]]);
        let ethertype = u16::from_be_bytes([rest[2], rest[3]]);
        let mut bytes = 4;
        // Each of these GRE flags adds an optional field of four bytes. Checksum and routing share
        // one field. The other fields are the key, the sequence number and, in version 1, the
        // acknowledgment number.
        bytes += if flags & 0xc000 != 0 { 4 } else { 0 };
        bytes += if flags & 0x2000 != 0 { 4 } else { 0 };
        bytes += if flags & 0x1000 != 0 { 4 } else { 0 };
        bytes += if flags & 0x0080 != 0 { 4 } else { 0 };
        if bytes >= rest.len() {
            return;
        }
        step.packet.payload = at + bytes..end;
        match ethertype {
            0x0800 | 0x86dd => self.inner(step, at + bytes, Origin::Gre, "GRE", None),
            0x6558 | 0x8100 => self.inner(step, at + bytes, Origin::Gre, "GRE", Some(ethertype)),
            0x880b => self.inner(step, at + bytes + 2, Origin::Gre, "GRE", None),
            0x88be if flags & 0x1000 != 0 => self.inner(step, at + bytes + 8, Origin::Erspan, "GRE", Some(0x6558)),
            0x88be => self.inner(step, at + bytes, Origin::Erspan, "GRE", Some(0x6558)),
            0x22eb => self.inner(step, at + bytes + 12, Origin::Erspan, "GRE", Some(0x6558)),
            _ => {}
        }
    }
}

/// Returns the reassembled datagram, whose IP header has the new length and no fragment fields.
fn rebuild(packet: &Packet<'_>, next: u8, bytes: &[u8]) -> Vec<u8> {
    let header = packet.network_header();
    let mut datagram = Vec::with_capacity(header.len() + bytes.len());
    if packet.version == 4 {
        datagram.extend_from_slice(header);
        let total = u16::try_from(header.len() + bytes.len()).unwrap_or(u16::MAX);
        datagram[2..4].copy_from_slice(&total.to_be_bytes());
        datagram[6..8].fill(0);
        datagram[10..12].fill(0);
        let sum = godwit_wire::checksum::checksum(&datagram);
        datagram[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        datagram.extend_from_slice(&header[..40]);
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        datagram[4..6].copy_from_slice(&length.to_be_bytes());
        datagram[6] = next;
    }
    datagram.extend_from_slice(bytes);
    datagram
}

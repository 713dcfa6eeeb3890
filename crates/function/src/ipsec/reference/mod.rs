//! Reference implementation of the `ipsec` kernel. It is written directly from the standards, with
//! the ciphers and hashes of RustCrypto.
//!
//! It shares no code with the kernel, and only the selectors with the host half. It is simple and
//! slow, because it takes each packet apart and builds a new one.

mod ah;
mod association;
mod crypto;
mod esp;
mod ip;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use godwit_abi::{Descriptor, Outcome};

use super::config::Direction;
use super::sa::Sa;
use super::suite::Protocol;
use super::{
    DROP_DUMMY, DROP_FRAGMENT, DROP_MALFORMED, DROP_NO_ROOM, DROP_NO_SA, DROP_POLICY_MISMATCH, DROP_TRUNCATED,
    VERDICT_DECRYPTED, VERDICT_ENCRYPTED, VERDICT_NOT_IP, sa_and_sequence,
};
use association::{Association, DontFragment};
use ip::{HeaderPosition, Headers};

const UDP_BYTES: usize = 8;
const ETHERNET_BYTES: usize = 14;
const ETHER_TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHER_TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const ETHER_TYPE_VLAN: [u8; 2] = [0x81, 0x00];

/// Packet after encapsulation or decapsulation.
struct Done {
    l2: Vec<u8>,
    packet: Vec<u8>,
    /// Number of bytes added before the payload. A negative number means that bytes are removed.
    added_in_front: isize,
}

/// Processes one packet like the kernel.
pub(super) fn run_ref(
    buffer: &mut [u8],
    descriptor: &mut Descriptor,
    sa: Option<&Sa>,
    variant: u8,
    parameter: u64,
) -> Outcome {
    let frame = &buffer[usize::from(descriptor.head)..][..usize::from(descriptor.length)];
    let (l2, packet, ipv6) = match layer_3(frame) {
        Ok(Some(found)) => found,
        Ok(None) => return Outcome::verdict(VERDICT_NOT_IP),
        Err(reason) => return Outcome::drop(reason),
    };
    let (_, sequence) = sa_and_sequence(parameter);
    let Some(sa) = sa.filter(|sa| association::variant_of(sa) == variant) else {
        return Outcome::drop(DROP_NO_SA);
    };
    let association = Association::new(sa);
    let (done, verdict) = match sa.direction {
        Direction::Out => (encapsulate(&association, sequence, l2, packet, ipv6), VERDICT_ENCRYPTED),
        Direction::In => (decapsulate(&association, sequence, l2, packet, ipv6), VERDICT_DECRYPTED),
    };
    match done.and_then(|done| emit(buffer, descriptor, done)) {
        Ok(()) => Outcome { value: sa.spi, ..Outcome::verdict(verdict) },
        Err(reason) => Outcome::drop(reason),
    }
}

/// Parts of a frame: the Ethernet header with at most one VLAN tag, the IP packet, and whether the
/// packet is IPv6.
type Layers<'a> = (&'a [u8], &'a [u8], bool);

/// Splits a frame into the Ethernet header and the IP packet. Returns `None` if the frame contains
/// no IP packet.
fn layer_3(frame: &[u8]) -> Result<Option<Layers<'_>>, u8> {
    let tagged = frame.get(12..14).ok_or(DROP_TRUNCATED)? == ETHER_TYPE_VLAN;
    let l2_bytes = ETHERNET_BYTES + if tagged { 4 } else { 0 };
    let (l2, packet) = frame.split_at_checked(l2_bytes).ok_or(DROP_TRUNCATED)?;
    Ok(match *l2.last_chunk().expect("14 bytes or more") {
        ETHER_TYPE_IPV4 => Some((l2, packet, false)),
        ETHER_TYPE_IPV6 => Some((l2, packet, true)),
        _ => None,
    })
}

/// Encapsulates an outbound packet (RFC 4301, section 5.1).
fn encapsulate(sa: &Association<'_>, sequence: u64, l2: &[u8], packet: &[u8], ipv6: bool) -> Result<Done, u8> {
    let packet = ip::packet(packet, ipv6)?;
    let mut l2 = l2.to_vec();
    let (mut front, position, rest) = if sa.tunnel {
        set_family(&mut l2, sa.destination.is_ipv6());
        let protocol = if ipv6 { ip::IPV6 } else { ip::IPV4 };
        let outer = outer_header(sa, sequence, packet);
        let protocol_at = if sa.destination.is_ipv6() { 6 } else { 9 };
        let position = HeaderPosition { at: outer.len(), protocol_at, protocol };
        (outer, position, packet)
    } else {
        if ipv6 != sa.destination.is_ipv6() {
            return Err(DROP_POLICY_MISMATCH);
        }
        let headers = ip::headers(packet)?;
        // In transport mode, ESP protects whole packets only, not fragments (RFC 4303, section
        // 3.3.4).
        if headers.is_fragment {
            return Err(DROP_FRAGMENT);
        }
        let (front, rest) = packet.split_at(headers.transport.at);
        (front.to_vec(), headers.transport, rest)
    };

    let front_bytes = front.len();
    let (packet, added) = match sa.suite.protocol {
        Protocol::Esp => {
            let udp_bytes = if sa.udp_ports.is_some() { UDP_BYTES } else { 0 };
            let esp = esp::encapsulate(sa, sequence, rest, position.protocol);
            front.resize(front_bytes + udp_bytes, 0);
            front.extend(esp);
            let protocol = if sa.udp_ports.is_some() { ip::UDP } else { ip::ESP };
            ip::rewrite(&mut front, position, protocol);
            if let Some(ports) = sa.udp_ports {
                emit_udp(&mut front, front_bytes, ports);
            }
            (front, udp_bytes + esp::HEADER_BYTES + esp::iv_bytes(sa))
        }
        Protocol::Ah => {
            let ah_bytes = ah::header_bytes(sa, ip::is_ipv6(&front));
            // AH authenticates the length fields, so they must have their final values before the
            // ICV is computed.
            front.resize(front_bytes + ah_bytes + rest.len(), 0);
            ip::rewrite(&mut front, position, ip::AH);
            front.truncate(front_bytes);
            (ah::add_header(sa, sequence, &front, rest, position.protocol)?, ah_bytes)
        }
    };
    let added_in_front = if sa.tunnel { front_bytes + added } else { added };
    Ok(Done { l2, packet, added_in_front: added_in_front as isize })
}

/// Returns the outer IP header of a tunnel (RFC 4301, section 5.1.2), without its length and
/// checksum.
fn outer_header(sa: &Association<'_>, sequence: u64, inner: &[u8]) -> Vec<u8> {
    let class = ip::traffic_class(inner);
    // RFC 6040, section 4.1, defines the ECN field of the outer header.
    let ecn = if sa.ecn_ignored { 0 } else { class & 3 };
    let class = sa.dscp.map_or(class & !3, |dscp| dscp << 2) | ecn;
    match (sa.source, sa.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let dont_fragment = match sa.dont_fragment {
                DontFragment::Set => true,
                DontFragment::Clear => false,
                // An IPv6 packet is treated like an IPv4 packet with the DF bit, because routers do
                // not fragment it.
                DontFragment::Copy => ip::is_ipv6(inner) || inner[6] & 0x40 != 0,
            };
            let [.., id_high, id_low] = sequence.to_be_bytes();
            let mut header = vec![0x45, class, 0, 0, id_high, id_low, u8::from(dont_fragment) << 6, 0];
            header.extend([sa.hop_limit, 0, 0, 0]);
            header.extend(source.octets());
            header.extend(destination.octets());
            let checksum = godwit_wire::checksum::checksum(&header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = vec![0x60 | class >> 4, class << 4, 0, 0, 0, 0, 0, sa.hop_limit];
            header.extend(source.octets());
            header.extend(destination.octets());
            header
        }
        _ => unreachable!("the ends of an SA are of one family"),
    }
}

/// Writes the UDP header before ESP (RFC 3948, section 2.1). The UDP checksum is 0 over IPv4, and
/// required over IPv6 (RFC 8200, section 8.1).
fn emit_udp(packet: &mut [u8], at: usize, (source_port, destination_port): (u16, u16)) {
    let length = (packet.len() - at) as u16;
    packet[at..at + 2].copy_from_slice(&source_port.to_be_bytes());
    packet[at + 2..at + 4].copy_from_slice(&destination_port.to_be_bytes());
    packet[at + 4..at + 6].copy_from_slice(&length.to_be_bytes());
    if ip::is_ipv6(packet) {
        let mut summed = packet[8..40].to_vec();
        summed.extend(u32::from(length).to_be_bytes());
        summed.extend([0, 0, 0, ip::UDP]);
        summed.extend(&packet[at..]);
        let checksum = match godwit_wire::checksum::checksum(&summed) {
            0 => 0xffff,
            checksum => checksum,
        };
        packet[at + 6..at + 8].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Decapsulates an inbound packet (RFC 4301, section 5.2).
fn decapsulate(sa: &Association<'_>, sequence: u64, l2: &[u8], packet: &[u8], ipv6: bool) -> Result<Done, u8> {
    let packet = ip::packet(packet, ipv6)?;
    let headers = ip::headers(packet)?;
    let position = check_arrival(sa, packet, headers)?;
    let udp_bytes = if sa.udp_ports.is_some() { UDP_BYTES } else { 0 };
    let (payload, next_header, added) = match sa.suite.protocol {
        Protocol::Esp => {
            if let Some((_, port)) = sa.udp_ports {
                check_udp(&packet[position.at..], port)?;
            }
            let (payload, next_header) = esp::decapsulate(sa, sequence, &packet[position.at + udp_bytes..])?;
            // Dummy packets hide the traffic pattern (RFC 4303, section 2.6).
            if next_header == ip::NONE {
                return Err(DROP_DUMMY);
            }
            (payload, next_header, udp_bytes + esp::HEADER_BYTES + esp::iv_bytes(sa))
        }
        Protocol::Ah => {
            let (end, next_header) = ah::check_header(sa, sequence, packet, position.at)?;
            (packet[end..].to_vec(), next_header, end - position.at)
        }
    };

    let mut l2 = l2.to_vec();
    let (inner, removed) = if sa.tunnel {
        let ipv6 = match next_header {
            ip::IPV4 => false,
            ip::IPV6 => true,
            _ => return Err(DROP_POLICY_MISMATCH),
        };
        set_family(&mut l2, ipv6);
        // The payload must contain a whole IP packet. Bytes after the IP packet are padding, which
        // hides the packet's length (RFC 4303, section 2.7).
        let inner = ip::packet(&payload, ipv6).map_err(|_| DROP_MALFORMED)?;
        let headers = ip::headers(inner)?;
        sa.accepts(inner, headers, inner)?;
        let mut inner = inner.to_vec();
        ip::combine_ecn(&mut inner, ip::traffic_class(packet))?;
        (inner, position.at + added)
    } else {
        // The payload begins with further extension headers or with the transport header.
        let first = HeaderPosition { at: 0, protocol_at: 0, protocol: next_header };
        let headers = match ipv6 {
            true => ip::extension_headers(&payload, first)?,
            false => Headers { end: first, ..headers },
        };
        sa.accepts(packet, headers, &payload)?;
        let mut whole = [&packet[..position.at], &payload].concat();
        ip::rewrite(&mut whole, position, next_header);
        if sa.udp_ports.is_some() && !headers.is_fragment {
            ip::recompute_checksum(&mut whole, position.at + headers.end.at, headers.end.protocol);
        }
        (whole, added)
    };
    Ok(Done { l2, packet: inner, added_in_front: -(removed as isize) })
}

/// Checks the IP headers of a packet to the local endpoint of the SA. Returns the offset of AH,
/// ESP, or the UDP header before ESP.
fn check_arrival(sa: &Association<'_>, packet: &[u8], headers: Headers) -> Result<HeaderPosition, u8> {
    let expected = match (sa.suite.protocol, sa.udp_ports) {
        (Protocol::Ah, _) => ip::AH,
        (Protocol::Esp, None) => ip::ESP,
        (Protocol::Esp, Some(_)) => ip::UDP,
    };
    let is_other = headers.end.protocol != expected;
    // The checksum over a correct header is zero (RFC 1071, section 1).
    let is_wrong = godwit_wire::checksum::checksum(&packet[..ip::header_bytes(packet)]) != 0;
    if !ip::is_ipv6(packet) && (is_other || is_wrong) {
        return Err(DROP_MALFORMED);
    }
    // Reassembly precedes IPsec processing (RFC 4303, section 3.4.1), so fragments are dropped
    // here.
    if headers.is_fragment {
        return Err(DROP_FRAGMENT);
    }
    // A packet whose routing header has segments left has not reached its final destination.
    if is_other || headers.has_segments_left {
        return Err(DROP_MALFORMED);
    }
    if ip::destination(packet) != sa.destination {
        return Err(DROP_NO_SA);
    }
    Ok(headers.end)
}

/// Checks the UDP header before ESP (RFC 3948, section 2.1). The UDP checksum is ignored.
fn check_udp(datagram: &[u8], port: u16) -> Result<(), u8> {
    let header = datagram.get(..UDP_BYTES).ok_or(DROP_MALFORMED)?;
    if ip::be16(header, 4) != datagram.len() {
        return Err(DROP_MALFORMED);
    }
    if ip::be16(header, 2) == usize::from(port) { Ok(()) } else { Err(DROP_NO_SA) }
}

fn set_family(l2: &mut [u8], ipv6: bool) {
    let ether_type = l2.last_chunk_mut().expect("14 bytes or more");
    *ether_type = if ipv6 { ETHER_TYPE_IPV6 } else { ETHER_TYPE_IPV4 };
}

/// Writes the packet to the buffer. Like the kernel, it does not move the payload.
fn emit(buffer: &mut [u8], descriptor: &mut Descriptor, done: Done) -> Result<(), u8> {
    let frame = [done.l2, done.packet].concat();
    let head = descriptor.head as isize - done.added_in_front;
    let head = usize::try_from(head).map_err(|_| DROP_NO_ROOM)?;
    buffer.get_mut(head..head + frame.len()).ok_or(DROP_NO_ROOM)?.copy_from_slice(&frame);
    // The conversions lose no bits, because the buffer is smaller than 2^16 bytes.
    (descriptor.head, descriptor.length) = (head as u16, frame.len() as u16);
    Ok(())
}

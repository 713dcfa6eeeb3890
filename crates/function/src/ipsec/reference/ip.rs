//! Parses and changes IPv4 and IPv6 headers (RFC 791, RFC 8200) for IPsec.

use std::net::IpAddr;

use super::super::{DROP_CONGESTION, DROP_MALFORMED, DROP_NO_ROOM, DROP_TRUNCATED};

pub(super) const IPV4_BYTES: usize = 20;
pub(super) const IPV6_BYTES: usize = 40;

const HOP_BY_HOP: u8 = 0;
pub(super) const IPV4: u8 = 4;
pub(super) const UDP: u8 = 17;
pub(super) const IPV6: u8 = 41;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
pub(super) const ESP: u8 = 50;
pub(super) const AH: u8 = 51;
pub(super) const NONE: u8 = 59;
const DESTINATION_OPTIONS: u8 = 60;

pub(super) fn is_ipv6(packet: &[u8]) -> bool {
    packet[0] >> 4 == 6
}

/// Returns the IP packet at the start of `bytes`, without trailing bytes. Returns the drop reason
/// if the version contradicts `ipv6` or a length is wrong.
pub(super) fn packet(bytes: &[u8], ipv6: bool) -> Result<&[u8], u8> {
    let fixed_bytes = if ipv6 { IPV6_BYTES } else { IPV4_BYTES };
    let header = bytes.get(..fixed_bytes).ok_or(DROP_TRUNCATED)?;
    if header[0] >> 4 != if ipv6 { 6 } else { 4 } {
        return Err(DROP_MALFORMED);
    }
    let total_bytes = match ipv6 {
        true => IPV6_BYTES + be16(header, 4),
        false => be16(header, 2),
    };
    if header_bytes(header) < fixed_bytes || total_bytes < header_bytes(header) {
        return Err(DROP_MALFORMED);
    }
    bytes.get(..total_bytes).ok_or(DROP_TRUNCATED)
}

pub(super) fn header_bytes(packet: &[u8]) -> usize {
    if is_ipv6(packet) { IPV6_BYTES } else { usize::from(packet[0] & 15) * 4 }
}

pub(super) fn source(packet: &[u8]) -> IpAddr {
    address(packet, if is_ipv6(packet) { 8 } else { 12 })
}

pub(super) fn destination(packet: &[u8]) -> IpAddr {
    address(packet, if is_ipv6(packet) { 24 } else { 16 })
}

fn address(packet: &[u8], at: usize) -> IpAddr {
    match is_ipv6(packet) {
        true => <[u8; 16]>::try_from(&packet[at..at + 16]).expect("16 bytes").into(),
        false => <[u8; 4]>::try_from(&packet[at..at + 4]).expect("4 bytes").into(),
    }
}

/// Returns DSCP and ECN as one byte (RFC 2474, RFC 3168).
pub(super) fn traffic_class(packet: &[u8]) -> u8 {
    if is_ipv6(packet) { packet[0] << 4 | packet[1] >> 4 } else { packet[1] }
}

/// Sets DSCP and ECN, and adjusts the IPv4 header checksum. A wrong checksum stays wrong.
fn set_traffic_class(packet: &mut [u8], class: u8) {
    if is_ipv6(packet) {
        packet[0] = packet[0] & 0xf0 | class >> 4;
        packet[1] = packet[1] & 0x0f | class << 4;
        return;
    }
    let word = |packet: &[u8], at| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let old = word(packet, 0);
    packet[1] = class;
    let checksum = godwit_wire::checksum::update(word(packet, 10), old, word(packet, 0));
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Sets the ECN field of a packet that leaves a tunnel (RFC 6040, section 4.2, figure 4). `outer`
/// is the traffic class of the outer header.
pub(super) fn combine_ecn(inner: &mut [u8], outer: u8) -> Result<(), u8> {
    const NOT_ECT: u8 = 0;
    const ECT_1: u8 = 1;
    const ECT_0: u8 = 2;
    const CE: u8 = 3;
    let class = traffic_class(inner);
    let ecn = match (class & 3, outer & 3) {
        (NOT_ECT, CE) => return Err(DROP_CONGESTION),
        (NOT_ECT, _) => NOT_ECT,
        (ECT_0, ECT_1) => ECT_1,
        (ECT_0 | ECT_1, CE) => CE,
        (unchanged, _) => unchanged,
    };
    if ecn != class & 3 {
        set_traffic_class(inner, class & !3 | ecn);
    }
    Ok(())
}

/// Updates the packet's length field and the protocol field at `position`. A wrong IPv4 header
/// checksum stays wrong, so the receiver detects the error (RFC 1624).
pub(super) fn rewrite(packet: &mut [u8], position: HeaderPosition, protocol: u8) {
    if is_ipv6(packet) {
        let payload_bytes = (packet.len() - IPV6_BYTES) as u16;
        packet[4..6].copy_from_slice(&payload_bytes.to_be_bytes());
        packet[position.protocol_at] = protocol;
        return;
    }
    let total_bytes = packet.len() as u16;
    let word = |packet: &[u8], at| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let mut checksum = word(packet, 10);
    checksum = godwit_wire::checksum::update(checksum, word(packet, 2), total_bytes);
    packet[2..4].copy_from_slice(&total_bytes.to_be_bytes());
    let before = word(packet, 8);
    packet[9] = protocol;
    checksum = godwit_wire::checksum::update(checksum, before, word(packet, 8));
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Recomputes the checksum of the TCP or UDP header at `at`. A NAT may have changed the addresses
/// that the checksum covers (RFC 3948, section 3.1.2).
pub(super) fn recompute_checksum(packet: &mut [u8], at: usize, protocol: u8) {
    const TCP: u8 = 6;
    let transport = &packet[at..];
    let offset = match protocol {
        TCP if transport.len() >= 20 => 16,
        UDP if transport.len() >= 8 && be16(transport, 4) == transport.len() && be16(transport, 6) != 0 => 6,
        _ => return,
    };
    packet[at + offset..at + offset + 2].fill(0);
    let mut summed = if is_ipv6(packet) { packet[8..40].to_vec() } else { packet[12..20].to_vec() };
    summed.extend([0, protocol]);
    summed.extend(((packet.len() - at) as u16).to_be_bytes());
    summed.extend(&packet[at..]);
    let checksum = match godwit_wire::checksum::checksum(&summed) {
        0 if protocol == UDP => 0xffff,
        checksum => checksum,
    };
    packet[at + offset..at + offset + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Position of a header in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeaderPosition {
    /// Offset of the header.
    pub(super) at: usize,
    /// Offset of the protocol number, which is a field of the preceding header.
    pub(super) protocol_at: usize,
    /// Protocol number of the header.
    pub(super) protocol: u8,
}

/// Result of parsing the headers of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    /// Position after all IP headers.
    pub(super) end: HeaderPosition,
    /// Position of AH or ESP in transport mode (RFC 4303, section 3.1.1; RFC 4302, section 3.1.1).
    /// In IPv4, this is the end of the IP header. In IPv6, it is the end of the extension headers
    /// that routers process. Destination options are among them if another such header follows.
    pub(super) transport: HeaderPosition,
    pub(super) is_fragment: bool,
    /// Whether the packet is a fragment other than the first one. No header begins at `end` in such
    /// a fragment.
    pub(super) is_later_fragment: bool,
    /// Whether a routing header has segments left.
    pub(super) has_segments_left: bool,
}

/// Maximum number of extension headers. No legitimate packet needs more.
const EXTENSIONS_MAX: usize = 8;

pub(super) fn headers(packet: &[u8]) -> Result<Headers, u8> {
    if !is_ipv6(packet) {
        let end = HeaderPosition { at: header_bytes(packet), protocol_at: 9, protocol: packet[9] };
        let (is_fragment, is_later_fragment) = (be16(packet, 6) & 0x3fff != 0, be16(packet, 6) & 0x1fff != 0);
        return Ok(Headers { end, transport: end, is_fragment, is_later_fragment, has_segments_left: false });
    }
    extension_headers(packet, HeaderPosition { at: IPV6_BYTES, protocol_at: 6, protocol: packet[6] })
}

pub(super) fn extension_headers(packet: &[u8], first: HeaderPosition) -> Result<Headers, u8> {
    let mut headers = Headers {
        end: first,
        transport: first,
        is_fragment: false,
        is_later_fragment: false,
        has_segments_left: false,
    };
    let mut count = 0;
    while let (HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | FRAGMENT, false) =
        (headers.end.protocol, headers.is_later_fragment)
    {
        count += 1;
        let current = headers.end;
        if count > EXTENSIONS_MAX {
            return Err(DROP_MALFORMED);
        }
        headers.end = next_header(packet, current)?;
        let header = &packet[current.at..headers.end.at];
        match current.protocol {
            FRAGMENT => {
                headers.is_fragment = true;
                headers.is_later_fragment = be16(header, 2) & 0xfff8 != 0;
            }
            ROUTING => headers.has_segments_left |= header[3] != 0,
            _ => {}
        }
        if current.protocol != DESTINATION_OPTIONS {
            headers.transport = headers.end;
        }
    }
    Ok(headers)
}

/// Returns the offset after an extension header. A fragment header has a fixed length. In other
/// extension headers, the second byte gives the length (RFC 8200, section 4).
fn next_header(packet: &[u8], position: HeaderPosition) -> Result<HeaderPosition, u8> {
    let header = packet.get(position.at..position.at + 8).ok_or(DROP_MALFORMED)?;
    let more = if position.protocol == FRAGMENT { 0 } else { 8 * usize::from(header[1]) };
    let at = position.at + 8 + more;
    if at > packet.len() {
        return Err(DROP_MALFORMED);
    }
    Ok(HeaderPosition { at, protocol_at: position.at, protocol: header[0] })
}

/// Returns the packet as AH authenticates it (RFC 4302, section 3.3.3.1 and appendix A). Mutable
/// fields are zero. Fields with a predictable change have the value that the receiver sees. `ah` is
/// the offset of the AH header.
pub(super) fn without_mutable_fields(packet: &[u8], ah: usize, outbound: bool) -> Result<Vec<u8>, u8> {
    let mut packet = packet.to_vec();
    if !is_ipv6(&packet) {
        // These bytes are TOS, flags and fragment offset, TTL, and header checksum.
        for at in [1, 6, 7, 8, 10, 11] {
            packet[at] = 0;
        }
        if let Some(last) = clear_ipv4_options(&mut packet[IPV4_BYTES..ah])?.filter(|_| outbound) {
            packet[16..20].copy_from_slice(&last);
        }
        return Ok(packet);
    }
    // The traffic class, the flow label and the hop limit are mutable.
    packet[0] &= 0xf0;
    packet[1..4].fill(0);
    packet[7] = 0;
    // The fixed header has five mutable bytes: its first four bytes and the hop limit.
    let mut mutable_bytes = 5;
    let mut position = HeaderPosition { at: IPV6_BYTES, protocol_at: 6, protocol: packet[6] };
    while position.at < ah {
        let next = next_header(&packet, position)?;
        if next.at > ah {
            return Err(DROP_MALFORMED);
        }
        match position.protocol {
            HOP_BY_HOP | DESTINATION_OPTIONS => {
                mutable_bytes += clear_ipv6_options(&mut packet[position.at + 2..next.at])?;
            }
            ROUTING if outbound => {
                predict_route(&mut packet, position.at, next.at)?;
                mutable_bytes += 1;
            }
            // In an inbound packet, the routing header already has its final value.
            ROUTING => {}
            _ => return Err(DROP_MALFORMED),
        }
        position = next;
    }
    if mutable_bytes > MUTABLE_BYTES_MAX { Err(DROP_NO_ROOM) } else { Ok(packet) }
}

/// Fills mutable IPv4 options with zeros (RFC 4302, appendix A1). Returns the last address of a
/// source route, if the packet has not yet visited all addresses of the route.
fn clear_ipv4_options(options: &mut [u8]) -> Result<Option<[u8; 4]>, u8> {
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    let mut last = None;
    let mut rest = options;
    while let [kind, ..] = *rest {
        match kind {
            // This option ends the list of options. Padding follows.
            0 => break,
            1 => rest = &mut rest[1..],
            _ => {
                let bytes = usize::from(*rest.get(1).ok_or(DROP_MALFORMED)?);
                if bytes < 2 || bytes > rest.len() {
                    return Err(DROP_MALFORMED);
                }
                let (option, after) = rest.split_at_mut(bytes);
                // The third byte of a source route option points to the next address. At the end of
                // the route, it points beyond the option (RFC 791, section 3.1).
                let is_route = matches!(kind, LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE);
                if is_route && bytes >= 7 && usize::from(option[2]) <= bytes {
                    last = option.last_chunk().copied();
                }
                // The immutable options are Security, Extended Security, Commercial Security,
                // Router Alert and Sender Directed Delivery.
                if !matches!(kind, 130 | 133 | 134 | 148 | 149) {
                    option.fill(0);
                }
                rest = after;
            }
        }
    }
    Ok(last)
}

/// Maximum number of mutable bytes in an IPv6 packet, as in the kernel. No legitimate packet
/// reaches it.
const MUTABLE_BYTES_MAX: usize = 64;

/// Fills the data of mutable IPv6 options with zeros. The type of such an option has the third bit
/// set (RFC 4302, section 3.3.3.1.2.2). Returns the number of bytes cleared.
fn clear_ipv6_options(options: &mut [u8]) -> Result<usize, u8> {
    let mut cleared = 0;
    let mut rest = options;
    while let [kind, ..] = *rest {
        // The option Pad1 consists of a single byte.
        if kind == 0 {
            rest = &mut rest[1..];
            continue;
        }
        let bytes = 2 + usize::from(*rest.get(1).ok_or(DROP_MALFORMED)?);
        if bytes > rest.len() {
            return Err(DROP_MALFORMED);
        }
        let (option, after) = rest.split_at_mut(bytes);
        if kind & 0x20 != 0 {
            option[2..].fill(0);
            cleared += bytes - 2;
        }
        rest = after;
    }
    Ok(cleared)
}

/// Changes a routing header to the value that the receiver sees (RFC 4302, section 3.3.3.1.2.3).
/// The receiver sees 0 segments left, and the last address of the list is the packet's destination.
/// Types 0 (RFC 2460, section 4.4) and 2 (RFC 6275, section 6.4) are supported.
fn predict_route(packet: &mut [u8], at: usize, end: usize) -> Result<(), u8> {
    let (kind, left) = (packet[at + 2], usize::from(packet[at + 3]));
    if left == 0 {
        return Ok(());
    }
    let addresses = (end - at - 8) / 16;
    if !matches!(kind, 0 | 2) || left > addresses {
        return Err(DROP_MALFORMED);
    }
    // Each router on the route swaps the destination address with the next address in the list.
    for hop in addresses - left..addresses {
        for byte in 0..16 {
            packet.swap(24 + byte, at + 8 + 16 * hop + byte);
        }
    }
    packet[at + 3] = 0;
    Ok(())
}

pub(super) fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

//! IPv4 and IPv6 headers (RFC 791, RFC 8200) as far as IPsec needs them.

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

/// Whether the packet says that it is IPv6; else it is IPv4.
pub(super) fn is_ipv6(packet: &[u8]) -> bool {
    packet[0] >> 4 == 6
}

/// The packet at the front of `bytes`, which must be of the family, without what follows it.
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

/// Of the header without IPv6's extension headers.
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

/// DSCP and ECN (RFC 2474, RFC 3168).
pub(super) fn traffic_class(packet: &[u8]) -> u8 {
    if is_ipv6(packet) { packet[0] << 4 | packet[1] >> 4 } else { packet[1] }
}

/// Sets the DSCP and ECN of a packet whose header checksum, if it has one, stays as right as it is.
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

/// RFC 6040, section 4.2, figure 4, row by row: what a packet that leaves a tunnel becomes.
pub(super) fn leave_tunnel(inner: &mut [u8], outer: u8) -> Result<(), u8> {
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

/// Makes the packet say how long it is and which protocol follows where `place` is. A header checksum that was wrong
/// stays wrong (RFC 1624): who forwards is not who checks.
pub(super) fn rewrite(packet: &mut [u8], place: Place, protocol: u8) {
    if is_ipv6(packet) {
        let payload_bytes = (packet.len() - IPV6_BYTES) as u16;
        packet[4..6].copy_from_slice(&payload_bytes.to_be_bytes());
        packet[place.named_at] = protocol;
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

/// Computes the checksum of TCP or UDP at `at` anew, because a NAT may have changed the addresses that it covers (RFC
/// 3948, section 3.1.2).
pub(super) fn mend_checksum(packet: &mut [u8], at: usize, protocol: u8) {
    const TCP: u8 = 6;
    let transport = &packet[at..];
    let place = match protocol {
        TCP if transport.len() >= 20 => 16,
        UDP if transport.len() >= 8 && be16(transport, 4) == transport.len() && be16(transport, 6) != 0 => 6,
        _ => return,
    };
    packet[at + place..at + place + 2].fill(0);
    let mut summed = if is_ipv6(packet) { packet[8..40].to_vec() } else { packet[12..20].to_vec() };
    summed.extend([0, protocol]);
    summed.extend(((packet.len() - at) as u16).to_be_bytes());
    summed.extend(&packet[at..]);
    let checksum = match godwit_wire::checksum::checksum(&summed) {
        0 if protocol == UDP => 0xffff,
        checksum => checksum,
    };
    packet[at + place..at + place + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// A place between two headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Where the later header begins.
    pub(super) at: usize,
    /// Where the byte is that says what the later header is.
    pub(super) named_at: usize,
    /// What it says.
    pub(super) next: u8,
}

/// Where the headers of a packet lead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    /// Behind all of them.
    pub(super) end: Place,
    /// Where AH or ESP is put in transport mode (RFC 4303, section 3.1.1; RFC 4302, section 3.1.1): behind the IPv4
    /// header with its options; in IPv6 behind the headers that routers on the way look at. Destination options are
    /// for them too where another such header follows.
    pub(super) transport: Place,
    /// Only part of a packet.
    pub(super) is_fragment: bool,
    /// Not the first part: what is at the end is no header.
    pub(super) is_later_fragment: bool,
    /// A routing header has segments left.
    pub(super) is_underway: bool,
}

/// More extension headers than anybody uses.
const EXTENSIONS_MAX: usize = 8;

/// Reads the headers of a packet. IPv4 has but one.
pub(super) fn headers(packet: &[u8]) -> Result<Headers, u8> {
    if !is_ipv6(packet) {
        let end = Place { at: header_bytes(packet), named_at: 9, next: packet[9] };
        let (is_fragment, is_later_fragment) = (be16(packet, 6) & 0x3fff != 0, be16(packet, 6) & 0x1fff != 0);
        return Ok(Headers { end, transport: end, is_fragment, is_later_fragment, is_underway: false });
    }
    extension_headers(packet, Place { at: IPV6_BYTES, named_at: 6, next: packet[6] })
}

/// Reads extension headers from a place in a packet on.
pub(super) fn extension_headers(packet: &[u8], from: Place) -> Result<Headers, u8> {
    let mut headers =
        Headers { end: from, transport: from, is_fragment: false, is_later_fragment: false, is_underway: false };
    let mut count = 0;
    while let (HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | FRAGMENT, false) =
        (headers.end.next, headers.is_later_fragment)
    {
        count += 1;
        let here = headers.end;
        if count > EXTENSIONS_MAX {
            return Err(DROP_MALFORMED);
        }
        headers.end = behind(packet, here)?;
        let header = &packet[here.at..headers.end.at];
        match here.next {
            FRAGMENT => {
                headers.is_fragment = true;
                headers.is_later_fragment = be16(header, 2) & 0xfff8 != 0;
            }
            ROUTING => headers.is_underway |= header[3] != 0,
            _ => {}
        }
        if here.next != DESTINATION_OPTIONS {
            headers.transport = headers.end;
        }
    }
    Ok(headers)
}

/// Behind an extension header, whose second byte says how long it is, but for that of a fragment (RFC 8200, section 4).
fn behind(packet: &[u8], place: Place) -> Result<Place, u8> {
    let header = packet.get(place.at..place.at + 8).ok_or(DROP_MALFORMED)?;
    let more = if place.next == FRAGMENT { 0 } else { 8 * usize::from(header[1]) };
    let at = place.at + 8 + more;
    if at > packet.len() {
        return Err(DROP_MALFORMED);
    }
    Ok(Place { at, named_at: place.at, next: header[0] })
}

/// The packet as AH authenticates it: what routers may change is zero, and what they change predictably is, `outbound`, as
/// it will be (RFC 4302, section 3.3.3.1 and appendix A). `ah`: where the AH begins.
pub(super) fn without_mutable_fields(packet: &[u8], ah: usize, outbound: bool) -> Result<Vec<u8>, u8> {
    let mut packet = packet.to_vec();
    if !is_ipv6(&packet) {
        // TOS, flags and offset, TTL, checksum.
        for at in [1, 6, 7, 8, 10, 11] {
            packet[at] = 0;
        }
        if let Some(last) = clear_ipv4_options(&mut packet[IPV4_BYTES..ah])?.filter(|_| outbound) {
            packet[16..20].copy_from_slice(&last);
        }
        return Ok(packet);
    }
    // Traffic class and flow label, hop limit.
    packet[0] &= 0xf0;
    packet[1..4].fill(0);
    packet[7] = 0;
    // Those above: the first four bytes, and the hop limit.
    let mut mutable_bytes = 5;
    let mut place = Place { at: IPV6_BYTES, named_at: 6, next: packet[6] };
    while place.at < ah {
        let next = behind(&packet, place)?;
        if next.at > ah {
            return Err(DROP_MALFORMED);
        }
        match place.next {
            HOP_BY_HOP | DESTINATION_OPTIONS => {
                mutable_bytes += clear_ipv6_options(&mut packet[place.at + 2..next.at])?;
            }
            ROUTING if outbound => {
                predict_route(&mut packet, place.at, next.at)?;
                mutable_bytes += 1;
            }
            // It has arrived: nothing of it changes any more.
            ROUTING => {}
            _ => return Err(DROP_MALFORMED),
        }
        place = next;
    }
    if mutable_bytes > MUTABLE_BYTES_MAX { Err(DROP_NO_ROOM) } else { Ok(packet) }
}

/// Appendix A1: an option that may change is zero as a whole. The last address of a source route that is still to be
/// followed.
fn clear_ipv4_options(options: &mut [u8]) -> Result<Option<[u8; 4]>, u8> {
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    let mut last = None;
    let mut rest = options;
    while let [kind, ..] = *rest {
        match kind {
            // The end: what follows is padding.
            0 => break,
            1 => rest = &mut rest[1..],
            _ => {
                let bytes = usize::from(*rest.get(1).ok_or(DROP_MALFORMED)?);
                if bytes < 2 || bytes > rest.len() {
                    return Err(DROP_MALFORMED);
                }
                let (option, behind) = rest.split_at_mut(bytes);
                // RFC 791, section 3.1: the third byte points at the next address, behind the last at the end.
                let is_route = matches!(kind, LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE);
                if is_route && bytes >= 7 && usize::from(option[2]) <= bytes {
                    last = option.last_chunk().copied();
                }
                // Security, Extended Security, Commercial Security, Router Alert, Sender Directed Delivery.
                if !matches!(kind, 130 | 133 | 134 | 148 | 149) {
                    option.fill(0);
                }
                rest = behind;
            }
        }
    }
    Ok(last)
}

/// More bytes of options that may change than a packet has that anybody sends.
const MUTABLE_BYTES_MAX: usize = 64;

/// Section 3.3.3.1.2.2: the data of an option is zero where the third bit of its type says that it may change.
/// How many bytes these are.
fn clear_ipv6_options(options: &mut [u8]) -> Result<usize, u8> {
    let mut cleared = 0;
    let mut rest = options;
    while let [kind, ..] = *rest {
        // Pad1.
        if kind == 0 {
            rest = &mut rest[1..];
            continue;
        }
        let bytes = 2 + usize::from(*rest.get(1).ok_or(DROP_MALFORMED)?);
        if bytes > rest.len() {
            return Err(DROP_MALFORMED);
        }
        let (option, behind) = rest.split_at_mut(bytes);
        if kind & 0x20 != 0 {
            option[2..].fill(0);
            cleared += bytes - 2;
        }
        rest = behind;
    }
    Ok(cleared)
}

/// Section 3.3.3.1.2.3: a routing header is as it arrives: no segment left, the last address the packet's destination, and
/// in the list those that were passed. Types 0 (RFC 2460, section 4.4) and 2 (RFC 6275, section 6.4) work so.
fn predict_route(packet: &mut [u8], at: usize, end: usize) -> Result<(), u8> {
    let (kind, left) = (packet[at + 2], usize::from(packet[at + 3]));
    if left == 0 {
        return Ok(());
    }
    let addresses = (end - at - 8) / 16;
    if !matches!(kind, 0 | 2) || left > addresses {
        return Err(DROP_MALFORMED);
    }
    // Each hop exchanges the destination and the next address of the list.
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

//! Parses a frame in one pass and returns its five-tuple.

use crate::ethernet::{self, ethertype};
use crate::ipv4::{self, protocol};
use crate::view::Field;
use crate::{Error, Extensions, IpAddress, ipv6, vlan};

/// Maximum number of VLAN tags that [`parse`] reads. If there are more, the ethertype in the result
/// is that of the first unread tag.
pub const VLAN_TAGS_MAX: usize = 2;

/// Addresses, protocol and ports, which identify a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FiveTuple {
    /// Source address.
    pub source: IpAddress,
    /// Destination address, which has the same family as the source address.
    pub destination: IpAddress,
    /// IP protocol number. See [`protocol`].
    pub protocol: u8,
    /// Source port, or 0 in a fragment and for a protocol without ports.
    pub source_port: u16,
    /// Destination port, or 0 in a fragment and for a protocol without ports.
    pub destination_port: u16,
}

impl FiveTuple {
    /// Returns the five-tuple of the opposite direction.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            protocol: self.protocol,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }
}

/// Result of [`parse`]. Offsets are in bytes from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Ethertype after all VLAN tags. A value below [`ethertype::FIRST`] is an IEEE 802.3 length.
    pub ethertype: u16,
    /// Identifiers of the VLAN tags, outermost first. The first [`vlan_tags`](Self::vlan_tags)
    /// entries are valid.
    pub vlan_ids: [u16; VLAN_TAGS_MAX],
    /// Number of VLAN tags, 0 to 2.
    pub vlan_tags: u8,
    /// IP version: 4, 6, or 0 if the frame is not IP or its IP header is malformed.
    pub ip_version: u8,
    /// Whether the packet is a fragment of an IP datagram, including the first fragment.
    pub fragment: bool,
    /// Offset of the header that follows the Ethernet header and the VLAN tags.
    pub l3_offset: usize,
    /// End of the IP packet according to its header, where Ethernet padding starts. The value is 0
    /// if `ip_version` is 0.
    pub l3_end: usize,
    /// Offset of the upper-layer header, after the IP header, its options and its extension
    /// headers. In a fragment, the offset follows the fragment header. The value is 0 without a
    /// `five_tuple`.
    pub l4_offset: usize,
    /// Five-tuple of the flow, or `None` if the frame is not IP or has an `error`.
    pub five_tuple: Option<FiveTuple>,
    /// Error of the frame, if any.
    pub error: Option<Error>,
}

/// Parses Ethernet, up to two VLAN tags, IPv4 or IPv6 with extension headers, and ports.
///
/// The function checks that every header lies within the frame and within the length in the IP
/// header. It checks the IP version, the header lengths and the number of extension headers. It
/// does not check checksums or the bytes after the ports.
///
/// All fragments of a datagram have the same five-tuple. Its ports are 0. Its protocol is that of
/// the IPv4 header or of the IPv6 fragment header. An atomic IPv6 fragment (RFC 6946) is not
/// treated as a fragment.
///
/// Parsing ends at AH and ESP, in IPv4 and IPv6. The five-tuple is that of the IPsec flow, with
/// ports 0, so all packets of one security association have the same five-tuple.
///
/// The cost is one pass without allocation or copy. About 60 bytes of an IPv4 frame are read.
///
/// ```
/// use godwit_wire::{Error, EthernetHeader, MacAddress, ethertype, parse};
///
/// let mut frame = [0; 60];
/// let (destination, source) = (MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]));
/// EthernetHeader { destination, source, ethertype: ethertype::ARP }.emit(&mut frame)?;
///
/// let parsed = parse(&frame);
/// assert_eq!((parsed.ethertype, parsed.l3_offset), (ethertype::ARP, 14));
/// assert_eq!((parsed.five_tuple, parsed.error), (None, None));
/// assert_eq!(parse(&frame[..10]).error, Some(Error::Truncated));
/// # Ok::<(), Error>(())
/// ```
// This function is always inlined, so that the caller keeps the fields that it uses in registers.
#[inline(always)]
pub fn parse(frame: &[u8]) -> Parsed {
    let mut parsed = Parsed {
        ethertype: 0,
        vlan_ids: [0; VLAN_TAGS_MAX],
        vlan_tags: 0,
        ip_version: 0,
        fragment: false,
        l3_offset: 0,
        l3_end: 0,
        l4_offset: 0,
        five_tuple: None,
        error: None,
    };
    parsed.error = read(frame, &mut parsed).err();
    parsed
}

// No pointer to `parsed` leaves the inlined code, so the compiler keeps its fields in registers.
// Storing them in memory would cost 20 ns per frame.
#[inline(always)]
fn read(frame: &[u8], parsed: &mut Parsed) -> Result<(), Error> {
    let Some((header, mut packet)) = frame.split_first_chunk::<{ ethernet::HEADER_BYTES }>() else {
        return Err(Error::Truncated);
    };
    parsed.ethertype = u16::load(header, 12);
    parsed.l3_offset = ethernet::HEADER_BYTES;
    if ethertype::is_vlan(parsed.ethertype) {
        let tags = read_vlan(parsed.ethertype, packet);
        parsed.ethertype = tags.ethertype;
        parsed.vlan_ids = tags.ids;
        parsed.vlan_tags = tags.count;
        parsed.l3_offset += usize::from(tags.count) * vlan::HEADER_BYTES;
        packet = frame.get(parsed.l3_offset..).unwrap_or(&[]);
        if tags.truncated {
            return Err(Error::Truncated);
        }
    }
    match parsed.ethertype {
        ethertype::IPV4 => read_ipv4(packet, parsed),
        ethertype::IPV6 => read_ipv6(packet, parsed),
        _ => Ok(()),
    }
}

struct Tags {
    ethertype: u16,
    ids: [u16; VLAN_TAGS_MAX],
    count: u8,
    truncated: bool,
}

#[inline(never)]
fn read_vlan(ethertype: u16, mut packet: &[u8]) -> Tags {
    let mut tags = Tags { ethertype, ids: [0; VLAN_TAGS_MAX], count: 0, truncated: false };
    for id in &mut tags.ids {
        if !ethertype::is_vlan(tags.ethertype) {
            break;
        }
        let Some((tag, rest)) = packet.split_first_chunk::<{ vlan::HEADER_BYTES }>() else {
            tags.truncated = true;
            break;
        };
        *id = u16::load(tag, 0) & vlan::ID_MAX;
        tags.count += 1;
        tags.ethertype = u16::load(tag, 2);
        packet = rest;
    }
    tags
}

#[inline(always)]
fn read_ipv4(packet: &[u8], parsed: &mut Parsed) -> Result<(), Error> {
    let header = packet.first_chunk::<{ ipv4::HEADER_BYTES }>().ok_or(Error::Truncated)?;
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    let total_bytes = usize::from(u16::load(header, 2));
    // IHL counts 5 to 15 words of 4 bytes (RFC 791, section 3.1).
    if header[0] >> 4 != 4 || header_bytes < ipv4::HEADER_BYTES || total_bytes < header_bytes {
        return Err(Error::Malformed);
    }
    parsed.ip_version = 4;
    parsed.l3_end = parsed.l3_offset + total_bytes;
    let payload = packet.get(header_bytes..total_bytes).ok_or(Error::Truncated)?;
    // A fragment has the flag "more fragments" or a fragment offset (RFC 791, section 3.2).
    parsed.fragment = u16::load(header, 6) & 0x3fff != 0;
    let protocol = header[9];
    let (source_port, destination_port) = ports(protocol, parsed.fragment, payload)?;
    parsed.l4_offset = parsed.l3_offset + header_bytes;
    parsed.five_tuple = Some(FiveTuple {
        source: IpAddress::V4(Field::load(header, 12)),
        destination: IpAddress::V4(Field::load(header, 16)),
        protocol,
        source_port,
        destination_port,
    });
    Ok(())
}

#[inline(always)]
fn read_ipv6(packet: &[u8], parsed: &mut Parsed) -> Result<(), Error> {
    let Some((header, rest)) = packet.split_first_chunk::<{ ipv6::HEADER_BYTES }>() else {
        return Err(Error::Truncated);
    };
    if header[0] >> 4 != 6 {
        return Err(Error::Malformed);
    }
    let payload_bytes = usize::from(u16::load(header, 4));
    parsed.ip_version = 6;
    parsed.l3_end = parsed.l3_offset + ipv6::HEADER_BYTES + payload_bytes;
    let payload = rest.get(..payload_bytes).ok_or(Error::Truncated)?;
    let (protocol, offset) = match header[6] {
        protocol::TCP | protocol::UDP => (header[6], 0),
        next_header => {
            let upper = walk(next_header, payload)?;
            parsed.fragment = upper.fragment;
            (upper.protocol, upper.offset)
        }
    };
    let upper = payload.get(offset..).unwrap_or(&[]);
    let (source_port, destination_port) = ports(protocol, parsed.fragment, upper)?;
    parsed.l4_offset = parsed.l3_offset + ipv6::HEADER_BYTES + offset;
    parsed.five_tuple = Some(FiveTuple {
        source: IpAddress::V6(Field::load(header, 8)),
        destination: IpAddress::V6(Field::load(header, 24)),
        protocol,
        source_port,
        destination_port,
    });
    Ok(())
}

/// Upper-layer fields of an IPv6 packet that a five-tuple needs.
struct Upper {
    protocol: u8,
    offset: usize,
    fragment: bool,
}

#[inline(never)]
fn walk(next_header: u8, payload: &[u8]) -> Result<Upper, Error> {
    let mut walk = Extensions::new(next_header, payload);
    let mut fragment = false;
    // Only the first fragment contains the later headers. All fragments contain the type of the
    // first header in the fragmentable part (RFC 8200, section 4.5). The five-tuple therefore
    // depends only on this type.
    while !fragment && walk.protocol() != protocol::AH {
        let Some(step) = walk.next() else { break };
        fragment = step?.fragment().is_some_and(|header| header.is_fragment());
    }
    Ok(Upper { protocol: walk.protocol(), offset: walk.offset(), fragment })
}

#[inline(always)]
fn ports(protocol: u8, fragment: bool, upper: &[u8]) -> Result<(u16, u16), Error> {
    if fragment || !protocol::has_ports(protocol) {
        return Ok((0, 0));
    }
    let ports = upper.first_chunk::<4>().ok_or(Error::Truncated)?;
    Ok((u16::load(ports, 0), u16::load(ports, 2)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ah::AhHeader;
    use crate::ipv6_extension::{FragmentHeader, emit_extension};
    use crate::{EthernetHeader, Ipv4Header, Ipv6Header, MacAddress, VlanHeader};

    const PORTS: [u8; 8] = [0x12, 0x34, 0x00, 0x50, 0, 0, 0, 0];

    fn ethernet(ethertype: u16) -> Vec<u8> {
        let mut frame = vec![0; 14];
        let header = EthernetHeader { destination: MacAddress::BROADCAST, source: MacAddress([2; 6]), ethertype };
        header.emit(&mut frame).unwrap();
        frame
    }

    fn ipv4(header: Ipv4Header<'_>, payload: &[u8]) -> Vec<u8> {
        let header = Ipv4Header { payload_bytes: payload.len(), ..header };
        let mut packet = vec![0; header.header_bytes()];
        header.emit(&mut packet).unwrap();
        packet.extend(payload);
        packet
    }

    const V4: Ipv4Header<'static> = Ipv4Header {
        traffic_class: 0,
        identification: 1,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset_bytes: 0,
        ttl: 64,
        protocol: protocol::UDP,
        source: [192, 0, 2, 1],
        destination: [198, 51, 100, 2],
        options: &[],
        payload_bytes: 0,
    };

    fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        let header = Ipv6Header {
            traffic_class: 0,
            flow_label: 0,
            payload_bytes: payload.len() as u16,
            next_header,
            hop_limit: 64,
            source: [1; 16],
            destination: [2; 16],
        };
        header.emit(&mut packet).unwrap();
        packet.extend(payload);
        packet
    }

    fn frame(ethertype: u16, packet: &[u8]) -> Vec<u8> {
        [&ethernet(ethertype), packet].concat()
    }

    fn tuple_v4(protocol: u8, source_port: u16, destination_port: u16) -> Option<FiveTuple> {
        Some(FiveTuple {
            source: IpAddress::V4(V4.source),
            destination: IpAddress::V4(V4.destination),
            protocol,
            source_port,
            destination_port,
        })
    }

    fn tuple_v6(protocol: u8, source_port: u16, destination_port: u16) -> Option<FiveTuple> {
        Some(FiveTuple {
            source: IpAddress::V6([1; 16]),
            destination: IpAddress::V6([2; 16]),
            protocol,
            source_port,
            destination_port,
        })
    }

    #[test]
    fn parses_udp_with_padding() {
        let mut bytes = frame(ethertype::IPV4, &ipv4(V4, &PORTS));
        bytes.resize(60, 0);
        let parsed = parse(&bytes);
        assert_eq!(parsed.five_tuple, tuple_v4(17, 0x1234, 80));
        assert_eq!((parsed.l3_offset, parsed.l4_offset, parsed.l3_end), (14, 34, 42));
        assert_eq!((parsed.ip_version, parsed.vlan_tags, parsed.fragment, parsed.error), (4, 0, false, None));
    }

    #[test]
    fn finds_ports_after_options() {
        let bytes =
            frame(ethertype::IPV4, &ipv4(Ipv4Header { options: &[1; 40], protocol: protocol::TCP, ..V4 }, &PORTS));
        let parsed = parse(&bytes);
        assert_eq!(parsed.l4_offset, 74);
        assert_eq!(parsed.five_tuple, tuple_v4(6, 0x1234, 80));
    }

    #[test]
    fn reads_up_to_two_vlan_tags() {
        let tag = |id, ethertype| {
            let mut bytes = [0; 4];
            VlanHeader { priority: 7, drop_eligible: true, id, ethertype }.emit(&mut bytes).unwrap();
            bytes
        };
        let packet = ipv4(V4, &PORTS);
        let one = [&ethernet(0x8100)[..], &tag(5, 0x0800), &packet].concat();
        let parsed = parse(&one);
        assert_eq!((parsed.vlan_tags, parsed.vlan_ids, parsed.l3_offset), (1, [5, 0], 18));
        assert_eq!(parsed.five_tuple, tuple_v4(17, 0x1234, 80));

        let two = [&ethernet(0x88a8)[..], &tag(4095, 0x8100), &tag(6, 0x0800), &packet].concat();
        let parsed = parse(&two);
        assert_eq!((parsed.vlan_tags, parsed.vlan_ids, parsed.l4_offset), (2, [4095, 6], 42));
        assert_eq!(parsed.five_tuple, tuple_v4(17, 0x1234, 80));

        let three = [&ethernet(0x88a8)[..], &tag(1, 0x8100), &tag(2, 0x8100), &tag(3, 0x0800), &packet].concat();
        let parsed = parse(&three);
        assert_eq!((parsed.ethertype, parsed.vlan_tags), (0x8100, 2));
        assert_eq!((parsed.five_tuple, parsed.error), (None, None));
        assert_eq!(parse(&two[..20]).error, Some(Error::Truncated));
    }

    #[test]
    fn all_fragments_have_the_same_five_tuple() {
        let first = Ipv4Header { more_fragments: true, ..V4 };
        let last = Ipv4Header { fragment_offset_bytes: 8, ..V4 };
        for header in [first, last] {
            // A later fragment may be too short for the ports.
            let parsed = parse(&frame(ethertype::IPV4, &ipv4(header, &PORTS[..2])));
            assert_eq!((parsed.five_tuple, parsed.fragment), (tuple_v4(17, 0, 0), true));
        }
        for (offset_bytes, more_fragments) in [(0, true), (8, true), (8, false)] {
            let mut payload = vec![0; 8];
            let header = FragmentHeader {
                next_header: protocol::DESTINATION_OPTIONS,
                offset_bytes,
                more_fragments,
                identification: 1,
            };
            header.emit(&mut payload).unwrap();
            payload.extend([protocol::UDP, 0, 1, 4, 0, 0, 0, 0]);
            payload.extend(PORTS);
            let parsed = parse(&frame(ethertype::IPV6, &ipv6(protocol::FRAGMENT, &payload)));
            assert_eq!((parsed.five_tuple, parsed.fragment), (tuple_v6(60, 0, 0), true));
            assert_eq!(parsed.l4_offset, 62);
        }
    }

    #[test]
    fn atomic_fragment_is_a_whole_datagram() {
        let mut payload = vec![0; 8];
        let header =
            FragmentHeader { next_header: protocol::UDP, offset_bytes: 0, more_fragments: false, identification: 1 };
        header.emit(&mut payload).unwrap();
        payload.extend(PORTS);
        let parsed = parse(&frame(ethertype::IPV6, &ipv6(protocol::FRAGMENT, &payload)));
        assert_eq!((parsed.five_tuple, parsed.fragment, parsed.l4_offset), (tuple_v6(17, 0x1234, 80), false, 62));
    }

    #[test]
    fn skips_extension_headers_up_to_ah() {
        let mut payload = vec![0; 24];
        emit_extension(protocol::ROUTING, &[5, 2, 0, 0], &mut payload).unwrap();
        emit_extension(protocol::TCP, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &mut payload[8..]).unwrap();
        payload.extend(PORTS);
        let parsed = parse(&frame(ethertype::IPV6, &ipv6(protocol::HOP_BY_HOP, &payload)));
        assert_eq!((parsed.five_tuple, parsed.l4_offset), (tuple_v6(6, 0x1234, 80), 78));

        let mut payload = vec![0; 24];
        let ah = AhHeader { next_header: protocol::TCP, spi: 1, sequence: 1, icv: &[0; 12] };
        ah.emit(&mut payload).unwrap();
        payload.extend(PORTS);
        let parsed = parse(&frame(ethertype::IPV6, &ipv6(protocol::AH, &payload)));
        assert_eq!((parsed.five_tuple, parsed.l4_offset), (tuple_v6(51, 0, 0), 54));
        let parsed = parse(&frame(ethertype::IPV4, &ipv4(Ipv4Header { protocol: protocol::AH, ..V4 }, &payload)));
        assert_eq!((parsed.five_tuple, parsed.l4_offset), (tuple_v4(51, 0, 0), 34));
    }

    #[test]
    fn non_ip_frames_are_no_error() {
        for kind in [ethertype::ARP, 0x0026, 0x88cc] {
            let parsed = parse(&ethernet(kind));
            assert_eq!((parsed.ethertype, parsed.five_tuple, parsed.error), (kind, None, None));
            assert_eq!((parsed.ip_version, parsed.l3_offset), (0, 14));
        }
    }

    #[test]
    fn reports_the_kind_of_error() {
        let error = |ethertype, packet: &[u8]| {
            let parsed = parse(&frame(ethertype, packet));
            assert_eq!(parsed.five_tuple, None, "a frame with an error has no five-tuple");
            parsed.error
        };
        let good = ipv4(V4, &PORTS);
        let with = |at: usize, value: u8| {
            let mut packet = good.clone();
            packet[at] = value;
            packet
        };
        assert_eq!(error(0x0800, &with(0, 0x65)), Some(Error::Malformed));
        assert_eq!(error(0x0800, &with(0, 0x44)), Some(Error::Malformed));
        assert_eq!(error(0x0800, &with(3, 19)), Some(Error::Malformed));
        assert_eq!(error(0x0800, &with(3, 23)), Some(Error::Truncated), "the ports lie outside the packet");
        assert_eq!(error(0x0800, &with(3, 29)), Some(Error::Truncated));
        assert_eq!(error(0x86dd, &good), Some(Error::Truncated));
        assert_eq!(error(0x86dd, &[0x45; 60]), Some(Error::Malformed));
        assert_eq!(error(0x86dd, &ipv6(protocol::TCP, &PORTS[..3])), Some(Error::Truncated));
        let deep = [[60, 0, 1, 4, 0, 0, 0, 0].repeat(9), PORTS.to_vec()].concat();
        assert_eq!(error(0x86dd, &ipv6(60, &deep)), Some(Error::TooDeep));
        assert_eq!(parse(&[]).error, Some(Error::Truncated));
        let frame = frame(0x0800, &good);
        for cut in 0..frame.len() {
            assert_eq!(parse(&frame[..cut]).error, Some(Error::Truncated), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn reversing_twice_is_the_identity(source: [u8; 4], destination: [u8; 4], protocol: u8, a: u16, b: u16) {
            let tuple = FiveTuple {
                source: IpAddress::V4(source),
                destination: IpAddress::V4(destination),
                protocol,
                source_port: a,
                destination_port: b,
            };
            prop_assert_eq!(tuple.reversed().reversed(), tuple);
            prop_assert_eq!(tuple.reversed().source, tuple.destination);
            prop_assert_eq!(tuple.reversed().destination_port, a);
        }
    }
}

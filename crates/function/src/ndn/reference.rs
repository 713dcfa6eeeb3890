//! Reference implementation of `ndn`, written from the specification.
//!
//! It stores names as lists of components in a map, while the kernel stores bytes in a hash table.
//! It parses elements with slices instead of offsets, and parses headers with `godwit-wire`.

use std::collections::HashMap;
use std::ops::Range;

use godwit_abi::{Descriptor, Outcome};
use godwit_kernels::image::NDN_NONE;
use godwit_wire::{
    Checksum, Error, Ethernet, EthernetHeader, IpAddress, Ipv4, Ipv4Header, Ipv6, Ipv6Header, Udp, UdpHeader, Vlan,
    VlanHeader, ethernet, ethertype, ipv4, ipv6, protocol, udp, vlan,
};

use super::names::Names;
use super::{
    Carrier, DROP_BLACKHOLE, DROP_CHECKSUM, DROP_HOP_LIMIT, DROP_MALFORMED, DROP_NO_NONCE, DROP_NO_ROOM, DROP_NO_ROUTE,
    DROP_TRUNCATED, NextHop, VERDICT_DATA, VERDICT_FORWARD, VERDICT_LOCAL, VERDICT_NOT_NDN, VERDICT_OTHER,
};

const NDN: u16 = 0x8624;

/// Component of a name, which consists of a type and a value.
type Component = (u64, Vec<u8>);

/// Forwarding table of the reference implementation.
#[derive(Debug)]
pub(super) struct Fib {
    names: HashMap<Vec<Component>, u32>,
    longest: usize,
    next_hops: Vec<NextHop>,
}

impl Fib {
    /// Creates a table from a list of names. If a name occurs several times, the last entry
    /// applies. An entry without a next hop deletes the name.
    pub(super) fn new(list: &Names, next_hops: Vec<NextHop>) -> Self {
        let mut names = HashMap::new();
        for (name, next_hop) in list.iter() {
            let name = components(name).expect("names of a table are valid");
            match next_hop {
                NDN_NONE => names.remove(&name),
                _ => names.insert(name, next_hop),
            };
        }
        let longest = names.keys().map(Vec::len).max().unwrap_or(0);
        Self { names, longest, next_hops }
    }

    fn lookup(&self, name: &[Component]) -> Option<u32> {
        (0..=name.len().min(self.longest)).rev().find_map(|depth| self.names.get(&name[..depth]).copied())
    }

    pub(super) fn lookup_bytes(&self, name: &[u8]) -> Option<u32> {
        self.lookup(&components(name)?)
    }
}

/// Forwards one packet.
pub(super) fn run_ref(buffer: &mut [u8], descriptor: &mut Descriptor, fib: &Fib, udp_port: u16) -> Outcome {
    let frame = crate::frame_mut(buffer, descriptor);
    let packet = match find_ndn(frame, udp_port) {
        Ok(packet) => packet,
        Err(outcome) => return outcome,
    };
    let outer = match packet.outermost_element(frame) {
        Ok(outer) => outer,
        Err(outcome) => return outcome,
    };
    let interest = match parse_interest(frame, &outer) {
        Ok(Some(interest)) => interest,
        Ok(None) => return Outcome::drop(DROP_MALFORMED),
        Err(outcome) => return outcome,
    };
    let hops = interest.hop_limit.map(|at| frame[at]);
    if hops == Some(0) {
        return Outcome::drop(DROP_HOP_LIMIT);
    }
    if !interest.has_nonce {
        return Outcome::drop(DROP_NO_NONCE);
    }
    let Some(index) = fib.lookup(&interest.name) else {
        return Outcome::drop(DROP_NO_ROUTE);
    };
    let (port, destination, source, carrier) = match fib.next_hops[index as usize] {
        NextHop::Local => return Outcome { value: index, ..Outcome::verdict(VERDICT_LOCAL) },
        NextHop::Blackhole => return Outcome::drop(DROP_BLACKHOLE),
        NextHop::Forward { port, destination, source, carrier } => (port, destination, source, carrier),
    };
    if hops == Some(1) {
        return Outcome::drop(DROP_HOP_LIMIT);
    }
    let mut ndn = frame[outer.whole.clone()].to_vec();
    if let Some(at) = interest.hop_limit {
        ndn[at - outer.whole.start] -= 1;
    }
    if !packet.is_udp && carrier == Carrier::Ethernet {
        // The padding behind the packet is kept.
        ndn.extend(&frame[outer.whole.end..]);
    }
    let inner = match carrier {
        Carrier::Ethernet => NDN,
        Carrier::Udp4 { .. } => ethertype::IPV4,
        Carrier::Udp6 { .. } => ethertype::IPV6,
    };
    let mut sent = vec![0; ethernet::HEADER_BYTES];
    let outermost = if packet.tag.is_some() { ethertype::VLAN } else { inner };
    let _ = EthernetHeader { destination, source, ethertype: outermost }.emit(&mut sent);
    if let Some(tag) = packet.tag {
        sent.extend([0; vlan::HEADER_BYTES]);
        let _ = VlanHeader { ethertype: inner, ..tag }.emit(&mut sent[ethernet::HEADER_BYTES..]);
    }
    sent.extend(add_carrier_headers(carrier, &ndn));
    let end = usize::from(descriptor.head) + packet.ndn.start + ndn.len();
    let Some(head) = end.checked_sub(sent.len()) else {
        return Outcome::drop(DROP_NO_ROOM);
    };
    buffer[head..end].copy_from_slice(&sent);
    (descriptor.head, descriptor.length) = (head as u16, sent.len() as u16);
    Outcome { port, value: index, ..Outcome::verdict(VERDICT_FORWARD) }
}

/// Returns the NDN packet with the IP and UDP headers that carry it to the next hop.
fn add_carrier_headers(carrier: Carrier, ndn: &[u8]) -> Vec<u8> {
    let datagram = |ports: (u16, u16), pseudo_header: &dyn Fn(u32) -> Checksum| {
        let mut datagram = vec![0; udp::HEADER_BYTES];
        let header = UdpHeader { source_port: ports.0, destination_port: ports.1, payload_bytes: ndn.len() };
        let _ = header.emit(&mut datagram);
        datagram.extend(ndn);
        let length = datagram.len() as u32;
        if let Ok(mut view) = Udp::new_checked(&mut datagram[..]) {
            view.fill_checksum(pseudo_header(length));
        }
        datagram
    };
    match carrier {
        Carrier::Ethernet => ndn.to_vec(),
        Carrier::Udp4 { source, destination } => {
            let ends = [source, destination].map(|end| IpAddress::V4(end.0.octets()));
            let pseudo = |length| Checksum::pseudo_header(ends[0], ends[1], protocol::UDP, length);
            let datagram = datagram((source.1, destination.1), &pseudo);
            let header = Ipv4Header {
                traffic_class: 0,
                identification: 0,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset_bytes: 0,
                ttl: 64,
                protocol: protocol::UDP,
                source: source.0.octets(),
                destination: destination.0.octets(),
                options: &[],
                payload_bytes: datagram.len(),
            };
            let mut packet = vec![0; ipv4::HEADER_BYTES];
            let _ = header.emit(&mut packet);
            packet.extend(datagram);
            packet
        }
        Carrier::Udp6 { source, destination } => {
            let ends = [source, destination].map(|end| IpAddress::V6(end.0.octets()));
            let pseudo = |length| Checksum::pseudo_header(ends[0], ends[1], protocol::UDP, length);
            let datagram = datagram((source.1, destination.1), &pseudo);
            let header = Ipv6Header {
                traffic_class: 0,
                flow_label: 0,
                payload_bytes: datagram.len() as u16,
                next_header: protocol::UDP,
                hop_limit: 64,
                source: source.0.octets(),
                destination: destination.0.octets(),
            };
            let mut packet = vec![0; ipv6::HEADER_BYTES];
            let _ = header.emit(&mut packet);
            packet.extend(datagram);
            packet
        }
    }
}

/// Position of the NDN packet in a frame.
struct Packet {
    ndn: Range<usize>,
    is_udp: bool,
    tag: Option<VlanHeader>,
}

/// Outermost element of an NDN packet.
struct Outer {
    kind: u64,
    value: Range<usize>,
    whole: Range<usize>,
}

/// Finds the NDN packet after Ethernet or UDP.
fn find_ndn(frame: &[u8], udp_port: u16) -> Result<Packet, Outcome> {
    let truncated = |_| Outcome::drop(DROP_TRUNCATED);
    let outer = Ethernet::new_checked(frame).map_err(truncated)?;
    let (tag, inner, start) = match outer.ethertype() {
        ethertype::VLAN => {
            let tag = Vlan::new_checked(outer.payload()).map_err(truncated)?;
            (Some(VlanHeader::parse(&tag)), tag.ethertype(), ethernet::HEADER_BYTES + vlan::HEADER_BYTES)
        }
        other => (None, other, ethernet::HEADER_BYTES),
    };
    let (datagram, pseudo_header, needs_checksum) = match inner {
        NDN => return Ok(Packet { ndn: start..frame.len(), is_udp: false, tag }),
        ethertype::IPV4 => ipv4_datagram(&frame[start..], udp_port)?,
        ethertype::IPV6 => ipv6_datagram(&frame[start..], udp_port)?,
        _ => return Err(Outcome::verdict(VERDICT_NOT_NDN)),
    };
    let datagram = start + datagram.start..start + datagram.end;
    let view = match Udp::new_checked(&frame[datagram.clone()]) {
        Ok(view) => view,
        Err(Error::Truncated) => return Err(Outcome::drop(DROP_TRUNCATED)),
        Err(_) => return Err(Outcome::drop(DROP_MALFORMED)),
    };
    let length = view.length_bytes();
    if view.verify_checksum(pseudo_header(u32::from(length))).is_err() || needs_checksum && view.checksum() == 0 {
        return Err(Outcome::drop(DROP_CHECKSUM));
    }
    let ndn = datagram.start + udp::HEADER_BYTES..datagram.start + usize::from(length);
    Ok(Packet { ndn, is_udp: true, tag })
}

type Datagram = (Range<usize>, Box<dyn Fn(u32) -> Checksum>, bool);

fn check_port(datagram: &[u8], udp_port: u16) -> Result<(), Outcome> {
    let Some(header) = datagram.first_chunk::<{ udp::HEADER_BYTES }>() else {
        return Err(Outcome::drop(DROP_TRUNCATED));
    };
    match u16::from_be_bytes([header[2], header[3]]) == udp_port {
        true => Ok(()),
        false => Err(Outcome::verdict(VERDICT_NOT_NDN)),
    }
}

fn ipv4_datagram(packet: &[u8], udp_port: u16) -> Result<Datagram, Outcome> {
    let view = match Ipv4::new_checked(packet) {
        Ok(view) => view,
        Err(Error::Truncated) => return Err(Outcome::drop(DROP_TRUNCATED)),
        Err(_) => return Err(Outcome::drop(DROP_MALFORMED)),
    };
    if view.protocol() != protocol::UDP || view.is_fragment() {
        return Err(Outcome::verdict(VERDICT_NOT_NDN));
    }
    check_port(view.payload(), udp_port)?;
    if view.verify_checksum().is_err() {
        return Err(Outcome::drop(DROP_CHECKSUM));
    }
    let ends = [view.source(), view.destination()].map(IpAddress::V4);
    let pseudo = move |length| Checksum::pseudo_header(ends[0], ends[1], protocol::UDP, length);
    Ok((view.header_bytes()..usize::from(view.total_bytes()), Box::new(pseudo), false))
}

fn ipv6_datagram(packet: &[u8], udp_port: u16) -> Result<Datagram, Outcome> {
    let view = match Ipv6::new_checked(packet) {
        Ok(view) => view,
        Err(Error::Truncated) => return Err(Outcome::drop(DROP_TRUNCATED)),
        Err(_) => return Err(Outcome::drop(DROP_MALFORMED)),
    };
    if view.next_header() != protocol::UDP {
        return Err(Outcome::verdict(VERDICT_NOT_NDN));
    }
    check_port(view.payload(), udp_port)?;
    let ends = [view.source(), view.destination()].map(IpAddress::V6);
    let pseudo = move |length| Checksum::pseudo_header(ends[0], ends[1], protocol::UDP, length);
    Ok((ipv6::HEADER_BYTES..ipv6::HEADER_BYTES + view.payload().len(), Box::new(pseudo), true))
}

impl Packet {
    fn outermost_element(&self, frame: &[u8]) -> Result<Outer, Outcome> {
        let mut rest = &frame[self.ndn.clone()];
        let available = rest.len();
        let (kind, value) = match element(&mut rest) {
            Ok(element) => element,
            Err(Fault::Short) => return Err(Outcome::drop(DROP_TRUNCATED)),
            Err(Fault::Wrong) => return Err(Outcome::drop(DROP_MALFORMED)),
        };
        if self.is_udp && !rest.is_empty() {
            return Err(Outcome::drop(DROP_MALFORMED));
        }
        let end = self.ndn.start + available - rest.len();
        Ok(Outer { kind, value: end - value.len()..end, whole: self.ndn.start..end })
    }
}

/// Problem of an element that cannot be read.
enum Fault {
    /// The element ends too early.
    Short,
    /// The type or the length violates the specification.
    Wrong,
}

/// Reads an encoded number, which must have its shortest form (NDN Packet Format, section "TLV
/// Encoding"). Returns the number and the length of its encoding in bytes.
fn number(input: &mut &[u8]) -> Result<(u64, usize), Fault> {
    let (&first, rest) = input.split_first().ok_or(Fault::Short)?;
    let (bytes, min) = match first {
        253 => (2, 253),
        254 => (4, 1 << 16),
        255 => (8, 1 << 32),
        _ => {
            *input = rest;
            return Ok((u64::from(first), 1));
        }
    };
    let (digits, rest) = rest.split_at_checked(bytes).ok_or(Fault::Short)?;
    *input = rest;
    let value = digits.iter().fold(0, |value, &digit| value << 8 | u64::from(digit));
    if value < min { Err(Fault::Wrong) } else { Ok((value, 1 + bytes)) }
}

/// Reads a TLV element. Returns its type, which is 1 to 2^32 - 1, and its value.
fn element<'a>(input: &mut &'a [u8]) -> Result<(u64, &'a [u8]), Fault> {
    let (kind, bytes) = number(input)?;
    if kind == 0 || bytes > 5 {
        return Err(Fault::Wrong);
    }
    let (length, _) = number(input)?;
    let length = usize::try_from(length).map_err(|_| Fault::Short)?;
    let (value, rest) = input.split_at_checked(length).ok_or(Fault::Short)?;
    *input = rest;
    Ok((kind, value))
}

/// Parses the components of a name (NDN Packet Format, section "Name"). Component types range from
/// 1 to 65535. Types 1 and 2 are digests of 32 bytes.
fn components(mut name: &[u8]) -> Option<Vec<Component>> {
    let mut components = Vec::new();
    while !name.is_empty() {
        let (kind, value) = element(&mut name).ok()?;
        if kind > 65535 || kind <= 2 && value.len() != 32 {
            return None;
        }
        components.push((kind, value.to_vec()));
    }
    Some(components)
}

struct Interest {
    name: Vec<Component>,
    has_nonce: bool,
    /// Offset of the value of HopLimit in the frame.
    hop_limit: Option<usize>,
}

/// Parses the Interest in a frame. Returns `None` if the Interest is malformed.
fn parse_interest(frame: &[u8], outer: &Outer) -> Result<Option<Interest>, Outcome> {
    let mut value = &frame[outer.value.clone()];
    let kind = match outer.kind {
        100 => match inside_lp(value) {
            Some(Inside::Packet(mut packet)) => {
                let Ok((kind, inner)) = element(&mut packet) else { return Ok(None) };
                if !packet.is_empty() {
                    return Ok(None);
                }
                value = inner;
                kind
            }
            Some(Inside::Nothing) => return Err(Outcome::verdict(VERDICT_OTHER)),
            None => return Ok(None),
        },
        other => other,
    };
    match kind {
        5 => {
            // The offset of an element is computed from the number of bytes after it.
            Ok(interest_elements(value, |rest| outer.value.end - rest.len()))
        }
        6 => Err(Outcome::verdict(VERDICT_DATA)),
        _ => Err(Outcome::verdict(VERDICT_OTHER)),
    }
}

/// Types of the elements that may follow the name of an Interest, in their order. Each type has a
/// list of possible lengths, and an empty list allows any length (NDN Packet Format, section
/// "Interest Packet").
const ORDER: [(u64, &[usize]); 9] =
    [(33, &[0]), (18, &[0]), (30, &[]), (10, &[4]), (12, &[1, 2, 4, 8]), (34, &[1]), (36, &[]), (44, &[]), (46, &[])];

fn interest_elements(mut value: &[u8], offset: impl Fn(&[u8]) -> usize) -> Option<Interest> {
    let (7, name) = element(&mut value).ok()? else { return None };
    let name = components(name).filter(|name| !name.is_empty())?;
    let mut interest = Interest { name, has_nonce: false, hop_limit: None };
    let mut expected = &ORDER[..];
    while !value.is_empty() {
        let (kind, inner) = element(&mut value).ok()?;
        let Some(at) = expected.iter().position(|(known, _)| *known == kind) else {
            // The element is unknown or out of order. If the type is at most 31 or odd, the element
            // is critical, and the packet is malformed.
            if kind <= 31 || kind % 2 == 1 {
                return None;
            }
            continue;
        };
        let lengths = expected[at].1;
        if !lengths.is_empty() && !lengths.contains(&inner.len()) {
            return None;
        }
        expected = &expected[at + 1..];
        match kind {
            10 => interest.has_nonce = true,
            34 => interest.hop_limit = Some(offset(value) - 1),
            _ => {}
        }
    }
    Some(interest)
}

/// Content of an LpPacket.
enum Inside<'a> {
    /// Complete network packet, not parsed yet.
    Packet(&'a [u8]),
    /// The LpPacket contains no complete packet, because it is a fragment, a Nack or an idle
    /// packet.
    Nothing,
}

/// Parses the fields of an LpPacket (NDNLPv2). Their types must be in ascending order, and the
/// Fragment field must be the last one. Only fields that a receiver may ignore can occur
/// repeatedly. The types of these fields are multiples of 4 from 800 to 959.
fn inside_lp(mut value: &[u8]) -> Option<Inside<'_>> {
    let mut fields = Vec::new();
    while !value.is_empty() {
        fields.push(element(&mut value).ok()?);
    }
    let fragment = fields.pop_if(|(kind, _)| *kind == 80);
    let may_ignore = |kind: u64| (800..=959).contains(&kind) && kind.is_multiple_of(4);
    if fields.windows(2).any(|pair| pair[0].0 > pair[1].0 || pair[0].0 == pair[1].0 && !may_ignore(pair[0].0)) {
        return None;
    }
    let (mut index, mut count, mut is_nack) = (0, 1, false);
    for (kind, value) in fields {
        let integer = || match value.len() {
            1 | 2 | 4 | 8 => Some(value.iter().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte))),
            _ => None,
        };
        match kind {
            81 if value.len() == 8 => {}
            82 => index = integer()?,
            83 => count = integer()?,
            98 if (1..=32).contains(&value.len()) => {}
            800 => is_nack = true,
            _ if may_ignore(kind) => {}
            _ => return None,
        }
    }
    match fragment {
        Some((_, packet)) if !packet.is_empty() && index == 0 && count == 1 && !is_nack => Some(Inside::Packet(packet)),
        _ => Some(Inside::Nothing),
    }
}

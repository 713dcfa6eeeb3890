//! Packets of NDN, sound and not, and what carries them: an encoder that knows nothing of those in the crate.
#![allow(dead_code, reason = "each test uses a part of it")]

use godwit_wire::{
    Checksum, EthernetHeader, IpAddress, Ipv4Header, Ipv6Header, MacAddress, Udp, UdpHeader, VlanHeader, ethertype,
    protocol,
};

/// Numbers that look random.
pub(crate) trait Dice {
    fn below(&mut self, end: u32) -> u32;
}

pub(crate) fn number(value: u64) -> Vec<u8> {
    match value {
        0..=252 => vec![value as u8],
        253..=0xffff => [&[253][..], &(value as u16).to_be_bytes()].concat(),
        0x1_0000..=0xffff_ffff => [&[254][..], &(value as u32).to_be_bytes()].concat(),
        _ => [&[255][..], &value.to_be_bytes()].concat(),
    }
}

pub(crate) fn element(kind: u64, value: &[u8]) -> Vec<u8> {
    [number(kind), number(value.len() as u64), value.to_vec()].concat()
}

/// The same with numbers in more bytes than they need.
fn wide_element(kind: u64, value: &[u8]) -> Vec<u8> {
    let wide = |value: u64| [&[253][..], &(value as u16).to_be_bytes()].concat();
    [wide(kind), number(value.len() as u64), value.to_vec()].concat()
}

/// One component of few there are, so that names share prefixes.
pub(crate) fn component(dice: &mut impl Dice) -> Vec<u8> {
    match dice.below(40) {
        0 => element(8, &[]),
        1 => element(32, b"key"),
        2 => element(54, &[0, dice.below(3) as u8]),
        3 => element(8, &[b'x'; 253]),
        4 => element(1000, b"typed"),
        5 => element(1, &[dice.below(2) as u8; 32]),
        6 => element(2, &[7; 32]),
        choice => element(8, [&b"a"[..], b"b", b"example", b"images", b"ndn-host"][choice as usize % 5]),
    }
}

/// `least` of them, or fewer than `more` more.
pub(crate) fn components(dice: &mut impl Dice, least: u32, more: u32) -> Vec<u8> {
    let count = least + dice.below(more);
    (0..count).flat_map(|_| component(dice)).collect()
}

/// An Interest for a name, with elements as they come, some of them wrong.
pub(crate) fn interest(dice: &mut impl Dice, name: &[u8]) -> Vec<u8> {
    let mut inside = match dice.below(60) {
        0 => Vec::new(),
        1 => element(8, name),
        2 => wide_element(7, name),
        3 => element(0xf0, b""),
        _ => element(7, name),
    };
    let mut elements: Vec<(u64, Vec<u8>)> = Vec::new();
    if dice.below(3) == 0 {
        elements.push((33, vec![0; (dice.below(20) == 0).into()]));
    }
    if dice.below(3) == 0 {
        elements.push((18, vec![0; (dice.below(20) == 0).into()]));
    }
    if dice.below(6) == 0 {
        elements.push((30, element(7, &element(8, b"hint"))));
    }
    if dice.below(30) > 0 {
        elements.push((10, vec![0xa5; if dice.below(40) == 0 { 3 } else { 4 }]));
    }
    if dice.below(3) == 0 {
        elements.push((12, vec![1; [1, 2, 4, 8, 3][dice.below(5) as usize]]));
    }
    if dice.below(2) == 0 {
        let hops = [0, 1, 2, 64, 255][dice.below(5) as usize];
        elements.push((34, if dice.below(40) == 0 { vec![hops; 2] } else { vec![hops] }));
    }
    if dice.below(8) == 0 {
        elements.push((36, b"parameters".to_vec()));
        if dice.below(2) == 0 {
            elements.push((44, element(27, &[0])));
            elements.push((46, vec![9; 32]));
        }
    }
    if dice.below(4) == 0 {
        // Unknown: of both kinds, small and large; or one of these again; or in another order.
        let at = dice.below(elements.len() as u32 + 1) as usize;
        match dice.below(4) {
            0 if !elements.is_empty() => {
                let again = elements[at.min(elements.len() - 1)].clone();
                elements.insert(at, again);
            }
            1 if elements.len() > 1 => elements.swap(0, 1),
            2 => elements.insert(at, ([9, 31, 35, 801, 0x1_0001, 0xffff_ffff, 0][dice.below(7) as usize], vec![1])),
            _ => elements.insert(at, ([32, 40, 240, 800, 0x1_0000, 0xffff_fffe][dice.below(6) as usize], vec![1; 3])),
        }
    }
    for (kind, value) in elements {
        inside.extend(element(kind, &value));
    }
    element(5, &inside)
}

/// A packet in an LpPacket, with header fields as they come, some of them wrong.
pub(crate) fn link(dice: &mut impl Dice, packet: &[u8]) -> Vec<u8> {
    let mut fields: Vec<(u64, Vec<u8>)> = Vec::new();
    if dice.below(6) == 0 {
        fields.push((81, vec![1; if dice.below(6) == 0 { 4 } else { 8 }]));
    }
    if dice.below(6) == 0 {
        fields.push((82, vec![0; [1, 2, 4, 8, 3][dice.below(5) as usize]]));
    }
    if dice.below(6) == 0 {
        fields.push((83, vec![dice.below(3) as u8]));
    }
    if dice.below(3) == 0 {
        fields.push((98, vec![7; [0, 1, 8, 32, 33][dice.below(5) as usize]]));
    }
    if dice.below(8) == 0 {
        fields.push((800, element(801, &[50])));
    }
    if dice.below(4) == 0 {
        fields.push((832, vec![1]));
    }
    for _ in 0..dice.below(3) {
        fields.push((836, vec![2; 8]));
    }
    match dice.below(12) {
        0 => fields.push((817, vec![1])),
        1 => fields.push((2000, vec![1])),
        2 if fields.len() > 1 => fields.swap(0, 1),
        _ => {}
    }
    let mut inside: Vec<u8> = fields.iter().flat_map(|(kind, value)| element(*kind, value)).collect();
    match dice.below(12) {
        0 => {}
        1 => inside.extend(element(80, &[])),
        2 => inside.extend(element(80, &[packet, &[0]].concat())),
        3 => {
            inside.extend(element(80, packet));
            inside.extend(element(832, &[1]));
        }
        _ => inside.extend(element(80, packet)),
    }
    element(100, &inside)
}

/// How a packet comes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Ethernet,
    Udp4,
    Udp6,
}

/// A frame with a packet in it.
pub(crate) fn frame(way: Way, tagged: bool, port: u16, packet: &[u8]) -> Vec<u8> {
    let (inner, payload) = match way {
        Way::Ethernet => (0x8624, packet.to_vec()),
        Way::Udp4 => (ethertype::IPV4, udp4(port, packet)),
        Way::Udp6 => (ethertype::IPV6, udp6(port, packet)),
    };
    let mut frame = vec![0; 14];
    let (destination, source) = (MacAddress([2, 9, 8, 7, 6, 5]), MacAddress([2, 1, 2, 3, 4, 5]));
    let ethertype = if tagged { ethertype::VLAN } else { inner };
    EthernetHeader { destination, source, ethertype }.emit(&mut frame).unwrap();
    if tagged {
        frame.extend([0; 4]);
        let tag = VlanHeader { priority: 3, drop_eligible: false, id: 77, ethertype: inner };
        tag.emit(&mut frame[14..]).unwrap();
    }
    frame.extend(payload);
    frame
}

fn datagram(port: u16, packet: &[u8], pseudo_header: impl Fn(u32) -> Checksum) -> Vec<u8> {
    let mut datagram = vec![0; 8];
    let header = UdpHeader { source_port: 40_000, destination_port: port, payload_bytes: packet.len() };
    header.emit(&mut datagram).unwrap();
    datagram.extend(packet);
    let length = datagram.len() as u32;
    Udp::new_checked(&mut datagram[..]).unwrap().fill_checksum(pseudo_header(length));
    datagram
}

fn udp4(port: u16, packet: &[u8]) -> Vec<u8> {
    let (source, destination) = ([198, 51, 100, 9], [192, 0, 2, 1]);
    let pseudo =
        |length| Checksum::pseudo_header(IpAddress::V4(source), IpAddress::V4(destination), protocol::UDP, length);
    let datagram = datagram(port, packet, pseudo);
    let header = Ipv4Header {
        traffic_class: 0,
        identification: 7,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset_bytes: 0,
        ttl: 9,
        protocol: protocol::UDP,
        source,
        destination,
        options: if packet.len().is_multiple_of(7) { &[7, 7, 4, 0, 0, 0, 0, 1] } else { &[] },
        payload_bytes: datagram.len(),
    };
    let mut bytes = vec![0; header.header_bytes()];
    header.emit(&mut bytes).unwrap();
    bytes.extend(datagram);
    bytes
}

fn udp6(port: u16, packet: &[u8]) -> Vec<u8> {
    let (source, destination) = ([0x20; 16], [0xfd; 16]);
    let pseudo =
        |length| Checksum::pseudo_header(IpAddress::V6(source), IpAddress::V6(destination), protocol::UDP, length);
    let datagram = datagram(port, packet, pseudo);
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 5,
        payload_bytes: datagram.len() as u16,
        next_header: protocol::UDP,
        hop_limit: 9,
        source,
        destination,
    };
    let mut bytes = vec![0; 40];
    header.emit(&mut bytes).unwrap();
    bytes.extend(datagram);
    bytes
}

//! Packets of NDN, valid and damaged, in every carrier. The encoder is independent of the crate
//! under test.

use godwit_test_support::Random;
use godwit_test_support::frame::{FrameBuilder, ipv4_header};
use godwit_wire::Ipv4Header;

/// Returns a number in the encoding of NDN (NDN packet format, section 1.2).
pub fn number(value: u64) -> Vec<u8> {
    match value {
        0..=252 => vec![value as u8],
        253..=0xffff => [&[253][..], &(value as u16).to_be_bytes()].concat(),
        0x1_0000..=0xffff_ffff => [&[254][..], &(value as u32).to_be_bytes()].concat(),
        _ => [&[255][..], &value.to_be_bytes()].concat(),
    }
}

/// Returns a TLV element.
pub fn element(kind: u64, value: &[u8]) -> Vec<u8> {
    [number(kind), number(value.len() as u64), value.to_vec()].concat()
}

/// Returns a TLV element whose type has more bytes than it needs.
fn wide_element(kind: u64, value: &[u8]) -> Vec<u8> {
    let wide = |value: u64| [&[253][..], &(value as u16).to_be_bytes()].concat();
    [wide(kind), number(value.len() as u64), value.to_vec()].concat()
}

/// Returns one of a few components, so that names share prefixes.
pub fn component(random: &mut Random) -> Vec<u8> {
    match random.below(40) {
        0 => element(8, &[]),
        1 => element(32, b"key"),
        2 => element(54, &[0, random.below(3) as u8]),
        3 => element(8, &[b'x'; 253]),
        4 => element(1000, b"typed"),
        5 => element(1, &[random.below(2) as u8; 32]),
        6 => element(2, &[7; 32]),
        _ => element(8, random.pick(&[&b"a"[..], b"b", b"example", b"images", b"ndn-host"])),
    }
}

/// Returns at least `min` and fewer than `min + range` components.
pub fn components(random: &mut Random, min: u32, range: u32) -> Vec<u8> {
    let count = min + random.below(range);
    (0..count).flat_map(|_| component(random)).collect()
}

/// Returns an Interest for a name, with random elements. Some are invalid.
pub fn interest(random: &mut Random, name: &[u8]) -> Vec<u8> {
    let mut inside = match random.below(60) {
        0 => Vec::new(),
        1 => element(8, name),
        2 => wide_element(7, name),
        3 => element(0xf0, b""),
        _ => element(7, name),
    };
    let mut elements: Vec<(u64, Vec<u8>)> = Vec::new();
    if random.below(3) == 0 {
        elements.push((33, vec![0; (random.below(20) == 0).into()]));
    }
    if random.below(3) == 0 {
        elements.push((18, vec![0; (random.below(20) == 0).into()]));
    }
    if random.below(6) == 0 {
        elements.push((30, element(7, &element(8, b"hint"))));
    }
    if random.below(30) > 0 {
        elements.push((10, vec![0xa5; if random.below(40) == 0 { 3 } else { 4 }]));
    }
    if random.below(3) == 0 {
        elements.push((12, vec![1; random.pick(&[1, 2, 4, 8, 3])]));
    }
    if random.below(2) == 0 {
        let hops = random.pick(&[0, 1, 2, 64, 255]);
        elements.push((34, if random.below(40) == 0 { vec![hops; 2] } else { vec![hops] }));
    }
    if random.below(8) == 0 {
        elements.push((36, b"parameters".to_vec()));
        if random.below(2) == 0 {
            elements.push((44, element(27, &[0])));
            elements.push((46, vec![9; 32]));
        }
    }
    if random.below(4) == 0 {
        // A duplicate, another order, or an unknown element: critical or not, with a short or long
        // type.
        let at = random.below(elements.len() + 1);
        match random.below(4) {
            0 if !elements.is_empty() => {
                let again = elements[at.min(elements.len() - 1)].clone();
                elements.insert(at, again);
            }
            1 if elements.len() > 1 => elements.swap(0, 1),
            2 => elements.insert(at, (random.pick(&[9, 31, 35, 801, 0x1_0001, 0xffff_ffff, 0]), vec![1])),
            _ => elements.insert(at, (random.pick(&[32, 40, 240, 800, 0x1_0000, 0xffff_fffe]), vec![1; 3])),
        }
    }
    for (kind, value) in elements {
        inside.extend(element(kind, &value));
    }
    element(5, &inside)
}

/// Returns a packet in an LpPacket, with random header fields. Some are invalid.
pub fn link(random: &mut Random, packet: &[u8]) -> Vec<u8> {
    let mut fields: Vec<(u64, Vec<u8>)> = Vec::new();
    if random.below(6) == 0 {
        fields.push((81, vec![1; if random.below(6) == 0 { 4 } else { 8 }]));
    }
    if random.below(6) == 0 {
        fields.push((82, vec![0; random.pick(&[1, 2, 4, 8, 3])]));
    }
    if random.below(6) == 0 {
        fields.push((83, vec![random.below(3) as u8]));
    }
    if random.below(3) == 0 {
        fields.push((98, vec![7; random.pick(&[0, 1, 8, 32, 33])]));
    }
    if random.below(8) == 0 {
        fields.push((800, element(801, &[50])));
    }
    if random.below(4) == 0 {
        fields.push((832, vec![1]));
    }
    for _ in 0..random.below(3) {
        fields.push((836, vec![2; 8]));
    }
    match random.below(12) {
        0 => fields.push((817, vec![1])),
        1 => fields.push((2000, vec![1])),
        2 if fields.len() > 1 => fields.swap(0, 1),
        _ => {}
    }
    let mut inside: Vec<u8> = fields.iter().flat_map(|(kind, value)| element(*kind, value)).collect();
    match random.below(12) {
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

/// Protocol that carries a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Ethernet, with the EtherType of NDN.
    Ethernet,
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
}

/// All carriers.
pub const CARRIERS: [Carrier; 3] = [Carrier::Ethernet, Carrier::Udp4, Carrier::Udp6];

/// Returns a frame with a packet. `port` is the destination port for UDP. Some IPv4 headers have
/// options.
pub fn frame(carrier: Carrier, tagged: bool, port: u16, packet: &[u8]) -> Vec<u8> {
    let builder = FrameBuilder::new().macs([2, 9, 8, 7, 6, 5], [2, 1, 2, 3, 4, 5]);
    let builder = if tagged { builder.vlan(77) } else { builder };
    let ports = [40_000, port];
    match carrier {
        Carrier::Ethernet => builder.ethernet(0x8624, packet),
        Carrier::Udp4 => {
            let options: &[u8] = if packet.len().is_multiple_of(7) { &[7, 7, 4, 0, 0, 0, 0, 1] } else { &[] };
            let header = Ipv4Header { ttl: 9, options, ..ipv4_header([198, 51, 100, 9], [192, 0, 2, 1], 0) };
            builder.ipv4_header(header).udp(ports, packet)
        }
        Carrier::Udp6 => builder.ipv6([0x20; 16], [0xfd; 16]).ttl(9).udp(ports, packet),
    }
}

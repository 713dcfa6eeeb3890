//! Frames as they come, and as they should not come: the same every time.

use godwit_wire::ipv6_extension::{FragmentHeader, emit_extension};
use godwit_wire::{
    ArpHeader, EthernetHeader, Icmpv4Header, Ipv4, Ipv4Header, Ipv6Header, MacAddress, TcpHeader, UdpHeader,
    VlanHeader, ethertype, protocol,
};

/// Numbers that look random (splitmix64: Steele, Lea, Flood, OOPSLA 2014, figure 16).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        (self.next() % u64::from(end)) as u32
    }
}

/// Makes IPv4 addresses.
pub(crate) type Address<'a> = &'a dyn Fn(&mut Random) -> [u8; 4];
/// Makes payloads of a given size.
pub(crate) type Payload<'a> = &'a dyn Fn(&mut Random, usize) -> Vec<u8>;

pub(crate) fn any_address(random: &mut Random) -> [u8; 4] {
    (random.next() as u32).to_be_bytes()
}

/// Bytes, or text of few letters.
pub(crate) fn any_payload(random: &mut Random, bytes: usize) -> Vec<u8> {
    match random.below(2) {
        0 => (0..bytes).map(|_| random.next() as u8).collect(),
        _ => (0..bytes).map(|_| b"abcd/ AB"[random.below(8) as usize]).collect(),
    }
}

/// At least `count` frames: valid ones of all kinds, some cut at every length, and valid ones with something changed.
pub(crate) fn frames(seed: u64, count: usize, address: Address<'_>, payload: Payload<'_>) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let random = &mut random;
    let mut frames = vec![Vec::new()];
    for kind in 0..KINDS {
        let whole = frame(random, kind, 20, address, payload);
        frames.extend((0..=whole.len()).map(|length| whole[..length].to_vec()));
    }
    while frames.len() < count {
        let kind = random.below(KINDS);
        let bytes = match random.below(4) {
            0 => random.below(600) as usize,
            _ => random.below(80) as usize,
        };
        let mut frame = frame(random, kind, bytes, address, payload);
        match random.below(4) {
            0 => damage(random, &mut frame),
            1 => change_ipv4(random, &mut frame, address),
            2 => pad(random, &mut frame),
            _ => {}
        }
        frames.push(frame);
    }
    // The longest that the arena takes by default.
    frames.push(frame(random, 0, 1518 - 42, address, payload));
    frames
}

/// Kinds of frames that [`frame`] knows.
const KINDS: u32 = 14;

/// A valid frame with so many bytes of payload.
fn frame(random: &mut Random, kind: u32, bytes: usize, address: Address<'_>, payload: Payload<'_>) -> Vec<u8> {
    let data = payload(random, bytes);
    let (source, destination) = (address(random), address(random));
    let segment = tcp(random, &data);
    let v4 = |random: &mut Random, number, options: &[u8], data: &[u8]| {
        let mut header = ipv4_header(random, number, source, destination);
        header.options = options;
        ipv4(&header, data)
    };
    match kind {
        0 | 1 => ethernet(&[], ethertype::IPV4, &v4(random, protocol::UDP, &[], &udp(&data))),
        2 | 3 => ethernet(&[], ethertype::IPV4, &v4(random, protocol::TCP, &[], &segment)),
        4 => {
            // Half of them without.
            let options = options(random.below(10).saturating_sub(4));
            ethernet(&[ethertype::VLAN], ethertype::IPV4, &v4(random, protocol::UDP, &options, &udp(&data)))
        }
        5 => {
            let options = options(1 + random.below(5));
            ethernet(&[], ethertype::IPV4, &v4(random, protocol::TCP, &options, &segment))
        }
        6 => {
            let mut header = ipv4_header(random, protocol::UDP, source, destination);
            header.more_fragments = random.below(2) == 0;
            header.fragment_offset_bytes = if header.more_fragments { 0 } else { 8 * random.below(100) as u16 };
            header.dont_fragment = false;
            ethernet(&[], ethertype::IPV4, &ipv4(&header, &data))
        }
        7 => {
            let mut icmp = vec![0; 8];
            Icmpv4Header { kind: 8, code: 0, rest: 1 }.emit(&mut icmp).unwrap();
            icmp.extend(data);
            ethernet(&[], ethertype::IPV4, &v4(random, protocol::ICMP, &[], &icmp))
        }
        8 => ethernet(&[], ethertype::IPV6, &ipv6(random, protocol::UDP, &udp(&data))),
        9 => ethernet(&[ethertype::VLAN], ethertype::IPV6, &ipv6(random, protocol::TCP, &segment)),
        10 => {
            let mut packet = vec![0; 8];
            emit_extension(protocol::FRAGMENT, &[1, 2, 0, 0], &mut packet).unwrap();
            let fragment =
                FragmentHeader { next_header: protocol::UDP, offset_bytes: 0, more_fragments: true, identification: 5 };
            packet.extend([0; 8]);
            fragment.emit(&mut packet[8..]).unwrap();
            packet.extend(udp(&data));
            ethernet(&[], ethertype::IPV6, &ipv6(random, protocol::HOP_BY_HOP, &packet))
        }
        11 => {
            let arp = ArpHeader {
                operation: 1,
                sender_hardware: MacAddress([2, 0, 0, 0, 0, 1]),
                sender_protocol: source,
                target_hardware: MacAddress::default(),
                target_protocol: destination,
            };
            let mut packet = vec![0; 46];
            arp.emit(&mut packet).unwrap();
            ethernet(&[], ethertype::ARP, &packet)
        }
        12 => {
            let tags = [[ethertype::SERVICE_VLAN, ethertype::VLAN], [ethertype::VLAN; 2]][random.below(2) as usize];
            ethernet(&tags, ethertype::IPV4, &v4(random, protocol::UDP, &[], &udp(&data)))
        }
        _ => ethernet(&[], data.len() as u16, &data),
    }
}

/// IPv4 options, 8 bytes each; 5 fill the header.
fn options(count: u32) -> Vec<u8> {
    [7, 7, 4, 0, 0, 0, 0, 1].repeat(count as usize)
}

fn ipv4_header(random: &mut Random, number: u8, source: [u8; 4], destination: [u8; 4]) -> Ipv4Header<'static> {
    Ipv4Header {
        traffic_class: random.next() as u8,
        identification: random.next() as u16,
        dont_fragment: random.below(2) == 0,
        more_fragments: false,
        fragment_offset_bytes: 0,
        ttl: [0, 1, 2, 64, 128, 255][random.below(6) as usize],
        protocol: number,
        source,
        destination,
        options: &[],
        payload_bytes: 0,
    }
}

fn ipv4(header: &Ipv4Header<'_>, data: &[u8]) -> Vec<u8> {
    let header = Ipv4Header { payload_bytes: data.len(), ..*header };
    let mut packet = vec![0; header.header_bytes()];
    header.emit(&mut packet).unwrap();
    packet.extend(data);
    packet
}

fn ipv6(random: &mut Random, next_header: u8, data: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 40];
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: random.below(1 << 20),
        payload_bytes: data.len() as u16,
        next_header,
        hop_limit: 64,
        source: std::array::from_fn(|_| random.next() as u8),
        destination: std::array::from_fn(|_| random.next() as u8),
    };
    header.emit(&mut packet).unwrap();
    packet.extend(data);
    packet
}

fn udp(data: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; 8];
    UdpHeader { source_port: 4000, destination_port: 53, payload_bytes: data.len() }.emit(&mut datagram).unwrap();
    datagram.extend(data);
    datagram
}

fn tcp(random: &mut Random, data: &[u8]) -> Vec<u8> {
    let options: &[u8] = [&[], &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2][..]][random.below(2) as usize];
    let header = TcpHeader {
        source_port: 40_000,
        destination_port: 80,
        sequence: random.next() as u32,
        acknowledgment: 0,
        flags: 0x18,
        window: 1000,
        urgent: 0,
        options,
    };
    let mut segment = vec![0; header.header_bytes()];
    header.emit(&mut segment).unwrap();
    segment.extend(data);
    segment
}

/// A frame around `packet`, with a tag for each of `tags`.
pub(crate) fn ethernet(tags: &[u16], inner: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14 + 4 * tags.len()];
    let types: Vec<u16> = tags.iter().copied().chain([inner]).collect();
    let (destination, source) = (MacAddress([2, 9, 8, 7, 6, 5]), MacAddress([2, 1, 2, 3, 4, 5]));
    EthernetHeader { destination, source, ethertype: types[0] }.emit(&mut frame).unwrap();
    for (at, inner) in types[1..].iter().enumerate() {
        let tag = VlanHeader { priority: 5, drop_eligible: false, id: 100 + at as u16, ethertype: *inner };
        tag.emit(&mut frame[14 + 4 * at..]).unwrap();
    }
    frame.extend(packet);
    frame
}

/// Changes some bytes, mostly of the headers, or the length.
pub(crate) fn damage(random: &mut Random, frame: &mut Vec<u8>) {
    for _ in 0..1 + random.below(3) {
        if frame.is_empty() {
            return;
        }
        let within = if random.below(4) == 0 { frame.len() } else { frame.len().min(60) };
        let at = random.below(within as u32) as usize;
        match random.below(3) {
            0 => frame[at] ^= 1 << random.below(8),
            1 => frame[at] = random.next() as u8,
            _ => frame.truncate(at.max(12)),
        }
    }
}

/// Changes a field of the IPv4 header, where there is one, and mostly makes its checksum right again.
fn change_ipv4(random: &mut Random, frame: &mut [u8], address: Address<'_>) {
    let header = match frame.get(12..18) {
        Some([0x08, 0x00, ..]) => 14,
        Some([0x81, 0x00, _, _, 0x08, 0x00]) => 18,
        _ => return,
    };
    let Ok(mut packet) = Ipv4::new_checked(&mut frame[header..]) else {
        return;
    };
    let total = packet.total_bytes();
    match random.below(6) {
        0 => packet.set_total_bytes([0, 19, 20, 21, 24, 28, total - 1, total + 1, u16::MAX][random.below(9) as usize]),
        1 => packet.set_version_ihl(random.next() as u8),
        2 => packet.set_version_ihl(0x40 | random.below(16) as u8),
        3 => packet.set_ttl(random.below(3) as u8),
        4 => packet.set_source(address(random)),
        _ => packet.set_flags_offset(random.next() as u16),
    }
    if random.below(4) > 0 {
        packet.fill_checksum();
    }
}

/// Bytes behind the packet, as Ethernet has them up to 60 bytes.
pub(crate) fn pad(random: &mut Random, frame: &mut Vec<u8>) {
    let bytes = 1 + random.below(46);
    frame.extend((0..bytes).map(|_| b"abcd"[random.below(4) as usize]));
}

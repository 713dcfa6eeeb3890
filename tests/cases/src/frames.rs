//! Random frames: valid ones of all kinds, truncated ones, and damaged ones. The same seed gives
//! the same frames.

use godwit_test_support::Random;
use godwit_test_support::frame::{FrameBuilder, ipv4, ipv6, ipv6_header, tcp, tcp_header, udp};
use godwit_wire::ipv6_extension::{FragmentHeader, emit_extension};
use godwit_wire::{ArpHeader, Icmpv4Header, Ipv4, Ipv4Header, Ipv6Header, MacAddress, TcpHeader, ethertype, protocol};

/// Generator of IPv4 addresses.
pub type Address<'a> = &'a dyn Fn(&mut Random) -> [u8; 4];
/// Generator of payloads with a given number of bytes.
pub type Payload<'a> = &'a dyn Fn(&mut Random, usize) -> Vec<u8>;

/// Returns any IPv4 address.
pub fn any_address(random: &mut Random) -> [u8; 4] {
    random.array()
}

/// Returns random bytes, or text of eight characters.
pub fn any_payload(random: &mut Random, bytes: usize) -> Vec<u8> {
    match random.below(2) {
        0 => random.bytes(bytes),
        _ => (0..bytes).map(|_| random.pick(b"abcd/ AB")).collect(),
    }
}

/// Returns at least `count` frames: one of each kind truncated at every length, then random ones,
/// of which three quarters are changed.
pub fn frames(seed: u64, count: usize, address: Address<'_>, payload: Payload<'_>) -> Vec<Vec<u8>> {
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
            0 => random.below(600),
            _ => random.below(80),
        };
        let mut frame = frame(random, kind, bytes, address, payload);
        match random.below(4) {
            0 => random.damage(&mut frame, 3),
            1 => change_ipv4(random, &mut frame, address),
            2 => pad(random, &mut frame),
            _ => {}
        }
        frames.push(frame);
    }
    // The longest frame that an arena accepts by default.
    frames.push(frame(random, 0, 1518 - 42, address, payload));
    frames
}

/// Addresses every sixteenth frame to a group of stations.
pub fn address_to_groups(frames: &mut [Vec<u8>]) {
    for first in frames.iter_mut().step_by(16).filter_map(|frame| frame.first_mut()) {
        *first |= 1;
    }
}

/// Number of kinds of [`frame`].
const KINDS: u32 = 14;
const UDP_PORTS: [u16; 2] = [4000, 53];

/// Returns a valid frame with `bytes` bytes of payload.
fn frame(random: &mut Random, kind: u32, bytes: usize, address: Address<'_>, payload: Payload<'_>) -> Vec<u8> {
    let data = payload(random, bytes);
    let (source, destination) = (address(random), address(random));
    let segment = random_tcp(random, &data);
    let v4 = |random: &mut Random, number, options: &[u8], data: &[u8]| {
        let mut header = ipv4_header(random, number, source, destination);
        header.options = options;
        ipv4(&header, data)
    };
    match kind {
        0 | 1 => ethernet(&[], ethertype::IPV4, &v4(random, protocol::UDP, &[], &udp(UDP_PORTS, &data))),
        2 | 3 => ethernet(&[], ethertype::IPV4, &v4(random, protocol::TCP, &[], &segment)),
        4 => {
            // Half of these frames have no options.
            let options = options(random.below(10_u32).saturating_sub(4));
            ethernet(&[ethertype::VLAN], ethertype::IPV4, &v4(random, protocol::UDP, &options, &udp(UDP_PORTS, &data)))
        }
        5 => {
            let options = options(1 + random.below(5));
            ethernet(&[], ethertype::IPV4, &v4(random, protocol::TCP, &options, &segment))
        }
        6 => {
            let mut header = ipv4_header(random, protocol::UDP, source, destination);
            header.more_fragments = random.below(2) == 0;
            header.fragment_offset_bytes = if header.more_fragments { 0 } else { 8 * random.below(100) };
            header.dont_fragment = false;
            ethernet(&[], ethertype::IPV4, &ipv4(&header, &data))
        }
        7 => {
            let mut icmp = vec![0; 8];
            Icmpv4Header { kind: 8, code: 0, rest: 1 }.emit(&mut icmp).unwrap();
            icmp.extend(data);
            ethernet(&[], ethertype::IPV4, &v4(random, protocol::ICMP, &[], &icmp))
        }
        8 => ethernet(&[], ethertype::IPV6, &random_ipv6(random, protocol::UDP, &udp(UDP_PORTS, &data))),
        9 => ethernet(&[ethertype::VLAN], ethertype::IPV6, &random_ipv6(random, protocol::TCP, &segment)),
        10 => {
            let mut packet = vec![0; 8];
            emit_extension(protocol::FRAGMENT, &[1, 2, 0, 0], &mut packet).unwrap();
            let fragment =
                FragmentHeader { next_header: protocol::UDP, offset_bytes: 0, more_fragments: true, identification: 5 };
            packet.extend([0; 8]);
            fragment.emit(&mut packet[8..]).unwrap();
            packet.extend(udp(UDP_PORTS, &data));
            ethernet(&[], ethertype::IPV6, &random_ipv6(random, protocol::HOP_BY_HOP, &packet))
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
            let tags = random.pick(&[[ethertype::SERVICE_VLAN, ethertype::VLAN], [ethertype::VLAN; 2]]);
            ethernet(&tags, ethertype::IPV4, &v4(random, protocol::UDP, &[], &udp(UDP_PORTS, &data)))
        }
        _ => ethernet(&[], data.len() as u16, &data),
    }
}

/// Returns `count` IPv4 options of 8 bytes. Five of them fill the header.
fn options(count: u32) -> Vec<u8> {
    [7, 7, 4, 0, 0, 0, 0, 1].repeat(count as usize)
}

fn ipv4_header(random: &mut Random, number: u8, source: [u8; 4], destination: [u8; 4]) -> Ipv4Header<'static> {
    Ipv4Header {
        traffic_class: random.next_u8(),
        identification: random.next_u16(),
        dont_fragment: random.below(2) == 0,
        more_fragments: false,
        fragment_offset_bytes: 0,
        ttl: random.pick(&[0, 1, 2, 64, 128, 255]),
        protocol: number,
        source,
        destination,
        options: &[],
        payload_bytes: 0,
    }
}

fn random_ipv6(random: &mut Random, next_header: u8, data: &[u8]) -> Vec<u8> {
    let header = ipv6_header(random.array(), random.array(), next_header);
    ipv6(&Ipv6Header { flow_label: random.below(1 << 20), ..header }, data)
}

fn random_tcp(random: &mut Random, data: &[u8]) -> Vec<u8> {
    let options: &[u8] = random.pick(&[&[], &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]]);
    tcp(&TcpHeader { sequence: random.next_u32(), options, ..tcp_header([40_000, 80]) }, data)
}

/// Returns a frame with the payload `packet` of EtherType `inner`, and a tag for each EtherType in
/// `tags`.
pub fn ethernet(tags: &[u16], inner: u16, packet: &[u8]) -> Vec<u8> {
    let builder = FrameBuilder::new().macs([2, 9, 8, 7, 6, 5], [2, 1, 2, 3, 4, 5]);
    tags.iter().zip(100..).fold(builder, |builder, (&tag, id)| builder.tag(tag, id)).ethernet(inner, packet)
}

/// Changes a field of the IPv4 header, if the frame has one. Three of four changes also correct the
/// checksum.
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
        0 => packet.set_total_bytes(random.pick(&[0, 19, 20, 21, 24, 28, total - 1, total + 1, u16::MAX])),
        1 => packet.set_version_ihl(random.next_u8()),
        2 => packet.set_version_ihl(0x40 | random.below(16)),
        3 => packet.set_ttl(random.below(3)),
        4 => packet.set_source(address(random)),
        _ => packet.set_flags_offset(random.next_u16()),
    }
    if random.below(4) > 0 {
        packet.fill_checksum();
    }
}

/// Appends up to 46 bytes after the packet, like the padding of Ethernet.
pub fn pad(random: &mut Random, frame: &mut Vec<u8>) {
    let bytes = 1 + random.below(46);
    frame.extend((0..bytes).map(|_| random.pick(b"abcd")));
}

use godwit_wire::{Icmpv4, Icmpv6, Ipv4, Ipv6, protocol};
use proptest::prelude::*;

use super::*;
use crate::testing::{build_error, build_ok};

mod kernel;

const STANZA: &str = r#"
    [[interface]]
    port = "b"
    mac = "02:00:00:00:00:0b"
    addresses = ["10.0.0.1/24", "2001:db8::1/64"]
    [[interface]]
    port = "c"
    mac = "02:00:00:00:00:0c"
    addresses = ["10.3.0.1"]
"#;
const OURS: [u8; 6] = [2, 0, 0, 0, 0, 11];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
const OURS6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const THEIRS6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

fn settings() -> Settings {
    let document = DeTable::parse(STANZA).unwrap();
    let config: Config = crate::config::read(document).unwrap();
    let ports = ["a", "b", "c"].map(str::to_owned);
    config.resolve(&BuildContext { name: "under test", ports: &ports, directory: std::path::Path::new(".") }).unwrap()
}

fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    answers::answer(&settings(), 1, frame)
}

fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [OURS, THEIRS].concat();
    frame.extend(ether_type.to_be_bytes());
    frame.extend(payload);
    frame
}

fn who_has(target: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
    packet.extend(THEIRS);
    packet.extend([10, 0, 0, 7]);
    packet.extend([0; 6]);
    packet.extend(target);
    packet.resize(46, 0);
    let mut frame = ethernet(0x0806, &packet);
    frame[..6].fill(0xff);
    frame
}

#[test]
fn answers_arp_requests_for_addresses_of_the_port() {
    let reply = answer(&who_has([10, 0, 0, 1])).unwrap();
    assert_eq!((&reply[..6], &reply[6..12]), (&THEIRS[..], &OURS[..]));
    let mut expected = vec![0, 1, 8, 0, 6, 4, 0, 2];
    expected.extend(OURS);
    expected.extend([10, 0, 0, 1]);
    expected.extend(THEIRS);
    expected.extend([10, 0, 0, 7]);
    assert_eq!(&reply[14..42], &expected);
    // The responder does not answer these frames. Some ask for an address of another port, arrive
    // on a port without addresses, or are truncated.
    assert_eq!(answer(&who_has([10, 3, 0, 1])), None);
    assert_eq!(answer(&who_has([10, 0, 0, 2])), None);
    assert_eq!(answers::answer(&settings(), 0, &who_has([10, 0, 0, 1])), None);
    let mut reply = who_has([10, 0, 0, 1]);
    reply[21] = 2;
    assert_eq!(answer(&reply), None);
    assert_eq!(answer(&who_has([10, 0, 0, 1])[..41]), None);
}

#[test]
fn answers_arp_requests_with_a_vlan_tag() {
    let mut frame = who_has([10, 0, 0, 1]);
    frame.splice(12..12, [0x81, 0, 0, 5]);
    assert_eq!(&answer(&frame).unwrap()[12..18], &[0x81, 0, 0, 5, 8, 6]);
}

fn ping(destination: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0; 20 + 8 + 20];
    let header = godwit_wire::Ipv4Header {
        traffic_class: 0,
        identification: 9,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset_bytes: 0,
        ttl: 3,
        protocol: protocol::ICMP,
        source: [10, 0, 0, 7],
        destination,
        options: &[],
        payload_bytes: 28,
    };
    header.emit(&mut packet).unwrap();
    packet[20] = 8;
    packet[24..48].copy_from_slice(&[5; 24]);
    Icmpv4::new_checked(&mut packet[20..]).unwrap().fill_checksum();
    ethernet(0x0800, &packet)
}

#[test]
fn answers_to_frames_for_a_group_come_from_the_interface() {
    let ping6 = icmp6(THEIRS6, OURS6, 64, &[128, 0, 0, 0, 1, 2, 3, 4]);
    for request in [ping([10, 0, 0, 1]), ping6] {
        for group in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0xff, 0, 0, 1]] {
            let mut frame = request.clone();
            frame[..6].copy_from_slice(&group);
            let reply = answer(&frame).unwrap();
            assert_eq!((&reply[..6], &reply[6..12]), (&THEIRS[..], &OURS[..]));
            assert_eq!(answers::answer(&settings(), 0, &frame), None);
        }
    }
}

#[test]
fn answers_echo_requests_to_any_address_of_this_machine() {
    for destination in [[10, 0, 0, 1], [10, 3, 0, 1]] {
        let reply = answer(&ping(destination)).unwrap();
        assert_eq!((&reply[..6], &reply[6..12]), (&THEIRS[..], &OURS[..]));
        let ip = Ipv4::new_checked(&reply[14..]).unwrap();
        ip.verify_checksum().unwrap();
        assert_eq!((ip.source(), ip.destination(), ip.ttl()), (destination, [10, 0, 0, 7], 64));
        let icmp = Icmpv4::new_checked(ip.payload()).unwrap();
        icmp.verify_checksum().unwrap();
        assert_eq!((icmp.kind(), &ip.payload()[4..]), (0, &[5; 24][..]));
    }
    assert_eq!(answer(&ping([10, 0, 0, 2])), None);
    for (at, byte) in [(14 + 20, 0), (14 + 30, 6), (14 + 10, 1), (14 + 6, 0x20)] {
        let mut frame = ping([10, 0, 0, 1]);
        frame[at] ^= 0xff;
        frame[at] = byte;
        assert_eq!(answer(&frame), None, "byte {at}");
    }
}

/// A group address is never the source of a frame.
#[test]
fn answers_to_group_frames_come_from_the_interface() {
    let mut broadcast = ping([10, 0, 0, 1]);
    broadcast[..6].fill(0xff);
    let reply = answer(&broadcast).unwrap();
    assert_eq!((&reply[..6], &reply[6..12]), (&THEIRS[..], &OURS[..]));
    let mut other_port = ping([10, 0, 0, 1]);
    other_port[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 1]);
    assert_eq!(answers::answer(&settings(), 0, &other_port), None, "port 0 has no interface");
}

fn icmp6(source: [u8; 16], destination: [u8; 16], hop_limit: u8, message: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, message.len() as u8, protocol::ICMPV6, hop_limit];
    packet.extend(source);
    packet.extend(destination);
    packet.extend(message);
    let pseudo = Ipv6::new_checked(&packet[..]).unwrap().pseudo_header(protocol::ICMPV6, message.len() as u32);
    Icmpv6::new_checked(&mut packet[40..]).unwrap().fill_checksum(pseudo);
    ethernet(0x86dd, &packet)
}

fn sound6(reply: &[u8]) -> (Vec<u8>, [u8; 16], [u8; 16]) {
    let ip = Ipv6::new_checked(&reply[14..]).unwrap();
    let pseudo = ip.pseudo_header(protocol::ICMPV6, ip.payload().len() as u32);
    Icmpv6::new_checked(ip.payload()).unwrap().verify_checksum(pseudo).unwrap();
    (ip.payload().to_vec(), ip.source(), ip.destination())
}

#[test]
fn answers_neighbour_solicitations_and_ipv6_echo_requests() {
    let mut solicitation = vec![135, 0, 0, 0, 0, 0, 0, 0];
    solicitation.extend(OURS6);
    let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 1];
    for (source, to, flags) in
        [(THEIRS6, THEIRS6, 0xe0), ([0; 16], [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 0xa0)]
    {
        let reply = answer(&icmp6(source, group, 255, &solicitation)).unwrap();
        let (message, from, destination) = sound6(&reply);
        assert_eq!((from, destination, reply[14 + 7]), (OURS6, to, 255));
        assert_eq!((&message[..2], message[4], &message[8..24]), (&[136, 0][..], flags, &OURS6[..]));
        assert_eq!((&message[24..26], &message[26..], &reply[6..12]), (&[2, 1][..], &OURS[..], &OURS[..]));
    }
    assert_eq!(answer(&icmp6(THEIRS6, group, 254, &solicitation)), None, "a solicitation that was forwarded");
    solicitation[23] = 9;
    assert_eq!(answer(&icmp6(THEIRS6, group, 255, &solicitation)), None, "a solicitation for another station");

    let ping = [128, 0, 0, 0, 1, 2, 3, 4, 5, 6];
    let (message, source, destination) = sound6(&answer(&icmp6(THEIRS6, OURS6, 64, &ping)).unwrap());
    assert_eq!((source, destination, message[0], &message[4..]), (OURS6, THEIRS6, 129, &ping[4..]));
    assert_eq!(answer(&icmp6(THEIRS6, THEIRS6, 64, &ping)), None);
}

#[test]
fn rejects_invalid_stanzas_with_the_reason() {
    let one = |port: &str, mac: &str, address: &str| {
        format!("[[interface]]\nport = \"{port}\"\nmac = \"{mac}\"\naddresses = [\"{address}\"]\n")
    };
    let good = one("a", "02:00:00:00:00:01", "10.0.0.1/24");
    build_ok(&KIND, &good, &["a"]);
    for (stanza, part) in [
        (String::new(), "interface"),
        (one("x", "02:00:00:00:00:01", "10.0.0.1"), "the ports are: a"),
        (good.repeat(2), "two interfaces"),
        (one("a", "03:00:00:00:00:01", "10.0.0.1"), "group address"),
        (one("a", "02:00", "10.0.0.1"), "not an Ethernet address"),
        (one("a", "02:00:00:00:00:01", "10.0.0.1/33"), "10.0.0.1/33"),
        (one("a", "02:00:00:00:00:01", "224.0.0.1"), "224.0.0.1"),
        (one("a", "02:00:00:00:00:01", "here"), "\"here\""),
    ] {
        let error = build_error(&KIND, &stanza, &["a"]).to_string();
        assert!(error.contains(part), "{error}");
    }
}

proptest! {
    #[test]
    fn accepts_arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..4, port in 0u16..4) {
        let mut frame = [vec![2; 12], bytes].concat();
        if let Some(start) = frame.get_mut(12..16) {
            start.copy_from_slice(&[[8, 6, 0, 1], [8, 0, 0x45, 0], [0x86, 0xdd, 0x60, 0], [0x81, 0, 0, 1]][kind]);
        }
        let answer = answers::answer(&settings(), port, &frame);
        prop_assert!(answer.is_none_or(|answer| answer.len() <= frame.len() + usize::from(CONTRACT.tailroom_bytes)));
    }
}

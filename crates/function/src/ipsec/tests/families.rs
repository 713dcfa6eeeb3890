//! Tests of the SA lookup for IPv6, AH and ESP in UDP.

use super::*;

const PEER: &str = "2001:db8::2";
const US: &str = "2001:db8::1";

fn address(text: &str) -> [u8; 16] {
    text.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

fn frame6(source: &str, destination: &str, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([next_header, 64]);
    frame.extend(address(source));
    frame.extend(address(destination));
    frame.extend(payload);
    frame
}

fn sa6(name: &str, spi: u32, more: &str) -> String {
    sa(name, spi, "in", more).replace("192.0.2.2", PEER).replace("192.0.2.1", US)
}

fn ah(name: &str, spi: u32) -> String {
    let key = "000102030405060708090a0b0c0d0e0f10111213";
    format!(
        "[[sa]]\nname = \"{name}\"\nspi = {spi}\ndirection = \"in\"\nprotocol = \"ah\"\nsource = \"192.0.2.2\"\n\
         destination = \"192.0.2.1\"\nauthentication = \"hmac-sha1-96\"\nauthentication_key = \"{key}\"\n"
    )
}

const BYPASS: Work = Work::Done(Outcome { verdict: VERDICT_BYPASS, reason: 0, port: 0, value: 0 });

fn esp(spi: u32) -> Vec<u8> {
    [spi.to_be_bytes(), [0, 0, 0, 9]].concat()
}

#[test]
fn finds_the_sa_after_ipv6_extension_headers() {
    let function = ipsec(&(sa6("six", 0x2001, "") + "[[policy]]\naction = \"bypass\"\n"));
    let after = |kind: u8, header: [u8; 8]| {
        [&header[..], &esp(0x2001)].concat().into_iter().fold((kind, vec![]), |(kind, mut bytes), byte| {
            bytes.push(byte);
            (kind, bytes)
        })
    };
    let (hop, hop_esp) = after(0, [50, 0, 1, 4, 0, 0, 0, 0]);
    let (fragment, first_esp) = after(44, [50, 0, 0, 1, 0, 0, 0, 7]);
    let (_, later_esp) = after(44, [50, 0, 0, 8, 0, 0, 0, 7]);
    let (_, atomic_esp) = after(44, [50, 0, 0, 0, 0, 0, 0, 7]);
    let frames = [
        frame6(PEER, US, 50, &esp(0x2001)),
        frame6(PEER, US, hop, &hop_esp),
        frame6(PEER, US, fragment, &atomic_esp),
        frame6(PEER, US, fragment, &first_esp),
        frame6(PEER, US, fragment, &later_esp),
        frame6(PEER, US, 50, &esp(0x2002)),
        frame6(PEER, US, 50, &[0, 0, 0x20, 1]),
        frame6(PEER, "2001:db8::9", 50, &esp(0x2001)),
        frame6(PEER, US, 58, &[]),
        frame6(PEER, US, 0, &[50]),
        frame6(PEER, US, 50, &esp(0x2001))[..60].to_vec(),
        frame([192, 0, 2, 2], [192, 0, 2, 1], 50, 0, &esp(0x2001)),
    ];
    let expected = [
        decrypt(0, 9),
        decrypt(0, 9),
        decrypt(0, 9),
        drop(DROP_FRAGMENT),
        drop(DROP_FRAGMENT),
        drop(DROP_NO_SA),
        drop(DROP_MALFORMED),
        BYPASS,
        BYPASS,
        drop(DROP_MALFORMED),
        drop(DROP_TRUNCATED),
        BYPASS,
    ];
    assert_eq!(prepare(&function, 0, 1, &frames), expected);
}

#[test]
fn policies_of_both_families_match_in_order() {
    let stanza = sa("west", 0x1001, "out", "")
        + r#"
        [[policy]]
        action = "bypass"
        protocol = "icmpv6"
        [[policy]]
        action = "protect"
        destination = "2001:db8:2::/48"
        sa = "west"
        [[policy]]
        action = "discard"
        protocol = "udp"
        destination_ports = 53
        [[policy]]
        action = "bypass"
        destination = "0.0.0.0/0"
    "#;
    let function = ipsec(&stanza);
    let ports = |destination: u16| [[0, 9], destination.to_be_bytes()].concat();
    let frames = [
        frame6(US, "2001:db8:2::5", 6, &ports(1)),
        frame6(US, "2001:db8:2::5", 58, &[]),
        frame6(US, "2001:db8:3::5", 17, &ports(53)),
        frame6(US, "2001:db8:3::5", 17, &ports(54)),
        frame([10, 0, 0, 1], [10, 0, 0, 2], 17, 0, &ports(53)),
        frame([10, 0, 0, 1], [10, 0, 0, 2], 17, 0, &ports(54)),
    ];
    let discarded = drop(DROP_POLICY_DISCARD);
    assert_eq!(prepare(&function, 0, 1, &frames), [encrypt(0, 1), BYPASS, discarded, discarded, discarded, BYPASS]);
}

#[test]
fn ah_packets_find_only_ah_sas() {
    let function = ipsec(&(ah("ah", 0x3001) + &sa("esp", 0x2001, "in", "")));
    let header = |spi: u32| [[6, 4, 0, 0], spi.to_be_bytes(), [0, 0, 0, 5]].concat();
    let (peer, us) = ([192, 0, 2, 2], [192, 0, 2, 1]);
    let frames = [
        frame(peer, us, 51, 0, &header(0x3001)),
        frame(peer, us, 51, 0, &header(0x2001)),
        frame(peer, us, 50, 0, &esp(0x3001)),
        frame(peer, us, 50, 0, &esp(0x2001)),
        frame(peer, us, 51, 0, &header(0x3001)[..8]),
    ];
    let variant = suite::variant(suite::number("ah_sha1").unwrap(), true);
    let expected = [
        Work::Run { variant, parameter: parameter(0, 5) },
        drop(DROP_NO_SA),
        drop(DROP_NO_SA),
        decrypt(1, 9),
        drop(DROP_MALFORMED),
    ];
    assert_eq!(prepare(&function, 0, 1, &frames), expected);
}

#[test]
fn distinguishes_esp_in_udp_from_ike_and_keepalives() {
    let stanza = sa("nat", 0x2001, "in", "udp_encapsulation = { source_port = 1111 }")
        + &sa("plain", 0x2002, "in", "")
        + &sa6("six", 0x2003, "udp_encapsulation = { destination_port = 4564 }")
        + "[[policy]]\naction = \"bypass\"\n";
    let function = ipsec(&stanza);
    let udp = |port: u16, payload: &[u8]| {
        let length = 8 + payload.len() as u16;
        [&[0x30, 0x39][..], &port.to_be_bytes(), &length.to_be_bytes(), &[0, 0], payload].concat()
    };
    let (peer, us) = ([192, 0, 2, 2], [192, 0, 2, 1]);
    let frames = [
        frame(peer, us, 17, 0, &udp(4500, &esp(0x2001))),
        frame(peer, us, 17, 0, &udp(4500, &esp(0x2002))),
        frame(peer, us, 17, 0, &udp(4500, &[0xff])),
        frame(peer, us, 17, 0, &udp(4500, &[0, 0, 0, 0, 1, 2, 3, 4, 5])),
        frame(peer, us, 17, 0, &udp(4501, &esp(0x2001))),
        // Port 4564 has the same bit in the port filter as port 4500, but is a different port.
        frame(peer, us, 17, 0, &udp(4564, &esp(0x2001))),
        frame(peer, [192, 0, 2, 9], 17, 0, &udp(4500, &esp(0x2001))),
        frame(peer, us, 17, 0x2000, &udp(4500, &esp(0x2001))),
        frame(peer, us, 17, 0x0001, &udp(4500, &esp(0x2001))),
        frame(peer, us, 17, 0, &udp(4500, &[0, 0, 0x20])),
        frame(peer, us, 17, 0, &[0, 1, 2]),
        // ESP without UDP does not match an SA with UDP encapsulation.
        frame(peer, us, 50, 0, &esp(0x2001)),
        frame(peer, us, 50, 0, &esp(0x2002)),
        frame6(PEER, US, 17, &udp(4564, &esp(0x2003))),
        frame6(PEER, US, 17, &udp(4500, &esp(0x2003))),
    ];
    let expected = [
        decrypt(0, 9),
        drop(DROP_NO_SA),
        drop(DROP_KEEPALIVE),
        BYPASS,
        BYPASS,
        BYPASS,
        BYPASS,
        drop(DROP_FRAGMENT),
        BYPASS,
        drop(DROP_MALFORMED),
        BYPASS,
        drop(DROP_NO_SA),
        decrypt(1, 9),
        decrypt(2, 9),
        BYPASS,
    ];
    assert_eq!(prepare(&function, 0, 1, &frames), expected);
}

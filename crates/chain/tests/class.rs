//! Compares the classifier with an implementation that checks one condition of a rule after
//! another.

use std::ops::RangeInclusive;

use godwit_chain::{Classifier, Prefix, Rule};
use godwit_wire::five_tuple::VLAN_TAGS_MAX;
use godwit_wire::{FiveTuple, IpAddress, Ipv4Header, Ipv6Header, Parsed, parse};
use proptest::prelude::*;

const NO_RULE: Rule =
    Rule { class: 1, protocol: None, source: None, destination: None, source_ports: None, destination_ports: None };

fn packet(five_tuple: Option<FiveTuple>, fragment: bool) -> Parsed {
    Parsed {
        ethertype: 0,
        vlan_ids: [0; VLAN_TAGS_MAX],
        vlan_tags: 0,
        ip_version: 0,
        fragment,
        l3_offset: 14,
        l3_end: 0,
        l4_offset: 0,
        five_tuple,
        error: None,
    }
}

fn tuple(source: &str, destination: &str, protocol: u8, source_port: u16, destination_port: u16) -> FiveTuple {
    let address = |text: &str| text.parse::<std::net::IpAddr>().unwrap().into();
    FiveTuple { source: address(source), destination: address(destination), protocol, source_port, destination_port }
}

fn prefix(text: &str) -> Option<Prefix> {
    Some(text.parse().unwrap())
}

/// Returns whether a rule matches a packet. Checks one condition of the rule after the other.
fn fits(rule: &Rule, five_tuple: &FiveTuple, fragment: bool) -> bool {
    let in_prefix = |prefix: &Option<Prefix>, address: IpAddress| {
        let Some(prefix) = prefix else { return true };
        let text = prefix.to_string();
        let (network, bits) = text.split_once('/').unwrap();
        let network: IpAddress = network.parse::<std::net::IpAddr>().unwrap().into();
        let bits: usize = bits.parse().unwrap();
        let bit = |address: &IpAddress, at: usize| address.as_bytes()[at / 8] >> (7 - at % 8) & 1;
        network.as_bytes().len() == address.as_bytes().len()
            && (0..bits).all(|at| bit(&network, at) == bit(&address, at))
    };
    let in_range = |range: &Option<RangeInclusive<u16>>, port: u16| {
        let Some(range) = range else { return true };
        matches!(five_tuple.protocol, 6 | 17 | 33 | 132 | 136) && !fragment && range.contains(&port)
    };
    rule.protocol.is_none_or(|protocol| protocol == five_tuple.protocol)
        && in_prefix(&rule.source, five_tuple.source)
        && in_prefix(&rule.destination, five_tuple.destination)
        && in_range(&rule.source_ports, five_tuple.source_port)
        && in_range(&rule.destination_ports, five_tuple.destination_port)
}

#[test]
fn all_packets_have_class_0_without_rules() {
    let classifier = Classifier::new(&[]);
    assert!(classifier.is_trivial());
    assert_eq!(classifier.classify(&packet(Some(tuple("10.0.0.1", "10.0.0.2", 6, 1, 2)), false)), 0);
}

#[test]
fn first_matching_rule_of_the_same_family_applies() {
    let classifier = Classifier::new(&[
        Rule { class: 7, destination: prefix("10.1.0.0/16"), protocol: Some(6), ..NO_RULE },
        Rule { class: 2, destination: prefix("10.0.0.0/8"), ..NO_RULE },
        Rule { class: 3, source: prefix("2001:db8::/32"), ..NO_RULE },
        Rule { class: 4, source: prefix("10.0.0.0/8"), destination: prefix("::/0"), ..NO_RULE },
        Rule { class: 5, protocol: Some(17), destination_ports: Some(53..=53), ..NO_RULE },
    ]);
    assert!(!classifier.is_trivial());
    let class = |five_tuple| classifier.classify(&packet(Some(five_tuple), false));
    assert_eq!(class(tuple("1.1.1.1", "10.1.2.3", 6, 1, 1)), 7);
    assert_eq!(class(tuple("1.1.1.1", "10.1.2.3", 17, 1, 1)), 2);
    assert_eq!(class(tuple("2001:db8::1", "::1", 6, 1, 1)), 3);
    assert_eq!(class(tuple("10.0.0.1", "1.1.1.1", 17, 53, 54)), 0, "a rule with both families matches nothing");
    assert_eq!(class(tuple("::1", "::2", 17, 1, 53)), 5);
    assert_eq!(class(tuple("1.1.1.1", "2.2.2.2", 17, 1, 53)), 5);
    assert_eq!(class(tuple("1.1.1.1", "2.2.2.2", 6, 1, 53)), 0);
    assert_eq!(classifier.classify(&packet(None, false)), 0, "not IP");
}

#[test]
fn rule_with_ports_matches_only_visible_ports() {
    let classifier = Classifier::new(&[Rule { source_ports: Some(0..=u16::MAX), ..NO_RULE }]);
    let class = |protocol, fragment| classifier.classify(&packet(Some(tuple("::1", "::2", protocol, 0, 0)), fragment));
    assert_eq!(class(6, false), 1);
    assert_eq!(class(17, false), 1);
    assert_eq!(class(17, true), 0, "ports of a fragment are unknown");
    assert_eq!(class(1, false), 0);
}

fn address() -> impl Strategy<Value = IpAddress> {
    // Generated addresses differ in few bits, so that prefixes often match.
    prop_oneof![
        (0u8..4, 0u8..4).prop_map(|(first, last)| IpAddress::V4([10 + first, 0, 0, last])),
        (0u8..4, 0u8..4).prop_map(|(first, last)| {
            let mut bytes = [0; 16];
            (bytes[0], bytes[15]) = (0x20 + first, last);
            IpAddress::V6(bytes)
        }),
    ]
}

fn any_prefix() -> impl Strategy<Value = Prefix> {
    (address(), any::<u8>()).prop_map(|(address, bits)| {
        let bits = usize::from(bits) % (address.as_bytes().len() * 8 + 1);
        match format!("{address}/{bits}").parse() {
            Ok(prefix) => prefix,
            Err(godwit_chain::PrefixError::HostBits { meant, .. }) => meant,
            Err(error) => panic!("{error}"),
        }
    })
}

fn ports() -> impl Strategy<Value = Option<RangeInclusive<u16>>> {
    let port = || prop_oneof![0u16..4, Just(u16::MAX)];
    prop::option::of((port(), port()).prop_map(|(a, b)| a.min(b)..=a.max(b)))
}

fn protocol() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![1, 6, 17, 50, 132])
}

fn rule() -> impl Strategy<Value = Rule> {
    let prefixes = (prop::option::of(any_prefix()), prop::option::of(any_prefix()));
    (1u8..=254, prop::option::of(protocol()), prefixes, ports(), ports()).prop_map(
        |(class, protocol, (source, destination), source_ports, destination_ports)| Rule {
            class,
            protocol,
            source,
            destination,
            source_ports,
            destination_ports,
        },
    )
}

proptest! {
    #[test]
    fn equals_a_rule_by_rule_comparison(
        rules in prop::collection::vec(rule(), 0..12),
        packets in prop::collection::vec((address(), address(), protocol(), 0u16..5, 0u16..5, any::<bool>()), 1..20),
    ) {
        let classifier = Classifier::new(&rules);
        for (source, destination, protocol, source_port, destination_port, fragment) in packets {
            if source.as_bytes().len() != destination.as_bytes().len() {
                continue;
            }
            let five_tuple = FiveTuple { source, destination, protocol, source_port, destination_port };
            let first = rules.iter().find(|rule| fits(rule, &five_tuple, fragment));
            let expected = first.map_or(0, |rule| rule.class);
            prop_assert_eq!(classifier.classify(&packet(Some(five_tuple), fragment)), expected);
        }
    }
    /// Checks that several packets at once get the same classes as one packet at a time.
    #[test]
    fn classes_of_many_packets_match_those_of_single_packets(
        rules in prop::collection::vec(rule(), 0..40),
        frames in prop::collection::vec(frame(), 0..150),
    ) {
        let classifier = Classifier::new(&rules);
        let mut classes = vec![0xff; frames.len()];
        classifier.classify_all(frames.iter().map(Vec::as_slice), &mut classes);
        let expected: Vec<u8> = frames.iter().map(|frame| classifier.classify(&parse(frame))).collect();
        prop_assert_eq!(classes, expected);
    }
}

/// Generates frames of all kinds: plain, fragments, with options, tagged, cut and padded.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let fields = (address(), address(), protocol(), 0..5_u8, 0..5_u8);
    (fields, 0..9_u8, 0..70_usize).prop_map(|((source, destination, protocol, source_port, port), kind, cut)| {
        let payload = [0, source_port, 0, port, 0, 0, 0, 0];
        let mut header = [0; 60];
        let (ethertype, header_bytes) = match (source, destination) {
            (IpAddress::V4(source), IpAddress::V4(destination)) => {
                let header_v4 = Ipv4Header {
                    traffic_class: 0,
                    identification: 1,
                    dont_fragment: kind % 2 == 0,
                    more_fragments: kind == 1,
                    fragment_offset_bytes: if kind == 2 { 8 } else { 0 },
                    ttl: 64,
                    protocol,
                    source,
                    destination,
                    options: if kind == 3 { &[1; 4] } else { &[] },
                    payload_bytes: payload.len(),
                };
                (0x0800_u16, header_v4.emit(&mut header).unwrap())
            }
            (IpAddress::V6(source), IpAddress::V6(destination)) => {
                let payload_bytes = payload.len() as u16;
                let (traffic_class, flow_label, hop_limit) = (0, 0, 64);
                let header_v6 = Ipv6Header {
                    traffic_class,
                    flow_label,
                    payload_bytes,
                    next_header: protocol,
                    hop_limit,
                    source,
                    destination,
                };
                (0x86dd, header_v6.emit(&mut header).unwrap())
            }
            // An IPv4 and an IPv6 address together give a frame that is not IP.
            _ => (0x0806, 40),
        };
        let tag: &[u8] = if kind == 4 { &[0x81, 0, 0, 5] } else { &[] };
        let mut frame = [&[2; 12], tag, &ethertype.to_be_bytes(), &header[..header_bytes], &payload].concat();
        match kind {
            5 => frame.truncate(cut),
            6 => frame.resize(90, 0),
            _ => {}
        }
        frame
    })
}

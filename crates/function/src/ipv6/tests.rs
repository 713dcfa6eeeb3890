use std::net::Ipv6Addr;

use godwit_wire::{Ipv6Header, MacAddress};
use proptest::prelude::*;

use super::*;
use crate::routing::Adjacency;
use crate::testing::{self, Directory, build_error, build_ok, run};

const NEXT_HOPS: &str = r#"
    [[next_hop]]
    name = "east"
    port = "b"
    destination_mac = "02:00:00:00:00:0a"
    source_mac = "02-00-00-00-00-0B"
    [[next_hop]]
    name = "here"
    local = true
    [[next_hop]]
    name = "nowhere"
    blackhole = true
"#;

const ROUTES: &str = r#"
    [[route]]
    prefix = "2001:db8::/32"
    next_hop = "east"
    [[route]]
    prefix = "2001:db8:1::/48"
    next_hop = "here"
    [[route]]
    prefix = "2001:db8:1:2:8000::/65"
    next_hop = "nowhere"
    [[route]]
    prefix = "2001:db8:1:2:8000::c8"
    next_hop = "east"
"#;

fn address(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().unwrap().octets()
}

fn frame_of(source: &str, destination: &str, hop_limit: u8, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x12; 54];
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 7,
        payload_bytes: payload.len() as u16,
        next_header,
        hop_limit,
        source: address(source),
        destination: address(destination),
    };
    header.emit(&mut frame[14..]).unwrap();
    frame.extend(payload);
    frame
}

fn frame(source: &str, destination: &str, hop_limit: u8) -> Vec<u8> {
    frame_of(source, destination, hop_limit, 17, &[0x22; 12])
}

fn functions(routes: &str) -> [Arc<dyn Function>; 3] {
    ["trie", "hash", "auto"]
        .map(|form| build_ok(&KIND, &format!("lookup = \"{form}\"\n{routes}\n{NEXT_HOPS}"), &["a", "b"]))
}

#[test]
fn forwards_by_the_longest_prefix() {
    let local = Outcome { value: 1, ..Outcome::verdict(VERDICT_LOCAL) };
    let forward = Outcome { port: 1, ..Outcome::verdict(VERDICT_FORWARD) };
    for function in functions(ROUTES) {
        for (destination, expected) in [
            ("2001:db8::1", forward),
            ("2001:db8:1::1", local),
            ("2001:db8:1:2:7fff:ffff:ffff:ffff", local),
            ("2001:db8:1:2:8000::", Outcome::drop(DROP_BLACKHOLE)),
            ("2001:db8:1:2:8000::c8", forward),
            ("2001:db8:1:2:8000::c9", Outcome::drop(DROP_BLACKHOLE)),
            ("2001:db8:1:3::", local),
            ("2001:db8:2::", forward),
            ("2001:db9::", Outcome::verdict(VERDICT_NO_ROUTE)),
            ("2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", Outcome::verdict(VERDICT_NO_ROUTE)),
        ] {
            let before = frame("2001:db8:f::1", destination, 9);
            let mut after = before.clone();
            assert_eq!(run(&*function, &mut after), expected, "{destination}");
            if expected == forward {
                let mut rewritten = frame("2001:db8:f::1", destination, 8);
                rewritten[..12].copy_from_slice(&[2, 0, 0, 0, 0, 10, 2, 0, 0, 0, 0, 11]);
                assert_eq!(after, rewritten);
            } else {
                assert_eq!(after, before);
            }
        }
    }
}

#[test]
fn the_reverse_path_filter_looks_up_the_source() {
    for filtered in functions(&format!("reverse_path = {{ a = \"loose\", b = \"strict\" }}\n{ROUTES}")) {
        let refused = Err(DROP_REVERSE_PATH);
        for (source, strict, loose) in [
            ("2001:db8::1", Ok(()), Ok(())),
            ("2001:db8:1:2:8000::c8", Ok(()), Ok(())),
            ("2001:db8:1::1", refused, refused),
            ("2001:db8:1:2:8000::c7", refused, refused),
            ("2001:db9::1", refused, refused),
            // These addresses are valid only on their link.
            ("fe80::1", Ok(()), Ok(())),
            ("febf::1", Ok(()), Ok(())),
            ("fec0::1", refused, refused),
            ("::", Ok(()), Ok(())),
        ] {
            let packet = frame(source, "2001:db8::9", 9);
            assert_eq!(testing::prepare_one(&*filtered, 1, &packet), strict, "{source}");
            assert_eq!(testing::prepare_one(&*filtered, 0, &packet), loose, "{source}");
        }
    }
    let filtered = &functions(&format!("reverse_path = {{ a = \"strict\" }}\n{ROUTES}"))[0];
    let packet = frame("2001:db8::1", "2001:db8::9", 9);
    assert_eq!(testing::prepare_one(&**filtered, 0, &packet), Err(DROP_REVERSE_PATH));
    assert_eq!(testing::prepare_one(&**filtered, 1, &packet), Ok(()), "port b is not filtered");
}

#[test]
fn delivers_but_does_not_forward_packets_with_hop_limit_1() {
    let [function, ..] = functions(ROUTES);
    for (hop_limit, destination, verdict) in [
        (0, "2001:db8::1", VERDICT_HOP_LIMIT_EXCEEDED),
        (1, "2001:db8::1", VERDICT_HOP_LIMIT_EXCEEDED),
        (2, "2001:db8::1", VERDICT_FORWARD),
        (0, "2001:db8:1::1", VERDICT_LOCAL),
    ] {
        let mut frame = frame("2001:db8:f::1", destination, hop_limit);
        assert_eq!(run(&*function, &mut frame).verdict, verdict, "hop limit {hop_limit} to {destination}");
    }
}

#[test]
fn frames_to_a_group_of_stations_are_dropped() {
    for function in functions(ROUTES) {
        let outcome = |source: &str, destination: &str| {
            let mut packet = frame(source, destination, 9);
            packet[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
            run(&*function, &mut packet)
        };
        for destination in ["2001:db8::1", "2001:db8:1::1", "fd00::1"] {
            assert_eq!(outcome("2001:db8:f::1", destination), Outcome::drop(DROP_GROUP_FRAME), "{destination}");
            assert_eq!(outcome("fd00::2", destination), Outcome::drop(DROP_GROUP_FRAME), "{destination}");
        }
        assert_eq!(outcome("fe80::1", "ff02::1"), Outcome::verdict(VERDICT_LINK_LOCAL));
    }
}

#[test]
fn drops_packets_from_or_to_martian_addresses() {
    let [function, ..] = functions("[[route]]\nprefix = \"::/0\"\nnext_hop = \"east\"");
    let outcome = |source, destination| run(&*function, &mut frame(source, destination, 9));
    let good = "2001:db8::1";
    let martian = Outcome::drop(DROP_MARTIAN);
    for bad in ["::", "::1", "ff00::1", "ff01::1", "ff05::2", "ff0e::101", "ff3e::1"] {
        assert_eq!(outcome(bad, good), martian, "from {bad}");
        assert_eq!(outcome(good, bad), martian, "to {bad}");
    }
    assert_eq!(outcome("ff02::1", good), martian, "multicast source");
    for edge in ["::2", "fdff::1", "fec0::1", "fe7f::1", "64:ff9b::1", "::ffff:192.0.2.1"] {
        assert_eq!(outcome(edge, edge).verdict, VERDICT_FORWARD, "{edge}");
    }
}

#[test]
fn does_not_forward_link_local_packets() {
    let routes =
        "[[route]]\nprefix = \"::/0\"\nnext_hop = \"east\"\n[[route]]\nprefix = \"2001:db8::\"\nnext_hop = \"here\"";
    let [function, ..] = functions(routes);
    let outcome = |source, destination| run(&*function, &mut frame(source, destination, 255)).verdict;
    for destination in ["fe80::1", "febf::1", "ff02::1", "ff02::1:ff00:1", "ff12::5"] {
        assert_eq!(outcome("2001:db8::1", destination), VERDICT_LINK_LOCAL, "{destination}");
        assert_eq!(outcome("fe80::2", destination), VERDICT_LINK_LOCAL, "{destination}");
    }
    assert_eq!(outcome("::", "ff02::1:ff00:1"), VERDICT_LINK_LOCAL, "duplicate address detection");
    assert_eq!(outcome("fe80::2", "2001:db8::"), VERDICT_LOCAL, "link-local source, destination on this machine");
    assert_eq!(outcome("fe80::2", "2001:db8::1"), VERDICT_BEYOND_SCOPE);
}

#[test]
fn handles_hop_by_hop_options() {
    let [function, ..] = functions(ROUTES);
    let outcome = |options: &[u8], units: u8| {
        let mut payload = vec![17, units];
        payload.extend(options);
        payload.resize(payload.len().next_multiple_of(8), 0);
        run(&*function, &mut frame_of("2001:db8:f::1", "2001:db8::1", 9, 0, &payload))
    };
    let malformed = Outcome::drop(DROP_MALFORMED);
    let problem = |value| Outcome { value, ..Outcome::verdict(VERDICT_PARAMETER_PROBLEM) };
    for (name, options, units, expected) in [
        ("PadN", &[1, 4, 0, 0, 0, 0][..], 0, None),
        ("Router Alert", &[5, 2, 0, 0, 1, 0], 0, None),
        ("unknown, skipped", &[0x1e, 4, 1, 2, 3, 4], 0, None),
        ("unknown, dropped", &[0x5e, 4, 1, 2, 3, 4], 0, Some(Outcome::drop(DROP_OPTION))),
        ("unknown, reported", &[0, 0x9e, 3, 1, 2, 3], 0, Some(problem(43))),
        ("jumbo payload", &[0xc2, 4, 0, 1, 0, 0], 0, Some(problem(42))),
        ("option too long", &[0x1e, 5, 1, 2, 3, 4], 0, Some(malformed)),
        ("type without length", &[0, 0, 0, 0, 0, 0x1e], 0, Some(malformed)),
        ("header too long", &[1, 4, 0, 0, 0, 0], 1, Some(malformed)),
        ("two PadN", &[1, 4, 0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 0, 0], 1, None),
    ] {
        let forward = Outcome { port: 1, ..Outcome::verdict(VERDICT_FORWARD) };
        assert_eq!(outcome(options, units), expected.unwrap_or(forward), "{name}");
    }
    // The kernel examines the first 64 bytes of the extension header. It ignores an option whose
    // type and length are not both in these bytes.
    let late = |at: usize, kind| {
        let mut options = vec![0; 70];
        (options[at - 2], options[at - 1]) = (kind, 1);
        outcome(&options, 8)
    };
    assert_eq!(late(62, 0x5e), Outcome::drop(DROP_OPTION));
    assert_eq!(late(63, 0x5e).verdict, VERDICT_FORWARD);
    let mut empty = frame_of("2001:db8:f::1", "2001:db8::1", 9, 0, &[]);
    empty.extend([17, 0, 0xc2, 4, 0, 1, 0, 0]);
    assert_eq!(run(&*function, &mut empty), malformed, "jumbogram with a payload length of 0");
}

#[test]
fn reports_mtu_hop_limit_and_unresolved_next_hops() {
    let mac = |last| MacAddress([2, 0, 0, 0, 0, last]);
    let station = |mtu| Adjacency { port: 7, destination: mac(1), source: mac(2), mtu };
    let hops = vec![
        NextHop::Forward(station(52)),
        NextHop::Forward(station(51)),
        NextHop::Unresolved(station(1280)),
        NextHop::Unreachable,
    ];
    let route = |index: u32| Route { prefix: u128::from(index + 1) << 96, length: 32, next_hop: index };
    let function = Ipv6::new(&[0, 1, 2, 3].map(route), &hops, None).unwrap();
    let outcome = |destination, hop_limit| run(&function, &mut frame("2001:db8::1", destination, hop_limit));
    let at = |verdict, value| Outcome { port: 7, value, ..Outcome::verdict(verdict) };
    assert_eq!(outcome("0:1::", 9), at(VERDICT_FORWARD, 0));
    assert_eq!(outcome("0:2::", 9), at(VERDICT_TOO_BIG, 51));
    assert_eq!(outcome("0:2::", 1), Outcome::verdict(VERDICT_HOP_LIMIT_EXCEEDED));
    assert_eq!(outcome("0:3::", 9), at(VERDICT_UNRESOLVED, 2));
    assert_eq!(outcome("0:3::", 1), Outcome::verdict(VERDICT_HOP_LIMIT_EXCEEDED));
    assert_eq!(outcome("0:4::", 1), Outcome::verdict(VERDICT_NO_ROUTE));
}

#[test]
fn skips_and_keeps_one_vlan_tag() {
    let [function, ..] = functions(ROUTES);
    let mut tagged = frame("2001:db8:f::1", "2001:db8::1", 9);
    tagged.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
    assert_eq!(run(&*function, &mut tagged).verdict, VERDICT_FORWARD);
    assert_eq!(tagged[12..18], [0x81, 0x00, 0x20, 0x05, 0x86, 0xdd]);
    assert_eq!(tagged[18 + 7], 8);
    tagged.splice(12..12, [0x81, 0x00, 0x20, 0x06]);
    assert_eq!(run(&*function, &mut tagged), Outcome::verdict(VERDICT_NOT_IPV6));
}

#[test]
fn later_routes_replace_earlier_ones_and_the_file_comes_first() {
    let directory = Directory::new("ipv6-routes");
    std::fs::write(directory.0.join("routes.txt"), "2001:db8::/32 nowhere\n2001:db8::/32 here\n2001:db9::/32\n")
        .unwrap();
    let build = |stanza: &str| testing::build(&KIND, &format!("{stanza}\n{NEXT_HOPS}"), &["a", "b"], &directory.0);
    let function = build("routes = \"routes.txt\"\ndefault_next_hop = \"nowhere\"").unwrap();
    let outcome = |function: &dyn Function, to| run(function, &mut frame("2001:db8::1", to, 9));
    assert_eq!(outcome(&*function, "2001:db8::1").verdict, VERDICT_LOCAL);
    assert_eq!(outcome(&*function, "2001:db9::1"), Outcome::drop(DROP_BLACKHOLE));
    let more = "[[route]]\nprefix = \"2001:db8::/32\"\nnext_hop = \"east\"";
    let function = build(&format!("routes = \"routes.txt\"\ndefault_next_hop = \"nowhere\"\n{more}")).unwrap();
    assert_eq!(outcome(&*function, "2001:db8::1").verdict, VERDICT_FORWARD);
    let error = build("routes = \"routes.txt\"").err().unwrap().to_string();
    assert!(error.contains("routes.txt:3: ") && error.contains("default_next_hop"), "{error}");
}

#[test]
fn rejects_invalid_stanzas_with_the_reason() {
    let route = |prefix: &str| format!("[[route]]\nprefix = \"{prefix}\"\nnext_hop = \"here\"");
    for (stanza, part) in [
        (String::new(), "has no routes"),
        (route("2001:db8::1/32"), "2001:db8::/32"),
        (route("10.0.0.0/8"), "kind \"ipv4\""),
        (format!("lookup = \"tree\"\n{}", route("::/0")), "\"tree\""),
        (format!("look_up = \"trie\"\n{}", route("::/0")), "look_up"),
    ] {
        let error = build_error(&KIND, &format!("{stanza}\n{NEXT_HOPS}"), &["a", "b"]).to_string();
        assert!(error.contains(part), "{error}");
    }
}

fn next_hops(count: usize) -> Vec<NextHop> {
    vec![NextHop::Local; count]
}

fn route(address: u128, length: u8, next_hop: u32) -> Route {
    Route { prefix: address.masked(length), length, next_hop }
}

/// Checks that both lookup structures agree with a longest-prefix search. The check covers
/// `addresses` and the addresses at both ends of each route.
fn check(routes: &[Route], addresses: &[u128]) {
    let hops = 1 + routes.iter().map(|route| route.next_hop).max().unwrap_or(0);
    for form in [Form::Trie, Form::Hash] {
        let function = Ipv6::new(routes, &next_hops(hops as usize), Some(form)).unwrap();
        let image = function.image().to_vec();
        let edges = routes.iter().flat_map(|route| {
            let last = route.prefix | !u128::MAX.masked(route.length);
            [route.prefix, route.prefix.wrapping_sub(1), last, last.wrapping_add(1)]
        });
        for address in edges.chain(addresses.iter().copied()).chain([0, u128::MAX]) {
            let expected = function.lookup_ref(address);
            assert_eq!(function.lookup_image(&image, address), expected, "{form:?}: {address:#x} of {routes:x?}");
            let sources = source::Ipv6Sources { image: Arc::clone(&function.image), layout: function.layout };
            assert_eq!(sources.lookup(address), expected, "{form:?}, host: {address:#x} of {routes:x?}");
        }
    }
}

#[test]
fn covers_both_ends_of_the_address_space() {
    check(&[], &[1]);
    check(&[route(0, 0, 0)], &[1 << 127]);
    check(
        &[route(0, 0, 0), route(u128::MAX, 128, 1), route(0, 128, 2), route(u128::MAX, 1, 3), route(1 << 127, 65, 4)],
        &[],
    );
    check(&[route(u128::MAX, 64, 0), route(u128::MAX, 63, 1), route(0, 64, 0), route(0, 63, 1)], &[]);
    check(&(0..=128).map(|length| route(u128::MAX, length, u32::from(length))).collect::<Vec<_>>(), &[]);
    check(&(0..=128).map(|length| route(0, length, u32::from(length))).collect::<Vec<_>>(), &[]);
    let middle = 0x2001_0db8_5a5a_a5a5_c3c3_3c3c_6996_9669;
    check(&(0..=128).map(|length| route(middle, length, u32::from(length))).collect::<Vec<_>>(), &[]);
}

#[test]
fn finds_many_hosts_in_one_prefix_and_many_prefixes_in_one_block() {
    let mut random = 1u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u128::from(random >> 16)
    };
    let net = 0x2001_0db8_u128 << 96;
    let hosts: Vec<Route> = (0..5000).map(|index| route(net | next() << 8 | (next() & 0xff), 128, index % 7)).collect();
    check(&hosts, &[net, net | 1]);
    let nets: Vec<Route> =
        (0..5000).map(|index| route(net | (next() % 0x10_0000) << 64, 64 - index as u8 % 20, index % 9)).collect();
    check(&nets, &[net, net | 1]);
}

/// Generates routes with few different addresses and all prefix lengths. Many of these prefixes
/// contain, touch or equal each other.
fn crowded_routes() -> impl Strategy<Value = Vec<Route>> {
    let address = prop_oneof![
        any::<u128>(),
        (0u128..4, 0u128..600, prop_oneof![Just(0u32), Just(60), Just(64), Just(80), Just(107)])
            .prop_map(|(far, near, shift)| (far << 126).wrapping_sub(300 << shift).wrapping_add(near << shift)),
        (any::<u64>(), 0u32..128).prop_map(|(bits, shift)| (0x2001_0db8 << 96) ^ (u128::from(bits) << shift >> 8)),
    ];
    let length = prop_oneof![0u8..=128, 14u8..=20, 44u8..=66, 60u8..=70, 120u8..=128];
    let one = (address, length, 0u32..6);
    prop::collection::vec(one.prop_map(|(address, length, next_hop)| route(address, length, next_hop)), 0..160)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn image_agrees_with_a_longest_prefix_search(routes in crowded_routes(), addresses: Vec<u128>) {
        check(&routes, &addresses);
    }
}

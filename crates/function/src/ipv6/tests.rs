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

/// A frame with an IPv6 packet that carries `payload`, of which the first header is `next_header`.
fn frame_of(source: &str, destination: &str, hop_limit: u8, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x11; 54];
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
fn a_packet_goes_by_its_longest_prefix() {
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
                let mut wanted = frame("2001:db8:f::1", destination, 8);
                wanted[..12].copy_from_slice(&[2, 0, 0, 0, 0, 10, 2, 0, 0, 0, 0, 11]);
                assert_eq!(after, wanted);
            } else {
                assert_eq!(after, before);
            }
        }
    }
}

#[test]
fn the_last_hop_ends_at_a_router_and_not_behind_it() {
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
fn addresses_that_are_on_no_wire_are_dropped() {
    let [function, ..] = functions("[[route]]\nprefix = \"::/0\"\nnext_hop = \"east\"");
    let outcome = |source, destination| run(&*function, &mut frame(source, destination, 9));
    let good = "2001:db8::1";
    let martian = Outcome::drop(DROP_MARTIAN);
    for bad in ["::", "::1", "ff00::1", "ff01::1", "ff05::2", "ff0e::101", "ff3e::1"] {
        assert_eq!(outcome(bad, good), martian, "from {bad}");
        assert_eq!(outcome(good, bad), martian, "to {bad}");
    }
    assert_eq!(outcome("ff02::1", good), martian, "a group sends nothing");
    for edge in ["::2", "fdff::1", "fec0::1", "fe7f::1", "64:ff9b::1", "::ffff:192.0.2.1"] {
        assert_eq!(outcome(edge, edge).verdict, VERDICT_FORWARD, "{edge}");
    }
}

#[test]
fn what_is_local_to_a_link_stays_there() {
    let routes =
        "[[route]]\nprefix = \"::/0\"\nnext_hop = \"east\"\n[[route]]\nprefix = \"2001:db8::\"\nnext_hop = \"here\"";
    let [function, ..] = functions(routes);
    let outcome = |source, destination| run(&*function, &mut frame(source, destination, 255)).verdict;
    for destination in ["fe80::1", "febf::1", "ff02::1", "ff02::1:ff00:1", "ff12::5"] {
        assert_eq!(outcome("2001:db8::1", destination), VERDICT_LINK_LOCAL, "{destination}");
        assert_eq!(outcome("fe80::2", destination), VERDICT_LINK_LOCAL, "{destination}");
    }
    assert_eq!(outcome("::", "ff02::1:ff00:1"), VERDICT_LINK_LOCAL, "duplicate address detection");
    assert_eq!(outcome("fe80::2", "2001:db8::"), VERDICT_LOCAL, "a neighbour may ask for this machine's address");
    assert_eq!(outcome("fe80::2", "2001:db8::1"), VERDICT_BEYOND_SCOPE);
}

#[test]
fn hop_by_hop_options_are_looked_at() {
    let [function, ..] = functions(ROUTES);
    let outcome = |options: &[u8], units: u8| {
        let mut payload = vec![17, units];
        payload.extend(options);
        payload.resize(payload.len().next_multiple_of(8), 0);
        run(&*function, &mut frame_of("2001:db8:f::1", "2001:db8::1", 9, 0, &payload))
    };
    let malformed = Outcome::drop(DROP_MALFORMED);
    let problem = |value| Outcome { value, ..Outcome::verdict(VERDICT_PARAMETER_PROBLEM) };
    for (what, options, units, expected) in [
        ("PadN", &[1, 4, 0, 0, 0, 0][..], 0, None),
        ("Router Alert", &[5, 2, 0, 0, 1, 0], 0, None),
        ("unknown, skipped", &[0x1e, 4, 1, 2, 3, 4], 0, None),
        ("unknown, to be dropped", &[0x5e, 4, 1, 2, 3, 4], 0, Some(Outcome::drop(DROP_OPTION))),
        ("unknown, to be answered", &[0, 0x9e, 3, 1, 2, 3], 0, Some(problem(43))),
        ("a jumbo payload", &[0xc2, 4, 0, 1, 0, 0], 0, Some(problem(42))),
        ("an option too long", &[0x1e, 5, 1, 2, 3, 4], 0, Some(malformed)),
        ("a type without length", &[0, 0, 0, 0, 0, 0x1e], 0, Some(malformed)),
        ("a header too long", &[1, 4, 0, 0, 0, 0], 1, Some(malformed)),
        ("two padded", &[1, 4, 0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 0, 0], 1, None),
    ] {
        let forward = Outcome { port: 1, ..Outcome::verdict(VERDICT_FORWARD) };
        assert_eq!(outcome(options, units), expected.unwrap_or(forward), "{what}");
    }
    // Type and length in bytes 62 and 63 count, one byte later they do not.
    let late = |at: usize, kind| {
        let mut options = vec![0; 70];
        (options[at - 2], options[at - 1]) = (kind, 1);
        outcome(&options, 8)
    };
    assert_eq!(late(62, 0x5e), Outcome::drop(DROP_OPTION));
    assert_eq!(late(63, 0x5e).verdict, VERDICT_FORWARD);
    let mut empty = frame_of("2001:db8:f::1", "2001:db8::1", 9, 0, &[]);
    empty.extend([17, 0, 0xc2, 4, 0, 1, 0, 0]);
    assert_eq!(run(&*function, &mut empty), malformed, "a jumbogram's length is 0");
}

#[test]
fn next_hops_say_what_becomes_of_a_packet() {
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
fn a_tag_is_skipped_and_kept() {
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
fn routes_come_from_file_and_stanza_and_the_last_word_counts() {
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
fn wrong_stanzas_are_refused_with_the_reason() {
    let route = |prefix: &str| format!("[[route]]\nprefix = \"{prefix}\"\nnext_hop = \"here\"");
    for (stanza, part) in [
        (String::new(), "has no routes"),
        (route("2001:db8::1/32"), "meant is perhaps 2001:db8::/32"),
        (route("10.0.0.0/8"), "IPv4 routes belong"),
        (format!("lookup = \"tree\"\n{}", route("::/0")), "lookup is \"trie\", \"hash\" or \"auto\", not \"tree\""),
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

/// Both forms say of addresses on all edges of the routes what a search for the longest prefix says, and of these.
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
        }
    }
}

#[test]
fn the_table_ends_where_the_address_space_ends() {
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
fn many_hosts_of_one_net_and_many_nets_of_one_provider() {
    let mut random = 1u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u128::from(random >> 16)
    };
    let net = 0x2001_0db8_u128 << 96;
    let hosts: Vec<Route> = (0..5000).map(|at| route(net | next() << 8 | (next() & 0xff), 128, at % 7)).collect();
    check(&hosts, &[net, net | 1]);
    let nets: Vec<Route> =
        (0..5000).map(|at| route(net | (next() % 0x10_0000) << 64, 64 - at as u8 % 20, at % 9)).collect();
    check(&nets, &[net, net | 1]);
}

/// Prefixes that nest, touch and repeat: few addresses, all lengths.
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

    /// The image says of every address what a search for the longest prefix says.
    #[test]
    fn the_image_agrees_with_the_prefixes(routes in crowded_routes(), addresses: Vec<u128>) {
        check(&routes, &addresses);
    }
}

mod own;

use std::path::Path;

use godwit_wire::Ipv4Header;
use godwit_wire::MacAddress;
use proptest::prelude::*;

use super::*;
use crate::routing::{Adjacency, Prefix, RouteChange, Unchanged};
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

/// Returns a frame with an IPv4 packet of 12 payload bytes.
fn frame(source: [u8; 4], destination: [u8; 4], ttl: u8) -> Vec<u8> {
    let mut frame = vec![0x12; 46];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let header = Ipv4Header {
        traffic_class: 0,
        identification: 7,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset_bytes: 0,
        ttl,
        protocol: 17,
        source,
        destination,
        options: &[],
        payload_bytes: 12,
    };
    header.emit(&mut frame[14..]).unwrap();
    frame
}

fn function(routes: &str) -> Arc<dyn Function> {
    build_ok(&KIND, &format!("{routes}\n{NEXT_HOPS}"), &["a", "b"])
}

const ROUTES: &str = r#"
    [[route]]
    prefix = "10.0.0.0/8"
    next_hop = "east"
    [[route]]
    prefix = "10.1.0.0/16"
    next_hop = "here"
    [[route]]
    prefix = "10.1.2.128/25"
    next_hop = "nowhere"
    [[route]]
    prefix = "10.1.2.200"
    next_hop = "east"
"#;

#[test]
fn forwards_by_the_longest_prefix() {
    let function = function(ROUTES);
    let source = [192, 0, 2, 1];
    let local = Outcome { value: 1, ..Outcome::verdict(VERDICT_LOCAL) };
    let forward = Outcome { port: 1, ..Outcome::verdict(VERDICT_FORWARD) };
    for (destination, expected) in [
        ([10, 0, 0, 1], forward),
        ([10, 1, 0, 1], local),
        ([10, 1, 2, 127], local),
        ([10, 1, 2, 128], Outcome::drop(DROP_BLACKHOLE)),
        ([10, 1, 2, 200], forward),
        ([10, 1, 2, 201], Outcome::drop(DROP_BLACKHOLE)),
        ([10, 2, 0, 0], forward),
        ([11, 0, 0, 0], Outcome::verdict(VERDICT_NO_ROUTE)),
        ([9, 255, 255, 255], Outcome::verdict(VERDICT_NO_ROUTE)),
    ] {
        let before = frame(source, destination, 9);
        let mut after = before.clone();
        assert_eq!(run(&*function, &mut after), expected, "{destination:?}");
        if expected == forward {
            let mut rewritten = frame(source, destination, 8);
            rewritten[..12].copy_from_slice(&[2, 0, 0, 0, 0, 10, 2, 0, 0, 0, 0, 11]);
            assert_eq!(after, rewritten);
        } else {
            assert_eq!(after, before);
        }
    }
}

#[test]
fn the_reverse_path_filter_looks_up_the_source() {
    let filtered = function(&format!("reverse_path = {{ a = \"loose\", b = \"strict\" }}\n{ROUTES}"));
    let refused = Err(DROP_REVERSE_PATH);
    for (source, strict, loose) in [
        ([10, 0, 0, 1], Ok(()), Ok(())),
        ([10, 1, 2, 200], Ok(()), Ok(())),
        ([10, 1, 0, 1], refused, refused),
        ([10, 1, 2, 128], refused, refused),
        ([192, 0, 2, 1], refused, refused),
    ] {
        let mut packet = frame(source, [10, 0, 0, 9], 9);
        assert_eq!(testing::prepare_one(&*filtered, 1, &packet), strict, "{source:?}");
        assert_eq!(testing::prepare_one(&*filtered, 0, &packet), loose, "{source:?}");
        packet.splice(12..12, [0x81, 0, 0, 9]);
        assert_eq!(testing::prepare_one(&*filtered, 1, &packet), strict, "{source:?} with a tag");
    }
    // Only port a is filtered. The packet is therefore dropped there, but passes at port b.
    let filtered = function(&format!("reverse_path = {{ a = \"strict\" }}\n{ROUTES}"));
    let packet = frame([10, 0, 0, 1], [10, 0, 0, 9], 9);
    assert_eq!(testing::prepare_one(&*filtered, 0, &packet), refused);
    assert_eq!(testing::prepare_one(&*filtered, 1, &packet), Ok(()), "port b is not filtered");
    let mut arp = packet;
    arp[12..14].copy_from_slice(&[8, 6]);
    assert_eq!(testing::prepare_one(&*filtered, 0, &arp), Ok(()));
    let error = build_error(&KIND, &format!("reverse_path = {{ c = \"strict\" }}\n{ROUTES}\n{NEXT_HOPS}"), &["a", "b"])
        .to_string();
    assert_eq!(error, "reverse_path: there is no port named \"c\"; the ports are: a, b");
    assert!(function(ROUTES).host_half(0, 1).is_none(), "without a filter, there is no host half");
}

#[test]
fn delivers_but_does_not_forward_packets_with_ttl_1() {
    let function = function(ROUTES);
    for (ttl, destination, verdict) in [
        (0, [10, 0, 0, 1], VERDICT_TTL_EXCEEDED),
        (1, [10, 0, 0, 1], VERDICT_TTL_EXCEEDED),
        (2, [10, 0, 0, 1], VERDICT_FORWARD),
        (1, [10, 1, 0, 1], VERDICT_LOCAL),
    ] {
        let mut frame = frame([192, 0, 2, 1], destination, ttl);
        assert_eq!(run(&*function, &mut frame).verdict, verdict, "TTL {ttl} to {destination:?}");
    }
}

#[test]
fn drops_packets_from_or_to_martian_addresses() {
    let function = function("[[route]]\nprefix = \"0.0.0.0/0\"\nnext_hop = \"east\"");
    let verdict = |source, destination| run(&*function, &mut frame(source, destination, 9));
    let good = [192, 0, 2, 1];
    for bad in [
        [0, 0, 0, 1],
        [127, 0, 0, 1],
        [224, 0, 0, 0],
        [224, 0, 0, 1],
        [239, 1, 1, 1],
        [240, 0, 0, 1],
        [255, 255, 255, 254],
        [255; 4],
    ] {
        assert_eq!(verdict(bad, good), Outcome::drop(DROP_MARTIAN), "from {bad:?}");
        assert_eq!(verdict(good, bad), Outcome::drop(DROP_MARTIAN), "to {bad:?}");
    }
    for edge in [[1, 0, 0, 0], [126, 255, 255, 255], [128, 0, 0, 0], [223, 255, 255, 255]] {
        assert_eq!(verdict(edge, edge).verdict, VERDICT_FORWARD, "{edge:?}");
    }
}

#[test]
fn skips_and_keeps_one_vlan_tag() {
    let function = function(ROUTES);
    let mut tagged = frame([192, 0, 2, 1], [10, 0, 0, 1], 9);
    tagged.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
    assert_eq!(run(&*function, &mut tagged).verdict, VERDICT_FORWARD);
    assert_eq!(tagged[12..18], [0x81, 0x00, 0x20, 0x05, 0x08, 0x00]);
    assert_eq!(tagged[18 + 8], 8);
    tagged.splice(12..12, [0x81, 0x00, 0x20, 0x06]);
    assert_eq!(run(&*function, &mut tagged), Outcome::verdict(VERDICT_NOT_IPV4));
}

#[test]
fn later_routes_replace_earlier_ones_and_the_file_comes_first() {
    let directory = Directory::new("ipv4-routes");
    std::fs::write(directory.0.join("routes.txt"), "10.0.0.0/8 nowhere\n10.0.0.0/8 here\n11.0.0.0/8\n").unwrap();
    let build = |stanza: &str| testing::build(&KIND, &format!("{stanza}\n{NEXT_HOPS}"), &["a", "b"], &directory.0);
    let function = build("routes = \"routes.txt\"\ndefault_next_hop = \"nowhere\"").unwrap();
    let outcome = |function: &dyn Function, to| run(function, &mut frame([192, 0, 2, 1], to, 9));
    assert_eq!(outcome(&*function, [10, 0, 0, 1]).verdict, VERDICT_LOCAL);
    assert_eq!(outcome(&*function, [11, 0, 0, 1]), Outcome::drop(DROP_BLACKHOLE));
    let function = build(
        "routes = \"routes.txt\"\ndefault_next_hop = \"nowhere\"\n[[route]]\nprefix = \"10.0.0.0/8\"\nnext_hop = \"east\"",
    )
    .unwrap();
    assert_eq!(outcome(&*function, [10, 0, 0, 1]).verdict, VERDICT_FORWARD);

    let error = build("routes = \"routes.txt\"").err().unwrap().to_string();
    assert!(error.contains("routes.txt:3: ") && error.contains("default_next_hop"), "{error}");
    let error = build("routes = \"missing.txt\"").err().unwrap().to_string();
    assert!(error.contains("missing.txt: "), "{error}");
}

#[test]
fn rejects_invalid_stanzas_with_the_reason() {
    for (stanza, part) in [
        ("", "has no routes"),
        ("prefixes = 1", "prefixes"),
        ("[[route]]\nprefix = \"10.0.0.1/8\"\nnext_hop = \"here\"", "10.0.0.0/8"),
        ("[[route]]\nprefix = \"10.0.0.0/8\"\nnext_hop = \"their\"", "\"their\""),
        ("[[route]]\nprefix = \"10.0.0.0/8\"", "default_next_hop"),
        ("default_next_hop = \"x\"\n[[route]]\nprefix = \"10.0.0.0/8\"", "\"x\""),
        ("[[next_hop]]\nname = \"x\"\n[[route]]\nprefix = \"10.0.0.0/8\"", "needs port"),
        ("[[next_hop]]\nname = \"here\"\nlocal = true\n[[route]]\nprefix = \"10.0.0.0/8\"", "two next hops"),
        ("[[next_hop]]\nname = \"x\"\nlocal = true\nblackhole = true\n[[route]]\nprefix = \"10.0.0.0/8\"", "either"),
        ("[[next_hop]]\nname = \"x\"\nlocal = true\nport = \"a\"\n[[route]]\nprefix = \"10.0.0.0/8\"", "either"),
    ] {
        let error = build_error(&KIND, &format!("{stanza}\n{NEXT_HOPS}"), &["a", "b"]).to_string();
        assert!(error.contains(part), "{error}");
    }
    let hop = |port: &str, destination: &str, source: &str| {
        format!(
            "[[route]]\nprefix = \"10.0.0.0/8\"\nnext_hop = \"x\"\n[[next_hop]]\nname = \"x\"\nport = \"{port}\"\n\
             destination_mac = \"{destination}\"\nsource_mac = \"{source}\""
        )
    };
    let mac = "02:00:00:00:00:01";
    for (stanza, part) in [
        (hop("c", mac, mac), "the ports are: a, b"),
        (hop("a", "02:00:00:00:00", mac), "not an Ethernet address"),
        (hop("a", mac, "02:00:00:00:00:01:02"), "not an Ethernet address"),
        (hop("a", mac, "02:00:00:00:00:0g"), "not an Ethernet address"),
        (hop("a", mac, "+2:00:00:00:00:00"), "not an Ethernet address"),
        (hop("a", mac, "03:00:00:00:00:00"), "group address"),
    ] {
        let error = build_error(&KIND, &stanza, &["a", "b"]);
        assert!(matches!(&error, Error::Value { span: Some(span), .. } if stanza.get(span.clone()).is_some()));
        assert!(error.to_string().contains(part), "{error}");
    }
}

fn station(port: u16, last: u8, mtu: u16) -> Adjacency {
    Adjacency { port, destination: MacAddress([2, 0, 0, 0, 1, last]), source: MacAddress([2, 0, 0, 0, 2, last]), mtu }
}

#[test]
fn reports_mtu_ttl_and_unresolved_next_hops() {
    let hops = vec![
        NextHop::Forward(station(3, 1, 33)),
        NextHop::Forward(station(3, 1, 31)),
        NextHop::Unresolved(station(4, 2, 1500)),
        NextHop::Unreachable,
    ];
    let routes = (0..4).map(|hop| route(0x0a00_0000 | hop << 16, 16, hop)).collect();
    let function = Ipv4::new(routes, hops).unwrap();
    let outcome = |third, ttl, df: bool| {
        let mut frame = frame([192, 0, 2, 1], [10, third, 0, 1], ttl);
        if !df {
            let mut packet = godwit_wire::Ipv4::new_checked(&mut frame[14..]).unwrap();
            packet.set_flags_offset(0);
            packet.fill_checksum();
        }
        let before = frame.clone();
        let outcome = run(&function, &mut frame);
        assert_eq!(before == frame, !matches!(outcome.verdict, VERDICT_FORWARD | VERDICT_FRAGMENT));
        (outcome.verdict, outcome.port, outcome.value)
    };
    // The packets in this test have 32 bytes.
    assert_eq!(outcome(0, 9, true), (VERDICT_FORWARD, 3, 0));
    assert_eq!(outcome(1, 9, true), (VERDICT_TOO_BIG, 3, 31));
    assert_eq!(outcome(1, 9, false), (VERDICT_FRAGMENT, 3, 31));
    assert_eq!(outcome(1, 1, true), (VERDICT_TTL_EXCEEDED, 0, 0));
    assert_eq!(outcome(2, 9, true), (VERDICT_UNRESOLVED, 4, 2));
    assert_eq!(outcome(2, 1, true), (VERDICT_TTL_EXCEEDED, 0, 0));
    assert_eq!(outcome(3, 1, true), (VERDICT_NO_ROUTE, 0, 0));
}

/// Looks up an address as a kernel does.
fn lookup_image(function: &Ipv4, address: u32) -> Option<u32> {
    let image = &function.image;
    let u64_at = |at: usize| image.load_u64(at) as usize;
    let width = function.layout.table.entry_bytes;
    let entry = |table: usize, index: usize| {
        if width == 2 { image.load_u16(table + index * 2).into() } else { image.load_u32(table + index * 4) }
    };
    assert_eq!(u64_at(40), image.len());
    let top = 1u32 << (8 * width - 1);
    let mut found = entry(u64_at(24), (address >> 8) as usize);
    if found & top != 0 {
        found = entry(u64_at(32), (found & !top) as usize * 256 + (address & 0xff) as usize);
    }
    (found != top - 1).then_some(found)
}

fn next_hops(count: usize) -> Vec<NextHop> {
    vec![NextHop::Local; count]
}

fn route(address: u32, length: u8, next_hop: u32) -> Route {
    Route { prefix: address.masked(length), length, next_hop }
}

#[test]
fn covers_both_ends_of_the_address_space() {
    let function = Ipv4::new(
        vec![route(0, 0, 0), route(u32::MAX, 32, 1), route(0, 32, 2), route(u32::MAX, 1, 3), route(1 << 31, 25, 4)],
        next_hops(5),
    )
    .unwrap();
    for (address, next_hop) in [
        (0, 2),
        (1, 0),
        (0x7fff_ffff, 0),
        (1 << 31, 4),
        (0x8000_007f, 4),
        (0x8000_0080, 3),
        (u32::MAX - 1, 3),
        (u32::MAX, 1),
    ] {
        assert_eq!(lookup_image(&function, address), Some(next_hop), "{address:#x}");
        assert_eq!(function.lookup_ref(address), Some(next_hop), "{address:#x}");
    }
}

#[test]
fn entries_grow_with_the_number_of_next_hops() {
    for (count, width, variant) in [(0x7fff, 2, VARIANT_ENTRIES16), (0x8000, 4, VARIANT_ENTRIES32)] {
        let last = count as u32 - 1;
        let routes = vec![route(0x0a00_0000, 8, 0), route(0x0a00_0080, 25, last)];
        let function = Ipv4::new(routes, next_hops(count)).unwrap();
        assert_eq!((function.layout.table.entry_bytes, function.properties().variant), (width, variant));
        for (address, next_hop) in [(0x0a00_0080, Some(last)), (0x0a00_007f, Some(0)), (0x0b00_0000, None)] {
            assert_eq!(lookup_image(&function, address), next_hop);
        }
    }
}

#[test]
fn entries_grow_with_the_number_of_groups() {
    // Each /24 block has a different pair of next hops for its first two addresses. The first next
    // hop is one of 200, and the second is one of 200 others.
    for (count, width) in [(0x8000, 2), (0x8001, 4)] {
        let host = |block: u32, octet, next_hop| route(block << 8 | octet, 32, next_hop);
        let routes = (0..count).flat_map(|block| [host(block, 0, block / 200), host(block, 1, 200 + block % 200)]);
        let function = Ipv4::new(routes.collect(), next_hops(400)).unwrap();
        assert_eq!(function.layout.table.entry_bytes, width);
        for block in 0..count {
            assert_eq!(lookup_image(&function, block << 8), Some(block / 200));
            assert_eq!(lookup_image(&function, block << 8 | 1), Some(200 + block % 200));
            assert_eq!(lookup_image(&function, block << 8 | 2), None);
        }
        assert_eq!(lookup_image(&function, count << 8), None);
    }
}

#[test]
fn shares_groups_between_blocks_with_the_same_pieces() {
    let room = Spare { next_hops: 0, groups: 0 };
    let groups = |routes| Ipv4::with_room(routes, next_hops(2), Vec::new(), room).unwrap().image.load_u32(12);
    assert_eq!(groups((0..1000).map(|block| route(block << 8 | 7, 32, 0)).collect()), 1);
    assert_eq!(groups((0..1000).map(|block| route(block << 8 | 7, 32, block % 2)).collect()), 2);
    // A longer prefix needs no group if the shorter prefix has the same next hop.
    assert_eq!(groups(vec![route(0x0a00_0000, 8, 1), route(0x0a01_0280, 25, 1)]), 0);
}

#[test]
fn rejects_more_routes_than_the_maximum() {
    assert!(crate::tables::lpm4::check_count(ROUTES_MAX).is_ok());
    let error = crate::tables::lpm4::check_count(ROUTES_MAX + 1).unwrap_err();
    assert!(error.to_string().contains("67108864"), "{error}");
}

/// Generates routes with few different addresses and all prefix lengths. Many of these prefixes
/// contain, touch or equal each other.
fn crowded_routes() -> impl Strategy<Value = Vec<Route>> {
    let address = prop_oneof![
        any::<u32>(),
        (0u32..4, 0u32..600).prop_map(|(far, near)| (far << 30).wrapping_sub(300).wrapping_add(near)),
    ];
    let one = (address, prop_oneof![0u8..=32, 22u8..=32], 0u32..6);
    prop::collection::vec(one.prop_map(|(address, length, next_hop)| route(address, length, next_hop)), 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn image_agrees_with_a_longest_prefix_search(routes in crowded_routes(), addresses: Vec<u32>) {
        let function = Ipv4::new(routes.clone(), next_hops(6)).unwrap();
        let edges = routes.iter().flat_map(|route| {
            let last = route.prefix | !u32::MAX.masked(route.length);
            [route.prefix, route.prefix.wrapping_sub(1), last, last.wrapping_add(1)]
        });
        for address in edges.chain(addresses).chain([0, u32::MAX]) {
            let expected = function.lookup_ref(address);
            prop_assert_eq!(lookup_image(&function, address), expected, "{:#x}", address);
            let sources = source::Ipv4Sources { image: Arc::clone(&function.image), layout: function.layout };
            prop_assert_eq!(sources.lookup(address), expected, "host: {:#x}", address);
        }
    }
}

#[test]
fn resolves_the_route_file_relative_to_the_configuration() {
    let error = testing::build(&KIND, "routes = \"r.txt\"", &[], Path::new("/nonexistent")).err().unwrap();
    assert!(error.to_string().starts_with("/nonexistent/r.txt: "), "{error}");
}

#[derive(Default)]
struct Idle {
    waits: std::cell::Cell<usize>,
    refuses: std::cell::Cell<bool>,
}

impl Running for Idle {
    fn image_changed(&self, _range: std::ops::Range<usize>) -> Result<(), Error> {
        match self.refuses.get() {
            true => Err(Error::Command { message: "refused".to_owned() }),
            false => Ok(()),
        }
    }

    fn quiesce(&self) -> Result<(), Error> {
        self.waits.set(self.waits.get() + 1);
        Ok(())
    }
}

fn to(route: Route, is_there: bool) -> RouteChange {
    let prefix = Prefix::of(std::net::Ipv4Addr::from_bits(route.prefix).into(), route.length).unwrap();
    RouteChange { prefix, next_hop: is_there.then_some(route.next_hop) }
}

fn batches() -> impl Strategy<Value = Vec<(Vec<Route>, bool)>> {
    prop::collection::vec((crowded_routes(), any::<bool>()), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn changed_tables_agree_with_their_routes(start in crowded_routes(), batches in batches(), wide: bool) {
        let hops = next_hops(if wide { 0x8000 } else { 6 });
        let room = Spare { next_hops: 4, groups: 300 };
        let function = Ipv4::with_room(start.clone(), hops, Vec::new(), room).unwrap();
        prop_assert_eq!(function.layout.table.entry_bytes, if wide { 4 } else { 2 });
        let running = Idle::default();
        // The first lookup creates the table of the reference implementation. All later route
        // changes must update this table.
        function.lookup_ref(0);
        let mut oracle = std::collections::BTreeMap::new();
        for route in start {
            oracle.insert((route.prefix, route.length), route.next_hop);
        }
        for (routes, is_there) in batches {
            let changes: Vec<_> = routes.iter().map(|route| to(*route, is_there)).collect();
            function.change(&changes, &running).unwrap();
            for route in routes {
                match is_there {
                    true => oracle.insert((route.prefix, route.length), route.next_hop),
                    false => oracle.remove(&(route.prefix, route.length)),
                };
            }
            let expected: Vec<(Prefix, u32)> =
                oracle.iter().map(|(&(prefix, length), &hop)| (to(route(prefix, length, 0), true).prefix, hop)).collect();
            prop_assert_eq!(function.routes(), expected);
            let edges = oracle.keys().flat_map(|&(prefix, length)| {
                let last = prefix | !u32::MAX.masked(length);
                [prefix, prefix.wrapping_sub(1), last, last.wrapping_add(1)]
            });
            for address in edges.chain([0, u32::MAX]) {
                let expected = (0..=32).rev().find_map(|length| oracle.get(&(address.masked(length), length)).copied());
                prop_assert_eq!(lookup_image(&function, address), expected, "{:#x}", address);
                prop_assert_eq!(function.lookup_ref(address), expected);
                let found = function.find(std::net::Ipv4Addr::from_bits(address).into()).map(|(_, hop)| hop);
                prop_assert_eq!(found, expected);
            }
        }
    }
}

#[test]
fn reuses_groups_after_a_grace_period() {
    let function = Ipv4::with_room(vec![], next_hops(3), Vec::new(), Spare { next_hops: 0, groups: 2 }).unwrap();
    let running = Idle::default();
    let host = |octet, hop, is_there| to(route(0x0a00_0000 | octet, 32, hop), is_there);
    function.change(&[host(1, 0, true)], &running).unwrap();
    function.change(&[host(2, 1, true)], &running).unwrap();
    assert_eq!(running.waits.get(), 0, "unused groups are taken first");
    for octet in 3..100 {
        function.change(&[host(octet, octet % 3, true)], &running).unwrap();
        assert_eq!(lookup_image(&function, 0x0a00_0000 | octet), Some(octet % 3));
    }
    assert!(running.waits.get() >= 97, "{}", running.waits.get());
    // The routes now need three different groups of 256 entries, but the table has room for only
    // two.
    let other = |block: u32, hop| to(route(0x0b00_0000 | block << 8, 32, hop), true);
    let Unchanged { made, error } = function.change(&[other(0, 0), other(1, 1), other(2, 0)], &running).unwrap_err();
    assert!(made == 1 && error.to_string().contains("spare_groups"), "{made}: {error}");
    assert_eq!(lookup_image(&function, 0x0b00_0000), Some(0));
    assert_eq!((lookup_image(&function, 0x0b00_0100), function.routes().len()), (None, 100));
    // A change that was not copied to a device is copied together with the next change.
    running.refuses.set(true);
    let narrow = to(route(0x0c00_0000, 24, 1), true);
    function.change(&[narrow], &running).unwrap_err();
    running.refuses.set(false);
    function.change(&[narrow], &running).unwrap();
    assert_eq!(lookup_image(&function, 0x0c00_0000), Some(1));
}

#[test]
fn adds_changes_and_removes_next_hops() {
    let function = Ipv4::with_room(vec![], vec![], Vec::new(), Spare { next_hops: 2, groups: 2 }).unwrap();
    let running = Idle::default();
    let one = NextHop::Forward(station(1, 1, 1500));
    assert_eq!(function.add_next_hops(&[one, NextHop::Local], &running).unwrap(), [0, 1]);
    assert!(function.add_next_hops(&[one], &running).unwrap_err().to_string().contains("spare_next_hops"));
    let lead = to(route(0x0a00_0000, 8, 0), true);
    function.change(&[lead], &running).unwrap();
    let there = |function: &Ipv4| {
        let mut frame = frame([192, 0, 2, 1], [10, 0, 0, 1], 9);
        (run(function, &mut frame), frame[..12].to_vec())
    };
    assert_eq!(there(&function).0.port, 1);
    assert!(function.remove_next_hops(&[0], &running).unwrap_err().to_string().contains("1 routes"));
    // A new destination address takes one store and no wait.
    let moved = NextHop::Forward(Adjacency { destination: MacAddress([2; 6]), ..station(1, 1, 1500) });
    function.set_next_hops(&[(0, moved)], &running).unwrap();
    assert_eq!((there(&function).1[..6].to_vec(), running.waits.get()), (vec![2; 6], 0));
    function.set_next_hops(&[(0, NextHop::Unresolved(station(1, 1, 1500)))], &running).unwrap();
    assert_eq!((there(&function).0.verdict, running.waits.get()), (VERDICT_UNRESOLVED, 0));
    // Both the port and the source address of the next hop change. The update therefore waits twice
    // for packets in flight.
    function.set_next_hops(&[(0, NextHop::Forward(station(2, 7, 1500)))], &running).unwrap();
    assert_eq!((there(&function).0.port, running.waits.get()), (2, 2));
    function.change(&[RouteChange { next_hop: None, ..lead }], &running).unwrap();
    function.remove_next_hops(&[0], &running).unwrap();
    for wrong in [0, 7] {
        let change = RouteChange { next_hop: Some(wrong), ..lead };
        assert!(function.change(&[change], &running).unwrap_err().error.to_string().contains("no next hop"));
        assert!(function.set_next_hops(&[(wrong, one)], &running).is_err());
        assert!(function.remove_next_hops(&[wrong], &running).is_err());
    }
    assert_eq!(function.add_next_hops(&[one], &running).unwrap(), [0]);
    assert_eq!(running.waits.get(), 4, "one wait before the index is reused, one before it is published");
}

#[test]
fn commands_add_delete_and_list_routes() {
    let function = build_ok(&KIND, &format!("{ROUTES}\n{NEXT_HOPS}"), &["a", "b"]);
    let running = Idle::default();
    let command =
        |request: &str| function.operate().unwrap().command(&serde_json::from_str(request).unwrap(), &running);
    let reply = command(r#"{"command":"add","route":[{"prefix":"10.9.0.0/16","next_hop":"nowhere"}]}"#).unwrap();
    assert_eq!(reply["added"], 1);
    let reply = command(r#"{"command":"list","address":"10.9.1.1"}"#).unwrap();
    assert_eq!((reply["routes"].clone(), reply["route"][0]["next_hop"].clone()), (1.into(), "nowhere".into()));
    assert_eq!(command(r#"{"command":"delete","route":["10.9.0.0/16"]}"#).unwrap()["deleted"], 1);
    let reply = command(r#"{"command":"list"}"#).unwrap();
    assert_eq!(
        (reply["routes"].clone(), reply["route"][0]["destination_mac"].clone()),
        (4.into(), "02:00:00:00:00:0a".into())
    );
    for (request, part) in [
        (r#"{"command":"delete","route":["10.9.0.0/16"]}"#, "no route for 10.9.0.0/16"),
        (r#"{"command":"add","route":[{"prefix":"10.9.0.0/16","next_hop":"their"}]}"#, "east, here, nowhere"),
        (r#"{"command":"add","route":[{"prefix":"::/0","next_hop":"east"}]}"#, "other address family"),
        (r#"{"command":"add","route":[{"prefix":"10.9.0.1/16","next_hop":"east"}]}"#, "10.9.0.0/16"),
        (r#"{"command":"add","route":[]}"#, "needs"),
        (r#"{"command":"list","address":"x"}"#, "not an IP address"),
        (r#"{"command":"flush"}"#, "add, delete and list"),
    ] {
        let error = command(request).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

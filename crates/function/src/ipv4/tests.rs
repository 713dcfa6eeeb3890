use std::path::Path;

use godwit_wire::Ipv4Header;
use proptest::prelude::*;

use super::*;
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

/// A frame with an IPv4 packet of 12 payload bytes.
fn frame(source: [u8; 4], destination: [u8; 4], ttl: u8) -> Vec<u8> {
    let mut frame = vec![0x11; 46];
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
fn a_packet_goes_by_its_longest_prefix() {
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
        ([11, 0, 0, 0], Outcome::drop(DROP_NO_ROUTE)),
        ([9, 255, 255, 255], Outcome::drop(DROP_NO_ROUTE)),
    ] {
        let before = frame(source, destination, 9);
        let mut after = before.clone();
        assert_eq!(run(&*function, &mut after), expected, "{destination:?}");
        if expected == forward {
            let mut wanted = frame(source, destination, 8);
            wanted[..12].copy_from_slice(&[2, 0, 0, 0, 0, 10, 2, 0, 0, 0, 0, 11]);
            assert_eq!(after, wanted);
        } else {
            assert_eq!(after, before);
        }
    }
}

#[test]
fn the_last_hop_ends_at_a_router_and_not_behind_it() {
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
fn martians_are_dropped_both_ways() {
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
fn a_tag_is_skipped_and_kept() {
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
fn routes_come_from_file_and_stanza_and_the_last_word_counts() {
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
fn wrong_stanzas_are_refused_with_the_reason() {
    for (stanza, part) in [
        ("", "has no routes"),
        ("prefixes = 1", "prefixes"),
        ("[[route]]\nprefix = \"10.0.0.1/8\"\nnext_hop = \"here\"", "meant is perhaps 10.0.0.0/8"),
        ("[[route]]\nprefix = \"10.0.0.0/8\"\nnext_hop = \"their\"", "no next hop called \"their\""),
        ("[[route]]\nprefix = \"10.0.0.0/8\"", "no default_next_hop"),
        ("default_next_hop = \"x\"\n[[route]]\nprefix = \"10.0.0.0/8\"", "no next hop called \"x\""),
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

/// What a kernel would find in the image, entry by entry.
fn lookup_image(function: &Ipv4, address: u32) -> Option<u32> {
    let image: &[u8] = &function.image;
    let u64_at = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap()) as usize;
    let width = function.entry_bytes;
    let entry = |table: usize, index: usize| {
        let mut bytes = [0; 4];
        bytes[..width].copy_from_slice(&image[table + index * width..][..width]);
        u32::from_le_bytes(bytes)
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
    Route { prefix: address & routes::mask(length), length, next_hop }
}

#[test]
fn the_table_ends_where_the_address_space_ends() {
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
    for (count, width, variant) in [(0x7fff, 2, VARIANT_ENTRIES_16), (0x8000, 4, VARIANT_ENTRIES_32)] {
        let last = count as u32 - 1;
        let routes = vec![route(0x0a00_0000, 8, 0), route(0x0a00_0080, 25, last)];
        let function = Ipv4::new(routes, next_hops(count)).unwrap();
        assert_eq!((function.entry_bytes, function.variant()), (width, variant));
        for (address, next_hop) in [(0x0a00_0080, Some(last)), (0x0a00_007f, Some(0)), (0x0b00_0000, None)] {
            assert_eq!(lookup_image(&function, address), next_hop);
        }
    }
}

#[test]
fn entries_grow_with_the_number_of_groups() {
    // No two of these blocks split in the same way: 200 next hops for the first address, 200 for the second.
    for (count, width) in [(0x8000, 2), (0x8001, 4)] {
        let host = |block: u32, octet, next_hop| route(block << 8 | octet, 32, next_hop);
        let routes = (0..count).flat_map(|block| [host(block, 0, block / 200), host(block, 1, 200 + block % 200)]);
        let function = Ipv4::new(routes.collect(), next_hops(400)).unwrap();
        assert_eq!(function.entry_bytes, width);
        for block in 0..count {
            assert_eq!(lookup_image(&function, block << 8), Some(block / 200));
            assert_eq!(lookup_image(&function, block << 8 | 1), Some(200 + block % 200));
            assert_eq!(lookup_image(&function, block << 8 | 2), None);
        }
        assert_eq!(lookup_image(&function, count << 8), None);
    }
}

#[test]
fn blocks_that_split_alike_share_a_group() {
    let groups =
        |routes| u32::from_le_bytes(Ipv4::new(routes, next_hops(2)).unwrap().image[12..16].try_into().unwrap());
    assert_eq!(groups((0..1000).map(|block| route(block << 8 | 7, 32, 0)).collect()), 1);
    assert_eq!(groups((0..1000).map(|block| route(block << 8 | 7, 32, block % 2)).collect()), 2);
    // A longer prefix that changes nothing needs none.
    assert_eq!(groups(vec![route(0x0a00_0000, 8, 1), route(0x0a01_0280, 25, 1)]), 0);
}

#[test]
fn more_routes_than_a_table_takes_is_an_error() {
    assert!(tables::check_count(ROUTES_MAX).is_ok());
    let error = tables::check_count(ROUTES_MAX + 1).unwrap_err();
    assert!(error.to_string().contains("at most 67108864"), "{error}");
}

/// Prefixes that nest, touch and repeat: few addresses, all lengths.
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

    /// The image says of every address what a search for the longest prefix says.
    #[test]
    fn the_image_agrees_with_the_prefixes(routes in crowded_routes(), addresses: Vec<u32>) {
        let function = Ipv4::new(routes.clone(), next_hops(6)).unwrap();
        let edges = routes.iter().flat_map(|route| {
            let last = route.prefix | !routes::mask(route.length);
            [route.prefix, route.prefix.wrapping_sub(1), last, last.wrapping_add(1)]
        });
        for address in edges.chain(addresses).chain([0, u32::MAX]) {
            prop_assert_eq!(lookup_image(&function, address), function.lookup_ref(address), "{:#x}", address);
        }
    }
}

#[test]
fn files_are_named_relative_to_the_configuration() {
    let error = testing::build(&KIND, "routes = \"r.txt\"", &[], Path::new("/nonexistent")).err().unwrap();
    assert!(error.to_string().starts_with("/nonexistent/r.txt: "), "{error}");
}

//! Compares every CPU level and every number of interleaved packets with a map of all prefixes. One
//! table has 200,000 names, and another has two names with the same hash.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use godwit_abi::{Descriptor, Outcome};
use godwit_function::ndn::{Carrier, DROP_NO_ROUTE, Names, Ndn, NextHop, Parts, VERDICT_FORWARD};
use godwit_kernels::{GROUP_MAX, levels};
use godwit_packet::{Arena, ArenaConfig};
use godwit_test_cases::ndn_packets::element;
use godwit_test_support::Random;
use godwit_wire::MacAddress;

use super::whole_bin::run_bin;

const NAMES: usize = 200_000;
const NEXT_HOPS: u32 = 16;
const PACKETS: usize = 1 << 14;

fn next_hops() -> Vec<(String, NextHop)> {
    let hop = |index: u32| NextHop::Forward {
        port: index as u16,
        destination: MacAddress([2, 0, 0, 0, 1, index as u8]),
        source: MacAddress([2, 0, 0, 0, 2, index as u8]),
        carrier: Carrier::Ethernet,
    };
    (0..NEXT_HOPS).map(|index| (index.to_string(), hop(index))).collect()
}

fn component(text: &str) -> Vec<u8> {
    element(8, text.as_bytes())
}

/// Returns a name that resembles the name of a web site. It has one of four top components, one of
/// thousands of sites, and sometimes a path. Prefixes of some names are names too.
fn site(random: &mut Random) -> Vec<u8> {
    let mut name = component(random.pick(&["com", "org", "net", "example"]));
    name.extend(component(&format!("site-{:x}", random.below(60_000))));
    for _ in 0..random.below(4) {
        let bits = random.below(20);
        name.extend(component(&format!("{:x}", random.below(1 << bits))));
    }
    name
}

fn interest(name: &[u8]) -> Vec<u8> {
    let inside = [element(7, name), element(10, &[1, 2, 3, 4]), element(34, &[64])].concat();
    [&[2; 12][..], &[0x86, 0x24], &element(5, &inside)].concat()
}

/// Returns the next hop of the longest prefix in the map.
fn longest(map: &HashMap<Vec<u8>, u32>, name: &[u8]) -> Option<u32> {
    // All components are shorter than 253 bytes. Their type and length therefore take one byte
    // each.
    let mut ends = vec![0];
    while let Some(&at) = ends.last().filter(|&&at| at < name.len()) {
        ends.push(at + 2 + usize::from(name[at + 1]));
    }
    ends.iter().rev().find_map(|&end| map.get(&name[..end]).copied())
}

/// Returns the outcomes of Interests for these names. Checks that all CPU levels and numbers of
/// interleaved packets give the same outcomes.
fn outcomes(function: &Ndn, names: &[Vec<u8>]) -> Vec<Outcome> {
    let config = ArenaConfig { packets: names.len(), ..ArenaConfig::default() };
    let mut region = Arena::new(config, 1).unwrap().split().remove(0);
    let frames: Vec<Vec<u8>> = names.iter().map(|name| interest(name)).collect();
    let descriptors: Vec<Descriptor> =
        frames.iter().map(|frame| region.allocate(frame.len()).expect("a buffer for each frame")).collect();
    let mut first: Option<Vec<Outcome>> = None;
    for level in levels().iter().filter(|level| level.supported()) {
        for group in [1, 16, GROUP_MAX] {
            for (descriptor, frame) in descriptors.iter().zip(&frames) {
                region.frame_mut(descriptor).copy_from_slice(frame);
            }
            let mut after = descriptors.clone();
            let outcomes = run_bin(level, group, function, &mut region, &mut after);
            let expected = first.get_or_insert_with(|| outcomes.clone());
            assert_eq!(*expected, outcomes, "{}, gopt group of {group}", level.name);
        }
    }
    first.expect("the CPU supports a level")
}

fn expected(next_hop: Option<u32>) -> Outcome {
    next_hop.map_or(Outcome::drop(DROP_NO_ROUTE), |hop| Outcome {
        port: hop as u16,
        value: hop,
        ..Outcome::verdict(VERDICT_FORWARD)
    })
}

#[test]
fn a_large_table_finds_every_name_by_its_longest_prefix() {
    let mut random = Random::new(1);
    let mut map = HashMap::new();
    let mut names = Names::new();
    while map.len() < NAMES {
        let (name, next_hop) = (site(&mut random), random.below(NEXT_HOPS as usize) as u32);
        names.push(&name, next_hop);
        map.insert(name, next_hop);
    }
    let function = Ndn::new(Parts::new(names, next_hops())).unwrap();
    assert_eq!(function.names(), NAMES as u64);
    let mut known: Vec<&Vec<u8>> = map.keys().collect();
    known.sort_unstable();
    let mut requested = Vec::with_capacity(PACKETS);
    while requested.len() < PACKETS {
        let name = match random.below(4) {
            0 => site(&mut random),
            1 => known[random.below(known.len())].clone(),
            _ => [&known[random.below(known.len())][..], &component("v=1"), &component("segment-7")].concat(),
        };
        requested.push(name);
    }
    let outcomes = outcomes(&function, &requested);
    for (name, outcome) in requested.iter().zip(outcomes) {
        let hop = longest(&map, name);
        assert_eq!(outcome, expected(hop), "{name:02x?}");
        assert_eq!(function.lookup_ref(name), hop, "{name:02x?}");
    }
    let missed = requested.iter().filter(|name| longest(&map, name).is_none()).count();
    assert!(missed > 100 && missed < PACKETS / 2, "{missed} of {PACKETS} without a route");
}

/// The table has one bucket, so only the comparison of the names can distinguish them.
#[test]
fn two_names_with_the_same_fingerprint_are_distinguished() {
    // The hash function of the standard library is SipHash-1-3 with key 0.
    let fingerprint = |name: &[u8]| {
        let mut hasher = BuildHasherDefault::<DefaultHasher>::default().build_hasher();
        hasher.write(name);
        (hasher.finish() >> 32) as u32
    };
    let name = |number: u32| component(&number.to_string());
    let mut seen: HashMap<u32, u32> = HashMap::new();
    let pair = (0..).find_map(|number| {
        let before = seen.insert(fingerprint(&name(number)), number)?;
        Some((name(before), name(number)))
    });
    let (one, other) = pair.expect("two of 2^32 names have the same 32-bit fingerprint");
    let mut names = Names::new();
    names.push(&one, 3);
    let parts = Parts { key: Some([0, 0]), spare_names: 0, ..Parts::new(names.clone(), next_hops()) };
    let found = outcomes(&Ndn::new(parts).unwrap(), &[one.clone(), other.clone()]);
    assert_eq!(found, [expected(Some(3)), expected(None)]);
    // Both names are now in the table, and each has its own next hop.
    names.push(&other, 5);
    let parts = Parts { key: Some([0, 0]), spare_names: 0, ..Parts::new(names, next_hops()) };
    let found = outcomes(&Ndn::new(parts).unwrap(), &[one, other]);
    assert_eq!(found, [expected(Some(3)), expected(Some(5))]);
}

//! Compares the reference implementation and every CPU level with Linux as a router
//! (`tests/vectors/ipv6`).

use std::net::Ipv6Addr;
use std::path::PathBuf;

use godwit_abi::{Descriptor, Outcome, VERDICT_DROP};
use godwit_function::Function;
use godwit_function::ipv6::{Form, Ipv6, Route};
use godwit_function::routing::{Adjacency, NextHop};
use godwit_kernels::levels;
use godwit_packet::{Arena, ArenaConfig};
use godwit_test_support::hex::unhex;
use godwit_test_support::repository;
use godwit_wire::MacAddress;

use super::whole_bin::run_bin;

/// Names of the next hops in `routes.txt`, in the order of their indices.
const HOPS: [&str; 6] = ["p1", "p2", "p3", "here", "nowhere", "closed"];

fn next_hops() -> [NextHop; 6] {
    let station = |port: u8, mtu| {
        let [destination, source] = [1, 2].map(|last| MacAddress([2, 0, 0, 0, port, last]));
        NextHop::Forward(Adjacency { port: port.into(), destination, source, mtu })
    };
    let [p1, p2, p3] = [(1, 1500), (2, 1500), (3, 1280)].map(|(port, mtu)| station(port, mtu));
    [p1, p2, p3, NextHop::Local, NextHop::Blackhole, NextHop::Unreachable]
}

fn routes() -> Vec<Route> {
    let text = std::fs::read_to_string(folder().join("routes.txt")).unwrap();
    let route = |line: &str| {
        let (prefix, hop) = line.split_once(' ').unwrap();
        let (address, length) = prefix.split_once('/').unwrap();
        let next_hop = HOPS.iter().position(|name| *name == hop).unwrap() as u32;
        let prefix = address.parse::<Ipv6Addr>().unwrap().to_bits();
        Route { prefix, length: length.parse().unwrap(), next_hop }
    };
    text.lines().filter(|line| !line.starts_with('#')).map(route).collect()
}

struct Vector {
    line: usize,
    frame: Vec<u8>,
    expected: Expected,
}

/// Reaction of Linux to a packet.
enum Expected {
    /// Linux forwards this frame by this port.
    Forward(u16, Vec<u8>),
    /// Linux answers with ICMPv6. The function returns this verdict, and this value if the ICMPv6
    /// message contains one.
    Answer(&'static str, Option<u32>),
    /// Linux drops the packet.
    Nothing,
}

fn folder() -> PathBuf {
    repository().join("tests/vectors/ipv6")
}

fn vectors() -> Vec<Vector> {
    let text = std::fs::read_to_string(folder().join("linux.txt")).unwrap();
    let lines = (1..).zip(text.lines()).filter(|(_, text)| !text.starts_with('#'));
    let vector = |(line, text): (usize, &str)| {
        let words: Vec<&str> = text.split(' ').collect();
        let expected = match words[1..] {
            ["forward", port, frame] => Expected::Forward(port[1..].parse().unwrap(), unhex(frame)),
            ["nothing"] => Expected::Nothing,
            // A router does not forward packets to link-local addresses (RFC 4291, section 2.5.6).
            ["link"] => Expected::Answer("link_local", None),
            ["icmpv6", kind, code, word] => {
                let word = word.parse().unwrap();
                // The ICMPv6 types are from RFC 4443, sections 3.1 to 3.4 and 4.2. The station
                // itself sends port unreachable and echo reply.
                match (kind, code) {
                    ("1", "0") => Expected::Answer("no_route", None),
                    ("1", "2") => Expected::Answer("beyond_scope", None),
                    ("1", "4") | ("129", "0") => Expected::Answer("local", None),
                    ("2", "0") => Expected::Answer("too_big", Some(word)),
                    ("3", "0") => Expected::Answer("hop_limit_exceeded", None),
                    ("4", "2") => Expected::Answer("parameter_problem", Some(word)),
                    _ => panic!("line {line}: ICMPv6 {kind} {code}"),
                }
            }
            _ => panic!("line {line}"),
        };
        Vector { line, frame: unhex(words[0]), expected }
    };
    lines.map(vector).collect()
}

fn check(function: &dyn Function, vector: &Vector, by: &str, outcome: Outcome, frame: &[u8]) {
    let contract = function.contract();
    let context = format!("line {} by {by}: {outcome:?}", vector.line);
    let verdict = |name: &str| outcome.verdict == contract.verdict(name).unwrap();
    let expected = match &vector.expected {
        Expected::Forward(port, forwarded) => {
            let hop = outcome.value as usize;
            assert!(verdict("forward") && outcome.port == *port && HOPS[hop] == format!("p{port}"), "{context}");
            forwarded
        }
        Expected::Answer(name, value) => {
            assert!(verdict(name) && value.is_none_or(|value| value == outcome.value), "{context}, not {name}");
            &vector.frame
        }
        Expected::Nothing => {
            assert!(outcome.verdict == VERDICT_DROP || verdict("link_local"), "{context}");
            &vector.frame
        }
    };
    if outcome.verdict != VERDICT_DROP {
        assert!(frame == expected, "{context}: {frame:02x?}, not {expected:02x?}");
    }
}

#[test]
fn packets_are_processed_as_by_linux() {
    let vectors = vectors();
    assert!(vectors.len() > 700);
    let config = ArenaConfig { packets: vectors.len(), ..ArenaConfig::default() };
    let mut region = Arena::new(config, 1).unwrap().split().remove(0);
    let descriptors: Vec<Descriptor> =
        vectors.iter().map(|vector| region.allocate(vector.frame.len()).unwrap()).collect();
    for form in [Form::Trie, Form::Hash] {
        let function = Ipv6::new(&routes(), &next_hops(), Some(form)).unwrap();
        for (vector, descriptor) in vectors.iter().zip(&descriptors) {
            let mut descriptor = *descriptor;
            region.frame_mut(&descriptor).copy_from_slice(&vector.frame);
            let variant = function.properties().variant;
            let outcome = function.run_ref(region.buffer_mut(&descriptor), &mut descriptor, variant, 0);
            check(&function, vector, &format!("ref, {form:?}"), outcome, region.frame(&descriptor));
        }
        let levels = levels().iter().filter(|level| level.supported());
        for (level, group) in levels.flat_map(|level| [0, 1, 16].map(|group| (level, group))) {
            let mut after = descriptors.clone();
            for (vector, descriptor) in vectors.iter().zip(&descriptors) {
                region.frame_mut(descriptor).copy_from_slice(&vector.frame);
            }
            let outcomes = run_bin(level, group, &function, &mut region, &mut after);
            for ((vector, descriptor), outcome) in vectors.iter().zip(&after).zip(outcomes) {
                let by = format!("{}, {form:?}, gopt group of {group}", level.name);
                check(&function, vector, &by, outcome, region.frame(descriptor));
            }
        }
    }
}

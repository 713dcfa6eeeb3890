//! `ref` and every CPU level do with packets what Linux does with them as a router (`tests/vectors/ipv6`).

mod whole_bin;

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use godwit_abi::{Descriptor, Outcome, VERDICT_DROP};
use godwit_function::Function;
use godwit_function::ipv6::{Form, Ipv6, Route};
use godwit_function::routing::{Adjacency, NextHop};
use godwit_kernels::levels;
use godwit_packet::{Arena, ArenaConfig};
use godwit_wire::MacAddress;
use whole_bin::run_bin;

/// What `routes.txt` calls the next hops, in the order of their indexes.
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

/// What Linux does, in the words of the contract.
enum Expected {
    /// By this port, as this frame.
    Forward(u16, Vec<u8>),
    /// It answers with ICMPv6, which is left to who gets this verdict; and what the answer says.
    Answer(&'static str, Option<u32>),
    /// Nobody hears of it again.
    Nothing,
}

fn bytes(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/ipv6")
}

fn vectors() -> Vec<Vector> {
    let text = std::fs::read_to_string(folder().join("linux.txt")).unwrap();
    let lines = (1..).zip(text.lines()).filter(|(_, text)| !text.starts_with('#'));
    let vector = |(line, text): (usize, &str)| {
        let words: Vec<&str> = text.split(' ').collect();
        let expected = match words[1..] {
            ["forward", port, frame] => Expected::Forward(port[1..].parse().unwrap(), bytes(frame)),
            ["nothing"] => Expected::Nothing,
            // What is sent to an address of the link is no router's (RFC 4291 section 2.5.6).
            ["link"] => Expected::Answer("link_local", None),
            ["icmpv6", kind, code, word] => {
                let word = word.parse().unwrap();
                // RFC 4443 sections 3.1 to 3.4, 4.2: a port that nobody listens at and an echo are answers of the station itself.
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
        Vector { line, frame: bytes(words[0]), expected }
    };
    lines.map(vector).collect()
}

fn check(function: &dyn Function, vector: &Vector, by: &str, outcome: Outcome, frame: &[u8]) {
    let contract = function.contract();
    let what = format!("line {} by {by}: {outcome:?}", vector.line);
    let verdict = |name: &str| outcome.verdict == contract.verdict(name).unwrap();
    let unchanged = match &vector.expected {
        Expected::Forward(port, left) => {
            let hop = outcome.value as usize;
            assert!(verdict("forward") && outcome.port == *port && HOPS[hop] == format!("p{port}"), "{what}");
            left
        }
        Expected::Answer(name, value) => {
            assert!(verdict(name) && value.is_none_or(|value| value == outcome.value), "{what}, and not {name}");
            &vector.frame
        }
        Expected::Nothing => {
            assert!(outcome.verdict == VERDICT_DROP || verdict("link_local"), "{what}");
            &vector.frame
        }
    };
    if outcome.verdict != VERDICT_DROP {
        assert!(frame == unchanged, "{what}: {frame:02x?} and not {unchanged:02x?}");
    }
}

#[test]
fn packets_leave_as_linux_sends_them() {
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
            let variant = function.variant();
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
                let by = format!("{}, {form:?}, {group} in turns", level.name);
                check(&function, vector, &by, outcome, region.frame(descriptor));
            }
        }
    }
}

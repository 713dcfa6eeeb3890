//! Compares the reference implementation and every CPU level with a forwarder in Python
//! (`tests/vectors/ndn`).

use std::path::Path;
use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome, VERDICT_DROP};
use godwit_function::{BuildContext, Function, kind};
use godwit_kernels::levels;
use godwit_packet::{Arena, ArenaConfig};
use godwit_test_support::hex::unhex;
use godwit_test_support::repository;
use toml::de::DeTable;

use super::whole_bin::run_bin;

const STANZA: &str = r#"
    next_hop = [
        { name = "east", port = "p1", destination_mac = "02:00:00:00:01:01", source_mac = "02:00:00:00:01:02" },
        { name = "four", port = "p2", destination_mac = "02:00:00:00:02:01", source_mac = "02:00:00:00:02:02",
          source_address = "192.0.2.1", destination_address = "198.51.100.7", destination_port = 7000 },
        { name = "six", port = "p3", destination_mac = "02:00:00:00:03:01", source_mac = "02:00:00:00:03:02",
          source_address = "2001:db8::1", destination_address = "2001:db8::2" },
        { name = "here", local = true },
        { name = "nowhere", blackhole = true },
    ]
    default_next_hop = "east"
    route = [
        { prefix = "/a" },
        { prefix = "/a/b", next_hop = "four" },
        { prefix = "/a/b/c", next_hop = "six" },
        { prefix = "/a/b/c/d/e", next_hop = "here" },
        { prefix = "/B", next_hop = "six" },
        { prefix = "/A" },
        { prefix = "/example/site", next_hop = "four" },
        { prefix = "/example/site/private", next_hop = "nowhere" },
        { prefix = "LONG" },
        { prefix = "/32=key/z", next_hop = "six" },
        { prefix = "/v=7", next_hop = "four" },
    ]
"#;
const HOPS: [&str; 5] = ["east", "four", "six", "here", "nowhere"];

struct Vector {
    line: usize,
    frame: Vec<u8>,
    outcome: Outcome,
    /// Frame after processing, if it has changed.
    changed: Option<Vec<u8>>,
}

fn vectors(function: &dyn Function) -> Vec<Vector> {
    let file = repository().join("tests/vectors/ndn/packets.txt");
    let text = std::fs::read_to_string(file).unwrap();
    let contract = function.contract();
    let lines = (1..).zip(text.lines()).filter(|(_, text)| !text.starts_with('#'));
    let vector = |(line, text): (usize, &str)| {
        let [result, hop, frame, changed] = text.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let outcome = match result.strip_prefix("drop:") {
            Some(reason) => Outcome::drop(contract.drops.iter().position(|drop| drop.name == reason).unwrap() as u8),
            None => Outcome::verdict(contract.verdict(result).unwrap()),
        };
        let outcome = match HOPS.iter().position(|name| *name == hop) {
            Some(hop) => {
                let port = if result == "forward" { hop as u16 + 1 } else { 0 };
                Outcome { port, value: hop as u32, ..outcome }
            }
            None => outcome,
        };
        let frame = if frame == "-" { Vec::new() } else { unhex(frame) };
        Vector { line, frame, outcome, changed: (changed != "-").then(|| unhex(changed)) }
    };
    lines.map(vector).collect()
}

fn function() -> Arc<dyn Function> {
    let stanza = STANZA.replace("LONG", &format!("/{}", "x".repeat(300))).replace("\n          ", " ");
    let ports: Vec<String> = (0..4).map(|port| format!("p{port}")).collect();
    let context = BuildContext { name: "names", ports: &ports, directory: Path::new(".") };
    (kind("ndn").unwrap().build)(DeTable::parse(&stanza).unwrap(), &context).unwrap()
}

#[test]
fn packets_are_processed_as_by_another_forwarder() {
    let function = function();
    let vectors = vectors(&*function);
    assert!(vectors.len() > 400);
    let config = ArenaConfig { packets: vectors.len(), frame_bytes_max: 12_000, ..ArenaConfig::default() };
    let mut region = Arena::new(config, 1).unwrap().split().remove(0);
    let descriptors: Vec<Descriptor> =
        vectors.iter().map(|vector| region.allocate(vector.frame.len()).unwrap()).collect();
    let check = |vector: &Vector, by: &str, outcome: Outcome, frame: &[u8]| {
        assert_eq!(outcome, vector.outcome, "line {} by {by}", vector.line);
        if outcome.verdict != VERDICT_DROP {
            let expected = vector.changed.as_ref().unwrap_or(&vector.frame);
            assert!(frame == expected, "line {} by {by}: {frame:02x?}, not {expected:02x?}", vector.line);
        }
    };
    for (vector, descriptor) in vectors.iter().zip(&descriptors) {
        let mut descriptor = *descriptor;
        region.frame_mut(&descriptor).copy_from_slice(&vector.frame);
        let outcome = function.run_ref(region.buffer_mut(&descriptor), &mut descriptor, 0, 0);
        check(vector, "ref", outcome, region.frame(&descriptor));
    }
    for level in levels().iter().filter(|level| level.supported()) {
        let mut after = descriptors.clone();
        for (vector, descriptor) in vectors.iter().zip(&descriptors) {
            region.frame_mut(descriptor).copy_from_slice(&vector.frame);
        }
        let outcomes = run_bin(level, 0, &*function, &mut region, &mut after);
        for ((vector, descriptor), outcome) in vectors.iter().zip(&after).zip(outcomes) {
            check(vector, level.name, outcome, region.frame(descriptor));
        }
    }
}

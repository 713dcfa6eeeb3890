//! A replay gives the same bytes with every implementation, device and number of workers.

mod common;

use std::fs;
use std::path::Path;

use common::{godwit, run};
use godwit_test_support::capture::{captures, frames, write};
use serde_json::Value;

/// Router with a responder, which answers, fragments and sends errors.
const ROUTER: &str = r#"
[[port]]
name = "lan"
kind = "synthetic"

[[port]]
name = "wan"
kind = "synthetic"

[[function]]
name = "route"
kind = "ipv4"
PLACE

[[function.next_hop]]
name = "upstream"
port = "wan"
destination_mac = "02:00:00:00:01:01"
source_mac = "02:00:00:00:01:02"
mtu = 400

[[function.route]]
prefix = "0.0.0.0/1"
next_hop = "upstream"

[[function]]
name = "self"
kind = "responder"

[[function.interface]]
port = "lan"
mac = "02:00:00:00:00:01"
addresses = ["10.1.0.1/24"]

[[function.interface]]
port = "wan"
mac = "02:00:00:00:01:02"
addresses = ["192.0.2.1/24"]

[[chain]]
from = "lan"
to = "route"

[[chain]]
from = "route"
verdict = "forward"
to = "egress"

[[chain]]
from = "route"
to = "self"

[[chain]]
from = "self"
verdict = "other"
to = "drop"

[[chain]]
from = "self"
to = "egress"
"#;

/// Switch that knows no station, so that it floods every frame.
const SWITCH: &str = r#"
[[port]]
name = "lan"
kind = "synthetic"

[[port]]
name = "wan"
kind = "synthetic"

[[port]]
name = "third"
kind = "synthetic"

[[function]]
name = "switch"
kind = "l2"
PLACE

[[function.port]]
port = "lan"
access = 1

[[function.port]]
port = "wan"
access = 1

[[function.port]]
port = "third"
access = 1

[[chain]]
from = "lan"
to = "switch"

[[chain]]
from = "switch"
verdict = "forward"
to = "egress"

[[chain]]
from = "switch"
verdict = "flood"
to = "egress"

[[chain]]
from = "switch"
to = "drop"
"#;

/// Replays a capture from port `lan`. Returns the bytes that each of the ports `outputs` sends, and
/// the counts of packets.
fn outputs(folder: &Path, text: &str, input: &Path, outputs: &[&str]) -> (Vec<Vec<u8>>, Value) {
    let config = folder.join("config.toml");
    fs::write(&config, text).unwrap();
    let mut command = godwit();
    command.arg("replay").arg(&config).arg("--in").arg(format!("lan={}", input.display())).args(["--json", "-"]);
    let path = |port: &&str| folder.join(format!("{port}.pcap"));
    outputs.iter().for_each(|port| _ = command.arg("--out").arg(format!("{port}={}", path(port).display())));
    let report = common::conserved(&run(&mut command).succeeded().stdout);
    (outputs.iter().map(|port| fs::read(path(port)).unwrap()).collect(), report["conservation"].clone())
}

fn has_opencl() -> bool {
    let devices = run(godwit().args(["devices", "--json"])).succeeded();
    let devices: Value = serde_json::from_str(&devices.stdout).unwrap();
    let devices = devices["devices"].as_array().unwrap();
    devices.iter().any(|device| device["id"] == "opencl:0" && device["usable"] == true)
}

#[test]
fn every_implementation_and_device_replays_the_same_bytes_with_any_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // All whole frames of all captures, several times, so that more packets are in flight than the
    // arena has buffers.
    let all: Vec<Vec<u8>> = captures()
        .iter()
        .filter_map(|path| frames(path))
        .flatten()
        .filter(|frame| frame.data.len() == frame.original_bytes && (1..=1600).contains(&frame.data.len()))
        .map(|frame| frame.data)
        .collect();
    assert!(all.len() > 500, "{} frames", all.len());
    let input = folder.join("all.pcap");
    write(&input, &all.iter().cycle().take(4 * all.len()).cloned().collect::<Vec<_>>());

    let mut places: Vec<(String, String)> =
        ["ref", "scalar", "gopt", "native"].map(|form| (form.to_owned(), format!("impl = \"{form}\""))).into();
    if has_opencl() {
        let place = "device = \"opencl:0\"".to_owned();
        places.push(("launch".to_owned(), place.clone()));
        places.push(("persistent".to_owned(), place));
    } else {
        godwit_test_support::absent("OpenCL device");
    }
    for (name, text, ports) in [("router", ROUTER, &["lan", "wan"][..]), ("switch", SWITCH, &["wan", "third"])] {
        let mut first = None;
        for (place, key) in &places {
            for workers in [1, 2, 4] {
                let device = match place.as_str() {
                    "persistent" => "[[device]]\nname = \"opencl:0\"\nmode = \"persistent\"\n",
                    _ => "",
                };
                let engine = format!(
                    "[engine]\nworkers = {workers}\npin = false\nin_flight_packets = 256\n\
                     [arena]\npackets = 384\nframe_bytes_max = 1600\n{device}"
                );
                let text = format!("{engine}{}", text.replace("PLACE", key));
                let (bytes, conservation) = outputs(folder, &text, &input, ports);
                let (expected, counts) = first.get_or_insert_with(|| (bytes.clone(), conservation.clone()));
                assert_eq!(conservation, *counts, "{name}, {place}, {workers} workers");
                assert!(bytes == *expected, "{name}, {place}, {workers} workers: other bytes");
            }
        }
        let (bytes, counts) = first.expect("at least one run");
        assert!(bytes.iter().all(|capture| capture.len() > 10_000), "{name}: {counts}");
        assert!(counts["created"].as_u64() > Some(100), "{name}: {counts}");
    }
}

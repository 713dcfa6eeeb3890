//! A replay gives the same bytes with every implementation, device and number of workers.

mod common;

use std::fs;
use std::path::Path;

use common::{godwit, run};
use godwit_test_support::capture::{captures, frames, read, write};
use godwit_test_support::{ConfigText, FrameBuilder, Random};
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

/// Places of the function under test: a name, and a line of its stanza.
fn places() -> Vec<(&'static str, String)> {
    let mut places: Vec<_> =
        ["ref", "scalar", "gopt", "native"].map(|form| (form, format!("impl = \"{form}\""))).into();
    if has_opencl() {
        places.extend(["launch", "persistent"].map(|mode| (mode, "device = \"opencl:0\"".to_owned())));
    } else {
        godwit_test_support::absent("OpenCL device");
    }
    places
}

/// Replays `input` in every place with 1, 2 and 4 workers, and asserts that all outputs and counts
/// are the same. Returns them. `text` has the line `PLACE` in the stanza of the function.
fn same_everywhere(folder: &Path, name: &str, text: &str, input: &Path, ports: &[&str]) -> (Vec<Vec<u8>>, Value) {
    let mut first = None;
    for (place, key) in places() {
        for workers in [1, 2, 4] {
            let device = match place {
                "persistent" => "[[device]]\nname = \"opencl:0\"\nmode = \"persistent\"\n",
                _ => "",
            };
            let engine = format!(
                "[engine]\nworkers = {workers}\npin = false\nin_flight_packets = 256\n\
                 [arena]\npackets = 384\nframe_bytes_max = 1600\n{device}"
            );
            let text = format!("{engine}{}", text.replace("PLACE", &key));
            let (bytes, conservation) = outputs(folder, &text, input, ports);
            let (expected, counts) = first.get_or_insert_with(|| (bytes.clone(), conservation.clone()));
            assert_eq!(conservation, *counts, "{name}, {place}, {workers} workers");
            assert!(bytes == *expected, "{name}, {place}, {workers} workers: other bytes");
        }
    }
    first.expect("at least one run")
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

    for (name, text, ports) in [("router", ROUTER, &["lan", "wan"][..]), ("switch", SWITCH, &["wan", "third"])] {
        let (bytes, counts) = same_everywhere(folder, name, text, &input, ports);
        assert!(bytes.iter().all(|capture| capture.len() > 10_000), "{name}: {counts}");
        assert!(counts["created"].as_u64() > Some(100), "{name}: {counts}");
    }
}

/// Number of SAs of the gateway, and the replay window of each.
const SAS: usize = 5;
const WINDOW: usize = 64;

/// One end of a tunnel with [`SAS`] SAs, each to a separate network. `keys` are lines of every SA.
fn gateway(direction: &str, keys: &str) -> ConfigText {
    let mut text = ConfigText::new();
    for port in ["lan", "wan"] {
        text = text.port(port, "synthetic", "");
    }
    text = text.function("tunnel", "ipsec", "PLACE");
    let suites = [
        "encryption = \"aes-128-gcm\"\nencryption_key = \"KEY01234567\"",
        "encryption = \"aes-128-cbc\"\nencryption_key = \"KEY\"\nauthentication = \"hmac-sha1-96\"\n\
         authentication_key = \"KEY01234567\"",
    ];
    for sa in 0..SAS {
        let key = format!("5b1e{sa:04x}93c7f2a06d84be1c57e2{sa:04x}");
        let suite = suites[sa % suites.len()].replace("KEY", &key);
        // The lifetime of the last SA ends within the capture.
        let lifetime = if sa + 1 == SAS && direction == "in" { "lifetime = { hard_packets = 100 }" } else { "" };
        text = text.nested(
            "sa",
            &format!(
                "name = \"{sa}\"\nspi = {}\ndirection = \"{direction}\"\nsource = \"192.0.2.1\"\n\
                 destination = \"192.0.2.2\"\nesn = {}\n{suite}\n{lifetime}\n{keys}",
                0x1001 + sa,
                sa == 1
            ),
        );
        if direction == "out" {
            let network = format!("destination = \"10.2.{sa}.0/24\"");
            text = text.nested("policy", &format!("action = \"protect\"\nsa = \"{sa}\"\n{network}"));
        }
    }
    text
}

/// Frames of a peer that arrive out of order, more than a window late, twice, and damaged.
fn shuffled(folder: &Path, count: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(0xe5b);
    let plain: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            let data = random.bytes(8 + random.clone().below(1200));
            FrameBuilder::new().ipv4([10, 1, 0, 1], [10, 2, random.below(SAS) as u8, 1]).udp([4000, 12345], &data)
        })
        .collect();
    write(&folder.join("plain.pcap"), &plain);
    let config = gateway("out", "key_is_new = true").verdict_edge("tunnel", "encrypted", "wan");
    let config = config.edge("lan", "tunnel").edge("tunnel", "drop").to_string().replace("PLACE", "");
    outputs(folder, &config, &folder.join("plain.pcap"), &["wan"]);
    let sent = read(&folder.join("wan.pcap"));
    assert_eq!(sent.len(), count);
    let mut arriving: Vec<(usize, Vec<u8>)> = Vec::new();
    for (at, frame) in sent.into_iter().enumerate() {
        // Each SA has every SAS-th packet, so these delays are around the window, and far beyond.
        let delay = match random.below(10) {
            0..4 => 0,
            4..7 => random.below(SAS * WINDOW / 2),
            7..9 => SAS * WINDOW - 100 + random.below(200),
            _ => random.below(4 * SAS * WINDOW),
        };
        if random.one_in(4) {
            arriving.push((at + random.below(2 * SAS * WINDOW), frame.clone()));
        }
        if random.one_in(8) {
            let mut damaged = frame.clone();
            *damaged.last_mut().unwrap() ^= 1;
            arriving.push((at + delay, damaged));
        }
        arriving.push((at + delay, frame));
    }
    arriving.sort_by_key(|(at, _)| *at);
    arriving.into_iter().map(|(_, frame)| frame).collect()
}

/// The result for a packet depends on the replay window when it arrives, and not on how many of the
/// earlier packets are still in flight.
#[test]
fn shuffled_esp_is_opened_alike_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let frames = shuffled(folder, 3000);
    let input = folder.join("esp.pcap");
    write(&input, &frames);
    let mut results = Vec::new();
    for (name, more) in [("plain", None), ("reassembly", Some("packets = 16"))] {
        let mut config = gateway("in", &format!("replay_window = {WINDOW}"));
        if let Some(keys) = more {
            config = config.nested_table("reassembly", keys);
        }
        let config = config.verdict_edge("tunnel", "decrypted", "wan").edge("lan", "tunnel").edge("tunnel", "drop");
        let (bytes, counts) = same_everywhere(folder, name, &config.to_string(), &input, &["wan"]);
        let opened = counts["sent"].as_u64().unwrap() as usize;
        assert!((1000..frames.len() - 1000).contains(&opened), "{name}: {counts}");
        results.push((bytes, counts));
    }
    assert!(results[0] == results[1], "reassembly changes nothing without fragments");
}

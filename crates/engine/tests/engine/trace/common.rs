//! Runs with a trace, and the comparison of a trace with the counters.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_engine::config::Config;
use godwit_engine::trace::{Found, Next, Packet, StepKind};
use godwit_engine::{Engine, Options, Replay, Report};
use godwit_test_support::{Folder, FrameBuilder, capture};
use serde_json::Value;

use crate::common::LIMIT;

/// Returns a frame with a UDP datagram.
pub(crate) fn udp(source: [u8; 4], destination: [u8; 4], ports: [u16; 2], ttl: u8, payload: &[u8]) -> Vec<u8> {
    FrameBuilder::new().ipv4(source, destination).ttl(ttl).udp(ports, payload)
}

/// Runs an engine with a trace that starts before the first packet.
pub(crate) fn run(text: &str, folder: &Path, request: &Value, options: &Options) -> (Report, Found) {
    let config = Config::parse(text, "test.toml", folder).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let engine = Engine::new(config, options).unwrap();
    let trace = engine.trace(request).unwrap();
    let report = engine.run(&Arc::new(AtomicBool::new(false)), Some(LIMIT), &mut |_| {}).unwrap();
    assert!(report.conservation.holds(), "{}", report.conservation);
    (report, trace.stop())
}

/// Replays frames of several ports through a configuration, with a trace.
pub(crate) fn replay(text: &str, inputs: &[(&str, Vec<Vec<u8>>)], request: &Value) -> (Report, Found) {
    let folder = Folder::new();
    let input = |(port, frames): &(&str, Vec<Vec<u8>>)| {
        let path = folder.join(format!("{port}.pcap"));
        capture::write(&path, frames);
        (Some((*port).to_owned()), path)
    };
    let replay = Replay { inputs: inputs.iter().map(input).collect(), outputs: vec![(None, folder.join("out.pcap"))] };
    folder.write("patterns.txt", "attack\n");
    run(text, folder.path(), request, &Options { replay: Some(replay), ..Options::default() })
}

/// Returns the steps of a packet as short texts, without times and chunk numbers.
pub(crate) fn path(packet: &Packet) -> Vec<String> {
    let next = |next: &Next| match next {
        Next::Function(name) | Next::Port(name) => name.clone(),
        Next::Flood(ports) => ports.join("+"),
        Next::Drop => "drop".to_owned(),
        Next::Nowhere => "nowhere".to_owned(),
    };
    let word = |kind: &StepKind| match kind {
        StepKind::Received { class, next: to } => format!("{class} > {}", next(to)),
        StepKind::Created { function, class } => format!("created by {function}, {class}"),
        StepKind::MadeOf { function, packet } => format!("made by {function} of {packet}"),
        StepKind::Split { function, packet } => format!("{function} makes {packet}"),
        StepKind::Held { function } => format!("{function} holds"),
        StepKind::Joined { function, held, .. } => format!("{function} joins {held}"),
        StepKind::Prepared { function, variant } => {
            format!("{function} prepares {}", variant.as_deref().unwrap_or("none"))
        }
        StepKind::Binned { function, device, .. } => format!("{function} bin of {device}"),
        StepKind::Submitted { device, .. } => format!("to {device}"),
        StepKind::NotTaken { device } => format!("not taken by {device}"),
        StepKind::Returned { device } => format!("from {device}"),
        StepKind::Verdict { function, verdict, next: to, on_device } => {
            format!("{function}: {verdict} > {}{}", next(to), if *on_device { " (led)" } else { "" })
        }
        StepKind::Copied { port } => format!("copy to {port}"),
        StepKind::CopyDropped { port, counter, .. } => format!("no copy to {port}: {counter}"),
        StepKind::Sent { port, .. } => format!("sent by {port}"),
        StepKind::HandedOver { port, .. } => format!("handed over for {port}"),
        StepKind::SentOrRefused { port, .. } => format!("sent by {port} or refused"),
        StepKind::Dropped { counter, .. } => format!("dropped: {counter}"),
    };
    packet.steps.iter().map(|step| word(&step.kind)).collect()
}

/// Asserts that a trace of all packets agrees with the counters of the report.
pub(crate) fn assert_agreement(report: &Report, found: &Found) {
    assert_eq!((found.missed, found.packets.iter().map(|packet| packet.steps_left_out).sum::<u64>()), (0, 0));
    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |name: String| *counted.entry(name).or_default() += 1;
    let mut fates = BTreeMap::new();
    for packet in &found.packets {
        assert!(packet.steps.is_sorted_by_key(|step| step.at_ns), "{packet:?}");
        *fates.entry(format!("{:?}", packet.fate)).or_insert(0) += 1;
        let mut gone = 0;
        for step in &packet.steps {
            match &step.kind {
                StepKind::Received { .. } => add("engine_received".to_owned()),
                StepKind::Created { .. } | StepKind::MadeOf { .. } => add("engine_created".to_owned()),
                StepKind::Copied { .. } => add("engine_created".to_owned()),
                StepKind::Verdict { function, verdict, .. } => add(format!("{function}: {verdict}")),
                StepKind::Submitted { device, .. } => add(format!("device_packets{{device=\"{device}\"}}")),
                StepKind::Dropped { counter, reason } => {
                    assert!(!reason.is_empty());
                    add(counter.clone());
                    add("engine_dropped".to_owned());
                    gone += 1;
                }
                StepKind::CopyDropped { counter, .. } => {
                    add("engine_created".to_owned());
                    add("engine_dropped".to_owned());
                    add(counter.clone());
                }
                StepKind::Sent { .. } => {
                    add("engine_sent".to_owned());
                    gone += 1;
                }
                StepKind::Held { .. } => gone += 1,
                _ => {}
            }
        }
        let copies = packet.steps.iter().filter(|step| matches!(step.kind, StepKind::Copied { .. })).count();
        assert_eq!(gone, 1 + copies, "the packet and each copy are sent, dropped or held once: {packet:?}");
    }
    // A rejected chunk counts only for the device that accepted it later.
    for packet in &found.packets {
        for step in &packet.steps {
            if let StepKind::NotTaken { device } = &step.kind {
                *counted.entry(format!("device_packets{{device=\"{device}\"}}")).or_default() -= 1;
            }
        }
    }
    counted.retain(|_, count| *count > 0);
    let mut expected: BTreeMap<String, u64> = report
        .counters
        .iter()
        .filter(|(_, count)| *count > 0)
        .filter(|(name, _)| {
            name.contains("_dropped")
                || ["engine_received", "engine_created", "engine_sent"].contains(&name.as_str())
                || name.starts_with("device_packets")
        })
        .cloned()
        .collect();
    for function in &report.functions {
        let verdicts = function.verdicts.iter().filter(|(_, count)| *count > 0);
        expected.extend(verdicts.map(|(verdict, count)| (format!("{}: {verdict}", function.name), *count)));
    }
    assert_eq!(counted, expected, "{fates:?}");
}

pub(crate) const GATEWAY: &str = r#"
    [engine]
    pin = false
    [[port]]
    name = "lan"
    kind = "synthetic"
    [[port]]
    name = "wan"
    kind = "synthetic"
    [[function]]
    name = "inspect"
    kind = "dpi"
    patterns = "patterns.txt"
    [[function]]
    name = "route"
    kind = "ipv4"
    [[function.next_hop]]
    name = "there"
    port = "wan"
    destination_mac = "02:00:00:00:00:07"
    source_mac = "02:00:00:00:00:08"
    [[function.next_hop]]
    name = "nowhere"
    blackhole = true
    [[function.route]]
    prefix = "10.0.0.0/8"
    next_hop = "there"
    [[function.route]]
    prefix = "10.9.0.0/16"
    next_hop = "nowhere"
    [[class]]
    name = "branch"
    destination = "10.2.0.0/16"
    [[class]]
    name = "dns"
    protocol = "udp"
    destination_ports = 53
    [[chain]]
    from = "lan"
    to = "route"
    [[chain]]
    from = "lan"
    class = "branch"
    to = "inspect"
    [[chain]]
    from = "wan"
    to = "lan"
    [[chain]]
    from = "inspect"
    verdict = "clean"
    to = "route"
    [[chain]]
    from = "inspect"
    verdict = "match"
    to = "drop"
    [[chain]]
    from = "route"
    verdict = "forward"
    to = "egress"
"#;

pub(crate) const HERE: [u8; 4] = [10, 1, 0, 5];

pub(crate) fn gateway_frames() -> [(&'static str, Vec<Vec<u8>>); 2] {
    let lan = vec![
        udp(HERE, [10, 2, 3, 4], [4000, 5000], 64, b"harmless"),
        udp(HERE, [10, 2, 3, 4], [4000, 5000], 64, b"an attack"),
        udp(HERE, [10, 3, 0, 1], [4001, 53], 64, b"question"),
        udp(HERE, [10, 9, 0, 1], [4001, 80], 64, b"into a hole"),
        udp(HERE, [10, 3, 0, 1], [4002, 80], 1, b"too old"),
    ];
    [("lan", lan), ("wan", vec![udp([10, 3, 0, 1], HERE, [53, 4001], 64, b"answer")])]
}

/// Configuration with two functions on a device that the test provides, and two classes.
pub(crate) const TWICE: &str = r#"
    [engine]
    workers = 2
    pin = false
    burst_packets = 64
    in_flight_packets = 1024
    [packing]
    deadline_ns = 20000
    [[device]]
    name = "opencl:9"
    watchdog_ms = 20
    chunks = 3
    chunk_packets = 64
    bins = 5
    bin_packets = 32
    [[port]]
    name = "in"
    kind = "synthetic"
    packets = 3000
    flows = 300
    size = "imix"
    seed = 5
    [[port]]
    name = "out"
    kind = "synthetic"
    [[function]]
    name = "swap"
    kind = "template"
    device = "opencl:9"
    [[function]]
    name = "number"
    kind = "echo"
    device = "opencl:9"
    [[class]]
    name = "some"
    source_ports = "0-30000"
    [[chain]]
    from = "in"
    to = "number"
    [[chain]]
    from = "in"
    class = "some"
    to = "swap"
    [[chain]]
    from = "swap"
    to = "number"
    [[chain]]
    from = "number"
    to = "out"
"#;

//! Packet traces: what they say of packets is what happened, step by step, and what the counters say.

mod faults;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use faults::{Faults, Loss, opener};
use godwit_abi::{Descriptor, Outcome};
use godwit_device::cpu::CpuDevice;
use godwit_device::{BinTime, Capabilities, Choice, Device, Error as DeviceError, Lane, Rejected};
use godwit_engine::config::Config;
use godwit_engine::trace::{Fate, Found, Next, PACKETS_MAX, Packet, What};
use godwit_engine::{Engine, Opener, Options, Replay, Report};
use godwit_function::{Arrangement, Contract, Function, HostHalf, Step, Work, echo};
use godwit_packet::{ImageRef, Region};
use godwit_sched::Chunk;
use serde_json::{Value, json};

const FAULTY: &str = "opencl:9";

/// A UDP packet over IPv4, Ethernet and all, with a good header checksum.
fn udp(source: [u8; 4], destination: [u8; 4], ports: [u16; 2], ttl: u8, payload: &[u8]) -> Vec<u8> {
    let length = 28 + payload.len() as u16;
    let mut ip = vec![0x45, 0];
    ip.extend(length.to_be_bytes());
    ip.extend([0, 1, 0, 0, ttl, 17, 0, 0]);
    ip.extend(source);
    ip.extend(destination);
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend(ip);
    ports.iter().for_each(|port| frame.extend(port.to_be_bytes()));
    frame.extend((length - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    for (number, frame) in (0_u32..).zip(frames) {
        let length = frame.len() as u32;
        [1_700_000_000, number, length, length].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).unwrap();
}

/// A run that is traced from its first packet on.
fn run(text: &str, folder: &Path, request: &Value, options: &Options) -> (Report, Found) {
    let config = Config::parse(text, "test.toml", folder).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let engine = Engine::new(config, options).unwrap();
    let trace = engine.trace(request).unwrap();
    let report = engine.run(&Arc::new(AtomicBool::new(false)), Some(Duration::from_secs(120)), &mut |_| {}).unwrap();
    assert!(report.conservation.holds(), "{}", report.conservation);
    (report, trace.stop())
}

/// Frames that come by these ports, through a configuration of one worker.
fn replay(text: &str, inputs: &[(&str, Vec<Vec<u8>>)], request: &Value) -> (Report, Found) {
    let folder = tempfile::tempdir().unwrap();
    let capture = |(port, frames): &(&str, Vec<Vec<u8>>)| {
        let path = folder.path().join(format!("{port}.pcap"));
        write_capture(&path, frames);
        (Some((*port).to_owned()), path)
    };
    let replay =
        Replay { inputs: inputs.iter().map(capture).collect(), outputs: vec![(None, folder.path().join("out.pcap"))] };
    std::fs::write(folder.path().join("patterns.txt"), "attack\n").unwrap();
    run(text, folder.path(), request, &Options { replay: Some(replay), ..Options::default() })
}

/// What a packet went through, without times and numbers of chunks, a word a step.
fn path(packet: &Packet) -> Vec<String> {
    let next = |next: &Next| match next {
        Next::Function(name) | Next::Port(name) => name.clone(),
        Next::Flood(ports) => ports.join("+"),
        Next::Drop => "drop".to_owned(),
        Next::Nowhere => "nowhere".to_owned(),
    };
    let word = |what: &What| match what {
        What::Received { class, next: to } => format!("{class} > {}", next(to)),
        What::Created { function, class } => format!("made by {function}, {class}"),
        What::MadeOf { function, packet } => format!("made by {function} of {packet}"),
        What::Split { function, packet } => format!("{function} makes {packet}"),
        What::Held { function } => format!("{function} holds"),
        What::Joined { function, held, .. } => format!("{function} joins {held}"),
        What::Prepared { function, variant } => format!("{function} prepares {}", variant.as_deref().unwrap_or("none")),
        What::Binned { function, device, .. } => format!("{function} bin of {device}"),
        What::Submitted { device, .. } => format!("to {device}"),
        What::NotTaken { device } => format!("not taken by {device}"),
        What::Returned { device } => format!("from {device}"),
        What::Verdict { function, verdict, next: to, on_device } => {
            format!("{function}: {verdict} > {}{}", next(to), if *on_device { " (led)" } else { "" })
        }
        What::Copied { port } => format!("copy to {port}"),
        What::CopyDropped { port, counter, .. } => format!("no copy to {port}: {counter}"),
        What::Sent { port, .. } => format!("sent by {port}"),
        What::HandedOver { port, .. } => format!("handed over for {port}"),
        What::SentOrRefused { port, .. } => format!("sent by {port} or refused"),
        What::Dropped { counter, .. } => format!("dropped: {counter}"),
    };
    packet.steps.iter().map(|step| word(&step.what)).collect()
}

fn count(report: &Report, counter: &str) -> u64 {
    report.counters.iter().find(|(name, _)| name == counter).map_or(0, |(_, value)| *value)
}

/// A trace of all packets says what the counters say.
fn agrees(report: &Report, found: &Found) {
    assert_eq!((found.missed, found.packets.iter().map(|packet| packet.steps_left_out).sum::<u64>()), (0, 0));
    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |name: String| *counted.entry(name).or_default() += 1;
    let mut fates = BTreeMap::new();
    for packet in &found.packets {
        assert!(packet.steps.is_sorted_by_key(|step| step.at_ns), "{packet:?}");
        *fates.entry(format!("{:?}", packet.fate)).or_insert(0) += 1;
        let mut gone = 0;
        for step in &packet.steps {
            match &step.what {
                What::Received { .. } => add("engine_received".to_owned()),
                What::Created { .. } | What::MadeOf { .. } => add("engine_created".to_owned()),
                What::Copied { .. } => add("engine_created".to_owned()),
                What::Verdict { function, verdict, .. } => add(format!("{function} said {verdict}")),
                What::Submitted { device, .. } => add(format!("device_packets{{device=\"{device}\"}}")),
                What::Dropped { counter, reason } => {
                    assert!(!reason.is_empty());
                    add(counter.clone());
                    add("engine_dropped".to_owned());
                    gone += 1;
                }
                What::CopyDropped { counter, .. } => {
                    add("engine_created".to_owned());
                    add("engine_dropped".to_owned());
                    add(counter.clone());
                }
                What::Sent { .. } => {
                    add("engine_sent".to_owned());
                    gone += 1;
                }
                What::Held { .. } => gone += 1,
                _ => {}
            }
        }
        let copies = packet.steps.iter().filter(|step| matches!(step.what, What::Copied { .. })).count();
        assert_eq!(gone, 1 + copies, "it and its copies are sent, dropped or held, once: {packet:?}");
    }
    // A chunk that was not taken counts as submitted where it went.
    for packet in &found.packets {
        for step in &packet.steps {
            if let What::NotTaken { device } = &step.what {
                *counted.entry(format!("device_packets{{device=\"{device}\"}}")).or_default() -= 1;
            }
        }
    }
    counted.retain(|_, count| *count > 0);
    let mut expected: BTreeMap<String, u64> = report
        .counters
        .iter()
        .filter(|(name, _)| {
            name.contains("_dropped")
                || ["engine_received", "engine_created", "engine_sent"].contains(&name.as_str())
                || name.starts_with("device_packets")
        })
        .cloned()
        .collect();
    for function in &report.functions {
        let said = function.verdicts.iter().filter(|(_, count)| *count > 0);
        expected.extend(said.map(|(verdict, count)| (format!("{} said {verdict}", function.name), *count)));
    }
    assert_eq!(counted, expected, "{fates:?}");
}

const GATEWAY: &str = r#"
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

const HERE: [u8; 4] = [10, 1, 0, 5];

fn gateway_frames() -> [(&'static str, Vec<Vec<u8>>); 2] {
    let lan = vec![
        udp(HERE, [10, 2, 3, 4], [4000, 5000], 64, b"harmless"),
        udp(HERE, [10, 2, 3, 4], [4000, 5000], 64, b"an attack"),
        udp(HERE, [10, 3, 0, 1], [4001, 53], 64, b"question"),
        udp(HERE, [10, 9, 0, 1], [4001, 80], 64, b"into a hole"),
        udp(HERE, [10, 3, 0, 1], [4002, 80], 1, b"too old"),
    ];
    [("lan", lan), ("wan", vec![udp([10, 3, 0, 1], HERE, [53, 4001], 64, b"answer")])]
}

#[test]
fn steps_of_known_packets() {
    let (report, found) = replay(GATEWAY, &gateway_frames(), &json!({ "count": 100, "frames": true }));
    agrees(&report, &found);
    assert_eq!((found.packets.len(), found.chosen, found.over), (6, 6, true));
    let of = |port: &str, sequence: usize| {
        let mut of_port = found.packets.iter().filter(|packet| packet.port == port);
        of_port.nth(sequence).unwrap_or_else(|| panic!("{found:?}"))
    };
    let expected = [
        vec![
            "branch > inspect",
            "inspect bin of cpu",
            "to cpu",
            "from cpu",
            "inspect: clean > route",
            "route bin of cpu",
            "to cpu",
            "from cpu",
            "route: forward > wan",
            "sent by wan",
        ],
        vec![
            "branch > inspect",
            "inspect bin of cpu",
            "to cpu",
            "from cpu",
            "inspect: match > drop",
            "dropped: engine_dropped_chain",
        ],
        vec!["dns > route", "route bin of cpu", "to cpu", "from cpu", "route: forward > wan", "sent by wan"],
        vec![
            "default > route",
            "route bin of cpu",
            "to cpu",
            "from cpu",
            "dropped: ipv4_dropped_blackhole{function=\"route\"}",
        ],
        vec![
            "default > route",
            "route bin of cpu",
            "to cpu",
            "from cpu",
            "route: ttl_exceeded > nowhere",
            "dropped: engine_dropped_unrouted",
        ],
    ];
    for (number, expected) in expected.iter().enumerate() {
        assert_eq!(path(of("lan", number)), *expected);
    }
    assert_eq!(path(of("wan", 0)), ["default > lan", "sent by lan"]);
    let fates: Vec<Fate> = (0..5).map(|number| of("lan", number).fate).collect();
    assert_eq!(fates, [Fate::Sent, Fate::Dropped, Fate::Sent, Fate::Dropped, Fate::Dropped]);

    let [(_, lan), _] = gateway_frames();
    let first = of("lan", 0);
    let flow = first.flow.as_ref().unwrap();
    assert_eq!((flow.source, flow.destination), ([10, 1, 0, 5].into(), [10, 2, 3, 4].into()));
    assert_eq!((flow.protocol, flow.source_port, flow.destination_port), (17, 4000, 5000));
    assert_eq!((first.frame.as_slice(), usize::from(first.length)), (lan[0].as_slice(), lan[0].len()));
    assert_eq!(first.time_ns, 1_700_000_000 * 1_000_000_000);
    // As it left: addresses of the next hop, one hop less to live.
    let [left] = first.left.as_slice() else { panic!("{first:?}") };
    assert_eq!((left.port.as_str(), &left.frame[..6], left.frame[22]), ("wan", &[2, 0, 0, 0, 0, 7][..], 63));
    assert!(of("lan", 1).left.is_empty());
    let What::Submitted { chunk, bin, bins, bin_packets, chunk_packets, .. } = first.steps[2].what else {
        panic!("{first:?}")
    };
    assert!(chunk >= 1 && (1..=bins).contains(&bin), "{first:?}");
    assert!(u32::from(bin_packets) <= chunk_packets && bin_packets >= 2, "{first:?}");
    let reasons: Vec<&str> = found
        .packets
        .iter()
        .flat_map(|packet| &packet.steps)
        .filter_map(|step| match step.what {
            What::Dropped { reason, .. } => Some(reason),
            _ => None,
        })
        .collect();
    assert!(reasons.contains(&"The route says that the packet is to be dropped."), "{reasons:?}");
}

#[test]
fn json_says_the_same() {
    let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "count": 100, "frames": true }));
    let text = serde_json::to_string(&found).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["packets"].as_array().unwrap().len(), found.packets.len());
    for (packet, value) in found.packets.iter().zip(value["packets"].as_array().unwrap()) {
        assert_eq!((value["number"].as_u64(), value["port"].as_str()), (Some(packet.number), Some(&*packet.port)));
        assert_eq!(value["steps"].as_array().unwrap().len(), packet.steps.len());
        assert_eq!(value["source"], packet.flow.as_ref().unwrap().source.to_string());
        let hexadecimal: String = packet.frame.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(value["frame"], hexadecimal);
    }
    let steps = &value["packets"]
        .as_array()
        .unwrap()
        .iter()
        .find(|packet| packet["destination"] == "10.2.3.4")
        .unwrap()["steps"];
    assert_eq!(steps[0]["step"], "received");
    assert_eq!(steps[0]["class"], "branch");
    assert_eq!(steps[0]["next"], json!({ "function": "inspect" }));
    assert_eq!((&steps[1]["step"], &steps[1]["device"]), (&json!("binned"), &json!("cpu")));
    assert_eq!((&steps[4]["step"], &steps[4]["verdict"]), (&json!("verdict"), &json!("clean")));
}

#[test]
fn filters_by_every_field() {
    let matches = |filter: Value| {
        let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "count": 100, "filter": filter.clone() }));
        let mut matches: Vec<(String, u64)> =
            found.packets.iter().map(|packet| (packet.port.clone(), packet.sequence)).collect();
        matches.sort();
        // Numbers in the sequence of both ports together, which are merged by time: those of `lan` first.
        matches.into_iter().map(|(port, sequence)| format!("{port}{sequence}")).collect::<Vec<_>>().join(" ")
    };
    let all = matches(json!({}));
    let each: Vec<&str> = all.split(' ').collect();
    let [a, attack, dns, hole, old, answer] = each[..] else { panic!("{all}") };
    for (filter, expected) in [
        (json!({ "port": "lan" }), vec![a, attack, dns, hole, old]),
        (json!({ "port": ["wan"] }), vec![answer]),
        (json!({ "class": "branch" }), vec![a, attack]),
        (json!({ "class": ["branch", "dns"] }), vec![a, attack, dns]),
        (json!({ "class": "default" }), vec![hole, old, answer]),
        (json!({ "source": "10.3.0.1" }), vec![answer]),
        (json!({ "source": ["10.3.0.0/16", "10.1.0.4/31"], "port": "wan" }), vec![answer]),
        (json!({ "destination": "10.2.0.0/15" }), vec![a, attack, dns, old]),
        (json!({ "protocol": "udp" }), each.clone()),
        (json!({ "protocol": 17, "destination": "10.9.0.0/16" }), vec![hole]),
        (json!({ "protocol": ["tcp", "esp"] }), vec![]),
        (json!({ "source_ports": 4001 }), vec![dns, hole]),
        (json!({ "source_ports": "4000-4001", "destination_ports": [53, "70-90"] }), vec![dns, hole]),
        (json!({ "destination_ports": 80, "protocol": "udp" }), vec![hole, old]),
        (json!({ "source": "2001:db8::/32" }), vec![]),
    ] {
        assert_eq!(matches(filter.clone()), expected.join(" "), "{filter}");
    }
}

#[test]
fn only_so_many_and_only_those_dropped() {
    let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "count": 2 }));
    assert_eq!((found.packets.len(), found.chosen, found.over), (2, 2, true));
    let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "dropped": true }));
    assert_eq!((found.packets.len(), found.chosen), (3, 6));
    assert!(found.packets.iter().all(|packet| packet.fate == Fate::Dropped));
    let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "dropped": true, "count": 1 }));
    assert_eq!(found.packets.len(), 1);
}

#[test]
fn what_is_wrong_with_a_request_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("patterns.txt"), "attack\n").unwrap();
    let config = Config::parse(GATEWAY, "test.toml", folder.path()).unwrap();
    let engine = Engine::new(config, &Options::default()).unwrap();
    let with = |filter: Value| json!({ "filter": filter });
    for (request, expected) in [
        (json!([]), "a trace is a JSON object"),
        (json!({ "count": 0 }), "`count` is a number from 1 to 4096"),
        (json!({ "count": 4097 }), "`count` is a number from 1 to 4096"),
        (json!({ "frames": 1 }), "`frames` is true or false"),
        (json!({ "cuont": 1 }), "did you mean `count`?"),
        (json!({ "filter": "udp" }), "`filter` is a JSON object"),
        (with(json!({ "sources": "10.0.0.1" })), "did you mean `source`?"),
        (with(json!({ "port": "lam" })), "did you mean `lan`?"),
        (with(json!({ "class": "brunch" })), "did you mean `branch`?"),
        (with(json!({ "class": 7 })), "`class` is the name of one"),
        (with(json!({ "protocol": "upd" })), "did you mean `udp`?"),
        (with(json!({ "protocol": 256 })), "256 is no protocol number"),
        (with(json!({ "source": "10.0.0.1/33" })), "`source`: "),
        (with(json!({ "source": "10.0.0.1/8" })), "`source`: "),
        (with(json!({ "destination": 7 })), "7 is not a prefix"),
        (with(json!({ "source_ports": "9-3" })), "holds no port"),
        (with(json!({ "source_ports": 65536 })), "65536 is no port"),
        (with(json!({ "destination_ports": [] })), "an empty list fits no packet"),
        (with(json!({ "destination_ports": 1.5 })), "`destination_ports` is a number, a text, or a list of them"),
        (with(json!({ "protocol": "esp", "source_ports": 1 })), "goes only with protocols that have ports"),
        (with(json!({ "source": "10.0.0.0/8", "destination": "2001:db8::/32" })), "of different IP versions"),
    ] {
        let error = engine.trace(&request).unwrap_err();
        assert!(error.contains(expected), "{request}: {error}");
    }
    let trace = engine.trace(&json!({})).unwrap();
    let error = engine.trace(&json!({})).unwrap_err();
    assert!(error.contains("another client is tracing"), "{error}");
    drop(trace);
    engine.trace(&json!({})).unwrap();
}

const TWICE: &str = r#"
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

fn faulty(faults: Faults) -> (Report, Found) {
    let options = Options { opener: Some(opener(FAULTY, faults)), ..Options::default() };
    run(TWICE, Path::new("."), &json!({ "count": 4096 }), &options)
}

#[test]
fn a_device_that_is_given_up() {
    let (report, found) = faulty(Faults { delay_polls: 3, fails_each: 0, loss: Some((Loss::Refuses, 5)) });
    agrees(&report, &found);
    assert_eq!((found.packets.len(), report.conservation.sent), (3000, 3000));
    let is_not_taken = |packet: &&Packet| path(packet).contains(&"not taken by opencl:9".to_owned());
    let not_taken: Vec<&Packet> = found.packets.iter().filter(is_not_taken).collect();
    assert!(!not_taken.is_empty());
    for packet in not_taken {
        let path = path(packet);
        let at = path.iter().position(|step| step == "not taken by opencl:9").unwrap();
        let function = path[at - 2].split(' ').next().unwrap();
        let expected =
            ["to opencl:9", "not taken by opencl:9", &format!("{function} bin of cpu"), "to cpu", "from cpu"];
        assert_eq!(path[at - 1..at + 4], expected, "{path:?}");
    }
    // Those that waited in its bins go into the CPU's as well.
    let moved = ["number bin of opencl:9".to_owned(), "number bin of cpu".to_owned()];
    assert!(found.packets.iter().any(|packet| path(packet).windows(2).any(|pair| *pair == moved)));
}

#[test]
fn a_device_that_dies_or_fails() {
    for loss in [Loss::Dies, Loss::Hangs] {
        let (report, found) = faulty(Faults { delay_polls: 2, fails_each: 0, loss: Some((loss, 4)) });
        agrees(&report, &found);
        let lost = found.packets.iter().filter(|packet| packet.fate == Fate::Dropped);
        let lost: Vec<_> = lost.map(|packet| path(packet).pop().unwrap()).collect();
        assert!(!lost.is_empty() && lost.iter().all(|step| step == "dropped: engine_dropped_device_lost"), "{lost:?}");
    }
    let (report, found) = faulty(Faults { delay_polls: 1, fails_each: 4, loss: None });
    agrees(&report, &found);
    assert!(count(&report, "engine_dropped_device") > 0);
}

#[test]
fn workers_with_senders_hand_packets_over() {
    let text = TWICE.replace("pin = false", "pin = false\nio = \"dual\"").replace("device = \"opencl:9\"", "");
    let text = text.replace("name = \"opencl:9\"", "name = \"cpu\"").replace("watchdog_ms = 20\n    chunks = 3", "");
    let (report, found) = run(&text, Path::new("."), &json!({ "count": 4096 }), &Options::default());
    assert_eq!((report.conservation.sent, found.packets.len(), found.missed), (3000, 3000, 0));
    for packet in &found.packets {
        assert_eq!((path(packet).pop().as_deref(), packet.fate), (Some("handed over for out"), Fate::Sent));
    }
}

const SWITCH: &str = r#"
    [engine]
    pin = false
    [[port]]
    name = "a"
    kind = "synthetic"
    [[port]]
    name = "b"
    kind = "synthetic"
    [[port]]
    name = "c"
    kind = "synthetic"
    [[function]]
    name = "switch"
    kind = "l2"
    [[chain]]
    from = "a"
    to = "switch"
    [[chain]]
    from = "b"
    to = "switch"
    [[chain]]
    from = "switch"
    verdict = "flood"
    to = "egress"
    [[chain]]
    from = "switch"
    verdict = "forward"
    to = "egress"
"#;

#[test]
fn a_flood() {
    let frame = udp(HERE, [10, 2, 3, 4], [1, 2], 64, b"to whom it may concern");
    let (report, found) = replay(SWITCH, &[("a", vec![frame.clone()])], &json!({ "frames": true }));
    agrees(&report, &found);
    let [packet] = found.packets.as_slice() else { panic!("{found:?}") };
    let path = path(packet);
    // Which of them is the copy is the engine's own business.
    assert_eq!(path[path.len() - 4..path.len() - 2], ["switch: flood > a+b+c", "copy to b"], "{path:?}");
    let mut sent = path[path.len() - 2..].to_vec();
    sent.sort();
    assert_eq!(sent, ["sent by b", "sent by c"]);
    assert_eq!((packet.fate, packet.left.len()), (Fate::Sent, 2));
    assert!(packet.left.iter().all(|left| left.frame == frame));
}

const TUNNELS: &str = r#"
    [engine]
    workers = 1
    pin = false
    [arena]
    frame_bytes_max = 4000
    [[port]]
    name = "in"
    kind = "synthetic"
    [[port]]
    name = "out"
    kind = "synthetic"
    [[function]]
    name = "seal"
    kind = "ipsec"
    [[function.sa]]
    name = "out"
    spi = 4097
    direction = "out"
    source = "198.51.100.1"
    destination = "203.0.113.1"
    path_mtu = 1000
    encryption = "aes-128-cbc"
    encryption_key = "000102030405060708090a0b0c0d0e0f"
    authentication = "hmac-sha1-96"
    authentication_key = "101112131415161718191a1b1c1d1e1f20212223"
    [[function.policy]]
    action = "protect"
    sa = "out"
    [[function]]
    name = "open"
    kind = "ipsec"
    [function.reassembly]
    [[function.sa]]
    name = "in"
    spi = 4097
    direction = "in"
    source = "198.51.100.1"
    destination = "203.0.113.1"
    encryption = "aes-128-cbc"
    encryption_key = "000102030405060708090a0b0c0d0e0f"
    authentication = "hmac-sha1-96"
    authentication_key = "101112131415161718191a1b1c1d1e1f20212223"
    [[function.policy]]
    action = "bypass"
    [[chain]]
    from = "in"
    to = "seal"
    [[chain]]
    from = "seal"
    to = "open"
    [[chain]]
    from = "open"
    to = "out"
"#;

/// An IPv4 packet in two fragments, of which the first has `bytes` bytes of data.
fn fragments(frame: &[u8], bytes: usize) -> Vec<Vec<u8>> {
    let part = |data: &[u8], offset: usize, more: bool| {
        let mut part = [&frame[..34], data].concat();
        part[16..18].copy_from_slice(&(20 + data.len() as u16).to_be_bytes());
        part[20..22].copy_from_slice(&(u16::from(more) << 13 | (offset / 8) as u16).to_be_bytes());
        part[24..26].fill(0);
        let sum: u32 = part[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
        part[24..26].copy_from_slice(&sum.to_be_bytes());
        part
    };
    let (first, rest) = frame[34..].split_at(bytes);
    vec![part(first, 0, true), part(rest, bytes, false)]
}

/// A packet too long for the tunnel is taken apart in front of it.
#[test]
fn packets_that_are_taken_apart() {
    let frames =
        vec![udp(HERE, [10, 2, 3, 4], [1, 2], 64, &[7; 100]), udp(HERE, [10, 2, 3, 4], [1, 2], 64, &[8; 1400])];
    let (report, found) = replay(TUNNELS, &[("in", frames)], &json!({}));
    agrees(&report, &found);
    let [whole, first, second] = found.packets.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        path(whole),
        [
            "default > seal",
            "seal prepares cbc128_sha1_out",
            "seal bin of cpu",
            "to cpu",
            "from cpu",
            "seal: encrypted > open",
            "open prepares cbc128_sha1_in",
            "open bin of cpu",
            "to cpu",
            "from cpu",
            "open: decrypted > out",
            "sent by out",
        ]
    );
    assert_eq!(path(first)[..2], ["default > seal", "seal makes 3"]);
    assert_eq!(path(second)[0], "made by seal of 2");
    assert_eq!((&path(first)[2..], &path(second)[1..]), (&path(whole)[1..], &path(whole)[1..]));
    assert_eq!((found.chosen, first.sequence, second.sequence), (2, 1, 1));
}

/// Fragments of an ESP packet wait for each other.
#[test]
fn packets_that_are_held_and_joined() {
    let frames = vec![udp(HERE, [10, 2, 3, 4], [1, 2], 64, &[7; 700])];
    let sealed = TUNNELS.replace("from = \"seal\"\n    to = \"open\"", "from = \"seal\"\n    to = \"out\"");
    let (_, found) = replay(&sealed, &[("in", frames.clone())], &json!({ "frames": true }));
    let esp = &found.packets[0].left[0].frame;
    let mut parts = fragments(esp, 400);
    // Of another packet, whose other part never comes.
    let mut lone = esp.clone();
    lone[19] ^= 0xff;
    parts.push(fragments(&lone, 400).remove(0));
    let opened = TUNNELS.replace("from = \"in\"\n    to = \"seal\"", "from = \"in\"\n    to = \"open\"");
    let (report, found) = replay(&opened, &[("in", parts)], &json!({ "frames": true }));
    let [first, second, ..] = found.packets.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        (path(first).as_slice(), first.fate),
        (&["default > open".to_owned(), "open holds".to_owned()][..], Fate::Held)
    );
    let expected = [
        "default > open",
        "open joins 1",
        "open prepares cbc128_sha1_in",
        "open bin of cpu",
        "to cpu",
        "from cpu",
        "open: decrypted > out",
        "sent by out",
    ];
    assert_eq!((path(second), second.fate), (expected.map(str::to_owned).to_vec(), Fate::Sent));
    // With another Ethernet header, which the tunnel wrote.
    assert_eq!(second.left[0].frame[14..], frames[0][14..]);
    let What::Joined { length, .. } = second.steps[1].what else { panic!("{second:?}") };
    assert_eq!(usize::from(length), esp.len());
    let dropped = count(&report, "ipsec_dropped_fragment_timeout{function=\"open\"}");
    assert_eq!((report.conservation.merged, report.conservation.dropped, dropped), (1, 1, 1), "{:?}", report.counters);
}

/// The OpenCL devices here; says so where there are none.
fn devices() -> Vec<String> {
    let probe = godwit_device::opencl::probe();
    let usable = probe.found.into_iter().filter(|found| found.usable.is_ok()).map(|found| found.capabilities.id);
    let usable: Vec<String> = usable.collect();
    if usable.is_empty() {
        // Past the test harness, which shows nothing of a test that passes.
        std::io::stderr().write_all(b"skipped: traces of chains on devices: no OpenCL device here\n").unwrap();
    }
    usable
}

#[test]
fn a_chain_that_a_device_follows() {
    for device in devices() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("patterns.txt"), "attack\ne\n").unwrap();
        let stanza = format!("[[device]]\nname = \"{device}\"\n[packing]\nchunk_packets = 256\nbins = 40\n");
        let place = |text: String, kind: &str| {
            text.replace(&format!("kind = \"{kind}\""), &format!("kind = \"{kind}\"\ndevice = \"{device}\""))
        };
        let traffic = "name = \"lan\"\nkind = \"synthetic\"\npackets = 2000\nflows = 100\ndestination = \"10.0.0.0/12\"\n\
             size = { min = 60, max = 700 }\npayload = \"pattern\"\npatterns = \"patterns.txt\"";
        // Nothing comes by `wan`.
        let text = GATEWAY.replace("[[chain]]\n    from = \"wan\"\n    to = \"lan\"\n", "");
        let text = text.replace("name = \"lan\"\n    kind = \"synthetic\"", traffic);
        let text = stanza + &place(place(text, "dpi"), "ipv4");
        let (report, found) = run(&text, folder.path(), &json!({ "count": 4096 }), &Options::default());
        assert!(report.lost_devices.is_empty(), "{:?}", report.lost_devices);
        assert_eq!(found.packets.len(), 2000);
        agrees(&report, &found);
        let expected = [
            "branch > inspect".to_owned(),
            format!("inspect bin of {device}"),
            format!("to {device}"),
            format!("from {device}"),
            "inspect: clean > route (led)".to_owned(),
            "route: forward > wan".to_owned(),
            "sent by wan".to_owned(),
        ];
        let led = found.packets.iter().filter(|packet| path(packet) == expected).count();
        let clean = count(&report, "dpi_said_clean{function=\"inspect\"}");
        assert!(clean > 0 && led as u64 == clean, "{led} of {clean}: {:?}", path(&found.packets[0]));
    }
}

/// A device that takes chunks and gives none back before it is told to.
struct Gated {
    capabilities: Capabilities,
    cpu: Arc<CpuDevice>,
    /// Chunks that were given to it.
    taken: Arc<AtomicUsize>,
    is_open: Arc<AtomicBool>,
}

impl Device for Gated {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn choices(&self) -> Vec<Choice> {
        self.cpu.choices()
    }

    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, DeviceError> {
        let cpu = Arc::clone(&self.cpu).lane()?;
        Ok(Box::new(GatedLane { device: self, cpu }))
    }
}

struct GatedLane {
    device: Arc<Gated>,
    cpu: Box<dyn Lane>,
}

impl Lane for GatedLane {
    fn submit(&mut self, region: &mut Region, chunk: Chunk) -> Result<(), Box<Rejected>> {
        self.cpu.submit(region, chunk)?;
        self.device.taken.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn poll(&mut self, region: &mut Region) -> Result<Option<Chunk>, DeviceError> {
        if self.device.is_open.load(Ordering::SeqCst) { self.cpu.poll(region) } else { Ok(None) }
    }

    fn in_flight(&self) -> usize {
        self.cpu.in_flight()
    }

    fn bin_times(&self) -> &[BinTime] {
        self.cpu.bin_times()
    }
}

#[test]
fn packets_in_flight_when_the_trace_ends() {
    let (taken, is_open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (its_taken, its_gate) = (Arc::clone(&taken), Arc::clone(&is_open));
    let opener = Opener(Arc::new(move |wanted, programs, _, _| {
        (wanted == FAULTY).then(|| {
            let cpu = Arc::new(CpuDevice::new(programs.to_vec())?);
            let capabilities = Capabilities { id: FAULTY.to_owned(), ..cpu.capabilities().clone() };
            let (taken, is_open) = (Arc::clone(&its_taken), Arc::clone(&its_gate));
            Ok(Arc::new(Gated { capabilities, cpu, taken, is_open }) as Arc<dyn Device>)
        })
    }));
    let text = TWICE.replace("workers = 2", "workers = 1").replace("packets = 3000", "packets = 1");
    let config = Config::parse(&text, "test.toml", Path::new(".")).unwrap();
    let engine = Engine::new(config, &Options { opener: Some(opener), ..Options::default() }).unwrap();
    let trace = engine.trace(&json!({ "count": 2 })).unwrap();
    let (report, found) = std::thread::scope(|scope| {
        let running = scope.spawn(|| engine.run(&Arc::new(AtomicBool::new(false)), None, &mut |_| {}).unwrap());
        while taken.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let nothing = trace.read(Duration::ZERO);
        assert!(nothing.packets.is_empty() && !nothing.over, "{nothing:?}");
        let found = trace.stop();
        is_open.store(true, Ordering::SeqCst);
        (running.join().unwrap(), found)
    });
    assert_eq!((report.conservation.received, report.conservation.sent), (1, 1));
    let [packet] = found.packets.as_slice() else { panic!("{found:?}") };
    assert_eq!((packet.fate, path(packet).pop().as_deref()), (Fate::InFlight, Some("to opencl:9")));
}

static MAKES: Contract = Contract { in_order: true, ..echo::CONTRACT };

/// Makes a packet for each that comes: of it, or of nothing.
struct Maker {
    echo: Arc<dyn Function>,
    splits: bool,
}

impl Function for Maker {
    fn contract(&self) -> &'static Contract {
        &MAKES
    }

    fn image(&self) -> ImageRef<'_> {
        self.echo.image()
    }

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<Box<dyn HostHalf>> {
        Some(Box::new(Makes { splits: self.splits }))
    }

    fn run_ref(&self, window: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.echo.run_ref(window, descriptor, variant, parameter)
    }
}

struct Makes {
    splits: bool,
}

impl HostHalf for Makes {
    fn prepare(&mut self, _: &Region, _: &[Descriptor], _: &mut Vec<Work>) {
        unreachable!("it arranges");
    }

    fn arranges(&self) -> bool {
        true
    }

    fn arrange(&mut self, packets: &mut Arrangement<'_>) -> u64 {
        let work = Work::Run { variant: 0, parameter: 0 };
        for &packet in packets.arrived {
            packets.steps.push(Step::Keep { packet, work });
            let made = packets.region.duplicate(&packet).map(|packet| match self.splits {
                true => Step::Split { packet, work },
                false => Step::Create { packet, work },
            });
            packets.steps.extend(made);
        }
        u64::MAX
    }
}

/// What takes packets in, on the CPU, with a function that makes more of them.
fn making(splits: bool, traffic: &str) -> Engine {
    let text = TWICE.replace("device = \"opencl:9\"", "").replace("packets = 3000", traffic);
    let text = text.replace("name = \"opencl:9\"", "name = \"cpu\"").replace("watchdog_ms = 20\n    chunks = 3", "");
    let mut config = Config::parse(&text, "test.toml", Path::new(".")).unwrap();
    let echo = Arc::clone(&config.functions[1].function);
    config.functions[1].function = Arc::new(Maker { echo, splits });
    Engine::new(config, &Options::default()).unwrap()
}

#[test]
fn packets_that_a_function_makes() {
    let engine = making(false, "rate = \"100kpps\"");
    let trace = engine.trace(&json!({ "count": 200 })).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let found = std::thread::scope(|scope| {
        scope.spawn(|| engine.run(&stop, None, &mut |_| {}).unwrap());
        let mut packets = Vec::new();
        loop {
            let mut found = trace.read(Duration::from_secs(60));
            packets.append(&mut found.packets);
            if found.over {
                stop.store(true, Ordering::SeqCst);
                return packets;
            }
        }
    });
    assert_eq!(found.len(), 200);
    let made: Vec<_> = found.iter().filter(|packet| path(packet)[0].starts_with("made by number, ")).collect();
    assert!(!made.is_empty() && made.len() < 200, "{} of 200", made.len());
    let expected = ["number bin of cpu", "to cpu", "from cpu", "number: forward > out", "sent by out"];
    for packet in made {
        let path = path(packet);
        assert!(path[1].starts_with("number prepares "), "{packet:?}");
        assert_eq!(path[2..], expected, "{packet:?}");
        assert!(packet.time_ns > 1_700_000_000_000_000_000, "since 1970: {}", packet.time_ns);
    }
}

/// More packets than are kept: those that were made of chosen ones come on top.
#[test]
fn what_is_too_much_is_counted() {
    let engine = making(true, "packets = 3000");
    let trace = engine.trace(&json!({ "count": 4096 })).unwrap();
    let report = engine.run(&Arc::new(AtomicBool::new(false)), None, &mut |_| {}).unwrap();
    let found = trace.stop();
    assert_eq!(report.conservation.received, 3000);
    // Where no window is left nothing is made.
    let followed = 3000 + report.conservation.created;
    assert!(followed > PACKETS_MAX as u64, "{followed}");
    assert_eq!((found.packets.len(), found.chosen, found.missed), (PACKETS_MAX, 3000, followed - PACKETS_MAX as u64));
}

//! Changes of the chain while packets flow. No packet is lost or overtaken, and each packet uses
//! one chain only. Packets that arrive after the reply use the new chain.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use godwit_device::{Mode, opencl};
use godwit_engine::config::Config;
use godwit_engine::{Opener, Options, Report};
use godwit_test_support::{ConfigText, ControlClient, skip};
use serde_json::{Value, json};

use crate::common::{FAULTY, LIMIT, config, count};
use crate::faults::{Faults, Loss, opener};
use crate::recorder::{self, Record};
use crate::socket::run_with_socket;

/// Returns a configuration without a chain. `devices` has the stanza of `device`.
fn text(device: &str, devices: ConfigText, workers: usize, traffic: &str) -> String {
    let keys = format!("device = \"{device}\"");
    ConfigText::new()
        .engine(&format!("workers = {workers}\nin_flight_packets = 1024"))
        .raw(&devices.to_string())
        .port("net", "synthetic", &format!("size = 100\nflows = 1000\nseed = 7\nprobe = true\n{traffic}"))
        .port("late", "synthetic", "")
        .function("one", "template", &keys)
        .function("two", "template", &keys)
        .function("three", "template", &keys)
        .to_string()
}

/// Returns the configuration with functions on the CPU and its first chain.
fn cpu_text(workers: usize) -> String {
    text("cpu", ConfigText::new(), workers, ENDLESS) + &chain(0)
}

/// Keys of a device with small chunks.
const SMALL_CHUNKS: &str = "chunk_packets = 64\nbins = 5\nbin_packets = 32";

const ENDLESS: &str = "rate = \"100kpps\"";

/// Recorders by number, and whether they need packets in order.
const RECORDERS: [(&str, bool); 3] = [("one", false), ("two", true), ("three", true)];

/// Chains, each with the paths of packets whose source port is below [`LINE`], and of other
/// packets. A path has four bits per recorder: its number from 1.
const CHAINS: [(&[&str], [u32; 2]); 4] = [
    (&["net one", "one two", "two net"], [0x12, 0x12]),
    // The gates are in reverse order.
    (&["net three", "three two", "two one", "one net"], [0x321, 0x321]),
    // The chain distinguishes classes.
    (&["net two", "two net", "net:some three", "three one", "one net", "two:some net"], [0x31, 0x2]),
    (&["net two", "two three", "three net"], [0x23, 0x23]),
];
/// First source port outside the class `some`.
const LINE: u16 = 30_000;

/// Returns the stanzas of edges in the form `from to` or `from:class to`.
fn stanzas(edges: &[&str]) -> String {
    let mut text = ConfigText::new();
    if edges.iter().any(|edge| edge.contains(':')) {
        text = text.class("some", &format!("source_ports = \"0-{}\"", LINE - 1));
    }
    for edge in edges {
        let (from, to) = edge.split_once(' ').unwrap();
        text = match from.split_once(':') {
            Some((from, class)) => text.class_edge(from, class, to),
            None => text.edge(from, to),
        };
    }
    text.to_string()
}

fn chain(number: u32) -> String {
    stanzas(CHAINS[number as usize % CHAINS.len()].0)
}

/// Request that changes the chain.
fn request(text: &str) -> Value {
    json!({ "command": "chain", "text": text })
}

fn run(config: Config, opener: Option<Opener>, body: impl FnOnce(&Path) + Send) -> Report {
    run_with_socket(config, Options { opener, ..Options::default() }, body)
}

/// Waits until recorders have received `count` more packets.
fn wait_for_packets(record: &Record, count: u64) {
    let received = || record.received.iter().map(|count| count.load(Ordering::Acquire)).sum::<u64>();
    let (before, started) = (received(), Instant::now());
    while received() < before + count {
        assert!(started.elapsed() < LIMIT, "no more packets arrive");
        std::thread::yield_now();
    }
}

/// Changes the chain `changes` times while packets flow, and checks the path of each packet.
fn change(changes: u32, text: &str, opener: Option<Opener>) {
    let mut config = config(&(text.to_owned() + &chain(0)));
    let record = recorder::install(&mut config, &RECORDERS, 4 << 20);
    let report = run(config, opener, |path| {
        let mut client = ControlClient::connect(path);
        for number in 1..=changes {
            // Two of three changes follow the previous one at once.
            if number % 3 == 0 {
                wait_for_packets(&record, 20);
            }
            record.requested.store(number, Ordering::Release);
            let result = client.result(&request(&chain(number)));
            record.replied.store(number, Ordering::Release);
            assert_eq!(result["change"], number, "{result}");
        }
        wait_for_packets(&record, 100);
    });
    let flow = &report.conservation;
    assert_eq!((flow.dropped, flow.sent), (0, flow.received), "{flow}");
    let probes = report.ports[0].probes.unwrap();
    assert_eq!((probes.received, probes.duplicates, probes.reordered, probes.foreign), (flow.received, 0, 0, 0));
    let mut packets_by_chain = [0_u64; CHAINS.len()];
    for (number, packet) in record.packets.iter().enumerate() {
        let path = packet.path.load(Ordering::Relaxed);
        if path == 0 {
            continue;
        }
        let source_port = packet.source_port.load(Ordering::Relaxed);
        let changes = packet.changes.load(Ordering::Relaxed);
        let (replied, requested) = (changes >> 16, changes & 0xffff);
        let path_of = |chain: &u32| CHAINS[*chain as usize % CHAINS.len()].1[usize::from(source_port >= LINE.into())];
        let chain = (replied..=requested).find(|chain| path_of(chain) == path);
        let Some(chain) = chain else {
            panic!("packet {number} from port {source_port}: {path:x} is no path of chains {replied} to {requested}")
        };
        packets_by_chain[chain as usize % CHAINS.len()] += 1;
    }
    assert_eq!(packets_by_chain.iter().sum::<u64>(), flow.received, "each packet must reach a recorder");
    assert!(packets_by_chain.iter().all(|&packets| packets > 0), "{packets_by_chain:?}");
}

#[test]
fn a_thousand_changes_lose_and_reorder_no_packet() {
    change(1000, &text("cpu", ConfigText::new(), 2, ENDLESS), None);
}

/// The device has several slow chunks in flight, and bins wait for more packets.
#[test]
fn packets_on_a_slow_device_finish_the_old_chain() {
    let device = ConfigText::new().device(FAULTY, &format!("{SMALL_CHUNKS}\ndeadline_ns = 1000000000"));
    let faults = Faults { delay_polls: 50, fails_each: 0, loss: None };
    change(200, &text(FAULTY, device, 2, ENDLESS), Some(opener(FAULTY, faults)));
}

/// Packets on a lost device are counted. Changes continue, and no other packet is lost or
/// overtaken.
#[test]
fn a_device_is_lost_between_changes() {
    for loss in [Loss::Hangs, Loss::Dies, Loss::Refuses] {
        let device = ConfigText::new().device(FAULTY, &format!("{SMALL_CHUNKS}\nwatchdog_ms = 50"));
        let faults = Faults { delay_polls: 3, fails_each: 7, loss: Some((loss, 40)) };
        let mut config = config(&(text(FAULTY, device, 2, ENDLESS) + &chain(0)));
        let record = recorder::install(&mut config, &RECORDERS, 0);
        let report = run(config, Some(opener(FAULTY, faults)), |path| {
            let mut client = ControlClient::connect(path);
            for number in 1..=100 {
                wait_for_packets(&record, 100);
                client.result(&request(&chain(number)));
            }
        });
        assert_eq!(report.lost_devices.len(), 1);
        let lost = count(&report, "engine_dropped_device") + count(&report, "engine_dropped_device_lost");
        let probes = report.ports[0].probes.unwrap();
        assert_eq!((report.conservation.dropped, probes.reordered), (lost, 0), "{loss:?}");
        assert_eq!(probes.received, report.conservation.received - lost);
    }
}

#[test]
fn a_sender_thread_keeps_the_order() {
    let text = text("cpu", ConfigText::new(), 1, ENDLESS);
    change(100, &text.replace("pin = false", "pin = false\nio = \"dual\""), None);
}

#[test]
fn packets_on_opencl_devices_finish_the_old_chain() {
    let probe = opencl::probe();
    let Some(found) = probe.found.iter().find(|found| found.usable.is_ok()) else {
        skip("no usable OpenCL device");
        return;
    };
    let id = &found.capabilities.id;
    let device = |mode: &str| ConfigText::new().device(id, &format!("mode = \"{mode}\"\n{SMALL_CHUNKS}"));
    let traffic = "rate = \"20kpps\"";
    change(50, &text(id, device("launch"), 2, traffic), None);
    if found.lacks(Mode::Persistent).is_none() {
        change(50, &text(id, device("persistent"), 1, traffic), None);
    }
}

#[test]
fn changes_of_two_clients_are_made_one_after_the_other() {
    let mut config = config(&cpu_text(2));
    let record = recorder::install(&mut config, &RECORDERS, 0);
    let report = run(config, None, |path| {
        let numbers = std::thread::scope(|scope| {
            let client = |first: u32| {
                move || {
                    let mut client = ControlClient::connect(path);
                    let change = |number| client.result(&request(&chain(number)))["change"].as_u64().unwrap();
                    (first..first + 50).map(change).collect::<Vec<_>>()
                }
            };
            let clients = [scope.spawn(client(0)), scope.spawn(client(1))];
            clients.map(|client| client.join().unwrap()).concat()
        });
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (1..=100).collect::<Vec<_>>());
        wait_for_packets(&record, 10);
    });
    assert_eq!((report.conservation.dropped, report.ports[0].probes.unwrap().reordered), (0, 0));
}

#[test]
fn an_invalid_chain_is_refused_and_packets_keep_flowing() {
    let mut config = config(&cpu_text(2));
    let record = recorder::install(&mut config, &RECORDERS, 4 << 20);
    let report = run(config, None, |path| {
        let mut client = ControlClient::connect(path);
        let bad = [
            ("", "chain"),
            ("[[chain]\n", "7.toml:1:"),
            ("nonsense", "7.toml:1:"),
            ("[[chain]]\nfrom = \"net\"\nto = \"four\"\n", "`four`"),
            ("[[chain]]\nfrom = \"nett\"\nto = \"one\"\n", "`net`"),
            ("[[chain]]\nfrom = \"net\"\nto = \"one\"\nclass = \"some\"\n", "class"),
            ("[[chain]]\nfrom = \"net\"\nto = \"one\"\nverdict = \"no\"\n", "verdict"),
            (&stanzas(&["net one", "one two", "two one"]), "cycle"),
            (&stanzas(&["net one", "net two"]), "7.toml:"),
            (&stanzas(&["net one", "one late", "late net"]), "`late`"),
            ("[engine]\nworkers = 3\n[[chain]]\nfrom = \"net\"\nto = \"one\"\n", "7.toml:1: "),
            ("[[function]]\nname = \"x\"\nkind = \"echo\"\n", "7.toml:1: "),
            ("[[chains]]\nfrom = \"net\"\nto = \"one\"\n", "`chain`"),
            ("[[class]]\nname = \"a b\"\n[[chain]]\nfrom = \"net\"\nto = \"one\"\n", "a b"),
            ("[[chain]]\nfile = \"not there.csv\"\n", "not there.csv"),
        ];
        for (text, expected) in bad {
            let error = client.error(&json!({ "command": "chain", "text": text, "origin": "7.toml" }));
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
        for request in [json!({ "command": "chain" }), json!({ "command": "chain", "text": 1 })] {
            assert!(client.error(&request).contains("`text`"));
        }
        let with_directory = json!({ "command": "chain", "text": chain(0), "directory": [] });
        assert!(client.error(&with_directory).contains("`directory`"));
        let error = client.error(&json!({ "command": "reload" }));
        assert!(error.contains("file"), "{error}");
        // A valid chain is still accepted. Its warnings are in the reply.
        assert_eq!(client.result(&request(&chain(3)))["change"], 1);
        let result = client.result(&request(&stanzas(&["net one", "one net"])));
        let warnings = result["warnings"].as_array().unwrap();
        assert!(warnings.iter().any(|warning| warning.as_str().unwrap().contains("`two`")), "{result}");
        wait_for_packets(&record, 100);
    });
    assert_eq!((report.conservation.dropped, report.ports[0].probes.unwrap().reordered), (0, 0));
}

const TUNNEL: &str = r#"
    [[function]]
    name = "vpn"
    kind = "ipsec"
    [[function.sa]]
    name = "out"
    spi = 4097
    direction = "out"
    source = "198.51.100.1"
    destination = "203.0.113.1"
    encryption = "aes-128-cbc"
    encryption_key = "000102030405060708090a0b0c0d0e0f"
    authentication = "hmac-sha1-96"
    authentication_key = "101112131415161718191a1b1c1d1e1f20212223"
    [[function.policy]]
    action = "protect"
    sa = "out"
"#;

/// A chain is refused if it steers packets of an SA to another worker than before. With one worker,
/// it is accepted. A chain is also refused if it needs more room around frames than the buffers
/// have.
#[test]
fn a_chain_cannot_change_steering_or_room() {
    for workers in [1, 2] {
        let text = text("cpu", ConfigText::new(), workers, "rate = \"10kpps\"").replace("probe = true", "") + TUNNEL;
        run(config(&(text.clone() + &chain(0))), None, |path| {
            let mut client = ControlClient::connect(path);
            let tunnel = request(&stanzas(&["net one", "one vpn", "vpn late"]));
            if workers > 1 {
                let error = client.error(&tunnel);
                assert!(error.contains("`vpn`") && error.contains("workers = 1"), "{error}");
            } else {
                client.result(&tunnel);
            }
        });
        // The tunnel is in the chain from the start. Functions before it do not matter.
        let first = stanzas(&["net vpn", "vpn late"]);
        run(config(&(text.clone() + &first)), None, |path| {
            let mut client = ControlClient::connect(path);
            let edges = ["net one", "net:some two", "one vpn", "two vpn", "vpn late"];
            client.result(&request(&stanzas(&edges)));
            let without_tunnel = request(&stanzas(&["net one", "one late"]));
            assert_eq!(client.request(&without_tunnel)["ok"], workers == 1);
        });
        let second_tunnel = TUNNEL.replace("\"vpn\"", "\"again\"").replace("4097", "4098");
        let small = text.clone() + &second_tunnel + "[arena]\nheadroom_bytes = 64\ntailroom_bytes = 64\n";
        run(config(&(small + &first)), None, |path| {
            let both_tunnels = stanzas(&["net vpn", "vpn again", "again late"]);
            let error = ControlClient::connect(path).error(&request(&both_tunnels));
            let expected = if workers == 1 { "headroom" } else { "workers = 1" };
            assert!(error.contains(expected), "{error}");
        });
    }
}

//! Switch that learns addresses from packets, on every device of this machine.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use godwit_device::opencl;
use godwit_engine::{Engine, Options, Replay, Report};
use godwit_test_support::{ConfigText, ControlClient, Folder, FrameBuilder, SetOnDrop, capture, skip};
use serde_json::json;

use crate::common::{LIMIT, config, count};
use crate::socket::run_with_socket;

fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

fn frame(destination: [u8; 6], source: [u8; 6]) -> Vec<u8> {
    FrameBuilder::new().macs(destination, source).ethernet(0x88b5, &[7; 46])
}

/// Appends a switch whose packets are sent by the ports that it selects.
fn with_switch(text: ConfigText, keys: &str) -> ConfigText {
    text.function("switch", "l2", keys)
        .verdict_edge("switch", "forward", "egress")
        .verdict_edge("switch", "flood", "egress")
}

/// Returns the numbers of flooded and forwarded packets.
fn flooded_and_forwarded(report: &Report) -> [u64; 2] {
    ["flood", "forward"].map(|verdict| count(report, &format!("l2_verdict_{verdict}{{function=\"switch\"}}")))
}

/// Runs a switch with two stations that send to each other, and a port without a station. Packets
/// that the third port sends were flooded.
fn run_stations(device: &str, mode: &str, workers: usize) -> Report {
    let station = |text: ConfigText, name: &str, source: u8, destination: u8| {
        let macs = format!(
            "source_mac = \"02:00:00:00:00:{source:02x}\"\ndestination_mac = \"02:00:00:00:00:{destination:02x}\""
        );
        text.port(name, "synthetic", &format!("rate = \"20kpps\"\nflows = 20\n{macs}")).edge(name, "switch")
    };
    let mut text = ConfigText::new().engine(&format!("workers = {workers}"));
    if device != "cpu" {
        text = text.device(device, &format!("mode = \"{mode}\"\nchunk_packets = 64\nbins = 5\nbin_packets = 32"));
    }
    text = station(text, "one", 1, 2);
    text = station(text, "other", 2, 1);
    text = with_switch(text.port("unused", "synthetic", ""), &format!("device = \"{device}\""));
    let config = config(&text.to_string());
    let switch = Arc::clone(&config.functions[0].function);
    let engine = Engine::new(config, &Options::default()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = SetOnDrop(&stop);
            let started = Instant::now();
            while switch.operate().unwrap().counts()[0] < 2 && started.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(1));
            }
            // The switch forwards all frames in this time.
            std::thread::sleep(Duration::from_millis(300));
        });
        engine.run(&stop, Some(LIMIT), &mut |_| {}).unwrap()
    });
    let flow = &report.conservation;
    assert!(flow.holds() && flow.in_flight == 0 && flow.dropped == 0, "{device}: {flow}");
    let [flooded, forwarded] = flooded_and_forwarded(&report);
    assert!(flooded > 0 && forwarded > 100, "{device}, {mode}: {flooded} flooded, {forwarded} forwarded");
    assert_eq!((flow.created, flow.sent), (flooded, flow.received + flooded));
    assert_eq!(report.ports[2].sent_packets, flooded, "{device}: packets of the port without a station");
    assert_eq!(count(&report, "l2_addresses{function=\"switch\"}"), 2);
    report
}

#[test]
fn a_learned_address_is_not_flooded() {
    run_stations("cpu", "launch", 1);
    run_stations("cpu", "launch", 2);
}

#[test]
fn a_learned_address_is_not_flooded_on_opencl() {
    let probe = opencl::probe();
    let Some(found) = probe.found.iter().find(|found| found.usable.is_ok()) else {
        skip("no usable OpenCL device");
        return;
    };
    let report = run_stations(&found.capabilities.id, "launch", 1);
    assert_eq!(report.functions[0].device, found.capabilities.id);
}

#[test]
fn frames_of_a_capture_are_forwarded_by_static_addresses_or_flooded() {
    let folder = Folder::new();
    let path = |name: &str| folder.join(name);
    let known = frame(mac(2), mac(1));
    let unknown = frame(mac(9), mac(1));
    let broadcast = frame([0xff; 6], mac(1));
    capture::write(&path("a.pcap"), &[known.clone(), unknown.clone(), broadcast.clone(), known.clone()]);
    let mut text = ConfigText::new().engine("");
    for name in ["a", "b", "c", "d"] {
        let file = if name == "a" { format!("file = {:?}\n", path("a.pcap")) } else { String::new() };
        text = text.port(name, "pcap", &format!("{file}write = {:?}", path(&format!("{name}.out.pcap"))));
    }
    let macs = "mac = [{ mac = \"02:00:00:00:00:02\", port = \"b\" }, { mac = \"02:00:00:00:00:01\", port = \"a\" }]";
    let text = with_switch(text, macs).edge("a", "switch").to_string();
    let report = Engine::new(config(&text), &Options::default()).unwrap();
    let report = report.run(&Arc::default(), Some(LIMIT), &mut |_| {}).unwrap();
    assert!(report.conservation.holds());
    assert!(capture::read(&path("a.out.pcap")).is_empty());
    assert_eq!(capture::read(&path("b.out.pcap")), [known.clone(), unknown.clone(), broadcast.clone(), known.clone()]);
    for name in ["c.out.pcap", "d.out.pcap"] {
        assert_eq!(capture::read(&path(name)), [unknown.clone(), broadcast.clone()]);
    }
    assert_eq!(report.conservation.created, 4);

    // The switch does not learn in a replay, so each replay gives the same result.
    capture::write(&path("replayed.pcap"), &[frame(mac(5), mac(4)), known, frame(mac(4), mac(5))]);
    let outputs = ["b", "c", "d"].map(|name| (Some(name.to_owned()), path(&format!("{name}.again.pcap"))));
    let replay = Replay { inputs: vec![(Some("a".to_owned()), path("replayed.pcap"))], outputs: outputs.into() };
    let config = config(&text);
    let switch = Arc::clone(&config.functions[0].function);
    let engine = Engine::new(config, &Options { replay: Some(replay), ..Options::default() }).unwrap();
    let report = engine.run(&Arc::default(), None, &mut |_| {}).unwrap();
    assert!(report.conservation.holds());
    let sent = ["b", "c", "d"].map(|name| capture::read(&path(&format!("{name}.again.pcap"))).len());
    assert_eq!((sent, switch.operate().unwrap().counts()[0]), ([3, 2, 2], 2));
}

/// No packet is lost while an operator changes the table.
#[test]
fn operators_change_the_table_while_packets_flow() {
    let text = ConfigText::new()
        .engine("workers = 2")
        .port("in", "synthetic", "rate = \"50kpps\"\nflows = 40")
        .port("out", "synthetic", "")
        .port("third", "synthetic", "");
    let config = config(&with_switch(text, "").edge("in", "switch").to_string());
    let switch = Arc::clone(&config.functions[0].function);
    let report = run_with_socket(config, Options::default(), |socket| {
        let mut client = ControlClient::connect(socket);
        for round in 0..20 {
            let added = json!([{ "mac": "02:00:00:00:00:02", "port": if round % 2 == 0 { "out" } else { "third" } }]);
            let result = client.result(&json!({ "function": "switch", "command": "add", "mac": added }));
            assert_eq!(result["added"], 1, "{result}");
            let others: Vec<_> = (100 * round..100 * (round + 1))
                .map(|n| json!({ "mac": format!("02:00:01:00:{:02x}:{:02x}", n / 256, n % 256), "port": "third" }))
                .collect();
            client.result(&json!({ "function": "switch", "command": "add", "mac": others }));
            std::thread::sleep(Duration::from_millis(5));
            client.result(&json!({ "function": "switch", "command": "delete", "mac": added }));
        }
        let list = client.result(&json!({ "function": "switch", "command": "list", "port": "third" }));
        assert_eq!(list["left"], 0);
    });
    assert!(switch.operate().unwrap().counts()[0] >= 2000);
    let [flooded, forwarded] = flooded_and_forwarded(&report);
    assert!(forwarded > 0 && report.conservation.received == flooded + forwarded);
}

//! Function on the CPU and another device at the same time. Both process packets. The sent packets
//! equal those of the CPU alone, and the order is the same.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_engine::{Engine, Opener, Options, Report};
use godwit_test_support::{ConfigText, Folder, skip};

use crate::common::{FAULTY, LIMIT, config, count};
use crate::faults::{Faults, Loss, opener};

const PACKETS: u64 = 20_000;
const CHUNK: u64 = IN_FLIGHT / 2;
const IN_FLIGHT: u64 = 1024;
/// Watchdog timeout that a busy machine does not exceed.
const LONG_WATCHDOG: &str = "watchdog_ms = 100000";

/// Runs a function on several devices. Returns the report and the capture of the sent packets. A
/// device other than the CPU accepts more packets than can be in flight.
fn run(devices: &[&str], workers: usize, keys: &str, opener: Option<Opener>) -> (Report, Vec<u8>) {
    let folder = Folder::new();
    let capture = folder.join("out.pcap");
    let mut text =
        ConfigText::new().engine(&format!("workers = {workers}\nburst_packets = 64\nin_flight_packets = {IN_FLIGHT}"));
    for device in devices.iter().filter(|device| **device != "cpu") {
        let sizes = format!("chunks = 4\nchunk_packets = {CHUNK}\nbins = 32\nbin_packets = 32\n{keys}");
        text = text.device(device, &sizes);
    }
    let traffic =
        format!("packets = {PACKETS}\nflows = 300\nsize = \"imix\"\nseed = 5\ntime = \"schedule\"\nrate = \"1Mpps\"");
    let text = text
        .port("in", "synthetic", &traffic)
        .port("out", "pcap", &format!("write = {capture:?}"))
        .function("both", "echo", &format!("device = {devices:?}"))
        .path(&["in", "both", "out"]);
    let engine = Engine::new(config(&text.to_string()), &Options { opener, ..Options::default() }).unwrap();
    let report = engine.run(&Arc::new(AtomicBool::new(false)), Some(LIMIT), &mut |_| {}).unwrap();
    (report, std::fs::read(capture).unwrap())
}

fn packets(report: &Report, device: &str) -> u64 {
    count(report, &format!("device_packets{{device=\"{device}\"}}"))
}

/// Runs the function on a device and the CPU, and compares the result with the CPU alone. Returns
/// the number of packets that each of the two processed.
fn check(device: &str, workers: usize, keys: &str, opener: Option<Opener>) -> [u64; 2] {
    let (report, capture) = run(&[device, "cpu"], workers, keys, opener);
    let (alone, expected) = run(&["cpu"], workers, "", None);
    assert!(report.lost_devices.is_empty(), "{:?}", report.lost_devices);
    assert_eq!(report.conservation, alone.conservation);
    assert_eq!((report.conservation.sent, report.conservation.in_flight), (PACKETS, 0), "{}", report.conservation);
    assert_eq!((report.functions[0].packets, &report.functions[0].verdicts), (PACKETS, &alone.functions[0].verdicts));
    assert!(capture == expected, "{device}: the sent packets differ from those of the CPU");
    let each = [device, "cpu"].map(|id| packets(&report, id));
    assert_eq!(each.iter().sum::<u64>(), PACKETS, "{each:?}");
    each
}

#[test]
fn a_slow_device_does_not_delay_the_cpu() {
    for workers in [1, 2] {
        let faults = Faults { delay_polls: 5_000, fails_each: 0, loss: None };
        let [device, cpu] = check(FAULTY, workers, LONG_WATCHDOG, Some(opener(FAULTY, faults)));
        assert!(device > 0 && device < cpu / 2, "{device} packets on the device, {cpu} on the CPU");
    }
}

/// Only packets in flight on the device are lost.
#[test]
fn the_cpu_continues_after_a_device_is_lost() {
    for loss in [Loss::Hangs, Loss::Dies, Loss::Refuses] {
        let faults = Faults { delay_polls: 1, fails_each: 0, loss: Some((loss, 1)) };
        let (report, _) = run(&[FAULTY, "cpu"], 1, "watchdog_ms = 20", Some(opener(FAULTY, faults)));
        let conservation = report.conservation;
        assert!(conservation.holds(), "{loss:?}: {conservation}");
        assert_eq!((conservation.received, conservation.in_flight), (PACKETS, 0), "{loss:?}: {conservation}");
        let [lost] = report.lost_devices.as_slice() else { panic!("{loss:?}: {:?}", report.lost_devices) };
        assert_eq!((lost.device.as_str(), lost.packets), (FAULTY, conservation.dropped), "{loss:?}");
        assert!(conservation.dropped <= IN_FLIGHT && packets(&report, "cpu") > 0, "{loss:?}: {conservation}");
    }
}

#[test]
fn cpu_and_opencl_devices_share_a_function() {
    let found = godwit_device::opencl::probe().found.into_iter().filter(|found| found.usable.is_ok());
    let devices: Vec<String> = found.map(|found| found.capabilities.id).collect();
    if devices.is_empty() {
        skip("no usable OpenCL device");
    }
    for device in &devices {
        for (workers, mode) in [(1, "launch"), (2, "launch"), (2, "persistent")] {
            let [device, cpu] = check(device, workers, &format!("{LONG_WATCHDOG}\nmode = \"{mode}\""), None);
            assert!(device > 0 && cpu > 0, "{mode}: {device} packets on the device, {cpu} on the CPU");
        }
    }
}

/// Returns the keys of a modelled device for the function `both`.
fn modelled(times: &str, keys: &str) -> String {
    format!("times = {{ both = {{ {times} }} }}\n{keys}")
}

#[test]
fn a_modelled_device_shares_the_work_of_the_cpu() {
    let keys = modelled("chunk_ns = 1000, packet_ns = 50, byte_ns = 0.1, trip_ns = 20000", "");
    for workers in [1, 2] {
        let [device, _] = check("model:0", workers, &keys, None);
        assert!(device > 0, "no packet on the device");
    }
}

#[test]
fn a_modelled_device_returns_no_packet_before_its_time() {
    let (trip_ns, packet_ns) = (3_000_000, 1000);
    let keys = modelled(&format!("packet_ns = {packet_ns}, trip_ns = {trip_ns}"), "");
    let (report, _) = run(&["model:0"], 1, &keys, None);
    let function = &report.functions[0];
    assert_eq!((function.packets, function.device.as_str()), (PACKETS, "model:0"));
    assert_eq!(function.busy_ns_per_packet, f64::from(packet_ns));
    assert!(function.latency.unwrap().p50_ns >= trip_ns, "{function:?}");
    assert!(report.elapsed_s >= PACKETS as f64 * f64::from(packet_ns) * 1e-9);
}

#[test]
fn the_cpu_continues_after_a_modelled_device_fails() {
    let keys = modelled("packet_ns = 50", "fails_after_chunks = 2");
    let (report, _) = run(&["model:0", "cpu"], 1, &keys, None);
    let conservation = report.conservation;
    assert!(conservation.holds(), "{conservation}");
    assert_eq!((conservation.received, conservation.in_flight), (PACKETS, 0), "{conservation}");
    let [lost] = report.lost_devices.as_slice() else { panic!("{:?}", report.lost_devices) };
    assert_eq!((lost.device.as_str(), lost.packets), ("model:0", conservation.dropped));
    assert!(packets(&report, "cpu") >= PACKETS - 3 * CHUNK);
}

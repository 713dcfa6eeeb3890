//! A function on the CPU and another device at once: both do some of it, every packet is accounted for, and what comes out is what
//! comes out of the CPU alone, in the same order.

mod faults;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use faults::{Faults, Loss, opener};
use godwit_engine::config::Config;
use godwit_engine::{Engine, Opener, Options, Report};

/// The name of a device that takes its time; no such device needs to be here.
const SLOW: &str = "opencl:9";
const PACKETS: u64 = 20_000;
const CHUNK: u64 = IN_FLIGHT / 2;
const IN_FLIGHT: u64 = 1024;
/// No device is lost because the machine is busy.
const PATIENT: &str = "watchdog_ms = 100000";
/// Far more than a run takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The function on these devices, and a capture of what comes out. The device beside the CPU takes more packets than can be in flight.
fn run(devices: &[&str], workers: usize, keys: &str, opener: Option<Opener>) -> (Report, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("out.pcap");
    let stanzas: String = devices
        .iter()
        .filter(|device| **device != "cpu")
        .map(|device| {
            format!(
                "[[device]]\nname = \"{device}\"\nchunks = 4\nchunk_packets = {CHUNK}\n\
                 bins = 32\nbin_packets = 32\n{keys}\n"
            )
        })
        .collect();
    let text = format!(
        r#"
        [engine]
        workers = {workers}
        pin = false
        burst_packets = 64
        in_flight_packets = {IN_FLIGHT}
        {stanzas}
        [[port]]
        name = "in"
        kind = "synthetic"
        packets = {PACKETS}
        flows = 300
        size = "imix"
        seed = 5
        time = "schedule"
        rate = "1Mpps"
        [[port]]
        name = "out"
        kind = "pcap"
        write = {capture:?}
        [[function]]
        name = "both"
        kind = "echo"
        device = {devices:?}
        [[chain]]
        from = "in"
        to = "both"
        [[chain]]
        from = "both"
        to = "out"
        "#
    );
    let config = Config::parse(&text, "spread.toml", Path::new(".")).unwrap();
    let engine = Engine::new(config, &Options { opener, ..Options::default() }).unwrap();
    let report = engine.run(&Arc::new(AtomicBool::new(false)), Some(LIMIT), &mut |_| {}).unwrap();
    (report, std::fs::read(capture).unwrap())
}

fn packets(report: &Report, device: &str) -> u64 {
    let name = format!("device_packets{{device=\"{device}\"}}");
    report.counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, packets)| *packets)
}

/// Packets that the device did, and the CPU.
fn check(device: &str, workers: usize, keys: &str, opener: Option<Opener>) -> [u64; 2] {
    let (report, capture) = run(&[device, "cpu"], workers, keys, opener);
    let (alone, expected) = run(&["cpu"], workers, "", None);
    assert!(report.lost_devices.is_empty(), "{:?}", report.lost_devices);
    assert_eq!(report.conservation, alone.conservation);
    assert_eq!((report.conservation.sent, report.conservation.in_flight), (PACKETS, 0), "{}", report.conservation);
    assert_eq!((report.functions[0].packets, &report.functions[0].verdicts), (PACKETS, &alone.functions[0].verdicts));
    assert!(capture == expected, "{device}: what comes out is not what comes out of the CPU");
    let each = [device, "cpu"].map(|id| packets(&report, id));
    assert_eq!(each.iter().sum::<u64>(), PACKETS, "{each:?}");
    each
}

#[test]
fn a_slow_device_does_not_hold_up_the_cpu() {
    for workers in [1, 2] {
        let faults = Faults { delay_polls: 100_000, fails_each: 0, loss: None };
        let [device, cpu] = check(SLOW, workers, PATIENT, Some(opener(SLOW, faults)));
        assert!(device > 0 && device < cpu / 2, "{device} packets on the device, {cpu} on the CPU");
    }
}

/// Only what the device has in its hands goes with it.
#[test]
fn the_cpu_goes_on_without_a_lost_device() {
    for loss in [Loss::Hangs, Loss::Dies, Loss::Refuses] {
        let faults = Faults { delay_polls: 1, fails_each: 0, loss: Some((loss, 1)) };
        let (report, _) = run(&[SLOW, "cpu"], 1, "watchdog_ms = 20", Some(opener(SLOW, faults)));
        let conservation = report.conservation;
        assert!(conservation.holds(), "{loss:?}: {conservation}");
        assert_eq!((conservation.received, conservation.in_flight), (PACKETS, 0), "{loss:?}: {conservation}");
        let [lost] = report.lost_devices.as_slice() else { panic!("{loss:?}: {:?}", report.lost_devices) };
        assert_eq!((lost.device.as_str(), lost.packets), (SLOW, conservation.dropped), "{loss:?}");
        assert!(conservation.dropped <= IN_FLIGHT && packets(&report, "cpu") > 0, "{loss:?}: {conservation}");
    }
}

#[test]
fn cpu_and_opencl_devices_do_a_function_together() {
    let found = godwit_device::opencl::probe().found.into_iter().filter(|found| found.usable.is_ok());
    let devices: Vec<String> = found.map(|found| found.capabilities.id).collect();
    if devices.is_empty() {
        // Past the test harness, which shows nothing of a test that passes.
        std::io::stderr().write_all(b"skipped: no OpenCL device here can be used\n").unwrap();
    }
    for device in &devices {
        for (workers, mode) in [(1, "launch"), (2, "launch"), (2, "persistent")] {
            let [device, cpu] = check(device, workers, &format!("{PATIENT}\nmode = \"{mode}\""), None);
            assert!(device > 0 && cpu > 0, "{mode}: {device} packets on the device, {cpu} on the CPU");
        }
    }
}

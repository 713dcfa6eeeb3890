//! Traffic through functions on a failing device, and the properties that must hold.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_engine::{Engine, Error, Opener, Options, Report};
use godwit_test_support::ConfigText;
use godwit_test_support::capture::{self, Frame};

use super::common::{FAULTY, LIMIT, config, count};

pub(crate) const PACKETS: u64 = 6000;

/// Sizes of the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) workers: usize,
    pub(crate) in_flight: usize,
    pub(crate) chunk: usize,
    pub(crate) bin: usize,
    pub(crate) leftover: usize,
    pub(crate) chunks: usize,
    pub(crate) arena: &'static str,
}

pub(crate) const MACHINE: Machine =
    Machine { workers: 2, in_flight: 1024, chunk: 64, bin: 32, leftover: 16, chunks: 3, arena: "layout = \"slots\"" };

/// Returns a configuration with two functions and a capture of the sent packets. The second
/// function is on `device`, the first one only with `both_on_device`.
pub(crate) fn text(machine: &Machine, device: &str, both_on_device: bool, capture: &Path) -> String {
    let Machine { workers, in_flight, chunk, bin, leftover, chunks, arena } = machine;
    let first = if both_on_device { device } else { "cpu" };
    ConfigText::new()
        .engine(&format!("workers = {workers}\nburst_packets = 64\nin_flight_packets = {in_flight}"))
        .table("arena", arena)
        .table("packing", "deadline_ns = 20000")
        .device(
            FAULTY,
            &format!(
                "watchdog_ms = 20\nchunks = {chunks}\nchunk_packets = {chunk}\nbins = 5\nbin_packets = {bin}\n\
                 leftover_packets = {leftover}"
            ),
        )
        .port(
            "in",
            "synthetic",
            &format!(
                "packets = {PACKETS}\nflows = 300\nsize = \"imix\"\nseed = 5\ntime = \"schedule\"\nrate = \"1Mpps\""
            ),
        )
        .port("out", "pcap", &format!("write = {capture:?}"))
        .function("swap", "template", &format!("device = \"{first}\""))
        .function("number", "echo", &format!("device = \"{device}\""))
        .class("some", "source_ports = \"0-30000\"")
        .class_edge("in", "some", "swap")
        .path(&["in", "number", "out"])
        .edge("swap", "number")
        .to_string()
}

/// Runs an engine. `opener` opens its devices.
pub(crate) fn run(text: &str, opener: Option<Opener>) -> Result<Report, Error> {
    let engine = Engine::new(config(text), &Options { opener, ..Options::default() })?;
    engine.run(&Arc::new(AtomicBool::new(false)), Some(LIMIT), &mut |_| {})
}

/// Returns the records of a capture, with their times, in order.
pub(crate) fn records(capture: &Path) -> Vec<Frame> {
    capture::frames(capture).expect("a whole capture")
}

/// Asserts the properties that must hold for every device. `clean` are the records without faults.
pub(crate) fn check(report: &Report, records: &[Frame], clean: &[Frame]) {
    assert!(report.conservation.holds(), "{}", report.conservation);
    assert_eq!((report.conservation.in_flight, report.conservation.received), (0, PACKETS));
    let dropped = count(report, "engine_dropped_device") + count(report, "engine_dropped_device_lost");
    assert_eq!(report.conservation.dropped, dropped, "{:?}", report.counters);
    assert_eq!((records.len() as u64, clean.len() as u64), (PACKETS - dropped, PACKETS));
    // Each sent packet equals that of the run without faults, and the order is the same.
    let mut expected = clean.iter();
    for (number, record) in records.iter().enumerate() {
        assert!(expected.any(|clean| clean == record), "record {number} differs, or is out of order");
    }
    // A function counts only packets that it has finished.
    assert_eq!(report.functions[1].packets, records.len() as u64);
    assert_eq!(report.functions[1].bytes, records.iter().map(|record| record.data.len() as u64).sum::<u64>());
    let lost: u64 = report.lost_devices.iter().map(|lost| lost.packets).sum();
    assert!(lost <= dropped);
}

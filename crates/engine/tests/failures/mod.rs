//! Traffic through functions on a device that fails, and what must hold whatever it does.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use godwit_engine::config::Config;
use godwit_engine::{Engine, Error, Opener, Options, Report};

/// The name of the device that fails; no such device needs to be here.
pub(crate) const FAULTY: &str = "opencl:9";
pub(crate) const PACKETS: u64 = 6000;

/// A machine of some shape.
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

/// Two functions one after the other, both on `device` or the second only, and a capture of what comes out.
pub(crate) fn text(machine: &Machine, device: &str, first_too: bool, capture: &Path) -> String {
    let Machine { workers, in_flight, chunk, bin, leftover, chunks, arena } = machine;
    let first = if first_too { device } else { "cpu" };
    format!(
        r#"
        [engine]
        workers = {workers}
        pin = false
        burst_packets = 64
        in_flight_packets = {in_flight}
        [arena]
        {arena}
        [packing]
        deadline_ns = 20000
        [[device]]
        name = "{FAULTY}"
        watchdog_ms = 20
        chunks = {chunks}
        chunk_packets = {chunk}
        bins = 5
        bin_packets = {bin}
        leftover_packets = {leftover}
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
        name = "swap"
        kind = "template"
        device = "{first}"
        [[function]]
        name = "number"
        kind = "echo"
        device = "{device}"
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
        "#
    )
}

pub(crate) fn run(text: &str, opener: Option<Opener>) -> Result<Report, Error> {
    let config = Config::parse(text, "test.toml", Path::new(".")).unwrap();
    let engine = Engine::new(config, &Options { opener, ..Options::default() })?;
    engine.run(&Arc::new(AtomicBool::new(false)), Some(Duration::from_secs(120)), &mut |_| {})
}

/// A run, and the records of its capture, timestamps and all, in order.
pub(crate) fn captured(
    machine: &Machine,
    device: &str,
    first_too: bool,
    opener: Option<Opener>,
) -> (Report, Vec<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("out.pcap");
    let report = run(&text(machine, device, first_too, &capture), opener).unwrap();
    let records = records(&capture);
    (report, records)
}

pub(crate) fn records(capture: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(capture).unwrap();
    let mut rest = &bytes[24..];
    let mut records = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let (record, behind) = rest.split_at(16 + length);
        records.push(record.to_vec());
        rest = behind;
    }
    records
}

pub(crate) fn count(report: &Report, counter: &str) -> u64 {
    report.counters.iter().find(|(name, _)| name == counter).map_or(0, |(_, value)| *value)
}

/// What must hold whatever a device does.
pub(crate) fn check(report: &Report, records: &[Vec<u8>], clean: &[Vec<u8>]) {
    assert!(report.conservation.holds(), "{}", report.conservation);
    assert_eq!((report.conservation.in_flight, report.conservation.received), (0, PACKETS));
    let dropped = count(report, "engine_dropped_device") + count(report, "engine_dropped_device_lost");
    assert_eq!(report.conservation.dropped, dropped, "{:?}", report.counters);
    assert_eq!((records.len() as u64, clean.len() as u64), (PACKETS - dropped, PACKETS));
    // Every packet that comes out does so as without faults, and in the same order.
    let mut expected = clean.iter();
    for (number, record) in records.iter().enumerate() {
        assert!(expected.any(|clean| clean == record), "record {number} is another packet, or at another place");
    }
    // Only packets that a function has finished count as its own.
    assert_eq!(report.functions[1].packets, records.len() as u64);
    assert_eq!(report.functions[1].bytes, records.iter().map(|record| record.len() as u64 - 16).sum::<u64>());
    let lost: u64 = report.lost_devices.iter().map(|lost| lost.packets).sum();
    assert!(lost <= dropped);
}

pub(crate) fn clean(machine: &Machine) -> Vec<Vec<u8>> {
    let (report, records) = captured(machine, "cpu", true, None);
    assert_eq!((report.conservation.sent, report.lost_devices.len()), (PACKETS, 0));
    records
}

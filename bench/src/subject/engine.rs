//! The whole engine around `echo`, memory to memory. The peer is dpdk-testpmd, which swaps
//! addresses between net_null devices.
//!
//! Both make packets in memory, change each Ethernet header, and discard the packets. Godwit also
//! hashes, orders, bins, counts and times them. Both use one core. Rounds alternate, each in a new
//! process or engine.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use godwit_engine::config::Config;
use godwit_engine::{Engine, Options, Report};

use crate::error::Error;
use crate::load::size::Size;
use crate::progress::Progress;
use crate::run::options::Context;
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};

/// Rounds per competitor. Other work on the machine disturbs single rounds.
const ROUNDS: usize = 5;
/// Packets of a burst: the best of 32 to 1024 in this bench.
const BURST_PACKETS: usize = 256;
/// Minimum time of a round. Starting an engine takes part of it.
const ROUND_MIN: Duration = Duration::from_millis(100);

/// Measures each size.
pub(super) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let common = &context.common;
    let testpmd = common.peers
        && Command::new("dpdk-testpmd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if common.peers && !testpmd {
        progress("peer dpdk-testpmd is left out: it is not installed (package dpdk-dev)");
    }
    let mut rows = Vec::new();
    for &size in &common.sizes {
        let (mut ours, mut theirs, mut between_devices) = (Vec::new(), Vec::new(), Vec::new());
        let time = common.time.max(ROUND_MIN);
        for round in 1..=ROUNDS {
            let report = our_round(common.implementation.as_deref(), time, &memory(size))?;
            progress(&format!("round {round}: godwit {:.2} Mpps", mpps(&report)));
            ours.push(report);
            if cfg!(feature = "dpdk")
                && let Size::Bytes(bytes) = size
            {
                let report = our_round(common.implementation.as_deref(), time, &devices(bytes))?;
                progress(&format!("round {round}: godwit between DPDK devices {:.2} Mpps", mpps(&report)));
                between_devices.push(report);
            }
            if testpmd && let Size::Bytes(bytes) = size {
                let mpps = testpmd_round(bytes, time)?;
                progress(&format!("round {round}: dpdk-testpmd {mpps:.2} Mpps"));
                theirs.push(mpps);
            }
        }
        ours.sort_by(|a, b| mpps(a).total_cmp(&mpps(b)));
        let median = &ours[ours.len() / 2];
        rows.push(our_row(size, median, None));
        between_devices.sort_by(|a, b| mpps(a).total_cmp(&mpps(b)));
        if let Some(median) = between_devices.get(between_devices.len() / 2) {
            rows.push(our_row(size, median, Some("net_null")));
        }
        if !theirs.is_empty() {
            let (their_mpps, _) = median_p99(&mut theirs);
            progress(&format!(
                "{:.2} Mpps, {their_mpps:.2} Mpps of dpdk-testpmd: ratio {:.2}",
                mpps(median),
                mpps(median) / their_mpps
            ));
            rows.push(their_row(size, their_mpps));
        }
    }
    Ok(rows)
}

fn mpps(report: &Report) -> f64 {
    report.conservation.sent as f64 / report.elapsed_s / 1e6
}

fn our_row(size: Size, report: &Report, ports: Option<&str>) -> Row {
    let latency = report.latency.unwrap_or_default();
    Row {
        device: "cpu".to_owned(),
        implementation: report.functions[0].implementation.clone(),
        mode: "engine".to_owned(),
        size: Some(size),
        batch: BURST_PACKETS,
        mpps: mpps(report),
        gbps: report.functions[0].gbps,
        p50_us: latency.p50_ns as f64 / 1e3,
        p99_us: latency.p99_ns as f64 / 1e3,
        details: Details::default()
            .with("kernel_ns", report.functions[0].busy_ns_per_packet)
            .with_option("ports", ports),
        ..Row::default()
    }
}

fn their_row(size: Size, mpps: f64) -> Row {
    let Size::Bytes(bytes) = size else { unreachable!("testpmd runs at fixed sizes only") };
    Row {
        device: "dpdk-testpmd".to_owned(),
        implementation: "macswap".to_owned(),
        mode: "process".to_owned(),
        size: Some(size),
        batch: 32,
        mpps,
        gbps: mpps * f64::from(bytes) * 8.0 / 1e3,
        peer: true,
        details: Details::default().with("ports", "net_null"),
        ..Row::default()
    }
}

/// Returns a port that makes packets in memory and discards sent packets.
fn memory(size: Size) -> String {
    let size = size.configured();
    format!(
        r#"
        [[port]]
        name = "memory"
        kind = "synthetic"
        size = {size}
        flows = 256
        payload = "zero"
        "#
    )
}

/// Returns a port on the device that testpmd uses.
fn devices(bytes: u16) -> String {
    format!(
        r#"
        [[port]]
        name = "memory"
        kind = "dpdk"
        device = "net_null0,size={bytes}"
        "#
    )
}

fn our_round(implementation: Option<&str>, time: Duration, port: &str) -> Result<Report, Error> {
    let implementation = implementation.unwrap_or("scalar");
    let text = format!(
        r#"
        [engine]
        burst_packets = {BURST_PACKETS}
        in_flight_packets = 1024
        [arena]
        frame_bytes_max = 1518
        [packing]
        chunk_packets = {BURST_PACKETS}
        bin_packets = {BURST_PACKETS}
        grouping = "none"
        {port}
        [[function]]
        name = "echo"
        kind = "echo"
        impl = "{implementation}"
        [[chain]]
        from = "memory"
        to = "echo"
        [[chain]]
        from = "echo"
        to = "egress"
        "#
    );
    let config = Config::parse(&text, "bench engine", Path::new(".")).map_err(Error::setup)?;
    let engine = Engine::new(config, &Options::default()).map_err(Error::setup)?;
    let stop = Arc::new(AtomicBool::new(false));
    let report = engine.run(&stop, Some(time), &mut |_| {}).map_err(Error::setup)?;
    if report.conservation.holds() && report.conservation.dropped == 0 {
        return Ok(report);
    }
    Err(Error::Wrong { who: "godwit".to_owned(), what: report.conservation.to_string() })
}

/// Returns the rate of testpmd between its commands `start` and `stop`, in millions of packets per
/// second. testpmd counts the packets.
fn testpmd_round(bytes: u16, time: Duration) -> Result<f64, Error> {
    let failed = |error: std::io::Error| Error::Setup(format!("dpdk-testpmd: {error}"));
    let device = |number: u32| format!("net_null{number},size={bytes}");
    let mut child = Command::new("dpdk-testpmd")
        .args(["--no-huge", "--no-pci", "-m", "1024", "-l", "0,1", "--no-telemetry", "--no-shconf"])
        .args(["--vdev", &device(0), "--vdev", &device(1)])
        .args(["--", "-i", "--forward-mode=macswap", "--total-num-mbufs=8192"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let (Some(mut commands), Some(mut output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Error::Setup("dpdk-testpmd: no pipes".to_owned()));
    };
    read_until(&mut output, b"testpmd> ").map_err(failed)?;
    commands.write_all(b"start\n").map_err(failed)?;
    let started = Instant::now();
    std::thread::sleep(time.max(Duration::from_millis(500)));
    let elapsed_s = started.elapsed().as_secs_f64();
    commands.write_all(b"stop\nquit\n").map_err(failed)?;
    let mut printed = Vec::new();
    output.read_to_end(&mut printed).map_err(failed)?;
    child.wait().map_err(failed)?;
    let text = String::from_utf8_lossy(&printed);
    let total = text.split("Accumulated forward statistics").nth(1).and_then(|rest| {
        rest.lines()
            .find_map(|line| line.trim().strip_prefix("RX-packets:")?.split_whitespace().next()?.parse::<f64>().ok())
    });
    match total {
        Some(packets) if packets > 0.0 => Ok(packets / elapsed_s / 1e6),
        _ => Err(Error::Setup("dpdk-testpmd reported no packets".to_owned())),
    }
}

/// Reads up to the end of the prompt.
fn read_until(output: &mut impl Read, prompt: &[u8]) -> std::io::Result<()> {
    let mut printed = Vec::new();
    let mut byte = [0];
    while !printed.ends_with(prompt) {
        output.read_exact(&mut byte)?;
        printed.push(byte[0]);
    }
    Ok(())
}

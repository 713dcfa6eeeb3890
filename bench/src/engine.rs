//! The whole engine around `echo`, memory to memory. Peer: dpdk-testpmd swapping addresses between net_null devices.
//!
//! Both make packets in memory, touch the Ethernet header of each, and throw them away; ours also hashes, orders,
//! bins, counts and times them. Both use one core for it. Rounds alternate, each in a fresh process or engine.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use godwit_engine::config::Config;
use godwit_engine::{Engine, Options, Report};

use crate::{BenchOptions, Error, Progress, Row, Size, median_p99};

/// Rounds of each competitor; more than one, because neighbours on the machine come and go.
const ROUNDS: usize = 5;
/// Packets taken and run at once: measured best of 32 to 1024 by this bench.
const BURST_PACKETS: usize = 256;

/// The bench `engine`.
pub(crate) fn run(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let sizes = if options.sizes.is_empty() { vec![Size::Bytes(60)] } else { options.sizes.clone() };
    let testpmd = options.peers
        && Command::new("dpdk-testpmd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if options.peers && !testpmd {
        progress("peer dpdk-testpmd is not installed (package dpdk-dev): left out");
    }
    let mut rows = Vec::new();
    for size in sizes {
        let (mut ours, mut theirs, mut between_devices) = (Vec::new(), Vec::new(), Vec::new());
        let time = options.time.max(Duration::from_millis(100));
        for round in 1..=ROUNDS {
            let report = round_of_ours(options.implementation.as_deref(), time, &memory(size))?;
            progress(&format!("round {round}: godwit {:.2} Mpps", mpps(&report)));
            ours.push(report);
            if cfg!(feature = "dpdk")
                && let Size::Bytes(bytes) = size
            {
                let report = round_of_ours(options.implementation.as_deref(), time, &devices(bytes))?;
                progress(&format!("round {round}: godwit between DPDK devices {:.2} Mpps", mpps(&report)));
                between_devices.push(report);
            }
            if testpmd && let Size::Bytes(bytes) = size {
                let mpps = round_of_testpmd(bytes, time)?;
                progress(&format!("round {round}: dpdk-testpmd {mpps:.2} Mpps"));
                theirs.push(mpps);
            }
        }
        ours.sort_by(|a, b| mpps(a).total_cmp(&mpps(b)));
        let median = &ours[ours.len() / 2];
        rows.push(our_row(size, median, ""));
        between_devices.sort_by(|a, b| mpps(a).total_cmp(&mpps(b)));
        if let Some(median) = between_devices.get(between_devices.len() / 2) {
            rows.push(our_row(size, median, ", between two net_null devices of DPDK"));
        }
        if !theirs.is_empty() {
            let (their_mpps, _) = median_p99(&mut theirs);
            progress(&format!(
                "{:.2} Mpps ({:.1} ns a packet) against {their_mpps:.2} of dpdk-testpmd: ratio {:.2}",
                mpps(median),
                1e3 / mpps(median),
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

fn our_row(size: Size, report: &Report, between: &str) -> Row {
    let latency = report.latency.unwrap_or_default();
    Row {
        bench: "engine".to_owned(),
        device: "cpu".to_owned(),
        implementation: report.functions[0].implementation.clone(),
        mode: "engine",
        size: Some(size),
        batch: BURST_PACKETS,
        mpps: mpps(report),
        gbps: report.functions[0].gbps,
        p50_us: latency.p50_ns as f64 / 1e3,
        p99_us: latency.p99_ns as f64 / 1e3,
        watts: None,
        peer: false,
        note: format!(
            "{:.1} ns a packet, {:.1} in the kernel{between}",
            1e3 / mpps(report),
            report.functions[0].busy_ns_per_packet
        ),
    }
}

fn their_row(size: Size, mpps: f64) -> Row {
    let Size::Bytes(bytes) = size else { unreachable!("testpmd is asked for fixed sizes only") };
    Row {
        bench: "engine".to_owned(),
        device: "dpdk-testpmd".to_owned(),
        implementation: "macswap".to_owned(),
        mode: "process",
        size: Some(size),
        batch: 32,
        mpps,
        gbps: mpps * f64::from(bytes) * 8.0 / 1e3,
        p50_us: 0.0,
        p99_us: 0.0,
        watts: None,
        peer: true,
        note: "between two net_null devices, one forwarding core; no latency".to_owned(),
    }
}

/// A port that makes packets in memory, and throws them away.
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

/// What testpmd works between, as ports.
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

fn round_of_ours(implementation: Option<&str>, time: Duration, port: &str) -> Result<Report, Error> {
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

/// Millions of packets per second: what testpmd forwarded between its commands `start` and `stop`, by its own count.
fn round_of_testpmd(bytes: u16, time: Duration) -> Result<f64, Error> {
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
    let mut said = Vec::new();
    output.read_to_end(&mut said).map_err(failed)?;
    child.wait().map_err(failed)?;
    let text = String::from_utf8_lossy(&said);
    let total = text.split("Accumulated forward statistics").nth(1).and_then(|rest| {
        rest.lines()
            .find_map(|line| line.trim().strip_prefix("RX-packets:")?.split_whitespace().next()?.parse::<f64>().ok())
    });
    match total {
        Some(packets) if packets > 0.0 => Ok(packets / elapsed_s / 1e6),
        _ => Err(Error::Setup("dpdk-testpmd reported no packets".to_owned())),
    }
}

/// Reads up to the prompt, and nothing beyond it.
fn read_until(output: &mut impl Read, prompt: &[u8]) -> std::io::Result<()> {
    let mut said = Vec::new();
    let mut byte = [0];
    while !said.ends_with(prompt) {
        output.read_exact(&mut byte)?;
        said.push(byte[0]);
    }
    Ok(())
}

//! What devices can do with no packets (G-Opt, figures 2 to 4 and table 1): what figures of other benches are held against.
//!
//! In these rows `batch` is the size of a copy in bytes, or the number of chains; `mpps` counts millions of copies,
//! hand-overs or reads, and `gbps` what copies carry.

use std::time::Duration;

use godwit_device::measure::{self, CHAINS_PER_CORE, Measure};
use godwit_device::{Implementation, Mode, cpu, cuda, opencl};
use godwit_packet::Layout;

use crate::flow::{Flow, Job, Site};
use crate::{BenchOptions, Error, Progress, Row, Size, frames, function, median_p99};

/// Sizes of copies, bytes: from what a few packets take to beyond the knee.
const COPIES: [usize; 7] = [64, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 32 << 20];
/// Times that a copy or a set of chains is measured; the median counts.
const ROUNDS: usize = 5;
/// Launches, and hand-overs of one packet.
const HAND_OVERS: usize = 1000;
/// Where random reads go: beyond every last-level cache.
const TABLE_BYTES: usize = 1 << 30;

/// The bench `devices`: the device named, or all that are here.
pub(crate) fn run(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let named = options.device.as_ref().map(|_| options.devices().into_iter().map(str::to_owned).collect());
    let devices: Vec<String> = named.unwrap_or_else(present);
    let mut rows = Vec::new();
    for device in &devices {
        let mut own = measure::open(device).map_err(Error::setup)?;
        copies(device, &mut *own, options, progress, &mut rows)?;
        hand_overs(device, &mut *own, options, progress, &mut rows)?;
        random_reads(device, &mut *own, options, progress, &mut rows)?;
    }
    // Only of those that the user named.
    if options.device.is_some() && devices.len() > 1 {
        let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
        copies_at_once(&devices, options, progress, &mut rows)?;
    }
    Ok(rows)
}

/// The CPU, and every other device that can be used.
pub(crate) fn present() -> Vec<String> {
    let others = [cuda::probe(), opencl::probe()].into_iter().flat_map(|probe| probe.found);
    let others = others.filter(|found| found.usable.is_ok());
    std::iter::once(cpu::ID.to_owned()).chain(others.map(|found| found.capabilities.id)).collect()
}

fn is_brief(options: &BenchOptions) -> bool {
    options.time < Duration::from_millis(100)
}

/// Figures of one measurement, `times_ns` each of one copy, hand-over or read.
fn row(device: &str, what: &str, mode: &'static str, batch: usize, times_ns: &mut [f64], bytes: usize) -> Row {
    let (p50, p99) = median_p99(times_ns);
    let millions = 1e3 / p50;
    Row {
        bench: "devices".to_owned(),
        device: device.to_owned(),
        implementation: what.to_owned(),
        mode,
        size: None,
        batch,
        mpps: millions,
        gbps: millions * bytes as f64 * 8.0 / 1e3,
        p50_us: p50 / 1e3,
        p99_us: p99 / 1e3,
        watts: None,
        peer: false,
        note: String::new(),
    }
}

fn copies(
    device: &str,
    own: &mut dyn Measure,
    options: &BenchOptions,
    progress: &mut Progress<'_>,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let sizes = if is_brief(options) { &COPIES[..3] } else { &COPIES[..] };
    for &bytes in sizes {
        progress(&format!("{device}: copies of {bytes} bytes"));
        let mut times: [Vec<f64>; 3] = Default::default();
        for _ in 0..ROUNDS {
            let rates = own.copy(bytes, options.time / (3 * ROUNDS as u32), &|| {}).map_err(Error::setup)?;
            for (times, rate) in times.iter_mut().zip([rates.host_to_device, rates.device_to_host, rates.both]) {
                times.push(bytes as f64 / rate * 1e9);
            }
        }
        let what = ["copy host-to-device", "copy device-to-host", "copy both ways"];
        for (what, times) in what.iter().zip(&mut times) {
            let mut row = row(device, what, "call", bytes, times, bytes);
            row.note = format!("{:.2} GB/s", row.gbps / 8.0);
            rows.push(row);
        }
    }
    Ok(())
}

/// What links and the host's memory give when all devices copy at the same time.
fn copies_at_once(
    devices: &[&str],
    options: &BenchOptions,
    progress: &mut Progress<'_>,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let bytes = if is_brief(options) { COPIES[2] } else { COPIES[6] };
    progress(&format!("copies of {bytes} bytes, {} at once", devices.join(" and ")));
    // Per direction and device.
    let mut times = vec![vec![Vec::new(); devices.len()]; 3];
    for _ in 0..ROUNDS {
        let rates = measure::copy_at_once(devices, bytes, options.time / (3 * ROUNDS as u32)).map_err(Error::setup)?;
        for (device, rates) in rates.iter().enumerate() {
            for (times, rate) in times.iter_mut().zip([rates.host_to_device, rates.device_to_host, rates.both]) {
                times[device].push(bytes as f64 / rate * 1e9);
            }
        }
    }
    let what = ["copy host-to-device", "copy device-to-host", "copy both ways"];
    for (what, times) in what.iter().zip(&mut times) {
        let each: Vec<Row> =
            devices.iter().zip(times).map(|(device, times)| row(device, what, "call", bytes, times, bytes)).collect();
        let gbps: Vec<f64> = each.iter().map(|row| row.gbps).collect();
        let alone = |device: &str| {
            let same = |row: &&Row| row.device == device && row.implementation == *what && row.batch == bytes;
            rows.iter().find(same).map_or(0.0, |row| row.gbps)
        };
        let sum_alone: f64 = devices.iter().map(|device| alone(device)).sum();
        let sum: f64 = gbps.iter().sum();
        let list = gbps.iter().map(|gbps| format!("{:.2}", gbps / 8.0)).collect::<Vec<_>>().join(" and ");
        let longest = |of: fn(&Row) -> f64| each.iter().map(of).fold(0.0, f64::max);
        rows.push(Row {
            device: devices.join("+"),
            implementation: format!("{what}, at once"),
            mpps: each.iter().map(|row| row.mpps).sum(),
            gbps: sum,
            p50_us: longest(|row| row.p50_us),
            p99_us: longest(|row| row.p99_us),
            note: format!(
                "{:.2} GB/s in sum: {list}; {:.2} of what each has alone, in sum",
                sum / 8.0,
                sum / sum_alone
            ),
            ..each[0].clone()
        });
    }
    Ok(())
}

fn hand_overs(
    device: &str,
    own: &mut dyn Measure,
    options: &BenchOptions,
    progress: &mut Progress<'_>,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let count = if is_brief(options) { 10 } else { HAND_OVERS };
    match own.launch(count).map_err(Error::setup)? {
        Some(mut times) => {
            let mut row = row(device, "empty kernel", Mode::Launch.name(), 1, &mut times, 0);
            "launch until the host knows that it has ended".clone_into(&mut row.note);
            rows.push(row);
        }
        None => progress(&format!("{device}: nothing is launched")),
    }
    if let Some(mut times) = own.mailbox(count).map_err(Error::setup)? {
        let mut row = row(device, "mailbox", Mode::Persistent.name(), 1, &mut times, 0);
        "a word to a kernel that waits for it, and its answer".clone_into(&mut row.note);
        rows.push(row);
    }
    let template = [function::build("template", "")?];
    let modes: &[Mode] = if device == cpu::ID { &[Mode::Launch] } else { &[Mode::Launch, Mode::Persistent] };
    for &mode in modes {
        let site = Site {
            device,
            mode,
            implementation: Implementation::Scalar,
            resident: false,
            layout: Layout::Dense,
            transfer: options.transfer.unwrap_or_default(),
            functions: &template,
            packets: count,
            bins: 1,
            bin_packets: 1,
            in_flight: 1,
            share: &[],
            chain: None,
        };
        let job = Job { instance: 0, variant: 0, parameter: 0, before: None, row: 0 };
        let mut flow = Flow::new(&site, Size::Bytes(60), &frames::filled(|_, _| {}), &mut |_| job)?;
        if flow.device.mode() != mode {
            let why = flow.device.fallback().unwrap_or("it has no other mode");
            progress(&format!("{device} does not run in mode {}: {why}", mode.name()));
            continue;
        }
        flow.prepare_by_length(1, 1);
        flow.verify()?;
        let mut passes = flow.measure(Duration::ZERO)?;
        let mut row = row(device, "one packet", mode.name(), 1, &mut passes.latencies_ns, 60);
        let how = if mode == Mode::Persistent { "mailbox: " } else { "" };
        row.note = format!("{how}a chunk of one packet through the function `template`, submit to completion");
        rows.push(row);
    }
    Ok(())
}

fn random_reads(
    device: &str,
    own: &mut dyn Measure,
    options: &BenchOptions,
    progress: &mut Progress<'_>,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let chains = match (device == cpu::ID, is_brief(options)) {
        (true, true) => vec![1, CHAINS_PER_CORE],
        (true, false) => vec![1, 2, 4, 8, CHAINS_PER_CORE, CHAINS_PER_CORE * cores],
        (false, true) => vec![64],
        (false, false) => (0..=10).map(|power| 1 << (2 * power)).collect(),
    };
    let table_bytes = if is_brief(options) { 1 << 20 } else { TABLE_BYTES };
    for chains in chains {
        progress(&format!("{device}: random reads, {chains} chains"));
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let rate = own.random_reads(table_bytes, chains, options.time / ROUNDS as u32).map_err(Error::setup)?;
            times.push(1e9 / rate);
        }
        let mut row = row(device, "random reads", "call", chains, &mut times, 0);
        let cores =
            if device == cpu::ID { format!(", {} cores", chains.div_ceil(CHAINS_PER_CORE)) } else { String::new() };
        row.note =
            format!("4 B each, {chains} chains{cores}, table of {} MiB; times are of one read", table_bytes >> 20);
        rows.push(row);
    }
    Ok(())
}

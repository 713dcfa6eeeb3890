//! Devices without packets: copies, launches, random reads and lookups (G-Opt, figures 2 to 4 and
//! table 1). Their rates limit all other benches.
//!
//! In these rows, `batch` is the copy size in bytes, or the number of chains. `mpps` counts
//! millions of copies, launches, reads or lookups, and `gbps` counts the copied bits.

use std::time::Duration;

use godwit_device::{Implementation, Mode, Transfer, is_synchronous};
use godwit_device_bench::{self as measure, CHAINS_PER_CORE, Measure};
use godwit_packet::Layout;

use crate::error::Error;
use crate::load::build::build;
use crate::load::frames::{self, Random};
use crate::load::job::Job;
use crate::load::size::Size;
use crate::progress::Progress;
use crate::run::cores;
use crate::run::devices::modes;
use crate::run::flow::{Flow, FlowConfig};
use crate::run::options::{Common, Context, TRANSFER};
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};

/// Copy sizes in bytes, from a few packets to the full copy rate.
const COPIES: [usize; 7] = [64, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 32 << 20];
/// Rounds per copy size and per number of chains. The median counts.
const ROUNDS: usize = 5;
/// Number of launches, and of chunks with one packet.
const LAUNCHES: usize = 1000;
/// Size of the table of random reads. It exceeds every last-level cache.
const TABLE_BYTES: usize = 1 << 30;
/// Lookups per batch, as in G-Opt: slightly more than the packets that arrive in 100 us at 40 Gbps.
const HEADERS: usize = 8192;
/// Numbers of dependent reads of a lookup.
const DEPTHS: [u32; 9] = [1, 2, 3, 4, 5, 6, 8, 10, 16];
/// Names of the three directions of copies.
const DIRECTIONS: [&str; 3] = ["copy host-to-device", "copy device-to-host", "copy both ways"];

/// Measures each device, and copies to all devices at once if the request names several.
pub(super) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let common = &context.common;
    let transfer = context.values.get(TRANSFER.name)?.unwrap_or_default();
    let mut rows = Vec::new();
    for device in &common.devices {
        let mut opened = measure::open(device).map_err(Error::setup)?;
        copies(device, &mut *opened, common, progress, &mut rows)?;
        launches(device, &mut *opened, common, progress, &mut rows)?;
        one_packet(device, transfer, common, progress, &mut rows)?;
        random_reads(device, &mut *opened, common, progress, &mut rows)?;
        lookups(device, &mut *opened, common, progress, &mut rows)?;
    }
    if common.devices_named && common.devices.len() > 1 {
        copies_at_once(&common.devices(), common, progress, &mut rows)?;
    }
    Ok(rows)
}

/// Returns the row of a measurement. `times_ns` contains the time of each copy, launch or read.
fn row(device: &str, name: &str, mode: &str, batch: usize, times_ns: &mut [f64], bytes: usize) -> Row {
    let (p50, p99) = median_p99(times_ns);
    let millions = 1e3 / p50;
    Row {
        device: device.to_owned(),
        implementation: name.to_owned(),
        mode: mode.to_owned(),
        batch,
        mpps: millions,
        gbps: millions * bytes as f64 * 8.0 / 1e3,
        p50_us: p50 / 1e3,
        p99_us: p99 / 1e3,
        ..Row::default()
    }
}

fn copies(
    device: &str,
    opened: &mut dyn Measure,
    common: &Common,
    progress: &mut Progress<'_>,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let sizes = if common.brief() { &COPIES[..3] } else { &COPIES[..] };
    for &bytes in sizes {
        progress(&format!("{device}: copies of {bytes} bytes"));
        let mut times: [Vec<f64>; 3] = Default::default();
        for _ in 0..ROUNDS {
            let rates = opened.copy(bytes, common.time / (3 * ROUNDS as u32), &|| {}).map_err(Error::setup)?;
            for (times, rate) in times.iter_mut().zip([rates.host_to_device, rates.device_to_host, rates.both]) {
                times.push(bytes as f64 / rate * 1e9);
            }
        }
        for (name, times) in DIRECTIONS.iter().zip(&mut times) {
            rows.push(row(device, name, "call", bytes, times, bytes));
        }
    }
    Ok(())
}

/// Measures copies to all devices at the same time.
fn copies_at_once(
    devices: &[&str],
    common: &Common,
    progress: &mut Progress<'_>,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let bytes = if common.brief() { COPIES[2] } else { COPIES[6] };
    progress(&format!("copies of {bytes} bytes, {} at once", devices.join(" and ")));
    // Times by direction and device.
    let mut times = vec![vec![Vec::new(); devices.len()]; 3];
    for _ in 0..ROUNDS {
        let rates = measure::copy_at_once(devices, bytes, common.time / (3 * ROUNDS as u32)).map_err(Error::setup)?;
        for (device, rates) in rates.iter().enumerate() {
            for (times, rate) in times.iter_mut().zip([rates.host_to_device, rates.device_to_host, rates.both]) {
                times[device].push(bytes as f64 / rate * 1e9);
            }
        }
    }
    for (name, times) in DIRECTIONS.iter().zip(&mut times) {
        let each: Vec<Row> =
            devices.iter().zip(times).map(|(device, times)| row(device, name, "call", bytes, times, bytes)).collect();
        let gbps: Vec<f64> = each.iter().map(|row| row.gbps).collect();
        let alone = |device: &str| {
            let same = |row: &&Row| row.device == device && row.implementation == *name && row.batch == bytes;
            rows.iter().find(same).map_or(0.0, |row| row.gbps)
        };
        let sum_alone: f64 = devices.iter().map(|device| alone(device)).sum();
        let sum: f64 = gbps.iter().sum();
        let details = devices
            .iter()
            .zip(&gbps)
            .fold(Details::default().with("share_of_alone", sum / sum_alone), |details, (device, gbps)| {
                details.with(&format!("gbps_{device}"), *gbps)
            });
        let longest = |of: fn(&Row) -> f64| each.iter().map(of).fold(0.0, f64::max);
        rows.push(Row {
            device: devices.join("+"),
            implementation: format!("{name}, at once"),
            mpps: each.iter().map(|row| row.mpps).sum(),
            gbps: sum,
            p50_us: longest(|row| row.p50_us),
            p99_us: longest(|row| row.p99_us),
            details,
            ..each[0].clone()
        });
    }
    Ok(())
}

/// Returns the number of launches.
fn launch_count(common: &Common) -> usize {
    if common.brief() { 10 } else { LAUNCHES }
}

/// Measures two times: from the launch of an empty kernel until the host sees its end, and from the
/// host's write to a waiting kernel until the answer.
fn launches(
    device: &str,
    opened: &mut dyn Measure,
    common: &Common,
    progress: &mut Progress<'_>,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let count = launch_count(common);
    match opened.launch(count).map_err(Error::setup)? {
        Some(mut times) => rows.push(row(device, "empty kernel", Mode::Launch.name(), 1, &mut times, 0)),
        None => progress(&format!("{device} has no launches")),
    }
    if let Some(mut times) = opened.mailbox(count).map_err(Error::setup)? {
        rows.push(row(device, "mailbox", Mode::Persistent.name(), 1, &mut times, 0));
    }
    Ok(())
}

/// Measures a chunk of one packet through the function `template`, from submission to completion.
fn one_packet(
    device: &str,
    transfer: Transfer,
    common: &Common,
    progress: &mut Progress<'_>,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let template = [build("template", "")?];
    for &mode in modes(device) {
        let config = FlowConfig {
            device,
            mode,
            implementation: Implementation::Scalar,
            resident: false,
            layout: Layout::Dense,
            transfer,
            functions: &template,
            packets: launch_count(common),
            bins: 1,
            bin_packets: 1,
            in_flight: 1,
            share: &[],
            chain: None,
        };
        let job = Job::plain(0, 0);
        let mut flow = Flow::new(&config, Size::Bytes(60), &frames::filled(|_, _| {}), &mut |_| job)?;
        if flow.device.mode() != mode {
            let why = flow.device.fallback().unwrap_or("it has no other mode");
            progress(&format!("{device} does not run in mode {}: {why}", mode.name()));
            continue;
        }
        flow.prepare_by_length(1, 1);
        flow.verify()?;
        let mut passes = flow.measure(Duration::ZERO)?;
        rows.push(row(device, "one packet", mode.name(), 1, &mut passes.latencies_ns, 60));
    }
    Ok(())
}

/// Measures chains of dependent 4-byte reads. The times are those of one read.
fn random_reads(
    device: &str,
    opened: &mut dyn Measure,
    common: &Common,
    progress: &mut Progress<'_>,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let chains = match (is_synchronous(device), common.brief()) {
        (true, true) => vec![1, CHAINS_PER_CORE],
        (true, false) => vec![1, 2, 4, 8, CHAINS_PER_CORE, CHAINS_PER_CORE * cores::count()],
        (false, true) => vec![64],
        (false, false) => (0..=10).map(|power| 1 << (2 * power)).collect(),
    };
    let table_bytes = table_bytes(common);
    for chains in chains {
        progress(&format!("{device}: random reads, {chains} chains"));
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let rate = opened.random_reads(table_bytes, chains, common.time / ROUNDS as u32).map_err(Error::setup)?;
            times.push(1e9 / rate);
        }
        let mut row = row(device, "random reads", "call", chains, &mut times, 0);
        let cores = is_synchronous(device).then(|| chains.div_ceil(CHAINS_PER_CORE));
        row.details = Details::default().with("table_mib", table_bytes >> 20).with_option("cores", cores);
        rows.push(row);
    }
    Ok(())
}

/// Returns the size of the table of random reads and lookups.
fn table_bytes(common: &Common) -> usize {
    if common.brief() { 1 << 20 } else { TABLE_BYTES }
}

/// Measures batches of lookups. Each lookup is a chain of dependent reads. The time of a batch
/// includes the transfer of headers to the device and of results back (G-Opt, figure 4a). The CPU
/// uses one core.
fn lookups(
    device: &str,
    opened: &mut dyn Measure,
    common: &Common,
    progress: &mut Progress<'_>,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let (depths, table_bytes) = (if common.brief() { &DEPTHS[..2] } else { &DEPTHS[..] }, table_bytes(common));
    let mut random = Random::new(HEADERS as u64);
    let headers: Vec<u32> = (0..HEADERS).map(|_| random.next_u32()).collect();
    for &depth in depths {
        progress(&format!("{device}: lookups of {depth} dependent reads"));
        let mut results = headers.clone();
        let mut times =
            opened.lookups(table_bytes, &mut results, depth, common.time / ROUNDS as u32).map_err(Error::setup)?;
        let expected = |header: &u32| measure::lookup(table_bytes, *header, depth);
        if let Some(wrong) = headers.iter().zip(&results).position(|(header, result)| expected(header) != *result) {
            let what = format!("lookup {wrong} with {depth} dependent reads has another result");
            return Err(Error::Wrong { who: device.to_owned(), what });
        }
        let mut row = row(device, "lookups", "call", HEADERS, &mut times, 0);
        row.mpps *= HEADERS as f64;
        row.details = Details::default().with("dependent_reads", u64::from(depth)).with("table_mib", table_bytes >> 20);
        rows.push(row);
    }
    Ok(())
}

//! The gateway on one or several devices, port to port.

use godwit_engine::Report;

use super::gateway::{Gateway, associations};
use crate::error::Error;
use crate::load::associations::Associations;
use crate::load::size::Size;
use crate::progress::Progress;
use crate::run::cores;
use crate::run::lane;
use crate::run::link::moved;
use crate::run::options::{Context, LaneOptions, choice, layout_name};
use crate::run::row::{Details, Row};
use crate::run::several;

/// Measures the gateway of the request.
pub(in crate::subject) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let options = LaneOptions::parse(context)?;
    let associations = associations(&choice(&context.values)?)?;
    rows(&options, &associations, progress)
}

/// Returns the rows for each size and each number of workers: each device alone, and all devices at
/// once.
pub(super) fn rows(
    options: &LaneOptions,
    associations: &Associations,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let implementation = lane::implementation(options)?;
    let devices = options.devices();
    let cores = [cores::count()];
    let workers = if options.workers.is_empty() { &cores[..] } else { &options.workers };
    let links = several::links(&options.common, progress);
    // Each device alone, then all of them.
    let mut sets: Vec<(&[&str], Option<f64>)> = devices.chunks(1).zip(links.alone()).collect();
    if devices.len() > 1 {
        sets.push((&devices, links.at_once_in_sum()));
    }
    let mut rows = Vec::new();
    for &size in &options.common.sizes {
        let expected = Gateway::new(options, associations, size).expected()?;
        for &workers in workers {
            let mut alone = Vec::new();
            for &(devices, link) in &sets {
                let gateway = Gateway { workers, implementation, devices, ..Gateway::new(options, associations, size) };
                gateway.verify(&expected, progress)?;
                let (chunk_packets, report) = gateway.time(options.common.time)?;
                let mut row = row(options, devices, size, chunk_packets, &report, link);
                row.details = row.details.with("suite", associations.name());
                if devices.len() > 1 {
                    row.details = row.details.and(balance(devices, &report, row.mpps, &alone));
                }
                alone.push(row.mpps);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Returns each device's share of the packets, and the ratio to the total of the devices alone.
fn balance(devices: &[&str], report: &Report, mpps: f64, alone: &[f64]) -> Details {
    let packets = |device: &&str| {
        let name = format!("device_packets{{device=\"{device}\"}}");
        report.counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, packets)| *packets)
    };
    let each: Vec<u64> = devices.iter().map(packets).collect();
    let all = each.iter().sum::<u64>().max(1) as f64;
    let details = Details::default().with("share_of_alone", mpps / alone.iter().sum::<f64>());
    devices
        .iter()
        .zip(each)
        .fold(details, |details, (device, packets)| details.with(&format!("share_{device}"), packets as f64 / all))
}

/// Returns the row of a run.
pub(super) fn row(
    options: &LaneOptions,
    devices: &[&str],
    size: Size,
    chunk_packets: usize,
    report: &Report,
    link: Option<f64>,
) -> Row {
    let watts =
        |device: &&str| report.power.iter().find(|power| power.device == **device).and_then(|power| power.watts);
    let sent = report.conservation.sent;
    let mpps = sent as f64 / report.elapsed_s / 1e6;
    let function = &report.functions[0];
    let latency = report.latency.unwrap_or_default();
    Row {
        device: devices.join("+"),
        implementation: function.implementation.clone(),
        mode: "engine".to_owned(),
        size: Some(size),
        batch: chunk_packets,
        mpps,
        gbps: function.gbps,
        p50_us: latency.p50_ns as f64 / 1e3,
        p99_us: latency.p99_ns as f64 / 1e3,
        watts: devices.iter().map(watts).sum(),
        details: details(options, devices, report, mpps, link),
        ..Row::default()
    }
}

fn details(options: &LaneOptions, devices: &[&str], report: &Report, mpps: f64, link: Option<f64>) -> Details {
    let counter = |name: &str| report.counters.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value);
    let of_devices = |name: &str| -> u64 {
        devices.iter().map(|device| counter(&format!("device_{name}{{device=\"{device}\"}}"))).sum()
    };
    let function = &report.functions[0];
    let busy_ns = counter("engine_busy_ns") as f64;
    let packets = report.conservation.sent as f64;
    let bytes = [of_devices("moved_to"), of_devices("moved_back")];
    let bytes = (bytes != [0, 0]).then(|| bytes.map(|bytes| bytes as f64 / packets));
    let dropped = report.conservation.dropped;
    Details::default()
        .with("workers", report.workers)
        .with("busy_cores", busy_ns / 1e9 / report.elapsed_s)
        .with("busy_ns_per_packet", busy_ns / packets)
        .with("device_mode", function.mode.as_str())
        .with("layout", layout_name(options.layout))
        .with("bin_fill", function.batch_fill)
        .with("sent_gbps", report.ports[0].sent_bytes as f64 * 8.0 / report.elapsed_s / 1e9)
        .with_option("dropped", (dropped > 0).then_some(dropped))
        .and(moved(mpps, bytes, link))
}

//! The gateway on CPU cores and a device together, and each of them alone in the same run.
//!
//! ```text
//! alone      | all cores: ipsec on the CPU                |
//! alone      | k cores: feed the device | others idle     |
//! together   | k cores: feed the device | others: on CPU  |
//! ```

use std::sync::Barrier;
use std::thread;

use godwit_device::{Implementation, LAST_RESORT};
use godwit_engine::Report;

use super::gateway::{Gateway, associations};
use crate::error::Error;
use crate::progress::Progress;
use crate::run::cores;
use crate::run::options::{Context, LaneOptions, choice};
use crate::run::row::{Details, Row};

/// Measures the cores alone, the device alone and both at once, for each size.
pub(in crate::subject) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let options = &LaneOptions::parse(context)?;
    let associations = &associations(&choice(&context.values)?)?;
    let (cores, feeding) = cores::with_device(options)?;
    let (first, others) = cores.split_at(feeding);
    let mut rows = Vec::new();
    for &size in &options.common.sizes {
        let devices = [options.device()];
        let gateway = || Gateway::new(options, associations, size);
        let on_cpu = |workers| Gateway { implementation: Implementation::Native, workers, ..gateway() };
        let (alone, on_others) = (on_cpu(cores.len()), on_cpu(others.len()));
        let device = Gateway { devices: &devices, workers: feeding, ..gateway() };
        let expected = gateway().expected()?;
        for gateway in [&alone, &on_others, &device] {
            gateway.verify(&expected, progress)?;
        }
        let barrier = Barrier::new(2);
        let timed = |gateway: &Gateway<'_>, cores: &[usize], begin: &(dyn Fn() + Sync)| {
            cores::on(cores, || gateway.run_after(None, Some(options.common.time), begin).map(|(_, report)| report))
        };
        let cpu_alone = timed(&alone, &cores, &|| {})?;
        let device_alone = timed(&device, first, &|| {})?;
        let meet = || {
            barrier.wait();
        };
        let (by_device, by_cpu) = thread::scope(|scope| {
            let other = scope.spawn(|| timed(&on_others, others, &meet));
            let by_device = timed(&device, first, &meet);
            (by_device, other.join().unwrap_or_else(|_| Err(Error::Setup("a thread of the bench panicked".to_owned()))))
        });
        let (by_device, by_cpu) = (by_device?, by_cpu?);
        let [alone_mpps, device_mpps, by_device_mpps, by_cpu_mpps] =
            [&cpu_alone, &device_alone, &by_device, &by_cpu].map(mpps);
        let sum = by_device_mpps + by_cpu_mpps;
        let row = |device: &str, implementation: &str, mpps: f64, reports: &[&Report], details: Details| Row {
            device: device.to_owned(),
            implementation: implementation.to_owned(),
            mode: "engine".to_owned(),
            size: Some(size),
            mpps,
            gbps: reports.iter().map(|report| report.functions[0].gbps).sum(),
            p50_us: reports.iter().map(|report| latency(report).0).fold(0.0, f64::max),
            p99_us: reports.iter().map(|report| latency(report).1).fold(0.0, f64::max),
            details: details.with("suite", associations.name()).with("cores", cores.len()),
            ..Row::default()
        };
        let id = options.device();
        let form = &cpu_alone.functions[0].implementation;
        rows.push(row(LAST_RESORT, form, alone_mpps, &[&cpu_alone], Details::default()));
        let details = |mpps: f64| {
            let details = Details::default().with("feeding_cores", feeding);
            details.with("share_of_cpu_alone", mpps / alone_mpps)
        };
        let form = &device_alone.functions[0].implementation;
        rows.push(row(id, form, device_mpps, &[&device_alone], details(device_mpps)));
        let details = details(sum).with("device_mpps", by_device_mpps).with("cpu_mpps", by_cpu_mpps);
        rows.push(row(&format!("{id}+cpu"), "both", sum, &[&by_device, &by_cpu], details));
    }
    Ok(rows)
}

fn mpps(report: &Report) -> f64 {
    report.conservation.sent as f64 / report.elapsed_s / 1e6
}

/// Returns the median and the 99th percentile in microseconds.
fn latency(report: &Report) -> (f64, f64) {
    let latency = report.latency.unwrap_or_default();
    (latency.p50_ns as f64 / 1e3, latency.p99_ns as f64 / 1e3)
}

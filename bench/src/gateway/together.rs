//! CPU and device at once: some cores feed the device, all others do the same work themselves, in the same run as either alone.
//!
//! ```text
//! alone      | all cores: ipsec on the CPU                |
//! alone      | k cores: feed the device | others idle     |
//! together   | k cores: feed the device | others: on CPU  |
//! ```

use std::sync::Barrier;
use std::thread;

use godwit_device::{Implementation, cpu};
use godwit_engine::Report;

use super::Gateway;
use crate::suites::Associations;
use crate::{BenchOptions, Error, Progress, Row, Size, cores};

/// Rows at each size: the cores alone, the device alone, both at once.
pub(super) fn run(
    options: &BenchOptions,
    associations: &Associations,
    sizes: &[Size],
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let (cores, feeding) = cores::beside_device(options)?;
    let (first, others) = cores.split_at(feeding);
    let mut rows = Vec::new();
    for &size in sizes {
        let devices = [options.device()];
        let gateway = || Gateway::new(options, associations, size);
        let on_cpu = |workers| Gateway { implementation: Implementation::Native, workers, ..gateway() };
        let (alone, beside) = (on_cpu(cores.len()), on_cpu(others.len()));
        let device = Gateway { devices: &devices, workers: feeding, ..gateway() };
        let expected = gateway().expected()?;
        for gateway in [&alone, &beside, &device] {
            gateway.verify(&expected, progress)?;
        }
        let barrier = Barrier::new(2);
        let timed = |gateway: &Gateway<'_>, cores: &[usize], begin: &(dyn Fn() + Sync)| {
            cores::on(cores, || gateway.run_after(None, Some(options.time), begin).map(|(_, report)| report))
        };
        let cpu_alone = timed(&alone, &cores, &|| {})?;
        let device_alone = timed(&device, first, &|| {})?;
        let meet = || {
            barrier.wait();
        };
        let (by_device, by_cpu) = thread::scope(|scope| {
            let other = scope.spawn(|| timed(&beside, others, &meet));
            let by_device = timed(&device, first, &meet);
            (
                by_device,
                other.join().unwrap_or_else(|_| Err(Error::Setup("a thread of the bench ended early".to_owned()))),
            )
        });
        let (by_device, by_cpu) = (by_device?, by_cpu?);
        let [alone_mpps, device_mpps, by_device_mpps, by_cpu_mpps] =
            [&cpu_alone, &device_alone, &by_device, &by_cpu].map(mpps);
        let sum = by_device_mpps + by_cpu_mpps;
        let name = associations.name();
        let row = |device: &str, implementation: &str, mpps: f64, reports: &[&Report], note: String| Row {
            bench: "gateway".to_owned(),
            device: device.to_owned(),
            implementation: implementation.to_owned(),
            mode: "engine",
            size: Some(size),
            batch: 0,
            mpps,
            gbps: reports.iter().map(|report| report.functions[0].gbps).sum(),
            p50_us: reports.iter().map(|report| latency(report).0).fold(0.0, f64::max),
            p99_us: reports.iter().map(|report| latency(report).1).fold(0.0, f64::max),
            watts: None,
            peer: false,
            note: format!("{name}; {note}"),
        };
        let id = options.device();
        let (all, rest) = (cores.len(), others.len());
        let form = &cpu_alone.functions[0].implementation;
        rows.push(row(cpu::ID, form, alone_mpps, &[&cpu_alone], format!("{all} cores alone")));
        let note = format!("fed by {feeding} cores, the others idle; {:.2} of {all} cores", device_mpps / alone_mpps);
        rows.push(row(id, &device_alone.functions[0].implementation, device_mpps, &[&device_alone], note));
        let note = format!(
            "together: device {by_device_mpps:.2} Mpps fed by {feeding} cores, CPU {by_cpu_mpps:.2} by {rest}; {:.2} of {all} cores",
            sum / alone_mpps
        );
        rows.push(row(&format!("{id}+cpu"), "both", sum, &[&by_device, &by_cpu], note));
    }
    Ok(rows)
}

fn mpps(report: &Report) -> f64 {
    report.conservation.sent as f64 / report.elapsed_s / 1e6
}

/// Median and 99th percentile, microseconds.
fn latency(report: &Report) -> (f64, f64) {
    let latency = report.latency.unwrap_or_default();
    (latency.p50_ns as f64 / 1e3, latency.p99_ns as f64 / 1e3)
}

//! Latency of whole functions by offered load, from a packet's due time to its departure (G-Opt,
//! figure 11).

use godwit_device::is_synchronous;

use super::cases::apps;
use super::setup::{BURSTS, Settings, Setup, Target, mpps, proof, row};
use crate::error::Error;
use crate::load::traffic::Traffic;
use crate::progress::Progress;
use crate::run::options::Context;
use crate::run::row::Row;

/// Offered loads, as a share of the slowest CPU implementation's maximum rate.
const LOADS: [f64; 8] = [0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.25, 1.5];

/// Measures each function at each load.
pub(in crate::subject) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let settings = Settings::parse(context)?;
    let request = &settings.request;
    let mut rows = Vec::new();
    let workers = settings.single_worker_count();
    for app in apps(&settings.apps)? {
        let case = (app.make)(request)?;
        let expected = proof(&case)?;
        let targets = settings.targets();
        let mut largest = f64::INFINITY;
        for Target { device, implementation } in &targets {
            let setup = Setup { case: &case, device, implementation, workers, packing: BURSTS };
            setup.verify(&expected)?;
            let report = setup.measure(Traffic::new(&case.frames), &settings)?;
            progress(&format!("{} {implementation} on {device}: at most {:.2} Mpps", app.name, mpps(&report)));
            if is_synchronous(device) {
                largest = largest.min(mpps(&report));
            }
        }
        if !largest.is_finite() {
            largest = 1.0;
        }
        let loads = if request.extent.brief { &LOADS[..1] } else { &LOADS };
        for load in loads {
            let offered = load * largest;
            for Target { device, implementation } in &targets {
                let setup = Setup { case: &case, device, implementation, workers, packing: BURSTS };
                let traffic = Traffic { rate: Some(offered * 1e6), ..Traffic::new(&case.frames) };
                let report = setup.measure(traffic.clone(), &settings)?;
                let missed: u64 = report.ports[0].passed_over.iter().map(|(_, count)| count).sum();
                let missed = missed as f64 / (missed + report.conservation.received).max(1) as f64;
                let mut row = row(&case, device, request.size, BURSTS, &mut [report]);
                row.implementation = format!("{} {}", app.name, row.implementation);
                let latency = |share| traffic.latencies.ns(share).map_or(0.0, |time_ns| time_ns / 1e3);
                (row.p50_us, row.p99_us) = (latency(0.5), latency(0.99));
                row.details = row
                    .details
                    .with("app", app.name)
                    .with("requested_impl", implementation.as_str())
                    .with("offered_mpps", offered)
                    .with("missed_share", missed);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

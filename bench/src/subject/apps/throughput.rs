//! Throughput of whole functions by number of workers (G-Opt, figure 10).

use godwit_engine::Report;

use super::cases::apps;
use super::setup::{BURSTS, ROUNDS, Settings, Setup, Target, proof, row};
use crate::error::Error;
use crate::load::traffic::Traffic;
use crate::progress::Progress;
use crate::run::options::Context;
use crate::run::row::Row;

/// Measures each function with each number of workers.
pub(in crate::subject) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let settings = Settings::parse(context)?;
    let request = &settings.request;
    let mut rows = Vec::new();
    for app in apps(&settings.apps)? {
        let case = (app.make)(request)?;
        let expected = proof(&case)?;
        for workers in settings.worker_counts() {
            let targets = settings.targets();
            let mut reports: Vec<Vec<Report>> = vec![Vec::new(); targets.len()];
            for round in 0..if request.extent.brief { 1 } else { ROUNDS } {
                for (Target { device, implementation }, reports) in targets.iter().zip(&mut reports) {
                    let setup = Setup { case: &case, device, implementation, workers, packing: BURSTS };
                    if round == 0 {
                        setup.verify(&expected)?;
                    }
                    reports.push(setup.measure(Traffic::new(&case.frames), &settings)?);
                }
            }
            let mut first = None;
            for (Target { device, implementation }, reports) in targets.iter().zip(&mut reports) {
                let mut row = row(&case, device, request.size, BURSTS, reports);
                let ratio = row.mpps / *first.get_or_insert(row.mpps);
                row.implementation = format!("{} {}", app.name, row.implementation);
                row.details = row
                    .details
                    .with("app", app.name)
                    .with("requested_impl", implementation.as_str())
                    .with("ratio_to_first", ratio);
                progress(&format!("{} on {device}, {workers} workers: {:.2} Mpps", row.implementation, row.mpps));
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

//! The gateway on several workers, with packets that arrive at any worker, as from a NIC that does
//! not know SAs. Each worker passes packets to the worker that owns their SA.

use godwit_engine::Report;
use godwit_packet::Layout;

use super::gateway::{Gateway, associations};
use super::gateway_rows::row;
use crate::error::Error;
use crate::load::associations::Choice;
use crate::progress::Progress;
use crate::run::options::{Context, LaneOptions, choice};
use crate::run::row::Row;
use crate::run::{cores, lane};

/// Suites, if the request names none.
const SUITES: [&str; 2] = ["cbc128_sha1", "gcm128"];
/// Numbers of SAs, if the request names none. The gateway needs powers of two.
const SAS: [u32; 2] = [1024, 1];
/// Numbers of workers, if the request names none.
const WORKERS: [usize; 3] = [1, 2, 8];

/// Measures each suite, size and number of SAs with each number of workers. The detail `times_one`
/// is the ratio to one worker in the same run.
pub(in crate::subject) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    // Live ports need buffers of one size.
    let options = &LaneOptions { layout: Layout::Slots, ..LaneOptions::parse(context)? };
    let implementation = lane::implementation(options)?;
    let devices = &options.devices()[..1];
    let chosen = choice(&context.values)?;
    let suites = chosen.suite.map_or_else(|| SUITES.map(str::to_owned).to_vec(), |suite| vec![suite]);
    let sas = chosen.sas.map_or_else(|| SAS.to_vec(), |sas| vec![sas]);
    let cores = cores::count();
    let default = WORKERS.into_iter().filter(|workers| *workers <= cores).collect();
    let mut workers = if options.workers.is_empty() { default } else { options.workers.clone() };
    if !workers.contains(&1) {
        workers.insert(0, 1);
    }
    let mut rows = Vec::new();
    for suite in &suites {
        for &sas in &sas {
            let associations = &associations(&Choice { suite: Some(suite.clone()), sas: Some(sas), decrypt: false })?;
            for &size in &options.common.sizes {
                let mut one_mpps = None;
                for &workers in &workers {
                    let gateway = Gateway {
                        workers,
                        by_flow: true,
                        implementation,
                        devices,
                        ..Gateway::new(options, associations, size)
                    };
                    let (chunk_packets, report) = gateway.time(options.common.time)?;
                    let mut row = row(options, devices, size, chunk_packets, &report, None);
                    let one_mpps = *one_mpps.get_or_insert(row.mpps);
                    row.details = row
                        .details
                        .with("suite", associations.name())
                        .with("sas", u64::from(sas))
                        .with("times_one", row.mpps / one_mpps)
                        .with("exchanged", exchanged(&report));
                    progress(&format!("{suite} at {size}, {sas} SAs, {workers} workers: {:.2} Mpps", row.mpps));
                    rows.push(row);
                }
            }
        }
    }
    Ok(rows)
}

/// Returns the share of the packets that a worker passed to another worker.
fn exchanged(report: &Report) -> f64 {
    let counter = report.counters.iter().find(|(name, _)| name == "engine_exchanged");
    counter.map_or(0.0, |(_, packets)| *packets as f64 / report.conservation.received.max(1) as f64)
}

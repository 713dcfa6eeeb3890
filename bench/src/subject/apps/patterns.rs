//! `dpi` by packing (G-Opt, figure 12).
//!
//! The paper's baseline processes packets in arrival order, 8 at a time. It has two improvements:
//! loop interchange, which is `gopt` here, and batches of 8192 packets sorted by automaton and
//! length, which are bins here.

use godwit_device::is_synchronous;

use super::cases::{self, Case};
use super::setup::{BURSTS, Packing, ROUNDS, Settings, Setup, Target, proof, row};
use crate::error::Error;
use crate::load::traffic::Traffic;
use crate::progress::Progress;
use crate::run::options::Context;
use crate::run::row::Row;

/// Number of automata in the case with several automata. It is close to the maximum number of
/// functions in a configuration. The paper has 450.
const AUTOMATA: usize = 60;

/// Chunks of 8192 packets with at least one bin per automaton. The deadline lets chunks fill.
const LARGE: Packing = Packing { burst: 256, chunk: 8192, bins: 128, deadline_ns: 100_000_000, ..BURSTS };
/// The same chunks, with bins of packets of similar length, longest first.
const BY_LENGTH: Packing =
    Packing { bins: 1024, grouping: "variant+length", length_granularity: 256, sort: true, ..LARGE };
/// The baseline: 8 packets.
const FEW: Packing = Packing { burst: 8, bin: 8, chunk: 8, ..BURSTS };

/// Packings, with their row names for one automaton and for several. A bin always belongs to a
/// single automaton.
const PACKINGS: [([&str; 2], Packing); 4] = [
    (["8 in order", "8 in order"], FEW),
    (["256 in order", "256 by automaton"], BURSTS),
    (["8192 in order", "8192 by automaton"], LARGE),
    (["8192 by length", "8192 by automaton and length"], BY_LENGTH),
];

/// Measures one automaton with all patterns, and several automata that share the patterns.
pub(in crate::subject) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let settings = Settings::parse(context)?;
    let mut rows = Vec::new();
    for automata in [1, AUTOMATA] {
        let case = cases::dpi(&settings.request, automata)?;
        rows.extend(measure(&case, &settings, progress)?);
    }
    Ok(rows)
}

fn measure(case: &Case, settings: &Settings, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let automata = case.functions.len();
    let table_bytes: usize = case.functions.iter().map(|one| one.function.image().len()).sum();
    progress(&format!("{automata} automata, {} MiB", table_bytes >> 20));
    let expected = proof(case)?;
    let workers = settings.single_worker_count();
    let targets: Vec<Target> = settings.targets().into_iter().filter(|target| is_synchronous(&target.device)).collect();
    let mut variants = Vec::new();
    for (names, packing) in PACKINGS {
        for Target { device, implementation } in &targets {
            let setup = Setup { case, device, implementation, workers, packing };
            setup.verify(&expected)?;
            variants.push((names[usize::from(automata > 1)], setup, Vec::new()));
        }
    }
    for _ in 0..if settings.request.extent.brief { 1 } else { ROUNDS } {
        for (_, setup, reports) in &mut variants {
            reports.push(setup.measure(Traffic::new(&case.frames), settings)?);
        }
    }
    let mut first = None;
    let mut rows = Vec::new();
    for (name, setup, reports) in &mut variants {
        let mut row = row(case, setup.device, settings.request.size, setup.packing, reports);
        let ratio = row.mpps / *first.get_or_insert(row.mpps);
        row.implementation = format!("{automata} automata, {name}, {}", setup.implementation);
        row.details = row
            .details
            .with("automata", automata)
            .with("packing", *name)
            .with("requested_impl", setup.implementation)
            .with("ratio_to_first", ratio);
        progress(&format!("{}: {:.2} Gbps, {ratio:.2} x", row.implementation, row.gbps));
        rows.push(row);
    }
    Ok(rows)
}

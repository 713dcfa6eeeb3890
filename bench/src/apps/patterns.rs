//! `dpi` by how packets come to its automata: G-Opt's figure 12.
//!
//! The paper's baseline gives packets to the automata in order of arrival, 8 at a time. Its two changes are loop interchange,
//! which is `gopt` here, and batches of 8192 packets, sorted by automaton and by length, which is what bins do.

use godwit_device::cpu;

use super::cases::{self, Ask, Case};
use super::{BURSTS, Packing, Place, ROUNDS, Setup, places, proof, row};
use crate::traffic::Traffic;
use crate::{BenchOptions, Error, Progress, Row, Size};

/// Automata of the rows with several: nearly as many functions as a configuration may have. The paper has 450.
const AUTOMATA: usize = 60;

/// Chunks of 8192, with a bin for each automaton or more; no packet waits so long that a chunk goes before it is full.
const LARGE: Packing = Packing { burst: 256, chunk: 8192, bins: 128, deadline_ns: 100_000_000, ..BURSTS };
/// The same, bins of packets of similar length, longest first.
const BY_LENGTH: Packing =
    Packing { bins: 1024, grouping: "variant+length", length_granularity: 256, sort: true, ..LARGE };
const FEW: Packing = Packing { burst: 8, bin: 8, chunk: 8, ..BURSTS };

/// How packets are put together: what a row calls it, for one automaton and for several. Bins are always of one automaton.
const PACKINGS: [([&str; 2], Packing); 4] = [
    (["8 in order", "8 in order"], FEW),
    (["256 in order", "256 by automaton"], BURSTS),
    (["8192 in order", "8192 by automaton"], LARGE),
    (["8192 by length", "8192 by automaton and length"], BY_LENGTH),
];

/// The bench `patterns`.
pub(crate) fn patterns(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let ask = Ask { size: options.sizes.first().copied().unwrap_or(Size::Random), ..super::ask(options) };
    let mut rows = Vec::new();
    for automata in [1, AUTOMATA] {
        let case = cases::dpi(&ask, automata)?;
        rows.extend(measure(&case, &ask, options, progress)?);
    }
    Ok(rows)
}

fn measure(case: &Case, ask: &Ask, options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let automata = case.functions.len();
    let table_bytes: usize = case.functions.iter().map(|one| one.function.image().len()).sum();
    progress(&format!("{automata} automata, {} MiB", table_bytes >> 20));
    let expected = proof(case)?;
    let workers = options.workers.first().copied().unwrap_or(1);
    let places: Vec<Place> = places(options).into_iter().filter(|place| place.device == cpu::ID).collect();
    let mut variants = Vec::new();
    for (names, packing) in PACKINGS {
        for Place { device, implementation } in &places {
            let setup = Setup { case, device, implementation, workers, packing };
            setup.verify(&expected)?;
            variants.push((names[usize::from(automata > 1)], setup, Vec::new()));
        }
    }
    for _ in 0..if ask.extent.little { 1 } else { ROUNDS } {
        for (_, setup, reports) in &mut variants {
            reports.push(setup.measure(Traffic::new(&case.frames), ask, options)?);
        }
    }
    let mut first = None;
    let mut rows = Vec::new();
    for (name, setup, reports) in &mut variants {
        let mut row = row("patterns", case, setup.device, ask.size, setup.packing, reports);
        let ratio = row.mpps / *first.get_or_insert(row.mpps);
        row.implementation = format!("{automata} automata, {name}, {}", setup.implementation);
        row.note = format!("{ratio:.2} x the first row of these; {}", row.note);
        progress(&format!("{}: {:.2} Gbps, {ratio:.2} x", row.implementation, row.gbps));
        rows.push(row);
    }
    Ok(rows)
}

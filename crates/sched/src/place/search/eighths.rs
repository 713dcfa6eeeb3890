//! Divides the packets of functions between devices by trying all multiples of one eighth.

use super::super::model::{Machine, Prediction, Table, Totals};
use super::super::placement::{Choice, PlaceSet, Setting};
use super::super::policy::Score;
use super::{Found, Problem};

/// Number of equal parts into which the packets of a function are divided.
pub(super) const PARTS: u8 = 8;
/// Maximum number of functions for which the search tries all divisions of packets between devices.
const FUNCTIONS_MAX: usize = 8;

/// Scratch memory for trying all divisions of packets between devices.
#[derive(Debug, Default)]
pub(super) struct Eighths {
    /// For each function with packets, all possible divisions of its packets between devices.
    functions: Vec<Options>,
    picks: Vec<usize>,
}

/// Options for dividing the packets of one function between devices.
#[derive(Debug, Default)]
struct Options {
    function: usize,
    /// For each option and place, the number of eighths of the packets that the place receives. A
    /// place is a device in one mode. The index is `option * places + place`.
    parts: Vec<u8>,
    /// For each option, the used fraction of each resource. The index is
    /// `option * resources + resource`.
    rows: Vec<f64>,
    /// Devices that receive packets in each option.
    used: Vec<PlaceSet>,
}

/// Best division of packets between devices that was found so far.
struct Best {
    score: Score,
    prediction: Option<Prediction>,
    picks: Vec<usize>,
}

impl Eighths {
    /// Returns the number of ways to divide all packets between the devices in use. Returns
    /// `usize::MAX` if there are too many functions.
    pub(super) fn combinations(problem: &Problem<'_>, setting: Setting) -> usize {
        let total_pps = problem.load.pps();
        let active = (0..problem.machine.functions.len()).filter(|&index| !problem.load.is_idle(index, total_pps));
        let places = active.map(|index| problem.machine.allowed[index].common(setting.on).len());
        let counts: Vec<usize> = places.map(splits).collect();
        if counts.len() > FUNCTIONS_MAX {
            return usize::MAX;
        }
        counts.into_iter().fold(1, usize::saturating_mul)
    }

    /// Returns the division of packets between devices with the best score, if this score is better
    /// than `bound`.
    pub(super) fn best(&mut self, problem: &Problem<'_>, table: &Table, bound: Score) -> Option<Found> {
        let machine = problem.machine;
        self.prepare(machine, table);
        let mut best = Best { score: bound, prediction: None, picks: vec![0; self.functions.len()] };
        self.picks.clear();
        self.picks.resize(self.functions.len(), 0);
        self.descend(problem, table, 0, &Totals::new(machine.resources()), &mut best);
        let prediction = best.prediction?;
        let mut choice = idle_shares(machine, table.setting());
        for (options, &pick) in self.functions.iter().zip(&best.picks) {
            let places = machine.places.len();
            let parts = &options.parts[pick * places..][..places];
            let shares = &mut choice.shares[options.function * places..][..places];
            shares.iter_mut().zip(parts).for_each(|(share, part)| *share = f64::from(*part) / f64::from(PARTS));
        }
        // If the score needs no latencies, they have not been predicted yet.
        let prediction = if problem.goal.policy.needs_latency { prediction } else { table.predict(machine, &choice) };
        Some(Found { choice, prediction, score: best.score })
    }

    fn prepare(&mut self, machine: &Machine, table: &Table) {
        let places = machine.places.len();
        let active = (0..machine.functions.len()).filter(|&function| table.is_active(function));
        let active: Vec<usize> = active.collect();
        self.functions.resize_with(active.len(), Options::default);
        for (options, function) in self.functions.iter_mut().zip(active) {
            let allowed: Vec<usize> = machine.allowed[function].common(table.setting().on).iter().collect();
            options.function = function;
            options.parts.clear();
            let mut parts = vec![0; places];
            push_splits(&allowed, PARTS, &mut parts, &mut options.parts);
            options.rows.clear();
            options.used.clear();
            for parts in options.parts.chunks_exact(places) {
                let start = options.rows.len();
                options.rows.resize(start + machine.resources(), 0.0);
                let sums = &mut options.rows[start..];
                for &place in &allowed {
                    let share = f64::from(parts[place]) / f64::from(PARTS);
                    let row = table.row(function, place);
                    sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += share * value);
                }
                options.used.push(PlaceSet::of((0..places).filter(|&place| parts[place] > 0)));
            }
        }
    }

    fn descend(&mut self, problem: &Problem<'_>, table: &Table, depth: usize, before: &Totals, best: &mut Best) {
        let resources = problem.machine.resources();
        if depth == self.functions.len() {
            self.finish(problem, table, *before, best);
            return;
        }
        let mut totals = Totals::new(resources);
        for option in 0..self.functions[depth].used.len() {
            totals.set_sum(before, &self.functions[depth].rows[option * resources..][..resources]);
            self.picks[depth] = option;
            self.descend(problem, table, depth + 1, &totals, best);
        }
    }

    #[inline]
    fn finish(&self, problem: &Problem<'_>, table: &Table, mut totals: Totals, best: &mut Best) {
        let (machine, goal) = (problem.machine, problem.goal);
        let resources = machine.resources();
        let row = |function: usize| -> &[f64] {
            let active = self.functions.iter().position(|options| options.function == function);
            active.map_or(&[0.0; super::super::model::RESOURCES_MAX], |active| {
                &self.functions[active].rows[self.picks[active] * resources..][..resources]
            })
        };
        totals.interfere(machine, table.setting(), row);
        let mut prediction = totals.assess(machine, table);
        let mut score = goal.score(&prediction);
        if !score.is_better(&best.score) {
            return;
        }
        if goal.policy.needs_latency {
            // The score assumes a latency of 0, so the real score is not better.
            let used = self.functions.iter().zip(&self.picks);
            let used = used.map(|(options, &pick)| (options.function, options.used[pick]));
            prediction.set_latency(table, &totals, used);
            score = goal.score(&prediction);
            if !score.is_better(&best.score) {
                return;
            }
        }
        best.score = score;
        best.prediction = Some(prediction);
        best.picks.copy_from_slice(&self.picks);
    }
}

/// Returns a placement with each function on the first device in use that can run it. Functions
/// without packets get this placement.
pub(super) fn idle_shares(machine: &Machine, setting: Setting) -> Choice {
    let places = machine.places.len();
    let mut shares = vec![0.0; machine.functions.len() * places];
    for (function, allowed) in machine.allowed.iter().enumerate() {
        if let Some(place) = allowed.common(setting.on).iter().next() {
            shares[function * places + place] = 1.0;
        }
    }
    Choice { setting, shares }
}

/// Returns in how many ways `places` devices can share a function's packets in steps of one eighth.
fn splits(places: usize) -> usize {
    // The result is a binomial coefficient: `PARTS + places - 1` over `places - 1`.
    let parts = usize::from(PARTS);
    (1..places).fold(1, |count, place| count * (parts + place) / place)
}

/// Appends to `out` all ways to divide `left` eighths of a function's packets between the devices
/// in `places`.
fn push_splits(places: &[usize], left: u8, parts: &mut [u8], out: &mut Vec<u8>) {
    let Some((&place, rest)) = places.split_first() else { return };
    if rest.is_empty() {
        parts[place] = left;
        out.extend_from_slice(parts);
    } else {
        for part in (0..=left).rev() {
            parts[place] = part;
            push_splits(rest, left - part, parts, out);
        }
    }
    parts[place] = 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_counted_and_complete() {
        for places in 1..5 {
            let list: Vec<usize> = (0..places).collect();
            let mut out = Vec::new();
            push_splits(&list, PARTS, &mut vec![0; places], &mut out);
            let mut all: Vec<&[u8]> = out.chunks_exact(places).collect();
            assert_eq!(all.len(), splits(places));
            assert!(all.iter().all(|parts| parts.iter().sum::<u8>() == PARTS));
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), splits(places));
        }
    }
}

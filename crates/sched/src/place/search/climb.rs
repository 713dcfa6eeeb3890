//! Improves the division of packets between devices in small steps. Policies use this search if
//! their score is not linear in the packet fractions.

use super::super::model::Table;
use super::super::placement::Choice;
use super::eighths::{PARTS, idle_shares};
use super::{Found, Problem, linear};

/// Maximum number of improvements from one starting point.
const STEPS_MAX: usize = 200;

/// Returns the best division of packets between devices that stepwise improvement finds. Each step
/// moves packets of one function to another device. The search starts from the current division,
/// from the division with the largest capacity, and from each function's first device.
pub(super) fn shares(problem: &Problem<'_>, table: &Table, near: Option<&Choice>) -> Found {
    let machine = problem.machine;
    let first = idle_shares(machine, table.setting());
    let capacity = linear::solve(problem, table);
    let near = near.map(|near| Choice { setting: table.setting(), shares: near.shares.clone() });
    let starts = near.into_iter().chain(capacity).chain(std::iter::once(first.clone()));
    let ends = starts.map(|start| climb(problem, table, round(problem, start)));
    let best = ends.reduce(|one, two| if two.score.is_better(&one.score) { two } else { one });
    best.unwrap_or_else(|| finish(problem, table, first))
}

/// Predicts the effect of a placement and computes its score.
pub(super) fn finish(problem: &Problem<'_>, table: &Table, choice: Choice) -> Found {
    let prediction = table.predict(problem.machine, &choice);
    let score = problem.goal.score(&prediction);
    Found { choice, prediction, score }
}

fn climb(problem: &Problem<'_>, table: &Table, start: Choice) -> Found {
    let machine = problem.machine;
    let places = machine.places.len();
    let mut best = finish(problem, table, start);
    for _ in 0..STEPS_MAX {
        let mut improved: Option<Found> = None;
        for function in (0..machine.functions.len()).filter(|&function| table.is_active(function)) {
            let allowed = machine.allowed[function].common(table.setting().on);
            for from in allowed.iter().filter(|&from| best.choice.shares[function * places + from] > 0.0) {
                for to in allowed.iter().filter(|&to| to != from) {
                    let all = best.choice.shares[function * places + from];
                    for part in [all.min(1.0 / f64::from(PARTS)), all.min(0.5), all] {
                        let mut choice = best.choice.clone();
                        choice.shares[function * places + from] -= part;
                        choice.shares[function * places + to] += part;
                        let found = finish(problem, table, choice);
                        let bound = improved.as_ref().map_or(&best.score, |improved| &improved.score);
                        if found.score.is_better(bound) {
                            improved = Some(found);
                        }
                    }
                }
            }
        }
        match improved {
            Some(found) => best = found,
            None => break,
        }
    }
    best
}

/// Rounds the fractions of each function's packets to eighths.
fn round(problem: &Problem<'_>, mut choice: Choice) -> Choice {
    let places = problem.machine.places.len();
    for shares in choice.shares.chunks_exact_mut(places) {
        shares.iter_mut().for_each(|share| *share = (*share * f64::from(PARTS)).round() / f64::from(PARTS));
        let total: f64 = shares.iter().sum();
        // Rounding can change the sum by a few eighths, so the largest fraction absorbs the
        // difference.
        if let Some(largest) = shares.iter_mut().max_by(|one, two| one.total_cmp(two)) {
            *largest += 1.0 - total;
        }
    }
    choice
}

//! Policy `latency-bound --under T`: chooses the placement with the lowest power that can process
//! the load within a latency bound.

use super::{Limits, Policy, Score, Splits, Unit, carries};
use crate::place::Prediction;

/// Fraction of the latency bound that a predicted latency may reach, because predictions have
/// errors.
const MARGIN: f64 = 0.8;

pub(super) static POLICY: Policy = Policy {
    name: "latency-bound",
    summary: "the least power that keeps the 99th percentile of the latency under a bound",
    unit: Some(Unit::Time),
    splits: Splits::Eighths,
    needs_latency: true,
    shrinks_chunks: true,
    folds_workers: true,
    holds: false,
    score,
};

fn score(prediction: &Prediction, limits: &Limits) -> Score {
    let late = (prediction.p99_ns / (MARGIN * limits.p99_ns) - 1.0).max(0.0);
    let overload = carries(prediction, limits);
    // Any overload is worse than any latency, because queues grow without limit during an overload.
    let shortfall = if overload > 0.0 { 1.0 + overload } else { late / (1.0 + late) };
    let cost = prediction.watts.unwrap_or(prediction.awake);
    let tie = if prediction.watts.is_some() { prediction.awake } else { prediction.p99_ns };
    Score { shortfall, cost, tie }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_prefers, prediction};
    use super::*;
    use crate::place::Goal;

    #[test]
    fn prefers_to_carry_then_the_bound_then_less_power() {
        let goal = Goal { policy: &POLICY, limits: Limits { p99_ns: 150e3, ..Limits::default() } };
        let late = Prediction { p99_ns: 400e3, ..prediction() };
        assert_prefers(&goal, late, Prediction { load: 0.9, ..prediction() });
        assert_prefers(&goal, prediction(), Prediction { watts: Some(100.0), ..late });
        assert_prefers(&goal, Prediction { p99_ns: 300e3, ..prediction() }, late);
        assert_prefers(&goal, Prediction { p99_ns: 115e3, watts: Some(150.0), ..prediction() }, prediction());
        assert_prefers(&goal, Prediction { awake: 4.0, ..prediction() }, prediction());
        let unmetered = Prediction { watts: None, ..prediction() };
        assert_prefers(&goal, Prediction { awake: 4.0, ..unmetered }, unmetered);
        assert_prefers(&goal, Prediction { p99_ns: 90e3, ..unmetered }, unmetered);
    }
}

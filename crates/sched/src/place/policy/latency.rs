//! Policy `latency`: of the placements that can process the load, chooses the one with the lowest
//! 99th percentile of the latency.

use super::{Limits, Policy, Score, Splits, carries};
use crate::place::Prediction;

pub(super) static POLICY: Policy = Policy {
    name: "latency",
    summary: "the lowest 99th percentile of the latency that carries the load",
    unit: None,
    splits: Splits::Eighths,
    needs_latency: true,
    shrinks_chunks: true,
    folds_workers: false,
    holds: false,
    score,
};

fn score(prediction: &Prediction, limits: &Limits) -> Score {
    let tie = prediction.watts.unwrap_or(prediction.cores);
    Score { shortfall: carries(prediction, limits), cost: prediction.p99_ns, tie }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_prefers, prediction};
    use super::*;
    use crate::place::Goal;

    #[test]
    fn prefers_to_carry_then_a_low_percentile_then_less_power() {
        let goal = Goal { policy: &POLICY, limits: Limits::default() };
        assert_prefers(&goal, prediction(), Prediction { load: 0.9, p99_ns: 1e3, ..prediction() });
        assert_prefers(&goal, Prediction { load: 0.8, p99_ns: 90e3, watts: Some(900.0), ..prediction() }, prediction());
        assert_prefers(&goal, Prediction { watts: Some(150.0), ..prediction() }, prediction());
    }
}

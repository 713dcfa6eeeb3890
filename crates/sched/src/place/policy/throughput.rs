//! Policy `throughput`: maximises the load that a placement can process, for the current packet
//! mix.

use super::{Limits, Policy, Score, Splits};
use crate::place::Prediction;

pub(super) static POLICY: Policy = Policy {
    name: "throughput",
    summary: "the largest rate that the machine can carry with the present mix of packets",
    unit: None,
    splits: Splits::Capacity,
    needs_latency: false,
    shrinks_chunks: false,
    folds_workers: false,
    holds: false,
    score,
};

fn score(prediction: &Prediction, _limits: &Limits) -> Score {
    // Without load, the headroom is infinite and the cost is 0.
    Score { shortfall: 0.0, cost: 1.0 / prediction.headroom, tie: prediction.watts.unwrap_or(prediction.cores) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_prefers, prediction};
    use super::*;
    use crate::place::Goal;

    #[test]
    fn prefers_headroom_then_less_power() {
        let goal = Goal { policy: &POLICY, limits: Limits::default() };
        assert_prefers(&goal, Prediction { headroom: 3.0, watts: Some(900.0), ..prediction() }, prediction());
        assert_prefers(&goal, Prediction { watts: Some(150.0), ..prediction() }, prediction());
        let unmetered = Prediction { watts: None, ..prediction() };
        assert_prefers(&goal, Prediction { cores: 2.0, ..unmetered }, unmetered);
    }
}

//! Policy `energy`: of the placements that can process the load, chooses the one with the lowest
//! power.

use super::{Limits, Policy, Score, Splits, carries};
use crate::place::Prediction;

pub(super) static POLICY: Policy = Policy {
    name: "energy",
    summary: "the least power, or without a meter the fewest awake cores, that carries the load",
    unit: None,
    splits: Splits::Power,
    needs_latency: false,
    shrinks_chunks: false,
    folds_workers: true,
    holds: false,
    score,
};

fn score(prediction: &Prediction, limits: &Limits) -> Score {
    let cost = prediction.watts.unwrap_or(prediction.awake);
    Score { shortfall: carries(prediction, limits), cost, tie: prediction.awake }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_prefers, prediction};
    use super::*;
    use crate::place::Goal;

    #[test]
    fn prefers_to_carry_then_less_power_then_fewer_cores() {
        let goal = Goal { policy: &POLICY, limits: Limits::default() };
        assert_prefers(&goal, prediction(), Prediction { load: 0.9, watts: Some(10.0), ..prediction() });
        assert_prefers(&goal, Prediction { load: 0.8, watts: Some(190.0), awake: 16.0, ..prediction() }, prediction());
        assert_prefers(&goal, Prediction { awake: 4.0, ..prediction() }, prediction());
        let unmetered = Prediction { watts: None, ..prediction() };
        assert_prefers(&goal, Prediction { awake: 4.0, ..unmetered }, unmetered);
    }
}

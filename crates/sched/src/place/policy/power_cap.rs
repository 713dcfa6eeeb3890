//! Policy `power-cap --under W`: maximises the packet rate within a power cap.

use super::{Limits, Policy, Score, Splits, Unit};
use crate::place::Prediction;

/// Fraction of the power cap that a predicted power may reach, because predictions have errors.
const MARGIN: f64 = 0.97;

pub(super) static POLICY: Policy = Policy {
    name: "power-cap",
    summary: "the largest rate that keeps the power of all measured devices under a cap",
    unit: Some(Unit::Watts),
    splits: Splits::Capacity,
    needs_latency: false,
    shrinks_chunks: false,
    folds_workers: true,
    holds: false,
    score,
};

fn score(prediction: &Prediction, limits: &Limits) -> Score {
    let watts = prediction.watts.unwrap_or(0.0);
    let shortfall = (watts / (MARGIN * limits.watts) - 1.0).max(0.0);
    Score { shortfall, cost: 1.0 / prediction.headroom, tie: watts }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_prefers, prediction};
    use super::*;
    use crate::place::Goal;

    #[test]
    fn prefers_the_cap_then_headroom_then_less_power() {
        let goal = Goal { policy: &POLICY, limits: Limits { watts: 250.0, ..Limits::default() } };
        assert_prefers(&goal, prediction(), Prediction { headroom: 5.0, watts: Some(260.0), ..prediction() });
        assert_prefers(&goal, Prediction { headroom: 3.0, watts: Some(240.0), ..prediction() }, prediction());
        assert_prefers(&goal, Prediction { watts: Some(150.0), ..prediction() }, prediction());
        let above = Prediction { watts: Some(300.0), ..prediction() };
        assert_prefers(&goal, above, Prediction { watts: Some(400.0), ..above });
    }
}

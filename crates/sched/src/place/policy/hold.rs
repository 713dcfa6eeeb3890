//! Policy `hold`: keeps the current placement, or uses the one that the operator pins.

use super::{Limits, Policy, Score, Splits};
use crate::place::Prediction;

pub(super) static POLICY: Policy = Policy {
    name: "hold",
    summary: "the present placement, or the one that follows the word",
    unit: None,
    splits: Splits::Capacity,
    needs_latency: false,
    shrinks_chunks: false,
    folds_workers: false,
    holds: true,
    score,
};

fn score(_prediction: &Prediction, _limits: &Limits) -> Score {
    Score { shortfall: 0.0, cost: 0.0, tie: 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::tests::prediction;
    use super::*;
    use crate::place::Goal;

    #[test]
    fn has_no_preference() {
        let goal = Goal { policy: &POLICY, limits: Limits::default() };
        let other = Prediction { headroom: 0.1, load: 10.0, p99_ns: 1e9, watts: Some(1e3), ..prediction() };
        assert!(!goal.score(&other).is_better(&goal.score(&prediction())));
        assert!(!goal.score(&prediction()).is_better(&goal.score(&other)));
    }
}

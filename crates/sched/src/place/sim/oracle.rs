//! Finds the best placement for the current load from the true costs of functions on devices.
//! Placement changes cost nothing.

use super::super::load::Load;
use super::super::model::{Corrections, Machine, Prediction};
use super::super::placement::PlaceSet;
use super::super::policy::Goal;
use super::super::search::{Grid, Problem, Search};

/// Finds the best placement for one machine from its true costs.
#[derive(Debug)]
pub struct Oracle {
    search: Search,
    last: Option<(Load, PlaceSet, Prediction)>,
}

impl Oracle {
    /// Creates an oracle, which knows the true costs of functions on devices. It chooses from the
    /// machine settings that `grid` describes.
    pub fn new(grid: Grid) -> Self {
        Self { search: Search::new(grid), last: None }
    }

    /// Returns the effect of the best placement, predicted from the true costs. Returns `None` if
    /// the allowed devices cannot run all functions.
    pub fn best(
        &mut self,
        machine: &Machine,
        load: &Load,
        truth: &Corrections,
        goal: &Goal,
        excluded: PlaceSet,
    ) -> Option<Prediction> {
        if let Some((last, places, prediction)) = &self.last
            && (last, *places) == (load, excluded)
        {
            return Some(*prediction);
        }
        let problem = Problem { machine, load, corrections: truth, goal, excluded };
        let found = self.search.best_of_bucket(&problem, None)?;
        let prediction = machine.predict(load, &found.choice, truth);
        self.last = Some((load.clone(), excluded, prediction));
        Some(prediction)
    }
}

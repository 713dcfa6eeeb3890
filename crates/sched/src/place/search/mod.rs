//! Searches for the best placement for a load.
//!
//! A placement consists of a machine [setting](Setting) and a division of each function's packets
//! between the devices. A setting contains the devices, the submission size and the workers. If
//! there are few settings, the search tries all of them. Otherwise, it moves step by step from one
//! setting to a better one.
//!
//! Within a setting, the module `eighths` tries all divisions in multiples of one eighth, if there
//! are few combinations. Otherwise, a linear program (`linear`) or single steps (`climb`) find the
//! division. Results are cached for each load bucket, which is a range of similar loads.

mod climb;
mod eighths;
mod grid;
mod linear;

use std::collections::HashMap;

use super::load::{Load, LoadKey};
use super::model::{Corrections, Machine, Prediction, Table};
use super::placement::{Choice, PlaceSet, Setting};
use super::policy::{Goal, Score, Splits};
use eighths::Eighths;
pub use grid::Grid;

/// Maximum number of packet divisions between devices that are tried for one machine setting.
const COMBINATIONS_MAX: usize = 7_000;
/// Maximum number of packet divisions that are tried for all machine settings together. If there
/// are more, the search moves step by step from one setting to a better one.
const WORK_MAX: usize = 1_000_000;
/// Maximum number of machine settings that a step-by-step search tries from one start.
const CLIMB_SETTINGS: usize = 40;
/// Number of best machine settings for which a linear program improves the packet division.
const REFINED: usize = 3;
/// Maximum number of cached results. The cache is emptied when it is full.
const CACHE_MAX: usize = 4096;
/// Ratio between two neighbouring ranges of correction factors. The search caches one result for
/// all factors in a range.
const CORRECTION_RATIO: f64 = 1.04;

/// Best placement that was found for a load.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) choice: Choice,
    pub(super) prediction: Prediction,
    pub(super) score: Score,
}

/// Search for the best placement, with scratch memory and a result cache. Each machine needs its
/// own search.
#[derive(Debug, Default)]
pub struct Search {
    grid: Grid,
    table: Table,
    eighths: Eighths,
    cache: HashMap<LoadKey, Option<Found>>,
    key: LoadKey,
}

/// All inputs of a search for the best placement.
#[derive(Clone, Copy)]
pub(super) struct Problem<'a> {
    pub(super) machine: &'a Machine,
    pub(super) load: &'a Load,
    pub(super) corrections: &'a Corrections,
    pub(super) goal: &'a Goal,
    /// Devices that must not be used, for example because they are lost.
    pub(super) excluded: PlaceSet,
}

impl Search {
    /// Creates a search over the machine settings that `grid` describes.
    pub fn new(grid: Grid) -> Self {
        Self { grid, ..Self::default() }
    }

    /// Forgets all cached results. This is necessary when the machine or the goal's limits change.
    pub(super) fn clear(&mut self) {
        self.cache.clear();
    }

    /// Writes the cache key of a search problem to `key`. Problems with equal keys have the same
    /// result.
    pub(super) fn write_key(problem: &Problem<'_>, key: &mut LoadKey) {
        let Problem { load, corrections, goal, excluded, .. } = problem;
        load.write_key(key);
        key.push(goal.policy.index());
        key.extend([excluded.0 as i16, (excluded.0 >> 16) as i16]);
        let step = |value: &f64| (value.ln() / CORRECTION_RATIO.ln()).round() as i16;
        key.extend(corrections.cost.iter().map(step));
        key.extend(corrections.latency.iter().map(step));
    }

    /// Returns the best placement for loads similar to that of the problem, from the cache if
    /// possible. Returns `None` if the allowed devices cannot run all functions.
    pub(super) fn best_of_bucket(&mut self, problem: &Problem<'_>, near: Option<&Choice>) -> Option<Found> {
        let mut key = std::mem::take(&mut self.key);
        Self::write_key(problem, &mut key);
        let known = self.cache.get(&key);
        if let Some(found) = known {
            let found = found.clone();
            self.key = key;
            return found;
        }
        let load = problem.load.bucket_top();
        let found = self.best(&Problem { load: &load, ..*problem }, near);
        if self.cache.len() >= CACHE_MAX {
            self.cache.clear();
        }
        self.cache.insert(key.clone(), found.clone());
        self.key = key;
        found
    }

    /// Returns the best placement for a load. A step-by-step search starts from the current
    /// placement `near`.
    pub(super) fn best(&mut self, problem: &Problem<'_>, near: Option<&Choice>) -> Option<Found> {
        let settings = self.grid.all(problem);
        let work: usize = settings.iter().flatten().map(|setting| Eighths::combinations(problem, *setting)).sum();
        match settings {
            Some(settings) if work <= WORK_MAX => self.best_of(problem, &settings, near),
            _ => self.climb_settings(problem, near),
        }
    }

    /// Tries all machine settings, and improves the best settings further.
    fn best_of(&mut self, problem: &Problem<'_>, settings: &[Setting], near: Option<&Choice>) -> Option<Found> {
        let mut best: Vec<Found> = Vec::with_capacity(REFINED + 1);
        for &setting in settings {
            let bound = if best.len() < REFINED { Score::WORST } else { best[REFINED - 1].score };
            if let Some(found) = self.solve(problem, setting, near, bound) {
                let at = best.partition_point(|other| !found.score.is_better(&other.score));
                best.insert(at, found);
                best.truncate(REFINED);
            }
        }
        let linear = matches!(problem.goal.policy.splits, Splits::Capacity | Splits::Power);
        if linear {
            for found in &mut best {
                self.refine(problem, found);
            }
        }
        best.into_iter().reduce(|one, two| if two.score.is_better(&one.score) { two } else { one })
    }

    /// Returns the best division of packets between devices for one setting, if its score is better
    /// than `bound`.
    fn solve(&mut self, problem: &Problem<'_>, setting: Setting, near: Option<&Choice>, bound: Score) -> Option<Found> {
        self.table.fill(problem.machine, problem.load, problem.corrections, setting);
        if Eighths::combinations(problem, setting) <= COMBINATIONS_MAX {
            return self.eighths.best(problem, &self.table, bound);
        }
        let near = near.filter(|near| near.setting.on == setting.on);
        let found = match problem.goal.policy.splits {
            Splits::Capacity | Splits::Power => {
                let choice = linear::solve(problem, &self.table)?;
                climb::finish(problem, &self.table, choice)
            }
            Splits::Eighths => climb::shares(problem, &self.table, near),
        };
        found.score.is_better(&bound).then_some(found)
    }

    /// Divides the packets between devices with a linear program. Replaces `found` if this division
    /// is better.
    fn refine(&mut self, problem: &Problem<'_>, found: &mut Found) {
        self.table.fill(problem.machine, problem.load, problem.corrections, found.choice.setting);
        let Some(choice) = linear::solve(problem, &self.table) else { return };
        let refined = climb::finish(problem, &self.table, choice);
        if refined.score.is_better(&found.score) {
            *found = refined;
        }
    }

    /// Moves from one machine setting to a better one until no better one is found. Starts from the
    /// current setting, from all devices, and from the CPU alone.
    fn climb_settings(&mut self, problem: &Problem<'_>, near: Option<&Choice>) -> Option<Found> {
        let mut best: Option<Found> = None;
        let mut tried: Vec<Setting> = Vec::new();
        for start in self.grid.starts(problem, near.map(|near| near.setting)) {
            let mut round = vec![start];
            let limit = tried.len() + CLIMB_SETTINGS;
            while tried.len() < limit {
                let mut improved = None;
                for setting in std::mem::take(&mut round) {
                    if tried.contains(&setting) || tried.len() >= limit {
                        continue;
                    }
                    tried.push(setting);
                    let bound = best.as_ref().map_or(Score::WORST, |best| best.score);
                    if let Some(found) = self.solve(problem, setting, near, bound) {
                        improved = Some(setting);
                        best = Some(found);
                    }
                }
                let Some(setting) = improved else { break };
                round = self.grid.neighbours(problem, setting);
            }
        }
        let mut best = best?;
        if problem.goal.policy.splits != Splits::Eighths {
            self.refine(problem, &mut best);
        }
        Some(best)
    }
}

/// Returns a placement for a machine without load. Every function is on the first device that can
/// run it.
pub(super) fn idle_choice(machine: &Machine) -> Choice {
    let on = PlaceSet::of(machine.allowed.iter().filter_map(|allowed| allowed.iter().next()));
    eighths::idle_shares(machine, Setting { on, workers: machine.workers, feeders: 0, level: 0 })
}

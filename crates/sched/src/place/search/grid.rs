//! Lists the machine settings that the search tries. A setting consists of the devices in use, the
//! submission size and the worker roles.

use super::super::placement::{PlaceSet, Setting};
use super::Problem;

/// Maximum number of machine settings of which all are tried.
const SETTINGS_MAX: usize = 2_000;
/// Number of equal parts into which the workers are divided. The workers of some parts may only
/// feed devices.
const QUARTERS: u16 = 4;

/// Submission sizes, worker numbers and worker roles that the search tries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Possible reductions of the submission size. The value `n` divides the configured size by 4
    /// to the power of `n`.
    pub levels: Vec<u8>,
    /// Possible numbers of awake workers that only submit packets to devices. The value `n` means
    /// `n` quarters of all awake workers.
    pub feeder_quarters: Vec<u16>,
    /// Possible reductions of the number of awake workers. The value `n` divides the number of all
    /// workers by 2 to the power of `n`.
    pub worker_halvings: Vec<u8>,
}

impl Default for Grid {
    fn default() -> Self {
        Self { levels: vec![0, 1, 2, 3], feeder_quarters: vec![0, 1, 2, 3], worker_halvings: vec![0, 1, 2, 3] }
    }
}

impl Grid {
    /// Returns all machine settings for a search problem. Returns `None` if there are too many.
    pub(super) fn all(&self, problem: &Problem<'_>) -> Option<Vec<Setting>> {
        let machine = problem.machine;
        let mut sets = vec![PlaceSet::default()];
        // Each device is either off, or on in exactly one of its modes.
        for device in std::iter::once(None).chain((0..machine.devices.len()).map(Some)) {
            let places = (0..machine.places.len()).filter(|&place| machine.places[place].device == device);
            let places: Vec<usize> = places.filter(|&place| !problem.excluded.contains(place)).collect();
            let with = |set: &PlaceSet| places.iter().map(|&place| set.with(PlaceSet::of([place]))).collect::<Vec<_>>();
            let more: Vec<PlaceSet> = sets.iter().flat_map(with).collect();
            sets.extend(more);
            if sets.len() > SETTINGS_MAX {
                return None;
            }
        }
        sets.retain(|set| runs_all(problem, *set));
        let settings: Vec<Setting> = sets.iter().flat_map(|set| self.of_set(problem, *set)).collect();
        (settings.len() <= SETTINGS_MAX).then_some(settings)
    }

    /// Returns the settings that use exactly the devices in `on`.
    fn of_set(&self, problem: &Problem<'_>, on: PlaceSet) -> Vec<Setting> {
        let policy = problem.goal.policy;
        let one = |values: &[u8]| values[..values.len().min(1)].to_vec();
        let has_devices = !on.without(PlaceSet::of([0])).is_empty();
        let levels = if policy.shrinks_chunks && has_devices { self.levels.clone() } else { one(&self.levels) };
        let halvings = if policy.folds_workers { self.worker_halvings.clone() } else { one(&self.worker_halvings) };
        let mut settings = Vec::new();
        for halving in halvings {
            for &quarters in &self.feeder_quarters {
                for &level in &levels {
                    let setting = setting(problem, on, level, halving, quarters);
                    if !settings.contains(&setting) {
                        settings.push(setting);
                    }
                }
            }
        }
        settings
    }

    /// Returns the machine settings from which a step-by-step search starts.
    pub(super) fn starts(&self, problem: &Problem<'_>, current: Option<Setting>) -> Vec<Setting> {
        let machine = problem.machine;
        let mut all = PlaceSet::default();
        for place in (0..machine.places.len()).filter(|place| !problem.excluded.contains(*place)) {
            let device = machine.places[place].device;
            if !all.iter().any(|other| machine.places[other].device == device) {
                all = all.with(PlaceSet::of([place]));
            }
        }
        let sets = [all, PlaceSet::of([0])].into_iter().filter(|set| runs_all(problem, *set));
        let fresh = sets.map(|set| setting(problem, set, 0, 0, 0));
        let current =
            current.filter(|current| current.on.common(problem.excluded).is_empty() && runs_all(problem, current.on));
        current.into_iter().chain(fresh).collect()
    }

    /// Returns the settings that differ from `from` either in the devices, or in the submission
    /// size and the workers.
    pub(super) fn neighbours(&self, problem: &Problem<'_>, from: Setting) -> Vec<Setting> {
        let machine = problem.machine;
        let mut settings = Vec::new();
        for place in (0..machine.places.len()).filter(|place| !problem.excluded.contains(*place)) {
            let own = PlaceSet::of([place]);
            let same_device =
                (0..machine.places.len()).filter(|&other| machine.places[other].device == machine.places[place].device);
            let on = if from.on.contains(place) {
                from.on.without(own)
            } else {
                from.on.without(PlaceSet::of(same_device)).with(own)
            };
            if runs_all(problem, on) {
                settings.push(Setting { on, feeders: if on.contains(0) { from.feeders } else { 0 }, ..from });
            }
        }
        settings.extend(self.of_set(problem, from.on));
        settings.retain(|setting| *setting != from);
        settings
    }
}

/// Returns whether the devices in `on` can run every function.
fn runs_all(problem: &Problem<'_>, on: PlaceSet) -> bool {
    problem.machine.allowed.iter().all(|allowed| !allowed.common(on).is_empty())
}

fn setting(problem: &Problem<'_>, on: PlaceSet, level: u8, halving: u8, quarters: u16) -> Setting {
    let workers = (problem.machine.workers >> halving).max(1);
    // Workers that only feed devices are useful only if the CPU and another device are in use. At
    // least one worker must run kernels.
    let has_both = on.contains(0) && on.len() > 1 && workers > 1;
    let feeders = if has_both && quarters > 0 { (workers * quarters / QUARTERS).clamp(1, workers - 1) } else { 0 };
    let level = if on.without(PlaceSet::of([0])).is_empty() { 0 } else { level };
    Setting { on, workers, feeders, level }
}

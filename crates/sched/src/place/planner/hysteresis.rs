//! Decides when the planner changes to a better placement, and prevents changes that are soon
//! undone.

use super::super::load::Load;
use super::super::placement::Choice;

/// Number of consecutive planner runs in which another placement must be better before it is
/// adopted.
const LOOKS: u32 = 3;
/// Minimum time from a placement change to the next change that is not urgent, in nanoseconds.
const DWELL_NS: u64 = 300_000_000;
/// Minimum time between two placement changes if the load has also changed, in nanoseconds.
const DWELL_CHANGED_NS: u64 = 50_000_000;
/// Relative load change above which [`DWELL_CHANGED_NS`] applies.
const CHANGED_LOAD: f64 = 0.25;
/// Upper limit of the required time between two placement changes, in nanoseconds.
const DWELL_MAX_NS: u64 = 5_000_000_000;
/// Growth factor of the required time between placement changes, applied when a change is undone.
const DWELL_GROWTH: u64 = 4;
/// Time without an undone change after which [`DWELL_NS`] applies again, in nanoseconds.
const FORGIVE_NS: u64 = 10_000_000_000;
/// A return to the earlier placement counts as undoing a change only if the load has changed by
/// less than this fraction.
const SAME_LOAD: f64 = 0.1;
/// Time for which a device must be unnecessary before it sleeps, as a multiple of its wake-up time.
const QUIET_WAKES: f64 = 10.0;

/// Reason to wait before a change to a better placement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wait {
    /// The best placement must stay the best for this number of further planner runs.
    Looks(u32),
    /// The last placement change is too recent. The value is the time until the next change, in
    /// nanoseconds.
    Dwell(u64),
    /// The energy that sleep would have saved is less than the energy to wake the devices again.
    /// The value is the difference, in joules.
    Unearned(f64),
}

/// State of the last placement change and of the next one.
#[derive(Debug)]
pub(super) struct Hysteresis {
    streak: u32,
    better_since_ns: u64,
    moved_ns: u64,
    dwell_ns: u64,
    /// Time when a placement change was last undone, in nanoseconds.
    undone_ns: Option<u64>,
    /// Placement before the last change, and the load at that time.
    before: Option<(Choice, Load)>,
}

/// Cost of a placement change after which devices sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SleepCost {
    /// Energy for waking the devices again, in joules.
    pub(super) joules: f64,
    /// Longest wake-up time of the devices that would sleep, in nanoseconds.
    pub(super) wake_ns: f64,
    /// Power that the change saves, in watts.
    pub(super) saved_watts: f64,
}

impl Hysteresis {
    pub(super) fn new() -> Self {
        Self { streak: 0, better_since_ns: 0, moved_ns: 0, dwell_ns: DWELL_NS, undone_ns: None, before: None }
    }

    /// Records that no better placement exists.
    pub(super) fn no_gain(&mut self) {
        self.streak = 0;
    }

    /// Records that a better placement has a sufficient gain. Returns the reason to wait, or `None`
    /// if the placement must change now.
    pub(super) fn gain(&mut self, now_ns: u64, load: &Load, cost: SleepCost) -> Option<Wait> {
        if self.streak == 0 {
            self.better_since_ns = now_ns;
        }
        self.streak += 1;
        let has_changed = self.before.as_ref().is_some_and(|(_, at)| at.distance(load) > CHANGED_LOAD);
        let is_quick = has_changed && self.undone_ns.is_none();
        if self.streak < LOOKS && !is_quick {
            return Some(Wait::Looks(LOOKS - self.streak));
        }
        let rested_ns = now_ns.saturating_sub(self.moved_ns);
        let dwell_ns = if is_quick { DWELL_CHANGED_NS } else { self.dwell_ns };
        if rested_ns < dwell_ns {
            return Some(Wait::Dwell(dwell_ns - rested_ns));
        }
        let better_ns = now_ns.saturating_sub(self.better_since_ns);
        let quiet_ns = (QUIET_WAKES * cost.wake_ns) as u64;
        if better_ns < quiet_ns {
            return Some(Wait::Dwell(quiet_ns - better_ns));
        }
        // The wait ends when the energy that sleep would have saved equals the energy of a wake-up.
        // It costs at most twice the optimum (ski rental problem).
        let wasted = cost.saved_watts * better_ns as f64 * 1e-9;
        (cost.joules > 0.0 && wasted < cost.joules).then_some(Wait::Unearned(cost.joules - wasted))
    }

    /// Records that the placement changed from `from` to `to` under `load`.
    pub(super) fn moved(&mut self, now_ns: u64, from: &Choice, to: &Choice, load: &Load) {
        let undoes =
            self.before.as_ref().is_some_and(|(choice, at)| alike(choice, to) && at.distance(load) < SAME_LOAD);
        if undoes {
            self.dwell_ns = (DWELL_GROWTH * self.dwell_ns).min(DWELL_MAX_NS);
            self.undone_ns = Some(now_ns);
        } else if self.undone_ns.is_none_or(|undone_ns| now_ns.saturating_sub(undone_ns) > FORGIVE_NS) {
            self.dwell_ns = DWELL_NS;
            self.undone_ns = None;
        }
        self.before = Some((from.clone(), load.clone()));
        self.streak = 0;
        self.moved_ns = now_ns;
    }

    /// Returns whether the load has changed since the last placement change.
    pub(super) fn load_changed(&self, load: &Load) -> bool {
        self.before.as_ref().is_none_or(|(_, at)| at.distance(load) > SAME_LOAD)
    }

    /// Returns the time since the last placement change, in nanoseconds.
    pub(super) fn rested_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.moved_ns)
    }
}

/// Two placements count as different if a device's fraction of a function's packets differs by this
/// much.
pub(in super::super) const SHARE_STEP: f64 = 0.1;

/// Returns whether two placements differ only by small fractions of a function's packets.
pub(in super::super) fn alike(one: &Choice, two: &Choice) -> bool {
    one.setting == two.setting && one.shares_moved(two) < SHARE_STEP
}

#[cfg(test)]
mod tests {
    use super::super::super::load::FunctionLoad;
    use super::super::super::placement::{PlaceSet, Setting};
    use super::*;

    const LOOK_NS: u64 = 10_000_000;

    fn choice(share: f64) -> Choice {
        let setting = Setting { on: PlaceSet::of([0, 1]), workers: 4, feeders: 0, level: 0 };
        Choice { setting, shares: vec![share, 1.0 - share] }
    }

    fn load(pps: f64) -> Load {
        Load { functions: vec![FunctionLoad::fixed(pps, 60)] }
    }

    #[test]
    fn a_gain_must_last_and_the_last_move_must_be_old() {
        let mut state = Hysteresis::new();
        let start = 10 * DWELL_NS;
        state.moved(start, &choice(0.0), &choice(1.0), &load(1.0));
        assert_eq!(state.gain(start + LOOK_NS, &load(1.0), SleepCost::default()), Some(Wait::Looks(2)));
        state.no_gain();
        assert_eq!(state.gain(start + 2 * LOOK_NS, &load(1.0), SleepCost::default()), Some(Wait::Looks(2)));
        state.gain(start + 3 * LOOK_NS, &load(1.0), SleepCost::default());
        let wait = state.gain(start + 4 * LOOK_NS, &load(1.0), SleepCost::default());
        assert_eq!(wait, Some(Wait::Dwell(DWELL_NS - 4 * LOOK_NS)));
        assert_eq!(state.gain(start + DWELL_NS, &load(1.0), SleepCost::default()), None);
    }

    #[test]
    fn sleep_must_be_earned() {
        let mut state = Hysteresis::new();
        let cost = SleepCost { joules: 4.0, wake_ns: 1e6, saved_watts: 40.0 };
        let start = 10 * DWELL_NS;
        let due = (0..20).find(|look| state.gain(start + look * LOOK_NS, &load(1.0), cost).is_none());
        // The change saves 40 W, which are 4 J in 100 ms.
        assert_eq!(due, Some(10));
        let mut state = Hysteresis::new();
        let slow = SleepCost { joules: 0.0, wake_ns: 20e6, saved_watts: 40.0 };
        assert_eq!((0..90).find(|look| state.gain(start + look * LOOK_NS, &load(1.0), slow).is_none()), Some(20));
    }

    #[test]
    fn dwell_grows_after_moves_that_were_undone() {
        let mut state = Hysteresis::new();
        let move_to = |state: &mut Hysteresis, step: u64, rate: f64| {
            let (from, to) = if step.is_multiple_of(2) { (0.0, 1.0) } else { (1.0, 0.0) };
            state.moved(step * DWELL_NS, &choice(from), &choice(to), &load(rate));
            state.dwell_ns
        };
        assert_eq!(move_to(&mut state, 0, 1.0), DWELL_NS);
        assert_eq!(move_to(&mut state, 1, 1.0), DWELL_GROWTH * DWELL_NS);
        assert_eq!(move_to(&mut state, 2, 1.0), DWELL_MAX_NS.min(DWELL_GROWTH.pow(2) * DWELL_NS));
        assert_eq!(move_to(&mut state, 3, 1.0), DWELL_MAX_NS);
        // The load has changed, so the return to the earlier placement undoes nothing. After a long
        // time, undone changes no longer count.
        assert_eq!(move_to(&mut state, 4, 2.0), DWELL_MAX_NS);
        assert_eq!(move_to(&mut state, 101, 3.0), DWELL_NS);
    }
}

//! The planner decides every 10 ms whether to move functions to other devices.
//!
//! It applies these rules:
//!
//! ```text
//! overloaded, or a device lost ─────────────────────────────────────────> move at once
//! gain > max(5 %, twice the model's error) ─> for 3 runs ──> after the dwell time ─> move
//!     (a sleeping device: when the gain pays its wake-up)
//! otherwise ────────────────────────────────────────────────────────────> stay
//! ```

mod forecast;
mod hysteresis;
#[cfg(test)]
mod tests;
mod trust;

use super::load::{Load, LoadKey};
use super::model::{Machine, Prediction, Table};
use super::placement::{Choice, PlaceSet, Placement};
use super::policy::{Goal, Score, Splits};
use super::search::{Found, Grid, Problem, Search};
use super::thesis::Thesis;
use forecast::Forecast;
use hysteresis::{Hysteresis, SleepCost, Wait, alike};
use trust::Trust;

/// Smallest relative gain that justifies a new placement.
const GAIN_MIN: f64 = 0.05;
/// Relative gain that justifies a new placement, as a multiple of the model's relative error.
const GAIN_ERRORS: f64 = 2.0;
/// Relative gain that justifies a new placement while workers are overloaded.
const GAIN_OVERLOADED: f64 = 0.02;
/// Relative gain that justifies moving a small fraction of a function's packets.
const GAIN_TUNING: f64 = 0.01;
/// Minimum time between two changes that move only a small fraction of a function's packets, in
/// nanoseconds.
const TUNING_NS: u64 = 100_000_000;
/// Time in which the model's correction factors settle after a placement change, in nanoseconds.
const SETTLE_NS: u64 = 300_000_000;
/// A worker counts as overloaded if one of its packet rings is filled to this fraction.
const BACKLOG: f64 = 0.5;
/// Packet rate for which the planner chooses additional devices for overloaded workers, in packets
/// per second. The exact rate has no effect.
const BURST_PPS: f64 = 1e8;
/// Factor by which the fullest resource may exceed its limit before a placement counts as
/// overloaded. New placements must not exceed the limit.
const TOLERANCE: f64 = 1.08;
/// Largest factor by which recent load peaks can raise the forecast.
const MARGIN_MAX: f64 = 1.1;
/// Factor by which each planner run reduces the remembered peak load. The peak shrinks to a third
/// in one second.
const PEAK_DECAY: f64 = 0.99;
/// Longest wake-up time of an additional device for overloaded workers, in nanoseconds. A worker's
/// packet rings can hold a burst of about this duration.
const OVERFLOW_WAKE_NS: f64 = 1e6;
/// Fraction by which the planner raises the assumed load if packet rings fill up unexpectedly.
const PRESSURE_STEP: f64 = 0.25;
/// Maximum excess of the assumed load over the forecast, as a fraction of the forecast.
const PRESSURE_MAX: f64 = 1.0;
/// Decay factor for the excess of the assumed load over the forecast. It applies in each planner
/// run without a full packet ring.
const PRESSURE_DECAY: f64 = 0.99;

/// Rule by which placements are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Changes the placement if the predicted gain is large enough.
    #[default]
    Gain,
    /// Follows the rule of a thesis on adaptive scheduling, for comparison. Every 100 ms, the rule
    /// chooses a new placement if the packet rate has changed by more than 10 %.
    Thesis,
}

/// Packets of one function that a device has processed since the last planner run, and the time
/// spent on them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Number of packets.
    pub packets: u64,
    /// Processing time of the packets on the device, in nanoseconds. On the CPU, it is the time for
    /// which cores ran the kernel.
    pub busy_ns: f64,
}

/// Measurements since the last planner run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Time of the measurements on the caller's clock, in nanoseconds. It must not decrease.
    pub now_ns: u64,
    /// Offered load.
    pub load: Load,
    /// Measurements of each function at each place. A place is a device in one mode. The index is
    /// `function * places + place`. The list is empty if nothing was measured.
    pub measured: Vec<Measured>,
    /// 99th percentile of each function's latency, in nanoseconds. A value is 0 or missing if it
    /// was not measured.
    pub p99_ns: Vec<f64>,
    /// Fill level of the fullest packet ring of all workers, 0 to 1.
    pub backlog: f64,
    /// Devices that are lost, each in all of its modes.
    pub lost: PlaceSet,
}

/// Configuration of a planner.
#[derive(Clone, Debug, Default)]
pub struct PlannerConfig {
    /// Rule by which placements are chosen.
    pub rule: Rule,
    /// Machine settings that the search tries.
    pub grid: Grid,
}

/// Outcome of one planner run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The planner has chosen a new placement.
    Moved,
    /// The placement stays.
    Stayed,
}

/// Reason for a decision of the planner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The planner chooses its first placement.
    Start,
    /// The operator has set another goal.
    Goal,
    /// The operator holds the placement.
    Held,
    /// A device in use is lost or far too slow.
    Lost(PlaceSet),
    /// Workers are overloaded, or a resource is nearly full.
    Overload,
    /// The predicted gain is large enough.
    Gain,
    /// The change affects only a small fraction of a function's packets.
    Tuning,
    /// The current placement is the best placement.
    Best,
    /// The best other placement would gain too little.
    SmallGain,
    /// The best placement must stay the best for this number of further planner runs.
    Lasting(u32),
    /// The load is falling, but its forecast has not fallen as far yet.
    Falling,
    /// The last placement change is too recent. The value is the time until the next change, in
    /// nanoseconds.
    Dwell(u64),
    /// The energy that sleep would have saved is less than the energy to wake the devices again.
    /// The value is the difference, in joules.
    Unearned(f64),
    /// The remaining devices cannot run all functions.
    NoPlace,
    /// The packet rate has changed by less than 10 %, or less than 100 ms have passed. This reason
    /// occurs only with [`Rule::Thesis`].
    SameRate,
    /// The packet rate has changed enough for a new placement. This reason occurs only with
    /// [`Rule::Thesis`].
    Rate,
}

/// A change from one placement to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// Earlier placement, or `None` if there was none.
    pub from: Option<Choice>,
    /// New placement.
    pub to: Choice,
    /// Load for which the new placement was chosen.
    pub load: Load,
    /// Devices that are slower than predicted. Each entry contains the index of a place and the
    /// ratio of its measured rate to the predicted rate. A place is a device in one mode.
    pub slow: Vec<(usize, f64)>,
}

/// Decision of one planner run.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Time of the decision, in nanoseconds.
    pub now_ns: u64,
    /// Whether the placement changed.
    pub outcome: Outcome,
    /// Reason for the decision.
    pub reason: Reason,
    /// Relative gain of the best placement over the current placement.
    pub gain: f64,
    /// Relative gain that justifies a new placement.
    pub required: f64,
    /// Prediction for the earlier placement.
    pub before: Prediction,
    /// Prediction for the best placement or, after a change, for the new placement.
    pub after: Prediction,
    /// The change to a new placement, or `None` if the placement stays.
    pub moved: Option<Box<Move>>,
}

/// Planner of one machine.
#[derive(Debug)]
pub struct Planner {
    machine: Machine,
    goal: Goal,
    search: Search,
    forecast: Forecast,
    trust: Trust,
    hysteresis: Hysteresis,
    thesis: Option<Thesis>,
    current: Option<Choice>,
    placement: Placement,
    burst: Choice,
    is_new_goal: bool,
    pinned: Option<Choice>,
    pressure: f64,
    /// Highest forecast of about the last second, in packets per second.
    peak_pps: f64,
    tuned_ns: u64,
    /// Key of the load for which `best` and `own` were computed.
    key: LoadKey,
    next_key: LoadKey,
    best: Option<Found>,
    /// Prediction and score of the current placement.
    own: Option<(Prediction, Score)>,
    table: Table,
}

impl Planner {
    /// Creates a planner without a placement. Its first run chooses one.
    pub fn new(machine: Machine, goal: Goal, config: PlannerConfig) -> Self {
        let functions = machine.functions.len();
        let thesis = (config.rule == Rule::Thesis).then(|| Thesis::new(&machine));
        let idle = super::search::idle_choice(&machine);
        Self {
            search: Search::new(config.grid),
            forecast: Forecast::new(functions),
            trust: Trust::new(&machine),
            hysteresis: Hysteresis::new(),
            thesis,
            current: None,
            placement: Placement::new(&machine, 0, &idle, &idle, PlaceSet::default()),
            burst: idle,
            is_new_goal: false,
            pinned: None,
            pressure: 0.0,
            peak_pps: 0.0,
            tuned_ns: 0,
            key: LoadKey::new(),
            next_key: LoadKey::new(),
            best: None,
            own: None,
            table: Table::default(),
            machine,
            goal,
        }
    }

    /// Returns the model.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns the current goal.
    pub fn goal(&self) -> &Goal {
        &self.goal
    }

    /// Returns the current placement. Before the first planner run, each function is on the first
    /// device that can run it.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Returns the current placement in the form that the search uses, or `None` before the first
    /// planner run.
    pub fn choice(&self) -> Option<&Choice> {
        self.current.as_ref()
    }

    /// Returns the placement whose devices overloaded workers may also use.
    pub fn burst(&self) -> &Choice {
        &self.burst
    }

    /// Sets another goal. The next planner run chooses a placement for this goal.
    pub fn set_goal(&mut self, goal: Goal) {
        self.goal = goal;
        self.is_new_goal = true;
        self.pinned = None;
        if self.thesis.is_some() {
            // A new state compares all configurations again, without waiting for another rate.
            self.thesis = Some(Thesis::new(&self.machine));
        }
        self.forget();
    }

    /// Pins a placement. The next planner run adopts it, and it stays until another goal is set.
    pub fn pin(&mut self, choice: Choice) {
        self.pinned = Some(choice);
        self.is_new_goal = true;
        self.forget();
    }

    fn forget(&mut self) {
        self.search.clear();
        self.key.clear();
    }

    /// Examines new measurements, and keeps or changes the placement. Afterwards,
    /// [`Planner::placement`] returns the current placement.
    pub fn look(&mut self, seen: &Observation) -> Decision {
        self.forecast.push(&seen.load);
        if let Some(thesis) = &mut self.thesis {
            let found = thesis.look(&self.machine, &self.goal, seen);
            return self.follow_thesis(seen, found);
        }
        if let Some(current) = &self.current {
            self.trust.learn(&self.machine, seen, current, &self.table);
        }
        // A held placement keeps a slow device, because the operator has chosen it.
        let excluded = if self.goal.policy.holds { seen.lost } else { self.excluded(seen) };
        let is_lost = self.uses(excluded);
        let load = self.expected_load(seen);
        self.update(&load, excluded);
        let Some(best) = self.best.clone().filter(|_| !self.goal.policy.holds || self.current.is_none() || is_lost)
        else {
            return self.stay_without_search(seen);
        };
        if let Some(pinned) = self.pinned.take_if(|_| !is_lost) {
            return self.move_to(seen, pinned, Reason::Goal, 0.0, 0.0, excluded, &load);
        }
        let Some((before, score)) = self.own else {
            return self.move_to(seen, best.choice, Reason::Start, 0.0, 0.0, excluded, &load);
        };
        let gain = best.score.gain_over(&score);
        let required = self.required(&before, &best.prediction);
        if is_lost {
            let reason = Reason::Lost(excluded);
            return self.move_to(seen, best.choice, reason, gain, required, excluded, &load);
        }
        if std::mem::take(&mut self.is_new_goal) && self.current.as_ref() != Some(&best.choice) {
            return self.move_to(seen, best.choice, Reason::Goal, gain, required, excluded, &load);
        }
        match self.judge(seen, &before, &best, gain, required) {
            Ok(reason) => self.move_to(seen, best.choice, reason, gain, required, excluded, &load),
            Err(reason) => self.stay(seen, reason, gain, required, before, best.prediction),
        }
    }

    /// Returns `Ok` with the reason for a new placement, or `Err` with the reason to keep the
    /// current one.
    fn judge(
        &mut self,
        seen: &Observation,
        before: &Prediction,
        best: &Found,
        gain: f64,
        required: f64,
    ) -> Result<Reason, Reason> {
        let is_overloaded = before.load > TOLERANCE * self.goal.limits.carry || seen.backlog >= BACKLOG;
        let grows = best.prediction.headroom > before.headroom;
        if is_overloaded && grows && gain > GAIN_OVERLOADED && self.is_new_overload(seen, before, best) {
            return Ok(Reason::Overload);
        }
        if gain <= 0.0 {
            self.hysteresis.no_gain();
            return Err(Reason::Best);
        }
        let is_tuning = self.current.as_ref().is_some_and(|current| alike(current, &best.choice));
        if is_tuning {
            let is_due = seen.now_ns.saturating_sub(self.tuned_ns) >= TUNING_NS;
            self.hysteresis.no_gain();
            return if gain > GAIN_TUNING && is_due { Ok(Reason::Tuning) } else { Err(Reason::SmallGain) };
        }
        if gain <= required {
            self.hysteresis.no_gain();
            return Err(Reason::SmallGain);
        }
        // Policies about power follow a falling load immediately, because this saves energy. All
        // other policies wait until the load has stopped falling.
        if self.goal.policy.splits != Splits::Power && self.forecast.is_falling() {
            self.hysteresis.no_gain();
            return Err(Reason::Falling);
        }
        let cost = self.sleep_cost(before, best);
        match self.hysteresis.gain(seen.now_ns, self.forecast.load(), cost) {
            None => Ok(Reason::Gain),
            Some(Wait::Looks(left)) => Err(Reason::Lasting(left)),
            Some(Wait::Dwell(left_ns)) => Err(Reason::Dwell(left_ns)),
            Some(Wait::Unearned(joules)) => Err(Reason::Unearned(joules)),
        }
    }

    /// Returns whether an overload justifies an immediate placement change. If the load has not
    /// changed since the last one, the packet rings must be filling up, the predicted gain must be
    /// large enough, and the last change must be long enough ago.
    fn is_new_overload(&self, seen: &Observation, before: &Prediction, best: &Found) -> bool {
        let is_worth = best.prediction.headroom > (1.0 + GAIN_MIN) * before.headroom;
        let is_rested = self.hysteresis.rested_ns(seen.now_ns) >= SETTLE_NS;
        self.hysteresis.load_changed(self.forecast.load()) || (seen.backlog >= BACKLOG && is_worth && is_rested)
    }

    /// Returns the relative gain that justifies a new placement. Policies about power need a
    /// smaller gain, because power predictions are more accurate than capacity and latency
    /// predictions.
    fn required(&self, before: &Prediction, best: &Prediction) -> f64 {
        if self.goal.policy.splits == Splits::Power {
            return GAIN_MIN;
        }
        GAIN_MIN.max(GAIN_ERRORS * before.error.max(best.error))
    }

    /// Returns the energy and the time for waking the devices that would sleep in the new
    /// placement.
    fn sleep_cost(&self, before: &Prediction, best: &Found) -> SleepCost {
        let Some(current) = &self.current else { return SleepCost::default() };
        let mut cost = SleepCost {
            saved_watts: before.watts.unwrap_or(0.0) - best.prediction.watts.unwrap_or(0.0),
            ..SleepCost::default()
        };
        for (index, device) in self.machine.devices.iter().enumerate() {
            let sleeps =
                self.machine.is_on(index, current.setting.on) && !self.machine.is_on(index, best.choice.setting.on);
            if let Some(power) = device.power.filter(|_| sleeps) {
                cost.joules += power.awake * power.wake_ns * 1e-9;
                cost.wake_ns = cost.wake_ns.max(power.wake_ns);
            }
        }
        cost
    }

    /// Returns the devices that must not be used because they are lost or far too slow. A slow
    /// device is still allowed if a function can run nowhere else.
    fn excluded(&self, seen: &Observation) -> PlaceSet {
        let failing = self.trust.failing(&self.machine, seen.now_ns).with(seen.lost);
        let remains =
            |excluded: PlaceSet| self.machine.allowed.iter().all(|allowed| !allowed.without(excluded).is_empty());
        if remains(failing) { failing } else { seen.lost }
    }

    /// Returns whether the current placement uses one of the devices in `places`.
    fn uses(&self, places: PlaceSet) -> bool {
        let count = self.machine.places.len();
        let Some(current) = self.current.as_ref().filter(|_| !places.is_empty()) else { return false };
        (0..self.machine.functions.len()).any(|function| !current.used_by(function, count).common(places).is_empty())
    }

    /// Returns the load for which the planner chooses a placement. If packet rings are full
    /// although no overload is predicted, the result grows at each call.
    fn expected_load(&mut self, seen: &Observation) -> Load {
        let full = TOLERANCE * self.goal.limits.carry;
        let explained = self.own.is_none_or(|(prediction, _)| prediction.load > full);
        if seen.backlog >= BACKLOG && !explained {
            self.pressure = (self.pressure + PRESSURE_STEP).min(PRESSURE_MAX);
        } else if self.pressure > 0.0 {
            self.pressure = if self.pressure < 0.01 { 0.0 } else { self.pressure * PRESSURE_DECAY };
        }
        let pps = self.forecast.load().pps();
        self.peak_pps = (self.peak_pps * PEAK_DECAY).max(pps);
        // If the policy lets idle workers sleep, the awake workers must be able to process the
        // recent peak load.
        let margin = if self.goal.policy.folds_workers { (self.peak_pps / pps.max(1.0)).min(MARGIN_MAX) } else { 1.0 };
        self.forecast.load().scaled(margin * (1.0 + self.pressure))
    }

    /// Updates the best placement and the predictions if their inputs have changed.
    fn update(&mut self, load: &Load, excluded: PlaceSet) {
        let (machine, corrections, goal) = (&self.machine, &self.trust.corrections, &self.goal);
        let problem = Problem { machine, load, corrections, goal, excluded };
        Search::write_key(&problem, &mut self.next_key);
        if self.key == self.next_key {
            return;
        }
        std::mem::swap(&mut self.key, &mut self.next_key);
        self.best = self.search.best_of_bucket(&problem, self.current.as_ref());
        let top = load.bucket_top();
        self.own = self.current.as_ref().map(|current| {
            self.table.fill(machine, &top, corrections, current.setting);
            let prediction = self.table.predict(machine, current);
            (prediction, goal.score(&prediction))
        });
    }

    #[expect(clippy::too_many_arguments, reason = "all parts of one decision")]
    fn move_to(
        &mut self,
        seen: &Observation,
        to: Choice,
        reason: Reason,
        gain: f64,
        required: f64,
        excluded: PlaceSet,
        load: &Load,
    ) -> Decision {
        self.is_new_goal = false;
        let machine = &self.machine;
        let top = load.bucket_top();
        self.table.fill(machine, &top, &self.trust.corrections, to.setting);
        let after = self.table.predict(machine, &to);
        let before = self.own.map_or(after, |(prediction, _)| prediction);
        // Overloaded workers may use only devices that wake up soon enough.
        let slow_to_wake = (0..machine.places.len())
            .filter(|&place| !to.setting.on.contains(place) && machine.wake_ns(place) > OVERFLOW_WAKE_NS);
        let unusable = PlaceSet::of(slow_to_wake).with(excluded);
        let burst = load.scaled(BURST_PPS / load.pps().max(1.0));
        let goal = Goal::capacity();
        let problem =
            Problem { machine, load: &burst, corrections: &self.trust.corrections, goal: &goal, excluded: unusable };
        let burst = self.search.best_of_bucket(&problem, Some(&to));
        self.burst = burst.map_or_else(|| to.clone(), |found| found.choice);
        let fast = PlaceSet::of(0..machine.places.len()).without(unusable);
        self.placement = Placement::new(machine, self.placement.number + 1, &to, &self.burst, fast);

        let from = self.current.replace(to.clone());
        if let Some(from) = &from {
            if reason == Reason::Tuning {
                self.tuned_ns = seen.now_ns;
            } else {
                self.hysteresis.moved(seen.now_ns, from, &to, self.forecast.load());
            }
        }
        self.own = Some((after, self.goal.score(&after)));
        let moved = Box::new(Move { from, to, load: load.clone(), slow: self.slow() });
        let (now_ns, outcome) = (seen.now_ns, Outcome::Moved);
        Decision { now_ns, outcome, reason, gain, required, before, after, moved: Some(moved) }
    }

    fn stay(
        &self,
        seen: &Observation,
        reason: Reason,
        gain: f64,
        required: f64,
        before: Prediction,
        after: Prediction,
    ) -> Decision {
        let (now_ns, outcome) = (seen.now_ns, Outcome::Stayed);
        Decision { now_ns, outcome, reason, gain, required, before, after, moved: None }
    }

    /// Adopts the pinned placement, if there is one. Otherwise, keeps the current placement.
    fn stay_without_search(&mut self, seen: &Observation) -> Decision {
        if let Some(pinned) = self.pinned.take() {
            let load = self.forecast.load().clone();
            return self.move_to(seen, pinned, Reason::Goal, 0.0, 0.0, PlaceSet::default(), &load);
        }
        self.is_new_goal = false;
        let reason = if self.goal.policy.holds { Reason::Held } else { Reason::NoPlace };
        let prediction = self.own.map_or_else(Prediction::unknown, |(prediction, _)| prediction);
        self.stay(seen, reason, 0.0, 0.0, prediction, prediction)
    }

    fn follow_thesis(&mut self, seen: &Observation, found: Option<Choice>) -> Decision {
        let load = seen.load.clone();
        match found {
            Some(choice) if self.current.as_ref() != Some(&choice) => {
                let reason = match (&self.current, self.is_new_goal) {
                    (None, _) => Reason::Start,
                    (Some(_), true) => Reason::Goal,
                    (Some(_), false) => Reason::Rate,
                };
                let decision = self.move_to(seen, choice.clone(), reason, 0.0, 0.0, seen.lost, &load);
                // [`Rule::Thesis`] provides no additional devices for overloaded workers.
                self.burst = choice;
                let burst = self.burst.clone();
                self.placement =
                    Placement::new(&self.machine, self.placement.number, &burst, &burst, PlaceSet::default());
                decision
            }
            _ => {
                self.is_new_goal = false;
                let prediction = self.own.map_or_else(Prediction::unknown, |(prediction, _)| prediction);
                self.stay(seen, Reason::SameRate, 0.0, 0.0, prediction, prediction)
            }
        }
    }

    /// Returns the devices that are slower than predicted. Each entry contains the index of the
    /// device, and the lowest ratio of a measured to a predicted rate among its functions.
    fn slow(&self) -> Vec<(usize, f64)> {
        let (functions, places) = (self.machine.functions.len(), self.machine.places.len());
        let rate = |place: usize| {
            let rates = (0..functions).filter_map(|function| self.trust.distrusted(function * places + place));
            rates.reduce(f64::min)
        };
        (0..places).filter_map(|place| Some((place, rate(place)?))).collect()
    }

    /// Returns the time since the last placement change, in nanoseconds.
    pub fn rested_ns(&self, now_ns: u64) -> u64 {
        self.hysteresis.rested_ns(now_ns)
    }
}

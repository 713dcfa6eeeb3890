//! Monitor of the placement: gives measurements to the planner, and its placements to the workers.
//!
//! The planner is pure (`sched/src/place/`). The monitor adds the clock, the counts of the workers,
//! the policy that the operator selects, and the record of decisions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use godwit_sched::place::explain::explain;
use godwit_sched::place::{
    Choice, Decision, Goal, Grid, Machine, Observation, Outcome, POLICIES, PlaceSet, Planner, PlannerConfig,
    Prediction, Reason, Rule,
};

use crate::config::{Config, PlacementConfig};
use crate::error::Error;
use crate::observe::counters::WORKED_NS;
use crate::observe::histogram::{Figures as _, Histogram};
use crate::observe::report::{
    PlacedFunction, PlacedShare, PlacementDecision, PlacementMeasured, PlacementPredicted, PlacementReport,
};
use crate::observe::view::WorkerView;
use crate::options::{Recorded, Recorder};
use crate::place::cell::Cell;
use crate::place::look::Looks;
use crate::place::meter::MeterLayout;
use crate::place::model::Model;

/// Number of looks between two measurements of latencies and busy cores.
const LATENCY_LOOKS: u64 = 10;
/// Smallest number of packets from which a 99th percentile is computed.
const LATENCY_PACKETS_MIN: u64 = 200;
/// Number of decisions that reports contain.
const DECISIONS: usize = 10;

/// Placement that is ready to start.
pub(crate) struct Prepared {
    planner: Planner,
    rule: Rule,
    under: Option<String>,
    pub(crate) cell: Arc<Cell>,
}

impl Prepared {
    /// Creates the planner of a configuration.
    ///
    /// # Errors
    /// Returns a sentence if the placement that the policy `hold` keeps is invalid.
    pub(crate) fn new(model: Model, placement: &PlacementConfig, config: &Config) -> Result<Self, String> {
        let held = model.held_at_start(config)?;
        // The workers have no roles and never sleep, so the search keeps all of them awake.
        let grid = Grid { feeder_quarters: vec![0], worker_halvings: vec![0], ..Grid::default() };
        let PlacementConfig { goal, under, rule, .. } = placement.clone();
        let mut planner = Planner::new(model.machine, goal, PlannerConfig { rule, grid });
        if let Some(held) = held {
            planner.pin(held);
        }
        Ok(Self { planner, rule, under, cell: Arc::default() })
    }
}

/// Placement of a running engine.
pub(crate) struct Monitor {
    state: Mutex<State>,
    cell: Arc<Cell>,
    rule: Rule,
    workers: Vec<WorkerView>,
    meters: Vec<Arc<[AtomicU64]>>,
    started: Instant,
    recorder: Option<Recorder>,
}

struct State {
    planner: Planner,
    /// Limit of the current policy, as the operator wrote it.
    under: Option<String>,
    /// Last limit of each policy that has one.
    limits: Vec<(&'static str, String)>,
    looks: Looks,
    seen: Observation,
    count: u64,
    last: Option<Decision>,
    decisions: VecDeque<PlacementDecision>,
    window: Window,
    measured: PlacementMeasured,
}

/// Totals at the start of the period for which latencies are measured.
#[derive(Default)]
struct Window {
    since_ns: u64,
    packets: f64,
    worked_ns: u64,
    latencies: Vec<Histogram>,
}

impl Monitor {
    /// Starts the placement, and publishes the first one. `views` contains all workers.
    pub(crate) fn start(
        prepared: Prepared,
        views: &[WorkerView],
        started: Instant,
        recorder: Option<Recorder>,
    ) -> Arc<Self> {
        let Prepared { planner, rule, under, cell } = prepared;
        let (functions, devices) = (planner.machine().functions.len(), planner.machine().places.len());
        let limits = under.iter().map(|under| (planner.goal().policy.name, under.clone())).collect();
        let state = State {
            planner,
            under,
            limits,
            looks: Looks::new(MeterLayout { functions, devices }, views.len()),
            seen: Observation::default(),
            count: 0,
            last: None,
            decisions: VecDeque::new(),
            window: Window { latencies: vec![Histogram::default(); functions], ..Window::default() },
            measured: PlacementMeasured::default(),
        };
        let meters = views.iter().filter_map(|view| view.meter.clone()).collect();
        let workers = views.to_vec();
        let monitor = Self { state: Mutex::new(state), cell, rule, workers, meters, started, recorder };
        monitor.look();
        Arc::new(monitor)
    }

    /// Examines the counts of the workers, and keeps or changes the placement. The caller calls
    /// this method every 10 ms.
    pub(crate) fn look(&self) {
        let mut state = self.lock();
        let now_ns = self.now_ns();
        let mut seen = state.looks.look(now_ns, Looks::read(&self.meters));
        seen.lost = self.lost();
        state.window.packets += seen.load.pps() * now_ns.saturating_sub(state.seen.now_ns) as f64 * 1e-9;
        state.count += 1;
        if state.count.is_multiple_of(LATENCY_LOOKS) {
            self.measure(&mut state, &mut seen);
        }
        self.decide(&mut state, seen);
    }

    /// Sets the policy. `placement` is the placement that the policy `hold` keeps.
    ///
    /// # Errors
    /// Returns an error if the policy, its limit or the placement is invalid.
    pub(crate) fn set(&self, name: &str, under: Option<&str>, placement: Option<&str>) -> Result<(), Error> {
        let goal = Goal::parse(name, under).map_err(Error::request)?;
        let mut state = self.lock();
        goal.check_meter(state.planner.machine().measures_power()).map_err(Error::request)?;
        if goal.policy.holds && self.rule == Rule::Thesis {
            return Err(Error::request("the rule of the thesis never holds a placement: set rule = \"gain\""));
        }
        let pinned = match placement {
            Some(_) if !goal.policy.holds => {
                return Err(Error::request(format_args!("policy `{name}` takes no placement; `hold` takes one")));
            }
            Some(text) => Some(self.pinned(&state, text)?),
            None => None,
        };
        self.adopt(&mut state, goal, under, pinned);
        Ok(())
    }

    /// Selects the next policy of [`POLICIES`]. Policies whose limit was never set are skipped.
    pub(crate) fn select_next(&self) {
        let mut state = self.lock();
        let current = POLICIES.iter().position(|policy| std::ptr::eq(*policy, state.planner.goal().policy));
        let has_meter = state.planner.machine().measures_power();
        let following = POLICIES.iter().cycle().skip(current.map_or(0, |current| current + 1)).take(POLICIES.len());
        let next = following.filter(|policy| !policy.holds || self.rule == Rule::Gain).find_map(|policy| {
            let limit = state.limits.iter().find(|(name, _)| *name == policy.name).map(|(_, limit)| limit.clone());
            let goal = Goal::parse(policy.name, limit.as_deref()).ok()?;
            goal.check_meter(has_meter).ok()?;
            Some((goal, limit))
        });
        if let Some((goal, limit)) = next {
            self.adopt(&mut state, goal, limit.as_deref(), None);
        }
    }

    /// Returns the policy, the placement and the last decisions.
    pub(crate) fn report(&self) -> PlacementReport {
        let state = self.lock();
        let (planner, machine) = (&state.planner, state.planner.machine());
        let (placement, choice) = (planner.placement(), planner.choice());
        let id = |device: usize| machine.places[device].setup.id.clone();
        let function = |(index, name): (usize, &String)| {
            let route = &placement.routes[index];
            let used = route.shares.iter().enumerate().filter(|(_, share)| **share > 0.0);
            PlacedFunction {
                name: name.clone(),
                devices: used.map(|(device, share)| PlacedShare { device: id(device), share: *share }).collect(),
                overflow: route.overflow.iter().map(id).collect(),
            }
        };
        PlacementReport {
            policy: planner.goal().policy.name,
            under: state.under.clone(),
            rule: if self.rule == Rule::Thesis { "thesis" } else { "gain" },
            number: placement.number,
            placement: choice.map(|choice| choice.to_text(machine)).unwrap_or_default(),
            functions: machine.functions.iter().enumerate().map(function).collect(),
            predicted: state.last.as_ref().map(|last| predicted(machine, current(last))),
            measured: state.measured,
            latest: state.last.as_ref().map(|last| explain(machine, planner.goal(), last)).unwrap_or_default(),
            decisions: state.decisions.iter().cloned().collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Returns the devices that any worker has lost.
    fn lost(&self) -> PlaceSet {
        let lists = self.workers.iter().map(|worker| worker.lost.lock().unwrap_or_else(PoisonError::into_inner));
        let lost = lists.map(|list| PlaceSet::of(list.iter().map(|lost| lost.device)));
        lost.fold(PlaceSet::default(), PlaceSet::with)
    }

    fn pinned(&self, state: &State, text: &str) -> Result<Choice, Error> {
        let (planner, machine) = (&state.planner, state.planner.machine());
        let from = planner.choice().unwrap_or_else(|| planner.burst());
        let choice = Choice::parse(machine, text, from).map_err(Error::request)?;
        let changes_workers = choice.setting.workers != machine.workers || choice.setting.feeders > 0;
        if changes_workers {
            return Err(Error::request("`workers` and `feeders` of a placement cannot change while Godwit runs"));
        }
        let mut lost = choice.setting.on.common(self.lost()).iter();
        match lost.next() {
            Some(device) => Err(Error::request(format_args!("device `{}` is lost", machine.places[device].setup.id))),
            None => Ok(choice),
        }
    }

    /// Sets a goal, and decides at once with the last measurements.
    fn adopt(&self, state: &mut State, goal: Goal, under: Option<&str>, pinned: Option<Choice>) {
        let name = goal.policy.name;
        if let Some(under) = under {
            state.limits.retain(|(known, _)| *known != name);
            state.limits.push((name, under.to_owned()));
        }
        state.under = under.map(str::to_owned);
        state.planner.set_goal(goal);
        self.record(|| Recorded::Goal(goal));
        if let Some(pinned) = pinned {
            self.record(|| Recorded::Pin(pinned.clone()));
            state.planner.pin(pinned);
        }
        let limit = under.map(|under| format!(" under {under}")).unwrap_or_default();
        tracing::info!(event = "policy_changed", policy = name, "the policy is now {name}{limit}");
        // Measurements count once, so only the load and the lost devices are used again.
        let seen = Observation {
            now_ns: self.now_ns(),
            measured: Vec::new(),
            p99_ns: Vec::new(),
            lost: self.lost(),
            ..state.seen.clone()
        };
        self.decide(state, seen);
    }

    fn decide(&self, state: &mut State, seen: Observation) {
        let decision = state.planner.look(&seen);
        self.record(|| Recorded::Look(seen.clone(), Box::new(decision.clone())));
        if decision.outcome == Outcome::Moved {
            let placement = state.planner.placement().clone();
            let number = placement.number;
            let sentence = explain(state.planner.machine(), state.planner.goal(), &decision);
            // Small changes of shares follow the load several times per second.
            if decision.reason != Reason::Tuning {
                tracing::info!(event = "placement_changed", number, "{sentence}");
            }
            if state.decisions.len() == DECISIONS {
                state.decisions.pop_front();
            }
            state.decisions.push_back(PlacementDecision { at_s: seen.now_ns as f64 * 1e-9, number, sentence });
            self.cell.publish(placement);
        }
        state.last = Some(decision);
        state.seen = seen;
    }

    fn record(&self, recorded: impl FnOnce() -> Recorded) {
        if let Some(recorder) = &self.recorder {
            recorder.lock().unwrap_or_else(PoisonError::into_inner).push(recorded());
        }
    }

    /// Measures the latencies and the busy cores of the last [`LATENCY_LOOKS`] looks.
    fn measure(&self, state: &mut State, seen: &mut Observation) {
        let elapsed_ns = seen.now_ns.saturating_sub(state.window.since_ns).max(1);
        let worked = |worker: &WorkerView| worker.counters[WORKED_NS].load(Ordering::Relaxed);
        let worked_ns: u64 = self.workers.iter().map(worked).sum();
        let mut p99_ns = None;
        for (function, before) in state.window.latencies.iter_mut().enumerate() {
            let mut now = Histogram::default();
            self.workers.iter().for_each(|worker| worker.function_latency[function].add_to(&mut now));
            let recent = now.since(before);
            if recent.total() >= LATENCY_PACKETS_MIN
                && let Some(latency) = recent.latency()
            {
                seen.p99_ns[function] = latency.p99_ns as f64;
                p99_ns = p99_ns.max(Some(latency.p99_ns));
            }
            *before = now;
        }
        state.measured = PlacementMeasured {
            pps: state.window.packets / elapsed_ns as f64 * 1e9,
            cores: worked_ns.saturating_sub(state.window.worked_ns) as f64 / elapsed_ns as f64,
            p99_ns,
        };
        (state.window.since_ns, state.window.packets, state.window.worked_ns) = (seen.now_ns, 0.0, worked_ns);
    }
}

/// Returns the prediction for the placement that is in use after a decision.
fn current(decision: &Decision) -> &Prediction {
    if decision.outcome == Outcome::Moved { &decision.after } else { &decision.before }
}

fn predicted(machine: &Machine, prediction: &Prediction) -> PlacementPredicted {
    PlacementPredicted {
        load: prediction.load,
        limit: machine.resource_name(prediction.limit),
        cores: prediction.cores,
        p99_ns: (prediction.p99_ns > 0.0).then_some(prediction.p99_ns as u64),
        watts: prediction.watts,
    }
}

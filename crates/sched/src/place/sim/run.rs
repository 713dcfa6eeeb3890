//! Simulates a planner and an oracle under the same sequence of loads. The oracle knows the true
//! costs of functions on devices.

use super::super::load::Load;
use super::super::model::{Corrections, Machine, Table};
use super::super::placement::{Choice, PlaceSet};
use super::super::planner::{Measured, Observation, Outcome, Planner, PlannerConfig, Reason, Rule};
use super::super::policy::Goal;
use super::super::search::Grid;
use super::oracle::Oracle;
use super::random::Random;
use super::trace::Trace;
use super::world::World;

/// Period of the planner, in nanoseconds.
const PERIOD_NS: u64 = 10_000_000;
/// Number of planner runs between two latency measurements.
const LATENCY_LOOKS: u64 = 10;
/// Relative error of a simulated measurement.
const NOISE: f64 = 0.01;
/// Length of the period for [`Report::starvation`] in planner runs. It is one second.
const WINDOW: usize = 100;
/// A placement change counts as undone if the earlier placement returns within this time, in
/// nanoseconds.
const FLAP_NS: u64 = 250_000_000;
/// A placement change counts as undone only if the load has changed by less than this fraction.
const FLAP_LOAD: f64 = 0.1;

/// Configuration of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Model that the planner knows.
    pub machine: &'a Machine,
    /// Goal of the planner, and of the oracle with which it is compared.
    pub goal: Goal,
    /// Rule by which the planner chooses placements.
    pub rule: Rule,
    /// Machine settings that the planner and the oracle try.
    pub grid: &'a Grid,
    /// Standard deviation of the difference between true costs and profile costs, as a fraction of
    /// the profile costs.
    pub sigma: f64,
    /// Seed of the true costs and of the noise.
    pub seed: u64,
}

/// Comparison of the planner with an oracle that knows the true costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Extra energy of the planner compared with an oracle, as a fraction of the oracle's energy.
    /// The oracle knows the true costs.
    pub joules: f64,
    /// Packets that an oracle processes but the planner does not, as a fraction of the oracle's
    /// packets. The oracle knows the true costs.
    pub carried: f64,
    /// Packets that the planner loses but an oracle does not, as a fraction of the offered packets.
    /// The oracle knows the true costs.
    pub lost: f64,
    /// Relative increase of the planner's latency over the latency of an oracle that knows the true
    /// costs. Both are geometric means of the 99th percentile over time.
    pub latency: f64,
    /// Packets that the planner processes in its worst second, as a fraction of an oracle's packets
    /// in the same second. The oracle knows the true costs.
    pub starvation: f64,
    /// Number of placement changes.
    pub moves: u32,
    /// Number of placement changes that were undone within 0.25 s although the load was similar.
    pub flaps: u32,
    /// Fraction of the time in which overloaded workers used additional devices.
    pub reflex: f64,
    /// Time from the loss of a device until the planner chose the next placement, in nanoseconds.
    pub lost_ns: u64,
}

/// Packets that the planner and the oracle had processed at one point in time.
#[derive(Clone, Copy, Default)]
struct Mark {
    carried: f64,
    oracle: f64,
}

impl Run<'_> {
    /// Simulates all loads in `trace`. Returns the comparison of the planner with an oracle that
    /// knows the true costs.
    pub fn run(&self, trace: &Trace) -> Report {
        let mut random = Random::new(self.seed ^ 0x5eed);
        let truth = truth(self.machine, self.sigma, &mut random);
        let config = PlannerConfig { rule: self.rule, grid: self.grid.clone() };
        let mut planner = Planner::new(self.machine.clone(), self.goal, config);
        let mut oracle = Oracle::new(self.grid.clone());
        let mut world = World::new(self.machine, &truth);
        let mut state = State::default();
        let (mut segment, mut look) = (0, 0);
        let mut seen = Observation {
            measured: vec![Measured::default(); truth.cost.len()],
            p99_ns: vec![0.0; self.machine.functions.len()],
            ..Observation::default()
        };
        let mut now_ns = 0;
        while now_ns < trace.end_ns {
            if now_ns == look * PERIOD_NS {
                look += 1;
                let is_lost = trace.loss_ns.is_some_and(|loss_ns| loss_ns <= now_ns);
                seen.lost = if is_lost { trace.lost } else { PlaceSet::default() };
                self.look(&mut planner, &mut world, &truth, &mut seen, &mut state, &mut random, trace, now_ns);
                state.marks.push(Mark { carried: world.sums.carried + world.queue(), oracle: state.oracle_carried });
            }
            let load = &trace.segments[segment].load;
            let next_segment_ns = trace.segments.get(segment + 1).map_or(u64::MAX, |next| next.start_ns);
            let loss_ns = trace.loss_ns.filter(|loss_ns| *loss_ns > now_ns).unwrap_or(u64::MAX);
            let next_ns = (look * PERIOD_NS).min(next_segment_ns).min(loss_ns).min(trace.end_ns);
            world.advance(now_ns as f64, next_ns as f64, load);
            state.add_load(load, next_ns - now_ns);
            let is_lost = trace.loss_ns.is_some_and(|loss_ns| loss_ns <= now_ns);
            let excluded = if is_lost { trace.lost } else { PlaceSet::default() };
            if let Some(best) = oracle.best(self.machine, load, &truth, &self.goal, excluded) {
                let seconds = (next_ns - now_ns) as f64 * 1e-9;
                state.oracle_carried += load.pps() * best.carried() * seconds;
                state.oracle_joules += best.watts.unwrap_or(0.0) * seconds;
                state.oracle_ln_p99 += best.p99_ns.max(1.0).ln() * seconds;
            }
            now_ns = next_ns;
            if now_ns == next_segment_ns {
                segment += 1;
            }
            if now_ns == loss_ns {
                world.lose(trace.lost);
            }
        }
        state.report(&world, trace)
    }

    #[expect(clippy::too_many_arguments, reason = "all parts of one run")]
    fn look(
        &self,
        planner: &mut Planner,
        world: &mut World<'_>,
        truth: &Corrections,
        seen: &mut Observation,
        state: &mut State,
        random: &mut Random,
        trace: &Trace,
        now_ns: u64,
    ) {
        seen.now_ns = now_ns;
        seen.backlog = world.take_backlog();
        if now_ns == 0 {
            seen.load = trace.segments[0].load.clone();
        } else {
            state.take_load(&mut seen.load);
        }
        self.measure(world, truth, seen, state, random, now_ns);
        let decision = planner.look(seen);
        if decision.outcome == Outcome::Moved
            && let Some(choice) = planner.choice()
        {
            world.place(now_ns as f64, choice, planner.burst());
            if decision.reason != Reason::Tuning {
                state.moved(now_ns, choice, &seen.load);
            }
            if let Some(loss_ns) = trace.loss_ns.filter(|loss_ns| *loss_ns <= now_ns && state.lost_ns == 0) {
                state.lost_ns = (now_ns - loss_ns).max(1);
            }
        }
    }

    /// Fills in the measurements since the last planner run.
    fn measure(
        &self,
        world: &World<'_>,
        truth: &Corrections,
        seen: &mut Observation,
        state: &mut State,
        random: &mut Random,
        now_ns: u64,
    ) {
        seen.measured.fill(Measured::default());
        seen.p99_ns.fill(0.0);
        let Some(choice) = world.choice() else { return };
        let places = self.machine.places.len();
        let total_pps = seen.load.pps();
        for way in 0..truth.cost.len() {
            let (function, place) = (way / places, way % places);
            let packets = seen.load.functions[function].pps * choice.shares[way] * PERIOD_NS as f64 * 1e-9;
            if packets < 1.0 {
                continue;
            }
            let level = choice.setting.level;
            let kernel_ns = self.machine.kernel_ns(&seen.load, function, place, level, total_pps) * truth.cost[way];
            let noise = random.between(1.0 - NOISE, 1.0 + NOISE);
            seen.measured[way] = Measured { packets: packets as u64, busy_ns: packets * kernel_ns * noise };
        }
        if (now_ns / PERIOD_NS).is_multiple_of(LATENCY_LOOKS) && world.prediction().is_some() {
            state.table.fill(self.machine, &seen.load, truth, choice.setting);
            for function in 0..seen.p99_ns.len() {
                seen.p99_ns[function] = state.table.p99_of(self.machine, choice, function);
            }
        }
    }
}

fn truth(machine: &Machine, sigma: f64, random: &mut Random) -> Corrections {
    let mut truth = Corrections::none(machine);
    for values in [&mut truth.cost, &mut truth.latency] {
        values.iter_mut().for_each(|value| *value = random.lognormal(sigma).clamp(0.5, 2.0));
    }
    truth
}

#[derive(Default)]
struct State {
    oracle_carried: f64,
    oracle_joules: f64,
    oracle_ln_p99: f64,
    marks: Vec<Mark>,
    /// Integral of the load over the time since the last planner run.
    sums: Load,
    elapsed_ns: u64,
    /// Time, placement and load of each recent placement change.
    moves: Vec<(u64, Choice, Load)>,
    count: u32,
    flaps: u32,
    lost_ns: u64,
    table: Table,
}

impl State {
    fn add_load(&mut self, load: &Load, elapsed_ns: u64) {
        let weight = elapsed_ns as f64;
        self.sums.functions.resize_with(load.functions.len(), Default::default);
        for (sum, function) in self.sums.functions.iter_mut().zip(&load.functions) {
            let packets = function.pps * weight;
            sum.pps += packets;
            sum.bytes += packets * function.bytes;
            sum.classes.iter_mut().zip(function.classes).for_each(|(sum, share)| *sum += packets * share);
        }
        self.elapsed_ns += elapsed_ns;
    }

    /// Writes the mean load since the last call to `load`.
    fn take_load(&mut self, load: &mut Load) {
        let elapsed_ns = std::mem::take(&mut self.elapsed_ns) as f64;
        for (sum, function) in self.sums.functions.iter_mut().zip(&mut load.functions) {
            if sum.pps > 0.0 {
                function.bytes = sum.bytes / sum.pps;
                function.classes = sum.classes.map(|class| class / sum.pps);
            }
            function.pps = sum.pps / elapsed_ns;
            *sum = Default::default();
        }
    }

    fn moved(&mut self, now_ns: u64, choice: &Choice, load: &Load) {
        self.count += 1;
        if let [.., (_, first, _), (left_ns, between, load_then)] = &self.moves[..] {
            let alike = |one: &Choice, two: &Choice| one.setting == two.setting && one.shares_moved(two) < 0.1;
            let is_return = alike(first, choice) && !alike(first, between);
            if is_return && now_ns - left_ns <= FLAP_NS && load_then.distance(load) < FLAP_LOAD {
                self.flaps += 1;
                if std::env::var("FLAPS").is_ok() {
                    let f = |c: &Choice| {
                        format!(
                            "on {} w {} f {} l {} {:?}",
                            c.setting.on.0, c.setting.workers, c.setting.feeders, c.setting.level, c.shares
                        )
                    };
                    eprintln!(
                        "flap at {} left {} {:.1} {:.1} | {} | {} | {} ",
                        now_ns / 1000000,
                        left_ns / 1000000,
                        load_then.pps() / 1e6,
                        load.pps() / 1e6,
                        f(first),
                        f(between),
                        f(choice)
                    );
                }
            }
        }
        self.moves.push((now_ns, choice.clone(), load.clone()));
        if self.moves.len() > 2 {
            self.moves.remove(0);
        }
    }

    fn report(&self, world: &World<'_>, trace: &Trace) -> Report {
        let sums = world.sums;
        let ratio = |value: f64, of: f64| if of > 0.0 { value / of - 1.0 } else { 0.0 };
        let windows = self.marks.windows(WINDOW + 1);
        let carried = windows.map(|window| {
            let (first, last) = (window[0], window[WINDOW]);
            let oracle = last.oracle - first.oracle;
            if oracle > 0.0 { (last.carried - first.carried) / oracle } else { 1.0 }
        });
        let oracle_lost = sums.offered - self.oracle_carried;
        Report {
            joules: ratio(sums.joules, self.oracle_joules),
            carried: -ratio(sums.carried, self.oracle_carried),
            lost: (sums.lost - oracle_lost).max(0.0) / sums.offered,
            latency: ((sums.ln_p99 - self.oracle_ln_p99) / (trace.end_ns as f64 * 1e-9)).exp() - 1.0,
            starvation: carried.fold(1.0, f64::min),
            moves: self.count,
            flaps: self.flaps,
            reflex: sums.reflex_ns / trace.end_ns as f64,
            lost_ns: self.lost_ns,
        }
    }
}

//! Placement rule of a thesis on adaptive scheduling (University of Crete, 2020, section 4.2.5),
//! for comparison with the planner.
//!
//! The thesis measures a pool of configurations in advance and keeps them sorted. Its monitor looks
//! at the packet rate every 100 ms. If the rate has changed by more than 10 %, the monitor
//! activates the configuration whose performance is closest to the rate. Each function is on one
//! device. The thesis measures each configuration for 10 s, whereas this file takes the performance
//! from the cost model.

use super::model::{Corrections, Machine, Table};
use super::placement::{Choice, PlaceSet, Setting};
use super::planner::Observation;
use super::policy::{Goal, Splits};

/// Time between two checks of the packet rate, in nanoseconds.
const PERIOD_NS: u64 = 100_000_000;
/// Largest relative packet rate change that leaves the placement unchanged.
const SAME_RATE: f64 = 0.1;
/// Maximum number of assignments of functions to devices that are compared.
const POOL_MAX: usize = 4096;

/// State of the thesis rule between two checks of the packet rate.
#[derive(Debug)]
pub(super) struct Thesis {
    pool: Vec<Choice>,
    active: Option<usize>,
    rate: f64,
    next_ns: u64,
    packets: f64,
    looks: f64,
}

impl Thesis {
    pub(super) fn new(machine: &Machine) -> Self {
        Self { pool: pool(machine), active: None, rate: 0.0, next_ns: 0, packets: 0.0, looks: 0.0 }
    }

    /// Examines new measurements. Returns the configuration to activate, or `None` to keep the
    /// current one.
    pub(super) fn look(&mut self, machine: &Machine, goal: &Goal, seen: &Observation) -> Option<Choice> {
        self.packets += seen.load.pps();
        self.looks += 1.0;
        let is_lost = self.active.is_some_and(|active| !self.pool[active].setting.on.common(seen.lost).is_empty());
        if seen.now_ns < self.next_ns && !is_lost {
            return None;
        }
        self.next_ns = seen.now_ns + PERIOD_NS;
        let rate = self.packets / self.looks;
        (self.packets, self.looks) = (0.0, 0.0);
        // A packet rate within 10 % of the last rate changes nothing.
        if self.active.is_some() && !is_lost && (rate - self.rate).abs() <= SAME_RATE * self.rate {
            return None;
        }
        self.rate = rate;
        // The thesis searches a sorted list of measured configurations. This code compares
        // predictions for all configurations instead.
        let corrections = Corrections::none(machine);
        let mut table = Table::default();
        let mut best: Option<(usize, [f64; 2])> = None;
        for (index, choice) in self.pool.iter().enumerate() {
            if !choice.setting.on.common(seen.lost).is_empty() {
                continue;
            }
            table.fill(machine, &seen.load, &corrections, choice.setting);
            let prediction = table.predict(machine, choice);
            let lacks = (1.0 / prediction.headroom - 1.0).max(0.0);
            let metric = match goal.policy.splits {
                Splits::Capacity => 1.0 / prediction.headroom,
                Splits::Power => prediction.watts.unwrap_or(choice.setting.on.len() as f64),
                Splits::Eighths => prediction.p99_ns,
            };
            let key = [lacks, metric];
            if best.is_none_or(|(_, least)| key < least) {
                best = Some((index, key));
            }
        }
        self.active = best.map(|(index, _)| index);
        self.active.map(|index| self.pool[index].clone())
    }
}

/// Returns all assignments of functions to devices, with at most one mode per device. An assignment
/// that uses a device other than the CPU is returned once for each of three submission sizes.
fn pool(machine: &Machine) -> Vec<Choice> {
    let places = machine.places.len();
    let mut assignments: Vec<Vec<usize>> = vec![Vec::new()];
    for allowed in &machine.allowed {
        let longer = |assignment: &Vec<usize>| {
            let add = |place| assignment.iter().copied().chain(std::iter::once(place)).collect();
            allowed.iter().map(add).collect::<Vec<Vec<usize>>>()
        };
        assignments = assignments.iter().flat_map(longer).take(POOL_MAX).collect();
    }
    let device = |place: usize| machine.places[place].device;
    assignments.retain(|assignment| {
        let clash = |(one, two): (&usize, &usize)| one != two && device(*one).is_some() && device(*one) == device(*two);
        !assignment.iter().any(|one| assignment.iter().any(|two| clash((one, two))))
    });
    let levels = [0, 1, 2];
    let choice = |assignment: &Vec<usize>| {
        levels.map(|level| {
            let on = PlaceSet::of(assignment.iter().copied());
            let mut shares = vec![0.0; machine.functions.len() * places];
            assignment.iter().enumerate().for_each(|(function, place)| shares[function * places + place] = 1.0);
            Choice { setting: Setting { on, workers: machine.workers, feeders: 0, level }, shares }
        })
    };
    let mut pool: Vec<Choice> = Vec::new();
    for choice in assignments.iter().flat_map(choice) {
        let is_cpu_only = choice.setting.on == PlaceSet::of([0]);
        if !(is_cpu_only && choice.setting.level > 0) {
            pool.push(choice);
        }
    }
    pool
}

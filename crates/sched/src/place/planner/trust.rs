//! Corrects predictions with measurements, and distrusts devices that are slower than predicted.

use super::super::load::Load;
use super::super::model::{Corrections, Machine, Table};
use super::super::placement::{Choice, PlaceSet};
use super::Observation;

/// Weight of a new measurement in a correction factor. The remaining weight belongs to earlier
/// measurements.
const WEIGHT: f64 = 0.25;
/// Minimum number of packets in a measurement that is used.
const PACKETS_MIN: u64 = 500;
/// Range of the correction factors, by which predicted times are multiplied.
const RANGE: (f64, f64) = (0.5, 2.0);
/// Time constant with which a correction factor returns to 1 without new measurements, in
/// nanoseconds.
const FADE_NS: f64 = 30e9;
/// Interval between two updates of correction factors without new measurements, in nanoseconds.
const FADE_STEP_NS: u64 = 100_000_000;
/// Minimum rate of a trusted device, as a fraction of its predicted rate.
const DISTRUST_BELOW: f64 = 0.8;
/// If the rate falls below this fraction of the predicted rate, one measurement suffices to
/// distrust the device.
const DISTRUST_AT_ONCE: f64 = 0.55;
/// If the rate falls below this fraction of the predicted rate, the device is not used for some
/// time.
const FAILING_BELOW: f64 = 0.3;
/// Time for which a device must be too slow before it is distrusted, in nanoseconds.
const DISTRUST_NS: u64 = 1_000_000_000;
/// If the rate exceeds this fraction of the predicted rate, the device is trusted again.
const TRUST_ABOVE: f64 = 0.9;
/// Fraction of the model's relative error that remains after measurements have confirmed a
/// prediction.
const CONFIRMED: f64 = 0.2;
/// Number of measurements after which a prediction counts as confirmed.
const CONFIRMATIONS: u32 = 10;
/// Longest time for which an unused device keeps its correction factor, in nanoseconds. Afterwards,
/// the factor gradually returns to 1.
const MEMORY_NS: u64 = 300_000_000_000;

/// Knowledge about one function on one device.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// Number of measurements since the correction factor was last reset, up to [`CONFIRMATIONS`].
    confirmations: u32,
    /// Time at which the device became too slow, in nanoseconds, or 0 if it is fast enough.
    slow_since_ns: u64,
    distrusted: bool,
    /// Time of the last measurement, in nanoseconds.
    seen_ns: u64,
    /// Time for which an unused device keeps its correction factor, in nanoseconds. It doubles
    /// whenever the device becomes distrusted.
    keep_ns: u64,
    /// Time until which the device is not used, in nanoseconds.
    failing_until_ns: u64,
}

/// Correction factors of the predictions, and the devices that are not trusted.
#[derive(Debug)]
pub(super) struct Trust {
    pub(super) corrections: Corrections,
    ways: Vec<Way>,
    /// Factors by which functions slow each other down in the current placement.
    interference: Vec<f64>,
    faded_ns: u64,
}

impl Trust {
    pub(super) fn new(machine: &Machine) -> Self {
        let corrections = Corrections::none(machine);
        let ways = corrections.cost.len();
        Self { corrections, ways: vec![Way::default(); ways], interference: vec![1.0; ways], faded_ns: 0 }
    }

    /// Updates the correction factors from measurements of the current placement. `table` contains
    /// the predictions for this placement.
    pub(super) fn learn(&mut self, machine: &Machine, seen: &Observation, choice: &Choice, table: &Table) {
        if !machine.gamma.is_empty() {
            table.interference(machine, choice, &mut self.interference);
        }
        let places = machine.places.len();
        let total_pps = seen.load.pps();
        for (way, measured) in seen.measured.iter().enumerate() {
            if measured.packets < PACKETS_MIN || measured.busy_ns <= 0.0 {
                continue;
            }
            let (function, place) = (way / places, way % places);
            if !machine.allowed[function].contains(place) {
                continue;
            }
            let level = choice.setting.level;
            let predicted = machine.kernel_ns(&seen.load, function, place, level, total_pps) * self.interference[way];
            self.learn_cost(machine, seen.now_ns, way, measured.busy_ns / measured.packets as f64 / predicted);
        }
        self.learn_latency(machine, &seen.load, &seen.p99_ns, choice, table);
        self.fade(seen.now_ns);
    }

    fn learn_cost(&mut self, machine: &Machine, now_ns: u64, index: usize, ratio: f64) {
        let (way, correction) = (&mut self.ways[index], &mut self.corrections.cost[index]);
        way.seen_ns = now_ns;
        way.confirmations = (way.confirmations + 1).min(CONFIRMATIONS);
        let rate = 1.0 / ratio;
        let known = (1.0 / *correction).min(1.0);
        let is_sudden = rate < DISTRUST_AT_ONCE * known;
        let weight = if is_sudden { 1.0 } else { WEIGHT };
        *correction = (*correction + weight * (ratio - *correction)).clamp(RANGE.0, RANGE.1);
        if rate >= TRUST_ABOVE {
            (way.slow_since_ns, way.distrusted) = (0, false);
        } else if rate < DISTRUST_BELOW {
            let since_ns = if way.slow_since_ns == 0 { now_ns.max(1) } else { way.slow_since_ns };
            way.slow_since_ns = since_ns;
            if !way.distrusted && (is_sudden || now_ns.saturating_sub(since_ns) >= DISTRUST_NS) {
                way.distrusted = true;
                way.keep_ns = (2 * way.keep_ns).clamp(FADE_NS as u64, MEMORY_NS);
            }
            if rate < FAILING_BELOW {
                way.failing_until_ns = now_ns + way.keep_ns;
            }
        }
        let error = machine.costs[index].fit.error_median;
        self.corrections.error[index] = match (way.distrusted, way.confirmations >= CONFIRMATIONS) {
            (true, _) => (1.0 - rate).max(0.0),
            (false, true) => (CONFIRMED - 1.0) * error,
            (false, false) => 0.0,
        };
    }

    /// Corrects the latencies of a function on all its devices by the same ratio, because latency
    /// is measured only per function.
    fn learn_latency(&mut self, machine: &Machine, load: &Load, p99_ns: &[f64], choice: &Choice, table: &Table) {
        let places = machine.places.len();
        for (function, &measured_ns) in p99_ns.iter().enumerate() {
            if measured_ns <= 0.0 || load.functions[function].pps <= 0.0 || !table.is_active(function) {
                continue;
            }
            let predicted_ns = table.p99_of(machine, choice, function);
            if predicted_ns <= 0.0 {
                continue;
            }
            for place in choice.used_by(function, places).iter() {
                let correction = &mut self.corrections.latency[function * places + place];
                // The prediction already contains the earlier correction factor.
                let ratio = *correction * measured_ns / predicted_ns;
                *correction = (*correction + WEIGHT * (ratio - *correction)).clamp(RANGE.0, RANGE.1);
            }
        }
    }

    /// Lets correction factors without new measurements return to 1.
    fn fade(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.faded_ns);
        if elapsed_ns < FADE_STEP_NS {
            return;
        }
        self.faded_ns = now_ns;
        let keep = (-(elapsed_ns as f64) / FADE_NS).exp();
        let used_ns = now_ns.saturating_sub(2 * FADE_STEP_NS);
        for (index, way) in self.ways.iter_mut().enumerate() {
            if way.seen_ns >= used_ns || now_ns.saturating_sub(way.seen_ns) < way.keep_ns {
                continue;
            }
            for values in [&mut self.corrections.cost, &mut self.corrections.latency] {
                values[index] = 1.0 + (values[index] - 1.0) * keep;
            }
            let is_forgotten = (self.corrections.cost[index] - 1.0).abs() < 0.1;
            if is_forgotten {
                (way.confirmations, way.distrusted, way.slow_since_ns) = (0, false, 0);
                self.corrections.error[index] = 0.0;
            }
        }
    }

    /// Returns the devices that are too slow to be used for some time.
    pub(super) fn failing(&self, machine: &Machine, now_ns: u64) -> PlaceSet {
        let places = machine.places.len();
        let failing = self.ways.iter().enumerate().filter(|(_, way)| way.failing_until_ns > now_ns);
        PlaceSet::of(failing.map(|(index, _)| index % places))
    }

    /// Returns the ratio of a function's rate on a device to the predicted rate, if the device is
    /// not trusted. `way` is the index of this function and device.
    pub(super) fn distrusted(&self, way: usize) -> Option<f64> {
        self.ways[way].distrusted.then(|| 1.0 / self.corrections.cost[way])
    }
}

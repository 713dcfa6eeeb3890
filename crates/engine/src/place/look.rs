//! Computes the observations of the planner from the counts of all workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use godwit_sched::place::{FunctionLoad, LENGTH_CLASSES, Load, Measured, Observation, PlaceSet, length_class_of};

use crate::place::LAST_RESORT;
use crate::place::meter::MeterLayout;

/// A device counts as saturated if an overloaded worker left it idle for at most this fraction of
/// the time. At a low load, it may never be idle either, because it receives small submissions.
const IDLE_MAX: f64 = 0.05;
/// Fill level of the order ring from which a worker counts as overloaded, in thousandths.
const FILL_MIN: u64 = 500;
/// A worker counts as overloaded if this fraction of its loop iterations received full bursts.
const FULL_TURNS: f64 = 0.9;
/// Smallest number of loop iterations from which [`FULL_TURNS`] is computed.
const TURNS_MIN: u64 = 8;

/// Computes rates from the counts of workers at two times.
#[derive(Debug)]
pub(crate) struct Looks {
    layout: MeterLayout,
    before: Vec<Vec<u64>>,
    before_ns: u64,
}

impl Looks {
    pub(crate) fn new(layout: MeterLayout, workers: usize) -> Self {
        Self { layout, before: vec![vec![0; layout.len()]; workers], before_ns: 0 }
    }

    /// Reads the published counts of all workers.
    pub(crate) fn read(meters: &[Arc<[AtomicU64]>]) -> Vec<Vec<u64>> {
        let values = |meter: &Arc<[AtomicU64]>| meter.iter().map(|value| value.load(Ordering::Relaxed)).collect();
        meters.iter().map(values).collect()
    }

    /// Returns the observation for the time since the last call. `now` contains the counts of each
    /// worker. Latencies and lost devices are not set.
    pub(crate) fn look(&mut self, now_ns: u64, now: Vec<Vec<u64>>) -> Observation {
        let layout = self.layout;
        let elapsed_ns = now_ns.saturating_sub(self.before_ns) as f64;
        let of_worker =
            |worker: usize, position: usize| now[worker][position].saturating_sub(self.before[worker][position]);
        let workers = now.len();
        let sum = |position: usize| (0..workers).map(|worker| of_worker(worker, position)).sum::<u64>();
        let load = |function: usize| {
            let packets: u64 = (0..layout.devices).map(|device| sum(layout.packets(function, device))).sum();
            let classes: [u64; LENGTH_CLASSES] = std::array::from_fn(|class| sum(layout.class(function, class)));
            function_load(packets, sum(layout.bytes(function)), classes, elapsed_ns * 1e-9)
        };
        let functions = (0..layout.functions).map(load).collect();
        let mut measured = vec![Measured::default(); layout.functions * layout.devices];
        for device in 0..layout.devices {
            let busy = |function: usize| sum(layout.busy_ns(function, device));
            let total: u64 = (0..layout.functions).map(busy).sum();
            // Batches overlap on a device, so their times are no device times. While a device is
            // never idle, the elapsed time is its device time.
            let idle_ns = |worker: usize| of_worker(worker, layout.idle_ns(device)) as f64;
            let is_saturated = (0..workers).any(|worker| {
                let busy = |function: usize| of_worker(worker, layout.busy_ns(function, device));
                let is_used = (0..layout.functions).any(|function| busy(function) > 0);
                let is_overloaded = now[worker][MeterLayout::FILL] >= FILL_MIN;
                is_used && is_overloaded && idle_ns(worker) <= IDLE_MAX * elapsed_ns
            });
            for function in 0..layout.functions {
                let packets = sum(layout.packets(function, device));
                let busy_ns = match device {
                    LAST_RESORT => busy(function) as f64,
                    _ if is_saturated && total > 0 => elapsed_ns * busy(function) as f64 / total as f64,
                    _ => continue,
                };
                measured[function * layout.devices + device] = Measured { packets, busy_ns };
            }
        }
        let backlog = |worker: usize| {
            let turns = of_worker(worker, MeterLayout::TURNS);
            let full = of_worker(worker, MeterLayout::FULL_TURNS);
            let is_full = turns >= TURNS_MIN && full as f64 >= FULL_TURNS * turns as f64;
            if is_full { 1.0 } else { (now[worker][MeterLayout::FILL] as f64 / 1000.0).min(1.0) }
        };
        let backlog = (0..workers).map(backlog).fold(0.0, f64::max);
        (self.before, self.before_ns) = (now, now_ns);
        Observation {
            now_ns,
            load: Load { functions },
            measured,
            p99_ns: vec![0.0; layout.functions],
            backlog,
            lost: PlaceSet::default(),
        }
    }
}

/// Returns the load of a function. The lengths are counted at the submission of packets, and the
/// packets at their return, so a short interval may contain only one of both.
fn function_load(packets: u64, bytes: u64, classes: [u64; LENGTH_CLASSES], seconds: f64) -> FunctionLoad {
    let counted: u64 = classes.iter().sum();
    if packets == 0 || seconds <= 0.0 {
        return FunctionLoad::default();
    }
    let pps = packets as f64 / seconds;
    if counted == 0 || bytes == 0 {
        let unknown = length_class_of(0);
        let mut load = FunctionLoad { pps, bytes: 60.0, ..FunctionLoad::default() };
        load.classes[unknown] = 1.0;
        return load;
    }
    let share = |count: u64| count as f64 / counted as f64;
    FunctionLoad { pps, bytes: bytes as f64 / counted as f64, classes: classes.map(share) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: MeterLayout = MeterLayout { functions: 2, devices: 2 };
    const LOOK_NS: u64 = 10_000_000;

    fn counts(values: &[(usize, u64)]) -> Vec<u64> {
        let mut counts = vec![0; LAYOUT.len()];
        values.iter().for_each(|&(position, value)| counts[position] = value);
        counts
    }

    #[test]
    fn counts_of_workers_become_rates_and_lengths() {
        let mut looks = Looks::new(LAYOUT, 2);
        let worker = counts(&[
            (LAYOUT.packets(0, 0), 100),
            (LAYOUT.busy_ns(0, 0), 5_000),
            (LAYOUT.bytes(0), 6_000),
            (LAYOUT.class(0, 0), 100),
            (LAYOUT.packets(1, 1), 300),
            (LAYOUT.bytes(1), 300 * 780),
            (LAYOUT.class(1, 0), 150),
            (LAYOUT.class(1, 3), 150),
            (LAYOUT.idle_ns(1), LOOK_NS),
        ]);
        let seen = looks.look(LOOK_NS, vec![worker.clone(), worker.clone()]);
        assert_eq!(seen.load.functions[0], FunctionLoad::fixed(20_000.0, 60));
        let classes = [0.5, 0.0, 0.0, 0.5];
        assert_eq!(seen.load.functions[1], FunctionLoad { pps: 60_000.0, bytes: 780.0, classes });
        assert_eq!(seen.measured[0], Measured { packets: 200, busy_ns: 10_000.0 });
        // The device was idle, so its batches do not show its speed.
        assert_eq!(seen.measured[3], Measured::default());
        assert_eq!(seen.backlog, 0.0);
        let still = looks.look(2 * LOOK_NS, vec![worker.clone(), worker]);
        assert_eq!(still.load.pps(), 0.0);
    }

    #[test]
    fn a_device_that_is_never_idle_in_an_overload_shows_its_speed() {
        let mut looks = Looks::new(LAYOUT, 2);
        let busy = counts(&[
            (MeterLayout::FILL, 900),
            (LAYOUT.packets(0, 1), 600),
            (LAYOUT.busy_ns(0, 1), 30 * LOOK_NS),
            (LAYOUT.packets(1, 1), 100),
            (LAYOUT.busy_ns(1, 1), 10 * LOOK_NS),
        ]);
        let idle = counts(&[(LAYOUT.idle_ns(1), LOOK_NS), (LAYOUT.idle_ns(0), LOOK_NS)]);
        let seen = looks.look(LOOK_NS, vec![busy, idle]);
        assert_eq!(seen.measured[1], Measured { packets: 600, busy_ns: 0.75 * LOOK_NS as f64 });
        assert_eq!(seen.measured[3], Measured { packets: 100, busy_ns: 0.25 * LOOK_NS as f64 });
        // Without an overload, the device may receive small submissions one after another.
        let small = counts(&[(LAYOUT.packets(0, 1), 600), (LAYOUT.busy_ns(0, 1), LOOK_NS)]);
        let seen = Looks::new(LAYOUT, 1).look(LOOK_NS, vec![small]);
        assert_eq!(seen.measured[1], Measured::default());
    }

    #[test]
    fn the_fullest_worker_determines_the_backlog() {
        let backlog =
            |values: &[(usize, u64)]| Looks::new(LAYOUT, 2).look(LOOK_NS, vec![counts(&[]), counts(values)]).backlog;
        assert_eq!(backlog(&[(MeterLayout::FILL, 625)]), 0.625);
        assert_eq!(backlog(&[(MeterLayout::TURNS, 100), (MeterLayout::FULL_TURNS, 95)]), 1.0);
        assert_eq!(backlog(&[(MeterLayout::TURNS, 100), (MeterLayout::FULL_TURNS, 80)]), 0.0);
        assert_eq!(backlog(&[(MeterLayout::TURNS, 4), (MeterLayout::FULL_TURNS, 4)]), 0.0);
    }
}

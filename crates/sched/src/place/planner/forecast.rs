//! Forecast of the load from the last measurements.

use super::super::load::{FunctionLoad, LENGTH_CLASSES, Load};

/// Number of load measurements over which the mean is computed. The planner measures the load every
/// 10 ms, so the mean covers 50 ms.
const WINDOW: usize = 5;

/// The load counts as falling if the forecast exceeds the latest measurement by more than this
/// factor.
const FALLING: f64 = 1.1;

/// Packets, bytes, and packets in each length class per second, from one measurement.
type Sums = [f64; 2 + LENGTH_CLASSES];

/// Load forecast. For each function, it is the larger of the latest measurement and the mean of the
/// last few measurements.
///
/// The forecast rises with a single measurement. It falls only when the mean has fallen. A short
/// gap in the traffic therefore has little effect.
#[derive(Debug)]
pub(super) struct Forecast {
    /// Sums for each measurement and function, at index `measurement * functions + function`.
    looks: Vec<Sums>,
    next: usize,
    filled: usize,
    /// Sums over all measurements of the window.
    totals: Vec<Sums>,
    load: Load,
    last_pps: f64,
}

impl Forecast {
    pub(super) fn new(functions: usize) -> Self {
        Self {
            looks: vec![[0.0; 2 + LENGTH_CLASSES]; WINDOW * functions],
            next: 0,
            filled: 0,
            totals: vec![[0.0; 2 + LENGTH_CLASSES]; functions],
            load: Load { functions: vec![FunctionLoad::default(); functions] },
            last_pps: 0.0,
        }
    }

    /// Adds one measurement of the load and returns the new forecast.
    pub(super) fn push(&mut self, seen: &Load) -> &Load {
        let functions = self.totals.len();
        self.filled = (self.filled + 1).min(WINDOW);
        let looks = &mut self.looks[self.next * functions..][..functions];
        self.next = (self.next + 1) % WINDOW;
        self.last_pps = seen.pps();
        for (((function, total), look), forecast) in
            seen.functions.iter().zip(&mut self.totals).zip(looks).zip(&mut self.load.functions)
        {
            let sums = sums(function);
            let old = std::mem::replace(look, sums);
            for ((total, new), old) in total.iter_mut().zip(sums).zip(old) {
                // Rounding errors of earlier measurements must not leave a negative rate.
                *total = (*total + new - old).max(0.0);
            }
            let mean_pps = total[0] / self.filled as f64;
            *forecast = if function.pps >= mean_pps { *function } else { mean(total, mean_pps) };
        }
        &self.load
    }

    /// Returns whether the forecast is still clearly above the latest measurement.
    pub(super) fn is_falling(&self) -> bool {
        self.load.pps() > FALLING * self.last_pps
    }

    pub(super) fn load(&self) -> &Load {
        &self.load
    }
}

fn sums(function: &FunctionLoad) -> Sums {
    let mut sums = [0.0; 2 + LENGTH_CLASSES];
    (sums[0], sums[1]) = (function.pps, function.pps * function.bytes);
    sums[2..].iter_mut().zip(function.classes).for_each(|(sum, share)| *sum = function.pps * share);
    sums
}

fn mean(total: &Sums, pps: f64) -> FunctionLoad {
    let mut classes = [0.0; LENGTH_CLASSES];
    classes.iter_mut().zip(&total[2..]).for_each(|(class, sum)| *class = sum / total[0]);
    FunctionLoad { pps, bytes: total[1] / total[0], classes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(forecast: &mut Forecast, pps: f64, bytes: u16) -> FunctionLoad {
        forecast.push(&Load { functions: vec![FunctionLoad::fixed(pps, bytes)] }).functions[0]
    }

    #[test]
    fn rises_at_once_and_falls_with_the_mean() {
        let mut forecast = Forecast::new(1);
        for _ in 0..20 {
            assert_eq!(push(&mut forecast, 1000.0, 60), FunctionLoad::fixed(1000.0, 60));
        }
        assert_eq!(push(&mut forecast, 5000.0, 1500).pps, 5000.0);
        let after = push(&mut forecast, 0.0, 60);
        assert!((after.pps - 1600.0).abs() < 1e-6, "{after:?}");
        // The load consists of 3000 packets of 60 bytes and 5000 packets of 1500 bytes.
        assert!((after.bytes - 7_680_000.0 / 8000.0).abs() < 1e-6, "{after:?}");
        assert!((after.classes[3] - 5.0 / 8.0).abs() < 1e-9 && (after.classes[0] - 3.0 / 8.0).abs() < 1e-9);
        for _ in 0..10 {
            push(&mut forecast, 0.0, 60);
        }
        assert!(forecast.load().pps() < 1e-6);
    }

    #[test]
    fn first_looks_do_not_count_the_empty_window() {
        let mut forecast = Forecast::new(1);
        push(&mut forecast, 1000.0, 60);
        assert!((push(&mut forecast, 500.0, 60).pps - 750.0).abs() < 1e-9);
    }
}

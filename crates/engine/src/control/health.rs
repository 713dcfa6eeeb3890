//! Detects hung workers, and packet functions whose periodic work ended because of a bug.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::observe::counters::LOOPS;
use crate::observe::report::HealthReport;

/// Time without a loop iteration after which a worker counts as hung.
///
/// No normal loop iteration takes this long, because an unresponsive device is declared lost
/// earlier. A worker to which the system gives no CPU time also counts as hung.
const HANG_LIMIT: Duration = Duration::from_secs(10);

/// State of the worker threads and the housekeeping thread.
#[derive(Debug)]
pub(crate) struct Health {
    workers: Vec<Progress>,
    disabled: Disabled,
}

/// Names of the functions whose housekeeping is disabled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disabled(Arc<Mutex<Vec<String>>>);

impl Disabled {
    /// Records that a function's housekeeping is disabled.
    pub(crate) fn add(&self, function: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(function.to_owned());
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[derive(Debug)]
struct Progress {
    loops: u64,
    since: Instant,
    is_hung: bool,
}

impl Health {
    pub(crate) fn new(workers: usize, disabled: Disabled) -> Self {
        let progress = || Progress { loops: 0, since: Instant::now(), is_hung: false };
        Self { workers: (0..workers).map(|_| progress()).collect(), disabled }
    }

    /// Checks the loop counters of all workers. Returns the workers that became hung, or that are
    /// no longer hung.
    ///
    /// `has_ended` returns whether the thread of a worker has ended. A returned pair contains the
    /// index of a worker, and whether it is now hung.
    pub(crate) fn check(
        &mut self,
        counters: &[Arc<[AtomicU64]>],
        has_ended: impl Fn(usize) -> bool,
        now: Instant,
    ) -> Vec<(usize, bool)> {
        let mut changed = Vec::new();
        for (worker, (progress, counters)) in self.workers.iter_mut().zip(counters).enumerate() {
            let loops = counters[LOOPS].load(Ordering::Relaxed);
            if loops != progress.loops || has_ended(worker) {
                *progress = Progress { loops, since: now, is_hung: progress.is_hung };
            }
            let is_hung = now.saturating_duration_since(progress.since) >= HANG_LIMIT;
            if std::mem::replace(&mut progress.is_hung, is_hung) != is_hung {
                changed.push((worker, is_hung));
            }
        }
        changed
    }

    /// Returns the first worker that is hung.
    pub(crate) fn hung_worker(&self) -> Option<usize> {
        self.workers.iter().position(|worker| worker.is_hung)
    }

    pub(crate) fn report(&self) -> HealthReport {
        let hung = |(worker, progress): (usize, &Progress)| progress.is_hung.then_some(worker);
        HealthReport {
            hung_workers: self.workers.iter().enumerate().filter_map(hung).collect(),
            disabled_housekeeping: self.disabled.names(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_progress_is_hung_until_it_continues() {
        let counters: Vec<Arc<[AtomicU64]>> =
            (0..3).map(|_| (0..=LOOPS).map(|_| AtomicU64::new(0)).collect()).collect();
        let mut health = Health::new(3, Disabled::default());
        let start = Instant::now();
        let check =
            |health: &mut Health, ms| health.check(&counters, |worker| worker == 2, start + Duration::from_millis(ms));
        counters[0][LOOPS].store(7, Ordering::Relaxed);
        assert_eq!(check(&mut health, 1000), []);
        counters[0][LOOPS].store(8, Ordering::Relaxed);
        assert_eq!(check(&mut health, 11_000), [(1, true)]);
        assert_eq!((health.hung_worker(), health.report().hung_workers), (Some(1), vec![1]));
        assert_eq!(check(&mut health, 11_500), []);
        counters[1][LOOPS].store(1, Ordering::Relaxed);
        assert_eq!(check(&mut health, 12_000), [(1, false)]);
        assert_eq!((health.hung_worker(), health.report().is_well()), (None, true));
    }
}

//! Counters, from the workers to the control thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use godwit_nids::stats::{NAMES, Stats};

type Shared = Arc<[AtomicU64; NAMES.len()]>;

/// Counters of all workers.
#[derive(Default)]
pub(super) struct Published {
    workers: Mutex<Vec<Shared>>,
}

/// Counters of one worker, which is their only writer.
pub(super) struct WorkerCounters(Shared);

impl Published {
    /// Returns the counters of a worker. They start at 0.
    pub(super) fn worker(&self, worker: usize) -> WorkerCounters {
        let zero = || Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        while workers.len() <= worker {
            workers.push(zero());
        }
        workers[worker] = zero();
        WorkerCounters(Arc::clone(&workers[worker]))
    }

    /// Returns the sums over all workers.
    pub(super) fn sum(&self) -> Stats {
        let mut sums = [0; NAMES.len()];
        for worker in self.workers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            for (sum, counter) in sums.iter_mut().zip(worker.iter()) {
                *sum += counter.load(Ordering::Relaxed);
            }
        }
        sums
    }
}

impl WorkerCounters {
    /// Publishes new values.
    pub(super) fn publish(&self, stats: &Stats) {
        for (counter, value) in self.0.iter().zip(stats) {
            counter.store(*value, Ordering::Relaxed);
        }
    }
}

//! Counters that the workers publish for the control thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use godwit_nids::stats::{NAMES, Stats};

type Shared = Arc<[AtomicU64; NAMES.len()]>;

/// Published counters of all workers.
#[derive(Default)]
pub(super) struct Published {
    workers: Mutex<Vec<Shared>>,
}

/// Counters of one worker that other threads can read. Only this worker writes them.
pub(super) struct WorkerCounters(Shared);

impl Published {
    /// Creates the counters of a worker with the value 0.
    pub(super) fn worker(&self, worker: usize) -> WorkerCounters {
        let zero = || Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        while workers.len() <= worker {
            workers.push(zero());
        }
        workers[worker] = zero();
        WorkerCounters(Arc::clone(&workers[worker]))
    }

    /// Returns the sum of each counter over all workers.
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
    /// Publishes the new values of all counters.
    pub(super) fn publish(&self, stats: &Stats) {
        for (counter, value) in self.0.iter().zip(stats) {
            counter.store(*value, Ordering::Relaxed);
        }
    }
}

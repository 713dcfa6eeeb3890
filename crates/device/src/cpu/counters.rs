//! Counters that kernels increment on the CPU. Each worker counts in its own memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Values of one worker that other threads read, per program.
pub(super) type Published = Arc<[Box<[AtomicU64]>]>;

/// Counters of one worker, per program.
pub(super) struct Counters {
    local: Vec<Vec<u64>>,
    published: Published,
}

impl Counters {
    /// Creates the counters. `counts` contains the number of counters per program.
    pub(super) fn new(counts: impl Iterator<Item = usize> + Clone) -> Self {
        let published = counts.clone().map(|count| (0..count).map(|_| AtomicU64::new(0)).collect()).collect();
        Self { local: counts.map(|count| vec![0; count]).collect(), published }
    }

    /// Returns the values that other threads read.
    pub(super) fn published(&self) -> Published {
        Arc::clone(&self.published)
    }

    /// Returns the counters that the program's kernel increments.
    pub(super) fn of_mut(&mut self, program: usize) -> &mut [u64] {
        &mut self.local[program]
    }

    /// Publishes a program's counters to other threads.
    pub(super) fn publish(&self, program: usize) {
        for (published, value) in self.published[program].iter().zip(&self.local[program]) {
            published.store(*value, Ordering::Relaxed);
        }
    }
}

/// Sums the published counters of a program over all workers.
pub(super) fn sum(workers: &[Published], program: usize, count: usize) -> Vec<u64> {
    let of_worker = |counter: usize| move |worker: &Published| worker[program][counter].load(Ordering::Relaxed);
    (0..count).map(|counter| workers.iter().map(of_worker(counter)).sum()).collect()
}

//! Epochs are numbered requests to all workers. Each worker answers a request when it has done its
//! part. Grace periods, plan changes and traces each have separate epochs.
//!
//! ```text
//! control thread   ask() = 7 ----------------------------> wait(7): all answers are at least 7
//! worker 0                   | requested() = 7 | its part is done: answer(7)
//! worker 1                          | requested() = 7 | ends: counts as an answer to all requests
//! ```
//! A worker checks for a request once per loop iteration. The check loads one cache line that is
//! rarely written, and no worker waits. If several requests are open, a worker may answer only the
//! last one.
//!
//! # Ordering
//!
//! The number of the request is written with release and read with acquire ordering. Writes of the
//! control thread before [`Epochs::ask`] therefore happen before the iteration that sees the
//! number. Answers have the same ordering in the other direction: the work of a worker before its
//! answer happens before the control thread sees the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_micros(50);
/// Answer of a worker that has ended. It exceeds the number of every request, so it answers all
/// requests.
const ENDED: u64 = u64::MAX;

/// Requests of one kind to all workers, and their answers.
#[derive(Debug)]
pub(crate) struct Epochs {
    requested: AtomicU64,
    answers: Box<[Answer]>,
}

/// Number of the last request that a worker has answered. It fills a cache line, because workers
/// that write to the same line would slow each other down.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Answer(AtomicU64);

impl Epochs {
    /// Creates the epochs of `workers` workers, without a request.
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        let answers = (0..workers).map(|_| Answer::default()).collect();
        Arc::new(Self { requested: AtomicU64::new(0), answers })
    }

    /// Returns the handle with which a worker receives requests. It must exist before the worker
    /// starts.
    pub(crate) fn of_worker(self: &Arc<Self>, worker: usize) -> WorkerEpoch {
        WorkerEpoch { shared: Arc::clone(self), worker, answered: 0 }
    }

    /// Sends a request to all workers and returns the number of the request. Numbers start at 1.
    pub(crate) fn ask(&self) -> u64 {
        self.requested.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns the number of the last request.
    pub(crate) fn requested(&self) -> u64 {
        self.requested.load(Ordering::Acquire)
    }

    /// Returns whether all workers have answered request `number` or a later one.
    pub(crate) fn is_answered(&self, number: u64) -> bool {
        self.answers.iter().all(|Answer(answer)| answer.load(Ordering::Acquire) >= number)
    }

    /// Returns whether all workers have ended.
    pub(crate) fn have_all_ended(&self) -> bool {
        self.is_answered(ENDED)
    }

    /// Waits until all workers have answered request `number`. Returns false if `limit` expires
    /// first.
    pub(crate) fn wait(&self, number: u64, limit: Duration) -> bool {
        let started = Instant::now();
        while !self.is_answered(number) {
            if started.elapsed() > limit {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }
}

/// Handle with which one worker receives and answers numbered requests of the control thread. When
/// the handle is dropped, the worker counts as ended.
#[derive(Debug)]
pub(crate) struct WorkerEpoch {
    shared: Arc<Epochs>,
    worker: usize,
    answered: u64,
}

impl WorkerEpoch {
    /// Returns the number of the last request, or `None` if the worker has already answered it.
    #[inline]
    pub(crate) fn requested(&self) -> Option<u64> {
        let number = self.shared.requested();
        (number != self.answered).then_some(number)
    }

    /// Answers request `number` and all earlier requests.
    pub(crate) fn answer(&mut self, number: u64) {
        self.answered = number;
        self.shared.answers[self.worker].0.store(number, Ordering::Release);
    }
}

impl Drop for WorkerEpoch {
    fn drop(&mut self) {
        self.shared.answers[self.worker].0.store(ENDED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;

    #[test]
    fn request_is_answered_when_each_worker_has_answered_it_or_a_later_one() {
        let epochs = Epochs::new(2);
        let (mut first, mut second) = (epochs.of_worker(0), epochs.of_worker(1));
        assert_eq!(first.requested(), None);
        assert_eq!((epochs.ask(), epochs.ask()), (1, 2));
        assert_eq!((first.requested(), second.requested()), (Some(2), Some(2)));
        first.answer(1);
        second.answer(2);
        assert_eq!((first.requested(), second.requested()), (Some(2), None));
        assert!(epochs.is_answered(1) && !epochs.wait(2, AT_ONCE));
        first.answer(2);
        assert!(epochs.wait(2, AT_ONCE));
    }

    #[test]
    fn ended_worker_counts_as_answered() {
        let epochs = Epochs::new(2);
        let first = epochs.of_worker(0);
        drop(epochs.of_worker(1));
        let number = epochs.ask();
        assert!(!epochs.is_answered(number) && !epochs.have_all_ended());
        drop(first);
        assert!(epochs.is_answered(number) && epochs.have_all_ended());
    }
}

//! Grace periods: a grace period ends when all packets that were in flight at its start are gone.
//!
//! The control thread increments a number. Each worker reads it once per loop iteration. When the
//! number has changed, the worker notes the number of arrived packets. After the exit has passed
//! all of them, the worker answers with the number. No thread waits on the packet path. An
//! iteration costs one load of a cache line that is rarely written. Before a worker answers, it
//! wipes its stack, because kernels may have left key material of these packets there.
//!
//! # Ordering
//!
//! `asked` is written with release and read with acquire ordering. Writes of the control thread
//! before the request, such as the removal of a table entry, therefore happen before the iteration
//! that sees the number. Packets that are prepared in that iteration or later see the writes. All
//! other packets have arrived by then. Work of the workers on those packets happens before the
//! control thread sees the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use godwit_packet::wipe_stack;

/// Interval at which the control thread polls for answers.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);
/// Answer of an ended worker in place of a number. It is greater than the number of any grace
/// period.
const ENDED: u64 = u64::MAX;

/// State of grace periods that the control thread and the workers share.
#[derive(Debug)]
pub(crate) struct GracePeriods {
    requested: AtomicU64,
    workers: Box<[Answer]>,
}

/// Number of the last grace period that ended on a worker. It has its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Answer(AtomicU64);

impl GracePeriods {
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self { requested: AtomicU64::new(0), workers: (0..workers).map(|_| Answer::default()).collect() })
    }

    /// Returns the worker's part of grace periods for worker `worker`. It must exist before the
    /// worker starts. Dropping it reports that the worker has ended.
    pub(crate) fn of_worker(self: &Arc<Self>, worker: usize) -> WorkerGrace {
        WorkerGrace { shared: Arc::clone(self), worker, answered: 0, waiting: None }
    }

    /// Starts a grace period and returns its number.
    pub(crate) fn ask(&self) -> u64 {
        self.requested.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns whether grace period `number` has ended on all workers.
    pub(crate) fn is_answered(&self, number: u64) -> bool {
        self.workers.iter().all(|Answer(answer)| answer.load(Ordering::Acquire) >= number)
    }

    /// Waits until all packets that have arrived are gone from the workers and devices. Returns
    /// false if `limit` expires first.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let number = self.ask();
        let started = Instant::now();
        while !self.is_answered(number) {
            if started.elapsed() > limit {
                return false;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        true
    }
}

/// One worker's part of grace periods: its last answer, and the period that is running.
#[derive(Debug)]
pub(crate) struct WorkerGrace {
    shared: Arc<GracePeriods>,
    worker: usize,
    answered: u64,
    /// Number of the running grace period, and the number of packets that had arrived at its start.
    /// It ends when the exit has passed that many order-ring slots.
    waiting: Option<(u64, usize)>,
}

impl WorkerGrace {
    /// Checks for a new grace period and for the end of the running one. The worker calls this at
    /// the end of each loop iteration. `arrived` and `passed` count order-ring slots since the
    /// start of the engine.
    #[inline]
    pub(crate) fn poll(&mut self, arrived: usize, passed: usize) {
        let requested = self.shared.requested.load(Ordering::Acquire);
        if requested != self.answered {
            self.answer(requested, arrived, passed);
        }
    }

    #[cold]
    fn answer(&mut self, requested: u64, arrived: usize, passed: usize) {
        // Only one grace period runs at a time. A request during a grace period starts the next
        // one.
        let (number, until) = *self.waiting.get_or_insert((requested, arrived));
        if passed >= until {
            self.waiting = None;
            self.answered = number;
            // Callers wipe keys from tables after a grace period. Kernels may have left copies of
            // these keys on the stack, so they are wiped here.
            wipe_stack();
            self.shared.workers[self.worker].0.store(number, Ordering::Release);
        }
    }
}

impl Drop for WorkerGrace {
    fn drop(&mut self) {
        self.shared.workers[self.worker].0.store(ENDED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;
    const IN_TIME: Duration = Duration::from_secs(60);

    #[test]
    fn grace_period_ends_when_earlier_packets_are_gone() {
        let graces = GracePeriods::new(2);
        let (mut first, mut second) = (graces.of_worker(0), graces.of_worker(1));
        assert!(!graces.wait(AT_ONCE), "no worker has answered");
        first.poll(10, 7);
        second.poll(0, 0);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| graces.wait(IN_TIME));
            while graces.requested.load(Ordering::Relaxed) < 2 {
                std::thread::yield_now();
            }
            // The first grace period ends here. Packets that arrived after its start do not belong
            // to it.
            first.poll(12, 10);
            first.poll(13, 11);
            second.poll(0, 0);
            std::thread::sleep(Duration::from_millis(5));
            assert!(!waiting.is_finished(), "a packet that arrived before the request is still in flight");
            first.poll(20, 13);
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn ended_worker_does_not_delay_a_grace_period() {
        let graces = GracePeriods::new(2);
        let mut first = graces.of_worker(0);
        drop(graces.of_worker(1));
        assert!(!graces.wait(AT_ONCE));
        first.poll(1, 0);
        first.poll(1, 1);
        drop(first);
        assert!(graces.wait(AT_ONCE));
    }
}

//! Grace periods. A grace period ends when all packets that were in flight at its start have left.
//!
//! The control thread starts a grace period with a request ([`Epochs`]). When a worker sees the
//! request, it notes how many packets have arrived. After all of these packets have left, the
//! worker wipes its stack, because kernels may have left key material there. The worker then
//! answers the request.
//!
//! Writes of the control thread before the request, such as the removal of a table entry, happen
//! before the loop iteration that sees the request. Packets that are prepared in that iteration or
//! later see the writes. All other packets have arrived before that iteration.

use std::sync::Arc;
use std::time::Duration;

use godwit_packet::wipe_stack;

use crate::plan::epoch::{Epochs, WorkerEpoch};

/// Handle with which the control thread starts grace periods.
#[derive(Clone, Debug)]
pub(crate) struct GracePeriods(Arc<Epochs>);

impl GracePeriods {
    pub(crate) fn new(workers: usize) -> Self {
        Self(Epochs::new(workers))
    }

    /// Returns the handle with which a worker takes part in grace periods. It must exist before the
    /// worker starts. When it is dropped, the worker counts as ended.
    pub(crate) fn of_worker(&self, worker: usize) -> WorkerGrace {
        WorkerGrace { epoch: self.0.of_worker(worker), waiting: None }
    }

    /// Starts a grace period and returns its number.
    pub(crate) fn ask(&self) -> u64 {
        self.0.ask()
    }

    /// Returns whether all workers have ended grace period `number`.
    pub(crate) fn is_answered(&self, number: u64) -> bool {
        self.0.is_answered(number)
    }

    /// Starts a grace period, and waits until all earlier packets have left. Returns false if
    /// `limit` expires first.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        self.0.wait(self.0.ask(), limit)
    }
}

/// State of one worker in grace periods.
#[derive(Debug)]
pub(crate) struct WorkerGrace {
    epoch: WorkerEpoch,
    /// Number of the current grace period, and the number of packets that had arrived at its start.
    /// The grace period ends when all of them have left.
    waiting: Option<(u64, usize)>,
}

impl WorkerGrace {
    /// Checks whether a grace period begins or ends. The worker calls this method once per loop
    /// iteration. `arrived` and `passed` count the packets that have reached and left the worker
    /// since its start.
    #[inline]
    pub(crate) fn poll(&mut self, arrived: usize, passed: usize) {
        if let Some(requested) = self.epoch.requested() {
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
            // A kernel may have left a copy of a key on the stack of this thread. The stack is
            // wiped before the answer, because the caller then wipes the keys that it removed.
            wipe_stack();
            self.epoch.answer(number);
        }
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
            while graces.0.requested() < 2 {
                std::thread::yield_now();
            }
            // All packets that arrived before the first request have left, so the first grace
            // period ends here.
            first.poll(12, 10);
            first.poll(13, 11);
            second.poll(0, 0);
            std::thread::sleep(Duration::from_millis(5));
            assert!(!waiting.is_finished(), "a packet that arrived before the request is still in flight");
            first.poll(20, 13);
            assert!(waiting.join().unwrap());
        });
    }
}

//! Grace periods: when all packets that were in flight at some moment are gone.
//!
//! The control thread asks by raising a number. Every worker looks at it once a turn; when it has risen, the worker notes
//! which packets have arrived, and when the exit has passed all of these, answers with the number. Neither waits for the
//! other on the packet path: a turn costs a load of a line that nobody writes. Before it answers, the worker wipes what these packets'
//! kernels have left on its stack.
//!
//! # Ordering
//!
//! What the control thread did before it asked (made an entry of a table unfindable) happens before the worker's turn
//! that sees the number: release and acquire of `asked`. So packets that are prepared in that turn or later see it, and
//! all others have arrived by then. What workers did with those happens before the control thread sees the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use godwit_packet::wipe_stack;

/// How often the control thread looks for answers.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);
/// The answer of a worker that has ended.
const ENDED: u64 = u64::MAX;

/// What the control thread has.
#[derive(Debug)]
pub(crate) struct Graces {
    asked: AtomicU64,
    workers: Box<[Answer]>,
}

/// A worker's answer, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Answer(AtomicU64);

impl Graces {
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self { asked: AtomicU64::new(0), workers: (0..workers).map(|_| Answer::default()).collect() })
    }

    /// Worker `worker`'s end, which it has from before it starts until it ends.
    pub(crate) fn of_worker(self: &Arc<Self>, worker: usize) -> Grace {
        Grace { shared: Arc::clone(self), worker, answered: 0, waiting: None }
    }

    /// Asks for every packet that has arrived to be gone; the number to look for answers with.
    pub(crate) fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether all workers have answered.
    pub(crate) fn is_answered(&self, number: u64) -> bool {
        self.workers.iter().all(|Answer(answer)| answer.load(Ordering::Acquire) >= number)
    }

    /// Waits until every packet that has arrived is gone, wherever it is now. False: not within `limit`.
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

/// What a worker has.
#[derive(Debug)]
pub(crate) struct Grace {
    shared: Arc<Graces>,
    worker: usize,
    answered: u64,
    /// The number to answer with, and the packets that must be gone by then: all places below.
    waiting: Option<(u64, usize)>,
}

impl Grace {
    /// Once a turn, at its end. `arrived` and `passed`: places handed out, and passed by the exit, since the start.
    #[inline]
    pub(crate) fn turn(&mut self, arrived: usize, passed: usize) {
        let asked = self.shared.asked.load(Ordering::Acquire);
        if asked != self.answered {
            self.answer(asked, arrived, passed);
        }
    }

    #[cold]
    fn answer(&mut self, asked: u64, arrived: usize, passed: usize) {
        // One question after the other: those that come meanwhile are answered behind this one.
        let (number, until) = *self.waiting.get_or_insert((asked, arrived));
        if passed >= until {
            self.waiting = None;
            self.answered = number;
            // What is wiped once these packets are gone, keys, may be on the stack, too: kernels have run there.
            wipe_stack();
            self.shared.workers[self.worker].0.store(number, Ordering::Release);
        }
    }
}

impl Drop for Grace {
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
    fn all_that_has_arrived_must_be_gone() {
        let graces = Graces::new(2);
        let (mut one, mut other) = (graces.of_worker(0), graces.of_worker(1));
        assert!(!graces.wait(AT_ONCE), "nobody has answered");
        one.turn(10, 7);
        other.turn(0, 0);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| graces.wait(IN_TIME));
            while graces.asked.load(Ordering::Relaxed) < 2 {
                std::thread::yield_now();
            }
            // Answers the first question: what arrived since it was asked does not count.
            one.turn(12, 10);
            one.turn(13, 11);
            other.turn(0, 0);
            std::thread::sleep(Duration::from_millis(5));
            assert!(!waiting.is_finished(), "a packet that was there when the question was seen is still there");
            one.turn(20, 13);
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn who_has_ended_is_not_waited_for() {
        let graces = Graces::new(2);
        let mut one = graces.of_worker(0);
        drop(graces.of_worker(1));
        assert!(!graces.wait(AT_ONCE));
        one.turn(1, 0);
        one.turn(1, 1);
        drop(one);
        assert!(graces.wait(AT_ONCE));
    }
}

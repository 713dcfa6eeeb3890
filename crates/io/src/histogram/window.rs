//! Windowed histogram. One thread records values, and another thread reads the values that were
//! recorded since its last read.
//!
//! There are two sets of counts. The lowest bit of an epoch number selects the set that the
//! recording thread writes. The reading thread requests the next epoch. After the recording thread
//! has switched to it, the reading thread reads the other set. Neither thread waits for the other
//! one.
//!
//! ```text
//! reader     requested = 1 ........ sees answered = 1: reads and clears set 0, requested = 2 ...
//! recorder   ... writes set 0 ... turn: answered = 1, writes set 1 .................... turn ...
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{BUCKETS, Histogram, bucket};

/// One set of counts. Only one thread at a time writes to a set, so plain loads and stores are
/// sufficient.
#[derive(Debug)]
struct Set {
    counts: Box<[AtomicU64]>,
    max: AtomicU64,
}

impl Set {
    fn new() -> Self {
        Self { counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), max: AtomicU64::new(0) }
    }
}

#[derive(Debug)]
struct Shared {
    sets: [Set; 2],
    /// Epoch number that the reading thread requests. Its lowest bit selects the set of counts that
    /// the recording thread writes.
    requested: AtomicU64,
    /// Epoch number that the recording thread currently uses.
    answered: AtomicU64,
}

/// Creates a windowed histogram. Returns the part for the thread that records values, and the part
/// for the thread that reads them.
pub fn window() -> (Recorder, Window) {
    let shared = Shared { sets: [Set::new(), Set::new()], requested: AtomicU64::new(0), answered: AtomicU64::new(0) };
    let shared = Arc::new(shared);
    (Recorder { shared: Arc::clone(&shared), epoch: 0 }, Window { shared })
}

/// Part of a windowed histogram that records values. Only one thread uses it.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    epoch: u64,
}

impl Recorder {
    /// Adds `value` to the current window, `times` times.
    #[inline]
    pub fn record(&mut self, value: u64, times: u64) {
        let set = &self.shared.sets[(self.epoch & 1) as usize];
        // Relaxed order is sufficient, because the release store of the next epoch number publishes
        // the counts.
        let add = |counter: &AtomicU64| counter.store(counter.load(Ordering::Relaxed) + times, Ordering::Relaxed);
        add(&set.counts[bucket(value)]);
        if times > 0 && value > set.max.load(Ordering::Relaxed) {
            set.max.store(value, Ordering::Relaxed);
        }
    }

    /// Switches to the epoch that the reading thread has requested. The recording thread must call
    /// this method once per loop iteration, even if it recorded nothing.
    #[inline]
    pub fn turn(&mut self) {
        // Acquire order: the reading thread has cleared the other set of counts before it requested
        // the epoch.
        let requested = self.shared.requested.load(Ordering::Acquire);
        if requested != self.epoch {
            self.epoch = requested;
            // Release order: a reading thread that sees the new epoch also sees all counts of the
            // previous epoch.
            self.shared.answered.store(requested, Ordering::Release);
        }
    }
}

/// Part of a windowed histogram that reads values. Only one thread uses it.
#[derive(Debug)]
pub struct Window {
    shared: Arc<Shared>,
}

impl Window {
    /// Adds all values that were recorded in the last window to `histogram`, and requests the next
    /// window. Returns `false` and adds nothing if the recording thread has not switched to the
    /// requested window yet, for example because it sleeps.
    pub fn take(&mut self, histogram: &mut Histogram) -> bool {
        let requested = self.shared.requested.load(Ordering::Relaxed);
        // Acquire order: this load pairs with the release store in the method `turn`.
        if self.shared.answered.load(Ordering::Acquire) != requested {
            return false;
        }
        // During the first window, the other set of counts is empty.
        let set = &self.shared.sets[(requested & 1 ^ 1) as usize];
        for (count, total) in set.counts.iter().zip(&mut histogram.counts) {
            let recorded = count.load(Ordering::Relaxed);
            if recorded > 0 {
                count.store(0, Ordering::Relaxed);
                *total += recorded;
                histogram.total += recorded;
            }
        }
        histogram.max = histogram.max.max(set.max.swap(0, Ordering::Relaxed));
        self.shared.requested.store(requested + 1, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Record(u64, u64),
        Turn,
        Take,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u64..1 << 30, 0u64..5).prop_map(|(value, times)| Step::Record(value, times)),
            Just(Step::Turn),
            Just(Step::Take),
        ]
    }

    proptest! {
        /// Checks that each recorded value is in exactly one window, and that the windows are
        /// ordered by time.
        #[test]
        fn windows_divide_the_entries(steps in prop::collection::vec(step(), 1..200)) {
            let (mut recorder, mut window) = window();
            let (mut all, mut seen) = (Histogram::default(), Histogram::default());
            // Values that were recorded before the last switch of the epoch. The next window must
            // contain them.
            let mut pending: Vec<(u64, u64)> = Vec::new();
            let mut answered: Vec<(u64, u64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Record(value, times) => {
                        recorder.record(value, times);
                        all.record(value, times);
                        pending.push((value, times));
                    }
                    Step::Turn => {
                        let before = recorder.epoch;
                        recorder.turn();
                        if recorder.epoch != before {
                            answered.append(&mut pending);
                        }
                    }
                    Step::Take => {
                        let mut taken = Histogram::default();
                        if window.take(&mut taken) {
                            let expected: u64 = answered.drain(..).map(|(_, times)| times).sum();
                            prop_assert_eq!(taken.total(), expected);
                            seen.merge(&taken);
                        } else {
                            prop_assert_eq!(taken.total(), 0);
                        }
                    }
                }
            }
            // Two more windows contain all values that were not read yet.
            for _ in 0..3 {
                recorder.turn();
                window.take(&mut seen);
            }
            prop_assert_eq!(&seen.counts, &all.counts);
            prop_assert_eq!((seen.total(), seen.max()), (all.total(), all.max()));
        }
    }

    #[test]
    fn no_entry_is_lost_between_threads() {
        const ENTRIES: u64 = 200_000;
        let (mut recorder, mut window) = window();
        let thread = std::thread::spawn(move || {
            for value in 0..ENTRIES {
                recorder.record(value, 1);
                recorder.turn();
            }
            recorder
        });
        let mut seen = Histogram::default();
        while !thread.is_finished() {
            window.take(&mut seen);
        }
        let mut recorder = thread.join().expect("the thread does not panic");
        for _ in 0..3 {
            recorder.turn();
            window.take(&mut seen);
        }
        assert_eq!((seen.total(), seen.max()), (ENTRIES, ENTRIES - 1));
    }
}

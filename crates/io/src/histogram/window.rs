//! Windowed histogram: one thread records, another reads what was recorded since its last read.
//!
//! There are two sets of counts. The epoch selects the set that the recording thread writes. The
//! reading thread requests the next epoch, and reads the other set when the recording thread has
//! answered. Neither thread waits.
//!
//! ```text
//! reader     requested = 1 ........ sees answered = 1: reads and clears set 0, requested = 2 ...
//! recorder   ... writes set 0 ... turn: answered = 1, writes set 1 .................... turn ...
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{BUCKETS, Histogram, bucket};

/// Counts of one set. Only one thread writes at a time, so plain loads and stores are enough.
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
    /// Epoch that the reader requests. The lowest bit selects the set that is written.
    requested: AtomicU64,
    /// Epoch in which the recorder writes.
    answered: AtomicU64,
}

/// Creates a windowed histogram: the end that records, and the end that reads.
pub fn window() -> (Recorder, Window) {
    let shared = Shared { sets: [Set::new(), Set::new()], requested: AtomicU64::new(0), answered: AtomicU64::new(0) };
    let shared = Arc::new(shared);
    (Recorder { shared: Arc::clone(&shared), epoch: 0 }, Window { shared })
}

/// End that records. It belongs to one thread.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    epoch: u64,
}

impl Recorder {
    /// Adds `value`, `times` times.
    #[inline]
    pub fn record(&mut self, value: u64, times: u64) {
        let set = &self.shared.sets[(self.epoch & 1) as usize];
        // Relaxed: the release of the next epoch publishes the counts.
        let add = |counter: &AtomicU64| counter.store(counter.load(Ordering::Relaxed) + times, Ordering::Relaxed);
        add(&set.counts[bucket(value)]);
        if times > 0 && value > set.max.load(Ordering::Relaxed) {
            set.max.store(value, Ordering::Relaxed);
        }
    }

    /// Answers a request of the reader. Call it once per iteration, also without packets.
    #[inline]
    pub fn turn(&mut self) {
        // Acquire: the reader has cleared the set before its request.
        let requested = self.shared.requested.load(Ordering::Acquire);
        if requested != self.epoch {
            self.epoch = requested;
            // Release: the reader that sees the answer sees all counts of the last epoch.
            self.shared.answered.store(requested, Ordering::Release);
        }
    }
}

/// End that reads. It belongs to one thread.
#[derive(Debug)]
pub struct Window {
    shared: Arc<Shared>,
}

impl Window {
    /// Adds the entries of the last window to `histogram` and requests the next one. Returns
    /// `false` and adds nothing if the recording thread has not answered the last request yet, for
    /// example because it sleeps.
    pub fn take(&mut self, histogram: &mut Histogram) -> bool {
        let requested = self.shared.requested.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `turn`.
        if self.shared.answered.load(Ordering::Acquire) != requested {
            return false;
        }
        // In the first window, the other set is empty.
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
        /// Each entry is in exactly one window, and windows are in order of time.
        #[test]
        fn windows_divide_the_entries(steps in prop::collection::vec(step(), 1..200)) {
            let (mut recorder, mut window) = window();
            let (mut all, mut seen) = (Histogram::default(), Histogram::default());
            // Entries before the last answered request must be in a window that was taken since.
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
            // Two more windows contain the rest.
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

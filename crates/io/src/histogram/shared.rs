//! Histogram that one thread writes while other threads read it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{BUCKETS, Histogram, bucket};

/// Histogram that one thread writes and other threads read without disturbing it. Entries are never
/// removed. The difference of two copies gives the entries of a period.
#[derive(Debug)]
pub struct SharedHistogram {
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for SharedHistogram {
    fn default() -> Self {
        let counts = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        Self { counts, sum: AtomicU64::new(0), max: AtomicU64::new(0) }
    }
}

impl SharedHistogram {
    /// Adds `value` to the histogram `times` times. Only one thread may call this method, so plain
    /// loads and stores are enough.
    #[inline]
    pub fn record(&self, value: u64, times: u64) {
        let add = |counter: &AtomicU64, more: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        add(&self.counts[bucket(value)], times);
        add(&self.sum, value.wrapping_mul(times));
        if times > 0 && value > self.max.load(Ordering::Relaxed) {
            self.max.store(value, Ordering::Relaxed);
        }
    }

    /// Adds all entries to another histogram. May miss an entry that another thread records
    /// meanwhile.
    pub fn add_to(&self, histogram: &mut Histogram) {
        for (count, total) in self.counts.iter().zip(&mut histogram.counts) {
            let recorded = count.load(Ordering::Relaxed);
            *total += recorded;
            histogram.total += recorded;
        }
        histogram.sum = histogram.sum.wrapping_add(self.sum.load(Ordering::Relaxed));
        histogram.max = histogram.max.max(self.max.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_copy_equals_a_plain_histogram(entries in prop::collection::vec((0u64..1 << 40, 0u64..5), 0..200)) {
            let (shared, mut plain, mut copy) = (SharedHistogram::default(), Histogram::default(), Histogram::default());
            for &(value, times) in &entries {
                shared.record(value, times);
                plain.record(value, times);
            }
            shared.add_to(&mut copy);
            prop_assert_eq!(&copy.counts, &plain.counts);
            prop_assert_eq!((copy.total(), copy.sum(), copy.max()), (plain.total(), plain.sum(), plain.max()));
        }
    }

    #[test]
    fn periods_divide_the_entries_between_threads() {
        const ENTRIES: u64 = 200_000;
        let shared = Arc::new(SharedHistogram::default());
        let recorder = Arc::clone(&shared);
        let thread = std::thread::spawn(move || (0..ENTRIES).for_each(|value| recorder.record(value, 1)));
        let (mut last, mut seen) = (Histogram::default(), 0);
        let mut take = || {
            let mut copy = Histogram::default();
            shared.add_to(&mut copy);
            seen += copy.since(&last).total();
            last = copy;
            seen
        };
        while !thread.is_finished() {
            take();
        }
        thread.join().expect("the thread does not panic");
        assert_eq!(take(), ENTRIES);
    }
}

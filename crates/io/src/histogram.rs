//! Histogram of durations. It has a fixed size, and adding an entry costs a few instructions.
//! Quantiles are accurate to 3 %.

mod window;

pub use window::{Recorder, Window, window};

/// Number of buckets between two successive powers of two.
const STEPS: usize = 32;
const STEPS_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = STEPS * (64 - STEPS_BITS as usize + 1);

/// Histogram of integer values. Each value below 32 has its own bucket. Above 32, each range
/// between two powers of two is divided into 32 buckets.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, max: 0 }
    }
}

impl Histogram {
    /// Adds `value` to the histogram, `times` times.
    #[inline]
    pub fn record(&mut self, value: u64, times: u64) {
        if times > 0 {
            self.counts[bucket(value)] += times;
            self.total += times;
            self.max = self.max.max(value);
        }
    }

    /// Adds all entries of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, other)| *count += other);
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// Returns a quantile of the entries. It is the smallest value that at least a fraction `share`
    /// (0 to 1) of the entries does not exceed. The result is accurate to 3 %. Returns 0 if the
    /// histogram is empty.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        bucket.map_or(self.max, upper_bound).min(self.max)
    }

    /// Returns the largest entry.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the number of entries.
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[inline]
fn bucket(value: u64) -> usize {
    if value < STEPS as u64 {
        return value as usize;
    }
    let shift = value.ilog2() - STEPS_BITS;
    (shift as usize + 1) * STEPS + (value >> shift) as usize - STEPS
}

/// Returns the largest value that belongs to a bucket.
fn upper_bound(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let shift = bucket / STEPS - 1;
    let next = (bucket % STEPS + STEPS + 1) as u128;
    ((next << shift) - 1) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket_within_three_percent(value: u64) {
            let bound = upper_bound(bucket(value));
            prop_assert!(value <= bound);
            prop_assert!(bound - value <= value / 32);
        }

        #[test]
        fn quantiles_are_within_three_percent_of_the_sorted_values(mut values in prop::collection::vec(0u64..1 << 40, 1..500)) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.record(value, 1));
            values.sort_unstable();
            for share in [0.5, 0.99, 1.0] {
                let found = histogram.quantile(share);
                let rank = ((values.len() as f64 * share).ceil() as usize).max(1);
                let exact = values[rank - 1];
                prop_assert!(exact <= found && found - exact <= exact / 32, "{share}: {exact} {found}");
            }
        }
    }

    #[test]
    fn largest_value_has_a_bucket() {
        assert!(bucket(u64::MAX) < BUCKETS);
        assert_eq!(upper_bound(bucket(u64::MAX)), u64::MAX);
    }
}

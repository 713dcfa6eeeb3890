//! Histogram of durations. It has a fixed size, and adding an entry is fast. Its quantiles are
//! accurate to 3 %.

mod shared;

pub use shared::SharedHistogram;

/// Number of buckets between two successive powers of two.
const STEPS: usize = 32;
const STEPS_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = STEPS * (64 - STEPS_BITS as usize + 1);

/// Histogram of integer values. Each value below 32 has its own bucket. Each larger range from 2^n
/// to 2^(n+1) is divided into 32 buckets.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Adds `value` to the histogram, `times` times.
    #[inline]
    pub fn record(&mut self, value: u64, times: u64) {
        if times > 0 {
            self.counts[bucket(value)] += times;
            self.total += times;
            self.sum = self.sum.wrapping_add(value.wrapping_mul(times));
            self.max = self.max.max(value);
        }
    }

    /// Adds all entries of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, other)| *count += other);
        self.total += other.total;
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Returns a quantile of the recorded values, accurate to 3 %. `share` is between 0 and 1, so
    /// 0.5 gives the median. Returns 0 if the histogram is empty.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        bucket.map_or(self.max, upper_bound).min(self.max)
    }

    /// Returns a histogram of only the entries that were added since `earlier`, an older copy of
    /// this histogram. The maximum of the result is accurate to 3 %.
    pub fn since(&self, earlier: &Self) -> Self {
        let counts: Vec<u64> =
            self.counts.iter().zip(&earlier.counts).map(|(count, earlier)| count.saturating_sub(*earlier)).collect();
        let last = counts.iter().rposition(|count| *count > 0);
        Self {
            total: counts.iter().sum(),
            sum: self.sum.wrapping_sub(earlier.sum),
            max: last.map_or(0, upper_bound).min(self.max),
            counts,
        }
    }

    /// Returns, for each bound in `bounds`, the number of entries that are at most the bound. The
    /// bounds are in ascending order. A bound is rounded down to the end of a bucket, unless it is
    /// a power of two minus one.
    pub fn cumulative(&self, bounds: &[u64]) -> Vec<u64> {
        let (mut bucket, mut count) = (0, 0);
        let mut up_to = |bound: u64| {
            while bucket < BUCKETS && upper_bound(bucket) <= bound {
                count += self.counts[bucket];
                bucket += 1;
            }
            count
        };
        bounds.iter().map(|&bound| up_to(bound)).collect()
    }

    /// Returns the sum of all entries, modulo 2^64.
    pub fn sum(&self) -> u64 {
        self.sum
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
    fn cumulative_counts_and_periods_follow_the_entries() {
        let mut histogram = Histogram::default();
        [3, 1000, 1023, 1024, 5000].iter().for_each(|&value| histogram.record(value, 2));
        assert_eq!(histogram.cumulative(&[1, 3, 1023, 1 << 20, u64::MAX]), [0, 2, 6, 10, 10]);
        let earlier = histogram.clone();
        histogram.record(100, 7);
        let recent = histogram.since(&earlier);
        assert_eq!((recent.total(), recent.sum(), recent.quantile(0.5)), (7, 700, 100.max(recent.max())));
        assert!(recent.max() >= 100 && recent.max() <= 103, "{}", recent.max());
    }

    #[test]
    fn largest_value_has_a_bucket() {
        assert!(bucket(u64::MAX) < BUCKETS);
        assert_eq!(upper_bound(bucket(u64::MAX)), u64::MAX);
    }
}

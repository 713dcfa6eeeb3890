//! Computes the median, the 99th percentile and the maximum of recorded latencies.

pub(crate) use godwit_io::{Histogram, SharedHistogram};

use crate::observe::report::{Distribution, Latency};

/// Binary logarithms of the upper bounds of a [`Distribution`] in nanoseconds, from 1 µs to 0.5 s.
const BOUND_BITS: std::ops::RangeInclusive<u32> = 10..=29;

pub(crate) trait Figures {
    /// Returns the median, the 99th percentile and the maximum of the recorded latencies. Returns
    /// `None` if the histogram is empty.
    fn latency(&self) -> Option<Latency>;

    /// Returns the number of latencies up to each of twenty bounds. Each bound is twice as large as
    /// the one before.
    fn distribution(&self) -> Distribution;
}

impl Figures for Histogram {
    fn latency(&self) -> Option<Latency> {
        (self.total() > 0).then(|| Latency {
            p50_ns: self.quantile(0.50),
            p99_ns: self.quantile(0.99),
            max_ns: self.max(),
        })
    }

    fn distribution(&self) -> Distribution {
        let bounds: Vec<u64> = BOUND_BITS.map(|bits| (1 << bits) - 1).collect();
        let counts = self.cumulative(&bounds);
        Distribution { buckets: bounds.into_iter().zip(counts).collect(), total: self.total(), sum_ns: self.sum() }
    }
}

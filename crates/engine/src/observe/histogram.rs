//! Computes the median, the 99th percentile and the maximum of a latency histogram.

pub(crate) use godwit_io::Histogram;

use crate::observe::report::Latency;

pub(crate) trait Figures {
    /// Returns the median, the 99th percentile and the maximum of the recorded latencies. Returns
    /// `None` if the histogram is empty.
    fn latency(&self) -> Option<Latency>;
}

impl Figures for Histogram {
    fn latency(&self) -> Option<Latency> {
        (self.total() > 0).then(|| Latency {
            p50_ns: self.quantile(0.50),
            p99_ns: self.quantile(0.99),
            max_ns: self.max(),
        })
    }
}

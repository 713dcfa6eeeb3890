//! The usual figures of a distribution of times.

pub(crate) use godwit_io::Histogram;

use crate::report::Latency;

pub(crate) trait Figures {
    /// `None` when nothing was recorded.
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

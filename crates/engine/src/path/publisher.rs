//! Publishes the counters of queues to other threads.

use std::sync::Arc;

use godwit_io::PortCounters;
use godwit_io::live::SharedCounters;

/// Interval at which the counters are copied for other threads. It is long enough to cost little,
/// and shorter than the intervals at which operators read the counters.
const INTERVAL_NS: u64 = 20_000_000;

/// Copies of the counters of all queues, which other threads read.
#[derive(Debug)]
pub(crate) struct Publisher {
    shared: Vec<Arc<SharedCounters>>,
    /// Time of the next publication on the worker's clock.
    due_ns: u64,
}

impl Publisher {
    pub(crate) fn new(queues: usize) -> Self {
        Self { shared: (0..queues).map(|_| Arc::default()).collect(), due_ns: 0 }
    }

    /// Returns the copies of the counters, one per queue.
    pub(crate) fn shared(&self) -> Vec<Arc<SharedCounters>> {
        self.shared.clone()
    }

    /// Returns whether the counters must be published now.
    #[inline]
    pub(crate) fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns >= self.due_ns;
        if is_due {
            self.due_ns = now_ns + INTERVAL_NS;
        }
        is_due
    }

    /// Publishes the counters of each queue. An element is `None` if the port has no queue.
    pub(crate) fn publish(&self, counters: impl Iterator<Item = Option<PortCounters>>) {
        for (shared, counters) in self.shared.iter().zip(counters) {
            if let Some(counters) = counters {
                shared.publish(&counters);
            }
        }
    }
}

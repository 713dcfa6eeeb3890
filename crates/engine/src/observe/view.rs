//! Worker values that other threads read, and snapshots of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use godwit_io::PortCounters;
use godwit_io::live::SharedCounters;

use crate::observe::counters::{self, WORKED_NS};
use crate::observe::histogram::{Histogram, SharedHistogram};
use crate::place::failover::DeviceLoss;

/// Interval between two entries of the [`History`].
pub(crate) const HISTORY_INTERVAL: Duration = Duration::from_secs(1);
/// Numbers of intervals over which reports contain rates.
pub(crate) const RECENT_INTERVALS: [usize; 2] = [1, 10];

/// Values of one worker that other threads read. Only the worker and its sender thread write them.
#[derive(Clone, Debug)]
pub(crate) struct WorkerView {
    pub(crate) counters: Arc<[AtomicU64]>,
    /// Time from arrival to departure.
    pub(crate) latency: Arc<SharedHistogram>,
    /// Time in each function.
    pub(crate) function_latency: Vec<Arc<SharedHistogram>>,
    /// Counters of each receive queue.
    pub(crate) received: Vec<Arc<SharedCounters>>,
    /// Counters of each transmit queue.
    pub(crate) transmitted: Vec<Arc<SharedCounters>>,
    /// Devices that the worker no longer uses.
    pub(crate) lost: Arc<Mutex<Vec<DeviceLoss>>>,
    /// Counts for the monitor of the placement (`place/meter.rs`), if one is configured.
    pub(crate) meter: Option<Arc<[AtomicU64]>>,
}

/// Values of all workers and ports at one time.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// Time since the start of the run.
    pub(crate) elapsed: Duration,
    /// Sum of each counter over all workers.
    pub(crate) values: Vec<u64>,
    /// Time that each worker was busy.
    pub(crate) worked_ns: Vec<u64>,
    pub(crate) latency: Histogram,
    pub(crate) function_latency: Vec<Histogram>,
    pub(crate) ports: Vec<PortCounters>,
    pub(crate) joules: Vec<Option<f64>>,
}

impl Snapshot {
    /// Reads the values of all workers without disturbing them.
    pub(crate) fn new(
        elapsed: Duration,
        views: &[WorkerView],
        ports: Vec<PortCounters>,
        joules: Vec<Option<f64>>,
    ) -> Self {
        let shared: Vec<_> = views.iter().map(|view| Arc::clone(&view.counters)).collect();
        let len = shared.first().map_or(0, |counters| counters.len());
        let functions = views.first().map_or(0, |view| view.function_latency.len());
        let sum = |part: &dyn Fn(&WorkerView) -> &SharedHistogram| {
            let mut histogram = Histogram::default();
            views.iter().for_each(|view| part(view).add_to(&mut histogram));
            histogram
        };
        Self {
            elapsed,
            values: counters::sum(&shared, len),
            worked_ns: shared.iter().map(|counters| counters[WORKED_NS].load(Ordering::Relaxed)).collect(),
            latency: sum(&|view| &view.latency),
            function_latency: (0..functions).map(|function| sum(&|view| &view.function_latency[function])).collect(),
            ports,
            joules,
        }
    }
}

/// Snapshots of the last seconds.
#[derive(Debug, Default)]
pub(crate) struct History(VecDeque<Snapshot>);

impl History {
    /// Appends a snapshot, and removes those that no report needs.
    pub(crate) fn add(&mut self, snapshot: Snapshot) {
        let needed = 1 + RECENT_INTERVALS.into_iter().max().unwrap_or(0);
        if self.0.len() == needed {
            self.0.pop_front();
        }
        self.0.push_back(snapshot);
    }

    /// Returns the last snapshot, and the one `intervals` before it or else the oldest one. Returns
    /// `None` if there are fewer than two snapshots.
    pub(crate) fn recent(&self, intervals: usize) -> Option<(&Snapshot, &Snapshot)> {
        let (last, before) = (self.0.len().checked_sub(1)?, self.0.len().saturating_sub(1 + intervals));
        (before < last).then(|| (&self.0[before], &self.0[last]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(seconds: u64) -> Snapshot {
        Snapshot::new(Duration::from_secs(seconds), &[], Vec::new(), Vec::new())
    }

    #[test]
    fn history_covers_the_last_intervals() {
        let mut history = History::default();
        let seconds = |history: &History, intervals| {
            history.recent(intervals).map(|(from, to)| (from.elapsed.as_secs(), to.elapsed.as_secs()))
        };
        assert_eq!(seconds(&history, 1), None);
        history.add(snapshot(0));
        assert_eq!(seconds(&history, 10), None);
        (1..4).for_each(|second| history.add(snapshot(second)));
        assert_eq!((seconds(&history, 1), seconds(&history, 10)), (Some((2, 3)), Some((0, 3))));
        (4..60).for_each(|second| history.add(snapshot(second)));
        assert_eq!((seconds(&history, 1), seconds(&history, 10)), (Some((58, 59)), Some((49, 59))));
        assert_eq!(history.0.len(), 11);
    }
}

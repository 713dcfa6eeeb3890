//! Determines whether the device has finished the oldest submission in flight.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cudarc::driver::result::DriverError;

use super::slot::Slot;

/// The interval between two driver queries is the submission's waiting time divided by this number.
const QUERY_DIVISOR: u32 = 16;
/// Maximum time between two queries of the driver.
const QUERY_INTERVAL_MAX: Duration = Duration::from_micros(100);
/// Minimum waiting time before a driver query if the work-groups signal completion themselves. The
/// query then only detects errors.
const QUERY_INTERVAL_SIGNALED: Duration = Duration::from_millis(1);

/// State of a submission.
pub(super) enum Progress {
    /// The state is unknown, because the driver was queried only recently.
    Unknown,
    /// The submission has not finished since the given time.
    Running(Instant),
    Finished,
    Failed(DriverError),
}

/// Decides when to ask the driver about submissions. Frequent queries would delay launches, because
/// all threads share one driver lock.
pub(super) struct Queries {
    /// Time when the last submission was returned.
    last_result: Instant,
    /// Time of the next query.
    query_at: Instant,
}

impl Queries {
    pub(super) fn new() -> Self {
        Self { last_result: Instant::now(), query_at: Instant::now() }
    }

    /// Returns the state of the oldest submission in flight, which was submitted at the time
    /// `submitted`. `bind` makes the device's context current in this thread.
    pub(super) fn progress(
        &mut self,
        slot: &Slot,
        submitted: Instant,
        bind: impl FnOnce() -> Result<(), DriverError>,
    ) -> Progress {
        // The acquire load makes the results of all work-groups visible to this thread
        // (`gw_signal_done`).
        let is_signaled = slot.signals_done && slot.done().load(Ordering::Acquire) != 0;
        let now = Instant::now();
        let since = submitted.max(self.last_result);
        if !is_signaled {
            let earliest = if slot.signals_done { since + QUERY_INTERVAL_SIGNALED } else { since };
            if now < self.query_at.max(earliest) {
                return Progress::Unknown;
            }
            let query = || if slot.signals_done { slot.stream.is_idle() } else { slot.copied_out.is_complete() };
            match bind().and_then(|()| query()) {
                Ok(true) => {}
                Ok(false) => {
                    let waited = now.saturating_duration_since(since);
                    self.query_at = now + (waited / QUERY_DIVISOR).min(QUERY_INTERVAL_MAX);
                    return Progress::Running(since);
                }
                Err(error) => return Progress::Failed(error),
            }
        }
        self.last_result = Instant::now();
        Progress::Finished
    }
}

//! Watchdog that declares a device lost if the device does not respond. All workers that use the
//! device share the watchdog.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use godwit_sched::Chunk;

use crate::error::{Error, Unavailable};

/// Number of timeouts after which a worker without results declares the device lost. This limit
/// applies even if other workers still get results.
const STARVED_TIMEOUTS: u32 = 8;

/// State of the watchdog. When one worker declares the device lost, the device is lost for all
/// workers.
#[derive(Debug)]
pub(crate) struct Watch {
    id: String,
    timeout: Duration,
    created: Instant,
    /// Time when the device last finished work for any worker, in nanoseconds since `created`.
    progress_ns: AtomicU64,
    lost: OnceLock<String>,
}

impl Watch {
    /// Creates a watchdog for device `id`.
    pub(crate) fn new(id: &str, timeout: Duration) -> Self {
        let (created, progress_ns) = (Instant::now(), AtomicU64::new(0));
        Self { id: id.to_owned(), timeout, created, progress_ns, lost: OnceLock::new() }
    }

    /// Records that the device has finished some work, and returns the current time.
    pub(crate) fn record_progress(&self) -> Instant {
        let now = Instant::now();
        let progress_ns = u64::try_from((now - self.created).as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: the time orders no other memory access.
        self.progress_ns.fetch_max(progress_ns, Ordering::Relaxed);
        now
    }

    /// Returns whether the device takes too long for work that a worker submitted at `since`. The
    /// worker waits longer while other workers get results, because its work may be queued behind
    /// theirs. This longer wait is also limited, because the work may be stuck.
    pub(crate) fn is_overdue(&self, since: Instant) -> bool {
        self.is_overdue_at(since, Instant::now())
    }

    fn is_overdue_at(&self, since: Instant, now: Instant) -> bool {
        let waited = now.saturating_duration_since(since);
        if waited <= self.timeout {
            return false;
        }
        let progress = self.created + Duration::from_nanos(self.progress_ns.load(Ordering::Relaxed));
        now.saturating_duration_since(progress) > self.timeout || waited > self.timeout.saturating_mul(STARVED_TIMEOUTS)
    }

    /// Declares the device lost because it did not respond within the timeout.
    pub(crate) fn lose_silent(&self) {
        self.lose(format!("a lane received no finished chunk for {:.1} s", self.timeout.as_secs_f64()));
    }

    /// Declares the device lost. Only the first reason is kept.
    pub(crate) fn lose(&self, reason: String) {
        // An error means that another worker declared the loss first.
        let _ = self.lost.set(reason);
    }

    /// Returns why the device is lost, or `None` if it is not.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Returns the error for a lost device, which contains the worker's submissions in flight.
    pub(crate) fn lost_with(&self, chunks: Vec<Chunk>) -> Error {
        Error::Lost { id: self.id.clone(), reason: self.lost().unwrap_or_default().to_owned(), chunks }
    }

    /// Returns an error if the device is lost.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        match self.lost() {
            Some(reason) => Err(Error::Unusable { id: self.id.clone(), reason: Unavailable::Lost(reason.to_owned()) }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);
    const MOMENT: Duration = Duration::from_nanos(1);

    fn watch(progress: Duration) -> Watch {
        let watch = Watch::new("test:0", TIMEOUT);
        watch.progress_ns.store(progress.as_nanos() as u64, Ordering::Relaxed);
        watch
    }

    #[test]
    fn device_without_progress_is_overdue_after_the_timeout() {
        let watch = watch(Duration::ZERO);
        for waiting in [Duration::ZERO, TIMEOUT / 2, TIMEOUT * 100] {
            let since = watch.created + waiting;
            assert!(!watch.is_overdue_at(since, since));
            assert!(!watch.is_overdue_at(since, since + TIMEOUT));
            assert!(watch.is_overdue_at(since, since + TIMEOUT + MOMENT));
        }
    }

    #[test]
    fn lane_waits_while_other_lanes_get_results() {
        let watch = watch(TIMEOUT * 3);
        let (since, progress) = (watch.created, watch.created + TIMEOUT * 3);
        assert!(!watch.is_overdue_at(since, progress + TIMEOUT));
        assert!(watch.is_overdue_at(since, progress + TIMEOUT + MOMENT));
        // The worker submits work after the device's last progress, so its full timeout begins at
        // the submission.
        let later = progress + TIMEOUT * 5;
        assert!(!watch.is_overdue_at(later, later + TIMEOUT));
        assert!(watch.is_overdue_at(later, later + TIMEOUT + MOMENT));
    }

    #[test]
    fn lane_does_not_wait_forever_while_other_lanes_get_results() {
        let starved = TIMEOUT * STARVED_TIMEOUTS;
        let watch = watch(starved);
        assert!(!watch.is_overdue_at(watch.created, watch.created + starved));
        assert!(watch.is_overdue_at(watch.created, watch.created + starved + MOMENT));
    }

    #[test]
    fn keeps_the_latest_progress_of_all_lanes() {
        let watch = Watch::new("test:0", TIMEOUT);
        let first = watch.record_progress();
        let last = std::thread::scope(|scope| {
            let record = || (0..1000).map(|_| watch.record_progress()).max();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(record)).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).max().unwrap()
        });
        assert!(last >= first);
        assert_eq!(watch.created + Duration::from_nanos(watch.progress_ns.load(Ordering::Relaxed)), last);
        assert!(!watch.is_overdue_at(watch.created, last + TIMEOUT));
        assert!(watch.is_overdue_at(watch.created, last + TIMEOUT + MOMENT));
    }
}

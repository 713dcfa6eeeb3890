//! The watchdog of a device: what all its lanes know of whether it still answers.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use godwit_sched::Chunk;

use crate::Error;

/// A lane that gets nothing back for so many times the limit does not believe any more that it waits for other lanes' work.
const PATIENCE_LIMITS: u32 = 8;

/// Shared by the lanes of one device: once one of them has found the device lost, it is lost for all.
#[derive(Debug)]
pub(crate) struct Watch {
    id: String,
    limit: Duration,
    made: Instant,
    /// When the device was last seen to finish something, whichever lane's it was: nanoseconds from `made`.
    heard_ns: AtomicU64,
    lost: OnceLock<String>,
}

impl Watch {
    /// For a device that must give a chunk back within `limit`.
    pub(crate) fn new(id: &str, limit: Duration) -> Self {
        let (made, heard_ns) = (Instant::now(), AtomicU64::new(0));
        Self { id: id.to_owned(), limit, made, heard_ns, lost: OnceLock::new() }
    }

    /// Says that the device has finished something, and when that is: now.
    pub(crate) fn heard(&self) -> Instant {
        let now = Instant::now();
        let heard_ns = u64::try_from((now - self.made).as_nanos()).unwrap_or(u64::MAX);
        // A time, which orders nothing else.
        self.heard_ns.fetch_max(heard_ns, Ordering::Relaxed);
        now
    }

    /// Whether what a lane gave to the device then should have come back: for the time allowed neither that lane nor any
    /// other has got anything. Lanes' chunks can queue for the same cores, so one may wait while the device works for
    /// others; but not for ever, for what hangs in one place need not stop the rest.
    pub(crate) fn is_overdue(&self, since: Instant) -> bool {
        self.is_overdue_at(since, Instant::now())
    }

    fn is_overdue_at(&self, since: Instant, now: Instant) -> bool {
        let waited = now.saturating_duration_since(since);
        if waited <= self.limit {
            return false;
        }
        let heard = self.made + Duration::from_nanos(self.heard_ns.load(Ordering::Relaxed));
        now.saturating_duration_since(heard) > self.limit || waited > self.limit.saturating_mul(PATIENCE_LIMITS)
    }

    /// Declares the device lost because it has not answered for the time allowed.
    pub(crate) fn lose_silent(&self) {
        self.lose(format!("a lane has had no chunk back for {:.1} s", self.limit.as_secs_f64()));
    }

    /// Declares the device lost. The first reason stays.
    pub(crate) fn lose(&self, reason: String) {
        // An error means that another lane was first.
        let _ = self.lost.set(reason);
    }

    /// Why the device is lost, if it is.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// What a lane of a lost device hands back.
    pub(crate) fn lost_with(&self, chunks: Vec<Chunk>) -> Error {
        Error::Lost { id: self.id.clone(), reason: self.lost().unwrap_or_default().to_owned(), chunks }
    }

    /// What a lane of a lost device says to a chunk.
    pub(crate) fn demand_alive(&self) -> Result<(), Error> {
        match self.lost() {
            Some(reason) => Err(Error::Unusable { id: self.id.clone(), reason: format!("it is lost: {reason}") }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);
    const MOMENT: Duration = Duration::from_nanos(1);

    /// A watch on which something was heard so long after it was made.
    fn watch(heard: Duration) -> Watch {
        let watch = Watch::new("test:0", LIMIT);
        watch.heard_ns.store(heard.as_nanos() as u64, Ordering::Relaxed);
        watch
    }

    #[test]
    fn a_device_that_was_never_heard_is_overdue_after_its_limit() {
        let watch = watch(Duration::ZERO);
        for waiting in [Duration::ZERO, LIMIT / 2, LIMIT * 100] {
            let since = watch.made + waiting;
            assert!(!watch.is_overdue_at(since, since));
            assert!(!watch.is_overdue_at(since, since + LIMIT));
            assert!(watch.is_overdue_at(since, since + LIMIT + MOMENT));
        }
    }

    #[test]
    fn a_lane_waits_while_others_get_something() {
        let watch = watch(LIMIT * 3);
        let (since, heard) = (watch.made, watch.made + LIMIT * 3);
        assert!(!watch.is_overdue_at(since, heard + LIMIT));
        assert!(watch.is_overdue_at(since, heard + LIMIT + MOMENT));
        // What was heard before the lane gave anything to the device does not shorten its time.
        let later = heard + LIMIT * 5;
        assert!(!watch.is_overdue_at(later, later + LIMIT));
        assert!(watch.is_overdue_at(later, later + LIMIT + MOMENT));
    }

    #[test]
    fn a_lane_does_not_wait_for_ever_while_others_get_something() {
        let patience = LIMIT * PATIENCE_LIMITS;
        let watch = watch(patience);
        assert!(!watch.is_overdue_at(watch.made, watch.made + patience));
        assert!(watch.is_overdue_at(watch.made, watch.made + patience + MOMENT));
    }

    #[test]
    fn the_last_time_counts_that_anything_was_heard() {
        let watch = Watch::new("test:0", LIMIT);
        let first = watch.heard();
        let last = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..1000).map(|_| watch.heard()).max())).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).max().unwrap()
        });
        assert!(last >= first);
        assert_eq!(watch.made + Duration::from_nanos(watch.heard_ns.load(Ordering::Relaxed)), last);
        assert!(!watch.is_overdue_at(watch.made, last + LIMIT));
        assert!(watch.is_overdue_at(watch.made, last + LIMIT + MOMENT));
    }
}

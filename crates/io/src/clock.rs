//! Clock of the ports.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Clock that gives the time in nanoseconds since the Unix epoch. The time never decreases.
#[derive(Clone, Debug)]
pub enum Clock {
    /// Clock of the machine. The first reading in the process is the wall-clock time, and all later
    /// readings are monotonic.
    Machine,
    /// Clock that a test or a simulation sets.
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    /// Returns the current time in nanoseconds since the Unix epoch.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        match self {
            Self::Machine => {
                static START: OnceLock<(Instant, u64)> = OnceLock::new();
                let (instant, unix_ns) = START.get_or_init(|| {
                    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    (Instant::now(), unix.as_nanos() as u64)
                });
                unix_ns + instant.elapsed().as_nanos() as u64
            }
            Self::Virtual(now_ns) => now_ns.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_clock_is_wall_time_and_monotonic() {
        let before = Clock::Machine.now_ns();
        assert!(before > 1_600_000_000 * 1_000_000_000, "before 2020: {before}");
        assert!(Clock::Machine.now_ns() >= before);
    }
}

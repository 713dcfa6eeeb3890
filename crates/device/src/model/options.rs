//! Options of a modelled device.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use godwit_sched::place::Fit;

/// Clock of a modelled device.
#[derive(Clone, Debug, Default)]
pub enum ModelClock {
    /// The clock of the machine, which is monotonic.
    #[default]
    Machine,
    /// A clock that a test sets. The time is in nanoseconds.
    Virtual(Arc<AtomicU64>),
}

impl ModelClock {
    pub(super) fn now_ns(&self) -> u64 {
        match self {
            Self::Machine => {
                static START: OnceLock<Instant> = OnceLock::new();
                START.get_or_init(Instant::now).elapsed().as_nanos() as u64
            }
            Self::Virtual(now_ns) => now_ns.load(Ordering::Relaxed),
        }
    }
}

/// State of a modelled device that a test can change while packets flow.
#[derive(Debug)]
pub struct ModelState {
    /// Processing time of the device as a percentage of the modelled time.
    percent: AtomicU32,
    lost: AtomicBool,
    /// Time in nanoseconds at which the device finishes all submissions so far.
    free_ns: AtomicU64,
    /// Number of submissions of all workers.
    chunks: AtomicU64,
}

impl Default for ModelState {
    fn default() -> Self {
        let (lost, free_ns, chunks) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        Self { percent: AtomicU32::new(100), lost, free_ns, chunks }
    }
}

impl ModelState {
    /// Makes all later submissions take `percent` percent of their modelled time.
    pub fn slow_down(&self, percent: u32) {
        self.percent.store(percent, Ordering::Relaxed);
    }

    /// Makes the device fail. Each worker then gets its submissions back with the error
    /// [`Error::Lost`](crate::Error::Lost).
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Counts a submission, and returns the number of submissions before it.
    pub(super) fn count(&self) -> u64 {
        self.chunks.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Occupies the device for `busy_ns` nanoseconds after all earlier work. Returns the time at
    /// which this work is finished.
    pub(super) fn reserve(&self, now_ns: u64, busy_ns: u64) -> u64 {
        let busy_ns = busy_ns * u64::from(self.percent.load(Ordering::Relaxed)) / 100;
        let end = |free_ns: u64| free_ns.max(now_ns) + busy_ns;
        // Relaxed: the time orders no other memory access.
        let update = self.free_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free_ns| Some(end(free_ns)));
        // The update always succeeds, because its closure never returns `None`.
        update.map_or_else(end, end)
    }
}

/// Options of a modelled device.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// Costs of each packet function. A function without costs gets the costs of a small GPU.
    pub costs: Vec<Fit>,
    /// Clock that determines when submissions are returned.
    pub clock: ModelClock,
    /// Number of submissions after which the device fails, or `None` if it never fails.
    pub fails_after_chunks: Option<u64>,
    /// State that a test can change while packets flow.
    pub state: Arc<ModelState>,
}

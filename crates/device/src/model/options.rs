//! Options of a modelled device.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use godwit_sched::place::Fit;

/// Clock of a modelled device.
#[derive(Clone, Debug, Default)]
pub enum ModelClock {
    /// Monotonic clock of the machine.
    #[default]
    Machine,
    /// Clock that a test sets, in nanoseconds.
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
    /// Time of the device, as a percentage of its costs.
    percent: AtomicU32,
    lost: AtomicBool,
    /// Time at which the device has finished all submitted chunks.
    free_ns: AtomicU64,
}

impl Default for ModelState {
    fn default() -> Self {
        Self { percent: AtomicU32::new(100), lost: AtomicBool::new(false), free_ns: AtomicU64::new(0) }
    }
}

impl ModelState {
    /// Makes later chunks take `percent` percent of their costs.
    pub fn slow_down(&self, percent: u32) {
        self.percent.store(percent, Ordering::Relaxed);
    }

    /// Makes the device fail: each lane then returns its chunks with
    /// [`Error::Lost`](crate::Error::Lost).
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Reserves the device for `busy_ns` and returns the time at which it is finished.
    pub(super) fn reserve(&self, now_ns: u64, busy_ns: u64) -> u64 {
        let busy_ns = busy_ns * u64::from(self.percent.load(Ordering::Relaxed)) / 100;
        let end = |free_ns: u64| free_ns.max(now_ns) + busy_ns;
        // Relaxed: the time orders no other memory access.
        let update = self.free_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free_ns| Some(end(free_ns)));
        // The closure never returns `None`, so both results hold the earlier time.
        update.map_or_else(end, end)
    }
}

/// Options of a modelled device.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// Costs of each program. Programs without costs have those of a small GPU.
    pub costs: Vec<Fit>,
    /// Clock.
    pub clock: ModelClock,
    /// State that a test can change.
    pub state: Arc<ModelState>,
}

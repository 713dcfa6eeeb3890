//! Cell through which the monitor gives placements to the workers.
//!
//! ```text
//! monitor   publish(placement 7) ──> number = 7
//! worker                               once per loop iteration: changed() -> placement 7
//! ```
//! A worker loads one number per loop iteration. It takes the lock only if the number has changed,
//! which happens a few times per second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use godwit_sched::place::Placement;

/// The current placement.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    /// Number of the current placement, or 0 before the first one.
    number: AtomicU64,
    latest: Mutex<Option<Arc<Placement>>>,
}

impl Cell {
    /// Publishes a placement. Its number must differ from that of the previous placement.
    pub(crate) fn publish(&self, placement: Placement) {
        let number = placement.number;
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(placement));
        self.number.store(number, Ordering::Release);
    }

    /// Returns the handle with which one worker reads placements.
    pub(crate) fn reader(self: &Arc<Self>) -> Reader {
        Reader { cell: Arc::clone(self), seen: 0 }
    }
}

/// Handle with which one worker reads placements.
#[derive(Debug)]
pub(crate) struct Reader {
    cell: Arc<Cell>,
    seen: u64,
}

impl Reader {
    /// Returns the current placement if it is new to this worker.
    #[inline]
    pub(crate) fn changed(&mut self) -> Option<Arc<Placement>> {
        if self.cell.number.load(Ordering::Acquire) == self.seen { None } else { self.take() }
    }

    #[cold]
    fn take(&mut self) -> Option<Arc<Placement>> {
        let latest = self.cell.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.seen = latest.as_ref().map_or(0, |placement| placement.number);
        latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(number: u64) -> Placement {
        Placement { number, routes: Vec::new(), places: Vec::new(), roles: Vec::new(), workers_max: 1 }
    }

    #[test]
    fn each_worker_sees_the_latest_placement_once() {
        let cell = Arc::new(Cell::default());
        let (mut first, mut second) = (cell.reader(), cell.reader());
        assert!(first.changed().is_none());
        cell.publish(placement(1));
        assert_eq!(first.changed().map(|placement| placement.number), Some(1));
        cell.publish(placement(2));
        for reader in [&mut first, &mut second] {
            assert_eq!(reader.changed().map(|placement| placement.number), Some(2));
            assert!(reader.changed().is_none());
        }
    }
}

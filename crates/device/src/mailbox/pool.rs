//! Manages connection numbers. Each connection between a worker and a device uses some of the
//! device's persistent work-groups.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Unavailable};

/// Numbers of connections that no worker uses.
#[derive(Debug)]
pub(crate) struct LanePool {
    lanes: usize,
    free: Mutex<Vec<usize>>,
}

impl LanePool {
    /// Creates a pool of the free connection numbers 0 to `lanes` - 1.
    pub(crate) fn new(lanes: usize) -> Self {
        Self { lanes, free: Mutex::new((0..lanes).rev().collect()) }
    }

    /// Takes a free connection number. `id` names the device in the error.
    ///
    /// # Errors
    /// Returns [`Error::Unusable`] if all connections are in use.
    pub(crate) fn take(&self, id: &str) -> Result<usize, Error> {
        self.free().pop().ok_or_else(|| {
            let reason = format!("it was opened for {} lanes, and all of them are in use", self.lanes);
            Error::Unusable { id: id.to_owned(), reason: Unavailable::Setup(reason) }
        })
    }

    /// Releases a connection number. The connection has no unfinished batches.
    pub(crate) fn put(&self, lane: usize) {
        self.free().push(lane);
    }

    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Numbers of the lanes that share the groups of a device.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Unavailable};

/// Lanes that are free.
#[derive(Debug)]
pub(crate) struct LanePool {
    lanes: usize,
    free: Mutex<Vec<usize>>,
}

impl LanePool {
    /// Creates a pool of `lanes` free lanes.
    pub(crate) fn new(lanes: usize) -> Self {
        Self { lanes, free: Mutex::new((0..lanes).rev().collect()) }
    }

    /// Takes a free lane of device `id`.
    ///
    /// # Errors
    /// Returns [`Error::Unusable`] if all lanes are in use.
    pub(crate) fn take(&self, id: &str) -> Result<usize, Error> {
        self.free().pop().ok_or_else(|| {
            let reason = format!("it was opened for {} lanes, and all of them are in use", self.lanes);
            Error::Unusable { id: id.to_owned(), reason: Unavailable::Setup(reason) }
        })
    }

    /// Returns a lane whose bins are all finished.
    pub(crate) fn put(&self, lane: usize) {
        self.free().push(lane);
    }

    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

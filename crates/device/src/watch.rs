//! The watchdog of a device: what all its lanes know of whether it still answers.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use godwit_sched::Chunk;

use crate::Error;

/// Shared by the lanes of one device: once one of them has found the device lost, it is lost for all.
#[derive(Debug)]
pub(crate) struct Watch {
    id: String,
    limit: Duration,
    lost: OnceLock<String>,
}

impl Watch {
    /// For a device that must give a chunk back within `limit`.
    pub(crate) fn new(id: &str, limit: Duration) -> Self {
        Self { id: id.to_owned(), limit, lost: OnceLock::new() }
    }

    /// Whether what was given to the device then should have come back.
    pub(crate) fn is_overdue(&self, since: Instant) -> bool {
        since.elapsed() > self.limit
    }

    /// Declares the device lost because it has not answered for the time allowed.
    pub(crate) fn lose_silent(&self) {
        self.lose(format!("it has given no chunk back for {:.1} s", self.limit.as_secs_f64()));
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

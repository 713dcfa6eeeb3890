//! Thread that looks at the load every 10 ms, and lets the planner decide.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::control::cores::pin_to;
use crate::error::Error;
use crate::place::monitor::Monitor;

/// Interval between two looks at the load.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Thread of the placement. It ends when this value is dropped.
pub(crate) struct PlacementThread {
    end: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl PlacementThread {
    /// Starts the thread. Pins it to `cores`, on which no worker runs.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(crate) fn start(monitor: Arc<Monitor>, cores: Vec<usize>) -> Result<Self, Error> {
        let (end, ended) = channel::<()>();
        let body = move || {
            if !cores.is_empty() {
                pin_to(&cores);
            }
            let mut due = Instant::now() + LOOK_INTERVAL;
            while ended.recv_timeout(due.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Timeout) {
                monitor.look();
                // After a delay, missed looks are not repeated.
                due = (due + LOOK_INTERVAL).max(Instant::now() + LOOK_INTERVAL / 2);
            }
        };
        let thread = thread::Builder::new().name("placement".to_owned()).spawn(body);
        let thread = thread.map_err(|error| Error::Setup(format!("cannot start the placement thread: {error}")))?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for PlacementThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

//! Runs the periodic work of packet functions on the housekeeping thread. This work may wait for
//! packets or devices, so it has a separate thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use godwit_function::{Function, Running};

use crate::control::health::Disabled;
use crate::control::socket::Commands;
use crate::error::Error;

/// Result of a function's periodic work.
type Done = Result<(), godwit_function::Error>;

/// Minimum interval between two calls of a function.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Housekeeping thread. It ends when this value is dropped.
pub(crate) struct Housekeeper {
    end: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Housekeeper {
    /// Starts the housekeeping thread. Returns `None` if no function has periodic work. If the work
    /// of a function panics, it is not repeated, and the function's name is added to `disabled`.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(crate) fn start(commands: Arc<Commands>, disabled: Disabled) -> Result<Option<Self>, Error> {
        let functions = commands.functions.iter().enumerate();
        let chores: Vec<Chore> = functions
            .filter_map(|(index, (name, function))| {
                let interval = function.housekeeping()?.interval().max(INTERVAL_MIN);
                Some(Chore { function: index, name: name.clone(), interval, due: Instant::now(), last_error: None })
            })
            .collect();
        if chores.is_empty() {
            return Ok(None);
        }
        let (end, ended) = channel();
        let thread = thread::Builder::new()
            .name("housekeeping".to_owned())
            .spawn(move || {
                let run = |function: &dyn Function, running: &dyn Running| {
                    function.housekeeping().map_or(Ok(()), |part| part.run(running))
                };
                let call = |function| commands.with(function, run);
                keep(&call, chores, &disabled, &ended);
            })
            .map_err(|error| Error::Setup(format!("cannot start the housekeeping thread: {error}")))?;
        Ok(Some(Self { end: Some(end), thread: Some(thread) }))
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Periodic work of one function.
struct Chore {
    function: usize,
    name: String,
    interval: Duration,
    due: Instant,
    last_error: Option<String>,
}

fn keep(call: &dyn Fn(usize) -> Done, mut chores: Vec<Chore>, disabled: &Disabled, ended: &Receiver<()>) {
    while let Some(next) = chores.iter_mut().min_by_key(|chore| chore.due) {
        let rest = next.due.saturating_duration_since(Instant::now());
        if ended.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        if !next.run(call) {
            disabled.add(&next.name);
            let function = next.function;
            chores.retain(|chore| chore.function != function);
        }
    }
}

impl Chore {
    /// Does the periodic work of a packet function once. Logs an error message unless it equals the
    /// previous one. Returns false if the function panicked and must not be called again.
    fn run(&mut self, call: &dyn Fn(usize) -> Done) -> bool {
        let Ok(done) = catch_unwind(AssertUnwindSafe(|| call(self.function))) else {
            tracing::error!(
                event = "housekeeping_disabled",
                function = self.name,
                "function `{}`: its housekeeping is disabled after a bug",
                self.name
            );
            return false;
        };
        let sentence = done.err().map(|error| error.to_string());
        if let Some(sentence) = sentence.as_ref().filter(|sentence| self.last_error.as_ref() != Some(sentence)) {
            tracing::warn!(event = "housekeeping_failed", function = self.name, "function `{}`: {sentence}", self.name);
        }
        self.last_error = sentence;
        self.due = Instant::now() + self.interval;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::control::health::Health;

    #[test]
    fn housekeeping_that_panics_is_reported_and_the_others_continue() {
        let chore = |function, name: &str| Chore {
            function,
            name: name.to_owned(),
            interval: INTERVAL_MIN,
            due: Instant::now(),
            last_error: None,
        };
        let (end, ended) = channel();
        let end = Mutex::new(Some(end));
        let calls = Mutex::new([0; 2]);
        let call = |function: usize| {
            let mut calls = calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            calls[function] += 1;
            if calls[1] == 5 {
                end.lock().unwrap().take();
            }
            assert!(function != 0, "a bug");
            Ok(())
        };
        let disabled = Disabled::default();
        keep(&call, vec![chore(0, "route"), chore(1, "self")], &disabled, &ended);
        assert_eq!(*calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner), [1, 5]);
        let report = Health::new(0, disabled).report();
        assert_eq!(report.disabled_housekeeping, ["route"]);
        assert!(!report.is_well());
    }
}

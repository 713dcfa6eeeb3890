//! Housekeeping thread: calls the periodic work of functions. The calls may wait for packets or
//! devices, so they do not run on the workers or in the watch loop.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::control::socket::Commands;
use crate::error::Error;

/// Minimum interval between two calls of a function.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Housekeeping thread. It ends when this value is dropped.
pub(crate) struct Housekeeper {
    end: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Housekeeper {
    /// Starts the thread. Returns `None` if no function has periodic work.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(commands: Arc<Commands>) -> Result<Option<Self>, Error> {
        let functions = commands.functions.iter().enumerate();
        let chores: Vec<Chore> = functions
            .filter_map(|(index, (name, function))| {
                let interval = function.housekeeping_interval()?.max(INTERVAL_MIN);
                Some(Chore { function: index, name: name.clone(), interval, due: Instant::now(), last_error: None })
            })
            .collect();
        if chores.is_empty() {
            return Ok(None);
        }
        let (end, ended) = channel();
        let thread = thread::Builder::new()
            .name("housekeeping".to_owned())
            .spawn(move || keep(&commands, chores, &ended))
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
    /// Error message of the last call, to log each error once.
    last_error: Option<String>,
}

fn keep(commands: &Commands, mut chores: Vec<Chore>, ended: &Receiver<()>) {
    while let Some(next) = chores.iter_mut().min_by_key(|chore| chore.due) {
        let rest = next.due.saturating_duration_since(Instant::now());
        if ended.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        if !next.run(commands) {
            let function = next.function;
            chores.retain(|chore| chore.function != function);
        }
    }
}

impl Chore {
    /// Calls the function and logs a new error message. Returns false if the function panicked and
    /// must not be called again.
    fn run(&mut self, commands: &Commands) -> bool {
        let body = || commands.with(self.function, |function, running| function.housekeeping(running));
        let Ok(done) = catch_unwind(AssertUnwindSafe(body)) else {
            tracing::error!("function `{}`: its housekeeping is disabled after a bug", self.name);
            return false;
        };
        let sentence = done.err().map(|error| error.to_string());
        if let Some(sentence) = sentence.as_ref().filter(|sentence| self.last_error.as_ref() != Some(sentence)) {
            tracing::warn!("function `{}`: {sentence}", self.name);
        }
        self.last_error = sentence;
        self.due = Instant::now() + self.interval;
        true
    }
}

//! Has functions do what is to be done from time to time, on a thread of its own: it may wait for packets or for devices,
//! and neither workers nor the watch loop wait for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::socket::Commands;

/// More often than this nobody is called.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// The thread. Ends when dropped.
pub(crate) struct Housekeeper {
    end: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Housekeeper {
    /// `None`: no function asks for it.
    pub(crate) fn start(commands: Arc<Commands>) -> Result<Option<Self>, Error> {
        let asked = commands.functions.iter().enumerate();
        let chores: Vec<Chore> = asked
            .filter_map(|(function, (name, asked))| {
                let interval = asked.housekeeping_interval()?.max(INTERVAL_MIN);
                Some(Chore { function, name: name.clone(), interval, due: Instant::now(), told: None })
            })
            .collect();
        if chores.is_empty() {
            return Ok(None);
        }
        let (end, ended) = channel();
        let thread = thread::Builder::new()
            .name("housekeeping".to_owned())
            .spawn(move || keep(&commands, chores, &ended))
            .map_err(|error| Error::Setup(format!("cannot start the thread of housekeeping: {error}")))?;
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

/// The housekeeping of one function.
struct Chore {
    function: usize,
    name: String,
    interval: Duration,
    due: Instant,
    /// The sentence of its last call.
    told: Option<String>,
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
    /// False: it met a bug, and is not to be called again.
    fn run(&mut self, commands: &Commands) -> bool {
        let body = || commands.with(self.function, |function, running| function.housekeeping(running));
        let Ok(done) = catch_unwind(AssertUnwindSafe(body)) else {
            tracing::error!("function `{}`: its housekeeping met a bug and is not done any more", self.name);
            return false;
        };
        let sentence = done.err().map(|error| error.to_string());
        if let Some(sentence) = sentence.as_ref().filter(|sentence| self.told.as_ref() != Some(sentence)) {
            tracing::warn!("function `{}`: {sentence}", self.name);
        }
        self.told = sentence;
        self.due = Instant::now() + self.interval;
        true
    }
}

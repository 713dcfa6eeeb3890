//! Keeps state across process restarts. A thread writes reservations of sequence numbers.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use nix::fcntl::Flock;

use crate::claims::Claims;
use crate::disk::FolderDisk;
use crate::error::Error;
use crate::folder;
use crate::journal::Journal;
use crate::record::{Entry, KeyName};

/// Minimum time between two journal writes. One write collects the reservations of several security
/// associations (SAs).
const WRITE_INTERVAL: Duration = Duration::from_millis(10);
/// Time until a failed write is repeated.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// User of reserved sequence numbers, such as a packet function.
pub trait Source: Send + Sync {
    /// Returns the reservations of sequence numbers that are needed now. Repeated calls return the
    /// same reservations until [`Source::grant`] is called.
    fn due(&self) -> Vec<Entry>;

    /// Permits the use of the reserved numbers in `entries`, which are now durable.
    fn grant(&self, entries: &[Entry]);

    /// Returns the last sequence number that was used for each key. The caller has stopped packet
    /// processing.
    fn used(&self) -> Vec<Entry>;
}

/// State of this process. It holds the claims on keys and, if a state folder is configured, the
/// journal of sequence numbers.
pub struct State {
    claims: Mutex<Claims>,
    journal: Option<Mutex<Journal>>,
    /// Lock of the state folder.
    _lock: Option<Flock<File>>,
    sources: Mutex<Vec<Weak<dyn Source>>>,
    keeper: OnceLock<Thread>,
    is_ending: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Opens the claims on keys. If `path` is given, also opens the state folder at this path.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be used, or if its journal is damaged.
    pub fn open(path: Option<&Path>) -> Result<Self, Error> {
        let lock = path.map(folder::lock).transpose()?;
        let open = |path| FolderDisk::open(path).map_err(Error::io("open the folder"));
        let disk = path.map(open).transpose()?;
        let journal = disk.map(|disk| Journal::open(Box::new(disk))).transpose()?;
        Ok(Self {
            claims: Mutex::new(Claims::open()?),
            journal: journal.map(Mutex::new),
            _lock: lock,
            sources: Mutex::default(),
            keeper: OnceLock::new(),
            is_ending: AtomicBool::new(false),
        })
    }

    /// Returns whether sequence numbers survive a restart.
    pub fn is_durable(&self) -> bool {
        self.journal.is_some()
    }

    /// Claims a key for `function`. Error messages name `owner` as the user of the key.
    ///
    /// # Errors
    /// Returns an error if another function or another process has claimed the key.
    pub fn claim(&self, name: &KeyName, owner: &str, function: &str) -> Result<(), Error> {
        lock(&self.claims).claim(name, owner, function)
    }

    /// Returns the last sequence number that may have been used with a key. The result is 0 for a
    /// new key.
    pub fn number(&self, name: &KeyName) -> u64 {
        self.journal.as_ref().and_then(|journal| lock(journal).number(name)).unwrap_or(0)
    }

    /// Reserves sequence numbers. The reservations are durable when this function returns.
    ///
    /// # Errors
    /// Returns an error if the disk reports an error. None of the numbers may be used then.
    pub fn reserve(&self, entries: &[Entry]) -> Result<(), Error> {
        self.journal.as_ref().map_or(Ok(()), |journal| lock(journal).write(entries))
    }

    /// Registers `source`. The thread that [`State::start`] creates writes its reservations to the
    /// journal.
    pub fn add(&self, source: &Arc<dyn Source>) {
        lock(&self.sources).push(Arc::downgrade(source));
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        lock(&self.sources).iter().filter_map(Weak::upgrade).collect()
    }

    /// Asks the thread that [`State::start`] created to check for new reservations. Returns without
    /// waiting.
    pub fn wake(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.unpark();
        }
    }

    /// Starts the thread that writes sequence number reservations.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(self: &Arc<Self>) -> Result<Keeper, Error> {
        if !self.is_durable() {
            return Ok(Keeper { state: Arc::clone(self), thread: None });
        }
        let state = Arc::clone(self);
        let body = move || state.keep();
        let thread = thread::Builder::new().name("state".to_owned()).spawn(body);
        let thread = thread.map_err(Error::io("start the thread of the state folder"))?;
        let _ = self.keeper.set(thread.thread().clone());
        // Wake the thread once, because earlier calls to [`State::wake`] had no effect.
        thread.thread().unpark();
        Ok(Keeper { state: Arc::clone(self), thread: Some(thread) })
    }

    fn keep(&self) {
        let mut last_error = None;
        while !self.is_ending.load(Acquire) {
            match self.write_due() {
                Ok(true) => thread::sleep(WRITE_INTERVAL),
                Ok(false) => thread::park(),
                Err(error) => {
                    let sentence = error.to_string();
                    if last_error.as_ref() != Some(&sentence) {
                        tracing::warn!(
                            event = "state_failed",
                            "{sentence}: SAs drop packets when their reserved numbers are used"
                        );
                    }
                    last_error = Some(sentence);
                    thread::sleep(RETRY_INTERVAL);
                    continue;
                }
            }
            last_error = None;
        }
    }

    /// Writes all reservations that are needed now, and then permits the use of their numbers.
    /// Returns whether there were any reservations.
    fn write_due(&self) -> Result<bool, Error> {
        let sources = self.sources();
        let due: Vec<Vec<Entry>> = sources.iter().map(|source| source.due()).collect();
        let entries = due.concat();
        self.reserve(&entries)?;
        for (source, entries) in sources.iter().zip(due).filter(|(_, entries)| !entries.is_empty()) {
            source.grant(&entries);
        }
        Ok(!entries.is_empty())
    }
}

/// Handle of the thread that writes sequence number reservations. Dropping it ends the thread. The
/// reservations stay in the journal, as after a crash.
pub struct Keeper {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Ends the thread, and records the last sequence number that each key has used. The next start
    /// then skips no number. The caller must first stop packet processing.
    ///
    /// # Errors
    /// Returns an error if the disk reports an error. The next start then skips the reserved
    /// numbers.
    pub fn finish(mut self) -> Result<(), Error> {
        self.end();
        let used: Vec<Entry> = self.state.sources().iter().flat_map(|source| source.used()).collect();
        self.state.reserve(&used)
    }

    fn end(&mut self) {
        self.state.is_ending.store(true, Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

//! Engine in the process of `godwit signer`. A thread collects its answers and wakes the jobs.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use godwit_sign::remote::{Connection, Remote};
use godwit_sign::{Counters, Done, JobId, Key, Refusal, Scheme};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::Answer;

/// Time between two attempts to connect to a lost signer, in milliseconds.
const RETRY_MS: u8 = 20;

pub(super) struct Separate {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified when answers arrive, for threads that wait without an event.
    arrived: Condvar,
    socket: PathBuf,
    stop: AtomicBool,
    /// Wakes the thread to stop it.
    stopped: EventFd,
}

struct State {
    remote: Remote,
    waiting: HashMap<JobId, Option<Arc<EventFd>>>,
    /// Answers of jobs that are not resumed yet.
    answers: HashMap<JobId, Answer>,
}

impl Separate {
    pub(super) fn new(socket: &Path, jobs_max: usize) -> Result<Self, String> {
        let connection = Connection::open(socket).map_err(|error| error.to_string())?;
        let state = State {
            remote: Remote::new(socket, connection, jobs_max),
            waiting: HashMap::new(),
            answers: HashMap::new(),
        };
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stopped = EventFd::from_flags(flags).map_err(|error| format!("cannot create an event: {error}"))?;
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            arrived: Condvar::new(),
            socket: socket.to_owned(),
            stop: AtomicBool::new(false),
            stopped,
        });
        let copy = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("godwit-signer".to_owned()).spawn(move || copy.collect());
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(super) fn submit(
        &self,
        key: &Key,
        scheme: Scheme,
        message: &[u8],
        event: Option<&Arc<EventFd>>,
    ) -> Result<JobId, Refusal> {
        let mut state = self.shared.state();
        let id = state.remote.submit(key, scheme, message)?;
        state.waiting.insert(id, event.cloned());
        Ok(id)
    }

    pub(super) fn cancel(&self, id: JobId) {
        let mut state = self.shared.state();
        state.answers.remove(&id);
        state.waiting.remove(&id);
        state.remote.cancel(id);
    }

    pub(super) fn answer(&self, id: JobId) -> Option<Answer> {
        self.shared.state().answers.remove(&id)
    }

    pub(super) fn wait(&self, id: JobId) -> Answer {
        let mut state = self.shared.state();
        loop {
            if let Some(answer) = state.answers.remove(&id) {
                return answer;
            }
            state = self.shared.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn counters(&self) -> Counters {
        self.shared.state().remote.counters()
    }
}

impl Drop for Separate {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // The write fails only if the event is already readable.
        let _ = self.shared.stopped.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers answers until the engine is dropped.
    fn collect(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let socket = self.state().remote.wake_up().and_then(Result::ok);
            if let Some(socket) = socket {
                self.collect_from(&socket);
            }
            self.sleep(None, PollTimeout::from(RETRY_MS));
            let is_connected = self.state().remote.is_connected();
            if !is_connected && !self.stop.load(Ordering::Relaxed) {
                // The next turn tries again.
                if let Ok(connection) = Connection::open(&self.socket) {
                    self.state().remote.resume(connection);
                }
            }
        }
    }

    /// Delivers the answers of one connection until it is lost.
    fn collect_from(&self, socket: &UnixStream) {
        let mut done = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let mut state = self.state();
            state.remote.poll(&mut done);
            done.drain(..).for_each(|done| state.deliver(done));
            let sleeps = state.remote.is_connected().then(|| state.remote.announce_sleep());
            drop(state);
            self.arrived.notify_all();
            match sleeps {
                None => return,
                Some(false) => {}
                Some(true) => self.sleep(Some(socket), PollTimeout::NONE),
            }
        }
    }

    /// Waits for the socket or for the end of the engine.
    fn sleep(&self, socket: Option<&UnixStream>, timeout: PollTimeout) {
        let events = [Some(self.stopped.as_fd()), socket.map(AsFd::as_fd)];
        let mut events: Vec<PollFd<'_>> =
            events.into_iter().flatten().map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN)).collect();
        // A signal interrupts the call, and the caller repeats it.
        let _ = poll(&mut events, timeout);
    }
}

impl State {
    fn deliver(&mut self, Done { id, result }: Done) {
        // A cancelled job has no entry.
        if let Some(event) = self.waiting.remove(&id) {
            self.answers.insert(id, result);
            if let Some(event) = event {
                // The write fails only if the event is already readable.
                let _ = event.write(1);
            }
        }
    }
}

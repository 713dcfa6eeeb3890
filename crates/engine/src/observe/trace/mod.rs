//! Packet traces. A trace contains the time of each step of the chosen packets, and the reason for
//! each drop.
//!
//! ```text
//! client                          worker, per loop iteration and per step of a chosen packet
//! start: session, request ------> sees it: chooses arriving packets by filter and count
//! read   <-- finished packets --- records steps; hands over packets that are sent, dropped or held
//! stop:  no session, request ---> sees it: hands over its remaining packets, answers
//! ```
//! A packet stays on one worker. The worker creates the record of the packet, and hands it over
//! when it is complete. Without a trace, a worker needs one load per loop iteration, from a cache
//! line that is rarely written. It also needs one branch per group of packets that move together.
//!
//! During a trace, a worker parses arriving packets until enough packets are chosen. Then it looks
//! for chosen packets among all packets that move. Only chosen packets take the lock of the trace
//! session.
//!
//! A trace of dropped packets cannot know in advance which packets will be dropped, so it records
//! the steps of all packets. In a live run, it therefore looks only at samples of the arriving
//! packets (`tracer.rs`).
//!
//! Only one session exists at a time. It keeps at most [`PACKETS_MAX`] packets, and only counts the
//! packets beyond.

mod filter;
mod names;
mod record;
mod tracer;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

pub use record::{Fate, Flow, Next, Packet, SentFrame, Step, StepKind};
pub(crate) use tracer::{Origin, Tracer};

use crate::error::Error;
use crate::plan::epoch::Epochs;
use filter::Request;

/// Maximum number of packets in a trace. The same limit applies to the packets that a worker traces
/// at once. It also applies to finished packets that the client has not read.
pub const PACKETS_MAX: usize = 4096;
/// Interval at which a waiting client checks whether all workers have ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time in which the workers must answer at the end of a trace.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// State of packet traces that workers and clients share.
#[derive(Debug)]
pub(crate) struct Traces {
    ports: Vec<String>,
    classes: Mutex<Vec<String>>,
    /// Requests that tell the workers to read `session` again. Each start or end of a session makes
    /// one.
    epochs: Arc<Epochs>,
    session: Mutex<Option<Arc<Session>>>,
    /// Whether the run is live. Packets of a live run must not wait for the tracer.
    is_live: bool,
}

impl Traces {
    /// Creates the shared state without a session. The index of a name in `ports` or `classes` is
    /// its port number or class number.
    pub(crate) fn new(ports: Vec<String>, classes: Vec<String>, workers: usize, is_live: bool) -> Arc<Self> {
        let epochs = Epochs::new(workers);
        Arc::new(Self { ports, classes: Mutex::new(classes), epochs, session: Mutex::default(), is_live })
    }

    /// Replaces the class names after the function chain has changed.
    pub(crate) fn name_classes(&self, classes: &[String]) {
        *self.classes.lock().unwrap_or_else(PoisonError::into_inner) = classes.to_vec();
    }

    /// Creates the tracer of the worker with number `worker`.
    pub(crate) fn of_worker(self: &Arc<Self>, worker: usize, clock: Instant) -> Tracer {
        Tracer::new(Arc::clone(self), self.epochs.of_worker(worker), worker, clock)
    }

    /// Starts a packet trace.
    ///
    /// # Errors
    /// Returns an error if the request is invalid, or another trace is active.
    pub(crate) fn start(self: &Arc<Self>, request: &Value) -> Result<Trace, Error> {
        let classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let request = Request::read(request, &self.ports, &classes)?;
        let mut current = lock(&self.session);
        if current.is_some() {
            return Err(Error::request("another client is tracing: only one trace can run at a time"));
        }
        let session = Arc::new(Session { request, kept: Mutex::default(), wake: Condvar::new() });
        *current = Some(Arc::clone(&session));
        self.epochs.ask();
        Ok(Trace { traces: Arc::clone(self), session })
    }

    /// Ends an active trace session, and asks the workers to end it too. Returns the number of this
    /// request, for which the caller can wait. Returns `None` if the session has already ended.
    fn end(&self, session: &Arc<Session>) -> Option<u64> {
        let mut current = lock(&self.session);
        current.take_if(|current| Arc::ptr_eq(current, session))?;
        Some(self.epochs.ask())
    }
}

/// State of one packet trace. It contains the request and the packets found.
#[derive(Debug)]
struct Session {
    request: Request,
    kept: Mutex<Kept>,
    /// Signaled when `kept` changes.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    /// Number of packets that were assigned a number in the trace.
    numbers: u64,
    /// Number of packets that matched the filter and were chosen.
    chosen: u64,
    /// Number of complete records. It is used only in a trace of dropped packets.
    finished: u64,
    /// Number of packets that workers are tracing now.
    active: u64,
    /// Complete records of packets that the client has not read.
    ready: Vec<Packet>,
    missed: u64,
}

impl Session {
    /// Assigns a trace number to a packet that matches the filter. Returns `None` if the trace has
    /// enough packets.
    fn choose(&self) -> Option<u64> {
        let mut kept = lock(&self.kept);
        if self.is_enough(&kept) {
            return None;
        }
        kept.chosen += 1;
        Some(kept.register())
    }

    /// Assigns a trace number to a packet that a function created from a traced packet.
    fn choose_child(&self) -> u64 {
        lock(&self.kept).register()
    }

    fn miss(&self) {
        lock(&self.kept).missed += 1;
    }

    fn is_enough(&self, kept: &Kept) -> bool {
        let counted = if self.request.dropped { kept.finished } else { kept.chosen };
        counted >= self.request.count
    }

    fn finish(&self, packet: Packet) {
        let mut kept = lock(&self.kept);
        kept.active -= 1;
        if self.request.dropped {
            if packet.fate != Fate::Dropped || self.is_enough(&kept) {
                return;
            }
            kept.finished += 1;
        }
        if kept.ready.len() < PACKETS_MAX {
            kept.ready.push(packet);
        } else {
            kept.missed += 1;
        }
        drop(kept);
        self.wake.notify_all();
    }
}

impl Kept {
    fn register(&mut self) -> u64 {
        self.numbers += 1;
        self.active += 1;
        self.numbers
    }
}

/// Handle of a packet trace. The trace ends when enough packets are traced, or when the handle is
/// dropped.
#[derive(Debug)]
pub struct Trace {
    traces: Arc<Traces>,
    session: Arc<Session>,
}

/// Packets that a trace has found since the last read.
#[derive(Debug, Serialize)]
pub struct Found {
    /// Complete records of packets, sorted by packet number.
    pub packets: Vec<Packet>,
    /// Whether the trace has ended.
    pub over: bool,
    /// Number of packets chosen since the start of the trace.
    pub chosen: u64,
    /// Number of packets that the trace omitted because of its limit. They matched the filter, or
    /// were created from packets that did.
    pub missed: u64,
}

impl Trace {
    /// Returns the packets found since the last call. If there are none, waits up to `limit` for
    /// the first one.
    pub fn read(&self, limit: Duration) -> Found {
        let started = Instant::now();
        let mut kept = lock(&self.session.kept);
        loop {
            // This check must come before the lock. If all workers have ended, the locked list then
            // contains all packets that they handed over.
            drop(kept);
            let have_ended = self.traces.epochs.have_all_ended();
            kept = lock(&self.session.kept);
            let over = have_ended || (kept.active == 0 && self.session.is_enough(&kept));
            let rest = limit.saturating_sub(started.elapsed());
            if over || !kept.ready.is_empty() || rest.is_zero() {
                return found(&mut kept, over);
            }
            let waited = self.session.wake.wait_timeout(kept, rest.min(LOOK_INTERVAL));
            kept = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the trace. Returns the packets found since the last call, including packets that are
    /// still in flight.
    pub fn stop(self) -> Found {
        if let Some(number) = self.traces.end(&self.session) {
            // If some workers do not answer in time, their packets are missing.
            self.traces.epochs.wait(number, STOP_LIMIT);
        }
        found(&mut lock(&self.session.kept), true)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.traces.end(&self.session);
    }
}

fn found(kept: &mut Kept, over: bool) -> Found {
    let mut packets = std::mem::take(&mut kept.ready);
    packets.sort_by_key(|packet| packet.number);
    Found { packets, over, chosen: kept.chosen, missed: kept.missed }
}

/// Locks the mutex, even if a worker panicked while it held the lock. This is safe, because every
/// critical section leaves consistent data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

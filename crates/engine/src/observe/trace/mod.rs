//! Packet traces: each step of chosen packets, with its time, and the reasons of drops.
//!
//! ```text
//! client                          worker, per loop iteration and per step of a chosen packet
//! start: session, request ------> sees it: chooses arriving packets by filter and count
//! read   <-- finished packets --- records steps; hands over packets that are sent, dropped or held
//! stop:  no session, request ---> sees it: hands over its remaining packets, answers
//! ```
//! A packet stays on one worker, so its record is created there and is complete when it is handed
//! over. Without a trace, a worker pays one load per loop iteration, of a cache line that is rarely
//! written, and one branch per group of packets that move together. During a trace, a worker parses
//! arriving packets until enough are chosen. It looks for chosen packets among all packets that
//! move. Only chosen packets take the lock of the session.
//!
//! In a live run, a trace of dropped packets looks only at samples of the arriving packets, because
//! it would otherwise record the steps of all packets (`tracer.rs`).
//!
//! There is one session at a time. It keeps at most [`PACKETS_MAX`] packets and counts the others.

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

/// Maximum number of packets in a trace. It also limits the packets that a worker traces at the
/// same time, and the packets that wait to be read.
pub const PACKETS_MAX: usize = 4096;
/// Interval at which a waiting client checks whether the workers have ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Timeout of the workers' answers at the end of a trace, far above their normal response time.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// State of traces that the workers and the clients share.
#[derive(Debug)]
pub(crate) struct Traces {
    /// Port names. The index is the port number.
    ports: Vec<String>,
    /// Class names of the current chain. The index is the class number.
    classes: Mutex<Vec<String>>,
    /// Requests to look at `session` again. Each start and end of a session is one.
    epochs: Arc<Epochs>,
    session: Mutex<Option<Arc<Session>>>,
    /// Whether packets do not wait for the tracer. In a replay, they do.
    is_live: bool,
}

impl Traces {
    /// Creates the shared state of traces, without a session. The index of a name in `ports` and
    /// `classes` is its number.
    pub(crate) fn new(ports: Vec<String>, classes: Vec<String>, workers: usize, is_live: bool) -> Arc<Self> {
        let epochs = Epochs::new(workers);
        Arc::new(Self { ports, classes: Mutex::new(classes), epochs, session: Mutex::default(), is_live })
    }

    /// Replaces the class names after a change of the chain.
    pub(crate) fn name_classes(&self, classes: &[String]) {
        *self.classes.lock().unwrap_or_else(PoisonError::into_inner) = classes.to_vec();
    }

    /// Returns the tracer of worker `worker`.
    pub(crate) fn of_worker(self: &Arc<Self>, worker: usize, clock: Instant) -> Tracer {
        Tracer::new(Arc::clone(self), self.epochs.of_worker(worker), worker, clock)
    }

    /// Starts a trace.
    ///
    /// # Errors
    /// If the request is invalid, or another trace is active.
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

    /// Ends the session if it is the current one. Returns the number of the request to the workers.
    fn end(&self, session: &Arc<Session>) -> Option<u64> {
        let mut current = lock(&self.session);
        current.take_if(|current| Arc::ptr_eq(current, session))?;
        Some(self.epochs.ask())
    }
}

/// Session: one trace with its request and the packets found.
#[derive(Debug)]
struct Session {
    request: Request,
    kept: Mutex<Kept>,
    /// Signaled when `kept` changes.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    /// Number of packets that have received a number in the trace.
    numbers: u64,
    /// Number of packets chosen by the filter.
    chosen: u64,
    /// Number of finished packets in the trace. Used only if the request asks for dropped packets.
    finished: u64,
    /// Number of packets that workers are tracing.
    active: u64,
    /// Finished packets that are not yet read.
    ready: Vec<Packet>,
    missed: u64,
}

impl Session {
    /// Returns the number of a new packet that matches the filter, or `None` if the trace has
    /// enough packets.
    fn choose(&self) -> Option<u64> {
        let mut kept = lock(&self.kept);
        if self.is_enough(&kept) {
            return None;
        }
        kept.chosen += 1;
        Some(kept.register())
    }

    /// Returns the number of a packet that a function created from a chosen one.
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

/// Handle of a trace. The trace ends when it has all its packets, or when the handle is dropped.
#[derive(Debug)]
pub struct Trace {
    traces: Arc<Traces>,
    session: Arc<Session>,
}

/// Packets that a trace has found since the last read.
#[derive(Debug, Serialize)]
pub struct Found {
    /// Finished packets, sorted by number.
    pub packets: Vec<Packet>,
    /// Whether the trace has ended.
    pub over: bool,
    /// Number of packets chosen so far.
    pub chosen: u64,
    /// Number of packets that were not traced, because too many were traced at the same time. They
    /// matched the filter, or were created from packets that did.
    pub missed: u64,
}

impl Trace {
    /// Returns the packets found since the last call. Waits up to `limit` for the first one.
    pub fn read(&self, limit: Duration) -> Found {
        let started = Instant::now();
        let mut kept = lock(&self.session.kept);
        loop {
            // Check first whether the workers have ended. All packets that they handed over are
            // then visible.
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

    /// Ends the trace. Returns the packets found since the last call, including those in flight.
    pub fn stop(self) -> Found {
        if let Some(number) = self.traces.end(&self.session) {
            // After the limit, the trace ends without the packets of the missing workers.
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

/// Locks the mutex, also after a panic of a worker. All critical sections leave consistent data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

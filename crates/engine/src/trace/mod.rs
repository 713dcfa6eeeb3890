//! Packet traces: every step of chosen packets, with times, and why they were dropped.
//!
//! ```text
//! client                          worker, once a turn and per step of a chosen packet
//! start: session, changes + 1 --> sees the change: chooses packets on arrival, by filter and count
//! read   <-- finished packets --- notes each step; hands the packet over when it has left, is dropped or held
//! stop:  none, changes + 1 -----> sees the change: hands over what it still has, answers
//! ```
//! A packet is on one worker from arrival to departure, so its record is made there, and complete when it is handed over.
//! While nobody traces, a worker pays one load a turn, of a line that nobody writes, and a branch where packets move, once
//! for all that move together. While somebody does, it parses what arrives until enough packets are chosen, and looks for
//! chosen packets among those that move as long as it has any. The mutex of a session is taken for chosen packets only.
//!
//! One session at a time. What it keeps is bounded by [`PACKETS_MAX`]; packets beyond are counted.

mod filter;
mod record;
mod tracer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

pub use record::{Fate, Flow, Left, Next, Packet, Step, What};
pub(crate) use tracer::{Origin, Tracer};

use filter::Request;

/// Most packets of a trace, most that a worker follows at once, and most that wait to be read.
pub const PACKETS_MAX: usize = 4096;
/// How often somebody who waits looks whether the workers have ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Workers see a change far sooner.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// The answer of a worker that has ended.
const ENDED: u64 = u64::MAX;

/// What workers and those who trace share.
#[derive(Debug)]
pub(crate) struct Traces {
    /// Names; a port's number is its index.
    ports: Vec<String>,
    /// Those of the chain that packets take now.
    classes: Mutex<Vec<String>>,
    /// How often a session has begun or ended.
    changes: AtomicU64,
    session: Mutex<Option<Arc<Session>>>,
    workers: Box<[Answer]>,
}

/// The last change that a worker has seen, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Answer(AtomicU64);

impl Traces {
    /// `ports` and `classes`: their names, in order of their numbers.
    pub(crate) fn new(ports: Vec<String>, classes: Vec<String>, workers: usize) -> Arc<Self> {
        let workers = (0..workers).map(|_| Answer::default()).collect();
        Arc::new(Self {
            ports,
            classes: Mutex::new(classes),
            changes: AtomicU64::new(0),
            session: Mutex::default(),
            workers,
        })
    }

    /// There are other classes now.
    pub(crate) fn name_classes(&self, classes: &[String]) {
        *self.classes.lock().unwrap_or_else(PoisonError::into_inner) = classes.to_vec();
    }

    /// Worker `worker`'s end.
    pub(crate) fn of_worker(self: &Arc<Self>, worker: usize, clock: Instant) -> Tracer {
        Tracer::new(Arc::clone(self), worker, clock)
    }

    /// Begins a trace.
    pub(crate) fn start(self: &Arc<Self>, request: &Value) -> Result<Trace, String> {
        let classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let request = Request::read(request, &self.ports, &classes)?;
        let mut current = lock(&self.session);
        if current.is_some() {
            return Err("another client is tracing: one does at a time".to_owned());
        }
        let session = Arc::new(Session { request, kept: Mutex::default(), wake: Condvar::new() });
        *current = Some(Arc::clone(&session));
        self.changes.fetch_add(1, Ordering::Release);
        Ok(Trace { traces: Arc::clone(self), session })
    }

    /// Ends a session, if it is the current one. Returns the number of that change.
    fn end(&self, session: &Arc<Session>) -> Option<u64> {
        let mut current = lock(&self.session);
        current.take_if(|current| Arc::ptr_eq(current, session))?;
        Some(self.changes.fetch_add(1, Ordering::Release) + 1)
    }

    fn have_all_seen(&self, change: u64) -> bool {
        self.workers.iter().all(|Answer(answer)| answer.load(Ordering::Acquire) >= change)
    }
}

/// One trace: what is asked for, and what was found.
#[derive(Debug)]
struct Session {
    request: Request,
    kept: Mutex<Kept>,
    /// Something has changed in `kept`.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    /// Numbers given to packets.
    numbers: u64,
    /// Packets that were chosen by the filter.
    chosen: u64,
    /// Finished packets that were kept: those that it is about.
    finished: u64,
    /// Packets that workers follow.
    open: u64,
    /// Finished, not read.
    ready: Vec<Packet>,
    missed: u64,
}

impl Session {
    /// The number of a packet that fits; `None`: there are enough.
    fn choose(&self) -> Option<u64> {
        let mut kept = lock(&self.kept);
        if self.is_enough(&kept) {
            return None;
        }
        kept.chosen += 1;
        Some(kept.follow())
    }

    /// The number of a packet that was made of a chosen one.
    fn choose_child(&self) -> u64 {
        lock(&self.kept).follow()
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
        kept.open -= 1;
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
    fn follow(&mut self) -> u64 {
        self.numbers += 1;
        self.open += 1;
        self.numbers
    }
}

/// A trace that goes on until it has its packets or is dropped.
#[derive(Debug)]
pub struct Trace {
    traces: Arc<Traces>,
    session: Arc<Session>,
}

/// What a trace has found since it was read last.
#[derive(Debug, Serialize)]
pub struct Found {
    /// Packets whose way is known to its end, by number.
    pub packets: Vec<Packet>,
    /// Whether there will be no more.
    pub over: bool,
    /// Packets chosen so far.
    pub chosen: u64,
    /// Packets that fitted, or were made of those that did, and were not followed: there were too many at once.
    pub missed: u64,
}

impl Trace {
    /// What was found since the last call; waits for that, as long as nothing was, up to `limit`.
    pub fn read(&self, limit: Duration) -> Found {
        let started = Instant::now();
        let mut kept = lock(&self.session.kept);
        loop {
            // Before what they have left is looked at.
            drop(kept);
            let have_ended = self.traces.have_all_seen(ENDED);
            kept = lock(&self.session.kept);
            let over = have_ended || (kept.open == 0 && self.session.is_enough(&kept));
            let rest = limit.saturating_sub(started.elapsed());
            if over || !kept.ready.is_empty() || rest.is_zero() {
                return found(&mut kept, over);
            }
            let waited = self.session.wake.wait_timeout(kept, rest.min(LOOK_INTERVAL));
            kept = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends it: what was found since the last call, with the packets that are still in flight.
    pub fn stop(self) -> Found {
        let started = Instant::now();
        if let Some(change) = self.traces.end(&self.session) {
            while !self.traces.have_all_seen(change) && started.elapsed() < STOP_LIMIT {
                std::thread::sleep(Duration::from_micros(50));
            }
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

/// A panic of a worker leaves nothing half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Signing engines. Each thread of the program has its own engine, so that the jobs of all
//! connections of the thread share batches.

mod inside;
mod separate;
mod stack;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use godwit_sign::{Counters, JobId, Key, Refusal, Scheme};
use nix::sys::eventfd::EventFd;

use crate::entry::Provider;
use crate::report::Statistics;
pub(crate) use stack::on_large_stack;

/// Engine of one thread.
pub(crate) struct Engine {
    /// Process that created the engine. A forked process creates new engines.
    process: u32,
    kind: Kind,
    /// Number of paused asynchronous jobs.
    paused: AtomicU64,
}

enum Kind {
    Inside(Box<inside::Inside>),
    Separate(Box<separate::Separate>),
}

/// Signature, or the reason why there is none.
pub(crate) type Answer = Result<Vec<u8>, Refusal>;

impl Engine {
    fn new(provider: &Provider) -> Result<Self, String> {
        let kind = match &provider.settings.socket {
            None => Kind::Inside(Box::new(inside::Inside::new(provider)?)),
            Some(socket) => Kind::Separate(Box::new(separate::Separate::new(socket, provider.settings.jobs_max)?)),
        };
        Ok(Self { process: std::process::id(), kind, paused: AtomicU64::new(0) })
    }

    /// Adds a job. `event` becomes readable when [`Engine::answer`] should be called.
    pub(crate) fn submit(
        &self,
        key: &Arc<Key>,
        scheme: Scheme,
        message: &[u8],
        event: Option<&Arc<EventFd>>,
    ) -> Result<JobId, Refusal> {
        match &self.kind {
            Kind::Inside(inside) => inside.submit(key, scheme, message, event),
            Kind::Separate(separate) => separate.submit(key, scheme, message, event),
        }
    }

    /// Cancels a job, so that it gets no answer.
    pub(crate) fn cancel(&self, id: JobId) {
        match &self.kind {
            Kind::Inside(inside) => inside.cancel(id),
            Kind::Separate(separate) => separate.cancel(id),
        }
    }

    /// Returns the answer of a job. An engine in this process first signs the jobs before it. A
    /// separate engine returns `None` if the answer has not arrived.
    pub(crate) fn answer(&self, id: JobId) -> Option<Answer> {
        match &self.kind {
            Kind::Inside(inside) => Some(inside.answer(id)),
            Kind::Separate(separate) => separate.answer(id),
        }
    }

    /// Waits for the answer of a job.
    pub(crate) fn wait(&self, id: JobId) -> Answer {
        match &self.kind {
            Kind::Inside(inside) => inside.answer(id),
            Kind::Separate(separate) => separate.wait(id),
        }
    }

    /// Counts an asynchronous job that pauses. Returns the number of paused jobs.
    pub(crate) fn count_paused(&self) -> u64 {
        self.paused.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts an asynchronous job that continues or ends.
    pub(crate) fn count_resumed(&self) {
        self.paused.fetch_sub(1, Ordering::Relaxed);
    }

    fn counters(&self) -> Counters {
        match &self.kind {
            Kind::Inside(inside) => inside.counters(),
            Kind::Separate(separate) => separate.counters(),
        }
    }
}

/// Engines of all threads, and the counters of threads that have ended.
#[derive(Default)]
pub(crate) struct Engines(Mutex<(Vec<Arc<Engine>>, Counters)>);

impl Engines {
    /// Returns the counters of this process.
    pub(crate) fn counters(&self) -> Counters {
        let engines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = engines.1.clone();
        let process = std::process::id();
        engines.0.iter().filter(|engine| engine.process == process).for_each(|engine| sum.add(&engine.counters()));
        sum
    }

    /// Stops the threads of all engines.
    pub(crate) fn clear(&self) {
        let mut engines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        engines.0.drain(..).for_each(forget_if_forked);
    }

    fn add(&self, engine: &Arc<Engine>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.push(Arc::clone(engine));
    }

    /// Removes an engine. Returns whether it was the last one.
    fn remove(&self, engine: &Arc<Engine>) -> bool {
        let mut engines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = engines.0.len();
        engines.0.retain(|other| !Arc::ptr_eq(other, engine));
        if engines.0.len() < before {
            engines.1.add(&engine.counters());
        }
        engines.0.is_empty()
    }
}

/// The threads and the connections of an engine stay with the process that created them.
fn forget_if_forked(engine: Arc<Engine>) {
    if engine.process != std::process::id() {
        std::mem::forget(engine);
    }
}

/// Engine of a thread for one provider.
struct Owned {
    provider: u64,
    statistics: Arc<Statistics>,
    engine: Option<Arc<Engine>>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take() else { return };
        if engine.process == std::process::id() {
            if self.statistics.engines.remove(&engine) {
                self.statistics.finish();
            }
        } else {
            forget_if_forked(engine);
        }
    }
}

thread_local! {
    static OWNED: RefCell<Vec<Owned>> = const { RefCell::new(Vec::new()) };
}

/// Returns the number of a new provider.
pub(crate) fn new_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the engine of this thread. The first call of a thread creates it.
pub(crate) fn of_thread(provider: &Provider) -> Result<Arc<Engine>, String> {
    let process = std::process::id();
    let find = |owned: &Owned| {
        let engine = owned.engine.as_ref().filter(|_| owned.provider == provider.number)?;
        (engine.process == process).then(|| Arc::clone(engine))
    };
    if let Some(engine) = OWNED.with_borrow(|all| all.iter().find_map(find)) {
        return Ok(engine);
    }
    let engine = Arc::new(on_large_stack(|| Engine::new(provider))?);
    provider.statistics.engines.add(&engine);
    let (statistics, copy) = (Arc::clone(&provider.statistics), Arc::clone(&engine));
    let owned = Owned { provider: provider.number, statistics, engine: Some(copy) };
    OWNED.with_borrow_mut(|all| {
        all.retain(|old| old.engine.as_ref().is_some_and(|engine| engine.process == process));
        all.push(owned);
    });
    Ok(engine)
}

//! Signing service of a thread. It connects the [`Signer`] with the event loop of the thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use godwit_sign::{Counters, Done, JobId, Key, Refusal, Scheme, Signer};
use tokio::sync::Notify;

use crate::fiber;

/// Number of turns of the event loop between the arrival of a job and its signature. In this time,
/// other handshakes can add jobs to the same batch.
const TURNS: usize = 4;

thread_local! {
    static SERVICE: RefCell<Option<Rc<Shared>>> = const { RefCell::new(None) };
}

/// Signing service of the thread that created it.
pub struct Service(Rc<Shared>);

struct Shared {
    signer: RefCell<Signer>,
    waiting: RefCell<HashMap<JobId, Waiting>>,
    /// Notified when a job arrives.
    arrived: Notify,
    started: Instant,
}

/// State of a job that a fiber waits for.
enum Waiting {
    /// The job has no answer yet. The waker belongs to the task that waits for it.
    Signature(Waker),
    /// The job has this answer.
    Answer(Result<Vec<u8>, Refusal>),
}

/// A handshake received no signature.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum NoSignature {
    /// The signer refused the job.
    #[error("the signing engine refused the job ({0:?})")]
    Refused(Refusal),
    /// The thread has no service, or the caller is not in a fiber.
    #[error("signing needs the event loop of a worker")]
    NoService,
}

impl Service {
    /// Creates the signing service of the current thread. It replaces any earlier service of this
    /// thread.
    pub fn new(signer: Signer) -> Self {
        let shared = Rc::new(Shared {
            signer: RefCell::new(signer),
            waiting: RefCell::default(),
            arrived: Notify::new(),
            started: Instant::now(),
        });
        SERVICE.set(Some(Rc::clone(&shared)));
        Self(shared)
    }

    /// Returns the counters of the signer.
    pub fn counters(&self) -> Counters {
        self.0.signer.borrow().counters()
    }

    /// Signs jobs until the future is dropped. Each thread runs this future once, at the same time
    /// as its connections.
    pub async fn run(&self) {
        let shared = &self.0;
        let mut done = Vec::new();
        let mut more = false;
        loop {
            if !more {
                shared.wait_for_work().await;
            }
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            more = shared.signer.borrow_mut().turn(shared.now_ns(), &mut done);
            done.drain(..).for_each(|done| shared.deliver(done));
        }
    }
}

impl Shared {
    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Waits for a job or for the next deadline of a device batch.
    async fn wait_for_work(&self) {
        let deadline_ns = self.signer.borrow().deadline_ns();
        match deadline_ns {
            None => self.arrived.notified().await,
            Some(at_ns) => {
                let at = self.started + Duration::from_nanos(at_ns);
                // A new job and the expiry of the deadline both end the wait.
                let _ = tokio::time::timeout_at(at.into(), self.arrived.notified()).await;
            }
        }
    }

    fn deliver(&self, Done { id, result }: Done) {
        // A job without an entry in this table was cancelled.
        if let Some(waiting) = self.waiting.borrow_mut().get_mut(&id)
            && let Waiting::Signature(waker) = std::mem::replace(waiting, Waiting::Answer(result))
        {
            waker.wake();
        }
    }

    fn poll(&self, id: JobId, context: &mut Context<'_>) -> Poll<Result<Vec<u8>, Refusal>> {
        let mut waiting = self.waiting.borrow_mut();
        match waiting.remove(&id) {
            Some(Waiting::Answer(result)) => Poll::Ready(result),
            _ => {
                waiting.insert(id, Waiting::Signature(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

/// Signs `message` with `key`. The calling fiber is suspended until the signature is available.
pub(crate) fn sign(key: &Arc<Key>, scheme: Scheme, message: &[u8]) -> Result<Vec<u8>, NoSignature> {
    /// Cancels the job when the handshake ends before its answer.
    struct Job<'a>(&'a Shared, JobId);
    impl Drop for Job<'_> {
        fn drop(&mut self) {
            self.0.waiting.borrow_mut().remove(&self.1);
            self.0.signer.borrow_mut().cancel(self.1);
        }
    }
    let shared = SERVICE.with_borrow(Clone::clone).ok_or(NoSignature::NoService)?;
    let submitted = shared.signer.borrow_mut().submit(Arc::clone(key), scheme, message);
    let job = Job(&shared, submitted.map_err(NoSignature::Refused)?);
    shared.arrived.notify_one();
    let answer = fiber::wait(|context| shared.poll(job.1, context)).ok_or(NoSignature::NoService)?;
    answer.map_err(NoSignature::Refused)
}

//! Signing service of a thread. It connects the event loop to a [`Signer`] in this process, or to a
//! signer in another process.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use godwit_sign::remote::{Connection, Remote};
use godwit_sign::{Counters, Done, JobId, Key, Refusal, Scheme, Signer};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::Notify;

use crate::fiber;

/// Number of event-loop turns that a job waits before it is signed. Meanwhile, other handshakes can
/// add jobs to the batch.
const TURNS: usize = 4;
/// Pause before another attempt to connect to a lost signer.
const RETRY: Duration = Duration::from_millis(20);

thread_local! {
    static SERVICE: RefCell<Option<Rc<Shared>>> = const { RefCell::new(None) };
}

/// Signing service of the thread that created it.
pub struct Service(Rc<Shared>);

/// Engine that makes the signatures.
enum Engine {
    /// The thread itself signs.
    Inside(Box<Signer>),
    /// Another process signs.
    Separate(Box<Remote>),
}

impl Engine {
    fn submit(&mut self, key: &Arc<Key>, scheme: Scheme, message: &[u8]) -> Result<JobId, Refusal> {
        match self {
            Self::Inside(signer) => signer.submit(Arc::clone(key), scheme, message),
            Self::Separate(remote) => remote.submit(key, scheme, message),
        }
    }

    fn cancel(&mut self, id: JobId) {
        match self {
            Self::Inside(signer) => signer.cancel(id),
            Self::Separate(remote) => remote.cancel(id),
        }
    }

    fn counters(&self) -> Counters {
        match self {
            Self::Inside(signer) => signer.counters(),
            Self::Separate(remote) => remote.counters(),
        }
    }
}

struct Shared {
    engine: RefCell<Engine>,
    waiting: RefCell<HashMap<JobId, Waiting>>,
    /// Notified when a job arrives.
    arrived: Notify,
    started: Instant,
}

/// State of a job for which a handshake waits.
enum Waiting {
    /// The job has no answer yet. The waker wakes the task that waits for it.
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
    /// Creates the signing service of the current thread, with a signer in this process. It
    /// replaces any earlier service of the thread.
    pub fn new(signer: Signer) -> Self {
        Self::with(Engine::Inside(Box::new(signer)))
    }

    /// Creates the signing service of the current thread, with a signer in another process. It
    /// replaces any earlier service of the thread.
    pub fn separate(remote: Remote) -> Self {
        Self::with(Engine::Separate(Box::new(remote)))
    }

    fn with(engine: Engine) -> Self {
        let shared = Rc::new(Shared {
            engine: RefCell::new(engine),
            waiting: RefCell::default(),
            arrived: Notify::new(),
            started: Instant::now(),
        });
        SERVICE.set(Some(Rc::clone(&shared)));
        Self(shared)
    }

    /// Returns the counters of the signer.
    pub fn counters(&self) -> Counters {
        self.0.engine.borrow().counters()
    }

    /// Signs jobs until the future is dropped. Each thread runs this future once, concurrently with
    /// its connections.
    pub async fn run(&self) {
        let shared = &self.0;
        let is_inside = matches!(*shared.engine.borrow(), Engine::Inside(_));
        if is_inside {
            return shared.run_inside().await;
        }
        loop {
            // Ignore errors, such as a lack of file descriptors. The next iteration tries again.
            let _ = shared.collect().await;
            let socket = shared.with_remote(|remote| remote.socket().to_owned());
            tokio::time::sleep(RETRY).await;
            // Connect in a blocking task. A slow signer would otherwise delay the connections of
            // this thread.
            let opened = tokio::task::spawn_blocking(move || Connection::open(&socket)).await;
            if let Ok(Ok(connection)) = opened {
                shared.with_remote(|remote| remote.resume(connection));
            }
        }
    }
}

impl Shared {
    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Signs on this thread.
    async fn run_inside(&self) {
        let mut done = Vec::new();
        let mut more = false;
        loop {
            if !more {
                self.wait_for_work().await;
            }
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            if let Engine::Inside(signer) = &mut *self.engine.borrow_mut() {
                more = signer.turn(self.now_ns(), &mut done);
            }
            done.drain(..).for_each(|done| self.deliver(done));
        }
    }

    /// Calls `work` with the connection to the signer process.
    ///
    /// # Panics
    /// Panics if the signer is in this process.
    fn with_remote<T>(&self, work: impl FnOnce(&mut Remote) -> T) -> T {
        match &mut *self.engine.borrow_mut() {
            Engine::Separate(remote) => work(remote),
            Engine::Inside(_) => unreachable!("the caller has checked the engine"),
        }
    }

    /// Delivers the answers of the signer until it is lost.
    async fn collect(&self) -> std::io::Result<()> {
        let Some(socket) = self.with_remote(|remote| remote.wake_up()) else { return Ok(()) };
        let socket = UnixStream::from_std(socket?)?;
        let mut done = Vec::new();
        loop {
            let sleeps = self.with_remote(|remote| {
                remote.poll(&mut done);
                remote.is_connected().then(|| remote.announce_sleep())
            });
            done.drain(..).for_each(|done| self.deliver(done));
            match sleeps {
                None => return Ok(()),
                Some(false) => tokio::task::yield_now().await,
                Some(true) => {
                    socket.readable().await?;
                    // Another file descriptor of this socket reads the bytes. Report `WouldBlock`,
                    // so tokio waits for new bytes.
                    let read = || Err::<(), _>(std::io::ErrorKind::WouldBlock.into());
                    let _ = socket.try_io(Interest::READABLE, read);
                }
            }
        }
    }

    /// Waits for a job or for the next deadline of a device batch.
    async fn wait_for_work(&self) {
        let deadline_ns = match &*self.engine.borrow() {
            Engine::Inside(signer) => signer.deadline_ns(),
            Engine::Separate(_) => None,
        };
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
            self.0.engine.borrow_mut().cancel(self.1);
        }
    }
    let shared = SERVICE.with_borrow(Clone::clone).ok_or(NoSignature::NoService)?;
    let submitted = shared.engine.borrow_mut().submit(key, scheme, message);
    let job = Job(&shared, submitted.map_err(NoSignature::Refused)?);
    shared.arrived.notify_one();
    let answer = fiber::wait(|context| shared.poll(job.1, context)).ok_or(NoSignature::NoService)?;
    answer.map_err(NoSignature::Refused)
}

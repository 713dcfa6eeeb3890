//! Asynchronous jobs of OpenSSL. A job is a call on a separate stack that can be paused. The event
//! loop of the program resumes it when a descriptor becomes readable.
#![allow(unsafe_code, reason = "calls of OpenSSL")]

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use godwit_sign::{JobId, Key, Refusal, Scheme};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::engine::{Answer, Engine};
use crate::openssl::{Object, functions};
use crate::report::Statistics;

/// Address that identifies the descriptors of this provider among those of a connection.
static OWNER: u8 = 0;

/// Number of pauses without an answer, after which the thread waits. A program may forbid pauses.
const PAUSES_MAX: usize = 100;

/// Event of a connection. It lives as long as the connection, because event loops keep watching the
/// descriptor.
struct Connection {
    event: Arc<EventFd>,
    /// Job that the connection waits for.
    job: Mutex<Option<(Arc<Engine>, JobId)>>,
}

impl Connection {
    fn new() -> Option<Arc<Self>> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).ok()?;
        Some(Arc::new(Self { event: Arc::new(event), job: Mutex::new(None) }))
    }

    /// Returns the connection that was added to `context` before.
    fn find(context: Object) -> Option<Arc<Self>> {
        let (mut descriptor, mut data) = (0, null_mut());
        // SAFETY: the context belongs to the running job, and both results are valid.
        let found =
            unsafe { (functions().ASYNC_WAIT_CTX_get_fd)(context, owner(), &raw mut descriptor, &raw mut data) };
        let known = data.cast_const().cast::<Self>();
        // SAFETY: the context holds a reference until it calls `forget`.
        (found == 1).then(|| unsafe {
            Arc::increment_strong_count(known);
            Arc::from_raw(known)
        })
    }

    /// Adds the descriptor of the event to `context`, so that the program watches it. The job must
    /// then pause, because HAProxy fails if it finds a descriptor that no pause has announced.
    fn add_to(self: &Arc<Self>, context: Object) -> bool {
        let data = Arc::into_raw(Arc::clone(self));
        let descriptor = self.event.as_raw_fd();
        // SAFETY: the context belongs to the running job. It calls `forget` once, with this data.
        let added = unsafe {
            (functions().ASYNC_WAIT_CTX_set_wait_fd)(context, owner(), descriptor, data.cast_mut().cast(), forget)
        };
        if added != 1 {
            // SAFETY: OpenSSL has not kept the reference.
            drop(unsafe { Arc::from_raw(data) });
        }
        added == 1
    }

    fn set_job(&self, job: Option<(Arc<Engine>, JobId)>) {
        *self.job.lock().unwrap_or_else(PoisonError::into_inner) = job;
    }
}

/// Returns the context with the descriptors of the running asynchronous job.
fn wait_context() -> Option<Object> {
    // SAFETY: the function has no preconditions.
    let job = unsafe { (functions().ASYNC_get_current_job)() };
    // SAFETY: the job is running.
    (!job.is_null()).then(|| unsafe { (functions().ASYNC_get_wait_ctx)(job) })
}

fn owner() -> *const c_void {
    (&raw const OWNER).cast()
}

/// Ends the event of a connection that OpenSSL frees, and cancels its job.
unsafe extern "C" fn forget(_context: Object, _owner: *const c_void, _descriptor: c_int, data: *mut c_void) {
    // SAFETY: the reference is that of `Connection::add_to`.
    let connection = unsafe { Arc::from_raw(data.cast_const().cast::<Connection>()) };
    let job = connection.job.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((engine, id)) = job {
        engine.cancel(id);
        engine.count_resumed();
    }
}

/// Signs `message` with `key`. Pauses the running asynchronous job until the signature is made.
/// Without an asynchronous job, the thread waits.
pub(crate) fn sign(
    engine: &Arc<Engine>,
    statistics: &Statistics,
    key: &Arc<Key>,
    scheme: Scheme,
    message: &[u8],
) -> Answer {
    let Some(context) = wait_context() else { return engine.wait(engine.submit(key, scheme, message, None)?) };
    let known = Connection::find(context);
    let is_known = known.is_some();
    let Some(connection) = known.or_else(Connection::new) else { return Err(Refusal::Failed) };
    let id = engine.submit(key, scheme, message, Some(&connection.event))?;
    if !is_known && !connection.add_to(context) {
        return engine.wait(id);
    }
    statistics.paused.fetch_add(1, Ordering::Relaxed);
    statistics.paused_most.fetch_max(engine.count_paused(), Ordering::Relaxed);
    connection.set_job(Some((Arc::clone(engine), id)));
    // OpenSSL never resumes the job of a connection that it frees, so this stack would keep a
    // reference for ever.
    let kept = Arc::as_ptr(&connection);
    drop(connection);
    // SAFETY: the context keeps the connection while it resumes the job.
    let connection = unsafe { &*kept };
    let answer = pause(connection, engine, id);
    connection.set_job(None);
    engine.count_resumed();
    answer
}

fn pause(connection: &Connection, engine: &Engine, id: JobId) -> Answer {
    for _ in 0..PAUSES_MAX {
        // SAFETY: the caller is on the stack of a job. No lock is held.
        if unsafe { (functions().ASYNC_pause_job)() } != 1 {
            engine.cancel(id);
            return Err(Refusal::Failed);
        }
        // The read fails if the program resumed the job for another reason.
        let _ = connection.event.read();
        if let Some(answer) = engine.answer(id) {
            return answer;
        }
    }
    engine.wait(id)
}

//! Asynchronous jobs of OpenSSL. A job is a call on a separate stack that can be paused. The event
//! loop of the program resumes it when a descriptor becomes readable.
#![allow(unsafe_code, reason = "calls of OpenSSL")]

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use godwit_sign::{JobId, Key, Refusal, Scheme};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::engine::{Answer, Engine};
use crate::openssl::{Object, functions};

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
    /// Returns the event of the connection whose asynchronous job runs now.
    fn current() -> Option<Arc<Self>> {
        let openssl = functions();
        // SAFETY: the function has no preconditions.
        let job = unsafe { (openssl.ASYNC_get_current_job)() };
        if job.is_null() {
            return None;
        }
        // SAFETY: the job is running.
        let context = unsafe { (openssl.ASYNC_get_wait_ctx)(job) };
        let (mut descriptor, mut data) = (0, null_mut());
        // SAFETY: the context belongs to the job, and both results are valid.
        let found = unsafe { (openssl.ASYNC_WAIT_CTX_get_fd)(context, owner(), &raw mut descriptor, &raw mut data) };
        if found == 1 {
            let known = data.cast_const().cast::<Self>();
            // SAFETY: the context holds a reference until it calls `forget`.
            unsafe {
                Arc::increment_strong_count(known);
                return Some(Arc::from_raw(known));
            }
        }
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).ok()?;
        let connection = Arc::new(Self { event: Arc::new(event), job: Mutex::new(None) });
        let data = Arc::into_raw(Arc::clone(&connection));
        let descriptor = connection.event.as_raw_fd();
        // SAFETY: the context belongs to the job. It calls `forget` once, with this data.
        let added = unsafe {
            (openssl.ASYNC_WAIT_CTX_set_wait_fd)(context, owner(), descriptor, data.cast_mut().cast(), forget)
        };
        if added != 1 {
            // SAFETY: OpenSSL has not kept the reference.
            drop(unsafe { Arc::from_raw(data) });
            return None;
        }
        Some(connection)
    }

    fn set_job(&self, job: Option<(Arc<Engine>, JobId)>) {
        *self.job.lock().unwrap_or_else(PoisonError::into_inner) = job;
    }
}

fn owner() -> *const c_void {
    (&raw const OWNER).cast()
}

/// Ends the event of a connection that OpenSSL frees, and cancels its job.
unsafe extern "C" fn forget(_context: Object, _owner: *const c_void, _descriptor: c_int, data: *mut c_void) {
    // SAFETY: the reference is that of `Connection::current`.
    let connection = unsafe { Arc::from_raw(data.cast_const().cast::<Connection>()) };
    let job = connection.job.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((engine, id)) = job {
        engine.cancel(id);
    }
}

/// Signs `message` with `key`. Pauses the running asynchronous job until the signature is made.
/// `paused` counts these pauses. Without an asynchronous job, the thread waits.
pub(crate) fn sign(engine: &Arc<Engine>, paused: &AtomicU64, key: &Arc<Key>, scheme: Scheme, message: &[u8]) -> Answer {
    let connection = Connection::current();
    let id = engine.submit(key, scheme, message, connection.as_ref().map(|connection| &connection.event))?;
    let Some(connection) = connection else { return engine.wait(id) };
    paused.fetch_add(1, Ordering::Relaxed);
    connection.set_job(Some((Arc::clone(engine), id)));
    let answer = pause(&connection, engine, id);
    connection.set_job(None);
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

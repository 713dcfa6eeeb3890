//! CUDA streams and events.

use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::context::{Context, failed};
use crate::error::Error;

/// CUDA stream: a queue of copies and launches that run in order.
pub struct Stream {
    /// Handle of the stream.
    pub stream: sys::CUstream,
    context: Arc<Context>,
}

// SAFETY: any thread may use a stream in its context.
unsafe impl Send for Stream {}
// SAFETY: see above. The driver locks shared state.
unsafe impl Sync for Stream {}

impl Stream {
    /// Creates a stream that does not synchronize with the default stream of CUDA.
    ///
    /// # Errors
    /// Returns [`Error::Driver`] if the driver fails.
    pub fn new(context: &Arc<Context>) -> Result<Self, Error> {
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(failed(&context.id, "create a stream"))?;
        Ok(Self { stream, context: Arc::clone(context) })
    }

    /// Waits until all commands of the stream have ended.
    ///
    /// # Errors
    /// Returns the error of the driver, or of a command that failed.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        self.context.bind()?;
        // SAFETY: the stream exists.
        unsafe { result::stream::synchronize(self.stream) }
    }

    /// Makes all later commands of this stream wait for the last recording of `event`.
    pub(crate) fn await_event(&self, event: &Event) -> Result<(), DriverError> {
        // SAFETY: both exist, in the same context.
        unsafe { result::stream::wait_event(self.stream, event.event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT) }
    }

    /// Returns whether all commands of the stream have ended.
    ///
    /// # Errors
    /// Returns the error of the driver, or of a command that failed.
    pub fn is_idle(&self) -> Result<bool, DriverError> {
        // SAFETY: the stream exists.
        is_success(unsafe { sys::cuStreamQuery(self.stream) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: created once and destroyed once.
        let _ = unsafe { result::stream::destroy(self.stream) };
    }
}

/// A position in a stream.
pub(crate) struct Event {
    event: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: any thread may use an event in its context.
unsafe impl Send for Event {}

impl Event {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, Error> {
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
            .map_err(failed(&context.id, "create an event"))?;
        Ok(Self { event, context: Arc::clone(context) })
    }

    pub(crate) fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: both exist, in the same context.
        unsafe { result::event::record(self.event, stream.stream) }
    }

    /// Returns whether the device has completed all work before the recorded event.
    pub(crate) fn is_complete(&self) -> Result<bool, DriverError> {
        // SAFETY: the event exists.
        is_success(unsafe { sys::cuEventQuery(self.event) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: created once and destroyed once.
        let _ = unsafe { result::event::destroy(self.event) };
    }
}

fn is_success(result: sys::CUresult) -> Result<bool, DriverError> {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(true),
        sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        error => Err(DriverError(error)),
    }
}

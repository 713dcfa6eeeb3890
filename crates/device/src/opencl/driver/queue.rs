//! Command queues and copies.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use opencl3::command_queue::{
    CL_QUEUE_PROFILING_ENABLE, CommandQueue, enqueue_read_buffer, enqueue_read_buffer_rect, enqueue_write_buffer,
    enqueue_write_buffer_rect,
};
use opencl3::context::Context;
use opencl3::device::Device;
use opencl3::error_codes::ClError;
use opencl3::event::{CL_COMPLETE, Event};
use opencl3::memory::{Buffer, ClMem};

use super::error::failed;
use crate::error::Error;
use crate::found::Found;
use crate::transfer::{Block, Direction};

/// The call returns before the copy has ended.
const NO_WAIT: u32 = 0;

/// Creates an in-order queue with profiling.
pub(in crate::opencl) fn queue(found: &Found, context: &Context, device: &Device) -> Result<CommandQueue, Error> {
    // SAFETY: the device belongs to the context. The flags do not request out-of-order execution.
    let queue = unsafe { CommandQueue::create(context, device.id(), CL_QUEUE_PROFILING_ENABLE) };
    queue.map_err(failed(&found.capabilities.id, "create a command queue"))
}

/// Returns whether a command ends within `timeout`.
pub(in crate::opencl) fn wait_for(event: &Event, timeout: Duration) -> Result<bool, ClError> {
    let waiting = Instant::now();
    loop {
        // A negative status is an error.
        match event.command_execution_status()?.0 {
            CL_COMPLETE => return event.wait().map(|()| true),
            error if error < 0 => return Err(ClError(error)),
            _ if waiting.elapsed() > timeout => return Ok(false),
            _ => std::thread::yield_now(),
        }
    }
}

/// Enqueues a copy of `bytes` bytes to `offset` in a buffer.
///
/// # Safety
/// `host` must be valid for `bytes` bytes, and must not be written until the copy has ended.
pub(in crate::opencl) unsafe fn copy_to_device(
    queue: &CommandQueue,
    buffer: &Buffer<u8>,
    offset: usize,
    host: NonNull<u8>,
    bytes: usize,
) -> Result<Event, ClError> {
    let (host, none) = (host.as_ptr().cast(), std::ptr::null());
    // SAFETY: the caller guarantees valid host memory, and the driver checks the bounds of the
    // buffer.
    let event = unsafe { enqueue_write_buffer(queue.get(), buffer.get(), 0, offset, bytes, host, NO_WAIT, none) };
    event.map(Event::new).map_err(ClError)
}

/// Enqueues a copy of `bytes` bytes from `offset` in a buffer.
///
/// # Safety
/// `host` must be valid for `bytes` bytes, and must have no other use until the copy has ended.
pub(in crate::opencl) unsafe fn copy_to_host(
    queue: &CommandQueue,
    buffer: &Buffer<u8>,
    offset: usize,
    host: NonNull<u8>,
    bytes: usize,
) -> Result<Event, ClError> {
    let (host, none) = (host.as_ptr().cast(), std::ptr::null());
    // SAFETY: the caller guarantees valid host memory, and the driver checks the bounds of the
    // buffer.
    let event = unsafe { enqueue_read_buffer(queue.get(), buffer.get(), 0, offset, bytes, host, NO_WAIT, none) };
    event.map(Event::new).map_err(ClError)
}

/// Enqueues a copy of a block between host memory at `base` and a buffer, at the same offsets.
///
/// # Safety
/// The host memory must be valid for the block, and the block must have no other use until the copy
/// has ended.
pub(in crate::opencl) unsafe fn copy_block(
    queue: &CommandQueue,
    buffer: &Buffer<u8>,
    base: NonNull<u8>,
    block: Block,
    direction: Direction,
) -> Result<Event, ClError> {
    let Block { offset, bytes, rows, pitch } = block;
    if block.is_row() {
        // SAFETY: guaranteed by the caller.
        return unsafe {
            match direction {
                Direction::ToDevice => copy_to_device(queue, buffer, offset, base.add(offset), bytes),
                Direction::ToHost => copy_to_host(queue, buffer, offset, base.add(offset), bytes),
            }
        };
    }
    let (origin, start, region) = ([offset, 0, 0], [0_usize; 3], [bytes, rows, 1]);
    let (origin, start, region, none) = (origin.as_ptr(), start.as_ptr(), region.as_ptr(), std::ptr::null());
    let (queue, buffer) = (queue.get(), buffer.get());
    // SAFETY: the caller guarantees valid host memory, and the driver checks the bounds of the
    // buffer.
    let event = unsafe {
        let host: *mut c_void = base.add(offset).as_ptr().cast();
        match direction {
            Direction::ToDevice => enqueue_write_buffer_rect(
                queue, buffer, NO_WAIT, origin, start, region, pitch, 0, pitch, 0, host, 0, none,
            ),
            Direction::ToHost => enqueue_read_buffer_rect(
                queue, buffer, NO_WAIT, origin, start, region, pitch, 0, pitch, 0, host, 0, none,
            ),
        }
    };
    event.map(Event::new).map_err(ClError)
}

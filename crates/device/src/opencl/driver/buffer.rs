//! Creates OpenCL buffers, either in device memory or over existing host memory.

use std::ops::Range;
use std::ptr::NonNull;

use opencl3::context::Context;
use opencl3::error_codes::ClError;
use opencl3::memory::{Buffer, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE, CL_MEM_USE_HOST_PTR};
use opencl3::types::cl_mem_flags;

use super::error::failed;
use crate::error::Error;
use crate::found::Found;

/// Size of a memory page, in bytes. Drivers share host memory with the device in whole pages.
pub(in crate::opencl) const PAGE_BYTES: usize = 4096;

/// Creates a buffer in the device's memory.
pub(in crate::opencl) fn buffer(context: &Context, bytes: usize) -> Result<Buffer<u8>, ClError> {
    // SAFETY: the buffer uses no host memory.
    unsafe { Buffer::create(context, CL_MEM_READ_WRITE, bytes, std::ptr::null_mut()) }
}

/// Creates a buffer over a byte range of a larger buffer.
pub(in crate::opencl) fn parts(buffer: &Buffer<u8>, range: &Range<usize>) -> Result<Buffer<u8>, ClError> {
    // SAFETY: the driver checks that the range lies within the buffer, which it keeps alive.
    unsafe { buffer.create_sub_buffer(CL_MEM_READ_WRITE, range.start, range.len()) }
}

/// Returns an error if an object of `bytes` bytes exceeds the maximum buffer size of the device.
/// `what` names the object in the error.
pub(in crate::opencl) fn check_buffer_size(found: &Found, bytes: usize, what: &'static str) -> Result<(), Error> {
    let (bytes, bytes_max) = (bytes as u64, found.buffer_bytes_max);
    match bytes > bytes_max {
        true => Err(Error::TooLarge { id: found.capabilities.id.clone(), what, bytes, bytes_max }),
        false => Ok(()),
    }
}

/// Creates a buffer over host memory, which the device accesses directly. `what` names the purpose
/// of the buffer in an error.
///
/// # Safety
/// The memory must stay mapped until the buffer is dropped and all commands that use it have ended.
/// Until then, only parts that no command uses may be accessed.
pub(in crate::opencl) unsafe fn over(
    found: &Found,
    context: &Context,
    base: NonNull<u8>,
    bytes: usize,
    what: &'static str,
) -> Result<Buffer<u8>, Error> {
    // SAFETY: guaranteed by the caller.
    unsafe { over_with(found, context, CL_MEM_READ_WRITE, base, bytes, what) }
}

/// Creates a buffer over host memory that kernels only read.
///
/// # Safety
/// The memory must stay mapped until the buffer is dropped and all commands that use it have ended.
/// Until then, only parts that no command uses may be written.
pub(in crate::opencl) unsafe fn over_read_only(
    found: &Found,
    context: &Context,
    base: NonNull<u8>,
    bytes: usize,
    what: &'static str,
) -> Result<Buffer<u8>, Error> {
    // SAFETY: guaranteed by the caller.
    unsafe { over_with(found, context, CL_MEM_READ_ONLY, base, bytes, what) }
}

/// # Safety
/// Same as for [`over`].
unsafe fn over_with(
    found: &Found,
    context: &Context,
    access: cl_mem_flags,
    base: NonNull<u8>,
    bytes: usize,
    what: &'static str,
) -> Result<Buffer<u8>, Error> {
    check_buffer_size(found, bytes, what)?;
    // SAFETY: guaranteed by the caller.
    let buffer = unsafe { Buffer::create(context, access | CL_MEM_USE_HOST_PTR, bytes, base.as_ptr().cast()) };
    buffer.map_err(failed(&found.capabilities.id, "create a buffer over host memory"))
}

//! Passes arguments to kernels and launches them. The driver checks the size of each argument.

use std::ffi::c_void;

use opencl3::command_queue::CommandQueue;
use opencl3::error_codes::ClError;
use opencl3::event::Event;
use opencl3::kernel::Kernel;
use opencl3::memory::{Buffer, ClMem};

/// Sets a kernel argument that points to a buffer in global memory.
pub(in crate::opencl) fn set_buffer(kernel: &Kernel, index: u32, buffer: &Buffer<u8>) -> Result<(), ClError> {
    // SAFETY: the value has the size of a pointer, which the driver compares with the parameter.
    // The contract of a launch requires that the buffer lives long enough.
    unsafe { kernel.set_arg(index, &buffer.get()) }
}

/// Sets a kernel argument that points to a buffer in global memory. `buffer` is the driver's handle
/// of this buffer.
pub(in crate::opencl) fn set_address(kernel: &Kernel, index: u32, buffer: *mut c_void) -> Result<(), ClError> {
    // SAFETY: see `set_buffer`.
    unsafe { kernel.set_arg(index, &buffer) }
}

/// Sets a kernel argument that points to shared virtual memory.
pub(in crate::opencl) fn set_shared(kernel: &Kernel, index: u32, memory: *const u8) -> Result<(), ClError> {
    // SAFETY: see `set_buffer`.
    unsafe { kernel.set_arg_svm_pointer(index, memory.cast()) }
}

/// Sets a kernel argument that is an integer.
pub(in crate::opencl) fn set_word<T: Into<u64> + Copy>(kernel: &Kernel, index: u32, word: &T) -> Result<(), ClError> {
    // SAFETY: the value is an integer, and the driver compares its size with the parameter.
    unsafe { kernel.set_arg(index, word) }
}

/// Enqueues a launch of `groups` work-groups with `lanes` work-items each.
///
/// # Safety
/// All arguments must be set to values of the kernel's parameters. The memory that they point to
/// must stay allocated and have no other use until the launch has ended.
pub(in crate::opencl) unsafe fn launch(
    queue: &CommandQueue,
    kernel: &Kernel,
    groups: usize,
    lanes: usize,
) -> Result<Event, ClError> {
    let all_lanes = groups * lanes;
    // SAFETY: guaranteed by the caller.
    unsafe { queue.enqueue_nd_range_kernel(kernel.get(), 1, std::ptr::null(), &all_lanes, &lanes, &[]) }
}

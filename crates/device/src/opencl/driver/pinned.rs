//! Allocates page-locked host memory, which copy engines access without another copy by the driver.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use godwit_packet::Memory;
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::Device;
use opencl3::error_codes::ClError;
use opencl3::memory::{Buffer, CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE, ClMem};

use super::buffer::PAGE_BYTES;
use super::error::failed;
use super::queue::queue;
use crate::error::Error;
use crate::found::Found;

/// The error `CL_MAP_FAILURE`, which is reported if the driver maps memory at address 0.
const MAP_FAILURE: i32 = -12;

/// Owner of page-locked memory. Dropping this value unmaps the memory.
struct PinnedOwner {
    mapped: NonNull<c_void>,
    buffer: Buffer<u8>,
    queue: CommandQueue,
    _context: Arc<Context>,
}

// SAFETY: the buffer is only unmapped and released. The driver accepts these calls from any thread.
unsafe impl Send for PinnedOwner {}
// SAFETY: a shared reference allows no operation.
unsafe impl Sync for PinnedOwner {}

impl Drop for PinnedOwner {
    fn drop(&mut self) {
        // SAFETY: the buffer was mapped once and is no longer referenced. If the driver fails, the
        // buffer is released without unmapping.
        let _ = unsafe { self.queue.enqueue_unmap_mem_object(self.buffer.get(), self.mapped.as_ptr(), &[]) };
        let _ = self.queue.finish();
    }
}

/// Allocates zeroed page-locked memory, which copy engines access directly. `what` names the
/// purpose of this memory in an error.
pub(in crate::opencl) fn pinned(
    found: &Found,
    context: &Arc<Context>,
    device: &Device,
    bytes: usize,
    what: &'static str,
) -> Result<Memory, Error> {
    let queue = queue(found, context, device)?;
    let id = &found.capabilities.id;
    // The driver aligns only to its largest type.
    let allocated_bytes = bytes + PAGE_BYTES;
    if allocated_bytes as u64 > found.buffer_bytes_max {
        return Err(Error::TooLarge { id: id.clone(), what, bytes: bytes as u64, bytes_max: found.buffer_bytes_max });
    }
    let mut mapped: *mut c_void = std::ptr::null_mut();
    let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
    // SAFETY: the new buffer is mapped once and completely, and the call waits until it is mapped.
    let buffer = unsafe {
        Buffer::create(context, flags, allocated_bytes, std::ptr::null_mut()).and_then(|buffer: Buffer<u8>| {
            let access = CL_MAP_READ | CL_MAP_WRITE;
            queue.enqueue_map_buffer(&buffer, 1, access, 0, allocated_bytes, &mut mapped, &[])?;
            Ok(buffer)
        })
    };
    let buffer = buffer.map_err(failed(id, "allocate page-locked memory"))?;
    let Some(mapped) = NonNull::new(mapped) else {
        return Err(failed(id, "map page-locked memory")(ClError(MAP_FAILURE)));
    };
    let first = mapped.cast::<u8>();
    let owner = PinnedOwner { mapped, buffer, queue, _context: Arc::clone(context) };
    // SAFETY: the mapping is one page longer than `bytes`, and has no other user.
    let base = unsafe {
        let base = first.add(first.as_ptr().align_offset(PAGE_BYTES));
        base.write_bytes(0, bytes);
        base
    };
    // SAFETY: the bytes from `base` to `base + bytes` were just written, and stay mapped until the
    // owner is dropped. No command uses the buffer, so the driver does not access it.
    Ok(unsafe { Memory::from_owner(base, bytes, Box::new(owner)) })
}

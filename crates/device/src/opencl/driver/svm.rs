//! Allocates fine-grained shared virtual memory (SVM). Host and device can access it coherently at
//! the same time.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use godwit_packet::Memory;
use opencl3::context::Context;
use opencl3::device::Device;
use opencl3::error_codes::ClError;
use opencl3::memory::{CL_MEM_READ_WRITE, CL_MEM_SVM_ATOMICS, CL_MEM_SVM_FINE_GRAIN_BUFFER, svm_alloc, svm_free};

use super::buffer::PAGE_BYTES;
use super::error::failed;
use crate::error::Error;
use crate::found::Found;

/// Owner of shared virtual memory. Dropping this value frees the memory.
pub(in crate::opencl) struct SvmOwner {
    context: Arc<Context>,
    allocated: NonNull<c_void>,
}

// SAFETY: the pointer is only passed to the driver, which accepts calls from any thread.
unsafe impl Send for SvmOwner {}
// SAFETY: a shared reference only permits a comparison of contexts.
unsafe impl Sync for SvmOwner {}

impl SvmOwner {
    /// Returns whether kernels of `context` may use the memory.
    pub(in crate::opencl) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }
}

impl Drop for SvmOwner {
    fn drop(&mut self) {
        // SAFETY: `allocate` got the pointer from this context, and nothing refers to it. An error
        // would be a driver bug, and would leak the memory.
        let _ = unsafe { svm_free(self.context.get(), self.allocated.as_ptr()) };
    }
}

/// Returns the OpenCL context of device `number`. All users of a device share one context, because
/// shared virtual memory is valid only in the context that allocated it.
pub(in crate::opencl) fn context(number: usize, id: &str, device: &Device) -> Result<Arc<Context>, Error> {
    static CONTEXTS: Mutex<Vec<(usize, Weak<Context>)>> = Mutex::new(Vec::new());
    let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    contexts.retain(|(_, context)| context.strong_count() > 0);
    let known = contexts.iter().find(|(other, _)| *other == number).and_then(|(_, context)| context.upgrade());
    if let Some(context) = known {
        return Ok(context);
    }
    let context = Arc::new(Context::from_device(device).map_err(failed(id, "create a context"))?);
    contexts.push((number, Arc::downgrade(&context)));
    Ok(context)
}

/// Allocates zeroed shared virtual memory, aligned to pages. `what` names the purpose of this
/// memory in an error.
pub(in crate::opencl) fn allocate(
    found: &Found,
    context: &Arc<Context>,
    bytes: usize,
    what: &'static str,
) -> Result<Memory, Error> {
    let id = &found.capabilities.id;
    // The driver aligns only to its largest type.
    let allocated_bytes = bytes.max(1).next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
    if allocated_bytes as u64 > found.buffer_bytes_max {
        return Err(Error::TooLarge { id: id.clone(), what, bytes: bytes as u64, bytes_max: found.buffer_bytes_max });
    }
    let flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER | CL_MEM_SVM_ATOMICS;
    // SAFETY: the context exists, and the size is not 0.
    let allocated = unsafe { svm_alloc(context.get(), flags, allocated_bytes, 0) };
    let allocated = allocated.map_err(|code| failed(id, "allocate shared memory")(ClError(code)))?;
    // `svm_alloc` returns an error instead of a null pointer.
    let Some(allocated) = NonNull::new(allocated) else { unreachable!("`svm_alloc` returned a null pointer") };
    let owner = SvmOwner { context: Arc::clone(context), allocated };
    let first = allocated.cast::<u8>();
    // SAFETY: the allocation is one page longer than `bytes`. The host may write fine-grained SVM
    // like other memory.
    let base = unsafe {
        let base = first.add(first.as_ptr().align_offset(PAGE_BYTES));
        base.write_bytes(0, bytes);
        base
    };
    // SAFETY: the bytes from `base` to `base + bytes` were just written, and are valid until the
    // owner is dropped.
    Ok(unsafe { Memory::from_owner(base, bytes, Box::new(owner)) })
}

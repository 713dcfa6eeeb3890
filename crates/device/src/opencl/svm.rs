//! Memory that host and device reach at the same time, each seeing what the other wrote last: fine-grained SVM.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use godwit_packet::Memory;
use opencl3::context::Context;
use opencl3::device::Device;
use opencl3::error_codes::ClError;
use opencl3::memory::{CL_MEM_READ_WRITE, CL_MEM_SVM_ATOMICS, CL_MEM_SVM_FINE_GRAIN_BUFFER, svm_alloc, svm_free};

use super::program::PAGE_BYTES;
use super::{failed, own, usable};
use crate::{Error, Found, Mode};

/// Gives a [`Memory`] of [`allocate`] back.
pub(super) struct SvmOwner {
    context: Arc<Context>,
    allocated: NonNull<c_void>,
}

// SAFETY: the pointer is only given to the driver, which takes calls from any thread.
unsafe impl Send for SvmOwner {}
// SAFETY: as above, and a shared reference only tells the context.
unsafe impl Sync for SvmOwner {}

impl SvmOwner {
    /// Whether kernels of this context may be given the memory.
    pub(super) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }
}

impl Drop for SvmOwner {
    fn drop(&mut self) {
        // SAFETY: `allocate` got it from this context, and nothing refers to it any more. An error could only be a bug of
        // the driver, and leaks.
        let _ = unsafe { svm_free(self.context.get(), self.allocated.as_ptr()) };
    }
}

/// The context of device `number`: one for all that is allocated for it, for SVM is only good in its own.
pub(super) fn context(number: usize, id: &str, device: &Device) -> Result<Arc<Context>, Error> {
    static CONTEXTS: Mutex<Vec<(usize, Weak<Context>)>> = Mutex::new(Vec::new());
    let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    contexts.retain(|(_, context)| context.strong_count() > 0);
    let known = contexts.iter().find(|(of, _)| *of == number).and_then(|(_, context)| context.upgrade());
    if let Some(context) = known {
        return Ok(context);
    }
    let context = Arc::new(Context::from_device(device).map_err(failed(id, "make a context"))?);
    contexts.push((number, Arc::downgrade(&context)));
    Ok(context)
}

/// Zeroed memory, aligned to pages. `what` is for the error.
pub(super) fn allocate(
    found: &Found,
    context: &Arc<Context>,
    bytes: usize,
    what: &'static str,
) -> Result<Memory, Error> {
    let id = &found.capabilities.id;
    // The driver aligns to its largest type and no more.
    let allocated_bytes = bytes.max(1).next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
    if allocated_bytes as u64 > found.buffer_bytes_max {
        return Err(Error::TooLarge { id: id.clone(), what, bytes: bytes as u64, bytes_max: found.buffer_bytes_max });
    }
    let flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER | CL_MEM_SVM_ATOMICS;
    // SAFETY: the context lives, and the size is not 0.
    let allocated = unsafe { svm_alloc(context.get(), flags, allocated_bytes, 0) };
    let allocated = allocated.map_err(|code| failed(id, "allocate shared memory")(ClError(code)))?;
    // `svm_alloc` makes no pointer an error.
    let Some(allocated) = NonNull::new(allocated) else { unreachable!("an allocation is at 0") };
    let owner = SvmOwner { context: Arc::clone(context), allocated };
    let first = allocated.cast::<u8>();
    // SAFETY: the memory has a page more than is used, and fine-grained SVM is the host's like any other memory.
    let base = unsafe {
        let base = first.add(first.as_ptr().align_offset(PAGE_BYTES));
        base.write_bytes(0, bytes);
        base
    };
    // SAFETY: from here to `base + bytes` it was just written, and is valid until the owner is dropped.
    Ok(unsafe { Memory::from_owner(base, bytes, Box::new(owner)) })
}

/// Memory for an arena as device `number` wants it: such that persistent groups can work on it, or, for a device with memory
/// of its own, page-locked.
///
/// # Errors
/// [`Error::Absent`] and [`Error::Unusable`] for a device that is not here or has no such memory, [`Error::TooLarge`]
/// for more than it gives at once, [`Error::Driver`] when it has too little.
pub fn arena_memory(number: usize, bytes: usize) -> Result<Memory, Error> {
    let (found, device) = usable(number)?;
    let id = &found.capabilities.id;
    if !found.host_memory {
        return own::pinned(&found, &context(number, id, device)?, device, bytes, "the packet arena");
    }
    if let Some(lacks) = found.lacks(Mode::Persistent) {
        return Err(Error::Unusable { id: id.clone(), reason: lacks.to_owned() });
    }
    allocate(&found, &context(number, id, device)?, bytes, "the packet arena")
}

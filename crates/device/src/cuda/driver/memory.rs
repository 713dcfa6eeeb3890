//! Device memory, page-locked host memory, and page locks of ordinary process memory.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use godwit_packet::Pages;

use super::context::{Context, failed};
use crate::error::Error;

/// Address that the device can access. It refers to the device's memory, or to host memory that the
/// device accesses over the bus.
pub type DevicePointer = sys::CUdeviceptr;

/// Device memory.
pub struct DeviceMemory {
    /// Address of the first byte.
    pub pointer: DevicePointer,
    bytes: usize,
    context: Arc<Context>,
}

impl DeviceMemory {
    /// Allocates `bytes` bytes of device memory. `what` names the purpose of this memory in an
    /// error message.
    ///
    /// # Errors
    /// Returns [`Error::TooLarge`] if the device has too little memory, or [`Error::Driver`] if the
    /// driver fails.
    pub fn new(context: &Arc<Context>, bytes: usize, what: &'static str) -> Result<Self, Error> {
        // SAFETY: the context is current.
        let allocated = unsafe { result::malloc_sync(bytes.max(1)) };
        match allocated {
            Ok(pointer) => Ok(Self { pointer, bytes: bytes.max(1), context: Arc::clone(context) }),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                let bytes_max = result::mem_get_info().map_or(0, |(free, _)| free as u64);
                Err(Error::TooLarge { id: context.id.clone(), what, bytes: bytes as u64, bytes_max })
            }
            Err(error) => Err(failed(&context.id, "allocate memory")(error)),
        }
    }

    /// Overwrites the memory with zeros, and waits until they are written.
    fn wipe(&self) {
        // SAFETY: `self.bytes` bytes are allocated.
        let _ = unsafe { result::memset_d8_sync(self.pointer, 0, self.bytes) };
        // `settle` waits for the zeros to be written. Otherwise, they could overwrite data that
        // another stream writes later.
        let _ = settle();
    }

    /// Copies `bytes` to the start of the device memory, and waits until the copy has ended.
    ///
    /// # Errors
    /// Returns [`Error::Driver`] if the copy fails.
    pub fn fill(&self, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: `bytes` fits into the memory, because both sizes have the same source. The driver
        // has read `bytes` when the call returns.
        unsafe { result::memcpy_htod_sync(self.pointer, bytes) }
            .and_then(|()| settle())
            .map_err(failed(&self.context.id, "copy to the device"))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // The memory may contain secret keys or packet data.
        self.wipe();
        // SAFETY: the memory was allocated once and is freed once. Its owner has waited until the
        // device no longer uses it, or leaks it.
        let _ = unsafe { result::free_sync(self.pointer) };
    }
}

/// Page-locked host memory, initially zero. The device accesses it over the bus at the address
/// `pointer`.
pub struct PinnedMemory {
    base: NonNull<u8>,
    /// Address of the first byte for the device.
    pub pointer: DevicePointer,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: the memory is owned.
unsafe impl Send for PinnedMemory {}
// SAFETY: it is accessed only through `&mut` or raw pointers.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates `bytes` bytes of page-locked host memory.
    ///
    /// # Errors
    /// Returns [`Error::Driver`] if the driver fails.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, Error> {
        let bytes = bytes.max(1);
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the context is current.
        let base = unsafe { result::malloc_host(bytes, flags) }.map_err(failed(&context.id, "lock pages"))?;
        let Some(base) = NonNull::new(base.cast::<u8>()) else { unreachable!("the driver returns memory or an error") };
        // SAFETY: `bytes` bytes were just allocated.
        unsafe { base.as_ptr().write_bytes(0, bytes) };
        let mut memory = Self { base, pointer: 0, bytes, context: Arc::clone(context) };
        memory.pointer = device_pointer(context, base)?;
        Ok(memory)
    }

    /// Returns the host address of the first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the bytes of the memory. The caller ensures that the device does not access the
    /// memory at the same time.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are allocated, initialized and owned by `self`.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: the memory was allocated once and is freed once. Its owner has waited until the
        // device no longer uses it, or leaks it.
        let _ = unsafe { result::free_host(self.base.as_ptr().cast()) };
    }
}

/// Page lock of process memory, released on drop.
pub(crate) struct Registration {
    _lock: Arc<HostLock>,
    /// Device address of the memory.
    pub(crate) pointer: DevicePointer,
}

/// Page lock that all devices of the process share.
struct HostLock {
    base: NonNull<u8>,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: the value is only an address. Code that dereferences it is responsible for the access.
unsafe impl Send for HostLock {}
// SAFETY: see above.
unsafe impl Sync for HostLock {}

/// All page locks of the process.
static LOCKS: Mutex<Vec<Weak<HostLock>>> = Mutex::new(Vec::new());

impl HostLock {
    /// # Safety
    /// Same as for [`Registration::new`].
    unsafe fn new(context: &Arc<Context>, base: NonNull<u8>, bytes: usize) -> Result<Arc<Self>, Error> {
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|lock| lock.strong_count() > 0);
        let same = |lock: &Arc<Self>| lock.base == base && lock.bytes == bytes;
        if let Some(lock) = locks.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(lock);
        }
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: guaranteed by the caller.
        let locked = unsafe { sys::cuMemHostRegister_v2(base.as_ptr().cast(), bytes, flags) }.result();
        locked.map_err(failed(&context.id, "lock pages"))?;
        let lock = Arc::new(Self { base, bytes, context: Arc::clone(context) });
        locks.push(Arc::downgrade(&lock));
        Ok(lock)
    }
}

impl Drop for HostLock {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: registered once and unregistered once.
        let _ = unsafe { sys::cuMemHostUnregister(self.base.as_ptr().cast()) };
    }
}

impl Registration {
    /// # Safety
    /// The memory must stay mapped until the registration is dropped.
    pub(crate) unsafe fn new(context: &Arc<Context>, base: NonNull<u8>, bytes: usize) -> Result<Self, Error> {
        // SAFETY: guaranteed by the caller.
        let lock = unsafe { HostLock::new(context, base, bytes)? };
        let pointer = device_pointer(context, base)?;
        Ok(Self { _lock: lock, pointer })
    }
}

/// Page lock of an array, which also keeps the array allocated.
pub(crate) struct PageLock {
    // This field is dropped before the pages.
    registration: Registration,
    _pages: Pages,
}

impl PageLock {
    pub(crate) fn new(context: &Arc<Context>, pages: &Pages) -> Result<Self, Error> {
        let pages = pages.clone();
        // SAFETY: `Self` keeps the pages mapped.
        let registration = unsafe { Registration::new(context, pages.base(), pages.bytes())? };
        Ok(Self { registration, _pages: pages })
    }

    /// Returns the device address of the pages.
    pub(crate) fn pointer(&self) -> DevicePointer {
        self.registration.pointer
    }
}

fn device_pointer(context: &Context, base: NonNull<u8>) -> Result<DevicePointer, Error> {
    let mut pointer = 0;
    // SAFETY: the memory is page-locked and mapped. The flags are reserved and must be 0.
    let found = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut pointer, base.as_ptr().cast(), 0) }.result();
    found.map_err(failed(&context.id, "map page-locked memory"))?;
    Ok(pointer)
}

/// Waits for the default stream of CUDA. Memory fills and copies from pageable memory use this
/// stream. They may still run after their driver call returns.
fn settle() -> Result<(), DriverError> {
    // SAFETY: the default stream always exists.
    unsafe { result::stream::synchronize(std::ptr::null_mut()) }
}

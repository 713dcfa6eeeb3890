//! Owned driver resources: context, memory, streams and events. Dropping an owner frees its
//! resource. Each owner keeps the context alive. Kernels are in `module.rs`.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use godwit_packet::Pages;

use crate::Error;

/// An address in the device's memory, or in host memory that the device accesses over the bus.
pub(super) type DevicePointer = sys::CUdeviceptr;

/// Returns a function that converts a driver error of device `id` during `action`.
pub(super) fn failed(id: &str, action: &'static str) -> impl Fn(DriverError) -> Error {
    move |error| Error::Driver { id: id.to_owned(), action, reason: text(error) }
}

/// Returns description and name of a driver error.
pub(super) fn text(error: DriverError) -> String {
    let name = error.error_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let meaning = error.error_string().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{meaning} ({name})")
}

/// A device's primary context, which all libraries of the process share.
pub(super) struct Context {
    pub(super) id: String,
    pub(super) device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: any thread may use a context after making it current, which `bind` does.
unsafe impl Send for Context {}
// SAFETY: see above. The driver locks shared state.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn new(id: &str, device: sys::CUdevice) -> Result<Arc<Self>, Error> {
        // SAFETY: the driver is initialized, because it has returned `device`.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(failed(id, "create a context"))?;
        let context = Arc::new(Self { id: id.to_owned(), device, context });
        context.bind().map_err(failed(id, "make a context current"))?;
        Ok(context)
    }

    /// Makes the context current for the calling thread.
    pub(super) fn bind(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained until `self` is dropped.
        unsafe { result::ctx::set_current(self.context) }
    }

    pub(super) fn attribute(&self, attribute: sys::CUdevice_attribute) -> i32 {
        // SAFETY: the device exists. The value of an unknown attribute is 0.
        unsafe { result::device::get_attribute(self.device, attribute) }.unwrap_or(0)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once and released once. Every object of the context holds a reference to
        // it and is gone.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// Device memory.
pub(super) struct DeviceMemory {
    pub(super) pointer: DevicePointer,
    bytes: usize,
    context: Arc<Context>,
}

impl DeviceMemory {
    /// Allocates `bytes` bytes. `what` names their use in the error.
    pub(super) fn new(context: &Arc<Context>, bytes: usize, what: &'static str) -> Result<Self, Error> {
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

    /// Overwrites the memory with zeros, and waits for the end.
    fn wipe(&self) {
        // SAFETY: `self.bytes` bytes are allocated.
        let _ = unsafe { result::memset_d8_sync(self.pointer, 0, self.bytes) };
        // Without this, the zeros could overwrite data of the next owner, who may use another
        // stream.
        let _ = settle();
    }

    /// Copies `bytes` to the start of the memory, and waits for the end.
    pub(super) fn fill(&self, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: `bytes` fits, because both sizes have the same source. The driver has read it
        // when the call returns.
        unsafe { result::memcpy_htod_sync(self.pointer, bytes) }
            .and_then(|()| settle())
            .map_err(failed(&self.context.id, "copy to the device"))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // Tables contain keys, and buffers contain packet data.
        self.wipe();
        // SAFETY: allocated once and freed once. Nothing uses it, because its owner has waited or
        // leaks it.
        let _ = unsafe { result::free_sync(self.pointer) };
    }
}

/// Page-locked host memory, zeroed at allocation. The device accesses it over the bus at `pointer`.
pub(super) struct PinnedMemory {
    base: NonNull<u8>,
    pub(super) pointer: DevicePointer,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: the memory is owned.
unsafe impl Send for PinnedMemory {}
// SAFETY: it is accessed only through `&mut` or raw pointers.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, Error> {
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

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the bytes. The caller ensures that the device does not use them at the same time.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are allocated, initialized and owned by `self`.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: allocated once and freed once. Nothing uses it, because its owner has waited or
        // leaks it.
        let _ = unsafe { result::free_host(self.base.as_ptr().cast()) };
    }
}

/// Page lock of process memory, released on drop.
pub(super) struct Registration {
    _lock: Arc<HostLock>,
    /// Device address of the memory.
    pub(super) pointer: DevicePointer,
}

/// Page lock that all devices of the process share.
struct HostLock {
    base: NonNull<u8>,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: it is only an address. Code that dereferences it is responsible for that access.
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
    pub(super) unsafe fn new(context: &Arc<Context>, base: NonNull<u8>, bytes: usize) -> Result<Self, Error> {
        // SAFETY: guaranteed by the caller.
        let lock = unsafe { HostLock::new(context, base, bytes)? };
        let pointer = device_pointer(context, base)?;
        Ok(Self { _lock: lock, pointer })
    }
}

/// Page lock of the pages of an array. Keeps them allocated.
pub(super) struct PageLock {
    // Dropped before the pages.
    registration: Registration,
    _pages: Pages,
}

impl PageLock {
    pub(super) fn new(context: &Arc<Context>, pages: &Pages) -> Result<Self, Error> {
        let pages = pages.clone();
        // SAFETY: `Self` keeps the pages mapped.
        let registration = unsafe { Registration::new(context, pages.base(), pages.bytes())? };
        Ok(Self { registration, _pages: pages })
    }

    /// Returns the device address of the pages.
    pub(super) fn pointer(&self) -> DevicePointer {
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

/// Waits for the default stream. Memory sets, and the last part of copies from pageable memory, may
/// still run after their call returns. Streams of this crate do not synchronize with the default
/// stream.
fn settle() -> Result<(), DriverError> {
    // SAFETY: the default stream always exists.
    unsafe { result::stream::synchronize(std::ptr::null_mut()) }
}

/// A queue of copies and launches that run one after the other.
pub(super) struct Stream {
    pub(super) stream: sys::CUstream,
    context: Arc<Context>,
}

// SAFETY: any thread may use a stream in its context.
unsafe impl Send for Stream {}
// SAFETY: see above. The driver locks shared state.
unsafe impl Sync for Stream {}

impl Stream {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, Error> {
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(failed(&context.id, "create a stream"))?;
        Ok(Self { stream, context: Arc::clone(context) })
    }

    /// Waits until the stream is idle.
    pub(super) fn synchronize(&self) -> Result<(), DriverError> {
        self.context.bind()?;
        // SAFETY: the stream exists.
        unsafe { result::stream::synchronize(self.stream) }
    }

    /// Makes all later commands of the stream wait for the last recording of `event`.
    pub(super) fn await_event(&self, event: &Event) -> Result<(), DriverError> {
        // SAFETY: both exist, in the same context.
        unsafe { result::stream::wait_event(self.stream, event.event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT) }
    }

    /// Returns whether all commands have ended.
    pub(super) fn is_idle(&self) -> Result<bool, DriverError> {
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

/// Copies between page-locked host memory and device memory that are submitted in one driver call.
/// Each call takes the driver's lock, which all threads share.
#[derive(Default)]
pub(super) struct Copies {
    to: Vec<DevicePointer>,
    from: Vec<DevicePointer>,
    bytes: Vec<usize>,
}

impl Copies {
    /// Adds a copy.
    pub(super) fn add(&mut self, direction: Direction, device: DevicePointer, host: *mut u8, bytes: usize) {
        let host = host.expose_provenance() as DevicePointer;
        let (to, from) = match direction {
            Direction::ToDevice => (device, host),
            Direction::ToHost => (host, device),
        };
        self.to.push(to);
        self.from.push(from);
        self.bytes.push(bytes);
    }

    /// Enqueues all added copies in any order, and removes them from `self`.
    ///
    /// # Safety
    /// Host and device memory must be valid for these bytes, and must have no other use until the
    /// copies have ended.
    pub(super) unsafe fn submit(&mut self, stream: &Stream) -> Result<(), DriverError> {
        let count = self.bytes.len();
        let submitted = if count > 1 && supports_batches() {
            // SAFETY: all fields are integers, for which 0 means that the locations are unknown.
            let mut attributes: sys::CUmemcpyAttributes = unsafe { std::mem::zeroed() };
            attributes.srcAccessOrder = sys::CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
            let mut first = 0;
            let (to, from, bytes) = (self.to.as_mut_ptr(), self.from.as_mut_ptr(), self.bytes.as_mut_ptr());
            // SAFETY: the arrays have `count` values; the attributes apply from the first copy on.
            // The rest is guaranteed by the caller.
            unsafe { sys::cuMemcpyBatchAsync_v2(to, from, bytes, count, &mut attributes, &mut first, 1, stream.stream) }
                .result()
        } else {
            let mut each = self.to.iter().zip(&self.from).zip(&self.bytes);
            // SAFETY: guaranteed by the caller.
            each.try_for_each(|((&to, &from), &bytes)| unsafe {
                sys::cuMemcpyAsync(to, from, bytes, stream.stream).result()
            })
        };
        self.to.clear();
        self.from.clear();
        self.bytes.clear();
        submitted
    }
}

/// Returns whether the driver accepts several copies in one call, which requires CUDA 13.0.
fn supports_batches() -> bool {
    static SUPPORTED: OnceLock<bool> = OnceLock::new();
    *SUPPORTED.get_or_init(|| {
        let mut version = 0;
        // SAFETY: the call writes one integer.
        let queried = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
        queried.is_ok() && version >= 13_000
    })
}

/// Direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToDevice,
    ToHost,
}

/// A position in a stream.
pub(super) struct Event {
    event: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: any thread may use an event in its context.
unsafe impl Send for Event {}

impl Event {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, Error> {
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
            .map_err(failed(&context.id, "create an event"))?;
        Ok(Self { event, context: Arc::clone(context) })
    }

    pub(super) fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: both exist, in the same context.
        unsafe { result::event::record(self.event, stream.stream) }
    }

    /// Returns whether all commands before the last recording have ended.
    pub(super) fn is_complete(&self) -> Result<bool, DriverError> {
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

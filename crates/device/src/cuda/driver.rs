//! What the driver gives, each thing owned: a context, memory, streams, events. Whoever owns one gives it back by dropping it,
//! and keeps the context alive meanwhile. Kernels are in `module.rs`.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use godwit_packet::Pages;

use crate::Error;

/// An address in the device's memory, or in memory that the device reaches over the bus.
pub(super) type DevicePointer = sys::CUdeviceptr;

/// Makes what the driver of device `id` says of an action an error.
pub(super) fn failed(id: &str, action: &'static str) -> impl Fn(DriverError) -> Error {
    move |error| Error::Driver { id: id.to_owned(), action, reason: text(error) }
}

/// What an error is called, and what it means.
pub(super) fn text(error: DriverError) -> String {
    let name = error.error_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let meaning = error.error_string().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{meaning} ({name})")
}

/// A device's primary context: what libraries in the same process share.
pub(super) struct Context {
    pub(super) id: String,
    pub(super) device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: a context may be used from any thread that has made it current; `bind` does.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks what threads share.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn new(id: &str, device: sys::CUdevice) -> Result<Arc<Self>, Error> {
        // SAFETY: the driver is initialised: a device was asked of it.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(failed(id, "make a context"))?;
        let context = Arc::new(Self { id: id.to_owned(), device, context });
        context.bind().map_err(failed(id, "make a context current"))?;
        Ok(context)
    }

    /// Makes it the calling thread's current one.
    pub(super) fn bind(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained until `self` is dropped.
        unsafe { result::ctx::set_current(self.context) }
    }

    pub(super) fn attribute(&self, attribute: sys::CUdevice_attribute) -> i32 {
        // SAFETY: the device exists. A question that the driver does not know counts as 0.
        unsafe { result::device::get_attribute(self.device, attribute) }.unwrap_or(0)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, released once; everything made in it holds a reference and is gone.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// Memory of the device.
pub(super) struct DeviceMemory {
    pub(super) pointer: DevicePointer,
    bytes: usize,
    context: Arc<Context>,
}

impl DeviceMemory {
    /// `what` is for the error.
    pub(super) fn new(context: &Arc<Context>, bytes: usize, what: &'static str) -> Result<Self, Error> {
        // SAFETY: the context is current.
        let free = unsafe { result::malloc_sync(bytes.max(1)) };
        match free {
            Ok(pointer) => Ok(Self { pointer, bytes: bytes.max(1), context: Arc::clone(context) }),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                let bytes_max = result::mem_get_info().map_or(0, |(free, _)| free as u64);
                Err(Error::TooLarge { id: context.id.clone(), what, bytes: bytes as u64, bytes_max })
            }
            Err(error) => Err(failed(&context.id, "give memory")(error)),
        }
    }

    /// Overwrites all of it with zeros; returns when that is done.
    fn wipe(&self) {
        // SAFETY: so many bytes are allocated.
        let _ = unsafe { result::memset_d8_sync(self.pointer, 0, self.bytes) };
        // Or it could overwrite what the next owner of this memory puts there in a stream of its own.
        let _ = settle();
    }

    /// Fills its beginning; returns when it is there.
    pub(super) fn fill(&self, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: the caller's bytes fit (both sizes come from the same computation), and are read when the call returns.
        unsafe { result::memcpy_htod_sync(self.pointer, bytes) }
            .and_then(|()| settle())
            .map_err(failed(&self.context.id, "copy to the device"))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // Tables hold keys, buffers what packets said.
        self.wipe();
        // SAFETY: allocated once, freed once; nothing that uses it is under way (its owner waited, or leaks it).
        let _ = unsafe { result::free_sync(self.pointer) };
    }
}

/// Page-locked memory of the host, zeroed, which the device reaches over the bus at the same address.
pub(super) struct PinnedMemory {
    base: NonNull<u8>,
    pub(super) pointer: DevicePointer,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: owned memory.
unsafe impl Send for PinnedMemory {}
// SAFETY: reached through `&mut` or raw pointers only.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, Error> {
        let bytes = bytes.max(1);
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the context is current.
        let base = unsafe { result::malloc_host(bytes, flags) }.map_err(failed(&context.id, "lock pages"))?;
        let Some(base) = NonNull::new(base.cast::<u8>()) else { unreachable!("the driver gives memory or an error") };
        // SAFETY: `bytes` bytes, just allocated.
        unsafe { base.as_ptr().write_bytes(0, bytes) };
        let mut memory = Self { base, pointer: 0, bytes, context: Arc::clone(context) };
        memory.pointer = device_pointer(context, base)?;
        Ok(memory)
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The bytes; the caller makes sure that the device does not use them meanwhile.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: allocated, initialised, ours.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: allocated once, freed once; nothing that uses it is under way (its owner waited, or leaks it).
        let _ = unsafe { result::free_host(self.base.as_ptr().cast()) };
    }
}

/// Memory of the process, page-locked for as long as this lives.
pub(super) struct Registration {
    _lock: Arc<HostLock>,
    /// Where the device reaches it over the bus.
    pub(super) pointer: DevicePointer,
}

/// Page-locking is the process's: devices that share memory share this.
struct HostLock {
    base: NonNull<u8>,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: an address; whoever reaches through it answers for it.
unsafe impl Send for HostLock {}
// SAFETY: as above.
unsafe impl Sync for HostLock {}

/// All that is page-locked.
static LOCKS: Mutex<Vec<Weak<HostLock>>> = Mutex::new(Vec::new());

impl HostLock {
    /// # Safety
    /// As for [`Registration::new`].
    unsafe fn new(context: &Arc<Context>, base: NonNull<u8>, bytes: usize) -> Result<Arc<Self>, Error> {
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|lock| lock.strong_count() > 0);
        let same = |lock: &Arc<Self>| lock.base == base && lock.bytes == bytes;
        if let Some(lock) = locks.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(lock);
        }
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the caller's promise.
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
        // SAFETY: registered once, unregistered once.
        let _ = unsafe { sys::cuMemHostUnregister(self.base.as_ptr().cast()) };
    }
}

impl Registration {
    /// # Safety
    /// The memory must stay mapped until the registration is dropped.
    pub(super) unsafe fn new(context: &Arc<Context>, base: NonNull<u8>, bytes: usize) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        let lock = unsafe { HostLock::new(context, base, bytes)? };
        let pointer = device_pointer(context, base)?;
        Ok(Self { _lock: lock, pointer })
    }
}

/// Pages of an array, page-locked and allocated for as long as this lives.
pub(super) struct PageLock {
    // Dropped before the pages are.
    registration: Registration,
    _pages: Pages,
}

impl PageLock {
    pub(super) fn new(context: &Arc<Context>, pages: &Pages) -> Result<Self, Error> {
        let pages = pages.clone();
        // SAFETY: the pages are kept.
        let registration = unsafe { Registration::new(context, pages.base(), pages.bytes())? };
        Ok(Self { registration, _pages: pages })
    }

    /// Where the device reaches the pages over the bus.
    pub(super) fn pointer(&self) -> DevicePointer {
        self.registration.pointer
    }
}

fn device_pointer(context: &Context, base: NonNull<u8>) -> Result<DevicePointer, Error> {
    let mut pointer = 0;
    // SAFETY: the memory is page-locked and mapped; the flags are reserved and 0.
    let found = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut pointer, base.as_ptr().cast(), 0) }.result();
    found.map_err(failed(&context.id, "map page-locked memory"))?;
    Ok(pointer)
}

/// Waits for what is in the driver's default stream: setting memory, and the last part of copies from memory that is not
/// page-locked, may go on when the call is back. Our own streams do not wait for it, nor it for them.
fn settle() -> Result<(), DriverError> {
    // SAFETY: the default stream is always there.
    unsafe { result::stream::synchronize(std::ptr::null_mut()) }
}

/// A queue of copies and launches, done one after the other.
pub(super) struct Stream {
    pub(super) stream: sys::CUstream,
    context: Arc<Context>,
}

// SAFETY: a stream may be used from any thread in its context.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for Stream {}

impl Stream {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, Error> {
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(failed(&context.id, "make a stream"))?;
        Ok(Self { stream, context: Arc::clone(context) })
    }

    /// Waits until all is done.
    pub(super) fn synchronize(&self) -> Result<(), DriverError> {
        self.context.bind()?;
        // SAFETY: the stream exists.
        unsafe { result::stream::synchronize(self.stream) }
    }

    /// What is put into it from now on waits for what the event was last recorded behind.
    pub(super) fn await_event(&self, event: &Event) -> Result<(), DriverError> {
        // SAFETY: both exist, in the same context.
        unsafe { result::stream::wait_event(self.stream, event.event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT) }
    }

    /// Whether all is done.
    pub(super) fn is_idle(&self) -> Result<bool, DriverError> {
        // SAFETY: the stream exists.
        ready(unsafe { sys::cuStreamQuery(self.stream) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: made once, destroyed once.
        let _ = unsafe { result::stream::destroy(self.stream) };
    }
}

/// Copies between page-locked memory of the host and the device's, which the driver is told of in one call: each call takes
/// its lock, which all threads share.
#[derive(Default)]
pub(super) struct Copies {
    to: Vec<DevicePointer>,
    from: Vec<DevicePointer>,
    bytes: Vec<usize>,
}

impl Copies {
    /// One more.
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

    /// Puts all that were added into the stream, done in any order, and forgets them.
    ///
    /// # Safety
    /// Memory of host and device has so many bytes there, and nobody else touches them, until the stream is done with them.
    pub(super) unsafe fn submit(&mut self, stream: &Stream) -> Result<(), DriverError> {
        let count = self.bytes.len();
        let submitted = if count > 1 && knows_batches() {
            // SAFETY: plain numbers, of which 0 says that where the memories are is not known.
            let mut attributes: sys::CUmemcpyAttributes = unsafe { std::mem::zeroed() };
            attributes.srcAccessOrder = sys::CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
            let mut first = 0;
            let (to, from, bytes) = (self.to.as_mut_ptr(), self.from.as_mut_ptr(), self.bytes.as_mut_ptr());
            // SAFETY: three arrays of `count` values, one of attributes which hold from the first on, and the caller's
            // promise.
            unsafe { sys::cuMemcpyBatchAsync_v2(to, from, bytes, count, &mut attributes, &mut first, 1, stream.stream) }
                .result()
        } else {
            let mut each = self.to.iter().zip(&self.from).zip(&self.bytes);
            // SAFETY: the caller's promise.
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

/// Whether the driver takes several copies in one call: of CUDA 13.0 on.
fn knows_batches() -> bool {
    static KNOWS: OnceLock<bool> = OnceLock::new();
    *KNOWS.get_or_init(|| {
        let mut version = 0;
        // SAFETY: it writes one number.
        let asked = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
        asked.is_ok() && version >= 13_000
    })
}

/// Where a copy goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToDevice,
    ToHost,
}

/// A place in a stream.
pub(super) struct Event {
    event: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: an event may be used from any thread in its context.
unsafe impl Send for Event {}

impl Event {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, Error> {
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
            .map_err(failed(&context.id, "make an event"))?;
        Ok(Self { event, context: Arc::clone(context) })
    }

    pub(super) fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: both exist, in the same context.
        unsafe { result::event::record(self.event, stream.stream) }
    }

    /// Whether what was in the stream when it was recorded is done.
    pub(super) fn is_reached(&self) -> Result<bool, DriverError> {
        // SAFETY: the event exists.
        ready(unsafe { sys::cuEventQuery(self.event) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: made once, destroyed once.
        let _ = unsafe { result::event::destroy(self.event) };
    }
}

fn ready(said: sys::CUresult) -> Result<bool, DriverError> {
    match said {
        sys::CUresult::CUDA_SUCCESS => Ok(true),
        sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        error => Err(DriverError(error)),
    }
}

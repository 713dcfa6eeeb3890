//! OpenCL devices with their own memory: copies the packets of a chunk to the device and back.
//!
//! ```text
//! arena (host)     | buffer | buffer | ... |
//!                    | ranges (transfer.rs) ^
//! shadow (device)  | v      | buffer | ... |
//!
//! staging (host)   | buffer | buffer |
//!                    |   one range    ^
//! staging (device) | v      | buffer |
//! ```
//!
//! The shadow has the same buffers at the same offsets as the arena. The CPU packs scattered
//! buffers into a page-locked staging buffer. Its copy on the device then replaces the shadow as
//! the arena of the kernel.
//!
//! Each slot has an in-order queue: arrays and packets to the device, kernel, packets and arrays
//! back. Chunks in different slots overlap, so copies in both directions overlap with kernels. No
//! chunk accesses a buffer of another chunk, on the host or the device. The host waits for the last
//! copy before it reads any result, as OpenCL requires.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_abi::{BUFFER_UNIT_BYTES, Descriptor, Outcome, VERDICT_DROP};
use godwit_packet::{ArenaHandle, Memory, Region};
use godwit_sched::Chunk;
use opencl3::command_queue::{CommandQueue, enqueue_read_buffer, enqueue_write_buffer};
use opencl3::context::Context;
use opencl3::device::Device;
use opencl3::error_codes::ClError;
use opencl3::event::{CL_COMPLETE, Event};
use opencl3::memory::{Buffer, CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE, ClMem};

use super::failed;
use super::program::PAGE_BYTES;
use super::slot::SlotParts;
use crate::check::packets_of;
use crate::transfer::{AccessedBytes, CopyPlan, CopyRange, Costs};
use crate::{Error, Found};

/// Maximum gap in a copied range, in bytes. A copy call costs about as much: 0.6 µs at 55 GB/s.
const GAP_BYTES_MAX: usize = 32 << 10;
/// Maximum number of ranges per direction. More copies cost more than packing the chunk on the CPU.
const RANGES_MAX: usize = 12;
const NO_WAIT: u32 = 0;
/// `CL_MAP_FAILURE`, for a mapping at address 0.
const MAP_FAILURE: i32 = -12;

/// State of a device with its own memory.
pub(super) struct DeviceMemory {
    pub(super) shadow: Buffer<u8>,
    /// Accessed bytes of each program.
    pub(super) accessed: Vec<AccessedBytes>,
    pub(super) arena: ArenaHandle,
}

/// State of a slot on a device with its own memory.
pub(super) struct DeviceSlot {
    pub(super) queue: CommandQueue,
    /// All arrays of the slot. The kernel arguments are parts of this buffer.
    pub(super) arrays: Buffer<u8>,
    plan: CopyPlan,
    staging: Option<Staging>,
    /// Whether the current chunk uses the staging buffer.
    is_staged: bool,
}

/// Staging buffer for the packets of one chunk, on host and device.
struct Staging {
    host: Memory,
    device: Buffer<u8>,
}
/// Returns index and staging offset (in units of 64 bytes) of each packet, in the order of the
/// chunk's bins.
fn staging_offsets<'a>(chunk: &'a Chunk) -> impl Iterator<Item = (usize, u32)> + 'a {
    let mut next = 0;
    chunk.bins.iter().flat_map(packets_of).map(move |index| {
        let offset = next;
        next += u32::from(chunk.descriptors[index].room);
        (index, offset)
    })
}

impl DeviceSlot {
    pub(super) fn new(found: &Found, context: &Context, device: &Device, bytes: usize) -> Result<Self, Error> {
        let id = &found.capabilities.id;
        let queue = queue(found, context, device)?;
        let arrays = buffer(context, bytes).map_err(failed(id, "create a buffer"))?;
        Ok(Self { queue, arrays, plan: CopyPlan::default(), staging: None, is_staged: false })
    }

    /// Fills `part` of the arrays with zeros. `zeros` is zeroed memory of at least the same length
    /// as the arrays.
    pub(super) fn clear(&self, zeros: &Memory, part: Range<usize>) -> Result<(), ClError> {
        let range = CopyRange { offset: part.start, bytes: part.len() };
        // SAFETY: the range lies within the memory, and the copy ends before this function returns.
        unsafe { copy_to_device(&self.queue, &self.arrays, range, zeros.base().add(part.start)) }?.wait()
    }

    /// Plans the copies of the chunk, and packs scattered packets into the staging buffer. Returns
    /// the buffer that the kernel uses as arena. `descriptors` are the device's copies; they are
    /// changed for packed packets.
    pub(super) fn prepare(
        &mut self,
        parts: &SlotParts<'_>,
        memory: &DeviceMemory,
        region: &mut Region,
        chunk: &Chunk,
        descriptors: &mut [u8],
    ) -> Result<*mut c_void, Error> {
        let SlotParts { found, context, device, .. } = *parts;
        let accessed = |instance: u16| memory.accessed[usize::from(instance)];
        let costs = Costs { gap_bytes_max: GAP_BYTES_MAX, padding_bytes: memory.arena.padding_bytes() };
        self.plan.plan(chunk, accessed, costs);
        self.is_staged = self.plan.to_device.len().max(self.plan.to_host.len()) > RANGES_MAX;
        if !self.is_staged {
            return Ok(memory.shadow.get());
        }
        let bytes = chunk.bins.iter().flat_map(packets_of).map(|at| chunk.descriptors[at].room_bytes()).sum::<usize>();
        if self.staging.as_ref().is_none_or(|staging| staging.host.bytes() < bytes) {
            let bytes = bytes.next_power_of_two().max(PAGE_BYTES);
            let host = pinned(found, context, device, bytes, "the staging buffer of a device")?;
            let device = buffer(context, bytes).map_err(failed(&found.capabilities.id, "create a buffer"))?;
            self.staging = Some(Staging { host, device });
        }
        let Some(Staging { host, device }) = &mut self.staging else { unreachable!("created above") };
        let writes_any = chunk.bins.iter().any(|bin| accessed(bin.instance).writes_bytes != 0);
        let mut offsets = staging_offsets(chunk);
        for bin in &chunk.bins {
            let reads = usize::from(accessed(bin.instance).reads_bytes);
            for (index, offset) in offsets.by_ref().take(usize::from(bin.count)) {
                let descriptor = &chunk.descriptors[index];
                let frame = region.frame(descriptor);
                let read = &frame[..frame.len().min(reads)];
                let to = offset as usize * BUFFER_UNIT_BYTES + usize::from(descriptor.head);
                host[to..to + read.len()].copy_from_slice(read);
                let buffer = index * size_of::<Descriptor>();
                descriptors[buffer..buffer + size_of::<u32>()].copy_from_slice(&offset.to_le_bytes());
            }
        }
        self.plan.to_device.clear();
        self.plan.to_host.clear();
        self.plan.to_device.push(CopyRange { offset: 0, bytes });
        self.plan.to_host.extend(writes_any.then_some(CopyRange { offset: 0, bytes }));
        Ok(device.get())
    }

    /// Enqueues the copies of packets to the device, or back.
    ///
    /// # Safety
    /// The chunk's buffers must have no other use until the copies have ended.
    pub(super) unsafe fn copy(&self, memory: &DeviceMemory, to_device: bool) -> Result<(), ClError> {
        let (base, buffer) = match &self.staging {
            Some(staging) if self.is_staged => (staging.host.base(), &staging.device),
            _ => (memory.arena.base(), &memory.shadow),
        };
        for range in if to_device { &self.plan.to_device } else { &self.plan.to_host } {
            // SAFETY: ranges lie within the arena or the staging buffer. The rest is guaranteed by
            // the caller.
            unsafe {
                let host = base.add(range.offset);
                match to_device {
                    true => copy_to_device(&self.queue, buffer, *range, host)?,
                    false => copy_to_host(&self.queue, buffer, *range, host)?,
                };
            }
        }
        Ok(())
    }

    /// Copies packets from the staging buffer to their own buffers, and restores the buffers in
    /// their descriptors.
    pub(super) fn unpack(&self, memory: &DeviceMemory, region: &mut Region, chunk: &mut Chunk, buffers: &[u32]) {
        let Some(staging) = self.staging.as_ref().filter(|_| self.is_staged) else { return };
        let mut buffers = buffers.iter();
        for bin in &chunk.bins {
            let writes = memory.accessed[usize::from(bin.instance)].writes_bytes;
            for index in packets_of(bin) {
                let descriptor = &mut chunk.descriptors[index];
                let offset = descriptor.buffer_offset();
                let Some(&buffer) = buffers.next() else { unreachable!("there is one buffer per packet") };
                descriptor.buffer = buffer;
                let (head, length) = (usize::from(descriptor.head), usize::from(descriptor.length));
                let Outcome { verdict, .. } = chunk.outcomes[index];
                // Dropped packets are not needed.
                if writes != 0 && verdict != VERDICT_DROP {
                    let written = head..head + length.min(usize::from(writes));
                    region.buffer_mut(descriptor)[written.clone()]
                        .copy_from_slice(&staging.host[offset + written.start..offset + written.end]);
                }
            }
        }
    }
}

/// Creates an in-order queue with profiling.
pub(super) fn queue(found: &Found, context: &Context, device: &Device) -> Result<CommandQueue, Error> {
    // SAFETY: the device belongs to the context. The flags do not request out-of-order execution.
    let queue =
        unsafe { CommandQueue::create(context, device.id(), opencl3::command_queue::CL_QUEUE_PROFILING_ENABLE) };
    queue.map_err(failed(&found.capabilities.id, "create a command queue"))
}

/// Creates a buffer in the device's memory.
pub(super) fn buffer(context: &Context, bytes: usize) -> Result<Buffer<u8>, ClError> {
    // SAFETY: the buffer uses no host memory.
    unsafe { Buffer::create(context, CL_MEM_READ_WRITE, bytes, std::ptr::null_mut()) }
}

/// Returns whether a command ends within `timeout`.
pub(super) fn wait_for(event: &Event, timeout: Duration) -> Result<bool, ClError> {
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

/// Enqueues a copy to a buffer.
///
/// # Safety
/// `host` must be valid for the length of the range, and must not be written until the copy has
/// ended.
pub(super) unsafe fn copy_to_device(
    queue: &CommandQueue,
    buffer: &Buffer<u8>,
    range: CopyRange,
    host: NonNull<u8>,
) -> Result<Event, ClError> {
    let host = host.as_ptr().cast();
    // SAFETY: guaranteed by the caller. The driver checks the bounds of the buffer.
    let event = unsafe {
        let none = std::ptr::null();
        enqueue_write_buffer(queue.get(), buffer.get(), 0, range.offset, range.bytes, host, NO_WAIT, none)
    };
    event.map(Event::new).map_err(ClError)
}

/// Enqueues a copy from a buffer.
///
/// # Safety
/// `host` must be valid for the length of the range, and must have no other use until the copy has
/// ended.
pub(super) unsafe fn copy_to_host(
    queue: &CommandQueue,
    buffer: &Buffer<u8>,
    range: CopyRange,
    host: NonNull<u8>,
) -> Result<Event, ClError> {
    let host = host.as_ptr().cast();
    // SAFETY: guaranteed by the caller. The driver checks the bounds of the buffer.
    let event = unsafe {
        let none = std::ptr::null();
        enqueue_read_buffer(queue.get(), buffer.get(), 0, range.offset, range.bytes, host, NO_WAIT, none)
    };
    event.map(Event::new).map_err(ClError)
}

/// Owner of page-locked memory. Unmaps it on drop.
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
        // SAFETY: mapped once and no longer referenced. If the driver fails, the buffer is released
        // without unmapping.
        let _ = unsafe { self.queue.enqueue_unmap_mem_object(self.buffer.get(), self.mapped.as_ptr(), &[]) };
        let _ = self.queue.finish();
    }
}

/// Allocates zeroed page-locked memory, from which copy engines copy directly. `what` names its use
/// in the error.
pub(super) fn pinned(
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
    // SAFETY: a new buffer is mapped once and completely, and the call waits for the end.
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

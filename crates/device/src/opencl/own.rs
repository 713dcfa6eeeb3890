//! Devices with memory of their own: what a function reads is copied there, and what it writes comes back.
//!
//! ```text
//! arena (host)     | buffer | buffer | ... |            the device has a shadow of it: the same buffers at the same places
//!                    |  runs (transfer.rs) ^
//! shadow (device)  | v      | buffer | ... |
//!
//! packed (host)    | buffer | buffer |                  or, where a chunk's buffers lie scattered, a copy of them side by
//!                    |   one run        ^               side, made by the CPU in page-locked memory; the device then
//! packed (device)  | v      | buffer |                  takes that for the arena
//! ```
//!
//! A slot has a queue of its own, in order: arrays and packets in, kernel, packets and arrays out. Chunks in different
//! slots overlap, copies both ways with kernels. No chunk reaches a buffer of another, on either side. The end of the last
//! copy is waited for before the host reads anything, which is the order that OpenCL promises.

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
use crate::transfer::{Costs, Plan, Reach, Run};
use crate::{Error, Found};

/// About what a copy call costs, as bytes: 0.6 µs at 55 GB/s.
const GAP_BYTES_MAX: usize = 32 << 10;
/// More copies than that cost more than the CPU needs to pack a chunk.
const RUNS_MAX: usize = 12;
const NO_WAIT: u32 = 0;
/// What the driver would say (`CL_MAP_FAILURE`).
const MAP_FAILURE: i32 = -12;

/// The part of a device that has memory of its own.
pub(super) struct OwnMemory {
    pub(super) shadow: Buffer<u8>,
    /// Of each program.
    pub(super) reaches: Vec<Reach>,
    pub(super) arena: ArenaHandle,
}

/// The part of a slot of such a device.
pub(super) struct OwnSlot {
    pub(super) queue: CommandQueue,
    /// All arrays of the slot; their arguments are parts of it.
    pub(super) arrays: Buffer<u8>,
    plan: Plan,
    packed: Option<Packed>,
    /// Whether the chunk in the slot is packed.
    is_packed: bool,
}

/// Room for buffers of one chunk side by side, here and there.
struct Packed {
    host: Memory,
    device: Buffer<u8>,
}

/// Where each buffer is put, in units of 64 bytes, in the order of a chunk's bins.
fn places<'a>(chunk: &'a Chunk) -> impl Iterator<Item = (usize, u32)> + 'a {
    let mut next = 0;
    chunk.bins.iter().flat_map(packets_of).map(move |at| {
        let place = next;
        next += u32::from(chunk.descriptors[at].room);
        (at, place)
    })
}

impl OwnSlot {
    pub(super) fn new(found: &Found, context: &Context, device: &Device, bytes: usize) -> Result<Self, Error> {
        let id = &found.capabilities.id;
        let queue = queue(found, context, device)?;
        let arrays = buffer(context, bytes).map_err(failed(id, "make a buffer"))?;
        Ok(Self { queue, arrays, plan: Plan::default(), packed: None, is_packed: false })
    }

    /// Makes a part of its arrays zeros, those of new memory that is as long as they are.
    pub(super) fn clear(&self, zeros: &Memory, part: Range<usize>) -> Result<(), ClError> {
        let run = Run { offset: part.start, bytes: part.len() };
        // SAFETY: within the memory, which nobody writes before this has returned: the copy has ended then.
        unsafe { copy_in(&self.queue, &self.arrays, run, zeros.base().add(part.start)) }?.wait()
    }

    /// Decides how the chunk's packets are to travel, and packs them if they are to be packed. Returns what the kernel
    /// takes for the arena. `descriptors` are those that the device is given.
    pub(super) fn prepare(
        &mut self,
        parts: &SlotParts<'_>,
        own: &OwnMemory,
        region: &mut Region,
        chunk: &Chunk,
        descriptors: &mut [u8],
    ) -> Result<*mut c_void, Error> {
        let SlotParts { found, context, device, .. } = *parts;
        let reach = |instance: u16| own.reaches[usize::from(instance)];
        let costs = Costs { gap_bytes_max: GAP_BYTES_MAX, padding_bytes: own.arena.padding_bytes() };
        self.plan.make(chunk, reach, costs);
        self.is_packed = self.plan.inward.len().max(self.plan.outward.len()) > RUNS_MAX;
        if !self.is_packed {
            return Ok(own.shadow.get());
        }
        let bytes = chunk.bins.iter().flat_map(packets_of).map(|at| chunk.descriptors[at].room_bytes()).sum::<usize>();
        if self.packed.as_ref().is_none_or(|packed| packed.host.bytes() < bytes) {
            let bytes = bytes.next_power_of_two().max(PAGE_BYTES);
            let host = pinned(found, context, device, bytes, "packets on their way to a device")?;
            let device = buffer(context, bytes).map_err(failed(&found.capabilities.id, "make a buffer"))?;
            self.packed = Some(Packed { host, device });
        }
        let Some(Packed { host, device }) = &mut self.packed else { unreachable!("it was just made") };
        let writes_any = chunk.bins.iter().any(|bin| reach(bin.instance).writes_bytes != 0);
        let mut places = places(chunk);
        for bin in &chunk.bins {
            let reads = usize::from(reach(bin.instance).reads_bytes);
            for (at, place) in places.by_ref().take(usize::from(bin.count)) {
                let descriptor = &chunk.descriptors[at];
                let frame = region.frame(descriptor);
                let read = &frame[..frame.len().min(reads)];
                let to = place as usize * BUFFER_UNIT_BYTES + usize::from(descriptor.head);
                host[to..to + read.len()].copy_from_slice(read);
                let buffer = at * size_of::<Descriptor>();
                descriptors[buffer..buffer + size_of::<u32>()].copy_from_slice(&place.to_le_bytes());
            }
        }
        self.plan.inward.clear();
        self.plan.outward.clear();
        self.plan.inward.push(Run { offset: 0, bytes });
        self.plan.outward.extend(writes_any.then_some(Run { offset: 0, bytes }));
        Ok(device.get())
    }

    /// Enqueues the copies of packets to the device, or back.
    ///
    /// # Safety
    /// Until the queue has worked off the copies, the chunk's buffers are reached by nothing else.
    pub(super) unsafe fn copy(&self, own: &OwnMemory, inward: bool) -> Result<(), ClError> {
        let (base, buffer) = match &self.packed {
            Some(packed) if self.is_packed => (packed.host.base(), &packed.device),
            _ => (own.arena.base(), &own.shadow),
        };
        for run in if inward { &self.plan.inward } else { &self.plan.outward } {
            // SAFETY: runs lie within the arena, or what is packed; the caller's promise.
            unsafe {
                let host = base.add(run.offset);
                match inward {
                    true => copy_in(&self.queue, buffer, *run, host)?,
                    false => copy_out(&self.queue, buffer, *run, host)?,
                };
            }
        }
        Ok(())
    }

    /// Brings packets that came back packed into their buffers, and their descriptors back to what they name.
    pub(super) fn unpack(&self, own: &OwnMemory, region: &mut Region, chunk: &mut Chunk, buffers: &[u32]) {
        let Some(packed) = self.packed.as_ref().filter(|_| self.is_packed) else { return };
        let mut buffers = buffers.iter();
        for bin in &chunk.bins {
            let writes = own.reaches[usize::from(bin.instance)].writes_bytes;
            for at in packets_of(bin) {
                let descriptor = &mut chunk.descriptors[at];
                let place = descriptor.buffer_offset();
                let Some(&buffer) = buffers.next() else { unreachable!("one buffer a packet") };
                descriptor.buffer = buffer;
                let (head, length) = (usize::from(descriptor.head), usize::from(descriptor.length));
                let Outcome { verdict, .. } = chunk.outcomes[at];
                // Nobody needs a packet that is dropped.
                if writes != 0 && verdict != VERDICT_DROP {
                    let span = head..head + length.min(usize::from(writes));
                    region.buffer_mut(descriptor)[span.clone()]
                        .copy_from_slice(&packed.host[place + span.start..place + span.end]);
                }
            }
        }
    }
}

/// A queue in order, with times.
pub(super) fn queue(found: &Found, context: &Context, device: &Device) -> Result<CommandQueue, Error> {
    // SAFETY: the device is the context's. Without a flag that says otherwise the queue runs commands in order.
    let queue =
        unsafe { CommandQueue::create(context, device.id(), opencl3::command_queue::CL_QUEUE_PROFILING_ENABLE) };
    queue.map_err(failed(&found.capabilities.id, "make a command queue"))
}

/// A buffer in the device's memory.
pub(super) fn buffer(context: &Context, bytes: usize) -> Result<Buffer<u8>, ClError> {
    // SAFETY: no memory of the host is involved.
    unsafe { Buffer::create(context, CL_MEM_READ_WRITE, bytes, std::ptr::null_mut()) }
}

/// Whether a command ends within that time.
pub(super) fn wait_for(event: &Event, patience: Duration) -> Result<bool, ClError> {
    let waiting = Instant::now();
    loop {
        // Negative: it ended with an error.
        match event.command_execution_status()?.0 {
            CL_COMPLETE => return event.wait().map(|()| true),
            error if error < 0 => return Err(ClError(error)),
            _ if waiting.elapsed() > patience => return Ok(false),
            _ => std::thread::yield_now(),
        }
    }
}

/// Enqueues a copy to a buffer.
///
/// # Safety
/// `host` is good for the run's bytes, which nobody writes until the copy has ended.
pub(super) unsafe fn copy_in(
    queue: &CommandQueue,
    buffer: &Buffer<u8>,
    run: Run,
    host: NonNull<u8>,
) -> Result<Event, ClError> {
    let host = host.as_ptr().cast();
    // SAFETY: the caller's promise; the driver checks the bounds of the buffer.
    let event = unsafe {
        let none = std::ptr::null();
        enqueue_write_buffer(queue.get(), buffer.get(), 0, run.offset, run.bytes, host, NO_WAIT, none)
    };
    event.map(Event::new).map_err(ClError)
}

/// Enqueues a copy out of a buffer.
///
/// # Safety
/// `host` is good for the run's bytes, which nobody else reaches until the copy has ended.
pub(super) unsafe fn copy_out(
    queue: &CommandQueue,
    buffer: &Buffer<u8>,
    run: Run,
    host: NonNull<u8>,
) -> Result<Event, ClError> {
    let host = host.as_ptr().cast();
    // SAFETY: the caller's promise; the driver checks the bounds of the buffer.
    let event = unsafe {
        let none = std::ptr::null();
        enqueue_read_buffer(queue.get(), buffer.get(), 0, run.offset, run.bytes, host, NO_WAIT, none)
    };
    event.map(Event::new).map_err(ClError)
}

/// Gives page-locked memory back.
struct PinnedOwner {
    mapped: NonNull<c_void>,
    buffer: Buffer<u8>,
    queue: CommandQueue,
    _context: Arc<Context>,
}

// SAFETY: the buffer is only unmapped and released, and the driver takes these calls from any thread.
unsafe impl Send for PinnedOwner {}
// SAFETY: a shared reference does nothing.
unsafe impl Sync for PinnedOwner {}

impl Drop for PinnedOwner {
    fn drop(&mut self) {
        // SAFETY: mapped once, and nobody refers to it any more. Should the driver refuse, it is released as it is.
        let _ = unsafe { self.queue.enqueue_unmap_mem_object(self.buffer.get(), self.mapped.as_ptr(), &[]) };
        let _ = self.queue.finish();
    }
}

/// Zeroed page-locked memory, which copy engines reach without the driver copying it first. `what` is for the error.
pub(super) fn pinned(
    found: &Found,
    context: &Arc<Context>,
    device: &Device,
    bytes: usize,
    what: &'static str,
) -> Result<Memory, Error> {
    let queue = queue(found, context, device)?;
    let id = &found.capabilities.id;
    // The driver aligns to its largest type and no more.
    let allocated_bytes = bytes + PAGE_BYTES;
    if allocated_bytes as u64 > found.buffer_bytes_max {
        return Err(Error::TooLarge { id: id.clone(), what, bytes: bytes as u64, bytes_max: found.buffer_bytes_max });
    }
    let mut mapped: *mut c_void = std::ptr::null_mut();
    let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
    // SAFETY: a buffer of its own is mapped whole, once, and the call waits for that.
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
    // SAFETY: the mapping is a page longer than what is used of it, and nobody else's.
    let base = unsafe {
        let base = first.add(first.as_ptr().align_offset(PAGE_BYTES));
        base.write_bytes(0, bytes);
        base
    };
    // SAFETY: from here to `base + bytes` it was just written, and stays mapped until the owner is dropped. No command
    // names the buffer, so the driver has no reason to touch it.
    Ok(unsafe { Memory::from_owner(base, bytes, Box::new(owner)) })
}

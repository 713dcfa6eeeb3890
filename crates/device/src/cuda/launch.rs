//! Enqueues the copies and the kernel launch of one submission.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::result::DriverError;
use godwit_sched::Chunk;

use super::driver::{Context, Copies, DevicePointer, Stream};
use super::program::{GROUP_LANES, Kernels};
use super::slot::{ARGUMENTS, Parts, Slot};
use super::tables::DeviceArguments;
use crate::error::Error;
use crate::transfer::{Blocks, ChunkPlan, ChunkTransfer, Direction};

/// One worker's copy streams, one for each direction. If each submission used its own streams, the
/// bus would often be busy in one direction only.
pub(super) struct CopyStreams {
    to_device: Stream,
    to_host: Stream,
}

impl CopyStreams {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, Error> {
        Ok(Self { to_device: Stream::new(context)?, to_host: Stream::new(context)? })
    }

    pub(super) fn both(&self) -> [&Stream; 2] {
        [&self.to_device, &self.to_host]
    }
}

/// Enqueues the copies and the kernel launch of a submission. `arena` is the address of the memory
/// that holds all packets. After an error, the device may already execute some of the commands.
pub(super) fn launch(
    slot: &mut Slot,
    streams: &CopyStreams,
    kernels: &Kernels,
    arguments: &DeviceArguments,
    arena: *mut u8,
    plan: &ChunkPlan,
    chunk: &Chunk,
) -> Result<(), DriverError> {
    slot.signals_done = plan.transfer == ChunkTransfer::ZeroCopy;
    if slot.signals_done {
        slot.done().store(0, Ordering::Relaxed);
        return run(slot, kernels, arguments, chunk.bins.len());
    }
    let arrays = Arrays::of(slot, chunk);
    let mut copies = std::mem::take(&mut slot.copies);
    arrays.add_to(&mut copies, Direction::ToDevice);
    enqueue(&mut copies, &streams.to_device, Direction::ToDevice, arguments, arena, &plan.to_device)?;
    slot.copied_in.record(&streams.to_device)?;
    slot.stream.await_event(&slot.copied_in)?;
    run(slot, kernels, arguments, chunk.bins.len())?;
    slot.kernel_done.record(&slot.stream)?;
    streams.to_host.await_event(&slot.kernel_done)?;
    arrays.add_to(&mut copies, Direction::ToHost);
    enqueue(&mut copies, &streams.to_host, Direction::ToHost, arguments, arena, &plan.to_host)?;
    slot.copies = copies;
    slot.copied_out.record(&streams.to_host)
}

/// Launches the kernel once without work. At the first launch, the driver loads the kernel and
/// allocates its local memory, which takes 50 to 350 ms.
pub(super) fn warm_up(slot: &mut Slot, kernels: &Kernels, arguments: &DeviceArguments) -> Result<(), DriverError> {
    run(slot, kernels, arguments, 0)?;
    slot.stream.synchronize()
}

/// Host and device addresses of a submission's arrays.
struct Arrays {
    /// Host address of the array of packet parameters.
    host: *mut u8,
    /// Device address of the memory that holds all arrays.
    device: DevicePointer,
    /// Offset of the array of packet parameters in this memory.
    parameters: usize,
    copied: [Parts; 2],
}

impl Arrays {
    fn of(slot: &Slot, chunk: &Chunk) -> Self {
        let host = match slot.direct {
            Some(_) => chunk.parameters.pages().base().as_ptr().wrapping_add(chunk.parameters.offset()),
            None => slot.host.base().as_ptr().wrapping_add(slot.offsets.parameters),
        };
        let (parameters, copied) = (slot.offsets.parameters, slot.copied);
        Self { host, device: slot.device.pointer, parameters, copied }
    }

    fn add_to(&self, copies: &mut Copies, direction: Direction) {
        let [to_device, to_host] = self.copied;
        let parts = match direction {
            Direction::ToDevice => to_device,
            Direction::ToHost => to_host,
        };
        for (offset, bytes) in parts {
            let host = self.host.wrapping_add(offset).wrapping_sub(self.parameters);
            copies.add(direction, self.device + offset as u64, host, bytes);
        }
    }
}

/// Enqueues all given copies in one stream.
fn enqueue(
    copies: &mut Copies,
    stream: &Stream,
    direction: Direction,
    arguments: &DeviceArguments,
    arena: *mut u8,
    blocks: &Blocks,
) -> Result<(), DriverError> {
    blocks.iter().for_each(|block| copies.add_block(direction, arguments.shadow, arena, block));
    // SAFETY: both memories are large enough: the arrays of a slot or a chunk, and the arena and
    // its shadow. The blocks are buffers of packets that the lane holds. The host accesses them
    // only after `copied_out` is complete, and they stay allocated until then.
    unsafe { copies.submit(stream) }
}

fn run(slot: &mut Slot, kernels: &Kernels, arguments: &DeviceArguments, bins: usize) -> Result<(), DriverError> {
    let (offsets, device, host) = (slot.offsets, slot.device.pointer, slot.host.pointer);
    let is_zero_copy = slot.signals_done;
    let mut by_device = *arguments;
    let mut host_arrays = if is_zero_copy { slot.direct.unwrap_or(host + offsets.parameters as u64) } else { 0 };
    let [mut parameters, mut descriptors, mut outcomes, mut trails, mut counters] =
        [offsets.parameters, offsets.descriptors, offsets.outcomes, offsets.trails, 0]
            .map(|offset| device + offset as u64);
    let mut bins_at = if slot.direct.is_some() || is_zero_copy { host } else { device } + offsets.bins as u64;
    let mut cycles = host + offsets.cycles as u64;
    let mut bin_count = bins as u32;
    let (mut scratch, mut scratch_packets) = (device + slot.scratch.0 as u64, slot.scratch.1 as u32);
    let mut host_done = if is_zero_copy { host } else { 0 };
    let mut values: [*mut c_void; ARGUMENTS] = [
        (&raw mut by_device).cast(),
        (&raw mut host_arrays).cast(),
        (&raw mut parameters).cast(),
        (&raw mut descriptors).cast(),
        (&raw mut outcomes).cast(),
        (&raw mut trails).cast(),
        (&raw mut bins_at).cast(),
        (&raw mut bin_count).cast(),
        (&raw mut counters).cast(),
        (&raw mut cycles).cast(),
        (&raw mut scratch).cast(),
        (&raw mut scratch_packets).cast(),
        (&raw mut host_done).cast(),
    ];
    let groups = bins.clamp(1, kernels.groups_max) as u32;
    // SAFETY: the values match the parameters of `gw_chunk`. The arrays hold a checked chunk, so
    // the kernel stays within them, the tables, and the buffers of packets that the lane holds.
    unsafe {
        match is_zero_copy {
            true => slot.launches.launch(&slot.stream, groups, &mut values),
            false => kernels.chunk.launch(&slot.stream, groups, GROUP_LANES, &mut values),
        }
    }
}

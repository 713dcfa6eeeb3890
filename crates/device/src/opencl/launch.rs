//! Enqueues the copies and the kernel launch of one submission.

use std::ffi::c_void;

use godwit_packet::Region;
use godwit_sched::Chunk;
use opencl3::command_queue::CommandQueue;
use opencl3::error_codes::ClError;
use opencl3::event::Event;
use opencl3::memory::ClMem;

use super::driver::{self, copy_block, copy_to_device, copy_to_host, failed, set_address, set_word};
use super::program::Kernels;
use super::slot::{
    ARGUMENT_ARENA, ARGUMENT_BIN_COUNT, DESCRIPTORS, OUTCOMES, OwnSlot, Packets, Shadow, Slot, SlotParts, TRAILS,
};
use crate::check::packets_of;
use crate::error::Error;
use crate::transfer::{Block, Blocks, ChunkPlan, ChunkTransfer, Direction, pack, packed_bytes};

/// Result of the launch of a submission.
pub(super) enum Launched {
    Whole(Events),
    /// The driver failed after it had accepted some commands of the submission. No event reports
    /// the end of these commands.
    Part(ClError),
}

/// Events that report the progress of a launch.
pub(super) struct Events {
    pub(super) launched: Event,
    /// Event of the last copy back to the host, for a device with separate memory.
    pub(super) copied: Option<Event>,
}

/// Enqueues the kernel and the copies for a submission. Without copies, the commands go to the
/// queue `queue`. An error means that no command was enqueued.
pub(super) fn launch(
    slot: &mut Slot,
    parts: &SlotParts<'_>,
    queue: &CommandQueue,
    region: &Region,
    chunk: &Chunk,
    plan: ChunkPlan,
) -> Result<Launched, Error> {
    let failed = failed(&parts.found.capabilities.id, "launch a kernel");
    let Packets::Own(shadow) = parts.packets else {
        let launched = set_bins(slot, chunk).and_then(|()| enqueue(slot, parts.kernels, queue, chunk));
        return launched.map(|launched| Launched::Whole(Events { launched, copied: None })).map_err(failed);
    };
    let Some(mut own) = slot.own.take() else { unreachable!("the slot belongs to a device with its own memory") };
    let launched = prepare(slot, &mut own, parts, region, chunk, plan).and_then(|plan| {
        begin(slot, &own, shadow, chunk).map_err(failed)?;
        let launched = enqueue_rest(slot, &own, parts.kernels, shadow, chunk, plan);
        Ok(launched.map_or_else(Launched::Part, Launched::Whole))
    });
    slot.own = Some(own);
    launched
}

/// Packs the packets of a submission into the staging buffer if they are scattered in memory. The
/// returned transfer plan then copies the staging buffer.
fn prepare(
    slot: &mut Slot,
    own: &mut OwnSlot,
    parts: &SlotParts<'_>,
    region: &Region,
    chunk: &Chunk,
    plan: ChunkPlan,
) -> Result<ChunkPlan, Error> {
    own.packed.clear();
    if plan.transfer != ChunkTransfer::Pack {
        return Ok(plan);
    }
    let bytes = packed_bytes(chunk);
    let staging = own.staging(parts, bytes)?;
    let descriptors = slot.ranges[DESCRIPTORS].clone();
    pack(chunk, region, parts.needs, &mut staging.host, &mut slot.memory[descriptors]);
    own.packed.extend(chunk.bins.iter().flat_map(packets_of).map(|index| chunk.descriptors[index].buffer));
    let all = Blocks::one(Block::row(0, bytes));
    Ok(ChunkPlan { to_device: all, to_host: if plan.writes { all } else { Blocks::NONE }, ..plan })
}

/// Sets the kernel arguments of a submission and enqueues its first copy. An error means that the
/// driver has accepted no command.
fn begin(slot: &Slot, own: &OwnSlot, shadow: &Shadow, chunk: &Chunk) -> Result<(), ClError> {
    set_bins(slot, chunk)?;
    let packets: *mut c_void = match &own.staging {
        Some(staging) if !own.packed.is_empty() => staging.device.get(),
        _ => shadow.buffer.get(),
    };
    set_address(&slot.kernel, ARGUMENT_ARENA, packets)?;
    // SAFETY: the lane owns the slot's memory, and accesses it only after all later commands have
    // ended.
    unsafe { copy_to_device(&own.queue, &own.arrays, 0, slot.memory.base(), slot.ranges[DESCRIPTORS].end) }?;
    Ok(())
}

fn enqueue_rest(
    slot: &Slot,
    own: &OwnSlot,
    kernels: &Kernels,
    shadow: &Shadow,
    chunk: &Chunk,
    plan: ChunkPlan,
) -> Result<Events, ClError> {
    let (base, buffer) = match &own.staging {
        Some(staging) if !own.packed.is_empty() => (staging.host.base(), &staging.device),
        _ => (shadow.arena.base(), &shadow.buffer),
    };
    // SAFETY: blocks lie within the arena or the staging buffer. The lane owns the chunk's buffers,
    // and accesses them only after all commands have ended.
    let copy = |block, direction| unsafe { copy_block(&own.queue, buffer, base, block, direction) };
    for block in plan.to_device.iter() {
        copy(block, Direction::ToDevice)?;
    }
    let launched = enqueue(slot, kernels, &own.queue, chunk)?;
    for block in plan.to_host.iter() {
        copy(block, Direction::ToHost)?;
    }
    let offset = slot.ranges[DESCRIPTORS].start;
    let end = slot.ranges[if chunk.ran_chain { TRAILS } else { OUTCOMES }].end;
    // SAFETY: the lane owns the slot's memory, and accesses it only after the copy has ended.
    let copied =
        unsafe { copy_to_host(&own.queue, &own.arrays, offset, slot.memory.base().add(offset), end - offset)? };
    // A command queue may delay its commands until a thread waits for them, so the queue is
    // flushed. If the flush fails, `poll` reports the error.
    let _ = own.queue.flush();
    Ok(Events { launched, copied: Some(copied) })
}

fn set_bins(slot: &Slot, chunk: &Chunk) -> Result<(), ClError> {
    set_word(&slot.kernel, ARGUMENT_BIN_COUNT, &(chunk.bins.len() as u32))
}

fn enqueue(slot: &Slot, kernels: &Kernels, queue: &CommandQueue, chunk: &Chunk) -> Result<Event, ClError> {
    let groups = chunk.bins.len().clamp(1, kernels.groups_max);
    // SAFETY: all arguments are set. The arrays hold a checked chunk, so the kernel stays within
    // them, the tables, and the buffers of packets that the lane holds.
    unsafe { driver::launch(queue, &slot.kernel, groups, kernels.group_lanes) }
}

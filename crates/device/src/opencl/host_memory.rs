//! Tests whether an OpenCL device really works on host memory.

use std::sync::Arc;

use godwit_abi::{BUFFER_UNIT_BYTES, Bin};
use godwit_packet::{Arena, ArenaConfig};
use godwit_sched::Chunk;
use opencl3::context::Context;
use opencl3::device::Device;

use super::driver::{failed, over, queue};
use super::launch::{Launched, launch};
use super::program::Kernels;
use super::results::read;
use super::slot::{Packets, Slot, SlotParts};
use super::tables::Tables;
use crate::chain::DeviceChain;
use crate::error::{Error, Unavailable};
use crate::found::Found;
use crate::transfer::ChunkPlan;

/// Checks that the device works on host memory. To do so, it makes the device process a packet
/// twice in buffers that are never mapped. A device with a hidden copy fails the test, because it
/// does not return its writes or does not see later writes of the host. The test also makes the
/// driver complete its compilation.
///
/// The launch has the maximum number of work-groups. After a larger launch, PoCL 5.0 confuses its
/// cached code for launches of different sizes, and an assertion then ends the process
/// (`pocl_release_dlhandle_cache`).
pub(super) fn check_host_memory(
    found: &Found,
    context: &Arc<Context>,
    device: &Device,
    kernels: &Kernels,
) -> Result<(), Error> {
    let id = &found.capabilities.id;
    let tables = Tables::new(found, context, device, &[], &DeviceChain::image(None, &[]), false)?;
    let arena = Arena::new(ArenaConfig { packets: 1, ..ArenaConfig::default() }, 1)?;
    let handle = arena.handle();
    let mut region = arena.split().remove(0);
    // SAFETY: `handle` is dropped after the buffer, and `region` is accessed only between launches.
    let arena_buffer = unsafe { over(found, context, handle.base(), handle.bytes(), "an arena of one packet")? };
    let packets = Packets::Shared(arena_buffer);
    let parts = SlotParts {
        found,
        context,
        device,
        kernels,
        tables: &tables,
        packets: &packets,
        needs: &[],
        runs_chain: false,
    };
    let mut slot = Slot::new(&parts, kernels.groups_max, 1)?;
    let queue = queue(found, context, device)?;
    let mut chunk = Chunk::new(kernels.groups_max, 1);
    let empty = Bin { first: 1, kernel: godwit_kernels::TEMPLATE, ..Bin::default() };
    chunk.bins.resize(kernels.groups_max, empty);
    chunk.bins[0] = Bin { first: 0, count: 1, ..empty };
    let Some(descriptor) = region.allocate(BUFFER_UNIT_BYTES) else { unreachable!("the arena has one free buffer") };
    for round in 1..=2_u8 {
        // The function `template` swaps the MAC addresses.
        let frame = region.frame_mut(&descriptor);
        frame[..6].fill(round);
        frame[6..12].fill(0x10 | round);
        chunk.descriptors[0] = descriptor;
        chunk.outcomes[0].verdict = u8::MAX;
        slot.write(&chunk);
        let Launched::Whole(events) = launch(&mut slot, &parts, &queue, &region, &chunk, ChunkPlan::EMPTY)? else {
            unreachable!("a launch without copies is a single command")
        };
        let ended = events.launched.wait();
        // The queue is emptied even after an error, because the device must not use the memory
        // after it is unmapped.
        queue.finish().and(ended).map_err(failed(id, "finish a kernel"))?;
        read(&slot, &[], &mut region, &mut chunk);
        let frame = region.frame(&descriptor);
        let swapped = frame[..6] == [0x10 | round; 6] && frame[6..12] == [round; 6];
        if !swapped || chunk.outcomes[0].verdict != 0 {
            let reason = "its driver reports host memory, but uses a copy of it";
            return Err(Error::Unusable { id: id.clone(), reason: Unavailable::Unsupported(reason.to_owned()) });
        }
    }
    Ok(())
}

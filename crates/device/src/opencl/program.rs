//! Loaded programs: one kernel for all functions, and one buffer for their table images.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use godwit_abi::{BUFFER_UNIT_BYTES, Bin};
use godwit_kernels::image::ALIGNMENT_BYTES;
use godwit_packet::{Arena, ArenaConfig, Image, ImageRef, Memory};
use godwit_sched::Chunk;
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::Device;
use opencl3::kernel::Kernel;
use opencl3::memory::{Buffer, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE, CL_MEM_USE_HOST_PTR};
use opencl3::program::Program as ClProgram;
use opencl3::types::cl_mem_flags;
use zeroize::{Zeroize, Zeroizing};

use super::failed;
use super::own;
use super::slot::{Launched, Packets, Slot, SlotParts, bytes_of};
use crate::Found;
use crate::transfer::CopyRange;
use crate::{DeviceChain, Error, Program};

// Names of the kernels (`kernels/dialect/loops_opencl.h`).
const ENTRY: &str = "gw_chunk";
const ENTRY_PERSISTENT: &str = "gw_persistent";
/// Compiler option that excludes functions with barriers (`kernels/dialect/loops_device.h`).
const LANE_FORMS: &str = " -DGW_LANE_FORMS";
/// Minimum number of lanes in a work-group. On PoCL, echo, ipv4, ipsec and dpi are equally fast
/// with 8 to 64 lanes, measured with chunks of 1024 packets on two cores.
const GROUP_LANES_MIN: usize = 32;
/// Number of work-groups per compute unit. With several, a unit can run another group while one
/// waits for memory.
const GROUPS_PER_UNIT: usize = 4;

/// All kernels, compiled for one device.
pub(super) struct Kernels {
    program: ClProgram,
    entry: &'static str,
    /// Number of lanes in a work-group.
    pub(super) group_lanes: usize,
    /// Maximum number of work-groups in a launch. Each group takes bins until none is left.
    pub(super) groups_max: usize,
    /// Whether the kernels can run a chain.
    pub(super) runs_chain: bool,
}

impl Kernels {
    /// Builds the kernel for chunks.
    pub(super) fn build(found: &Found, context: &Context, device: &Device, source: &str) -> Result<Self, Error> {
        Self::with_entry(found, context, device, source, ENTRY, "-cl-std=CL1.2")
    }

    /// Builds the kernel for persistent groups, which needs a newer OpenCL C version.
    pub(super) fn build_persistent(
        found: &Found,
        context: &Context,
        device: &Device,
        source: &str,
    ) -> Result<Self, Error> {
        let build = |standard| Self::with_entry(found, context, device, source, ENTRY_PERSISTENT, standard);
        build("-cl-std=CL3.0").or_else(|error| build("-cl-std=CL2.0").map_err(|_| error))
    }

    fn with_entry(
        found: &Found,
        context: &Context,
        device: &Device,
        source: &str,
        entry: &'static str,
        standard: &str,
    ) -> Result<Self, Error> {
        let id = &found.capabilities.id;
        let build = |log| Error::Build { id: id.clone(), driver: found.driver.clone(), log };
        let runs_chain = found.chain_lacks.is_none();
        let lane_forms = if runs_chain { "" } else { LANE_FORMS };
        let options = format!("{standard}{lane_forms}");
        let program = ClProgram::create_and_build_from_source(context, source, &options).map_err(build)?;
        let mut kernels = Self { program, entry, group_lanes: GROUP_LANES_MIN, groups_max: 1, runs_chain };
        let kernel = kernels.entry(id)?;
        let lanes_max = kernel.get_work_group_size(device.id()).map_err(failed(id, "report a work-group's size"))?;
        let warp = kernel.get_work_group_size_multiple(device.id()).unwrap_or(1);
        kernels.group_lanes = warp.max(GROUP_LANES_MIN).min(lanes_max).max(1);
        kernels.groups_max = found.capabilities.compute_units.max(1) * GROUPS_PER_UNIT;
        Ok(kernels)
    }

    /// Creates a kernel object with its own arguments.
    pub(super) fn entry(&self, id: &str) -> Result<Kernel, Error> {
        Kernel::create(&self.program, self.entry).map_err(failed(id, "create a kernel"))
    }
}

/// Table images of all programs, in buffers of the device.
// Fields are dropped in this order: buffers before their memory.
pub(super) struct Tables {
    pub(super) images: Buffer<u8>,
    /// Offset of each image in `images`, as one `u64` per program.
    pub(super) offsets: Buffer<u8>,
    copies: Copies,
    /// The same offsets, for the host.
    image_offsets: Vec<usize>,
}

/// Destination of image changes.
enum Copies {
    /// Host memory of the buffers, and the offset of the images in it.
    Shared(Image, usize),
    /// Device memory, written by this queue.
    Own(Mutex<CommandQueue>),
}

impl Tables {
    /// Copies the images to buffers with this layout:
    ///
    /// ```text
    /// 0                                  offsets[0]       offsets[1]
    /// | offsets, one u64 a program ... | | chain | image 0 ...  | | image 1 ... |      all at 64-byte boundaries
    /// ```
    pub(super) fn new(
        found: &Found,
        context: &Context,
        device: &Device,
        programs: &[Arc<dyn Program>],
        chain: &[u8],
        is_own: bool,
    ) -> Result<Self, Error> {
        // OpenCL has no empty buffers, and drivers share memory in pages.
        let offsets_bytes = (programs.len().max(1) * size_of::<u64>()).next_multiple_of(PAGE_BYTES);
        let mut offsets: Vec<u64> = Vec::with_capacity(programs.len());
        let mut image_offsets = Vec::with_capacity(programs.len());
        let mut images_bytes = chain.len().next_multiple_of(ALIGNMENT_BYTES);
        for program in programs {
            offsets.push(images_bytes as u64);
            image_offsets.push(images_bytes);
            images_bytes += program.image().len().next_multiple_of(ALIGNMENT_BYTES);
        }
        let images_bytes = images_bytes.max(1).next_multiple_of(PAGE_BYTES);
        let mut memory = Memory::new(offsets_bytes + images_bytes, "the table images of a device")?;
        memory[..size_of_val(offsets.as_slice())].copy_from_slice(bytes_of(&offsets));
        memory[offsets_bytes..][..chain.len()].copy_from_slice(chain);
        for (program, &offset) in programs.iter().zip(&offsets) {
            let image = program.image();
            image.copy_to(0, &mut memory[offsets_bytes + offset as usize..][..image.len()]);
        }
        if is_own {
            let images = own_copy(found, context, device, &memory[offsets_bytes..])?;
            let offsets = own_copy(found, context, device, &memory[..offsets_bytes])?;
            let copies = Copies::Own(Mutex::new(own::queue(found, context, device)?));
            // The memory may contain keys.
            memory.zeroize();
            return Ok(Self { images, offsets, copies, image_offsets });
        }
        let memory = Image::new(memory);
        // SAFETY: the offset lies within the memory.
        let images_base = unsafe { memory.base().add(offsets_bytes) };
        // SAFETY: both ranges lie within the memory, which lives as long as the buffers in `Self`.
        // Only `update` writes it, and only bytes that no packet uses.
        let (images, offsets) = unsafe {
            let images = over_with(found, context, CL_MEM_READ_ONLY, images_base, images_bytes, "the table images")?;
            let base = memory.base();
            (images, over_with(found, context, CL_MEM_READ_ONLY, base, offsets_bytes, "the table images")?)
        };
        Ok(Self { images, offsets, copies: Copies::Shared(memory, offsets_bytes), image_offsets })
    }

    /// See [`crate::Device::update_image`].
    pub(super) fn update(
        &self,
        id: &str,
        program: usize,
        image: ImageRef<'_>,
        range: Range<usize>,
        timeout: Duration,
    ) -> Result<(), Error> {
        let mut bytes = Zeroizing::new(vec![0; range.len()]);
        image.copy_to(range.start, &mut bytes);
        self.write(id, self.image_offsets[program] + range.start, bytes, timeout)
    }

    /// See [`crate::Device::update_chain`].
    pub(super) fn update_chain(&self, id: &str, chain: &DeviceChain, timeout: Duration) -> Result<(), Error> {
        let mut parts = chain.parts().into_iter();
        parts.try_for_each(|(offset, bytes)| self.write(id, offset, Zeroizing::new(bytes), timeout))
    }

    /// Writes `bytes` at `offset` of the images. Fails after `timeout`.
    fn write(&self, id: &str, offset: usize, bytes: Zeroizing<Vec<u8>>, timeout: Duration) -> Result<(), Error> {
        let action = "copy a part of a table image";
        match &self.copies {
            Copies::Shared(memory, images_at) => memory.write(images_at + offset, &bytes),
            Copies::Own(queue) if !bytes.is_empty() => {
                let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                let range = CopyRange { offset, bytes: bytes.len() };
                let host = NonNull::from(&bytes[..]).cast();
                // SAFETY: nothing writes the bytes. They are dropped only after the copy has ended.
                let copied = unsafe { own::copy_to_device(&queue, &self.images, range, host) };
                match copied.and_then(|event| queue.flush().and(own::wait_for(&event, timeout))) {
                    Ok(true) => {}
                    Ok(false) => {
                        std::mem::forget(bytes);
                        let reason = format!("no response within {timeout:?}");
                        return Err(Error::Driver { id: id.to_owned(), action, reason });
                    }
                    Err(error) => return Err(failed(id, action)(error)),
                }
            }
            Copies::Own(_) => {}
        }
        Ok(())
    }
}

/// Creates a buffer in the device's own memory and copies `bytes` to it.
fn own_copy(found: &Found, context: &Context, device: &Device, bytes: &[u8]) -> Result<Buffer<u8>, Error> {
    let id = &found.capabilities.id;
    check_buffer_size(found, bytes.len(), "the table images")?;
    let buffer = own::buffer(context, bytes.len()).map_err(failed(id, "create a buffer"))?;
    let queue = own::queue(found, context, device)?;
    let range = CopyRange { offset: 0, bytes: bytes.len() };
    // SAFETY: nothing writes the bytes, and this function waits for the copy. If waiting fails, the
    // device is not used.
    let copied = unsafe { own::copy_to_device(&queue, &buffer, range, NonNull::from(bytes).cast()) };
    copied.and_then(|_| queue.finish()).map_err(failed(id, "copy the table images"))?;
    Ok(buffer)
}

/// Returns an error if `bytes` exceeds the maximum size of a buffer.
pub(super) fn check_buffer_size(found: &Found, bytes: usize, what: &'static str) -> Result<(), Error> {
    let (bytes, bytes_max) = (bytes as u64, found.buffer_bytes_max);
    match bytes > bytes_max {
        true => Err(Error::TooLarge { id: found.capabilities.id.clone(), what, bytes, bytes_max }),
        false => Ok(()),
    }
}

/// Size of a page, in bytes. Drivers share host memory in pages.
pub(super) const PAGE_BYTES: usize = 4096;

/// Creates a buffer over host memory, which the device accesses in place. `what` names its use in
/// the error.
///
/// # Safety
/// The memory must stay mapped until the buffer is dropped and all commands that use it have ended.
/// Until then, only parts that no command uses may be accessed.
pub(super) unsafe fn over(
    found: &Found,
    context: &Context,
    base: NonNull<u8>,
    bytes: usize,
    what: &'static str,
) -> Result<Buffer<u8>, Error> {
    // SAFETY: guaranteed by the caller.
    unsafe { over_with(found, context, CL_MEM_READ_WRITE, base, bytes, what) }
}

/// # Safety
/// Same as for [`over`].
unsafe fn over_with(
    found: &Found,
    context: &Context,
    access: cl_mem_flags,
    base: NonNull<u8>,
    bytes: usize,
    what: &'static str,
) -> Result<Buffer<u8>, Error> {
    let id = &found.capabilities.id;
    check_buffer_size(found, bytes, what)?;
    // SAFETY: guaranteed by the caller.
    let buffer = unsafe { Buffer::create(context, access | CL_MEM_USE_HOST_PTR, bytes, base.as_ptr().cast()) };
    buffer.map_err(failed(id, "create a buffer over host memory"))
}

/// Checks that the device works on host memory, by processing a packet twice in buffers that are
/// never mapped. A device with a hidden copy fails: it does not return its writes, or does not see
/// later writes of the host. This also makes the driver complete its compilation.
///
/// The launch has the maximum number of groups. PoCL caches its code for the widest launch so far.
/// After a wider launch it keeps both and confuses them when a launch ends, until one of its
/// assertions ends the process (`pocl_release_dlhandle_cache`, seen with 5.0).
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
    let parts = SlotParts { found, context, device, kernels, tables: &tables, packets: &packets, runs_chain: false };
    let mut slot = Slot::new(&parts, kernels.groups_max, 1)?;
    // SAFETY: the device belongs to the context.
    let queue =
        unsafe { CommandQueue::create(context, device.id(), 0) }.map_err(failed(id, "create a command queue"))?;
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
        let Launched::Whole(events) = slot.launch(&parts, &queue, &mut region, &chunk)? else {
            unreachable!("a launch without copies is a single command")
        };
        let ended = events.launched.wait();
        // Finish even after an error: the device must not use the memory after it is unmapped.
        queue.finish().and(ended).map_err(failed(id, "finish a kernel"))?;
        slot.read(&packets, &mut region, &mut chunk);
        let frame = region.frame(&descriptor);
        let swapped = frame[..6] == [0x10 | round; 6] && frame[6..12] == [round; 6];
        if !swapped || chunk.outcomes[0].verdict != 0 {
            let reason = "its driver reports host memory, but uses a copy of it";
            return Err(Error::Unusable { id: id.clone(), reason: reason.to_owned() });
        }
    }
    Ok(())
}

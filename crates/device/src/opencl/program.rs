//! The programs made ready: one kernel for all of them, and their table images in one buffer.

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
use crate::transfer::Run;
use crate::{DeviceChain, Error, Program};

// The entries of the kernels (`kernels/dialect/loops_opencl.h`).
const ENTRY: &str = "gw_chunk";
const ENTRY_PERSISTENT: &str = "gw_persistent";
/// Leaves out what has barriers inside of functions (`kernels/dialect/loops_device.h`).
const LANE_FORMS: &str = " -DGW_LANE_FORMS";
/// Lanes of a work-group where the device has no wider warp. PoCL runs echo, ipv4, ipsec and dpi equally fast with 8 to
/// 64, measured with chunks of 1024 packets on two cores.
const GROUP_LANES_MIN: usize = 32;
/// Work-groups per compute unit, so that a unit has other groups to run while one waits for memory.
const GROUPS_PER_UNIT: usize = 4;

/// All kernels, compiled for one device.
pub(super) struct Kernels {
    program: ClProgram,
    entry: &'static str,
    /// Size of a work-group.
    pub(super) group_lanes: usize,
    /// Most work-groups of a launch; each takes bins until none is left.
    pub(super) groups_max: usize,
    /// Whether they can follow a chain.
    pub(super) follow: bool,
}

impl Kernels {
    /// With the entry for chunks.
    pub(super) fn build(found: &Found, context: &Context, device: &Device, source: &str) -> Result<Self, Error> {
        Self::with_entry(found, context, device, source, ENTRY, "-cl-std=CL1.2")
    }

    /// With the entry for groups that stay, which takes a later OpenCL C.
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
        let follow = found.chain_lacks.is_none();
        let lane_forms = if follow { "" } else { LANE_FORMS };
        let options = format!("{standard}{lane_forms}");
        let program = ClProgram::create_and_build_from_source(context, source, &options).map_err(build)?;
        let mut kernels = Self { program, entry, group_lanes: GROUP_LANES_MIN, groups_max: 1, follow };
        let kernel = kernels.entry(id)?;
        let lanes_max = kernel.get_work_group_size(device.id()).map_err(failed(id, "tell a work-group's size"))?;
        let warp = kernel.get_work_group_size_multiple(device.id()).unwrap_or(1);
        kernels.group_lanes = warp.max(GROUP_LANES_MIN).min(lanes_max).max(1);
        kernels.groups_max = found.capabilities.compute_units.max(1) * GROUPS_PER_UNIT;
        Ok(kernels)
    }

    /// The entry, with arguments of its own.
    pub(super) fn entry(&self, id: &str) -> Result<Kernel, Error> {
        Kernel::create(&self.program, self.entry).map_err(failed(id, "make a kernel"))
    }
}

/// The table images of all programs, where the device reads them.
// Fields are dropped in this order: buffers before the memory that they lie on.
pub(super) struct Tables {
    pub(super) images: Buffer<u8>,
    /// One `u64` a program: bytes from the start of `images`.
    pub(super) offsets: Buffer<u8>,
    copies: Copies,
    /// As in `offsets`.
    image_offsets: Vec<usize>,
}

/// What changes of images are written to.
enum Copies {
    /// The host's memory that the buffers lie on; the images begin here.
    Shared(Image, usize),
    /// The device's memory, by this queue.
    Own(Mutex<CommandQueue>),
}

impl Tables {
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
        // OpenCL has no empty buffers, and drivers share memory by pages.
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
            // It may hold keys.
            memory.zeroize();
            return Ok(Self { images, offsets, copies, image_offsets });
        }
        let memory = Image::new(memory);
        // SAFETY: the offset lies within the memory.
        let images_base = unsafe { memory.base().add(offsets_bytes) };
        // SAFETY: both ranges lie within the memory, which lives as long as the buffers in `Self`. Nobody writes it but
        // `update`, and that only what no packet refers to.
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
        patience: Duration,
    ) -> Result<(), Error> {
        let mut bytes = Zeroizing::new(vec![0; range.len()]);
        image.copy_to(range.start, &mut bytes);
        self.write(id, self.image_offsets[program] + range.start, bytes, patience)
    }

    /// See [`crate::Device::update_chain`].
    pub(super) fn update_chain(&self, id: &str, chain: &DeviceChain, patience: Duration) -> Result<(), Error> {
        chain.parts().into_iter().try_for_each(|(at, bytes)| self.write(id, at, Zeroizing::new(bytes), patience))
    }

    /// Writes `bytes` at `offset` of the images. Gives up after `patience`.
    fn write(&self, id: &str, offset: usize, bytes: Zeroizing<Vec<u8>>, patience: Duration) -> Result<(), Error> {
        let action = "copy a part of a table image";
        match &self.copies {
            Copies::Shared(memory, images_at) => memory.write(images_at + offset, &bytes),
            Copies::Own(queue) if !bytes.is_empty() => {
                let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                let run = Run { offset, bytes: bytes.len() };
                // SAFETY: nobody writes the bytes, which are dropped only once the copy was seen to end.
                let copied = unsafe { own::copy_in(&queue, &self.images, run, NonNull::from(&bytes[..]).cast()) };
                let said = copied.and_then(|event| queue.flush().and(own::wait_for(&event, patience)));
                match said {
                    Ok(true) => {}
                    Ok(false) => {
                        std::mem::forget(bytes);
                        let reason = format!("it did not answer within {patience:?}");
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

/// A buffer in the device's own memory, with these bytes.
fn own_copy(found: &Found, context: &Context, device: &Device, bytes: &[u8]) -> Result<Buffer<u8>, Error> {
    let id = &found.capabilities.id;
    demand_fits(found, bytes.len(), "the table images")?;
    let buffer = own::buffer(context, bytes.len()).map_err(failed(id, "make a buffer"))?;
    let queue = own::queue(found, context, device)?;
    let run = Run { offset: 0, bytes: bytes.len() };
    // SAFETY: nobody writes the bytes; the copy is waited for, and should that fail the device is not used.
    let copied = unsafe { own::copy_in(&queue, &buffer, run, NonNull::from(bytes).cast()) };
    copied.and_then(|_| queue.finish()).map_err(failed(id, "copy the table images"))?;
    Ok(buffer)
}

/// Whether so much fits into one buffer of the device.
pub(super) fn demand_fits(found: &Found, bytes: usize, what: &'static str) -> Result<(), Error> {
    let (bytes, bytes_max) = (bytes as u64, found.buffer_bytes_max);
    match bytes > bytes_max {
        true => Err(Error::TooLarge { id: found.capabilities.id.clone(), what, bytes, bytes_max }),
        false => Ok(()),
    }
}

/// Drivers share the host's memory by pages.
pub(super) const PAGE_BYTES: usize = 4096;

/// A buffer over memory of the host, which the device reads and writes where it is. `what` is for the error.
///
/// # Safety
/// The memory must stay mapped until the buffer is dropped and all commands that use it have ended, and only those
/// parts of it that no command uses may be reached meanwhile.
pub(super) unsafe fn over(
    found: &Found,
    context: &Context,
    base: NonNull<u8>,
    bytes: usize,
    what: &'static str,
) -> Result<Buffer<u8>, Error> {
    // SAFETY: the caller's promise.
    unsafe { over_with(found, context, CL_MEM_READ_WRITE, base, bytes, what) }
}

/// # Safety
/// As for [`over`].
unsafe fn over_with(
    found: &Found,
    context: &Context,
    access: cl_mem_flags,
    base: NonNull<u8>,
    bytes: usize,
    what: &'static str,
) -> Result<Buffer<u8>, Error> {
    let id = &found.capabilities.id;
    demand_fits(found, bytes, what)?;
    // SAFETY: the caller's promise.
    let buffer = unsafe { Buffer::create(context, access | CL_MEM_USE_HOST_PTR, bytes, base.as_ptr().cast()) };
    buffer.map_err(failed(id, "make a buffer over the host's memory"))
}

/// Runs a packet twice through buffers that are never mapped: a device that keeps copies of its own shows by not
/// bringing back what it wrote, or by not seeing what the host wrote since. Also has the driver finish its compiling.
///
/// With as many groups as any launch has: PoCL keeps what it compiled by the widest launch so far, and where a wider one comes it
/// keeps both and takes one for the other when a launch ends, until an assertion of its own ends the process
/// (`pocl_release_dlhandle_cache`, seen with 5.0).
pub(super) fn demand_host_memory(
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
    // SAFETY: `handle` outlives the buffer (it was made before), and `region` is reached only between launches.
    let arena_buffer = unsafe { over(found, context, handle.base(), handle.bytes(), "an arena of one packet")? };
    let packets = Packets::Shared(arena_buffer);
    let parts = SlotParts { found, context, device, kernels, tables: &tables, packets: &packets, runs_chain: false };
    let mut slot = Slot::new(&parts, kernels.groups_max, 1)?;
    // SAFETY: the device is the context's.
    let queue = unsafe { CommandQueue::create(context, device.id(), 0) }.map_err(failed(id, "make a command queue"))?;
    let mut chunk = Chunk::new(kernels.groups_max, 1);
    let empty = Bin { first: 1, kernel: godwit_kernels::TEMPLATE, ..Bin::default() };
    chunk.bins.resize(kernels.groups_max, empty);
    chunk.bins[0] = Bin { first: 0, count: 1, ..empty };
    let Some(descriptor) = region.allocate(BUFFER_UNIT_BYTES) else { unreachable!("the arena has a buffer") };
    for round in 1..=2_u8 {
        // The function `template` swaps the addresses.
        let frame = region.frame_mut(&descriptor);
        frame[..6].fill(round);
        frame[6..12].fill(0x10 | round);
        chunk.descriptors[0] = descriptor;
        chunk.outcomes[0].verdict = u8::MAX;
        slot.write(&chunk);
        let Launched::Whole(events) = slot.launch(&parts, &queue, &mut region, &chunk)? else {
            unreachable!("nothing is copied, so it is one command")
        };
        let ended = events.launched.wait();
        // Also when waiting failed, the device must have let go of the memory before it is unmapped.
        queue.finish().and(ended).map_err(failed(id, "finish a kernel"))?;
        slot.read(&packets, &mut region, &mut chunk);
        let frame = region.frame(&descriptor);
        let swapped = frame[..6] == [0x10 | round; 6] && frame[6..12] == [round; 6];
        if !swapped || chunk.outcomes[0].verdict != 0 {
            let reason = "it says that it works on the host's memory, but keeps a copy of its own";
            return Err(Error::Unusable { id: id.clone(), reason: reason.to_owned() });
        }
    }
    Ok(())
}

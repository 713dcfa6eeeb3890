//! What one chunk in flight needs: its arrays where the device reaches them, and a kernel that has them as arguments.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use godwit_abi::{Bin, CHAIN_SCRATCH_PACKET_BYTES, Descriptor, MAILBOX_SLOT_PACKETS, Outcome};
use godwit_packet::{Memory, Region};
use godwit_sched::Chunk;
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::Device;
use opencl3::error_codes::ClError;
use opencl3::event::Event;
use opencl3::kernel::Kernel;
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, ClMem};

use super::failed;
use super::own::{self, OwnMemory, OwnSlot};
use super::program::{Kernels, PAGE_BYTES, Tables, over};
use crate::Error;
use crate::Found;
use crate::check::packets_of;
use crate::transfer::Run;

/// What a slot is made with.
#[derive(Clone, Copy)]
pub(super) struct SlotParts<'a> {
    pub(super) found: &'a Found,
    pub(super) context: &'a Arc<Context>,
    pub(super) device: &'a Device,
    pub(super) kernels: &'a Kernels,
    pub(super) tables: &'a Tables,
    pub(super) packets: &'a Packets,
    /// Whether the device follows a chain.
    pub(super) runs_chain: bool,
}

/// What became of a chunk that the driver was given.
pub(super) enum Launched {
    Whole(Events),
    /// The driver took a part of the commands, of which nobody will hear, and then failed.
    Part(ClError),
}

/// What says how far a launch is.
pub(super) struct Events {
    pub(super) launched: Event,
    /// The last copy back from a device with memory of its own.
    pub(super) copied: Option<Event>,
}

/// Where the device finds packets.
pub(super) enum Packets {
    /// Where they are: a buffer over the arena.
    Shared(Buffer<u8>),
    /// In memory of its own.
    Own(OwnMemory),
}

/// Arrays for one chunk, each on pages of its own.
///
/// ```text
/// 0           NEXT_BIN ends
/// | next_bin  | bins ... | parameters ... | descriptors ... | outcomes ... | trails ... | scratch |
/// |<------------- to a device with memory of its own ------>|
///                                         |<----------- and back from there ----------->|
/// ```
/// The last two are a page each where the device follows no chain.
// Fields are dropped in this order: the buffers before the memory that they lie on.
pub(super) struct Slot {
    kernel: Kernel,
    _buffers: [Buffer<u8>; ARRAYS],
    own: Option<OwnSlot>,
    /// On a device with memory of its own: the buffers of the chunk's packets.
    buffers: Vec<u32>,
    memory: Memory,
    /// Where each array lies in the memory.
    places: [Range<usize>; ARRAYS],
    bins_max: usize,
    packets_max: usize,
}

const ARRAYS: usize = 7;
// Numbers of the arrays in a slot.
const NEXT_BIN: usize = 0;
const BINS: usize = 1;
const PARAMETERS: usize = 2;
const DESCRIPTORS: usize = 3;
const OUTCOMES: usize = 4;
const TRAILS: usize = 5;
const DESK: usize = 6;

// Numbers of the arguments of `gw_chunk` (kernels/dialect/loops_opencl.h).
const ARGUMENT_ARENA: u32 = 0;
const ARGUMENT_IMAGES: u32 = 1;
const ARGUMENT_IMAGE_OFFSETS: u32 = 2;
const ARGUMENT_BIN_COUNT: u32 = 7;
const ARGUMENT_DESK_PACKETS: u32 = 11;
/// Of the arrays, in their order here.
const ARGUMENTS: [u32; ARRAYS] = [8, 6, 4, 3, 5, 9, 10];

impl Slot {
    /// For chunks of up to so many bins and places for packets.
    pub(super) fn new(parts: &SlotParts<'_>, bins_max: usize, packets_max: usize) -> Result<Self, Error> {
        let id = &parts.found.capabilities.id;
        let follower_packets = if parts.runs_chain { packets_max } else { 0 };
        let scratch_packets = follower_packets.next_multiple_of(MAILBOX_SLOT_PACKETS);
        let packet_bytes = [size_of::<u64>(), size_of::<Descriptor>(), size_of::<Outcome>()];
        let sizes = [size_of::<u32>(), bins_max * size_of::<Bin>()]
            .into_iter()
            .chain(packet_bytes.map(|bytes| packets_max * bytes))
            .chain([follower_packets * size_of::<u32>(), scratch_packets * CHAIN_SCRATCH_PACKET_BYTES]);
        let mut end = 0;
        let mut places: [Range<usize>; ARRAYS] = Default::default();
        for (place, bytes) in places.iter_mut().zip(sizes) {
            *place = end..end + bytes.max(1).next_multiple_of(PAGE_BYTES);
            end = place.end;
        }
        let what = "a chunk on a device";
        let (memory, own) = match parts.packets {
            Packets::Shared(_) => (Memory::new(end, what)?, None),
            Packets::Own(_) => {
                let own = OwnSlot::new(parts.found, parts.context, parts.device, end)?;
                let memory = own::pinned(parts.found, parts.context, parts.device, end, what)?;
                own.clear(&memory, places[DESK].clone()).map_err(failed(id, "clear a buffer"))?;
                (memory, Some(own))
            }
        };
        let kernel = parts.kernels.entry(id)?;
        let mut buffers = Vec::with_capacity(ARRAYS);
        for (place, argument) in places.iter().zip(ARGUMENTS) {
            let buffer = match &own {
                // SAFETY: the place lies within the memory, which outlives the buffer in `Self`; the lane that owns the
                // slot reaches it only while no launch of this slot is under way.
                None => unsafe {
                    over(parts.found, parts.context, memory.base().add(place.start), place.len(), "the chunk")?
                },
                // SAFETY: the place lies within the buffer.
                Some(own) => unsafe { own.arrays.create_sub_buffer(CL_MEM_READ_WRITE, place.start, place.len()) }
                    .map_err(failed(id, "divide a buffer"))?,
            };
            // SAFETY: the argument is a pointer to global memory.
            unsafe { kernel.set_arg(argument, &buffer.get()) }.map_err(failed(id, "set a kernel's argument"))?;
            buffers.push(buffer);
        }
        // SAFETY: the argument is a `gw_u32`.
        unsafe { kernel.set_arg(ARGUMENT_DESK_PACKETS, &(scratch_packets as u32)) }
            .map_err(failed(id, "set a kernel's argument"))?;
        let packets = match parts.packets {
            Packets::Shared(arena) => arena,
            Packets::Own(own) => &own.shadow,
        };
        let shared = [
            (ARGUMENT_ARENA, packets),
            (ARGUMENT_IMAGES, &parts.tables.images),
            (ARGUMENT_IMAGE_OFFSETS, &parts.tables.offsets),
        ];
        for (argument, buffer) in shared {
            // SAFETY: the argument is a pointer to global memory; the device that owns the buffer outlives the slot.
            unsafe { kernel.set_arg(argument, &buffer.get()) }.map_err(failed(id, "set a kernel's argument"))?;
        }
        let Ok(buffers) = buffers.try_into() else { unreachable!("one buffer was made for each array") };
        Ok(Self { kernel, _buffers: buffers, own, buffers: Vec::new(), memory, places, bins_max, packets_max })
    }

    /// Whether a chunk has room here.
    pub(super) fn holds(&self, chunk: &Chunk) -> bool {
        chunk.bins.len() <= self.bins_max && chunk.descriptors.len() <= self.packets_max
    }

    /// Copies a chunk's bins, and what they name, to where the device reads them. The chunk was checked and has room here.
    pub(super) fn write(&mut self, chunk: &Chunk) {
        self.array(NEXT_BIN)[..size_of::<u32>()].fill(0);
        let bins = bytes_of(&chunk.bins);
        self.array(BINS)[..bins.len()].copy_from_slice(bins);
        for bin in &chunk.bins {
            let packets = packets_of(bin);
            let descriptors = bytes_of(&chunk.descriptors[packets.clone()]);
            let at = packets.start * size_of::<Descriptor>();
            self.array(DESCRIPTORS)[at..at + descriptors.len()].copy_from_slice(descriptors);
            let parameters = bytes_of(&chunk.parameters[packets.clone()]);
            let at = packets.start * size_of::<u64>();
            self.array(PARAMETERS)[at..at + parameters.len()].copy_from_slice(parameters);
        }
    }

    /// Starts the kernel on what was written, with the copies that it takes. An error means that nothing was started.
    pub(super) fn launch(
        &mut self,
        parts: &SlotParts<'_>,
        queue: &CommandQueue,
        region: &mut Region,
        chunk: &Chunk,
    ) -> Result<Launched, Error> {
        let id = &parts.found.capabilities.id;
        let Packets::Own(memory) = parts.packets else {
            let launched = self.set_bins(chunk).and_then(|()| self.enqueue(parts.kernels, queue, chunk));
            return launched
                .map(|launched| Launched::Whole(Events { launched, copied: None }))
                .map_err(failed(id, "launch a kernel"));
        };
        let Some(mut own) = self.own.take() else { unreachable!("the slot is of that device") };
        self.buffers.clear();
        self.buffers.extend(chunk.bins.iter().flat_map(packets_of).map(|at| chunk.descriptors[at].buffer));
        let result = own.prepare(parts, memory, region, chunk, self.array(DESCRIPTORS)).and_then(|packets| {
            self.begin(&own, packets, chunk).map_err(failed(id, "launch a kernel"))?;
            let launched = self.enqueue_rest(parts, &own, memory, chunk);
            Ok(launched.map_or_else(Launched::Part, Launched::Whole))
        });
        self.own = Some(own);
        result
    }

    /// Sets the arguments and enqueues the first copy: all that can fail before the device has anything to do.
    fn begin(&self, own: &OwnSlot, packets: *mut c_void, chunk: &Chunk) -> Result<(), ClError> {
        self.set_bins(chunk)?;
        let inward = Run { offset: 0, bytes: self.places[DESCRIPTORS].end };
        // SAFETY: the argument is a pointer to global memory. The lane has the slot's memory, and reaches it only when all
        // that is enqueued after this has ended.
        unsafe {
            self.kernel.set_arg(ARGUMENT_ARENA, &packets)?;
            own::copy_in(&own.queue, &own.arrays, inward, self.memory.base())?;
        }
        Ok(())
    }

    fn enqueue_rest(
        &self,
        parts: &SlotParts<'_>,
        own: &OwnSlot,
        memory: &OwnMemory,
        chunk: &Chunk,
    ) -> Result<Events, ClError> {
        let offset = self.places[DESCRIPTORS].start;
        let last = if chunk.ran_chain { TRAILS } else { OUTCOMES };
        let outward = Run { offset, bytes: self.places[last].end - offset };
        // SAFETY: the lane has the slot's memory and the chunk's buffers, and reaches neither until all of this has
        // ended.
        unsafe {
            own.copy(memory, true)?;
            let launched = self.enqueue(parts.kernels, &own.queue, chunk)?;
            own.copy(memory, false)?;
            let copied = own::copy_out(&own.queue, &own.arrays, outward, self.memory.base().add(outward.offset))?;
            // A queue may hold commands back until somebody waits. Should this fail, `poll` will hear of it.
            let _ = own.queue.flush();
            Ok(Events { launched, copied: Some(copied) })
        }
    }

    fn set_bins(&self, chunk: &Chunk) -> Result<(), ClError> {
        // SAFETY: the argument is a `gw_u32`.
        unsafe { self.kernel.set_arg(ARGUMENT_BIN_COUNT, &(chunk.bins.len() as u32)) }
    }

    fn enqueue(&self, kernels: &Kernels, queue: &CommandQueue, chunk: &Chunk) -> Result<Event, ClError> {
        let groups = chunk.bins.len().clamp(1, kernels.groups_max);
        let (lanes, all_lanes) = (kernels.group_lanes, groups * kernels.group_lanes);
        // SAFETY: all arguments were set before. The arrays hold a chunk that was checked, so the kernel stays within
        // them, the tables, and the buffers of packets that the lane holds.
        unsafe { queue.enqueue_nd_range_kernel(self.kernel.get(), 1, std::ptr::null(), &all_lanes, &lanes, &[]) }
    }

    /// Copies what the device wrote back into the chunk. The launch has ended.
    pub(super) fn read(&mut self, packets: &Packets, region: &mut Region, chunk: &mut Chunk) {
        for bin in &chunk.bins {
            let packets = packets_of(bin);
            let descriptors = bytes_of_mut(&mut chunk.descriptors[packets.clone()]);
            let at = packets.start * size_of::<Descriptor>();
            descriptors.copy_from_slice(&self.array(DESCRIPTORS)[at..at + descriptors.len()]);
            let outcomes = bytes_of_mut(&mut chunk.outcomes[packets.clone()]);
            let at = packets.start * size_of::<Outcome>();
            outcomes.copy_from_slice(&self.array(OUTCOMES)[at..at + outcomes.len()]);
            if chunk.ran_chain {
                let trails = bytes_of_mut(&mut chunk.trails[packets.clone()]);
                let at = packets.start * size_of::<u32>();
                trails.copy_from_slice(&self.array(TRAILS)[at..at + trails.len()]);
            }
        }
        if let (Packets::Own(memory), Some(own)) = (packets, &self.own) {
            own.unpack(memory, region, chunk, &self.buffers);
        }
    }

    fn array(&mut self, array: usize) -> &mut [u8] {
        &mut self.memory[self.places[array].clone()]
    }
}

/// Data that is the same bytes here and on a device.
///
/// # Safety
/// Any bytes must be a value, and no byte of a value may be padding.
pub(super) unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers in C's layout, whose sizes add up to that of the struct, as `godwit_abi` asserts.
unsafe impl Plain for Bin {}
// SAFETY: as above.
unsafe impl Plain for Descriptor {}
// SAFETY: as above.
unsafe impl Plain for Outcome {}

/// The bytes of values.
pub(super) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` values are initialised bytes all through.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of values, to be written.
pub(super) fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any bytes are a value.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

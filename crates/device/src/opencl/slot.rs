//! What one chunk in flight needs: its arrays where the device reaches them, and a kernel that has them as arguments.

use std::ops::Range;

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_packet::Memory;
use godwit_sched::Chunk;
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::error_codes::ClError;
use opencl3::event::Event;
use opencl3::kernel::Kernel;
use opencl3::memory::{Buffer, ClMem};

use super::failed;
use super::program::{Kernels, PAGE_BYTES, Tables, over};
use crate::Error;
use crate::Found;
use crate::check::packets_of;

/// What a slot is made with.
pub(super) struct SlotParts<'a> {
    pub(super) found: &'a Found,
    pub(super) context: &'a Context,
    pub(super) kernels: &'a Kernels,
    pub(super) tables: &'a Tables,
    pub(super) arena: &'a Buffer<u8>,
}

/// Arrays for one chunk, each on pages of its own.
///
/// ```text
/// 0           NEXT_BIN ends
/// | next_bin  | bins ... | descriptors ... | parameters ... | outcomes ... |
/// ```
// Fields are dropped in this order: the buffers before the memory that they lie on.
pub(super) struct Slot {
    kernel: Kernel,
    _buffers: [Buffer<u8>; ARRAYS],
    memory: Memory,
    /// Where each array lies in the memory.
    places: [Range<usize>; ARRAYS],
    bins_max: usize,
    packets_max: usize,
}

const ARRAYS: usize = 5;
// Numbers of the arrays in a slot.
const NEXT_BIN: usize = 0;
const BINS: usize = 1;
const DESCRIPTORS: usize = 2;
const PARAMETERS: usize = 3;
const OUTCOMES: usize = 4;

// Numbers of the arguments of `gw_chunk` (kernels/dialect/loops_opencl.h).
const ARGUMENT_ARENA: u32 = 0;
const ARGUMENT_IMAGES: u32 = 1;
const ARGUMENT_IMAGE_OFFSETS: u32 = 2;
const ARGUMENT_BIN_COUNT: u32 = 7;
/// Of the arrays, in their order here.
const ARGUMENTS: [u32; ARRAYS] = [8, 6, 3, 4, 5];

impl Slot {
    /// For chunks of up to so many bins and places for packets.
    pub(super) fn new(parts: &SlotParts<'_>, bins_max: usize, packets_max: usize) -> Result<Self, Error> {
        let id = &parts.found.capabilities.id;
        let packet_bytes = [size_of::<Descriptor>(), size_of::<u64>(), size_of::<Outcome>()];
        let sizes = [size_of::<u32>(), bins_max * size_of::<Bin>()]
            .into_iter()
            .chain(packet_bytes.map(|bytes| packets_max * bytes));
        let mut end = 0;
        let mut places: [Range<usize>; ARRAYS] = Default::default();
        for (place, bytes) in places.iter_mut().zip(sizes) {
            *place = end..end + bytes.max(1).next_multiple_of(PAGE_BYTES);
            end = place.end;
        }
        let memory = Memory::new(end, "a chunk on a device")?;
        let kernel = parts.kernels.entry(id)?;
        let mut buffers = Vec::with_capacity(ARRAYS);
        for (place, argument) in places.iter().zip(ARGUMENTS) {
            // SAFETY: the place lies within the memory, which outlives the buffer in `Self`; the lane that owns the slot
            // reaches it only while no launch of this slot is under way.
            let buffer =
                unsafe { over(parts.found, parts.context, memory.base().add(place.start), place.len(), "the chunk")? };
            // SAFETY: the argument is a pointer to global memory.
            unsafe { kernel.set_arg(argument, &buffer.get()) }.map_err(failed(id, "set a kernel's argument"))?;
            buffers.push(buffer);
        }
        let shared = [
            (ARGUMENT_ARENA, parts.arena),
            (ARGUMENT_IMAGES, &parts.tables.images),
            (ARGUMENT_IMAGE_OFFSETS, &parts.tables.offsets),
        ];
        for (argument, buffer) in shared {
            // SAFETY: the argument is a pointer to global memory; the device that owns the buffer outlives the slot.
            unsafe { kernel.set_arg(argument, &buffer.get()) }.map_err(failed(id, "set a kernel's argument"))?;
        }
        let Ok(buffers) = buffers.try_into() else { unreachable!("one buffer was made for each array") };
        Ok(Self { kernel, _buffers: buffers, memory, places, bins_max, packets_max })
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

    /// Starts the kernel on what was written. The event says when it is done.
    pub(super) fn launch(&self, kernels: &Kernels, queue: &CommandQueue, bins: usize) -> Result<Event, ClError> {
        let groups = bins.clamp(1, kernels.groups_max);
        let (lanes, all_lanes) = (kernels.group_lanes, groups * kernels.group_lanes);
        // SAFETY: all other arguments were set in `new`; this one is a `gw_u32`. The arrays hold a chunk that was
        // checked, so the kernel stays within them, the tables, and the windows of packets that the lane holds.
        let event = unsafe {
            self.kernel.set_arg(ARGUMENT_BIN_COUNT, &(bins as u32))?;
            queue.enqueue_nd_range_kernel(self.kernel.get(), 1, std::ptr::null(), &all_lanes, &lanes, &[])?
        };
        Ok(event)
    }

    /// Copies what the device wrote back into the chunk. The launch has ended.
    pub(super) fn read(&mut self, chunk: &mut Chunk) {
        for bin in &chunk.bins {
            let packets = packets_of(bin);
            let descriptors = bytes_of_mut(&mut chunk.descriptors[packets.clone()]);
            let at = packets.start * size_of::<Descriptor>();
            descriptors.copy_from_slice(&self.array(DESCRIPTORS)[at..at + descriptors.len()]);
            let outcomes = bytes_of_mut(&mut chunk.outcomes[packets.clone()]);
            let at = packets.start * size_of::<Outcome>();
            outcomes.copy_from_slice(&self.array(OUTCOMES)[at..at + outcomes.len()]);
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

//! Resources of one chunk in flight: its arrays in memory that the device accesses, and a kernel
//! with these arguments.

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
use super::own::{self, DeviceMemory, DeviceSlot};
use super::program::{Kernels, PAGE_BYTES, Tables, over};
use crate::Error;
use crate::Found;
use crate::check::packets_of;
use crate::transfer::CopyRange;

/// Parts of a device that its slots need.
#[derive(Clone, Copy)]
pub(super) struct SlotParts<'a> {
    pub(super) found: &'a Found,
    pub(super) context: &'a Arc<Context>,
    pub(super) device: &'a Device,
    pub(super) kernels: &'a Kernels,
    pub(super) tables: &'a Tables,
    pub(super) packets: &'a Packets,
    /// Whether the device runs a chain.
    pub(super) runs_chain: bool,
}

/// Result of the launch of a chunk.
pub(super) enum Launched {
    Whole(Events),
    /// The driver accepted some of the commands and then failed. No event reports their end.
    Part(ClError),
}

/// Events that report the progress of a launch.
pub(super) struct Events {
    pub(super) launched: Event,
    /// Event of the last copy back, on a device with its own memory.
    pub(super) copied: Option<Event>,
}

/// Location of packets for the device.
pub(super) enum Packets {
    /// In the arena, with a buffer over it.
    Shared(Buffer<u8>),
    /// In the device's own memory.
    Own(DeviceMemory),
}

/// Arrays for one chunk. Each array starts on a new page.
///
/// ```text
/// 0           NEXT_BIN ends
/// | next_bin  | bins ... | parameters ... | descriptors ... | outcomes ... | trails ... | scratch |
/// |<------- to a device with its own memory --------------->|
///                                         |<------------ back from the device --------->|
/// ```
///
/// If the device runs no chain, the last two arrays have one page each.
// Fields are dropped in this order: the buffers before their memory.
pub(super) struct Slot {
    kernel: Kernel,
    _buffers: [Buffer<u8>; ARRAYS],
    own: Option<DeviceSlot>,
    /// Buffers of the chunk's packets, on a device with its own memory.
    buffers: Vec<u32>,
    memory: Memory,
    /// Ranges of the arrays in the memory.
    ranges: [Range<usize>; ARRAYS],
    bins_max: usize,
    packets_max: usize,
}

const ARRAYS: usize = 7;
// Indices of the arrays in a slot.
const NEXT_BIN: usize = 0;
const BINS: usize = 1;
const PARAMETERS: usize = 2;
const DESCRIPTORS: usize = 3;
const OUTCOMES: usize = 4;
const TRAILS: usize = 5;
const SCRATCH: usize = 6;

// Indices of the arguments of `gw_chunk` (kernels/dialect/loops_opencl.h).
const ARGUMENT_ARENA: u32 = 0;
const ARGUMENT_IMAGES: u32 = 1;
const ARGUMENT_IMAGE_OFFSETS: u32 = 2;
const ARGUMENT_BIN_COUNT: u32 = 7;
const ARGUMENT_SCRATCH_PACKETS: u32 = 11;
/// Arguments of the arrays, in the order of the array indices.
const ARGUMENTS: [u32; ARRAYS] = [8, 6, 4, 3, 5, 9, 10];

impl Slot {
    /// Creates a slot for chunks of up to `bins_max` bins and `packets_max` packets.
    pub(super) fn new(parts: &SlotParts<'_>, bins_max: usize, packets_max: usize) -> Result<Self, Error> {
        let id = &parts.found.capabilities.id;
        let chain_packets = if parts.runs_chain { packets_max } else { 0 };
        let scratch_packets = chain_packets.next_multiple_of(MAILBOX_SLOT_PACKETS);
        let packet_bytes = [size_of::<u64>(), size_of::<Descriptor>(), size_of::<Outcome>()];
        let sizes = [size_of::<u32>(), bins_max * size_of::<Bin>()]
            .into_iter()
            .chain(packet_bytes.map(|bytes| packets_max * bytes))
            .chain([chain_packets * size_of::<u32>(), scratch_packets * CHAIN_SCRATCH_PACKET_BYTES]);
        let mut end = 0;
        let mut ranges: [Range<usize>; ARRAYS] = Default::default();
        for (range, bytes) in ranges.iter_mut().zip(sizes) {
            *range = end..end + bytes.max(1).next_multiple_of(PAGE_BYTES);
            end = range.end;
        }
        let what = "the arrays of a chunk";
        let (memory, own) = match parts.packets {
            Packets::Shared(_) => (Memory::new(end, what)?, None),
            Packets::Own(_) => {
                let own = DeviceSlot::new(parts.found, parts.context, parts.device, end)?;
                let memory = own::pinned(parts.found, parts.context, parts.device, end, what)?;
                own.clear(&memory, ranges[SCRATCH].clone()).map_err(failed(id, "clear a buffer"))?;
                (memory, Some(own))
            }
        };
        let kernel = parts.kernels.entry(id)?;
        let mut buffers = Vec::with_capacity(ARRAYS);
        for (range, argument) in ranges.iter().zip(ARGUMENTS) {
            let buffer = match &own {
                // SAFETY: the range lies within the memory, which outlives the buffer in `Self`.
                // The lane that owns the slot accesses the memory only while no launch of the slot
                // is in flight.
                None => unsafe {
                    over(parts.found, parts.context, memory.base().add(range.start), range.len(), "the chunk")?
                },
                // SAFETY: the range lies within the buffer.
                Some(own) => unsafe { own.arrays.create_sub_buffer(CL_MEM_READ_WRITE, range.start, range.len()) }
                    .map_err(failed(id, "divide a buffer"))?,
            };
            // SAFETY: the argument is a pointer to global memory.
            unsafe { kernel.set_arg(argument, &buffer.get()) }.map_err(failed(id, "set a kernel argument"))?;
            buffers.push(buffer);
        }
        // SAFETY: the argument is a `gw_u32`.
        unsafe { kernel.set_arg(ARGUMENT_SCRATCH_PACKETS, &(scratch_packets as u32)) }
            .map_err(failed(id, "set a kernel argument"))?;
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
            // SAFETY: the argument is a pointer to global memory. The device owns the buffer and
            // outlives the slot.
            unsafe { kernel.set_arg(argument, &buffer.get()) }.map_err(failed(id, "set a kernel argument"))?;
        }
        let Ok(buffers) = buffers.try_into() else { unreachable!("each array has one buffer") };
        Ok(Self { kernel, _buffers: buffers, own, buffers: Vec::new(), memory, ranges, bins_max, packets_max })
    }

    /// Returns whether the slot has room for the chunk.
    pub(super) fn holds(&self, chunk: &Chunk) -> bool {
        chunk.bins.len() <= self.bins_max && chunk.descriptors.len() <= self.packets_max
    }

    /// Copies the bins and packet entries of a chunk to the slot. The chunk was checked and fits
    /// into the slot.
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

    /// Enqueues the kernel and the copies that it needs. An error means that nothing was enqueued.
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
        let Some(mut own) = self.own.take() else { unreachable!("the slot belongs to a device with its own memory") };
        self.buffers.clear();
        let packets = chunk.bins.iter().flat_map(packets_of);
        self.buffers.extend(packets.map(|index| chunk.descriptors[index].buffer));
        let result = own.prepare(parts, memory, region, chunk, self.array(DESCRIPTORS)).and_then(|packets| {
            self.begin(&own, packets, chunk).map_err(failed(id, "launch a kernel"))?;
            let launched = self.enqueue_rest(parts, &own, memory, chunk);
            Ok(launched.map_or_else(Launched::Part, Launched::Whole))
        });
        self.own = Some(own);
        result
    }

    /// Sets the arguments and enqueues the first copy. If this fails, the device has no work of
    /// this chunk.
    fn begin(&self, own: &DeviceSlot, packets: *mut c_void, chunk: &Chunk) -> Result<(), ClError> {
        self.set_bins(chunk)?;
        let to_device = CopyRange { offset: 0, bytes: self.ranges[DESCRIPTORS].end };
        // SAFETY: the argument is a pointer to global memory. The lane owns the slot's memory, and
        // accesses it only after all later commands have ended.
        unsafe {
            self.kernel.set_arg(ARGUMENT_ARENA, &packets)?;
            own::copy_to_device(&own.queue, &own.arrays, to_device, self.memory.base())?;
        }
        Ok(())
    }

    fn enqueue_rest(
        &self,
        parts: &SlotParts<'_>,
        own: &DeviceSlot,
        memory: &DeviceMemory,
        chunk: &Chunk,
    ) -> Result<Events, ClError> {
        let offset = self.ranges[DESCRIPTORS].start;
        let last = if chunk.ran_chain { TRAILS } else { OUTCOMES };
        let to_host = CopyRange { offset, bytes: self.ranges[last].end - offset };
        // SAFETY: the lane owns the slot's memory and the chunk's buffers, and accesses neither
        // until all commands have ended.
        unsafe {
            own.copy(memory, true)?;
            let launched = self.enqueue(parts.kernels, &own.queue, chunk)?;
            own.copy(memory, false)?;
            let copied = own::copy_to_host(&own.queue, &own.arrays, to_host, self.memory.base().add(offset))?;
            // A queue may delay commands until a thread waits for them. If the flush fails, `poll`
            // reports it.
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
        // SAFETY: all arguments are set. The arrays hold a checked chunk, so the kernel stays
        // within them, the tables, and the buffers of packets that the lane holds.
        unsafe { queue.enqueue_nd_range_kernel(self.kernel.get(), 1, std::ptr::null(), &all_lanes, &lanes, &[]) }
    }

    /// Copies the results of a finished launch into the chunk.
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
        &mut self.memory[self.ranges[array].clone()]
    }
}

/// Data with the same byte representation on host and device.
///
/// # Safety
/// Any bytes must form a valid value, and values must have no padding.
pub(super) unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers in C layout without padding, as `godwit_abi` asserts.
unsafe impl Plain for Bin {}
// SAFETY: see above.
unsafe impl Plain for Descriptor {}
// SAFETY: see above.
unsafe impl Plain for Outcome {}

/// Returns the bytes of values.
pub(super) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` values have no uninitialized bytes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Returns the mutable bytes of values.
pub(super) fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: see above. Any bytes form valid values.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

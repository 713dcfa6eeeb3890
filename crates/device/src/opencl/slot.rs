//! Resources of one submission in flight: the arrays of the submission, in memory that the device
//! accesses, and a kernel object with these arrays as arguments.

use std::ops::Range;
use std::sync::Arc;

use godwit_abi::{Bin, CHAIN_SCRATCH_PACKET_BYTES, Descriptor, MAILBOX_SLOT_PACKETS, Outcome};
use godwit_packet::{ArenaHandle, Memory};
use godwit_sched::Chunk;
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::Device;
use opencl3::kernel::Kernel;
use opencl3::memory::Buffer;

use super::driver::{PAGE_BYTES, buffer, copy_to_device, failed, over, parts, pinned, queue, set_buffer, set_word};
use super::program::Kernels;
use super::tables::Tables;
use crate::bytes::put;
use crate::check::packets_of;
use crate::error::Error;
use crate::found::Found;
use crate::program::AccessNeeds;

/// Device resources that all submissions in flight share.
#[derive(Clone, Copy)]
pub(super) struct SlotParts<'a> {
    pub(super) found: &'a Found,
    pub(super) context: &'a Arc<Context>,
    pub(super) device: &'a Device,
    pub(super) kernels: &'a Kernels,
    pub(super) tables: &'a Tables,
    pub(super) packets: &'a Packets,
    /// Number of bytes that each function accesses in a packet.
    pub(super) needs: &'a [AccessNeeds],
    /// Whether the device runs a chain of functions.
    pub(super) runs_chain: bool,
}

/// Memory in which the device accesses the packets.
pub(super) enum Packets {
    /// The device accesses packets in host memory, through an OpenCL buffer over this memory.
    Shared(Buffer<u8>),
    /// The device accesses copies of the packets in device memory.
    Own(Shadow),
}

/// Copy of the packet memory in device memory.
pub(super) struct Shadow {
    pub(super) buffer: Buffer<u8>,
    pub(super) arena: ArenaHandle,
}

/// Arrays for one submission. Each array starts on a new page.
///
/// ```text
/// 0           NEXT_BIN ends
/// | next_bin  | bins ... | parameters ... | descriptors ... | outcomes ... | trails ... | scratch |
/// |<------- to a device with its own memory --------------->|
///                                         |<------------ back from the device --------->|
/// ```
///
/// If the device runs no chain of functions, the last two arrays have one page each.
// The order of the fields matters, because each buffer must be dropped before its memory.
pub(super) struct Slot {
    pub(super) kernel: Kernel,
    _buffers: [Buffer<u8>; ARRAYS],
    pub(super) own: Option<OwnSlot>,
    pub(super) memory: Memory,
    /// The byte range of each array in `memory`.
    pub(super) ranges: [Range<usize>; ARRAYS],
    bins_max: usize,
    packets_max: usize,
}

/// Additional resources of a submission on a device with separate memory.
pub(super) struct OwnSlot {
    pub(super) queue: CommandQueue,
    /// Device memory for all arrays of the submission. Each array is a part of this buffer and is
    /// one kernel argument.
    pub(super) arrays: Buffer<u8>,
    pub(super) staging: Option<Staging>,
    /// Original buffers of the packets in the staging buffer. The list is empty if no packets are
    /// packed.
    pub(super) packed: Vec<u32>,
}

/// Staging buffer with packed copies of the packets of one submission. It exists in host memory and
/// in device memory.
pub(super) struct Staging {
    pub(super) host: Memory,
    pub(super) device: Buffer<u8>,
}

pub(super) const ARRAYS: usize = 7;
// Indices of the arrays.
const NEXT_BIN: usize = 0;
const BINS: usize = 1;
const PARAMETERS: usize = 2;
pub(super) const DESCRIPTORS: usize = 3;
pub(super) const OUTCOMES: usize = 4;
pub(super) const TRAILS: usize = 5;
const SCRATCH: usize = 6;

// Indices of the arguments of the kernel `gw_chunk` (kernels/dialect/loops_opencl.h).
pub(super) const ARGUMENT_ARENA: u32 = 0;
const ARGUMENT_IMAGES: u32 = 1;
const ARGUMENT_IMAGE_OFFSETS: u32 = 2;
pub(super) const ARGUMENT_BIN_COUNT: u32 = 7;
const ARGUMENT_SCRATCH_PACKETS: u32 = 11;
/// Index of the kernel argument for each array.
const ARGUMENTS: [u32; ARRAYS] = [8, 6, 4, 3, 5, 9, 10];

impl Slot {
    /// Creates the resources for submissions of up to `bins_max` batches and `packets_max` packets.
    pub(super) fn new(from: &SlotParts<'_>, bins_max: usize, packets_max: usize) -> Result<Self, Error> {
        let id = &from.found.capabilities.id;
        let chain_packets = if from.runs_chain { packets_max } else { 0 };
        let scratch_packets = chain_packets.next_multiple_of(MAILBOX_SLOT_PACKETS);
        let (ranges, bytes) = layout(bins_max, packets_max, chain_packets, scratch_packets);
        let what = "the arrays of a chunk";
        let (memory, own) = match from.packets {
            Packets::Shared(_) => (Memory::new(bytes, what)?, None),
            Packets::Own(_) => {
                let memory = pinned(from.found, from.context, from.device, bytes, what)?;
                let own = OwnSlot::new(from, bytes)?;
                own.clear(&memory, &ranges[SCRATCH], id)?;
                (memory, Some(own))
            }
        };
        let kernel = from.kernels.entry(id)?;
        let mut buffers = Vec::with_capacity(ARRAYS);
        let set = failed(id, "set a kernel argument");
        for (range, argument) in ranges.iter().zip(ARGUMENTS) {
            let buffer = match &own {
                // SAFETY: the range lies within the memory, which outlives the buffer in `Self`.
                // The lane that owns the slot accesses the memory only while no launch of the slot
                // is in flight.
                None => unsafe {
                    over(from.found, from.context, memory.base().add(range.start), range.len(), "the chunk")?
                },
                Some(own) => parts(&own.arrays, range).map_err(failed(id, "divide a buffer"))?,
            };
            set_buffer(&kernel, argument, &buffer).map_err(&set)?;
            buffers.push(buffer);
        }
        set_word(&kernel, ARGUMENT_SCRATCH_PACKETS, &(scratch_packets as u32)).map_err(&set)?;
        let packets = match from.packets {
            Packets::Shared(arena) => arena,
            Packets::Own(shadow) => &shadow.buffer,
        };
        // The device owns the packet memory and the tables, and lives longer than this kernel
        // object.
        set_buffer(&kernel, ARGUMENT_ARENA, packets).map_err(&set)?;
        set_buffer(&kernel, ARGUMENT_IMAGES, &from.tables.images).map_err(&set)?;
        set_buffer(&kernel, ARGUMENT_IMAGE_OFFSETS, &from.tables.offsets).map_err(&set)?;
        let Ok(buffers) = buffers.try_into() else { unreachable!("each array has one buffer") };
        Ok(Self { kernel, _buffers: buffers, own, memory, ranges, bins_max, packets_max })
    }

    /// Returns whether these resources have room for the submission.
    pub(super) fn holds(&self, chunk: &Chunk) -> bool {
        chunk.bins.len() <= self.bins_max && chunk.descriptors.len() <= self.packets_max
    }

    /// Copies a submission's batches, descriptors and parameters to memory that the device
    /// accesses. The caller has checked that the submission is valid and not too large.
    pub(super) fn write(&mut self, chunk: &Chunk) {
        let [next_bin, bins, parameters, descriptors] =
            [NEXT_BIN, BINS, PARAMETERS, DESCRIPTORS].map(|array| self.ranges[array].start);
        put(&mut self.memory, next_bin, 0, &[0_u32]);
        put(&mut self.memory, bins, 0, &chunk.bins);
        for bin in &chunk.bins {
            let packets = packets_of(bin);
            put(&mut self.memory, descriptors, packets.start, &chunk.descriptors[packets.clone()]);
            put(&mut self.memory, parameters, packets.start, &chunk.parameters[packets]);
        }
    }
}

/// Returns the byte range of each array, and the total size of all arrays.
fn layout(
    bins_max: usize,
    packets_max: usize,
    chain_packets: usize,
    scratch_packets: usize,
) -> ([Range<usize>; ARRAYS], usize) {
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
    (ranges, end)
}

impl OwnSlot {
    fn new(from: &SlotParts<'_>, bytes: usize) -> Result<Self, Error> {
        let id = &from.found.capabilities.id;
        let queue = queue(from.found, from.context, from.device)?;
        let arrays = buffer(from.context, bytes).map_err(failed(id, "create a buffer"))?;
        Ok(Self { queue, arrays, staging: None, packed: Vec::new() })
    }

    /// Fills `part` of the device arrays with zeros from the host memory `zeros`, which is at least
    /// as long as the arrays.
    fn clear(&self, zeros: &Memory, part: &Range<usize>, id: &str) -> Result<(), Error> {
        // SAFETY: the range lies within the memory, and the copy ends before this function returns.
        let copied =
            unsafe { copy_to_device(&self.queue, &self.arrays, part.start, zeros.base().add(part.start), part.len()) };
        copied.and_then(|event| event.wait()).map_err(failed(id, "clear a buffer"))
    }

    /// Returns a staging buffer of at least `bytes` bytes.
    pub(super) fn staging(&mut self, from: &SlotParts<'_>, bytes: usize) -> Result<&mut Staging, Error> {
        if self.staging.as_ref().is_none_or(|staging| staging.host.bytes() < bytes) {
            let bytes = bytes.next_power_of_two().max(PAGE_BYTES);
            let host = pinned(from.found, from.context, from.device, bytes, "the staging buffer of a device")?;
            let device = buffer(from.context, bytes).map_err(failed(&from.found.capabilities.id, "create a buffer"))?;
            self.staging = Some(Staging { host, device });
        }
        let Some(staging) = &mut self.staging else { unreachable!("created above") };
        Ok(staging)
    }
}

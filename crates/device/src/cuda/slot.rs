//! Resources of one chunk in flight: page-locked arrays on the host, a copy of them on the device,
//! and a stream.

use std::ffi::c_void;
use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::result::DriverError;
use cudarc::driver::sys;
use godwit_abi::{Bin, CHAIN_SCRATCH_PACKET_BYTES, Descriptor, MAILBOX_SLOT_PACKETS, Outcome};
use godwit_packet::Plain;
use godwit_sched::Chunk;

use super::driver::{Context, Copies, DeviceMemory, DevicePointer, Direction, Event, PinnedMemory, Stream};
use super::module::Repeated;
use super::program::{DeviceArguments, GROUP_LANES, Kernels};
use super::transfer::{ChunkPlan, ChunkTransfer, Columns};
use super::{CudaDevice, Error};
use crate::BinTime;
use crate::check::packets_of;
use crate::transfer::CopyRange;

/// Alignment of the arrays, in bytes.
const ALIGN_BYTES: usize = 64;

/// Minimum number of packets of a direct chunk, whose own arrays are copied to the device. The host
/// packs the arrays of smaller chunks into the slot, because two copies of them cost less than the
/// additional driver calls.
pub(super) const DIRECT_PACKETS_MIN: usize = 2048;

/// Streams for the copies of all slots of a lane, one per direction. They keep the copies of one
/// direction in the order of the chunks. With copies in the stream of each chunk, the bus was often
/// busy in one direction only.
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

    fn of(&self, direction: Direction) -> &Stream {
        match direction {
            Direction::ToDevice => &self.to_device,
            Direction::ToHost => &self.to_host,
        }
    }
}

/// Arrays of one chunk, with the same layout on host and device. Counters and scratch exist only on
/// the device. `done` and cycles exist only on the host; the device writes them over the bus, four
/// bytes per bin. Trails and scratch are used only if the device runs a chain.
///
/// ```text
/// 0                                              |---------- to the host --------|
/// | counters or done | cycles | bins | parameters | descriptors | outcomes | trails | scratch
///                             |----------- to the device -------|
/// ```
///
/// The arrays of a small chunk are packed: the packets of its bins follow each other without gaps.
/// A direct chunk keeps its own array layout, and the copies use its own arrays. The groups then
/// read its bins over the bus, which saves a driver call. With [`ChunkTransfer::ZeroCopy`], they
/// access all arrays over the bus, nothing is copied, and the last group signals completion.
pub(super) struct Slot {
    /// Stream of the kernel.
    pub(super) stream: Stream,
    /// Event after the copies to the device.
    copied_in: Event,
    /// Event after the kernel.
    kernel_done: Event,
    /// Event after the copies to the host.
    copied_out: Event,
    /// Launch of zero-copy chunks.
    launches: Repeated,
    host: PinnedMemory,
    device: DeviceMemory,
    bins_max: usize,
    packets_max: usize,
    /// Whether the device runs a chain.
    runs_chain: bool,
    /// Offset of the scratch memory, after the arrays of the largest chunk, and the number of
    /// packets that it holds.
    scratch: (usize, usize),
    offsets: ArrayOffsets,
    /// Empty between two calls. Kept to reuse its memory.
    copies: Copies,
    /// Device address of the parameters of a direct chunk. Its descriptors, outcomes and trails
    /// follow.
    direct: Option<DevicePointer>,
    /// Whether the groups signal completion.
    signals_done: bool,
}

/// Number of parameters of `gw_chunk`. None is longer than the first.
const ARGUMENTS: usize = 13;

/// Size of `gw_counters` (kernels/dialect/loops_cuda.h), in bytes.
const COUNTERS_BYTES: usize = 2 * size_of::<u32>();

/// Offsets of the arrays of the current chunk, in bytes.
#[derive(Clone, Copy, Default)]
struct ArrayOffsets {
    bins: usize,
    cycles: usize,
    parameters: usize,
    descriptors: usize,
    outcomes: usize,
    /// Equal to `end` if there are no trails.
    trails: usize,
    end: usize,
    /// Number of packet entries to copy.
    packets: usize,
}

impl ArrayOffsets {
    /// Lays out arrays with `entries` packet entries, of which the first `packets` are copied.
    fn new(bins: usize, entries: usize, packets: usize, runs_chain: bool) -> Self {
        let mut end = ALIGN_BYTES;
        let mut append = |bytes: usize| {
            let start = end;
            end += bytes.next_multiple_of(ALIGN_BYTES);
            start
        };
        let cycles = append(bins * size_of::<u32>());
        let bins_at = append(bins * size_of::<Bin>());
        let parameters = append(entries * size_of::<u64>());
        let descriptors = append(entries * size_of::<Descriptor>());
        let outcomes = append(entries * size_of::<Outcome>());
        let trails = append(if runs_chain { entries * size_of::<u32>() } else { 0 });
        Self { bins: bins_at, cycles, parameters, descriptors, outcomes, trails, end, packets }
    }

    /// Returns offset and length of the parts to copy to the device. The groups read the bins of a
    /// direct chunk from the host.
    fn copies_in(&self, direct: bool) -> [(usize, usize); 3] {
        joined([
            (self.bins, if direct { 0 } else { self.parameters - self.bins }),
            (self.parameters, self.packets * size_of::<u64>()),
            (self.descriptors, self.packets * size_of::<Descriptor>()),
        ])
    }

    /// Returns offset and length of the parts to copy to the host.
    fn copies_out(&self) -> [(usize, usize); 3] {
        let trails = if self.trails < self.end { self.packets * size_of::<u32>() } else { 0 };
        joined([
            (self.descriptors, self.packets * size_of::<Descriptor>()),
            (self.outcomes, self.packets * size_of::<Outcome>()),
            (self.trails, trails),
        ])
    }
}

/// Joins parts (offset and length, in ascending order) with small gaps between them. Joined parts
/// leave an empty part.
fn joined<const PARTS: usize>(mut parts: [(usize, usize); PARTS]) -> [(usize, usize); PARTS] {
    for index in 1..PARTS {
        let (previous, (offset, bytes)) = (parts[index - 1], parts[index]);
        if previous.1 > 0 && bytes > 0 && offset - (previous.0 + previous.1) <= GAP_BYTES_MAX {
            parts[index] = (previous.0, offset + bytes - previous.0);
            parts[index - 1].1 = 0;
        }
    }
    parts
}

/// Maximum gap between two joined parts, in bytes: about the cost of a copy call.
const GAP_BYTES_MAX: usize = 64 << 10;

impl Slot {
    /// Creates a slot for chunks of up to `bins_max` bins and `packets_max` packets.
    pub(super) fn new(device: &CudaDevice, bins_max: usize, packets_max: usize) -> Result<Self, Error> {
        let context = &device.parts.context;
        let bytes = ArrayOffsets::new(bins_max, packets_max, packets_max, device.runs_chain).end;
        let scratch_packets = if device.runs_chain { packets_max.next_multiple_of(MAILBOX_SLOT_PACKETS) } else { 0 };
        let device_bytes = bytes + scratch_packets * CHAIN_SCRATCH_PACKET_BYTES;
        let device_memory = DeviceMemory::new(context, device_bytes, "a chunk")?;
        // Clear the counters, which launches leave at 0, and the scratch memory.
        device_memory.fill(&vec![0; if device.runs_chain { device_bytes } else { COUNTERS_BYTES }])?;
        let mut nothing = [0_u64; size_of::<DeviceArguments>() / size_of::<u64>()];
        let mut arguments: [*mut c_void; ARGUMENTS] = [(&raw mut nothing).cast(); ARGUMENTS];
        Ok(Self {
            stream: Stream::new(context)?,
            copied_in: Event::new(context)?,
            kernel_done: Event::new(context)?,
            copied_out: Event::new(context)?,
            launches: Repeated::new(context, &device.parts.kernels.chunk, GROUP_LANES, &mut arguments)?,
            host: PinnedMemory::new(context, bytes)?,
            device: device_memory,
            bins_max,
            packets_max,
            runs_chain: device.runs_chain,
            scratch: (bytes, scratch_packets),
            offsets: ArrayOffsets::default(),
            copies: Copies::default(),
            direct: None,
            signals_done: false,
        })
    }

    /// Returns whether the slot has room for the chunk.
    pub(super) fn holds(&self, chunk: &Chunk) -> bool {
        chunk.bins.len() <= self.bins_max && chunk.descriptors.len() <= self.packets_max
    }

    /// Returns whether the device should use the chunk's own arrays. They must lie on the same
    /// pages, as [`Chunk::new`] allocates them. The chunk must also be large and have few gaps
    /// between its bins, or use zero-copy.
    pub(super) fn prefers_direct(chunk: &Chunk, plan: &ChunkPlan) -> bool {
        let packets = chunk.packets as usize;
        let own = chunk.parameters.pages();
        let others = [chunk.descriptors.pages(), chunk.outcomes.pages(), chunk.trails.pages()];
        let is_dense = || packets >= DIRECT_PACKETS_MIN && extent(chunk) * 3 <= packets * 4;
        (plan.transfer == ChunkTransfer::ZeroCopy || is_dense())
            && others.iter().all(|other| other.base() == own.base())
    }

    /// Writes the arrays for the device. The chunk was checked and fits into the slot. `direct` is
    /// the device address of the pages of the chunk's arrays, if the device uses them.
    pub(super) fn write(&mut self, chunk: &Chunk, direct: Option<DevicePointer>) {
        self.direct = direct.map(|pages| pages + chunk.parameters.offset() as u64);
        let (entries, packets) = match direct {
            Some(_) => (chunk.descriptors.len(), extent(chunk)),
            None => (chunk.packets as usize, chunk.packets as usize),
        };
        let offsets = ArrayOffsets::new(chunk.bins.len(), entries, packets, self.runs_chain);
        self.offsets = offsets;
        let bytes = self.host.bytes_mut();
        if direct.is_some() {
            put(bytes, offsets.bins, 0, &chunk.bins);
            return;
        }
        let mut first = 0;
        for (index, bin) in chunk.bins.iter().enumerate() {
            let packets = packets_of(bin);
            put(bytes, offsets.bins, index, &[Bin { first: first as u32, ..*bin }]);
            put(bytes, offsets.parameters, first, &chunk.parameters[packets.clone()]);
            put(bytes, offsets.descriptors, first, &chunk.descriptors[packets]);
            first += usize::from(bin.count);
        }
    }

    /// Enqueues copies and launch. After an error, some of them may be in flight.
    pub(super) fn launch(
        &mut self,
        streams: &CopyStreams,
        kernels: &Kernels,
        arguments: &DeviceArguments,
        arena: *mut u8,
        plan: &ChunkPlan,
        chunk: &Chunk,
    ) -> Result<(), DriverError> {
        let offsets = self.offsets;
        self.signals_done = plan.transfer == ChunkTransfer::ZeroCopy;
        if self.signals_done {
            self.done().store(0, Ordering::Relaxed);
            return self.run(kernels, arguments, plan, chunk.bins.len());
        }
        // The arrays of a direct chunk follow each other in the same order as those of the slot.
        let arrays = match self.direct {
            Some(_) => chunk.parameters.pages().base().as_ptr().wrapping_add(chunk.parameters.offset()),
            None => self.host.base().as_ptr().wrapping_add(offsets.parameters),
        };
        let device = self.device.pointer;
        let add = |copies: &mut Copies, direction, (offset, bytes): (usize, usize)| {
            if bytes > 0 {
                let host = arrays.wrapping_add(offset).wrapping_sub(offsets.parameters);
                copies.add(direction, device + offset as u64, host, bytes);
            }
        };
        let mut copies = std::mem::take(&mut self.copies);
        let parts = offsets.copies_in(self.direct.is_some());
        parts.into_iter().for_each(|part| add(&mut copies, Direction::ToDevice, part));
        self.enqueue_copies(copies, streams, Direction::ToDevice, arguments.shadow, arena, &plan.transfer)?;
        self.copied_in.record(&streams.to_device)?;
        self.stream.await_event(&self.copied_in)?;
        self.run(kernels, arguments, plan, chunk.bins.len())?;
        self.kernel_done.record(&self.stream)?;
        streams.to_host.await_event(&self.kernel_done)?;
        let mut copies = std::mem::take(&mut self.copies);
        offsets.copies_out().into_iter().for_each(|part| add(&mut copies, Direction::ToHost, part));
        let transfer = if plan.writes { &plan.transfer } else { &ChunkTransfer::Resident };
        self.enqueue_copies(copies, streams, Direction::ToHost, arguments.shadow, arena, transfer)?;
        self.copied_out.record(&streams.to_host)
    }

    /// Runs the kernel without bins. At the first run, the driver loads the kernel and allocates
    /// its local memory, which takes 50 to 350 ms.
    pub(super) fn warm_up(&mut self, kernels: &Kernels, arguments: &DeviceArguments) -> Result<(), DriverError> {
        self.run(kernels, arguments, &ChunkPlan::RESIDENT, 0)?;
        self.stream.synchronize()
    }

    fn run(
        &mut self,
        kernels: &Kernels,
        arguments: &DeviceArguments,
        plan: &ChunkPlan,
        bins: usize,
    ) -> Result<(), DriverError> {
        let (offsets, device, host) = (self.offsets, self.device.pointer, self.host.pointer);
        let mut by_device = *arguments;
        let is_zero_copy = plan.transfer == ChunkTransfer::ZeroCopy;
        let mut host_arrays = if is_zero_copy { self.direct.unwrap_or(host + offsets.parameters as u64) } else { 0 };
        let [mut parameters, mut descriptors, mut outcomes, mut trails, mut counters] =
            [offsets.parameters, offsets.descriptors, offsets.outcomes, offsets.trails, 0]
                .map(|offset| device + offset as u64);
        let mut bins_at = if self.direct.is_some() || is_zero_copy { host } else { device } + offsets.bins as u64;
        let mut cycles = host + offsets.cycles as u64;
        let mut bin_count = bins as u32;
        let (mut scratch, mut scratch_packets) = (device + self.scratch.0 as u64, self.scratch.1 as u32);
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
        // SAFETY: the values match the parameters of `gw_chunk`. The arrays hold a checked chunk,
        // so the kernel stays within them, the tables, and the buffers of packets that the lane
        // holds.
        unsafe {
            match is_zero_copy {
                true => self.launches.launch(&self.stream, groups, &mut values),
                false => kernels.chunk.launch(&self.stream, groups, GROUP_LANES, &mut values),
            }
        }
    }

    /// Enqueues `copies` and the copies of the buffers in one stream.
    fn enqueue_copies(
        &mut self,
        mut copies: Copies,
        streams: &CopyStreams,
        direction: Direction,
        shadow: DevicePointer,
        arena: *mut u8,
        transfer: &ChunkTransfer,
    ) -> Result<(), DriverError> {
        if let ChunkTransfer::Ranges(ranges) = transfer {
            for range in ranges {
                copies.add(direction, shadow + range.offset as u64, arena.wrapping_add(range.offset), range.bytes);
            }
        }
        let stream = streams.of(direction);
        // SAFETY: both memories are large enough: the arrays of a slot or a chunk, and the arena
        // and its shadow. The host accesses them only after `copied_out` is complete, and they stay
        // allocated until then.
        unsafe { copies.submit(stream) }?;
        self.copies = copies;
        let ChunkTransfer::Rows { ranges, pitch, columns_in, columns_out } = transfer else { return Ok(()) };
        ranges.iter().try_for_each(|range| {
            let columns = match direction {
                Direction::ToDevice => *columns_in,
                Direction::ToHost => *columns_out,
            };
            let rows = rows(direction, shadow, arena, *range, *pitch, columns);
            // SAFETY: see above. The rows are buffers of packets that the lane holds.
            unsafe { sys::cuMemcpy2DAsync_v2(&rows, stream.stream) }.result()
        })
    }

    /// Returns the array bytes of the current chunk that are transferred to the device and back.
    pub(super) fn array_bytes(&self) -> [usize; 2] {
        let sum = |parts: [(usize, usize); 3]| parts.iter().map(|part| part.1).sum();
        // The bins are always transferred, also those that the groups read over the bus.
        let direct = self.direct.is_some();
        let bins = if direct { self.offsets.parameters - self.offsets.bins } else { 0 };
        [bins + sum(self.offsets.copies_in(direct)), sum(self.offsets.copies_out())]
    }

    /// Returns whether the groups have signaled completion. Always `false` if they do not signal
    /// it.
    pub(super) fn is_signaled(&self) -> bool {
        // Acquires the writes of the groups (`gw_signal_done`).
        self.signals_done && self.done().load(Ordering::Acquire) != 0
    }

    /// Returns whether the groups signal completion. The driver must then be queried only for
    /// errors.
    pub(super) fn signals_done(&self) -> bool {
        self.signals_done
    }

    fn done(&self) -> &AtomicU32 {
        // SAFETY: the first word of the host memory, which lives as long as `self`, and which has
        // no other use.
        unsafe { AtomicU32::from_ptr(self.host.base().as_ptr().cast()) }
    }

    /// Queries the driver whether the chunk is finished.
    pub(super) fn is_done(&self) -> Result<bool, DriverError> {
        if self.signals_done { self.stream.is_idle() } else { self.copied_out.is_complete() }
    }

    /// Copies the results of a finished chunk into it, and the times of its bins into `times`.
    pub(super) fn read(&mut self, chunk: &mut Chunk, cycles_per_us: f64, times: &mut Vec<BinTime>) {
        let (offsets, direct) = (self.offsets, self.direct.is_some());
        let bytes = &*self.host.bytes_mut();
        let mut first = 0;
        times.clear();
        for (index, bin) in chunk.bins.iter().enumerate() {
            if !direct {
                let packets = packets_of(bin);
                get(bytes, offsets.descriptors, first, &mut chunk.descriptors[packets.clone()]);
                get(bytes, offsets.outcomes, first, &mut chunk.outcomes[packets.clone()]);
                if self.runs_chain {
                    get(bytes, offsets.trails, first, &mut chunk.trails[packets]);
                }
                first += usize::from(bin.count);
            }
            let mut cycles = [0_u32];
            get(bytes, offsets.cycles, index, &mut cycles);
            let elapsed_ns = (f64::from(cycles[0]) * 1000.0 / cycles_per_us) as u64;
            times.push(BinTime { bin: index as u32, elapsed_ns });
        }
    }
}

/// Returns the number of entries of the chunk's arrays, up to the last entry that a bin uses.
fn extent(chunk: &Chunk) -> usize {
    chunk.bins.iter().map(|bin| bin.first as usize + usize::from(bin.count)).max().unwrap_or(0)
}

fn rows(
    direction: Direction,
    shadow: DevicePointer,
    arena: *mut u8,
    range: CopyRange,
    pitch: usize,
    columns: Columns,
) -> sys::CUDA_MEMCPY2D {
    let start = range.offset + columns.first;
    let (device, host) = (shadow + start as u64, arena.wrapping_add(start));
    let to_device = direction == Direction::ToDevice;
    let (host_type, device_type) = (sys::CUmemorytype::CU_MEMORYTYPE_HOST, sys::CUmemorytype::CU_MEMORYTYPE_DEVICE);
    let (from, to) = if to_device { (host_type, device_type) } else { (device_type, host_type) };
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: from,
        srcHost: if to_device { host.cast_const().cast() } else { std::ptr::null() },
        srcDevice: if to_device { 0 } else { device },
        srcArray: std::ptr::null_mut(),
        srcPitch: pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: to,
        dstHost: if to_device { std::ptr::null_mut() } else { host.cast() },
        dstDevice: if to_device { device } else { 0 },
        dstArray: std::ptr::null_mut(),
        dstPitch: pitch,
        WidthInBytes: columns.bytes(),
        Height: range.bytes / pitch,
    }
}

/// Writes `values` to the array at `offset`, starting with element `index`.
pub(super) fn put<T: Plain>(bytes: &mut [u8], offset: usize, index: usize, values: &[T]) {
    let start = offset + index * size_of::<T>();
    let target = &mut bytes[start..start + size_of_val(values)];
    // SAFETY: `Plain` values have no uninitialized bytes, and the target has the same length.
    unsafe { target.as_mut_ptr().copy_from_nonoverlapping(values.as_ptr().cast(), target.len()) };
}

/// Reads `values` from the array at `offset`, starting with element `index`.
pub(super) fn get<T: Plain>(bytes: &[u8], offset: usize, index: usize, values: &mut [T]) {
    let start = offset + index * size_of::<T>();
    let source = &bytes[start..start + size_of_val(values)];
    // SAFETY: any bytes form a valid `Plain` value, and the source has the same length.
    unsafe { values.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(source.as_ptr(), source.len()) };
}

//! What one chunk in flight needs: its arrays, page-locked here and a copy on the device, and a stream for its kernel.

use std::ffi::c_void;
use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::result::DriverError;
use cudarc::driver::sys;
use godwit_abi::{Bin, CHAIN_SCRATCH_PACKET_BYTES, Descriptor, MAILBOX_SLOT_PACKETS, Outcome};
use godwit_packet::Plain;
use godwit_sched::Chunk;

use super::carriage::{Carriage, Columns, Plan, Run};
use super::driver::{Context, Copies, DeviceMemory, DevicePointer, Direction, Event, PinnedMemory, Stream};
use super::module::Repeated;
use super::program::{DeviceArguments, GROUP_LANES, Kernels};
use super::{CudaDevice, Error};
use crate::BinTime;
use crate::check::packets_of;

/// Arrays begin at multiples of this.
const ALIGN_BYTES: usize = 64;

/// Chunks of at least so many packets are not copied by the host: their arrays go to the device from where they are. A
/// few copy calls more cost as much as copying so many packets' numbers twice.
pub(super) const DIRECT_PACKETS_MIN: usize = 2048;

/// Where all slots of a lane have their copies: a stream each way, so that copies one way come one after the other, in the order of
/// the chunks. Each in its chunk's stream, they were seen to come in bunches, and the bus to carry something one way only meanwhile.
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

/// Arrays for one chunk, the same in both memories, but for some: counters and the scratch are only the device's; `done` and
/// cycles only the host's, where the device writes them over the bus, four bytes a bin. Trails and scratch are there where the
/// device follows a chain.
///
/// ```text
/// 0                                              |------------- back -----------|
/// | counters or done | cycles | bins | parameters | descriptors | outcomes | trails | scratch
///                             |----------- to the device -------|
/// ```
///
/// Packets of a small chunk lie bin after bin without gaps in the slot's arrays. Those of a large one lie as in the chunk,
/// whose own arrays the copies begin and end in; the groups read its bins over the bus then, which costs no call of the
/// driver. Where they reach for the buffers ([`Carriage::Reached`]), they do for all arrays, nothing is copied, and the
/// groups say when all is back.
pub(super) struct Slot {
    /// The kernel's.
    pub(super) stream: Stream,
    /// Where there are copies: all is on the device.
    brought: Event,
    /// And the kernel has ended.
    ran: Event,
    /// And all is back.
    copied: Event,
    /// Where there are no copies.
    launches: Repeated,
    host: PinnedMemory,
    device: DeviceMemory,
    bins_max: usize,
    packets_max: usize,
    /// Whether the device follows a chain.
    runs_chain: bool,
    /// Where the scratch begins, behind the arrays of the largest chunk, and for how many packets it is.
    scratch: (usize, usize),
    at: Places,
    /// Empty between two calls, kept for its memory.
    copies: Copies,
    /// Where the device reaches the chunk's own arrays, if these are used, but for the bins.
    direct: Option<DevicePointer>,
    /// Whether the groups say when all is back.
    tells: bool,
}

/// Parameters of `gw_chunk`, none longer than the first.
const ARGUMENTS: usize = 13;

/// Of `gw_counters` (kernels/dialect/loops_cuda.h).
const COUNTERS_BYTES: usize = 2 * size_of::<u32>();

/// Where the arrays of the present chunk begin.
#[derive(Clone, Copy, Default)]
struct Places {
    bins: usize,
    cycles: usize,
    parameters: usize,
    descriptors: usize,
    outcomes: usize,
    /// Where there are none: as `end`.
    trails: usize,
    end: usize,
    /// Places for packets that the copies carry.
    packets: usize,
}

impl Places {
    /// For arrays of so many places, of which the first `packets` are used.
    fn new(bins: usize, places: usize, packets: usize, runs_chain: bool) -> Self {
        let mut end = ALIGN_BYTES;
        let mut place = |bytes: usize| {
            let start = end;
            end += bytes.next_multiple_of(ALIGN_BYTES);
            start
        };
        let cycles = place(bins * size_of::<u32>());
        let bins_at = place(bins * size_of::<Bin>());
        let parameters = place(places * size_of::<u64>());
        let descriptors = place(places * size_of::<Descriptor>());
        let outcomes = place(places * size_of::<Outcome>());
        let trails = place(if runs_chain { places * size_of::<u32>() } else { 0 });
        Self { bins: bins_at, cycles, parameters, descriptors, outcomes, trails, end, packets }
    }

    /// What goes to the device. `direct`: the groups read the bins where they are.
    fn inward(&self, direct: bool) -> [(usize, usize); 3] {
        joined([
            (self.bins, if direct { 0 } else { self.parameters - self.bins }),
            (self.parameters, self.packets * size_of::<u64>()),
            (self.descriptors, self.packets * size_of::<Descriptor>()),
        ])
    }

    /// What comes back.
    fn outward(&self) -> [(usize, usize); 3] {
        let trails = if self.trails < self.end { self.packets * size_of::<u32>() } else { 0 };
        joined([
            (self.descriptors, self.packets * size_of::<Descriptor>()),
            (self.outcomes, self.packets * size_of::<Outcome>()),
            (self.trails, trails),
        ])
    }
}

/// Parts of a slot, place and bytes, in order: those that have little between them in one go, and so some without bytes.
fn joined<const PARTS: usize>(mut parts: [(usize, usize); PARTS]) -> [(usize, usize); PARTS] {
    for index in 1..PARTS {
        let (before, (place, bytes)) = (parts[index - 1], parts[index]);
        if before.1 > 0 && bytes > 0 && place - (before.0 + before.1) <= GAP_BYTES_MAX {
            parts[index] = (before.0, place + bytes - before.0);
            parts[index - 1].1 = 0;
        }
    }
    parts
}

/// A copy call costs as much as copying so many bytes.
const GAP_BYTES_MAX: usize = 64 << 10;

impl Slot {
    /// For chunks of up to so many bins and packets.
    pub(super) fn new(device: &CudaDevice, bins_max: usize, packets_max: usize) -> Result<Self, Error> {
        let context = &device.parts.context;
        let bytes = Places::new(bins_max, packets_max, packets_max, device.runs_chain).end;
        let scratch_packets = if device.runs_chain { packets_max.next_multiple_of(MAILBOX_SLOT_PACKETS) } else { 0 };
        let device_bytes = bytes + scratch_packets * CHAIN_SCRATCH_PACKET_BYTES;
        let device_memory = DeviceMemory::new(context, device_bytes, "a chunk")?;
        // The counters, which launches leave at 0, and the scratch.
        device_memory.fill(&vec![0; if device.runs_chain { device_bytes } else { COUNTERS_BYTES }])?;
        let mut nothing = [0_u64; size_of::<DeviceArguments>() / size_of::<u64>()];
        let mut arguments: [*mut c_void; ARGUMENTS] = [(&raw mut nothing).cast(); ARGUMENTS];
        Ok(Self {
            stream: Stream::new(context)?,
            brought: Event::new(context)?,
            ran: Event::new(context)?,
            copied: Event::new(context)?,
            launches: Repeated::new(context, &device.parts.kernels.chunk, GROUP_LANES, &mut arguments)?,
            host: PinnedMemory::new(context, bytes)?,
            device: device_memory,
            bins_max,
            packets_max,
            runs_chain: device.runs_chain,
            scratch: (bytes, scratch_packets),
            at: Places::default(),
            copies: Copies::default(),
            direct: None,
            tells: false,
        })
    }

    /// Whether a chunk has room here.
    pub(super) fn holds(&self, chunk: &Chunk) -> bool {
        chunk.bins.len() <= self.bins_max && chunk.descriptors.len() <= self.packets_max
    }

    /// Whether a chunk's own arrays should be used, which lie on the same pages as [`Chunk::new`] puts them: it is large
    /// enough, and its packets are close enough together, or nothing is copied anyway.
    pub(super) fn wants_direct(chunk: &Chunk, plan: &Plan) -> bool {
        let packets = chunk.packets as usize;
        let own = chunk.parameters.pages();
        let others = [chunk.descriptors.pages(), chunk.outcomes.pages(), chunk.trails.pages()];
        let is_dense = || packets >= DIRECT_PACKETS_MIN && extent(chunk) * 3 <= packets * 4;
        (plan.carriage == Carriage::Reached || is_dense()) && others.iter().all(|other| other.base() == own.base())
    }

    /// Writes down what the device is to do. The chunk was checked and has room here. `direct`: where the device reaches
    /// the pages of its arrays, if these are page-locked.
    pub(super) fn write(&mut self, chunk: &Chunk, direct: Option<DevicePointer>) {
        self.direct = direct.map(|pages| pages + chunk.parameters.offset() as u64);
        let (places, packets) = match direct {
            Some(_) => (chunk.descriptors.len(), extent(chunk)),
            None => (chunk.packets as usize, chunk.packets as usize),
        };
        let at = Places::new(chunk.bins.len(), places, packets, self.runs_chain);
        self.at = at;
        let bytes = self.host.bytes_mut();
        if direct.is_some() {
            put(bytes, at.bins, 0, &chunk.bins);
            return;
        }
        let mut first = 0;
        for (index, bin) in chunk.bins.iter().enumerate() {
            let packets = packets_of(bin);
            put(bytes, at.bins, index, &[Bin { first: first as u32, ..*bin }]);
            put(bytes, at.parameters, first, &chunk.parameters[packets.clone()]);
            put(bytes, at.descriptors, first, &chunk.descriptors[packets]);
            first += usize::from(bin.count);
        }
    }

    /// Puts copies and launch into the streams. After an error some of them may be under way.
    pub(super) fn launch(
        &mut self,
        streams: &CopyStreams,
        kernels: &Kernels,
        arguments: &DeviceArguments,
        arena: *mut u8,
        plan: &Plan,
        chunk: &Chunk,
    ) -> Result<(), DriverError> {
        let at = self.at;
        self.tells = plan.carriage == Carriage::Reached;
        if self.tells {
            self.done().store(0, Ordering::Relaxed);
            return self.run(kernels, arguments, plan, chunk.bins.len());
        }
        // The chunk's arrays follow each other as the slot's do.
        let arrays = match self.direct {
            Some(_) => chunk.parameters.pages().base().as_ptr().wrapping_add(chunk.parameters.offset()),
            None => self.host.base().as_ptr().wrapping_add(at.parameters),
        };
        let device = self.device.pointer;
        let add = |copies: &mut Copies, direction, (place, bytes): (usize, usize)| {
            if bytes > 0 {
                let host = arrays.wrapping_add(place).wrapping_sub(at.parameters);
                copies.add(direction, device + place as u64, host, bytes);
            }
        };
        let mut copies = std::mem::take(&mut self.copies);
        at.inward(self.direct.is_some()).into_iter().for_each(|part| add(&mut copies, Direction::ToDevice, part));
        self.carry(copies, streams, Direction::ToDevice, arguments.shadow, arena, &plan.carriage)?;
        self.brought.record(&streams.to_device)?;
        self.stream.await_event(&self.brought)?;
        self.run(kernels, arguments, plan, chunk.bins.len())?;
        self.ran.record(&self.stream)?;
        streams.to_host.await_event(&self.ran)?;
        let mut copies = std::mem::take(&mut self.copies);
        at.outward().into_iter().for_each(|part| add(&mut copies, Direction::ToHost, part));
        let carriage = if plan.writes { &plan.carriage } else { &Carriage::None };
        self.carry(copies, streams, Direction::ToHost, arguments.shadow, arena, carriage)?;
        self.copied.record(&streams.to_host)
    }

    /// Runs the kernel for no bins: the driver loads it, and gives it memory for what registers do not hold, when it runs for
    /// the first time, which takes 50 to 350 ms.
    pub(super) fn warm_up(&mut self, kernels: &Kernels, arguments: &DeviceArguments) -> Result<(), DriverError> {
        self.run(kernels, arguments, &Plan::RESIDENT, 0)?;
        self.stream.synchronize()
    }

    fn run(
        &mut self,
        kernels: &Kernels,
        arguments: &DeviceArguments,
        plan: &Plan,
        bins: usize,
    ) -> Result<(), DriverError> {
        let (at, device, host) = (self.at, self.device.pointer, self.host.pointer);
        let mut by_device = *arguments;
        let is_reached = plan.carriage == Carriage::Reached;
        let mut host_arrays = if is_reached { self.direct.unwrap_or(host + at.parameters as u64) } else { 0 };
        let [mut parameters, mut descriptors, mut outcomes, mut trails, mut counters] =
            [at.parameters, at.descriptors, at.outcomes, at.trails, 0].map(|place| device + place as u64);
        let mut bins_at = if self.direct.is_some() || is_reached { host } else { device } + at.bins as u64;
        let mut cycles = host + at.cycles as u64;
        let mut bin_count = bins as u32;
        let (mut scratch, mut scratch_packets) = (device + self.scratch.0 as u64, self.scratch.1 as u32);
        let mut host_done = if is_reached { host } else { 0 };
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
        // SAFETY: these are the parameters of `gw_chunk`. The arrays hold a chunk that was checked, so the kernel stays
        // within them, the tables, and the buffers of packets that the lane holds.
        unsafe {
            match is_reached {
                true => self.launches.launch(&self.stream, groups, &mut values),
                false => kernels.chunk.launch(&self.stream, groups, GROUP_LANES, &mut values),
            }
        }
    }

    /// Puts these copies and those of buffers into their stream.
    fn carry(
        &mut self,
        mut copies: Copies,
        streams: &CopyStreams,
        direction: Direction,
        shadow: DevicePointer,
        arena: *mut u8,
        carriage: &Carriage,
    ) -> Result<(), DriverError> {
        if let Carriage::Runs(runs) = carriage {
            for run in runs {
                copies.add(direction, shadow + run.offset as u64, arena.wrapping_add(run.offset), run.bytes);
            }
        }
        let stream = streams.of(direction);
        // SAFETY: both memories have so many bytes there: a slot's own, the arena and its shadow, or the chunk's arrays.
        // The host touches them only when `copied` is reached, and they stay until then.
        unsafe { copies.submit(stream) }?;
        self.copies = copies;
        let Carriage::Rows { runs, pitch, columns_in, columns_out } = carriage else { return Ok(()) };
        runs.iter().try_for_each(|run| {
            let columns = match direction {
                Direction::ToDevice => *columns_in,
                Direction::ToHost => *columns_out,
            };
            let rows = rows(direction, shadow, arena, *run, *pitch, columns);
            // SAFETY: as above: the rows are buffers of packets that the lane holds.
            unsafe { sys::cuMemcpy2DAsync_v2(&rows, stream.stream) }.result()
        })
    }

    /// Bytes of the present chunk's arrays that travel to the device and back.
    pub(super) fn array_bytes(&self) -> [usize; 2] {
        let sum = |parts: [(usize, usize); 3]| parts.iter().map(|part| part.1).sum();
        // The bins do in any case.
        let direct = self.direct.is_some();
        let bins = if direct { self.at.parameters - self.at.bins } else { 0 };
        [bins + sum(self.at.inward(direct)), sum(self.at.outward())]
    }

    /// Whether all is back, by what the groups say. `false`: it is not, or they do not say it.
    pub(super) fn is_told(&self) -> bool {
        // Acquires what the groups wrote (`gw_tell_done`).
        self.tells && self.done().load(Ordering::Acquire) != 0
    }

    /// Whether the groups say when all is back, so that the driver need be asked only for what has gone wrong.
    pub(super) fn tells(&self) -> bool {
        self.tells
    }

    fn done(&self) -> &AtomicU32 {
        // SAFETY: the first word of the host's memory, which lives as long as `self`; nobody reaches it otherwise.
        unsafe { AtomicU32::from_ptr(self.host.base().as_ptr().cast()) }
    }

    /// Whether all is back, by what the driver says.
    pub(super) fn is_done(&self) -> Result<bool, DriverError> {
        if self.tells { self.stream.is_idle() } else { self.copied.is_reached() }
    }

    /// Copies what the device wrote back into the chunk, and how long its bins took. Everything is back.
    pub(super) fn read(&mut self, chunk: &mut Chunk, cycles_per_us: f64, times: &mut Vec<BinTime>) {
        let (at, direct) = (self.at, self.direct.is_some());
        let bytes = &*self.host.bytes_mut();
        let mut first = 0;
        times.clear();
        for (index, bin) in chunk.bins.iter().enumerate() {
            if !direct {
                let packets = packets_of(bin);
                get(bytes, at.descriptors, first, &mut chunk.descriptors[packets.clone()]);
                get(bytes, at.outcomes, first, &mut chunk.outcomes[packets.clone()]);
                if self.runs_chain {
                    get(bytes, at.trails, first, &mut chunk.trails[packets]);
                }
                first += usize::from(bin.count);
            }
            let mut cycles = [0_u32];
            get(bytes, at.cycles, index, &mut cycles);
            let elapsed_ns = (f64::from(cycles[0]) * 1000.0 / cycles_per_us) as u64;
            times.push(BinTime { bin: index as u32, elapsed_ns });
        }
    }
}

/// Places of the chunk's arrays up to the last that a bin names.
fn extent(chunk: &Chunk) -> usize {
    chunk.bins.iter().map(|bin| bin.first as usize + usize::from(bin.count)).max().unwrap_or(0)
}

fn rows(
    direction: Direction,
    shadow: DevicePointer,
    arena: *mut u8,
    run: Run,
    pitch: usize,
    columns: Columns,
) -> sys::CUDA_MEMCPY2D {
    let start = run.offset + columns.first;
    let (device, host) = (shadow + start as u64, arena.wrapping_add(start));
    let to_device = direction == Direction::ToDevice;
    let (here, there) = (sys::CUmemorytype::CU_MEMORYTYPE_HOST, sys::CUmemorytype::CU_MEMORYTYPE_DEVICE);
    let (from, to) = if to_device { (here, there) } else { (there, here) };
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
        Height: run.bytes / pitch,
    }
}

/// Writes values into an array that begins at `at`, from element `index` on.
pub(super) fn put<T: Plain>(bytes: &mut [u8], at: usize, index: usize, values: &[T]) {
    let start = at + index * size_of::<T>();
    let target = &mut bytes[start..start + size_of_val(values)];
    // SAFETY: `Plain` values are initialised bytes all through, and the target is as long.
    unsafe { target.as_mut_ptr().copy_from_nonoverlapping(values.as_ptr().cast(), target.len()) };
}

/// Reads values back.
pub(super) fn get<T: Plain>(bytes: &[u8], at: usize, index: usize, values: &mut [T]) {
    let start = at + index * size_of::<T>();
    let source = &bytes[start..start + size_of_val(values)];
    // SAFETY: any bytes are a `Plain` value, and the source is as long.
    unsafe { values.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(source.as_ptr(), source.len()) };
}

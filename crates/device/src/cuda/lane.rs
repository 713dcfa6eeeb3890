//! One worker's connection to a CUDA device in launch mode: one slot per chunk in flight, and one
//! copy stream per direction.

use std::collections::{HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use godwit_abi::Bin;
use godwit_packet::Region;
use godwit_sched::Chunk;

use super::CudaDevice;
use super::driver::{DevicePointer, PageLock, Stream, text};
use super::slot::{CopyStreams, DIRECT_PACKETS_MIN, Slot};
use super::transfer::{ChunkPlan, ChunkTransfer, plan};
use crate::check::{check_bins, outside, packets_of};
use crate::{BinTime, Error, Lane, Rejected, Transfer};

/// Divisor of the waiting time of a chunk. The driver is queried again after this fraction of the
/// time has passed.
const QUERY_DIVISOR: u32 = 16;
/// Maximum time between two queries of the driver.
const QUERY_INTERVAL_MAX: Duration = Duration::from_micros(100);
/// Minimum waiting time before a query, for chunks whose groups signal completion. These queries
/// only detect errors.
const QUERY_INTERVAL_SIGNALED: Duration = Duration::from_millis(1);

/// Number of returned slots that stay unused for a while. Their streams may still be ending a
/// launch that has already signaled completion, and a new launch would wait for it.
const SPARE_SLOTS: usize = 4;

/// Maximum number of chunks whose arrays a lane page-locks. With the smallest direct chunks, this
/// is half a million packets.
const LOCKED_CHUNKS_MAX: usize = 256;

/// Lane in launch mode. It returns chunks in the order of submission. The number of chunks in
/// flight is not limited; slots are created when they are first needed.
pub(super) struct LaunchLane {
    /// Free slots, longest idle first.
    slots: VecDeque<Slot>,
    /// Chunks in flight, oldest first.
    in_flight: ManuallyDrop<VecDeque<Flight>>,
    copy_streams: ManuallyDrop<CopyStreams>,
    times: Vec<BinTime>,
    moved_bytes: [u64; 2],
    /// Page locks of chunk arrays, by address. `None` means that the arrays cannot be page-locked.
    locked: ManuallyDrop<HashMap<usize, Option<PageLock>>>,
    /// Time when the last chunk was returned.
    last_result: Instant,
    /// Time of the next query. The driver has one lock for all threads, so frequent queries would
    /// delay launches.
    query_at: Instant,
    reported_lost: bool,
    device: ManuallyDrop<Arc<CudaDevice>>,
}

/// A chunk on the device.
struct Flight {
    chunk: Chunk,
    slot: Slot,
    submitted: Instant,
    /// Whether the driver accepted all commands. If not, events and stream still refer to the
    /// previous chunk of the slot.
    launched: bool,
}

impl LaunchLane {
    pub(super) fn new(device: Arc<CudaDevice>) -> Result<Self, Error> {
        device.bind()?;
        Ok(Self {
            slots: VecDeque::new(),
            in_flight: ManuallyDrop::new(VecDeque::new()),
            copy_streams: ManuallyDrop::new(CopyStreams::new(&device.parts.context)?),
            times: Vec::new(),
            moved_bytes: [0, 0],
            locked: ManuallyDrop::new(HashMap::new()),
            last_result: Instant::now(),
            query_at: Instant::now(),
            reported_lost: false,
            device: ManuallyDrop::new(device),
        })
    }

    /// Returns a slot with room for the chunk.
    fn slot(&mut self, chunk: &Chunk, plan: &ChunkPlan) -> Result<Slot, Error> {
        let slot = match plan.transfer {
            ChunkTransfer::ZeroCopy if self.slots.len() <= SPARE_SLOTS => None,
            ChunkTransfer::ZeroCopy => self.slots.pop_front(),
            _ => self.slots.pop_back(),
        };
        // A slot that is too small is dropped. This is rare, because all chunks of a packer have
        // the same size.
        if let Some(slot) = slot.filter(|slot| slot.holds(chunk)) {
            return Ok(slot);
        }
        Slot::new(&self.device, chunk.bins.len().max(chunk.bins.capacity()), chunk.descriptors.len())
    }

    /// Checks and plans a chunk. Reports every error of a chunk before anything changes.
    fn prepare(&mut self, region: &mut Region, chunk: &Chunk) -> Result<(Slot, ChunkPlan), Error> {
        self.device.check_bins(region, chunk)?;
        let plan = match self.device.resident {
            true => {
                self.device.check_packets(region, chunk)?;
                ChunkPlan::RESIDENT
            }
            false => {
                let CudaDevice { needs, transfer, parts, .. } = &**self.device;
                plan(chunk, needs, region, parts.arena.slot_pitch_bytes(), *transfer)?
            }
        };
        self.device.bind()?;
        Ok((self.slot(chunk, &plan)?, plan))
    }

    fn launch(&mut self, region: &mut Region, mut chunk: Chunk, mut slot: Slot, plan: &ChunkPlan) {
        chunk.ran_chain = self.device.runs_chain;
        let direct = if Slot::prefers_direct(&chunk, plan) { self.lock(&chunk) } else { None };
        slot.write(&chunk, direct);
        for ((moved, buffer_bytes), array_bytes) in self.moved_bytes.iter_mut().zip(plan.bytes).zip(slot.array_bytes())
        {
            *moved += (buffer_bytes + array_bytes) as u64;
        }
        let parts = &self.device.parts;
        let launched =
            slot.launch(&self.copy_streams, &parts.kernels, &parts.arguments(), region.arena_base(), plan, &chunk);
        self.in_flight.push_back(Flight { chunk, slot, submitted: Instant::now(), launched: launched.is_ok() });
        // Some copies may be in flight, so the chunk is not rejected: `poll` returns it with the
        // error.
        if let Err(error) = launched {
            self.device.watch.lose(format!("its driver failed to take a chunk: {}", text(error)));
        }
    }

    /// Page-locks the arrays of the chunk, unless they are locked, and returns the device address
    /// of their pages. Returns `None` if the pages cannot be locked; the arrays must then be
    /// copied.
    fn lock(&mut self, chunk: &Chunk) -> Option<DevicePointer> {
        let pages = chunk.descriptors.pages();
        let address = pages.base().as_ptr().addr();
        if let Some(lock) = self.locked.get(&address) {
            return lock.as_ref().map(PageLock::pointer);
        }
        // A packer reuses the same few chunks. The arrays of additional chunks are copied.
        if self.locked.len() >= LOCKED_CHUNKS_MAX {
            return None;
        }
        let lock = PageLock::new(&self.device.parts.context, pages).ok();
        let pointer = lock.as_ref().map(PageLock::pointer);
        self.locked.insert(address, lock);
        pointer
    }

    /// Returns the error for a lost device. Leaks everything that the device may still access.
    fn lose(&mut self) -> Error {
        self.reported_lost = true;
        let chunks = self.in_flight.drain(..).map(|Flight { mut chunk, slot, .. }| {
            std::mem::forget(slot);
            // The device may still write to the old arrays, so their content is copied to new ones.
            let mut safe = Chunk::new(chunk.bins.capacity(), chunk.descriptors.len());
            safe.descriptors.copy_from_slice(&chunk.descriptors.volatile_copy());
            safe.parameters.copy_from_slice(&chunk.parameters);
            (chunk.descriptors, chunk.parameters) = (safe.descriptors, safe.parameters);
            (chunk.outcomes, chunk.trails, chunk.ran_chain) = (safe.outcomes, safe.trails, false);
            chunk
        });
        self.device.watch.lost_with(chunks.collect())
    }
}

impl Lane for LaunchLane {
    fn reserve(&mut self, chunk: &Chunk) -> Result<(), Error> {
        self.device.bind()?;
        let may_zero_copy = self.device.transfer != Transfer::Copy;
        let spare = if may_zero_copy && self.slots.is_empty() { SPARE_SLOTS } else { 0 };
        for _ in 0..=spare {
            self.slots.push_back(Slot::new(&self.device, chunk.bins.capacity(), chunk.descriptors.len())?);
        }
        if may_zero_copy || chunk.descriptors.len() >= DIRECT_PACKETS_MIN {
            // If locking fails, the arrays are copied.
            self.lock(chunk);
        }
        Ok(())
    }

    fn submit(&mut self, region: &mut Region, chunk: Chunk) -> Result<(), Box<Rejected>> {
        match self.prepare(region, &chunk) {
            Ok((slot, plan)) => self.launch(region, chunk, slot, &plan),
            Err(error) => return Err(Box::new(Rejected { chunk, error })),
        }
        Ok(())
    }

    fn poll(&mut self, _region: &mut Region) -> Result<Option<Chunk>, Error> {
        let Some(oldest) = self.in_flight.front() else {
            // Each lane reports a lost device once.
            return if self.device.watch.lost().is_some() && !self.reported_lost { Err(self.lose()) } else { Ok(None) };
        };
        if !oldest.launched {
            return Err(self.lose());
        }
        let is_signaled = oldest.slot.is_signaled();
        let now = Instant::now();
        let since = oldest.submitted.max(self.last_result);
        let query_at = match oldest.slot.signals_done() {
            true => self.query_at.max(since + QUERY_INTERVAL_SIGNALED),
            false => self.query_at,
        };
        if !is_signaled && now < query_at {
            return Ok(None);
        }
        // A finished chunk is returned even if the device was lost in the meantime.
        let query =
            || self.device.bind().and_then(|()| oldest.slot.is_done().map_err(|error| self.device.failed(error)));
        match if is_signaled { Ok(true) } else { query() } {
            Ok(true) => {}
            Ok(false) => {
                self.query_at = now + (now.saturating_duration_since(since) / QUERY_DIVISOR).min(QUERY_INTERVAL_MAX);
                if self.device.watch.is_overdue(since) {
                    self.device.watch.lose_silent();
                }
                return if self.device.watch.lost().is_some() { Err(self.lose()) } else { Ok(None) };
            }
            Err(error) => {
                self.device.watch.lose(error.to_string());
                return Err(self.lose());
            }
        }
        self.last_result = Instant::now();
        self.device.watch.record_progress();
        // Always present: `oldest` is the first entry.
        let Some(Flight { mut chunk, mut slot, .. }) = self.in_flight.pop_front() else { return Ok(None) };
        slot.read(&mut chunk, self.device.parts.kernels.cycles_per_us, &mut self.times);
        self.slots.push_back(slot);
        Ok(Some(chunk))
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Times measured by the clock of the device.
    fn bin_times(&self) -> &[BinTime] {
        &self.times
    }

    fn moved_bytes(&self) -> [u64; 2] {
        self.moved_bytes
    }

    fn copy_region(&mut self, region: &mut Region, to_device: bool) -> Result<(), Error> {
        if !self.device.resident {
            return Ok(());
        }
        self.device.bind()?;
        let (start, bytes) = region.extent();
        let host = region.arena_base().wrapping_add(start);
        let shadow = self.device.parts.shadow.pointer + start as u64;
        // SAFETY: the region lies within the arena, the shadow has the same length, and nothing is
        // in flight.
        let copied = unsafe {
            match to_device {
                true => sys::cuMemcpyHtoD_v2(shadow, host.cast(), bytes),
                false => sys::cuMemcpyDtoH_v2(host.cast(), shadow, bytes),
            }
        };
        copied.result().map_err(|error| self.device.failed(error))
    }
}

impl CudaDevice {
    /// Checks the device and the bins of a chunk, but not its packets.
    fn check_bins(&self, region: &mut Region, chunk: &Chunk) -> Result<(), Error> {
        self.watch.check_alive()?;
        if region.arena_base() != self.parts.arena.base().as_ptr() {
            return Err(Error::Chunk { reason: "its packets are not in the arena of the device".to_owned() });
        }
        check_bins(chunk, |instance| self.programs.get(usize::from(instance)).map(|program| program.kernel()))?;
        let packets: usize = chunk.bins.iter().map(|bin| usize::from(bin.count)).sum();
        if packets != chunk.packets as usize {
            let reason = format!("its bins have {packets} packets, but its packet count is {}", chunk.packets);
            return Err(Error::Chunk { reason });
        }
        Ok(())
    }
}

impl CudaDevice {
    /// Checks the device and a chunk.
    pub(super) fn check(&self, region: &mut Region, chunk: &Chunk) -> Result<(), Error> {
        self.check_bins(region, chunk)?;
        self.check_packets(region, chunk)
    }

    fn check_packets(&self, region: &Region, chunk: &Chunk) -> Result<(), Error> {
        let inside = |bin: &&Bin| chunk.descriptors[packets_of(bin)].iter().all(|packet| region.contains(packet));
        chunk.bins.iter().find(|bin| !inside(bin)).map_or(Ok(()), |bin| Err(outside(bin)))
    }
}

impl Drop for LaunchLane {
    fn drop(&mut self) {
        // Wait for chunks in flight. A lost device may continue to write, so its resources are
        // leaked.
        let waiting = Instant::now();
        let idle = |stream: &Stream| loop {
            match stream.is_idle() {
                Ok(true) => return true,
                Ok(false) if !self.device.watch.is_overdue(waiting) => std::thread::yield_now(),
                _ => return false,
            }
        };
        let is_bound = self.device.watch.lost().is_none() && self.device.bind().is_ok();
        let kernels = self.in_flight.iter().map(|flight| &flight.slot.stream);
        if is_bound && self.copy_streams.both().into_iter().chain(kernels).all(idle) {
            // SAFETY: none of the four fields is used after this.
            unsafe {
                ManuallyDrop::drop(&mut self.in_flight);
                ManuallyDrop::drop(&mut self.copy_streams);
                ManuallyDrop::drop(&mut self.locked);
                ManuallyDrop::drop(&mut self.device);
            }
        } else {
            // The slots of a lost device are leaked too, because freeing them could block forever.
            self.slots.drain(..).for_each(std::mem::forget);
        }
    }
}

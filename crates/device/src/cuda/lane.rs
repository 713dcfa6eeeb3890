//! One worker's way to a CUDA device in launch mode: a slot for each chunk in flight, and a stream for copies each way.

use std::collections::{HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use godwit_abi::Bin;
use godwit_packet::Region;
use godwit_sched::Chunk;

use super::CudaDevice;
use super::carriage::{Carriage, Plan, plan};
use super::driver::{DevicePointer, PageLock, Stream, text};
use super::slot::{CopyStreams, DIRECT_PACKETS_MIN, Slot};
use crate::check::{check_bins, outside, packets_of};
use crate::{BinTime, Error, Lane, Rejected, Transfer};

/// A chunk that has been awaited for some time is asked for again when so much of that time has gone by again.
const ASK_SHARE: u32 = 16;
/// But at the latest then.
const ASK_INTERVAL_MAX: Duration = Duration::from_micros(100);
/// Where the device says by itself that a chunk is done, the driver is asked for errors only.
const ASK_INTERVAL_TOLD: Duration = Duration::from_millis(1);

/// Slots that are left alone for a while when they come back: their streams may still be ending a launch that has said it was
/// done, and the next would wait behind it.
const SPARE_SLOTS: usize = 4;

/// Most chunks whose arrays a lane page-locks: those of half a million packets, if they are just large enough for it.
const LOCKED_CHUNKS_MAX: usize = 256;

/// See the module. Chunks come back in the order in which they were submitted. As many can be in flight as the caller has;
/// slots are made when they are first needed.
pub(super) struct LaunchLane {
    /// The one that has been idle for longest first.
    slots: VecDeque<Slot>,
    /// Oldest first.
    in_flight: ManuallyDrop<VecDeque<Flight>>,
    copy_streams: ManuallyDrop<CopyStreams>,
    times: Vec<BinTime>,
    moved_bytes: [u64; 2],
    /// Arrays of chunks, by address; `None`: they cannot be page-locked.
    locked: ManuallyDrop<HashMap<usize, Option<PageLock>>>,
    /// When a chunk came back last.
    heard: Instant,
    /// The driver is not asked before: it has one lock for all threads, and those who wait would hold up those who work.
    ask_at: Instant,
    said_lost: bool,
    device: ManuallyDrop<Arc<CudaDevice>>,
}

/// A chunk on the device.
struct Flight {
    chunk: Chunk,
    slot: Slot,
    submitted: Instant,
    /// Whether the driver took all of it; else its event, or its stream, would tell of the chunk that had the slot before.
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
            heard: Instant::now(),
            ask_at: Instant::now(),
            said_lost: false,
            device: ManuallyDrop::new(device),
        })
    }

    /// A slot with room for the chunk.
    fn slot(&mut self, chunk: &Chunk, plan: &Plan) -> Result<Slot, Error> {
        let slot = match plan.carriage {
            Carriage::Reached if self.slots.len() <= SPARE_SLOTS => None,
            Carriage::Reached => self.slots.pop_front(),
            _ => self.slots.pop_back(),
        };
        // One that is too small is given up: chunks of a packer all have the same size.
        if let Some(slot) = slot.filter(|slot| slot.holds(chunk)) {
            return Ok(slot);
        }
        Slot::new(&self.device, chunk.bins.len().max(chunk.bins.capacity()), chunk.descriptors.len())
    }

    /// All that can be wrong is found here, before anything is touched.
    fn prepare(&mut self, region: &mut Region, chunk: &Chunk) -> Result<(Slot, Plan), Error> {
        self.device.check_bins(region, chunk)?;
        let plan = match self.device.resident {
            true => {
                self.device.check_packets(region, chunk)?;
                Plan::RESIDENT
            }
            false => {
                let CudaDevice { needs, transfer, parts, .. } = &**self.device;
                plan(chunk, needs, region, parts.arena.slot_pitch_bytes(), *transfer)?
            }
        };
        self.device.bind()?;
        Ok((self.slot(chunk, &plan)?, plan))
    }

    fn launch(&mut self, region: &mut Region, mut chunk: Chunk, mut slot: Slot, plan: &Plan) {
        chunk.ran_chain = self.device.runs_chain;
        let direct = if Slot::wants_direct(&chunk, plan) { self.lock(&chunk) } else { None };
        slot.write(&chunk, direct);
        for ((moved, buffer_bytes), array_bytes) in self.moved_bytes.iter_mut().zip(plan.bytes).zip(slot.array_bytes())
        {
            *moved += (buffer_bytes + array_bytes) as u64;
        }
        let parts = &self.device.parts;
        let launched =
            slot.launch(&self.copy_streams, &parts.kernels, &parts.arguments(), region.arena_base(), plan, &chunk);
        self.in_flight.push_back(Flight { chunk, slot, submitted: Instant::now(), launched: launched.is_ok() });
        // Some of the copies may be under way: `poll` will hand everything back.
        if let Err(error) = launched {
            self.device.watch.lose(format!("its driver failed to take a chunk: {}", text(error)));
        }
    }

    /// Page-locks the chunk's arrays, unless they are; where the device reaches their pages then. `None`: it does not, and
    /// the chunk has to be copied.
    fn lock(&mut self, chunk: &Chunk) -> Option<DevicePointer> {
        let pages = chunk.descriptors.pages();
        let address = pages.base().as_ptr().addr();
        if let Some(lock) = self.locked.get(&address) {
            return lock.as_ref().map(PageLock::pointer);
        }
        // Packers use the same few chunks again and again; whoever does not is served by copying.
        if self.locked.len() >= LOCKED_CHUNKS_MAX {
            return None;
        }
        let lock = PageLock::new(&self.device.parts.context, pages).ok();
        let pointer = lock.as_ref().map(PageLock::pointer);
        self.locked.insert(address, lock);
        pointer
    }

    /// The device is gone: nothing that it may still reach is ever given back.
    fn lose(&mut self) -> Error {
        self.said_lost = true;
        let chunks = self.in_flight.drain(..).map(|Flight { mut chunk, slot, .. }| {
            std::mem::forget(slot);
            // The old ones may be written yet, with what they hold, but for heads and lengths.
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
        let reaches = self.device.transfer != Transfer::Copy;
        let spare = if reaches && self.slots.is_empty() { SPARE_SLOTS } else { 0 };
        for _ in 0..=spare {
            self.slots.push_back(Slot::new(&self.device, chunk.bins.capacity(), chunk.descriptors.len())?);
        }
        if reaches || chunk.descriptors.len() >= DIRECT_PACKETS_MIN {
            // Not locked: it will be copied.
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
            // Each lane says once that the device is lost.
            return if self.device.watch.lost().is_some() && !self.said_lost { Err(self.lose()) } else { Ok(None) };
        };
        if !oldest.launched {
            return Err(self.lose());
        }
        let is_told = oldest.slot.is_told();
        let now = Instant::now();
        let since = oldest.submitted.max(self.heard);
        let ask_at = if oldest.slot.tells() { self.ask_at.max(since + ASK_INTERVAL_TOLD) } else { self.ask_at };
        if !is_told && now < ask_at {
            return Ok(None);
        }
        // What is done is done, also when the device has been lost since.
        let ask = || self.device.bind().and_then(|()| oldest.slot.is_done().map_err(|error| self.device.failed(error)));
        match if is_told { Ok(true) } else { ask() } {
            Ok(true) => {}
            Ok(false) => {
                self.ask_at = now + (now.saturating_duration_since(since) / ASK_SHARE).min(ASK_INTERVAL_MAX);
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
        self.heard = Instant::now();
        self.device.watch.heard();
        // `oldest` is the first, so there is one.
        let Some(Flight { mut chunk, mut slot, .. }) = self.in_flight.pop_front() else { return Ok(None) };
        slot.read(&mut chunk, self.device.parts.kernels.cycles_per_us, &mut self.times);
        self.slots.push_back(slot);
        Ok(Some(chunk))
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// By the device's own clock.
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
        // SAFETY: the region is within the arena, and the shadow is as long; nothing is in flight.
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
    /// What is wrong with the device, or with a chunk, but for its packets.
    fn check_bins(&self, region: &mut Region, chunk: &Chunk) -> Result<(), Error> {
        self.watch.demand_alive()?;
        if region.arena_base() != self.parts.arena.base().as_ptr() {
            return Err(Error::Chunk { reason: "its packets lie in another arena than the device's".to_owned() });
        }
        check_bins(chunk, |instance| self.programs.get(usize::from(instance)).map(|program| program.kernel()))?;
        let packets: usize = chunk.bins.iter().map(|bin| usize::from(bin.count)).sum();
        if packets != chunk.packets as usize {
            let reason = format!("its bins have {packets} packets, and it says {}", chunk.packets);
            return Err(Error::Chunk { reason });
        }
        Ok(())
    }
}

impl CudaDevice {
    /// What is wrong with a chunk, or with the device.
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
        // Waits for what is in flight, unless the device is gone: then it may go on writing, and nothing is given back.
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
            // SAFETY: none of the four is used after this.
            unsafe {
                ManuallyDrop::drop(&mut self.in_flight);
                ManuallyDrop::drop(&mut self.copy_streams);
                ManuallyDrop::drop(&mut self.locked);
                ManuallyDrop::drop(&mut self.device);
            }
        } else {
            // Memory of a lost device is not freed either: the driver could wait for ever.
            self.slots.drain(..).for_each(std::mem::forget);
        }
    }
}

//! Connection of one worker to a CUDA device in launch mode.
//!
//! A submission passes through these files in order:
//!
//! ```text
//! submit   opened.rs (checks, plan) -> locks.rs -> slot.rs (arrays) -> launch.rs (copies, kernel)
//! poll     completion.rs (signal or events) -> results.rs (arrays, times)
//! ```

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Instant;

use godwit_packet::Region;
use godwit_sched::Chunk;

use super::completion::{Progress, Queries};
use super::driver::{Stream, text};
use super::launch::{CopyStreams, launch};
use super::locks::PageLocks;
use super::opened::Opened;
use super::results::read;
use super::slot::Slot;
use crate::device::{BinTime, Lane, Rejected};
use crate::error::Error;
use crate::options::Transfer;
use crate::transfer::{ChunkPlan, ChunkTransfer};

/// Number of free streams that are kept back from reuse. A launch in a recently used stream could
/// wait for the previous launch to end.
const SPARE_SLOTS: usize = 4;

/// Connection of one worker to the device in launch mode. It returns submissions in the order in
/// which they were submitted. The number of submissions in flight is not limited.
pub(super) struct LaunchLane {
    /// Free resources of submissions, longest unused first.
    slots: VecDeque<Slot>,
    /// Submissions in flight, oldest first.
    in_flight: ManuallyDrop<VecDeque<Flight>>,
    copy_streams: ManuallyDrop<CopyStreams>,
    times: Vec<BinTime>,
    moved_bytes: [u64; 2],
    locks: ManuallyDrop<PageLocks>,
    queries: Queries,
    reported_lost: bool,
    device: ManuallyDrop<Arc<Opened>>,
}

/// A submission on the device.
struct Flight {
    chunk: Chunk,
    slot: Slot,
    submitted: Instant,
    /// Whether the driver accepted all commands of the submission. Otherwise, the events still
    /// describe an earlier submission.
    launched: bool,
}

impl LaunchLane {
    pub(super) fn new(device: Arc<Opened>) -> Result<Self, Error> {
        device.bind()?;
        Ok(Self {
            slots: VecDeque::new(),
            in_flight: ManuallyDrop::new(VecDeque::new()),
            copy_streams: ManuallyDrop::new(CopyStreams::new(&device.parts.context)?),
            times: Vec::new(),
            moved_bytes: [0, 0],
            locks: ManuallyDrop::new(PageLocks::new(&device.parts.context)),
            queries: Queries::new(),
            reported_lost: false,
            device: ManuallyDrop::new(device),
        })
    }

    /// Returns resources that have room for the submission.
    fn slot(&mut self, chunk: &Chunk, plan: &ChunkPlan) -> Result<Slot, Error> {
        let slot = match plan.transfer {
            ChunkTransfer::ZeroCopy if self.slots.len() <= SPARE_SLOTS => None,
            ChunkTransfer::ZeroCopy => self.slots.pop_front(),
            _ => self.slots.pop_back(),
        };
        match slot.filter(|slot| slot.holds(chunk)) {
            Some(slot) => Ok(slot),
            None => self.device.slot(chunk.bins.len().max(chunk.bins.capacity()), chunk.descriptors.len()),
        }
    }

    /// Checks a submission and plans its transfer. All errors are reported before any state
    /// changes.
    fn prepare(&mut self, region: &mut Region, chunk: &Chunk) -> Result<(Slot, ChunkPlan), Error> {
        let plan = self.device.plan(region, chunk)?;
        self.device.bind()?;
        Ok((self.slot(chunk, &plan)?, plan))
    }

    fn launch(&mut self, region: &mut Region, mut chunk: Chunk, mut slot: Slot, plan: &ChunkPlan) {
        chunk.ran_chain = self.device.runs_chain;
        let direct = if plan.uses_own_arrays { self.locks.lock(&chunk) } else { None };
        let array_bytes = slot.write(&chunk, direct, self.device.planner.costs.array_gap_bytes_max);
        for ((moved, buffer_bytes), array_bytes) in self.moved_bytes.iter_mut().zip(plan.bytes).zip(array_bytes) {
            *moved += (buffer_bytes + array_bytes) as u64;
        }
        let (parts, arena) = (&self.device.parts, region.arena_base());
        let launched = launch(&mut slot, &self.copy_streams, &parts.kernels, &parts.arguments(), arena, plan, &chunk);
        self.in_flight.push_back(Flight { chunk, slot, submitted: Instant::now(), launched: launched.is_ok() });
        // Some copies may already be in flight. The submission is therefore not rejected, and
        // `poll` returns it with the error.
        if let Err(error) = launched {
            self.device.watch.lose(format!("its driver failed to take a chunk: {}", text(error)));
        }
    }

    /// Returns the error for a lost device, with all submissions in flight. Memory that the device
    /// may still access is never freed.
    fn lose(&mut self) -> Error {
        self.reported_lost = true;
        let chunks = self.in_flight.drain(..).map(|Flight { mut chunk, slot, .. }| {
            std::mem::forget(slot);
            // The device may still write to the arrays of a submission, so the error returns copies
            // of these arrays.
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
        let may_zero_copy = self.device.planner.transfer != Transfer::Copy;
        let spare = if may_zero_copy && self.slots.is_empty() { SPARE_SLOTS } else { 0 };
        for _ in 0..=spare {
            self.slots.push_back(self.device.slot(chunk.bins.capacity(), chunk.descriptors.len())?);
        }
        if may_zero_copy || chunk.descriptors.len() >= self.device.planner.costs.direct_packets_min {
            // If locking fails, the arrays are copied.
            self.locks.lock(chunk);
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
            // Each connection reports a lost device once.
            return if self.device.watch.lost().is_some() && !self.reported_lost { Err(self.lose()) } else { Ok(None) };
        };
        if !oldest.launched {
            return Err(self.lose());
        }
        match self.queries.progress(&oldest.slot, oldest.submitted, || self.device.parts.context.bind()) {
            Progress::Unknown => return Ok(None),
            Progress::Running(since) => {
                if self.device.watch.is_overdue(since) {
                    self.device.watch.lose_silent();
                }
                return if self.device.watch.lost().is_some() { Err(self.lose()) } else { Ok(None) };
            }
            Progress::Failed(error) => {
                self.device.watch.lose(self.device.failed(error).to_string());
                return Err(self.lose());
            }
            // A finished submission is returned to the caller even if the device was lost in the
            // meantime.
            Progress::Finished => self.device.watch.record_progress(),
        };
        // The list is not empty, because `oldest` is its first entry.
        let Some(Flight { mut chunk, mut slot, .. }) = self.in_flight.pop_front() else { return Ok(None) };
        read(&mut slot, &mut chunk, self.device.parts.kernels.cycles_per_us, &mut self.times);
        self.slots.push_back(slot);
        Ok(Some(chunk))
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns times that the clock of the device measured.
    fn bin_times(&self) -> &[BinTime] {
        &self.times
    }

    fn moved_bytes(&self) -> [u64; 2] {
        self.moved_bytes
    }
}

impl Drop for LaunchLane {
    fn drop(&mut self) {
        // Dropping the connection waits for its submissions in flight. A lost device may continue
        // to write, so its resources are never freed.
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
                ManuallyDrop::drop(&mut self.locks);
                ManuallyDrop::drop(&mut self.device);
            }
        } else {
            // The resources of a lost device are never freed, because the driver could block
            // forever while it frees them.
            self.slots.drain(..).for_each(std::mem::forget);
        }
    }
}

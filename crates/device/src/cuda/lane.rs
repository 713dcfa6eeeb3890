//! One worker's way to a CUDA device in launch mode: a slot with a stream for each chunk in flight.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::sys;
use godwit_packet::Region;
use godwit_sched::Chunk;

use super::CudaDevice;
use super::carriage::{Plan, plan};
use super::driver::text;
use super::slot::Slot;
use crate::check::check;
use crate::{BinTime, Error, Lane, Rejected};

/// See the module. Chunks come back in the order in which they were submitted. As many can be in flight as the caller has;
/// slots are made when they are first needed.
pub(super) struct LaunchLane {
    slots: Vec<Slot>,
    /// Oldest first.
    in_flight: ManuallyDrop<VecDeque<Flight>>,
    times: Vec<BinTime>,
    moved_bytes: [u64; 2],
    device: ManuallyDrop<Arc<CudaDevice>>,
}

/// A chunk on the device.
struct Flight {
    chunk: Chunk,
    slot: Slot,
    submitted: Instant,
}

impl LaunchLane {
    pub(super) fn new(device: Arc<CudaDevice>) -> Self {
        Self {
            slots: Vec::new(),
            in_flight: ManuallyDrop::new(VecDeque::new()),
            times: Vec::new(),
            moved_bytes: [0, 0],
            device: ManuallyDrop::new(device),
        }
    }

    /// A slot with room for the chunk.
    fn slot(&mut self, chunk: &Chunk) -> Result<Slot, Error> {
        // One that is too small is given up: chunks of a packer all have the same size.
        if let Some(slot) = self.slots.pop().filter(|slot| slot.holds(chunk)) {
            return Ok(slot);
        }
        Slot::new(&self.device, chunk.bins.len().max(chunk.bins.capacity()), chunk.descriptors.len())
    }

    /// The device is gone: nothing that it may still reach is ever given back.
    fn lose(&mut self) -> Error {
        let chunks = self.in_flight.drain(..).map(|Flight { chunk, slot, .. }| {
            std::mem::forget(slot);
            chunk
        });
        self.device.watch.lost_with(chunks.collect())
    }
}

impl Lane for LaunchLane {
    fn submit(&mut self, region: &mut Region, chunk: Chunk) -> Result<(), Box<Rejected>> {
        let refuse = |chunk, error| Err(Box::new(Rejected { chunk, error }));
        if let Err(error) = self.device.check(region, &chunk) {
            return refuse(chunk, error);
        }
        let slot = self.device.bind().and_then(|()| self.slot(&chunk));
        let mut slot = match slot {
            Ok(slot) => slot,
            Err(error) => return refuse(chunk, error),
        };
        let (start, bytes) = region.extent();
        let plan = match self.device.resident {
            true => Plan::RESIDENT,
            false => plan(&chunk, &self.device.programs, start + bytes / 2, self.device.parts.arena.slot_pitch_bytes()),
        };
        slot.write(&chunk);
        for ((moved, window_bytes), array_bytes) in self.moved_bytes.iter_mut().zip(plan.bytes).zip(slot.array_bytes())
        {
            *moved += (window_bytes + array_bytes) as u64;
        }
        let launched = slot.launch(
            &self.device.parts.kernels,
            &self.device.parts.arguments(),
            region.arena_base(),
            &plan,
            chunk.bins.len(),
        );
        self.in_flight.push_back(Flight { chunk, slot, submitted: Instant::now() });
        // Some of the copies may be under way: `poll` will hand everything back.
        if let Err(error) = launched {
            self.device.watch.lose(format!("its driver failed to take a chunk: {}", text(error)));
        }
        Ok(())
    }

    fn poll(&mut self, _region: &mut Region) -> Result<Option<Chunk>, Error> {
        let Some(oldest) = self.in_flight.front() else { return Ok(None) };
        if self.device.watch.lost().is_some() {
            return Err(self.lose());
        }
        match self.device.bind().and_then(|()| oldest.slot.is_done().map_err(|error| self.device.failed(error))) {
            Ok(true) => {}
            Ok(false) if !self.device.watch.is_overdue(oldest.submitted) => return Ok(None),
            Ok(false) => {
                self.device.watch.lose_silent();
                return Err(self.lose());
            }
            Err(error) => {
                self.device.watch.lose(error.to_string());
                return Err(self.lose());
            }
        }
        // `oldest` is the first, so there is one.
        let Some(Flight { mut chunk, mut slot, .. }) = self.in_flight.pop_front() else { return Ok(None) };
        slot.read(&mut chunk, self.device.parts.kernels.cycles_per_us, &mut self.times);
        self.slots.push(slot);
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
    /// What is wrong with a chunk, or with the device.
    pub(super) fn check(&self, region: &mut Region, chunk: &Chunk) -> Result<(), Error> {
        self.watch.demand_alive()?;
        if region.arena_base() != self.parts.arena.base().as_ptr() {
            return Err(Error::Chunk { reason: "its packets lie in another arena than the device's".to_owned() });
        }
        check(region, chunk, |instance| self.programs.get(usize::from(instance)).map(|program| program.kernel()))
    }
}

impl Drop for LaunchLane {
    fn drop(&mut self) {
        // Waits for what is in flight, unless the device is gone: then it may go on writing, and nothing is given back.
        let waiting = Instant::now();
        let idle = |flight: &Flight| loop {
            match flight.slot.stream.is_idle() {
                Ok(true) => return true,
                Ok(false) if !self.device.watch.is_overdue(waiting) => std::thread::yield_now(),
                _ => return false,
            }
        };
        if self.device.watch.lost().is_none() && self.device.bind().is_ok() && self.in_flight.iter().all(idle) {
            // SAFETY: neither is used after this.
            unsafe {
                ManuallyDrop::drop(&mut self.in_flight);
                ManuallyDrop::drop(&mut self.device);
            }
        } else {
            // Memory of a lost device is not freed either: the driver could wait for ever.
            self.slots.drain(..).for_each(std::mem::forget);
        }
    }
}

//! Connection of one worker to an OpenCL device in launch mode.
//!
//! A submission passes through these files in order:
//!
//! ```text
//! submit   opened.rs (checks, transfer plan) -> slot.rs (arrays) -> launch.rs (copies, kernel)
//! poll     completion.rs (events) -> results.rs (arrays, times)
//! ```

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_packet::Region;
use godwit_sched::Chunk;
use opencl3::command_queue::CommandQueue;
use opencl3::error_codes::ClError;

use super::completion::{Progress, progress};
use super::driver::queue;
use super::launch::{Events, Launched, launch};
use super::opened::Opened;
use super::results::{bin_times, read};
use super::slot::Slot;
use crate::device::{BinTime, Lane, Rejected};
use crate::error::Error;

/// Time between two polls while a dropped connection waits for its last submissions.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Connection of one worker to the device in launch mode. It returns submissions in the order in
/// which they were submitted. The number of submissions in flight is not limited.
///
/// Dropping the connection waits until its submissions in flight are finished, or until the
/// watchdog declares the device lost. The packets of these submissions are then lost. To get the
/// packets back, call [`Lane::poll`] until [`Lane::in_flight`] is 0.
pub(super) struct LaunchLane {
    held: ManuallyDrop<Held>,
    times: Vec<BinTime>,
    /// Start of the wait for the next result. It is the end of the previous submission or the start
    /// of the oldest submission in flight, whichever is later.
    since: Instant,
    /// Whether this connection has reported that the device is lost.
    reported_lost: bool,
}

/// Resources of a worker's connection. If the device is lost, they are never freed, because the
/// device may still access them. The order of the fields matters, because Rust drops them in this
/// order.
struct Held {
    /// Submissions in flight, oldest first.
    in_flight: VecDeque<Flight>,
    /// Free resources of submissions.
    slots: Vec<Slot>,
    queue: CommandQueue,
    device: Arc<Opened>,
}

/// A submission on the device.
struct Flight {
    chunk: Chunk,
    slot: Slot,
    /// Events that report the progress of the submission. The value is `None` if the driver failed
    /// after it had accepted some of the commands.
    events: Option<Events>,
}

impl Flight {
    fn progress(&self) -> Progress {
        progress(self.events.as_ref())
    }
}

impl Held {
    /// Returns the index of the oldest submission in flight whose kernel has ended, and the result
    /// of this kernel.
    fn first_ended(&self) -> Option<(usize, Result<(), ClError>)> {
        self.in_flight.iter().map(Flight::progress).enumerate().find_map(|(index, progress)| match progress {
            Progress::Ended(result) => Some((index, result)),
            _ => None,
        })
    }
}

impl LaunchLane {
    pub(super) fn new(device: Arc<Opened>) -> Result<Self, Error> {
        let queue = queue(&device.found, &device.context, &device.device)?;
        let held = Held { in_flight: VecDeque::new(), slots: Vec::new(), queue, device };
        Ok(Self { held: ManuallyDrop::new(held), times: Vec::new(), since: Instant::now(), reported_lost: false })
    }

    /// Returns resources that have room for the submission.
    fn slot(&mut self, chunk: &Chunk) -> Result<Slot, Error> {
        if let Some(slot) = self.held.slots.pop().filter(|slot| slot.holds(chunk)) {
            return Ok(slot);
        }
        Slot::new(&self.held.device.parts(), chunk.bins.len().max(chunk.bins.capacity()), chunk.descriptors.len())
    }

    /// Checks and launches a submission.
    fn launch(&mut self, region: &mut Region, chunk: &Chunk) -> Result<(Slot, Launched), Error> {
        let plan = self.held.device.plan(region, chunk)?;
        let mut slot = self.slot(chunk)?;
        slot.write(chunk);
        let Held { slots, queue, device, .. } = &mut *self.held;
        match launch(&mut slot, &device.parts(), queue, region, chunk, plan) {
            Ok(launched) => Ok((slot, launched)),
            Err(error) => {
                slots.push(slot);
                Err(error)
            }
        }
    }

    /// Returns the error for a lost device, with all submissions in flight. Memory that the device
    /// may still access is never freed.
    fn lose(&mut self) -> Error {
        self.reported_lost = true;
        let chunks = self.held.in_flight.drain(..).map(|Flight { chunk, slot, events }| {
            std::mem::forget((slot, events));
            chunk
        });
        let chunks = chunks.collect();
        self.held.device.watch.lost_with(chunks)
    }

    /// Waits until all submissions in flight have ended. Returns `false` if the watchdog declares
    /// the device lost.
    fn drain(&mut self) -> bool {
        let watch = &self.held.device.watch;
        for flight in &self.held.in_flight {
            while let Progress::Running = flight.progress() {
                if watch.is_overdue(self.since) {
                    watch.lose_silent();
                }
                if watch.lost().is_some() {
                    return false;
                }
                std::thread::sleep(POLL_INTERVAL);
            }
            self.since = watch.record_progress();
        }
        // Unless the driver confirms that all commands have ended, the device may continue to
        // write.
        watch.lost().is_none() && self.held.queue.finish().is_ok()
    }
}

impl Lane for LaunchLane {
    fn submit(&mut self, region: &mut Region, mut chunk: Chunk) -> Result<(), Box<Rejected>> {
        chunk.ran_chain = self.held.device.runs_chain;
        let (slot, launched) = match self.launch(region, &chunk) {
            Ok(launched) => launched,
            Err(error) => return Err(Box::new(Rejected { chunk, error })),
        };
        let events = match launched {
            Launched::Whole(events) => Some(events),
            // Some commands of the submission were accepted and may be running. The submission is
            // therefore not rejected, and `poll` returns it.
            Launched::Part(error) => {
                self.held.device.watch.lose(format!("the driver failed to take a chunk: {error}"));
                None
            }
        };
        if self.held.in_flight.is_empty() {
            self.since = Instant::now();
        }
        self.held.in_flight.push_back(Flight { chunk, slot, events });
        // A command queue may delay its commands until a thread waits for them, so the queue is
        // flushed. If the flush fails, `poll` reports the error.
        let _ = self.held.queue.flush();
        Ok(())
    }

    fn poll(&mut self, region: &mut Region) -> Result<Option<Chunk>, Error> {
        let watch = &self.held.device.watch;
        let progress = self.held.in_flight.front().map_or(Progress::Running, Flight::progress);
        let (index, result) = match progress {
            Progress::Ended(result) => (0, result),
            Progress::Running => {
                if !self.held.in_flight.is_empty() && watch.is_overdue(self.since) {
                    watch.lose_silent();
                }
                if watch.lost().is_none() || self.reported_lost {
                    return Ok(None);
                }
                // The oldest submission may be stuck while later submissions in other command
                // queues have ended.
                match self.held.first_ended() {
                    Some(ended) => ended,
                    None => return Err(self.lose()),
                }
            }
            // The launch may still be running, or may never end.
            Progress::Unknown(error) => {
                watch.lose(format!("the driver failed to report the state of a launch: {error}"));
                return Err(self.lose());
            }
        };
        let Some(Flight { mut chunk, slot, events }) = self.held.in_flight.remove(index) else { return Ok(None) };
        self.since = self.held.device.watch.record_progress();
        if let Err(error) = result {
            self.times.clear();
            self.held.slots.push(slot);
            let id = self.held.device.found.capabilities.id.clone();
            return Err(Error::Failed { id, reason: error.to_string(), chunk: Box::new(chunk) });
        }
        read(&slot, &self.held.device.planner.needs, region, &mut chunk);
        self.held.slots.push(slot);
        bin_times(events.as_ref(), &chunk.bins, &mut self.times);
        Ok(Some(chunk))
    }

    fn in_flight(&self) -> usize {
        self.held.in_flight.len()
    }

    /// Returns a processing time for each batch of the last submission. The driver measures only
    /// the whole launch, so this time is divided between the batches.
    fn bin_times(&self) -> &[BinTime] {
        &self.times
    }
}

impl Drop for LaunchLane {
    fn drop(&mut self) {
        // The resources are freed only if the device no longer writes to them.
        if self.drain() {
            // SAFETY: `held` is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.held) };
        }
    }
}

#[cfg(test)]
mod tests;

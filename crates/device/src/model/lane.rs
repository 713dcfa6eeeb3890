//! Connection of one worker to a modelled device. The processing times of the device are computed
//! from a profile.

use std::collections::VecDeque;
use std::sync::Arc;

use godwit_packet::Region;
use godwit_sched::{Bin, Chunk};

use super::ModelDevice;
use crate::device::{BinTime, Lane, Rejected};
use crate::error::Error;

/// Processed submission that is held back until its modelled processing time is over.
struct Waiting {
    chunk: Chunk,
    ready_ns: u64,
    times: Vec<BinTime>,
}

/// One worker's connection to a modelled device.
pub(super) struct ModelLane {
    device: Arc<ModelDevice>,
    cpu: Box<dyn Lane>,
    /// Submissions in the order in which they become ready.
    waiting: VecDeque<Waiting>,
    times: Vec<BinTime>,
    reported_loss: bool,
}

impl ModelLane {
    pub(super) fn new(device: Arc<ModelDevice>, cpu: Box<dyn Lane>) -> Self {
        Self { device, cpu, waiting: VecDeque::new(), times: Vec::new(), reported_loss: false }
    }

    fn lost(&self, chunks: Vec<Chunk>) -> Error {
        let id = self.device.capabilities.id.clone();
        Error::Lost { id, reason: "the test has lost it".to_owned(), chunks }
    }

    /// Returns the modelled processing time of each batch of packets in a submission. The batches
    /// share the fixed time of the submission in proportion to their packets.
    fn bin_times(device: &ModelDevice, chunk: &Chunk) -> Vec<BinTime> {
        let bins = chunk.bins.iter().enumerate();
        let fixed_ns = chunk.bins.iter().map(|bin| device.costs(bin.instance).chunk_ns).fold(0.0, f64::max);
        let packet_ns = fixed_ns / f64::from(chunk.packets.max(1));
        let bytes = |index: usize| {
            let frames = &chunk.descriptors[chunk.range(&chunk.bins[index])];
            frames.iter().map(|descriptor| u64::from(descriptor.length)).sum()
        };
        let time = |(index, bin): (usize, &Bin)| {
            let elapsed_ns = device.bin_ns(bin, bytes(index)) + packet_ns * f64::from(bin.count);
            BinTime { bin: index as u32, elapsed_ns: elapsed_ns as u64 }
        };
        bins.map(time).collect()
    }
}

impl Lane for ModelLane {
    fn submit(&mut self, region: &mut Region, chunk: Chunk) -> Result<(), Box<Rejected>> {
        let device = Arc::clone(&self.device);
        if device.options.state.is_lost() || device.has_failed() {
            return Err(Box::new(Rejected { chunk, error: self.lost(Vec::new()) }));
        }
        // The modelled times depend on frame lengths. They are computed before the kernels run,
        // because kernels change the lengths.
        let times = Self::bin_times(&device, &chunk);
        let trip_ns = device.trip_ns(&chunk);
        self.cpu.submit(region, chunk)?;
        let finished = self.cpu.poll(region);
        // The CPU has finished a submission when `submit` returns, and `poll` of the CPU never
        // fails.
        let Ok(Some(chunk)) = finished else { unreachable!("the CPU has finished the chunk") };
        let busy_ns = times.iter().map(|time| time.elapsed_ns).sum::<u64>();
        let end_ns = device.options.state.reserve(device.options.clock.now_ns(), busy_ns);
        let last_ns = self.waiting.back().map_or(0, |waiting| waiting.ready_ns);
        self.waiting.push_back(Waiting { chunk, ready_ns: last_ns.max(end_ns + trip_ns as u64), times });
        Ok(())
    }

    fn poll(&mut self, _region: &mut Region) -> Result<Option<Chunk>, Error> {
        if self.device.options.state.is_lost() {
            if std::mem::replace(&mut self.reported_loss, true) {
                return Ok(None);
            }
            let chunks = self.waiting.drain(..).map(|waiting| waiting.chunk).collect();
            return Err(self.lost(chunks));
        }
        let now_ns = self.device.options.clock.now_ns();
        if self.waiting.front().is_none_or(|waiting| waiting.ready_ns > now_ns) {
            return Ok(None);
        }
        let ready = self.waiting.pop_front();
        Ok(ready.map(|waiting| {
            self.times = waiting.times;
            waiting.chunk
        }))
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    fn bin_times(&self) -> &[BinTime] {
        &self.times
    }
}

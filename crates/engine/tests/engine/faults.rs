//! Device that fails on purpose: the CPU with a lane that delays, fails, hangs, dies or refuses.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_abi::Descriptor;
use godwit_device::cpu::CpuDevice;
use godwit_device::{BinTime, Capabilities, Choice, Device, Error, Lane, Rejected, Unavailable};
use godwit_engine::Opener;
use godwit_packet::Region;
use godwit_sched::Chunk;

/// Way in which a device is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    /// The device hangs until the watchdog detects it.
    Hangs,
    /// The driver reports the loss at once.
    Dies,
    /// The device finishes its chunks, and accepts no others.
    Refuses,
}

/// Faults of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// Number of polls that each chunk needs.
    pub(crate) delay_polls: u32,
    /// Every `fails_each`-th chunk of the lane fails. 0 means none.
    pub(crate) fails_each: u64,
    /// Loss of the device, and the number of chunks of the lane before.
    pub(crate) loss: Option<(Loss, u64)>,
}

/// Returns an opener that replaces device `id` by one with faults.
pub(crate) fn opener(id: &'static str, faults: Faults) -> Opener {
    Opener(Arc::new(move |requested, programs, _, options| {
        (requested == id).then(|| {
            let cpu = Arc::new(CpuDevice::new(programs.to_vec())?);
            let capabilities = Capabilities { id: id.to_owned(), ..cpu.capabilities().clone() };
            let device = FaultyDevice { capabilities, cpu, faults, watchdog: options.watchdog };
            Ok(Arc::new(device) as Arc<dyn Device>)
        })
    }))
}

struct FaultyDevice {
    capabilities: Capabilities,
    cpu: Arc<CpuDevice>,
    faults: Faults,
    watchdog: Duration,
}

impl Device for FaultyDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn choices(&self) -> Vec<Choice> {
        self.cpu.choices()
    }

    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error> {
        let cpu = Arc::clone(&self.cpu).lane()?;
        Ok(Box::new(FaultyLane {
            device: self,
            cpu,
            taken: 0,
            in_flight: VecDeque::new(),
            progressed: Instant::now(),
            lost: false,
            kept: Vec::new(),
        }))
    }
}

struct FaultyLane {
    device: Arc<FaultyDevice>,
    cpu: Box<dyn Lane>,
    taken: u64,
    in_flight: VecDeque<Flight>,
    progressed: Instant,
    lost: bool,
    /// Buffers in flight when the device was lost. The device continues to write to them.
    kept: Vec<Descriptor>,
}

/// Chunk in flight.
struct Flight {
    /// Chunk as it was submitted. It runs when it is returned.
    chunk: Chunk,
    /// Number of the chunk in the lane, from 1.
    number: u64,
    /// Remaining number of polls.
    polls: u32,
}

fn packets(chunk: &Chunk) -> impl Iterator<Item = &Descriptor> {
    chunk.bins.iter().flat_map(|bin| &chunk.descriptors[chunk.range(bin)])
}

/// Changes the descriptors of half of the bins, like a function that prepends and appends. A device
/// writes descriptors bin by bin, before the chunk is complete.
fn half_finish(chunk: &mut Chunk) {
    for bin in &chunk.bins[..chunk.bins.len().div_ceil(2)] {
        let first = bin.first as usize;
        for descriptor in &mut chunk.descriptors[first..first + usize::from(bin.count)] {
            descriptor.head -= 44;
            descriptor.length += 44 + 29;
        }
    }
}

impl FaultyLane {
    fn is_lost_at(&self, number: u64) -> Option<Loss> {
        self.device.faults.loss.filter(|(_, after)| number > *after).map(|(loss, _)| loss)
    }

    fn lose(&mut self, reason: &str) -> Error {
        self.lost = true;
        let mut chunks: Vec<Chunk> = self.in_flight.drain(..).map(|flight| flight.chunk).collect();
        chunks.iter_mut().for_each(half_finish);
        self.kept.extend(chunks.iter().flat_map(packets));
        Error::Lost { id: self.device.capabilities.id.clone(), reason: reason.to_owned(), chunks }
    }

    /// Writes to the buffers that a lost device keeps.
    fn write_late(&self, region: &mut Region) {
        for descriptor in &self.kept {
            region.buffer_mut(descriptor).fill(0xdd);
        }
    }
}

impl Lane for FaultyLane {
    fn submit(&mut self, region: &mut Region, chunk: Chunk) -> Result<(), Box<Rejected>> {
        self.write_late(region);
        if self.lost || matches!(self.is_lost_at(self.taken + 1), Some(Loss::Refuses)) {
            let id = self.device.capabilities.id.clone();
            let error = Error::Unusable { id, reason: Unavailable::Lost("accepts no more chunks".to_owned()) };
            return Err(Box::new(Rejected { chunk, error }));
        }
        if self.in_flight.is_empty() {
            self.progressed = Instant::now();
        }
        self.taken += 1;
        self.in_flight.push_back(Flight { chunk, number: self.taken, polls: self.device.faults.delay_polls });
        Ok(())
    }

    fn poll(&mut self, region: &mut Region) -> Result<Option<Chunk>, Error> {
        self.write_late(region);
        let Some(flight) = self.in_flight.front_mut() else { return Ok(None) };
        if flight.polls > 0 {
            flight.polls -= 1;
            return Ok(None);
        }
        let number = flight.number;
        match self.is_lost_at(number) {
            Some(Loss::Hangs) if self.progressed.elapsed() < self.device.watchdog => return Ok(None),
            Some(Loss::Hangs) => return Err(self.lose("returned no chunk")),
            Some(Loss::Dies) => return Err(self.lose("driver reports a loss")),
            Some(Loss::Refuses) | None => {}
        }
        self.progressed = Instant::now();
        let Some(Flight { mut chunk, .. }) = self.in_flight.pop_front() else { return Ok(None) };
        let each = self.device.faults.fails_each;
        if each > 0 && number.is_multiple_of(each) {
            packets(&chunk).for_each(|descriptor| region.buffer_mut(descriptor).fill(0xee));
            half_finish(&mut chunk);
            let id = self.device.capabilities.id.clone();
            return Err(Error::Failed { id, reason: "failed on purpose".to_owned(), chunk: Box::new(chunk) });
        }
        self.cpu.submit(region, chunk).map_err(|rejected| rejected.error)?;
        self.cpu.poll(region)
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn bin_times(&self) -> &[BinTime] {
        self.cpu.bin_times()
    }
}

//! A device that fails on purpose: the CPU behind a lane that delays, fails, hangs, dies or refuses, as it is told.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_abi::Descriptor;
use godwit_device::cpu::CpuDevice;
use godwit_device::{BinTime, Capabilities, Choice, Device, Error, Lane, Rejected};
use godwit_engine::Opener;
use godwit_packet::Region;
use godwit_sched::Chunk;

/// How a device is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    /// It hangs until its watchdog finds out.
    Hangs,
    /// Its driver says so at once.
    Dies,
    /// It finishes what it has, and takes no more.
    Refuses,
}

/// What a lane does, counted in chunks of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// Polls that each chunk takes.
    pub(crate) delay_polls: u32,
    /// Each so many-th chunk fails; 0: none.
    pub(crate) fails_each: u64,
    /// How and after how many chunks it is lost.
    pub(crate) loss: Option<(Loss, u64)>,
}

/// Puts a device with these faults in the place of `id`.
pub(crate) fn opener(id: &'static str, faults: Faults) -> Opener {
    Opener(Arc::new(move |wanted, programs, _, options| {
        (wanted == id).then(|| {
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
            moved: Instant::now(),
            lost: false,
            reached: Vec::new(),
        }))
    }
}

struct FaultyLane {
    device: Arc<FaultyDevice>,
    cpu: Box<dyn Lane>,
    taken: u64,
    in_flight: VecDeque<Flight>,
    moved: Instant,
    lost: bool,
    /// Buffers that were in its hands when it was lost: it goes on writing to them.
    reached: Vec<Descriptor>,
}

struct Flight {
    /// As it was submitted: it runs when it comes back.
    chunk: Chunk,
    /// Which chunk of the lane, from 1.
    number: u64,
    polls: u32,
}

fn packets(chunk: &Chunk) -> impl Iterator<Item = &Descriptor> {
    chunk.bins.iter().flat_map(|bin| &chunk.descriptors[chunk.range(bin)])
}

/// Writes the descriptors of half of the bins back as a function that prepends and appends leaves them: devices do so bin by
/// bin, before the chunk is complete.
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
        self.reached.extend(chunks.iter().flat_map(packets));
        Error::Lost { id: self.device.capabilities.id.clone(), reason: reason.to_owned(), chunks }
    }

    fn write_late(&self, region: &mut Region) {
        for descriptor in &self.reached {
            region.buffer_mut(descriptor).fill(0xdd);
        }
    }
}

impl Lane for FaultyLane {
    fn submit(&mut self, region: &mut Region, chunk: Chunk) -> Result<(), Box<Rejected>> {
        self.write_late(region);
        if self.lost || matches!(self.is_lost_at(self.taken + 1), Some(Loss::Refuses)) {
            let id = self.device.capabilities.id.clone();
            let error = Error::Unusable { id, reason: "it is lost: it takes no more".to_owned() };
            return Err(Box::new(Rejected { chunk, error }));
        }
        if self.in_flight.is_empty() {
            self.moved = Instant::now();
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
            Some(Loss::Hangs) if self.moved.elapsed() < self.device.watchdog => return Ok(None),
            Some(Loss::Hangs) => return Err(self.lose("it has given no chunk back")),
            Some(Loss::Dies) => return Err(self.lose("its driver gave it up")),
            Some(Loss::Refuses) | None => {}
        }
        self.moved = Instant::now();
        let Some(Flight { mut chunk, .. }) = self.in_flight.pop_front() else { return Ok(None) };
        let each = self.device.faults.fails_each;
        if each > 0 && number.is_multiple_of(each) {
            packets(&chunk).for_each(|descriptor| region.buffer_mut(descriptor).fill(0xee));
            half_finish(&mut chunk);
            let id = self.device.capabilities.id.clone();
            return Err(Error::Failed { id, reason: "it was told to".to_owned(), chunk: Box::new(chunk) });
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

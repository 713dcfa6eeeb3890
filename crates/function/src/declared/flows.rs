//! Flow state of a declared function. Each worker keeps the flows of its steering buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use godwit_abi::{Descriptor, Outcome};
use godwit_custom::flows::{Entries, FlowCounts, FlowFrame, FlowTime, FlowWork, Flows};
use godwit_packet::{Image, Memory, Region, SteerKey};
use godwit_wire::Parsed;

use crate::{Complete, Error, HostHalf, Prepare, Work, WorkColumns};

/// Number of flow counters: active, created, expired, refused.
const COUNTERS: usize = 4;

/// Published counters of one worker. Only this worker writes them.
type Published = Arc<[AtomicU64; COUNTERS]>;

/// Flows of a declared function, on all workers.
#[derive(Debug)]
pub(crate) struct FlowState {
    entries: Entries,
    image: Arc<Image>,
    /// Name of the flows, such as `session`.
    name: String,
    /// Number of flows that all workers hold together.
    capacity: u32,
    workers: Mutex<Vec<Published>>,
}

impl FlowState {
    /// Creates the flow state of a function, without memory for flows yet. `image` is the
    /// function's table image.
    pub(crate) fn new(entries: Entries, image: Arc<Image>, name: String, capacity: u32) -> Self {
        Self { entries, image, name, capacity, workers: Mutex::default() }
    }

    /// Checks that the machine has enough memory for all flows.
    ///
    /// # Errors
    /// Returns an error if the machine has too little memory.
    pub(crate) fn check_memory(&self) -> Result<(), Error> {
        // Only the allocation is checked, so the memory is freed at once.
        let memory = Memory::new(self.entries.bytes(&self.image, self.capacity), "the flows of a function");
        Ok(memory.map(drop)?)
    }

    /// Creates the part of a worker, which holds an equal share of the flows.
    pub(crate) fn host_half(&self, worker: usize, workers: usize) -> HostHalf {
        let share = self.capacity.div_ceil(workers.max(1) as u32);
        HostHalf::Prepare(Box::new(FlowHost {
            flows: Flows::new(self.entries, Arc::clone(&self.image), share).ok(),
            published: self.publish(worker),
            published_counts: FlowCounts::default(),
            now_ns: 0,
            is_replay: false,
            interleaves: true,
            times_ns: Vec::new(),
        }))
    }

    /// Returns the steering key, which sends all packets of a flow to one worker.
    pub(crate) fn steer_key(&self) -> Arc<dyn SteerKey> {
        Arc::new(Steer { entries: self.entries, image: Arc::clone(&self.image) })
    }

    /// Returns the flow counters, in the order of the contract.
    pub(crate) fn counts(&self) -> Vec<u64> {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |counter: usize| workers.iter().map(|worker| worker[counter].load(Ordering::Relaxed)).sum::<u64>();
        (0..COUNTERS).map(sum).collect()
    }

    /// Returns the table name and the number of existing flows.
    pub(crate) fn table(&self) -> (String, u64) {
        (self.name.clone(), self.counts()[0])
    }

    /// Resets the published counters of a worker, and returns them.
    fn publish(&self, worker: usize) -> Published {
        let zero = || Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        while workers.len() <= worker {
            workers.push(zero());
        }
        workers[worker] = zero();
        Arc::clone(&workers[worker])
    }
}

/// Chooses the worker of a packet by the key of its flow.
struct Steer {
    entries: Entries,
    image: Arc<Image>,
}

impl SteerKey for Steer {
    fn steer_key(&self, frame: &[u8], _parsed: &Parsed, flow_hash: u32) -> u32 {
        self.entries.bucket(&self.image, frame).unwrap_or(flow_hash)
    }
}

/// Flows of one worker.
struct FlowHost {
    /// The flows, or `None` if there was no memory for them.
    flows: Option<Flows>,
    published: Published,
    /// Values that were published last.
    published_counts: FlowCounts,
    now_ns: u64,
    is_replay: bool,
    /// Whether the lookups of different packets overlap.
    interleaves: bool,
    /// Timestamps of the next packets in a replay.
    times_ns: Vec<u64>,
}

impl FlowHost {
    fn run(&mut self, region: &Region, descriptors: &[Descriptor], work: impl FnMut(FlowWork)) {
        let Some(flows) = &mut self.flows else {
            // The memory was available at the start, but another program has taken it since.
            return descriptors.iter().map(|_| FlowWork::Settled(Outcome::drop(0))).for_each(work);
        };
        let time = match self.is_replay {
            // The result of a replay must not depend on a clock, so time passes only with packets.
            true if descriptors.is_empty() => return,
            true => FlowTime::Each(&self.times_ns),
            false => FlowTime::Now(self.now_ns),
        };
        let frames: Vec<FlowFrame<'_>> = region.frames(descriptors).map(FlowFrame::new).collect();
        flows.prepare(&frames, time, self.interleaves, work);
        let counts = flows.counts();
        if counts != self.published_counts {
            self.published_counts = counts;
            let FlowCounts { active, created, expired, refused } = counts;
            for (counter, value) in self.published.iter().zip([active, created, expired, refused]) {
                counter.store(value, Ordering::Relaxed);
            }
        }
    }
}

/// Returns the work of the engine for a packet.
fn work_of(work: FlowWork) -> Work {
    match work {
        FlowWork::Kernel(parameter) => Work::Run { variant: 0, parameter },
        FlowWork::Settled(outcome) => Work::Done(outcome),
    }
}

impl Complete for FlowHost {}

impl Prepare for FlowHost {
    fn prepare(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut Vec<Work>) {
        self.run(region, descriptors, |each| work.push(work_of(each)));
    }

    fn prepare_columns(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut WorkColumns) {
        self.run(region, descriptors, |each| work.push(work_of(each)));
    }

    fn set_time(&mut self, now_ns: u64, times_ns: Option<&[u64]>) {
        self.now_ns = now_ns;
        self.is_replay = times_ns.is_some();
        self.times_ns.clear();
        self.times_ns.extend_from_slice(times_ns.unwrap_or_default());
    }

    fn set_interleaving(&mut self, interleaves: bool) {
        self.interleaves = interleaves;
    }
}

//! Path of packets through a function: the host half prepares them, they wait in bins, a device
//! runs their chunk, and the worker completes them.

use godwit_function::{HostHalf, PreviousOutcome, Step, Work, WorkColumns};
use godwit_packet::Descriptor;
use godwit_sched::{Chunk, Insert, Parameters};

use crate::error::Error;
use crate::observe::counters::{
    BINS, BUSY_NS, BYTES, DEVICE_CHUNKS, DEVICE_MOVED_BACK, DEVICE_MOVED_TO, DEVICE_PACKETS, PACKETS, SETTLED,
};
use crate::path::Worker;
use crate::path::order::Order;
use crate::place::failover::WorkerDevice;
use crate::plan::chain_plan::ChainPlan;

/// Minimum number of consecutive packets of one variant for an insertion as a run. Shorter runs are
/// inserted packet by packet.
const RUN_PACKETS_MIN: usize = 4;
/// Number of completed packets of a chunk after which the worker transmits. The data of a large
/// chunk would otherwise leave the cache before its packets are transmitted.
const DEPART_PACKETS: usize = 512;

/// Input of a function: its host half, and the packets on their way into the function.
#[derive(Default)]
pub(crate) struct Input {
    pub(crate) host_half: Option<Box<dyn HostHalf>>,
    /// Whether the host half prepares packets ([`HostHalf::prepares`]).
    prepares: bool,
    arranges: bool,
    /// Whether the host half reads the previous function's outcome of each packet.
    pub(crate) reads_previous: bool,
    /// Time at which [`HostHalf::arrange`] must be called again even without packets, in
    /// nanoseconds.
    pub(crate) wake_ns: u64,
    pub(crate) steps: Vec<Step>,
    /// Packets that have arrived at the function and are not prepared.
    pub(crate) pending: Vec<Descriptor>,
    /// Outcome of the previous function for each pending packet. Empty if the host half does not
    /// read it.
    pub(crate) previous_outcomes: Vec<PreviousOutcome>,
    /// Packets that the host half has prepared. Those from index `taken` on are not yet in bins.
    pub(crate) prepared: Vec<Descriptor>,
    work: WorkColumns,
    taken: usize,
}

impl Input {
    pub(crate) fn new(host_half: Option<Box<dyn HostHalf>>) -> Self {
        let arranges = host_half.as_ref().is_some_and(|host_half| host_half.arranges());
        let prepares = host_half.as_ref().is_some_and(|host_half| host_half.prepares());
        let reads_previous = arranges && host_half.as_ref().is_some_and(|host_half| host_half.reads_previous());
        Self { host_half, prepares, arranges, reads_previous, ..Self::default() }
    }

    /// Returns whether no packet is on its way into the function.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.taken == self.prepared.len()
    }

    /// Appends a prepared packet with its work.
    pub(crate) fn put(&mut self, packet: Descriptor, work: Work) {
        self.prepared.push(packet);
        self.work.push(work);
    }
}
impl Worker {
    /// Prepares the packets that arrived at a function, and puts them into bins until the packer is
    /// full. Returns whether any packet moved.
    pub(crate) fn feed(&mut self, plan: &ChainPlan, function: usize, now_ns: u64) -> Result<bool, Error> {
        let mut moved = false;
        loop {
            let mut input = std::mem::take(&mut self.inputs[function]);
            if input.taken == input.prepared.len() {
                input.taken = 0;
                input.prepared.clear();
                input.work.clear();
                if input.arranges {
                    self.arrange(plan, function, &mut input, now_ns);
                } else {
                    std::mem::swap(&mut input.prepared, &mut input.pending);
                    if let Some(host_half) = input.host_half.as_mut().filter(|_| input.prepares) {
                        host_half.prepare_columns(&self.region, &input.prepared, &mut input.work);
                        debug_assert_eq!(input.work.len(), input.prepared.len());
                    }
                }
                self.observer.prepared(plan, function, &input.prepared, &input.work);
            }
            let waiting = input.prepared.len() - input.taken;
            let full = self.pack(plan, function, &mut input, now_ns);
            let taken = waiting - (input.prepared.len() - input.taken);
            // Chains have no cycle, so no packet can have returned to this function in the
            // meantime.
            debug_assert!(self.inputs[function].pending.is_empty());
            self.inputs[function] = input;
            moved |= taken > 0;
            if !full {
                return Ok(moved);
            }
            // A synchronous device finishes the chunk at once and makes room. With an asynchronous
            // device, the remaining packets wait.
            let device = self.placement[function];
            let submitted = self.submit(plan, device, now_ns)?;
            let elsewhere = self.balance(plan, function);
            if !submitted && !elsewhere {
                return Ok(moved);
            }
            moved |= self.fetch(plan, device)?;
        }
    }

    /// Puts prepared packets into bins. Returns true if the chunk is full before all packets are in
    /// bins.
    fn pack(&mut self, plan: &ChainPlan, function: usize, input: &mut Input, now_ns: u64) -> bool {
        let stage = &plan.stages[function];
        let device = self.placement[function];
        // Packets are inserted stream by stream. All packets of a batch usually share a stream.
        let stream_of = |order: &Order, packet: &Descriptor| match &stage.streams {
            None => function as u16,
            Some(streams) => streams[usize::from(order.class(packet))],
        };
        let run_of = |order: &Order, packets: &[Descriptor], stream: u16| match &stage.streams {
            None => packets.len(),
            Some(_) => packets.iter().position(|packet| stream_of(order, packet) != stream).unwrap_or(packets.len()),
        };
        let is_direct = !input.prepares && !input.arranges;
        while is_direct && input.taken < input.prepared.len() {
            let variant = stage.function.variant();
            let rest = &input.prepared[input.taken..];
            let stream = stream_of(&self.order, &rest[0]);
            let run = run_of(&self.order, rest, stream);
            let packer = &mut self.devices[device].packer;
            let (taken, insert) = packer.insert_all(now_ns, stream, variant, &rest[..run], Parameters::Alike(0));
            self.observer.binned(plan, function, &self.devices[device].id, variant, &rest[..taken]);
            input.taken += taken;
            if matches!(insert, Insert::ChunkFull | Insert::Refused) {
                return true;
            }
        }
        while input.taken < input.prepared.len() {
            let rest = &input.prepared[input.taken..];
            let (taken, insert) = match input.work.run(input.taken) {
                Some((variant, run)) => {
                    let packer = &mut self.devices[device].packer;
                    let stream = stream_of(&self.order, &rest[0]);
                    let run = run_of(&self.order, &rest[..run], stream);
                    let parameters = input.work.parameters(input.taken..input.taken + run);
                    let (taken, insert) = if run < RUN_PACKETS_MIN {
                        let first = &rest[0];
                        let insert = packer.insert(now_ns, stream, variant, first, parameters[0]);
                        (usize::from(insert != Insert::Refused), insert)
                    } else {
                        packer.insert_all(now_ns, stream, variant, &rest[..run], Parameters::Each(parameters))
                    };
                    self.observer.binned(plan, function, &self.devices[device].id, variant, &rest[..taken]);
                    (taken, insert)
                }
                None => {
                    if let Work::Done(outcome) = input.work.at(input.taken) {
                        self.counts.add(stage.counters.plain(SETTLED), 1);
                        self.decide(plan, function, &rest[..1], &[outcome]);
                    }
                    (1, Insert::Binned)
                }
            };
            input.taken += taken;
            if matches!(insert, Insert::ChunkFull | Insert::Refused) {
                return true;
            }
        }
        false
    }

    /// Submits the filling chunk to `device`. Returns false if no packets wait or no set of bins is
    /// free. A device that rejects the chunk is no longer used.
    pub(crate) fn submit(&mut self, plan: &ChainPlan, device: usize, now_ns: u64) -> Result<bool, Error> {
        let Some(chunk) = self.devices[device].packer.take(now_ns) else {
            return Ok(false);
        };
        let packets = chunk.packets;
        let number = self.counts.value(plan.layout.device(device, DEVICE_CHUNKS)) + 1;
        self.observer.submitted(&self.devices[device].id, number, &chunk);
        match self.devices[device].lane.submit(&mut self.region, chunk) {
            Ok(()) => {
                self.devices[device].load.submitted(packets, now_ns);
                self.counts.add(plan.layout.device(device, DEVICE_PACKETS), packets.into());
                self.counts.add(plan.layout.device(device, DEVICE_CHUNKS), 1);
                Ok(true)
            }
            Err(rejected) => self.not_taken(plan, device, *rejected, now_ns).map(|()| true),
        }
    }

    /// Fetches the finished chunks of `device`, and handles the chunks that it failed to finish.
    /// Returns whether the device returned any chunk.
    pub(crate) fn fetch(&mut self, plan: &ChainPlan, device: usize) -> Result<bool, Error> {
        let mut moved = false;
        loop {
            match self.devices[device].lane.poll(&mut self.region) {
                Ok(None) => return Ok(moved),
                Ok(Some(mut chunk)) => {
                    let now_ns = self.now_ns();
                    self.devices[device].load.returned(chunk.packets, now_ns);
                    self.devices[device].failures = 0;
                    self.complete(plan, device, &mut chunk)?;
                    self.devices[device].packer.give_back(chunk);
                    let [to, back] = self.devices[device].lane.moved_bytes();
                    self.counts.set(plan.layout.device(device, DEVICE_MOVED_TO), to);
                    self.counts.set(plan.layout.device(device, DEVICE_MOVED_BACK), back);
                }
                Err(error) => self.not_finished(plan, device, error)?,
            }
            moved = true;
        }
    }

    /// Completes a finished chunk: counts its work, calls the host halves, and sends each packet to
    /// its next stage.
    fn complete(&mut self, plan: &ChainPlan, device: usize, chunk: &mut Chunk) -> Result<(), Error> {
        let elapsed_ns = self.now_ns().saturating_sub(chunk.opened_ns);
        let WorkerDevice { packer, lane, .. } = &mut self.devices[device];
        for time in lane.bin_times() {
            let bin = &chunk.bins[time.bin as usize];
            let counters = plan.stages[usize::from(bin.instance)].counters;
            self.counts.add(counters.plain(BUSY_NS), time.elapsed_ns);
            packer.observe(bin, time.elapsed_ns);
        }
        self.observer.returned(&self.devices[device].id, chunk);
        let mut decided = 0;
        let chain = plan.chains[device].as_deref().filter(|_| chunk.ran_chain);
        for index in 0..chunk.bins.len() {
            let (bin, bytes) = (&chunk.bins[index], &chunk.bin_bytes[index]);
            let function = usize::from(bin.instance);
            let counters = plan.stages[function].counters;
            self.counts.add(counters.plain(PACKETS), bin.count.into());
            self.counts.add(counters.plain(BYTES), *bytes);
            self.counts.add(counters.plain(BINS), 1);
            self.function_latency[function].record(elapsed_ns, u64::from(bin.count));
            if let Some(chain) = chain.filter(|chain| chain.continues(function)) {
                decided += usize::from(bin.count);
                self.complete_chained(plan, chain, *bin, chunk, elapsed_ns);
                continue;
            }
            let range = bin.first as usize..bin.first as usize + usize::from(bin.count);
            let (descriptors, outcomes) = (&mut chunk.descriptors[range.clone()], &mut chunk.outcomes[range.clone()]);
            if let Some(host_half) = &mut self.inputs[function].host_half {
                host_half.complete(bin.variant, descriptors, &chunk.parameters[range], outcomes);
                host_half.finish(&mut self.region, descriptors, outcomes);
            }
            self.decide(plan, function, descriptors, outcomes);
            decided += usize::from(bin.count);
            if decided >= DEPART_PACKETS {
                // Transmit now, while the metadata of the completed packets is in the cache.
                decided = 0;
                self.depart()?;
            }
        }
        Ok(())
    }
}

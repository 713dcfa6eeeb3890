//! The way through a function: packets are prepared, wait in bins, go to a device in a chunk and come back.

use godwit_function::{HostHalf, Said, Step, Work, WorkColumns};
use godwit_packet::Descriptor;
use godwit_sched::{Chunk, Insert, Parameters};

use crate::Error;
use crate::counters::{
    BINS, BUSY_NS, BYTES, DEVICE_CHUNKS, DEVICE_MOVED_BACK, DEVICE_MOVED_TO, DEVICE_PACKETS, PACKETS, SETTLED,
};
use crate::failover::Place;
use crate::order::Order;
use crate::plan::Plan;
use crate::worker::Worker;

/// Fewer packets of one variant in a row go into bins one by one.
const RUN_PACKETS_MIN: usize = 4;
/// Packets of a chunk that are looked at before those leave whose turn it is: a large chunk does not stay in the cache.
const DEPART_PACKETS: usize = 512;

/// Packets on their way into a function.
#[derive(Default)]
pub(crate) struct Input {
    pub(crate) host_half: Option<Box<dyn HostHalf>>,
    /// Whether it prepares packets; it arranges them.
    prepares: bool,
    arranges: bool,
    /// Whether it is told what was said of packets before.
    pub(crate) hears: bool,
    /// When it is to be called again.
    pub(crate) wake_ns: u64,
    pub(crate) steps: Vec<Step>,
    /// Arrived, not looked at.
    pub(crate) pending: Vec<Descriptor>,
    /// What was said of each of these, where the host half hears it.
    pub(crate) said: Vec<Said>,
    /// Prepared, not all in bins: those from `taken` on still wait.
    pub(crate) prepared: Vec<Descriptor>,
    work: WorkColumns,
    taken: usize,
}

impl Input {
    pub(crate) fn new(host_half: Option<Box<dyn HostHalf>>) -> Self {
        let arranges = host_half.as_ref().is_some_and(|host_half| host_half.arranges());
        let prepares = host_half.as_ref().is_some_and(|host_half| host_half.prepares());
        let hears = arranges && host_half.as_ref().is_some_and(|host_half| host_half.hears());
        Self { host_half, prepares, arranges, hears, ..Self::default() }
    }

    /// Whether no packet is on its way into the function.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.taken == self.prepared.len()
    }

    /// A packet is prepared.
    pub(crate) fn put(&mut self, packet: Descriptor, work: Work) {
        self.prepared.push(packet);
        self.work.push(work);
    }
}
impl Worker {
    /// Prepares what arrived at a function and puts it into bins. Stops where the packer takes no more.
    pub(crate) fn feed(&mut self, plan: &Plan, function: usize, now_ns: u64) -> Result<bool, Error> {
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
                if self.tracer.follows() {
                    self.tracer.prepared(plan, function, &input.prepared, &input.work);
                }
            }
            let waiting = input.prepared.len() - input.taken;
            let full = self.pack(plan, function, &mut input, now_ns);
            let taken = waiting - (input.prepared.len() - input.taken);
            // Packets may have come back to this function's input meanwhile: never, chains have no cycle.
            debug_assert!(self.inputs[function].pending.is_empty());
            self.inputs[function] = input;
            moved |= taken > 0;
            if !full {
                return Ok(moved);
            }
            // A device that works at once makes room at once; another needs time, and the rest waits.
            let place = self.placement[function];
            let submitted = self.submit(plan, place, now_ns)?;
            let elsewhere = self.spread(plan, function);
            if !submitted && !elsewhere {
                return Ok(moved);
            }
            moved |= self.fetch(plan, place)?;
        }
    }

    /// Puts prepared packets into bins. Returns true when the chunk is full before all are in.
    fn pack(&mut self, plan: &Plan, function: usize, input: &mut Input, now_ns: u64) -> bool {
        let stage = &plan.stages[function];
        let place = self.placement[function];
        // Packets of one stream at a time: nearly always all.
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
            let packer = &mut self.places[place].packer;
            let (taken, insert) = packer.insert_all(now_ns, stream, variant, &rest[..run], Parameters::Alike(0));
            if self.tracer.follows() {
                self.tracer.binned(plan, function, &self.places[place].id, variant, &rest[..taken]);
            }
            input.taken += taken;
            if matches!(insert, Insert::ChunkFull | Insert::Refused) {
                return true;
            }
        }
        while input.taken < input.prepared.len() {
            let rest = &input.prepared[input.taken..];
            let (taken, insert) = match input.work.run(input.taken) {
                Some((variant, run)) => {
                    let packer = &mut self.places[place].packer;
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
                    if self.tracer.follows() {
                        self.tracer.binned(plan, function, &self.places[place].id, variant, &rest[..taken]);
                    }
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

    /// Submits the filling chunk. False when there is none, or no free set of bins. A device that does not take it is
    /// given up.
    pub(crate) fn submit(&mut self, plan: &Plan, place: usize, now_ns: u64) -> Result<bool, Error> {
        let Some(chunk) = self.places[place].packer.take(now_ns) else {
            return Ok(false);
        };
        let packets = chunk.packets;
        if self.tracer.follows() {
            let number = self.counts.value(plan.layout.device(place, DEVICE_CHUNKS)) + 1;
            self.tracer.submitted(&self.places[place].id, number, &chunk);
        }
        match self.places[place].lane.submit(&mut self.region, chunk) {
            Ok(()) => {
                self.places[place].load.gave(packets, now_ns);
                self.counts.add(plan.layout.device(place, DEVICE_PACKETS), packets.into());
                self.counts.add(plan.layout.device(place, DEVICE_CHUNKS), 1);
                Ok(true)
            }
            Err(rejected) => self.not_taken(plan, place, *rejected, now_ns).map(|()| true),
        }
    }

    /// Fetches finished chunks, and what is left of those that a device did not finish.
    pub(crate) fn fetch(&mut self, plan: &Plan, place: usize) -> Result<bool, Error> {
        let mut moved = false;
        loop {
            match self.places[place].lane.poll(&mut self.region) {
                Ok(None) => return Ok(moved),
                Ok(Some(mut chunk)) => {
                    let now_ns = self.now_ns();
                    self.places[place].load.back(chunk.packets, now_ns);
                    self.places[place].failures = 0;
                    self.complete(plan, place, &mut chunk)?;
                    self.places[place].packer.give_back(chunk);
                    let [to, back] = self.places[place].lane.moved_bytes();
                    self.counts.set(plan.layout.device(place, DEVICE_MOVED_TO), to);
                    self.counts.set(plan.layout.device(place, DEVICE_MOVED_BACK), back);
                }
                Err(error) => self.not_finished(plan, place, error)?,
            }
            moved = true;
        }
    }

    /// Counts the work of a finished chunk, has host halves complete it, and sends every packet of it on.
    fn complete(&mut self, plan: &Plan, place: usize, chunk: &mut Chunk) -> Result<(), Error> {
        let elapsed_ns = self.now_ns().saturating_sub(chunk.opened_ns);
        let Place { packer, lane, .. } = &mut self.places[place];
        for time in lane.bin_times() {
            let bin = &chunk.bins[time.bin as usize];
            let counters = plan.stages[usize::from(bin.instance)].counters;
            self.counts.add(counters.plain(BUSY_NS), time.elapsed_ns);
            packer.observe(bin, time.elapsed_ns);
        }
        if self.tracer.follows() {
            self.tracer.returned(&self.places[place].id, chunk);
        }
        let mut decided = 0;
        let chain = plan.chains[place].as_deref().filter(|_| chunk.ran_chain);
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
                self.complete_followed(plan, chain, *bin, chunk, elapsed_ns);
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
                // While what is remembered of them is in the cache.
                decided = 0;
                self.depart()?;
            }
        }
        Ok(())
    }
}

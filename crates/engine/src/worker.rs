//! One worker: the loop that takes packets from its queues through the chain and out again.
//!
//! ```text
//! receive -> classify -> [gate] -> prepare -> packer -> lane -> outcomes -> next function ... -> exit -> transmit
//!            Order::arrive          feed()    pump()            complete()                     depart()
//! ```
//! Everything a worker touches is its own. A turn of the loop takes one burst from every port and works until
//! nothing moves; with a device that answers later, the answers are fetched in later turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use godwit_abi::{Outcome, PORT_FLOOD, VERDICT_DROP};
use godwit_chain::Next;
use godwit_function::{HostHalf, Said, Step, Work};
use godwit_io::{Departure, PortCounters, Receive, Received};
use godwit_packet::{Batch, Descriptor, Region};
use godwit_sched::{Chunk, Insert};
use nix::poll::{PollFd, PollFlags, poll};

use crate::Error;
use crate::counters::{
    BINS, BUSY_NS, BYTES, Counts, DEVICE_CHUNKS, DEVICE_MOVED_BACK, DEVICE_MOVED_TO, DEVICE_PACKETS, DROPPED,
    DROPPED_CHAIN, DROPPED_PORT, DROPPED_REFUSED, DROPPED_UNROUTED, HELD, IDLE_LOOPS, IN_FLIGHT, LOOPS, PACKETS,
    RECEIVED, SENT, SETTLED, WORKED_NS,
};
use crate::egress::{Departing, Egress, Queues};
use crate::failover::{LostPlace, Place};
use crate::flood::{Flood, Flooder};
use crate::follow::Followed;
use crate::grace::Grace;
use crate::histogram::Histogram;
use crate::order::Order;
use crate::plan::Plan;
use crate::ports::{NamedReceive, NamedTransmit};
use crate::sender::Sender;

/// Turns without a packet before the worker lets others have the core.
const IDLE_LOOPS_BEFORE_YIELD: u32 = 64;
/// Turns without a packet before the worker sleeps, where it may: about what waking up costs.
const IDLE_LOOPS_BEFORE_SLEEP: u32 = 256;
/// Longest sleep: others than ports have something to say too.
const SLEEP_MS: u8 = 1;
/// Fewer packets of one variant in a row go into bins one by one.
const RUN_PACKETS_MIN: usize = 4;

/// Packets of a chunk that are looked at before those leave whose turn it is: a large chunk does not stay in the cache.
const DEPART_PACKETS: usize = 512;

/// What a worker is made of.
pub(crate) struct WorkerParts {
    pub(crate) plan: Arc<Plan>,
    pub(crate) region: Region,
    /// One per source.
    pub(crate) receivers: Vec<NamedReceive>,
    /// One per port.
    pub(crate) transmitters: Vec<NamedTransmit>,
    /// One per function, `None` where it has no host half.
    pub(crate) host_halves: Vec<Option<Box<dyn HostHalf>>>,
    /// One per device; the CPU's at [`crate::failover::LAST_RESORT`].
    pub(crate) places: Vec<Place>,
    pub(crate) burst_packets: usize,
    pub(crate) in_flight_packets: usize,
    /// Whether it sleeps where there is nothing to do.
    pub(crate) sleeps: bool,
    /// Whether a thread of its own sends, and where it runs.
    pub(crate) sender: Option<SenderPlace>,
    /// Whether host halves go by the time of packets.
    pub(crate) packet_clock: bool,
    pub(crate) grace: Grace,
    pub(crate) clock: Instant,
}

/// Where a worker's sender runs.
pub(crate) struct SenderPlace {
    pub(crate) worker: usize,
    /// The cores that it is pinned to.
    pub(crate) cores: Option<Vec<usize>>,
}

/// See the module.
pub(crate) struct Worker {
    plan: Arc<Plan>,
    pub(crate) region: Region,
    pub(crate) order: Order,
    receivers: Vec<Receiver>,
    /// Whether packets can leave by each port.
    exits: Vec<bool>,
    departing: Departing,
    egress: Egress,
    /// Where its sender is to be started.
    sender: Option<SenderPlace>,
    inputs: Vec<Input>,
    pub(crate) places: Vec<Place>,
    /// For each function the place that runs it now.
    pub(crate) placement: Vec<usize>,
    /// Devices that this worker has given up.
    pub(crate) lost: Vec<LostPlace>,
    batch: Batch,
    pub(crate) counts: Counts,
    function_latency: Vec<Histogram>,
    pub(crate) followed: Followed,
    burst_packets: usize,
    sleeps: bool,
    /// All packets with a lower sequence number have passed the exit, or were dropped.
    settled: u64,
    /// What the exit had passed when that was found out.
    settled_at: usize,
    grace: Grace,
    /// Packets that host halves keep outside of the arena.
    pub(crate) held: u64,
    pub(crate) packet_clock: bool,
    /// The latest time of any packet that has come.
    pub(crate) latest_ns: u64,
    /// Nothing will ever arrive.
    pub(crate) flushing: bool,
    clock: Instant,
}

struct Receiver {
    port: String,
    queue: Box<dyn Receive>,
    ended: bool,
}

impl Receiver {
    /// Whether it is not to be asked again. A live port, told to stop, is asked for what it still holds.
    fn has_no_more(&self, stopping: bool) -> bool {
        self.ended || (stopping && !self.queue.is_live())
    }
}

/// Packets on their way into a function.
#[derive(Default)]
pub(crate) struct Input {
    pub(crate) host_half: Option<Box<dyn HostHalf>>,
    /// Whether it prepares packets; it arranges them.
    prepares: bool,
    arranges: bool,
    /// Whether it is told what was said of packets before.
    hears: bool,
    /// When it is to be called again.
    pub(crate) wake_ns: u64,
    pub(crate) steps: Vec<Step>,
    /// Arrived, not looked at.
    pub(crate) pending: Vec<Descriptor>,
    /// What was said of each of these, where the host half hears it.
    pub(crate) said: Vec<Said>,
    /// Prepared, not all in bins: those from `taken` on still wait.
    pub(crate) prepared: Vec<Descriptor>,
    work: Vec<Work>,
    taken: usize,
}

impl Input {
    fn new(host_half: Option<Box<dyn HostHalf>>) -> Self {
        let arranges = host_half.as_ref().is_some_and(|host_half| host_half.arranges());
        let prepares = host_half.as_ref().is_some_and(|host_half| host_half.prepares());
        let hears = arranges && host_half.as_ref().is_some_and(|host_half| host_half.hears());
        Self { host_half, prepares, arranges, hears, ..Self::default() }
    }

    /// A packet is prepared.
    pub(crate) fn put(&mut self, packet: Descriptor, work: Work) {
        self.prepared.push(packet);
        self.work.push(work);
    }
}

/// What a worker leaves behind.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Whether it stopped because its sources had no more, and not because it was told to.
    pub(crate) ended: bool,
    pub(crate) latency: Histogram,
    pub(crate) function_latency: Vec<Histogram>,
    /// For each function the place that ran it at the end.
    pub(crate) placement: Vec<usize>,
    pub(crate) lost: Vec<LostPlace>,
    pub(crate) received: Vec<PortCounters>,
    pub(crate) transmitted: Vec<PortCounters>,
}

impl Worker {
    pub(crate) fn new(parts: WorkerParts) -> Self {
        let WorkerParts { plan, region, receivers, transmitters, host_halves, places, .. } = parts;
        let counts = Counts::new(plan.layout.len());
        Self {
            order: Order::new(parts.in_flight_packets, plan.gates.len()),
            function_latency: vec![Histogram::default(); plan.stages.len()],
            followed: Followed::default(),
            receivers: receivers.into_iter().map(|(port, queue)| Receiver { port, queue, ended: false }).collect(),
            exits: transmitters.iter().map(|(_, queue)| queue.is_some()).collect(),
            departing: Departing::new(transmitters.len()),
            egress: Egress::Own(Queues::new(transmitters, parts.clock)),
            sender: parts.sender,
            inputs: host_halves.into_iter().map(Input::new).collect(),
            batch: Batch::with_capacity(parts.burst_packets),
            burst_packets: parts.burst_packets,
            sleeps: parts.sleeps,
            settled: 0,
            settled_at: 0,
            grace: parts.grace,
            held: 0,
            packet_clock: parts.packet_clock,
            latest_ns: 0,
            flushing: false,
            clock: parts.clock,
            placement: plan.stages.iter().map(|stage| stage.places[0]).collect(),
            lost: Vec::new(),
            plan,
            region,
            places,
            counts,
        }
    }

    /// The host half of a function, where it has one.
    pub(crate) fn host_half(&mut self, function: usize) -> Option<&mut dyn HostHalf> {
        match &mut self.inputs[function].host_half {
            Some(host_half) => Some(&mut **host_half),
            None => None,
        }
    }

    /// Packets have gone through a function, in so long a time since they arrived there.
    pub(crate) fn record_latency(&mut self, function: usize, elapsed_ns: u64, packets: u64) {
        self.function_latency[function].record(elapsed_ns, packets);
    }

    /// The counters, for others to read.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Moves packets until all sources have ended, or `stop` is set; then flushes what is in flight.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> Result<Finished, Error> {
        if let (Some(SenderPlace { worker, cores }), Egress::Own(queues)) = (self.sender.take(), &mut self.egress) {
            let queues = std::mem::replace(queues, Queues::new(Vec::new(), self.clock));
            let sender = Sender::start(worker, cores, self.exits.len(), queues, self.region.borrower())?;
            self.egress = Egress::Sender(sender);
        }
        let mut idle_loops = 0;
        // Where the last turn began; the turn ends where the next one begins.
        let mut turned_ns = self.now_ns();
        let mut moved = false;
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            let now_ns = self.now_ns();
            self.counts.add(WORKED_NS, if moved { now_ns - turned_ns } else { 0 });
            turned_ns = now_ns;
            let received = self.receive(now_ns, stopping)?;
            let no_more = self.receivers.iter().all(|receiver| receiver.has_no_more(stopping));
            let worked = self.work(now_ns, received == 0, no_more)?;
            let sent = self.depart()?;
            self.counts.add(LOOPS, 1);
            moved = received > 0 || worked || sent > 0;
            if moved {
                idle_loops = 0;
            } else {
                let is_empty = self.order.in_flight() == 0 && self.held == 0;
                if no_more && is_empty && self.departing.is_empty() && self.egress.is_idle() {
                    break;
                }
                self.counts.add(IDLE_LOOPS, 1);
                idle_loops += 1;
                if idle_loops < IDLE_LOOPS_BEFORE_YIELD {
                    std::hint::spin_loop();
                } else if self.sleeps && is_empty && idle_loops > IDLE_LOOPS_BEFORE_SLEEP {
                    self.sleep();
                } else {
                    std::thread::yield_now();
                }
            }
            self.publish();
            // Behind the counters: who hears that packets are gone finds them counted.
            self.grace.turn(self.order.arrived(), self.order.passed());
        }
        let (transmitted, latency) = self.egress.finish()?;
        self.counts.set(HELD, self.held);
        self.counts.set(IN_FLIGHT, self.region.allocated() as u64 + self.held);
        self.counts.publish();
        Ok(Finished {
            ended: self.receivers.iter().all(|receiver| receiver.ended),
            latency,
            function_latency: self.function_latency,
            placement: self.placement,
            lost: self.lost,
            received: self.receivers.iter().map(|receiver| receiver.queue.counters()).collect(),
            transmitted,
        })
    }

    fn publish(&mut self) {
        self.counts.set(HELD, self.held);
        self.counts.set(IN_FLIGHT, self.region.allocated() as u64 + self.held);
        self.counts.publish();
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// Sleeps until a port has packets, or for a moment. Not where a source cannot wake.
    fn sleep(&self) {
        let open = self.receivers.iter().filter(|receiver| !receiver.ended);
        let wakes = open.map(|receiver| Some(PollFd::new(receiver.queue.wakes()?, PollFlags::POLLIN)));
        match wakes.collect::<Option<Vec<_>>>() {
            // An error shows when the port is asked.
            Some(mut ports) => drop(poll(&mut ports, SLEEP_MS)),
            None => std::thread::yield_now(),
        }
    }

    /// Takes one burst from every source and starts each packet on its chain.
    fn receive(&mut self, now_ns: u64, stopping: bool) -> Result<usize, Error> {
        let plan = Arc::clone(&self.plan);
        let mut batch = std::mem::take(&mut self.batch);
        let mut received = 0;
        for source in 0..self.receivers.len() {
            let room = self.order.room().min(self.burst_packets);
            let receiver = &mut self.receivers[source];
            if receiver.has_no_more(stopping) || room == 0 {
                continue;
            }
            batch.clear();
            let said = receiver.queue.receive(&mut self.region, &mut batch, room);
            let said = said.map_err(|source| Error::Port { port: receiver.port.clone(), source })?;
            receiver.ended = said == Received::Ended;
            received += batch.len();
            if self.packet_clock {
                self.latest_ns = batch.stamps.last().map_or(0, |stamp| stamp.time_ns).max(self.latest_ns);
            }
            self.order.arrive(&mut batch.descriptors, &batch.stamps, now_ns);
            self.start(&plan, &batch.descriptors);
        }
        self.counts.add(RECEIVED, received as u64);
        self.batch = batch;
        Ok(received)
    }

    /// Starts packets on their chains. Without class rules, packets of one port go the same way.
    fn start(&mut self, plan: &Plan, descriptors: &[Descriptor]) {
        if plan.classifier.is_trivial() {
            for run in descriptors.chunk_by(|one, next| one.port == next.port) {
                let next = plan.decider.entry(run[0].port, 0);
                self.send_on(plan, next, None, run, |_| Outcome::default());
            }
            return;
        }
        for descriptor in descriptors {
            let class = plan.classifier.classify(&godwit_wire::parse(self.region.frame(descriptor)));
            self.order.classify(descriptor, class);
            let next = plan.decider.entry(descriptor.port, class);
            self.send_on(plan, next, None, std::slice::from_ref(descriptor), |_| Outcome::default());
        }
    }

    /// Sends packets where the route decider says: all to the same place. `outcome(i)` is what `function` said of the `i`th.
    #[inline]
    fn send_on(
        &mut self,
        plan: &Plan,
        next: Next,
        function: Option<usize>,
        descriptors: &[Descriptor],
        outcome: impl Fn(usize) -> Outcome,
    ) {
        match next {
            Next::Function(next) => {
                let stage = &plan.stages[usize::from(next)];
                if let Some(gate) = stage.gate {
                    if !self.order.enter(gate, descriptors) {
                        descriptors.iter().for_each(|descriptor| self.order.wait(descriptor, gate));
                        return;
                    }
                } else if stage.progress > 0 {
                    descriptors.iter().for_each(|descriptor| self.order.advance(descriptor, stage.progress));
                }
                let input = &mut self.inputs[usize::from(next)];
                input.pending.extend_from_slice(descriptors);
                if input.hears {
                    let by = function.map(|function| plan.stages[function].function.contract());
                    input.said.extend((0..descriptors.len()).map(|packet| Said { by, outcome: outcome(packet) }));
                }
            }
            Next::Port(port) => self.send_out(plan, descriptors, u16::from(port)),
            Next::Egress => {
                for (packet, descriptor) in descriptors.iter().enumerate() {
                    let Outcome { port, value: set, .. } = outcome(packet);
                    match function {
                        Some(function) if port == PORT_FLOOD => {
                            self.order.wait_flood(descriptor, Flood { function, set });
                        }
                        _ => self.send_out(plan, std::slice::from_ref(descriptor), port),
                    }
                }
            }
            Next::Drop => descriptors.iter().for_each(|descriptor| self.drop_packet(descriptor, DROPPED_CHAIN)),
            Next::None => descriptors.iter().for_each(|descriptor| self.drop_packet(descriptor, DROPPED_UNROUTED)),
        }
    }

    #[inline]
    fn send_out(&mut self, plan: &Plan, descriptors: &[Descriptor], port: u16) {
        match self.exits.get(usize::from(port)) {
            Some(true) if plan.ordered[usize::from(port)] => self.order.wait_exit(descriptors, port as u8),
            Some(true) => descriptors.iter().for_each(|descriptor| self.send_at_once(descriptor, usize::from(port))),
            _ => descriptors.iter().for_each(|descriptor| self.drop_packet(descriptor, DROPPED_PORT)),
        }
    }

    /// Sends a packet by a port that keeps no order.
    fn send_at_once(&mut self, descriptor: &Descriptor, port: usize) {
        let (stamp, arrival_ns) = self.order.remembered(descriptor);
        self.order.leave(descriptor);
        self.departing.outs[port].push(Departure { descriptor: *descriptor, stamp });
        self.departing.arrived(arrival_ns, 1);
    }

    pub(crate) fn drop_packet(&mut self, descriptor: &Descriptor, reason: usize) {
        self.order.leave(descriptor);
        self.region.release(descriptor);
        self.counts.add(DROPPED, 1);
        self.counts.add(reason, 1);
    }

    /// Feeds functions and runs chunks until nothing moves any more. Returns whether anything did.
    ///
    /// `idle`: nothing arrived, so a device with nothing to do is not kept waiting for fuller bins or for the deadline.
    /// `flush`: nothing will ever arrive.
    fn work(&mut self, now_ns: u64, idle: bool, flush: bool) -> Result<bool, Error> {
        let plan = Arc::clone(&self.plan);
        let mut worked = false;
        self.flushing = flush;
        loop {
            // Functions come before those that follow them, so only what comes back from a device makes another round worth
            // while: what was fed has gone as far as it can.
            let mut moved = false;
            for &function in &plan.sequence {
                if let Some(gate) = plan.stages[function].gate {
                    self.order.open(gate, &mut self.inputs[function].pending);
                }
                worked |= self.feed(&plan, function, now_ns)?;
            }
            for place in 0..self.places.len() {
                while self.places[place].is_due(now_ns, idle, flush) {
                    if !self.submit(&plan, place, now_ns)? {
                        break;
                    }
                    moved = true;
                }
                moved |= self.fetch(&plan, place)?;
            }
            worked |= moved;
            if !moved {
                return Ok(worked);
            }
        }
    }

    /// Prepares what arrived at a function and puts it into bins. Stops where the packer takes no more.
    fn feed(&mut self, plan: &Plan, function: usize, now_ns: u64) -> Result<bool, Error> {
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
                        host_half.prepare(&self.region, &input.prepared, &mut input.work);
                        debug_assert_eq!(input.work.len(), input.prepared.len());
                    }
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
            let (taken, insert) = packer.insert_all(now_ns, stream, variant, &rest[..run], |_| 0);
            input.taken += taken;
            if matches!(insert, Insert::ChunkFull | Insert::Refused) {
                return true;
            }
        }
        while input.taken < input.prepared.len() {
            let (rest, work) = (&input.prepared[input.taken..], &input.work[input.taken..]);
            let (taken, insert) = match work[0] {
                Work::Run { variant, parameter } => {
                    let packer = &mut self.places[place].packer;
                    let same = |work: &Work| matches!(work, Work::Run { variant: other, .. } if *other == variant);
                    let run = work.iter().position(|work| !same(work)).unwrap_or(work.len());
                    let stream = stream_of(&self.order, &rest[0]);
                    let run = run_of(&self.order, &rest[..run], stream);
                    if run < RUN_PACKETS_MIN {
                        let first = &rest[0];
                        let insert = packer.insert(now_ns, stream, variant, first, parameter);
                        (usize::from(insert != Insert::Refused), insert)
                    } else {
                        let work = &work[..run];
                        packer.insert_all(now_ns, stream, variant, &rest[..run], |packet| match work[packet] {
                            Work::Run { parameter, .. } => parameter,
                            Work::Done(_) => unreachable!("a run is of packets to run"),
                        })
                    }
                }
                Work::Done(outcome) => {
                    self.counts.add(stage.counters.plain(SETTLED), 1);
                    self.decide(plan, function, &rest[..1], &[outcome]);
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
        let mut decided = 0;
        let chain = plan.chains[place].as_deref().filter(|_| chunk.followed);
        for index in 0..chunk.bins.len() {
            let (bin, bytes) = (&chunk.bins[index], &chunk.bin_bytes[index]);
            let function = usize::from(bin.instance);
            let counters = plan.stages[function].counters;
            self.counts.add(counters.plain(PACKETS), bin.count.into());
            self.counts.add(counters.plain(BYTES), *bytes);
            self.counts.add(counters.plain(BINS), 1);
            self.function_latency[function].record(elapsed_ns, u64::from(bin.count));
            if let Some(chain) = chain.filter(|chain| chain.leads(function)) {
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

    /// Counts what a function said of packets, and sends them on.
    pub(crate) fn decide(&mut self, plan: &Plan, function: usize, descriptors: &[Descriptor], outcomes: &[Outcome]) {
        let counters = plan.stages[function].counters;
        let mut first = 0;
        for run in outcomes.chunk_by(|one, next| one.verdict == next.verdict) {
            let (verdict, descriptors) = (run[0].verdict, &descriptors[first..first + run.len()]);
            first += run.len();
            if verdict == VERDICT_DROP {
                for (descriptor, outcome) in descriptors.iter().zip(run) {
                    self.drop_packet(descriptor, counters.drop(outcome.reason));
                }
                continue;
            }
            self.counts.add(counters.verdict(verdict), run.len() as u64);
            if plan.classifier.is_trivial() {
                let next = plan.decider.next(function as u16, 0, verdict);
                self.send_on(plan, next, Some(function), descriptors, |packet| run[packet]);
                continue;
            }
            for (descriptor, outcome) in descriptors.iter().zip(run) {
                let next = plan.decider.next(function as u16, self.order.class(descriptor), verdict);
                self.send_on(plan, next, Some(function), std::slice::from_ref(descriptor), |_| *outcome);
            }
        }
    }

    /// No packet that comes from now on has a lower sequence number.
    pub(crate) fn sequence_next(&self) -> u64 {
        self.receivers.iter().map(|receiver| receiver.queue.sequence_next()).min().unwrap_or(u64::MAX)
    }

    /// Lets packets out whose turn it is. Returns how many left.
    fn depart(&mut self) -> Result<usize, Error> {
        let Departing { outs, arrivals } = &mut self.departing;
        let mut flooder =
            Flooder { plan: &self.plan, region: &mut self.region, exits: &self.exits, counts: &mut self.counts };
        self.order.open_exit(
            outs,
            |arrival_ns, packets| arrivals.push((arrival_ns, packets)),
            |flood, departure, outs| flooder.flood(flood, departure, outs),
        );
        // Drops count too: a worker that only drops must not hold back what others wait to write.
        let passed = self.order.passed();
        if passed != self.settled_at || self.order.in_flight() == 0 {
            self.settled_at = passed;
            self.settled = self.sequence_next().min(self.order.sequence_min(self.receivers.len() > 1));
        }
        let sent = self.egress.send(&mut self.region, &mut self.departing, self.settled)?;
        self.counts.add(SENT, sent.accepted as u64);
        self.counts.add(DROPPED, sent.refused as u64);
        self.counts.add(DROPPED_REFUSED, sent.refused as u64);
        Ok(sent.accepted + sent.refused)
    }
}

//! One worker: the loop that takes packets from its queues through the chain and out again.
//!
//! ```text
//! receive -> classify -> [gate] -> prepare -> packer -> lane -> outcomes -> next function ... -> exit -> transmit
//!  Order::arrive  start()        feed()    pack()  submit()  complete()  decide(), send_on()       depart()
//! `------ here ------'`--------------------- bins.rs ------------------'`---- onward.rs ----'`------ here ------'
//! ```
//! Everything a worker touches is its own. A turn of the loop takes one burst from every port and works until
//! nothing moves; with a device that answers later, the answers are fetched in later turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use godwit_function::HostHalf;
use godwit_io::{PortCounters, Receive, Received};
use godwit_packet::{Batch, Region};
use nix::poll::{PollFd, PollFlags, poll};

use crate::Error;
use crate::bins::Input;
use crate::change::Change;
use crate::counters::{
    Counts, DROPPED, DROPPED_REFUSED, HELD, IDLE_LOOPS, IN_FLIGHT, LOOPS, RECEIVED, SENT, WORKED_NS,
};
use crate::device_chain::Followed;
use crate::egress::{Departing, Egress, Queues};
use crate::failover::{LostPlace, Place};
use crate::flood::Flooder;
use crate::grace::Grace;
use crate::histogram::Histogram;
use crate::order::Order;
use crate::parting::Parting;
use crate::plan::Plan;
use crate::ports::{NamedReceive, NamedTransmit};
use crate::sender::Sender;
use crate::trace::{Origin, Tracer};

/// Turns without a packet before the worker lets others have the core.
const IDLE_LOOPS_BEFORE_YIELD: u32 = 64;
/// Turns without a packet before the worker sleeps, where it may: about what waking up costs.
const IDLE_LOOPS_BEFORE_SLEEP: u32 = 256;
/// Longest sleep: others than ports have something to say too.
const SLEEP_MS: u8 = 1;

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
    pub(crate) tracer: Tracer,
    pub(crate) change: Change,
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
    pub(crate) plan: Arc<Plan>,
    pub(crate) region: Region,
    pub(crate) order: Order,
    receivers: Vec<Receiver>,
    /// Whether packets can leave by each port.
    pub(crate) exits: Vec<bool>,
    pub(crate) departing: Departing,
    egress: Egress,
    pub(crate) parting: Parting,
    /// Where its sender is to be started.
    sender: Option<SenderPlace>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) places: Vec<Place>,
    /// For each function the place that runs it now.
    pub(crate) placement: Vec<usize>,
    /// Devices that this worker has given up.
    pub(crate) lost: Vec<LostPlace>,
    batch: Batch,
    pub(crate) counts: Counts,
    pub(crate) function_latency: Vec<Histogram>,
    pub(crate) followed: Followed,
    burst_packets: usize,
    sleeps: bool,
    /// All packets with a lower sequence number have passed the exit, or were dropped.
    settled: u64,
    /// What the exit had passed when that was found out.
    settled_at: usize,
    grace: Grace,
    pub(crate) tracer: Tracer,
    pub(crate) change: Change,
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
            parting: Parting::default(),
            sender: parts.sender,
            inputs: host_halves.into_iter().map(Input::new).collect(),
            batch: Batch::with_capacity(parts.burst_packets),
            burst_packets: parts.burst_packets,
            sleeps: parts.sleeps,
            settled: 0,
            settled_at: 0,
            grace: parts.grace,
            tracer: parts.tracer,
            change: parts.change,
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
        // Counted anew for every plan and not in every turn: the count is on a cache line that all workers want.
        let mut plan = Arc::clone(&self.plan);
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            let now_ns = self.now_ns();
            self.counts.add(WORKED_NS, if moved { now_ns - turned_ns } else { 0 });
            turned_ns = now_ns;
            self.look_for_plan(now_ns)?;
            if !Arc::ptr_eq(&plan, &self.plan) {
                plan = Arc::clone(&self.plan);
            }
            self.tracer.turn();
            let received = self.receive(&plan, now_ns, stopping)?;
            let no_more = self.receivers.iter().all(|receiver| receiver.has_no_more(stopping));
            let worked = self.work(&plan, now_ns, received == 0, no_more)?;
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
    fn receive(&mut self, plan: &Plan, now_ns: u64, stopping: bool) -> Result<usize, Error> {
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
            if !self.change.hold(&batch.descriptors) {
                if self.tracer.is_choosing() {
                    let (region, origin) = (&self.region, &Origin::Port);
                    self.tracer.choose(plan, region, &batch.descriptors, &batch.stamps, now_ns, origin);
                }
                self.start(plan, &batch.descriptors);
            }
        }
        self.counts.add(RECEIVED, received as u64);
        self.batch = batch;
        Ok(received)
    }

    /// Feeds functions and runs chunks until nothing moves any more. Returns whether anything did.
    ///
    /// `idle`: nothing arrived, so a device with nothing to do is not kept waiting for fuller bins or for the deadline.
    /// `no_more`: nothing will ever arrive.
    fn work(&mut self, plan: &Plan, now_ns: u64, idle: bool, no_more: bool) -> Result<bool, Error> {
        let mut worked = false;
        self.flushing = no_more;
        let flush = no_more || self.change.drains();
        loop {
            // Functions come before those that follow them, so only what comes back from a device makes another round worth
            // while: what was fed has gone as far as it can.
            let mut moved = false;
            for &function in &plan.sequence {
                if let Some(gate) = plan.stages[function].gate {
                    self.order.open(gate, &mut self.inputs[function].pending);
                }
                worked |= self.feed(plan, function, now_ns)?;
            }
            for place in 0..self.places.len() {
                while self.places[place].is_due(now_ns, idle, flush) {
                    if !self.submit(plan, place, now_ns)? {
                        break;
                    }
                    moved = true;
                    // Chunks that are never full have a device of their own choice too.
                    plan.sequence.iter().for_each(|&function| _ = self.spread(plan, function));
                }
                moved |= self.fetch(plan, place)?;
            }
            worked |= moved;
            if !moved {
                return Ok(worked);
            }
        }
    }

    /// No packet that comes from now on has a lower sequence number.
    pub(crate) fn sequence_next(&self) -> u64 {
        self.receivers.iter().map(|receiver| receiver.queue.sequence_next()).min().unwrap_or(u64::MAX)
    }

    /// Lets packets out whose turn it is. Returns how many left.
    pub(crate) fn depart(&mut self) -> Result<usize, Error> {
        let Departing { outs, arrivals } = &mut self.departing;
        let mut flooder = Flooder {
            plan: &self.plan,
            region: &mut self.region,
            exits: &self.exits,
            counts: &mut self.counts,
            tracer: &mut self.tracer,
        };
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
        if self.tracer.follows() {
            self.tracer.leaving(&self.region, &self.departing.outs);
        }
        let sent = self.egress.send(&mut self.region, &mut self.departing, self.settled)?;
        if self.tracer.sees_off() && self.departing.is_empty() {
            self.tracer.gone(matches!(self.egress, Egress::Sender(_)), sent);
        }
        self.counts.add(SENT, sent.accepted as u64);
        self.counts.add(DROPPED, sent.refused as u64);
        self.counts.add(DROPPED_REFUSED, sent.refused as u64);
        Ok(sent.accepted + sent.refused)
    }
}

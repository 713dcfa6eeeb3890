//! A worker: the loop that receives packets, runs them through the chain, and transmits them.
//!
//! ```text
//! step                        function               file
//! receive                     receive()              mod.rs
//! classify, go to a function  start()                onward.rs
//! pass the gate, if any       Order::open()          order.rs
//! prepare                     feed()                 bins.rs
//! put into bins               pack()                 bins.rs
//! submit to the device        submit()               bins.rs
//! fetch and complete          fetch(), complete()    bins.rs
//! go to the next stage        decide(), send_on()    onward.rs
//! pass the exit, transmit     depart()               mod.rs
//! ```
//! The steps from the gate to the next stage repeat for each function of the chain.
//!
//! A worker shares no mutable data with other workers on the packet path. One loop iteration
//! receives one burst per port and works until nothing moves. An asynchronous device returns its
//! chunks in later iterations.

pub(crate) mod arrange;
pub(crate) mod bins;
pub(crate) mod egress;
pub(crate) mod flood;
pub(crate) mod onward;
pub(crate) mod order;
pub(crate) mod partition;
pub(crate) mod sender;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use godwit_function::HostHalf;
use godwit_io::{PortCounters, Receive, Received};
use godwit_packet::{Batch, Region};
use nix::poll::{PollFd, PollFlags, poll};

use crate::control::ports::{NamedReceive, NamedTransmit};
use crate::error::Error;
use crate::observe::counters::{
    Counts, DROPPED, DROPPED_REFUSED, HELD, IDLE_LOOPS, IN_FLIGHT, LOOPS, RECEIVED, SENT, WORKED_NS,
};
use crate::observe::histogram::Histogram;
use crate::observe::observer::Observer;
use crate::path::bins::Input;
use crate::path::egress::{Departing, Egress, Queues};
use crate::path::flood::Flooder;
use crate::path::order::Order;
use crate::path::partition::Partition;
use crate::path::sender::Sender;
use crate::place::device_chain::ChainScratch;
use crate::place::failover::{DeviceLoss, WorkerDevice};
use crate::plan::chain_plan::ChainPlan;
use crate::plan::change::WorkerChange;
use crate::plan::grace::WorkerGrace;

/// Idle loop iterations before the worker yields its core.
const IDLE_LOOPS_BEFORE_YIELD: u32 = 64;
/// Idle loop iterations before the worker sleeps, if the configuration allows it. That many
/// iterations take about as long as a wake-up.
const IDLE_LOOPS_BEFORE_SLEEP: u32 = 256;
/// Maximum sleep of an idle worker, in milliseconds. Only ports wake a sleeping worker, so it must
/// poll everything else.
const SLEEP_MS: u8 = 1;

/// Parts from which a worker is built.
pub(crate) struct WorkerParts {
    pub(crate) plan: Arc<ChainPlan>,
    pub(crate) region: Region,
    /// Receive queues, one per source.
    pub(crate) receivers: Vec<NamedReceive>,
    /// Transmit queues, one per port.
    pub(crate) transmitters: Vec<NamedTransmit>,
    /// Host halves, one per function. `None`: the function has no host half.
    pub(crate) host_halves: Vec<Option<Box<dyn HostHalf>>>,
    /// Devices of the worker. The index of the CPU is [`crate::place::failover::LAST_RESORT`].
    pub(crate) devices: Vec<WorkerDevice>,
    pub(crate) burst_packets: usize,
    pub(crate) in_flight_packets: usize,
    /// Whether the worker sleeps when it is idle.
    pub(crate) sleeps: bool,
    /// Configuration of the sender thread. `None`: the worker transmits.
    pub(crate) sender: Option<SenderConfig>,
    /// Whether host halves use the timestamps of packets as their clock, as in a replay.
    pub(crate) packet_clock: bool,
    pub(crate) grace: WorkerGrace,
    pub(crate) observer: Observer,
    pub(crate) change: WorkerChange,
    pub(crate) clock: Instant,
}

/// Configuration of a worker's sender thread.
pub(crate) struct SenderConfig {
    pub(crate) worker: usize,
    /// Cores to which the thread is pinned. `None`: not pinned.
    pub(crate) cores: Option<Vec<usize>>,
}

/// A worker with everything that its loop uses.
pub(crate) struct Worker {
    pub(crate) plan: Arc<ChainPlan>,
    pub(crate) region: Region,
    pub(crate) order: Order,
    receivers: Vec<Receiver>,
    /// Whether each port can transmit.
    pub(crate) exits: Vec<bool>,
    pub(crate) departing: Departing,
    egress: Egress,
    pub(crate) partition: Partition,
    /// Configuration of the sender thread until the worker starts it.
    sender: Option<SenderConfig>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) devices: Vec<WorkerDevice>,
    /// Device that currently runs each function.
    pub(crate) placement: Vec<usize>,
    /// Devices that this worker no longer uses.
    pub(crate) lost: Vec<DeviceLoss>,
    batch: Batch,
    pub(crate) counts: Counts,
    pub(crate) function_latency: Vec<Histogram>,
    pub(crate) chain_scratch: ChainScratch,
    burst_packets: usize,
    sleeps: bool,
    /// Sequence number below which all packets have passed the exit or are dropped.
    settled: u64,
    /// Number of order-ring slots that the exit had passed when the settled sequence number was
    /// computed.
    settled_at: usize,
    grace: WorkerGrace,
    pub(crate) observer: Observer,
    pub(crate) change: WorkerChange,
    /// Number of packets that host halves hold outside the arena.
    pub(crate) held: u64,
    pub(crate) packet_clock: bool,
    /// Latest timestamp of all received packets, in nanoseconds.
    pub(crate) latest_ns: u64,
    /// Whether no packet can arrive any more.
    pub(crate) flushing: bool,
    clock: Instant,
}

struct Receiver {
    port: String,
    queue: Box<dyn Receive>,
    ended: bool,
}

impl Receiver {
    /// Returns whether the queue has no more packets for the worker. A live port still delivers its
    /// queued packets after a stop.
    fn has_no_more(&self, stopping: bool) -> bool {
        self.ended || (stopping && !self.queue.is_live())
    }
}

/// Results of a worker that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Whether the worker ended because all sources ended, not because of a stop.
    pub(crate) ended: bool,
    pub(crate) latency: Histogram,
    pub(crate) function_latency: Vec<Histogram>,
    /// Device that ran each function at the end.
    pub(crate) placement: Vec<usize>,
    pub(crate) lost: Vec<DeviceLoss>,
    pub(crate) received: Vec<PortCounters>,
    pub(crate) transmitted: Vec<PortCounters>,
}

impl Worker {
    pub(crate) fn new(parts: WorkerParts) -> Self {
        let WorkerParts { plan, region, receivers, transmitters, host_halves, devices, .. } = parts;
        let counts = Counts::new(plan.layout.len());
        Self {
            order: Order::new(parts.in_flight_packets, plan.gates.len()),
            function_latency: vec![Histogram::default(); plan.stages.len()],
            chain_scratch: ChainScratch::default(),
            receivers: receivers.into_iter().map(|(port, queue)| Receiver { port, queue, ended: false }).collect(),
            exits: transmitters.iter().map(|(_, queue)| queue.is_some()).collect(),
            departing: Departing::new(transmitters.len()),
            egress: Egress::Own(Queues::new(transmitters, parts.clock)),
            partition: Partition::default(),
            sender: parts.sender,
            inputs: host_halves.into_iter().map(Input::new).collect(),
            batch: Batch::with_capacity(parts.burst_packets),
            burst_packets: parts.burst_packets,
            sleeps: parts.sleeps,
            settled: 0,
            settled_at: 0,
            grace: parts.grace,
            observer: parts.observer,
            change: parts.change,
            held: 0,
            packet_clock: parts.packet_clock,
            latest_ns: 0,
            flushing: false,
            clock: parts.clock,
            placement: plan.stages.iter().map(|stage| stage.devices[0]).collect(),
            lost: Vec::new(),
            plan,
            region,
            devices,
            counts,
        }
    }

    /// Returns the host half of `function`, if it has one.
    pub(crate) fn host_half(&mut self, function: usize) -> Option<&mut dyn HostHalf> {
        match &mut self.inputs[function].host_half {
            Some(host_half) => Some(&mut **host_half),
            None => None,
        }
    }

    /// Adds the latency of `packets` packets at `function` to its histogram. `elapsed_ns` is the
    /// time since their chunk was opened.
    pub(crate) fn record_latency(&mut self, function: usize, elapsed_ns: u64, packets: u64) {
        self.function_latency[function].record(elapsed_ns, packets);
    }

    /// Returns the worker's counters.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Runs the loop until all sources have ended or `stop` is set, then drains packets in flight.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> Result<Finished, Error> {
        if let (Some(SenderConfig { worker, cores }), Egress::Own(queues)) = (self.sender.take(), &mut self.egress) {
            let queues = std::mem::replace(queues, Queues::new(Vec::new(), self.clock));
            let sender = Sender::start(worker, cores, self.exits.len(), queues, self.region.borrower())?;
            self.egress = Egress::Sender(sender);
        }
        let mut idle_loops = 0;
        // Start time of the last loop iteration. An iteration ends when the next one starts.
        let mut iteration_start_ns = self.now_ns();
        let mut moved = false;
        // This clone is replaced once per plan change, not once per iteration. All workers write
        // its reference count, so a clone per iteration would move the cache line between cores.
        let mut plan = Arc::clone(&self.plan);
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            let now_ns = self.now_ns();
            self.counts.add(WORKED_NS, if moved { now_ns - iteration_start_ns } else { 0 });
            iteration_start_ns = now_ns;
            self.look_for_plan(now_ns)?;
            if !Arc::ptr_eq(&plan, &self.plan) {
                plan = Arc::clone(&self.plan);
            }
            self.observer.poll();
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
            // Publish the counters first. A thread that sees the grace period end must also see the
            // final counts.
            self.grace.poll(self.order.arrived(), self.order.passed());
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

    /// Sleeps until a port has packets or [`SLEEP_MS`] has passed. If a source cannot wake the
    /// worker, only yields the core.
    fn sleep(&self) {
        let open = self.receivers.iter().filter(|receiver| !receiver.ended);
        let wakes = open.map(|receiver| Some(PollFd::new(receiver.queue.wakes()?, PollFlags::POLLIN)));
        match wakes.collect::<Option<Vec<_>>>() {
            // The next receive call reports any error of the port.
            Some(mut ports) => drop(poll(&mut ports, SLEEP_MS)),
            None => std::thread::yield_now(),
        }
    }

    /// Receives one burst from every source and starts each packet on its chain. Returns the number
    /// of received packets.
    fn receive(&mut self, plan: &ChainPlan, now_ns: u64, stopping: bool) -> Result<usize, Error> {
        let mut batch = std::mem::take(&mut self.batch);
        let mut received = 0;
        for source in 0..self.receivers.len() {
            let room = self.order.room().min(self.burst_packets);
            let receiver = &mut self.receivers[source];
            if receiver.has_no_more(stopping) || room == 0 {
                continue;
            }
            batch.clear();
            let result = receiver.queue.receive(&mut self.region, &mut batch, room);
            let result = result.map_err(|source| Error::Port { port: receiver.port.clone(), source })?;
            receiver.ended = result == Received::Ended;
            received += batch.len();
            if self.packet_clock {
                self.latest_ns = batch.stamps.last().map_or(0, |stamp| stamp.time_ns).max(self.latest_ns);
            }
            self.order.arrive(&mut batch.descriptors, &batch.stamps, now_ns);
            if !self.change.hold(&batch.descriptors) {
                self.observer.arrived(plan, &self.region, &batch.descriptors, &batch.stamps, now_ns);
                self.start(plan, &batch.descriptors);
            }
        }
        self.counts.add(RECEIVED, received as u64);
        self.batch = batch;
        Ok(received)
    }

    /// Feeds functions and runs chunks until nothing moves. Returns whether anything moved.
    ///
    /// `idle` states that no packet arrived. A device without chunks in flight then gets its chunk
    /// at once, before the chunk is full or its deadline is reached. `no_more` states that no
    /// packet can arrive any more.
    fn work(&mut self, plan: &ChainPlan, now_ns: u64, idle: bool, no_more: bool) -> Result<bool, Error> {
        let mut worked = false;
        self.flushing = no_more;
        let flush = no_more || self.change.drains();
        loop {
            // A pass over `sequence` moves packets as far as possible, because each function
            // precedes those that follow it. Only packets that return from a device make another
            // pass useful.
            let mut moved = false;
            for &function in &plan.sequence {
                if let Some(gate) = plan.stages[function].gate {
                    self.order.open(gate, &mut self.inputs[function].pending);
                }
                worked |= self.feed(plan, function, now_ns)?;
            }
            for device in 0..self.devices.len() {
                while self.devices[device].is_due(now_ns, idle, flush) {
                    if !self.submit(plan, device, now_ns)? {
                        break;
                    }
                    moved = true;
                    // After each submission, choose the device for the next chunk of every
                    // function, even if the chunk was not full.
                    plan.sequence.iter().for_each(|&function| _ = self.balance(plan, function));
                }
                moved |= self.fetch(plan, device)?;
            }
            worked |= moved;
            if !moved {
                return Ok(worked);
            }
        }
    }

    /// Returns a lower bound for the sequence numbers of all packets that arrive from now on.
    pub(crate) fn sequence_next(&self) -> u64 {
        self.receivers.iter().map(|receiver| receiver.queue.sequence_next()).min().unwrap_or(u64::MAX)
    }

    /// Transmits the packets that may leave in arrival order. Returns the number of packets that
    /// were sent or refused.
    pub(crate) fn depart(&mut self) -> Result<usize, Error> {
        let Departing { outs, arrivals } = &mut self.departing;
        let mut flooder = Flooder {
            plan: &self.plan,
            region: &mut self.region,
            exits: &self.exits,
            counts: &mut self.counts,
            observer: &mut self.observer,
        };
        self.order.open_exit(
            outs,
            |arrival_ns, packets| arrivals.push((arrival_ns, packets)),
            |flood, departure, outs| flooder.flood(flood, departure, outs),
        );
        // Dropped packets count too. A capture that merges the packets of all workers would
        // otherwise wait for a worker that only drops.
        let passed = self.order.passed();
        if passed != self.settled_at || self.order.in_flight() == 0 {
            self.settled_at = passed;
            self.settled = self.sequence_next().min(self.order.sequence_min(self.receivers.len() > 1));
        }
        self.observer.departing(&self.region, &self.departing.outs);
        let sent = self.egress.send(&mut self.region, &mut self.departing, self.settled)?;
        if self.observer.has_departing() && self.departing.is_empty() {
            self.observer.departed(matches!(self.egress, Egress::Sender(_)), sent.accepted, sent.refused);
        }
        self.counts.add(SENT, sent.accepted as u64);
        self.counts.add(DROPPED, sent.refused as u64);
        self.counts.add(DROPPED_REFUSED, sent.refused as u64);
        Ok(sent.accepted + sent.refused)
    }
}

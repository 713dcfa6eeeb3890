//! A worker: six parts, and the loop that connects them. A packet passes the parts in this order:
//!
//! ```text
//!  part      file         work
//!  intake    intake.rs    receives packets from ports, and assigns slots of the order ring
//!  classify  classify.rs  determines the class, and the first function or port
//!  feed      feed.rs      collects packets for a function, prepares them, puts them into batches
//!  collect   collect.rs   submits batches to devices, and completes finished batches
//!  route     route.rs     determines the next function (feed again) or port (exit)
//!  exit      exit.rs      restores the arrival order, and transmits
//! ```
//! Each part owns its state. All parts share [`Core`](core::Core). No part calls another: a part
//! returns packets to the loop in this file, which passes them to the next part.
//!
//! A worker shares no mutable data with other workers on the packet path, except for the rings of
//! `exchange.rs`. One loop iteration
//! receives one burst per port and works until nothing moves. An asynchronous device returns
//! packets in later iterations.

pub(crate) mod arrange;
pub(crate) mod chained;
pub(crate) mod classify;
pub(crate) mod collect;
pub(crate) mod core;
pub(crate) mod device;
pub(crate) mod egress;
pub(crate) mod exchange;
pub(crate) mod exit;
pub(crate) mod feed;
pub(crate) mod flood;
pub(crate) mod guard;
pub(crate) mod intake;
pub(crate) mod order;
pub(crate) mod partition;
pub(crate) mod publisher;
pub(crate) mod route;
pub(crate) mod sender;
#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use godwit_chain::Next;
use godwit_function::HostHalf;
use godwit_packet::Region;
use godwit_sched::Chunk;

use crate::error::Error;
use crate::observe::counters::{DROPPED_CHAIN, DROPPED_UNROUTED, EXCHANGED, IDLE_LOOPS, LOOPS, WORKED_NS};
use crate::observe::observer::Observer;
use crate::observe::view::WorkerView;
use crate::path::arrange::FRAGMENTS_MAX;
use crate::path::classify::Classify;
use crate::path::collect::{Collect, Polled};
use crate::path::core::{Core, Iteration};
use crate::path::device::WorkerDevice;
use crate::path::egress::NamedTransmit;
use crate::path::exchange::Exchange;
use crate::path::exit::Exit;
use crate::path::feed::Feed;
use crate::path::guard::Guard;
use crate::path::intake::{Intake, NamedReceive};
use crate::path::partition::Group;
use crate::path::route::Route;
use crate::path::sender::SenderConfig;
use crate::place::LAST_RESORT;
use crate::place::follow::Follower;
use crate::plan::chain_plan::ChainPlan;
use crate::plan::change::WorkerChange;
use crate::plan::grace::WorkerGrace;

const IDLE_LOOPS_BEFORE_YIELD: u32 = 64;
/// Number of idle loop iterations before the worker sleeps, if the configuration allows it. They
/// take about as long as the operating system needs to wake a thread.
const IDLE_LOOPS_BEFORE_SLEEP: u32 = 256;
/// Number of idle loop iterations after which packets no longer wait for buffers. The packets that
/// should free these buffers are stuck.
const IDLE_LOOPS_BEFORE_STALL: u32 = 20_000;
/// The reserve for copies and fragments is the number of free buffers divided by this number.
const RESERVE_SHARE: usize = 8;
const RESERVE_PACKETS_MAX: usize = 1024;
/// Number of completed packets after which the worker transmits them. Otherwise, further packets of
/// a large submission would displace them from the CPU cache.
const DEPART_PACKETS: usize = 512;

/// Components and settings from which a worker is built.
pub(crate) struct WorkerConfig {
    pub(crate) plan: Arc<ChainPlan>,
    pub(crate) region: Region,
    /// Receive queues, one per source.
    pub(crate) receivers: Vec<NamedReceive>,
    /// Rings to and from other workers, or `None` if every packet arrives at its worker.
    pub(crate) exchange: Option<Exchange>,
    /// Transmit queues, one per port.
    pub(crate) transmitters: Vec<NamedTransmit>,
    /// CPU part of each function. The entry is `None` if the function has no such part.
    pub(crate) host_halves: Vec<Option<HostHalf>>,
    /// Devices of the worker. The CPU has the index [`LAST_RESORT`].
    pub(crate) devices: Vec<WorkerDevice>,
    /// Placement that the worker follows, if one is configured.
    pub(crate) follower: Option<Follower>,
    pub(crate) burst_packets: usize,
    pub(crate) in_flight_packets: usize,
    /// Whether the worker sleeps when it is idle.
    pub(crate) sleeps: bool,
    /// Configuration of the sender thread. If it is `None`, the worker transmits the packets.
    pub(crate) sender: Option<SenderConfig>,
    /// Whether functions use the timestamps of packets as their clock, as in a replay.
    pub(crate) packet_clock: bool,
    pub(crate) grace: WorkerGrace,
    pub(crate) observer: Observer,
    pub(crate) change: WorkerChange,
    pub(crate) clock: Instant,
}

/// A worker thread of the dataplane. It consists of six components, their shared state, and the
/// requests of the control thread.
pub(crate) struct Worker {
    core: Core,
    intake: Intake,
    classify: Classify,
    feed: Feed,
    collect: Collect,
    route: Route,
    exit: Exit,
    change: WorkerChange,
    grace: WorkerGrace,
    /// Whether the worker sleeps when it is idle.
    sleeps: bool,
    sender: Option<SenderConfig>,
}

/// Results of a worker that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Whether all packet sources ended. Otherwise, the worker was told to stop.
    pub(crate) ended: bool,
    /// Device that ran each function at the end.
    pub(crate) placement: Vec<usize>,
}

impl Worker {
    pub(crate) fn new(config: WorkerConfig) -> Self {
        let allowed = config.plan.stages.iter().map(|stage| stage.devices.clone()).collect();
        let mut region = config.region;
        let arranges = config.host_halves.iter().flatten().any(HostHalf::arranges);
        let reserve = reserve(&config.plan, &region, arranges);
        region.set_reserve(reserve);
        // Files and generators can wait until buffers are free, but frames of live ports would be
        // lost.
        let waits = config.receivers.iter().all(|(_, queue)| !queue.is_live());
        let exit_waits = waits && reserve >= config.transmitters.len();
        let feed_waits = waits && reserve >= FRAGMENTS_MAX;
        let guard = Guard::new(config.plan.stages.iter().map(|stage| &stage.function));
        Self {
            intake: Intake::new(config.receivers, guard, config.exchange, config.burst_packets, config.packet_clock),
            classify: Classify::default(),
            feed: Feed::new(&config.plan, config.host_halves, feed_waits),
            collect: Collect::new(config.devices, allowed, config.follower),
            route: Route::default(),
            exit: Exit::new(config.transmitters, exit_waits, config.clock),
            core: Core::new(config.plan, region, config.in_flight_packets, config.observer, config.clock),
            change: config.change,
            grace: config.grace,
            sleeps: config.sleeps,
            sender: config.sender,
        }
    }

    /// Returns the values that other threads read while the worker runs.
    pub(crate) fn view(&self) -> WorkerView {
        WorkerView {
            counters: self.core.counts.shared(),
            latency: self.exit.latency(),
            function_latency: self.collect.latency(),
            received: self.intake.published(),
            transmitted: self.exit.published(),
            lost: self.collect.lost(),
            meter: self.collect.meter(),
        }
    }

    /// Runs the worker's loop until all packet sources have ended or `stop` is set. Then processes
    /// the packets in flight, and returns the results.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> Result<Finished, Error> {
        if let Some(config) = self.sender.take() {
            self.exit.start_sender(&self.core, config)?;
        }
        let mut idle_loops = 0;
        let mut iteration_start_ns = self.core.now_ns();
        let mut moved = false;
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            let now_ns = self.core.now_ns();
            self.core.counts.add(WORKED_NS, if moved { now_ns - iteration_start_ns } else { 0 });
            self.core.counts.add(LOOPS, 1);
            iteration_start_ns = now_ns;
            moved = self.iterate(now_ns, stopping, idle_loops)?;
            if moved {
                idle_loops = 0;
            } else {
                let is_empty = self.core.order.in_flight() == 0 && self.core.held == 0;
                if is_empty && self.intake.has_no_more(stopping) && self.intake.is_settled() && self.exit.is_idle() {
                    break;
                }
                self.core.counts.add(IDLE_LOOPS, 1);
                idle_loops += 1;
                self.pause(idle_loops, is_empty);
            }
            self.core.publish();
            // The counters come first, because a thread that sees the end of a grace period must
            // see the final counts.
            self.grace.poll(self.core.order.arrived(), self.core.order.passed());
        }
        self.finish()
    }

    /// Runs one loop iteration. Returns whether any packet moved. `idle_loops` is the number of
    /// preceding iterations without a moved packet.
    fn iterate(&mut self, now_ns: u64, stopping: bool, idle_loops: u32) -> Result<bool, Error> {
        if self.change.is_requested() {
            self.change_plan(now_ns)?;
        }
        self.core.observer.poll();
        let received = self.receive(now_ns, stopping)?;
        if self.collect.turn(&self.core, now_ns, received) {
            self.follow_placement(now_ns)?;
        }
        self.intake.publish_at(now_ns);
        let iteration = Iteration {
            now_ns,
            packets_ns: self.intake.packets_ns(now_ns),
            is_replay: self.intake.has_packet_clock(),
            sequence_next: if self.feed.arranges() { self.intake.sequence_next() } else { 0 },
            is_idle: received == 0,
            is_last: self.intake.has_no_more(stopping),
            drains: self.change.drains(),
        };
        if idle_loops == IDLE_LOOPS_BEFORE_STALL && self.core.order.in_flight() > 0 {
            self.stop_waiting();
        }
        let worked = self.work(&iteration)?;
        let departed = self.depart()?;
        Ok(received > 0 || worked || departed > 0)
    }

    /// Ends the wait for free buffers if no packet in flight can free a buffer. Packets on a device
    /// or in the sender thread can still free buffers.
    #[cold]
    fn stop_waiting(&mut self) {
        if self.collect.is_empty() && self.exit.is_idle() {
            self.exit.stop_waiting();
            self.feed.waits = false;
            self.feed.settles = false;
        }
    }

    fn pause(&self, idle_loops: u32, is_empty: bool) {
        if idle_loops < IDLE_LOOPS_BEFORE_YIELD {
            std::hint::spin_loop();
        } else if self.sleeps && is_empty && idle_loops > IDLE_LOOPS_BEFORE_SLEEP {
            self.intake.sleep();
        } else {
            std::thread::yield_now();
        }
    }

    fn finish(mut self) -> Result<Finished, Error> {
        self.exit.finish()?;
        self.intake.publish();
        self.core.publish();
        Ok(Finished { ended: self.intake.has_ended(), placement: self.collect.finish() })
    }

    fn receive(&mut self, now_ns: u64, stopping: bool) -> Result<usize, Error> {
        let Self { core, intake, classify, feed, exit, change, .. } = self;
        let mut received = 0;
        let exchanged = core.counts.value(EXCHANGED);
        for source in 0..intake.sources() {
            let batch = intake.receive(core, source, now_ns, stopping)?;
            received += batch.len();
            if !change.hold(&batch.descriptors) {
                core.observer.arrived(&core.plan, &core.region, &batch.descriptors, &batch.stamps, now_ns);
                classify.classify(core, &batch.descriptors, |core, group| pass_on(core, feed, exit, group));
            }
        }
        // Packets that were passed to other workers are work too.
        Ok(received + (core.counts.value(EXCHANGED) - exchanged) as usize)
    }

    /// Moves packets through functions and devices until none can move further. Returns whether any
    /// packet moved.
    fn work(&mut self, iteration: &Iteration) -> Result<bool, Error> {
        let mut worked = false;
        let flush = iteration.is_last || iteration.drains;
        loop {
            // The functions in `sequence` are in chain order, so one pass moves packets as far as
            // possible. Another pass helps only after packets have returned from a device.
            let mut moved = false;
            for index in 0..self.core.plan.sequence.len() {
                worked |= self.feed_function(self.core.plan.sequence[index], iteration)?;
            }
            for device in 0..self.collect.devices() {
                while self.collect.is_due(device, iteration, flush) {
                    if !self.submit(device, iteration.now_ns)? {
                        break;
                    }
                    moved = true;
                    // Each submission changes the load of a device, so the device of every function
                    // is chosen again.
                    (0..self.core.plan.stages.len())
                        .for_each(|function| _ = self.collect.balance(&self.core, function));
                }
                moved |= self.fetch(device)?;
            }
            worked |= moved;
            if !moved {
                return Ok(worked);
            }
        }
    }

    /// Moves the packets of a function into batches until the batches are full. Returns whether any
    /// packet moved.
    fn feed_function(&mut self, function: usize, iteration: &Iteration) -> Result<bool, Error> {
        let mut moved = false;
        loop {
            self.feed.prepare(&mut self.core, function, iteration);
            let device = self.collect.device_of(function);
            let packed = self.feed.pack(&mut self.core, function, self.collect.device(device), iteration.now_ns);
            moved |= packed.packets > 0;
            self.route_done(function);
            if !packed.is_full {
                return Ok(moved);
            }
            // A synchronous device finishes the submission during this call, which makes room. With
            // an asynchronous device, the remaining packets wait.
            let submitted = self.submit(device, iteration.now_ns)?;
            let elsewhere = self.collect.balance(&self.core, function);
            if !submitted && !elsewhere {
                return Ok(moved);
            }
            moved |= self.fetch(device)?;
        }
    }

    /// Passes packets that `function` finished without its kernel to their next function or port.
    fn route_done(&mut self, function: usize) {
        if self.feed.done.packets.is_empty() {
            return;
        }
        let Self { core, feed, route, exit, .. } = self;
        let mut done = std::mem::take(&mut feed.done);
        route.decide(core, function, &done.packets, &done.outcomes, |core, group| pass_on(core, feed, exit, group));
        done.packets.clear();
        done.outcomes.clear();
        feed.done = done;
    }

    /// Submits the waiting batches to `device`. Returns false if no packets wait, or if no memory
    /// is free for the next batches.
    fn submit(&mut self, device: usize, now_ns: u64) -> Result<bool, Error> {
        let submitted = self.collect.submit(&mut self.core, device, now_ns)?;
        self.requeue(now_ns)?;
        Ok(submitted)
    }

    /// Completes the submissions that `device` has finished or failed to finish. Returns whether
    /// there were any.
    fn fetch(&mut self, device: usize) -> Result<bool, Error> {
        let mut moved = false;
        loop {
            match self.collect.poll(&mut self.core, device)? {
                Polled::Nothing => return Ok(moved),
                Polled::Finished(chunk) => self.complete(device, chunk)?,
                Polled::Failed => self.requeue(self.core.now_ns())?,
            }
            moved = true;
        }
    }

    /// Moves packets whose device is no longer used to the CPU.
    fn requeue(&mut self, now_ns: u64) -> Result<(), Error> {
        while self.collect.has_stranded() && !self.collect.requeue(&mut self.core, now_ns) {
            // The CPU finishes a submission during this call, so its batches are empty afterwards.
            self.collect.submit(&mut self.core, LAST_RESORT, now_ns)?;
            self.fetch(LAST_RESORT)?;
        }
        Ok(())
    }

    fn complete(&mut self, device: usize, mut chunk: Chunk) -> Result<(), Error> {
        let mut completed = 0;
        for index in 0..chunk.bins.len() {
            let Self { core, feed, collect, route, exit, .. } = self;
            let host_half = feed.completing(chunk.bins[index].instance.into());
            collect.complete(core, device, &mut chunk, index, host_half);
            for (function, range) in (0..).map_while(|run| collect.done(run)) {
                let (packets, outcomes) = (&chunk.descriptors[range.clone()], &chunk.outcomes[range]);
                route.decide(core, function, packets, outcomes, |core, group| pass_on(core, feed, exit, group));
            }
            completed += usize::from(chunk.bins[index].count);
            if completed >= DEPART_PACKETS {
                // The packets leave now, while their metadata is still in the CPU cache.
                completed = 0;
                self.depart()?;
            }
        }
        self.collect.give_back(&mut self.core, device, chunk);
        Ok(())
    }

    fn depart(&mut self) -> Result<usize, Error> {
        let Self { core, intake, exit, .. } = self;
        exit.depart(core, || intake.sequence_next(), intake.sources() == 1)
    }

    /// Moves the functions to the devices of a new placement. Packets in flight on other devices
    /// return from there, and the order ring keeps their order.
    #[cold]
    fn follow_placement(&mut self, now_ns: u64) -> Result<(), Error> {
        for device in 0..self.collect.devices() {
            if self.collect.must_close(device) {
                self.submit(device, now_ns)?;
            }
        }
        (0..self.core.plan.stages.len()).for_each(|function| _ = self.collect.balance(&self.core, function));
        Ok(())
    }

    /// Replaces the function chain once all packets of the old chain have left.
    #[cold]
    fn change_plan(&mut self, now_ns: u64) -> Result<(), Error> {
        let Some(taken) = self.change.take(self.core.order.arrived(), self.core.order.passed(), now_ns) else {
            return Ok(());
        };
        debug_assert!(self.collect.is_empty() && self.feed.is_empty(), "a packet of the old plan remains");
        self.collect.set_streams(&taken.plan.streams)?;
        self.core.plan = Arc::clone(&taken.plan);
        let Self { core, classify, feed, exit, .. } = self;
        if core.observer.is_choosing() {
            for packet in &taken.held {
                let (stamp, arrival_ns) = core.order.stamp_and_arrival(packet);
                core.observer.arrived(&core.plan, &core.region, std::slice::from_ref(packet), &[stamp], arrival_ns);
            }
        }
        classify.classify(core, &taken.held, |core, group| pass_on(core, feed, exit, group));
        feed.admit_created(core, self.intake.has_packet_clock());
        self.change.answer(taken, now_ns);
        Ok(())
    }
}

/// Returns the number of buffers that a worker reserves for fragments, and for copies of packets
/// that leave through several ports. The number is 0 if no function makes any.
fn reserve(plan: &ChainPlan, region: &Region, arranges: bool) -> usize {
    if !arranges && !plan.stages.iter().any(|stage| stage.function.flood().is_some()) {
        return 0;
    }
    let free = region.free_packets();
    // Even a small packet memory has room for the copies of one packet.
    let least = plan.ordered.len().min(free / 2);
    (free / RESERVE_SHARE).clamp(least, RESERVE_PACKETS_MAX.max(least))
}

#[inline]
fn pass_on(core: &mut Core, feed: &mut Feed, exit: &mut Exit, group: Group<'_>) {
    let Group { next, packets, from } = group;
    match (next, from) {
        (Next::Function(function), _) => feed.accept(core, function.into(), group),
        (Next::Port(port), _) => exit.send(core, packets, port.into()),
        (Next::Egress, Some((function, outcomes))) => exit.send_chosen(core, function, packets, outcomes),
        (Next::Drop, _) => packets.iter().for_each(|packet| core.drop_packet(packet, DROPPED_CHAIN)),
        // A port chooses no egress port.
        (Next::None | Next::Egress, _) => {
            packets.iter().for_each(|packet| core.drop_packet(packet, DROPPED_UNROUTED));
        }
    }
}

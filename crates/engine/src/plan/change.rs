//! Change of a worker's plan at run time. Packets in flight finish the old chain, and later packets
//! take the new chain. No packet is lost, and the arrival order is kept.
//!
//! ```text
//! control thread   ask(plan) --------------------------------------> all workers have answered
//! worker           | sees the number, | holds new packets, | old packets gone: takes the plan,
//!                  | notes arrivals   | drains old ones    | starts held packets, answers
//! ```
//! A worker checks for a new plan once per loop iteration. From then on it starts no packet. A
//! packet that arrives gets a slot in the order ring and is held. Packets that arrived earlier
//! finish the old chain, and the worker submits their chunks without waiting for more packets. When
//! the exit has passed all of them, the worker takes the new plan. The gates and bins of a worker
//! therefore never mix two plans. Workers do not wait for each other.
//!
//! Writes of the control thread before `ask`, such as the rows of a device chain, happen before the
//! worker creates bins under the new plan. Work of a worker under the old plan happens before the
//! control thread sees the answer ([`Epochs`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use godwit_function::Work;
use godwit_io::Clock;
use godwit_packet::{Descriptor, Stamp};

use crate::error::Error;
use crate::path::Worker;
use crate::plan::chain_plan::ChainPlan;
use crate::plan::epoch::{Epochs, WorkerEpoch};

/// State of plan changes that the control thread and the workers share. Plans are numbered from 0.
pub(crate) struct PlanChanges {
    epochs: Arc<Epochs>,
    latest: Mutex<(u64, Arc<ChainPlan>)>,
    /// Longest time for which a worker held new packets at the last change, in nanoseconds.
    held_ns: AtomicU64,
}

impl PlanChanges {
    pub(crate) fn new(plan: Arc<ChainPlan>, workers: usize) -> Arc<Self> {
        Arc::new(Self { epochs: Epochs::new(workers), latest: Mutex::new((0, plan)), held_ns: AtomicU64::new(0) })
    }

    /// Returns the worker's part of plan changes for worker `worker`. It must exist before the
    /// worker starts. Dropping it reports that the worker has ended.
    pub(crate) fn of_worker(self: &Arc<Self>, worker: usize) -> WorkerChange {
        WorkerChange {
            epoch: self.epochs.of_worker(worker),
            shared: Arc::clone(self),
            draining: None,
            held: Vec::new(),
            created: Vec::new(),
        }
    }

    /// Asks all workers to take plan `number`. It must be one more than the number of the last
    /// plan, and all workers must use that plan.
    pub(crate) fn ask(&self, number: u64, plan: Arc<ChainPlan>) {
        let before = {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *latest, (number, plan))
        };
        self.held_ns.store(0, Ordering::Relaxed);
        let requested = self.epochs.ask();
        debug_assert_eq!((requested, before.0 + 1), (number, number));
    }

    /// Waits until all workers use plan `number` or a later one. Returns false if `limit` expires
    /// first.
    pub(crate) fn wait(&self, number: u64, limit: Duration) -> bool {
        self.epochs.wait(number, limit)
    }

    /// Returns the longest time for which a worker held packets at the last change.
    pub(crate) fn held(&self) -> Duration {
        Duration::from_nanos(self.held_ns.load(Ordering::Relaxed))
    }

    fn latest(&self) -> (u64, Arc<ChainPlan>) {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One worker's part of plan changes: the number of its plan, and the packets that it holds.
pub(crate) struct WorkerChange {
    epoch: WorkerEpoch,
    shared: Arc<PlanChanges>,
    draining: Option<Draining>,
    /// Packets that arrived during the drain of the old plan, in arrival order. They are not yet
    /// started.
    held: Vec<Descriptor>,
    /// Packets that host halves created during the drain of the old plan. Each has its function
    /// number and its work.
    created: Vec<(usize, Descriptor, Work)>,
}

/// State of a worker that drains packets of the old plan.
#[derive(Clone, Copy)]
struct Draining {
    /// Number of arrivals before the drain. The drain ends when the exit has passed that many
    /// order-ring slots.
    until: usize,
    since_ns: u64,
}

impl WorkerChange {
    #[inline]
    fn is_asked(&self) -> bool {
        self.epoch.requested().is_some()
    }

    /// Returns whether the worker is draining packets of the old plan.
    #[inline]
    pub(crate) fn drains(&self) -> bool {
        self.draining.is_some()
    }

    /// Holds packets that have just arrived, if the worker is draining the old plan. Returns false
    /// if it is not, and the caller must start the packets.
    #[inline]
    pub(crate) fn hold(&mut self, descriptors: &[Descriptor]) -> bool {
        let drains = self.drains();
        if drains {
            self.held.extend_from_slice(descriptors);
        }
        drains
    }

    /// Holds a packet that a host half created during the drain of the old plan. The packet already
    /// has an order-ring slot.
    pub(crate) fn hold_created(&mut self, function: usize, packet: Descriptor, work: Work) {
        self.created.push((function, packet, work));
    }

    fn answer(&mut self, number: u64, held_ns: u64) {
        self.shared.held_ns.fetch_max(held_ns, Ordering::Relaxed);
        self.epoch.answer(number);
    }
}

impl Worker {
    /// Checks for a new plan, and takes it once the packets of the old plan are gone. The worker
    /// calls this once per loop iteration, before it receives packets.
    #[inline]
    pub(crate) fn look_for_plan(&mut self, now_ns: u64) -> Result<(), Error> {
        if self.change.drains() || self.change.is_asked() { self.change_plan(now_ns) } else { Ok(()) }
    }

    #[cold]
    fn change_plan(&mut self, now_ns: u64) -> Result<(), Error> {
        let begins = Draining { until: self.order.arrived(), since_ns: now_ns };
        let Draining { until, since_ns } = *self.change.draining.get_or_insert(begins);
        if self.order.passed() < until {
            return Ok(());
        }
        debug_assert!(self.devices.iter().all(|device| device.packer.waiting() == 0 && device.lane.in_flight() == 0));
        debug_assert!(self.inputs.iter().all(|input| input.is_empty()), "a packet of the old plan remains");
        let (number, plan) = self.change.shared.latest();
        for device in &mut self.devices {
            device.packer.set_streams(&plan.streams)?;
        }
        self.plan = Arc::clone(&plan);
        self.change.draining = None;
        let mut held = std::mem::take(&mut self.change.held);
        if self.observer.is_choosing() {
            for packet in &held {
                let (stamp, arrival_ns) = self.order.stamp_and_arrival(packet);
                self.observer.arrived(&plan, &self.region, std::slice::from_ref(packet), &[stamp], arrival_ns);
            }
        }
        self.start(&plan, &held);
        held.clear();
        self.change.held = held;
        for (function, packet, work) in std::mem::take(&mut self.change.created) {
            self.enter_created(&plan, function, &packet);
            self.inputs[function].put(packet, work);
        }
        self.change.answer(number, now_ns - since_ns);
        Ok(())
    }

    /// Classifies a packet that a host half of `function` created, and marks it as inside the
    /// function.
    pub(crate) fn enter_created(&mut self, plan: &ChainPlan, function: usize, packet: &Descriptor) {
        if !plan.classifier.is_trivial() {
            let class = plan.classifier.classify(&godwit_wire::parse(self.region.frame(packet)));
            self.order.classify(packet, class);
        }
        self.order.advance(packet, plan.stages[function].progress_inside());
        if self.observer.is_choosing() {
            let (stamp, _) = self.order.stamp_and_arrival(packet);
            let time_ns = if self.packet_clock { stamp.time_ns } else { Clock::Machine.now_ns() };
            let (now_ns, stamp) = (self.now_ns(), Stamp { time_ns, ..stamp });
            self.observer.created(plan, &self.region, function, packet, stamp, now_ns);
        }
    }
}

//! How a worker comes from one plan to the next while packets flow: those in flight finish the old chain, and those that
//! come later take the new one. Nothing is lost, and nothing overtakes.
//!
//! ```text
//! control thread   ask(plan) ─────────────────────────────────────────── all have answered: the old plan is nobody's
//! worker           ... | notices, and notes what has arrived | what arrives is held | those are gone: takes the plan,
//!                                                                                     starts what it held, answers
//! ```
//! A worker sees once a turn that there is another plan. From then on it starts no packet: what it receives gets its place
//! in the order ring and waits there. What had arrived before is hurried through the old chain, no chunk waits for more
//! packets; when the exit has passed all of it, nothing of the old plan is left in the worker, and it takes the new one.
//! So there is never more than one plan in a worker, its gates and its bins. Workers do not wait for each other.
//!
//! # Ordering
//!
//! What the control thread did before it asked (rows of a chain written to a device) happens before the turn that sees the
//! number, by release and acquire of `number`, and so before every bin that the worker makes by the new plan. What workers did
//! by the old plan happens before the control thread sees the answers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use godwit_function::Work;
use godwit_io::Clock;
use godwit_packet::{Descriptor, Stamp};

use crate::Error;
use crate::plan::Plan;
use crate::trace::Origin;
use crate::worker::Worker;

/// How often the control thread looks for answers.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);
/// The answer of a worker that has ended.
const ENDED: u64 = u64::MAX;

/// What the control thread has. Plans are numbered; that of the start is 0.
pub(crate) struct Changes {
    number: AtomicU64,
    latest: Mutex<(u64, Arc<Plan>)>,
    workers: Box<[Answer]>,
}

/// A worker's answer, on cache lines of its own.
#[derive(Default)]
#[repr(align(64))]
struct Answer {
    /// The plan that it has.
    number: AtomicU64,
    /// How long it held packets for that, nanoseconds.
    held_ns: AtomicU64,
}

impl Changes {
    pub(crate) fn new(plan: Arc<Plan>, workers: usize) -> Arc<Self> {
        let workers = (0..workers).map(|_| Answer::default()).collect();
        Arc::new(Self { number: AtomicU64::new(0), latest: Mutex::new((0, plan)), workers })
    }

    /// Worker `worker`'s end, which it has from before it starts until it ends.
    pub(crate) fn of_worker(self: &Arc<Self>, worker: usize) -> Change {
        Change { shared: Arc::clone(self), worker, number: 0, draining: None, held: Vec::new(), created: Vec::new() }
    }

    /// Asks all workers to take this plan. Its number is `number`, which is one more than that of the last.
    pub(crate) fn ask(&self, number: u64, plan: Arc<Plan>) {
        let before = {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            debug_assert_eq!(number, latest.0 + 1);
            std::mem::replace(&mut *latest, (number, plan))
        };
        self.number.store(number, Ordering::Release);
        drop(before);
    }

    /// Waits until all workers have the plan with this number. False: not within `limit`.
    pub(crate) fn wait(&self, number: u64, limit: Duration) -> bool {
        let started = Instant::now();
        while !self.workers.iter().all(|answer| answer.number.load(Ordering::Acquire) >= number) {
            if started.elapsed() > limit {
                return false;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        true
    }

    /// The longest time that a worker held packets at the last change.
    pub(crate) fn held(&self) -> Duration {
        let held_ns = self.workers.iter().map(|answer| answer.held_ns.load(Ordering::Relaxed)).max();
        Duration::from_nanos(held_ns.unwrap_or(0))
    }

    fn latest(&self) -> (u64, Arc<Plan>) {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a worker has.
pub(crate) struct Change {
    shared: Arc<Changes>,
    worker: usize,
    /// The plan that the worker has.
    number: u64,
    draining: Option<Draining>,
    /// Packets that have arrived and not been started, in their order.
    held: Vec<Descriptor>,
    /// Packets that host halves have made meanwhile, inside of these functions.
    created: Vec<(usize, Descriptor, Work)>,
}

/// There is another plan.
#[derive(Clone, Copy)]
struct Draining {
    /// Packets that must be gone: all places below.
    until: usize,
    since_ns: u64,
}

impl Change {
    #[inline]
    fn is_asked(&self) -> bool {
        self.shared.number.load(Ordering::Acquire) != self.number
    }

    /// Whether the worker is on its way to another plan.
    #[inline]
    pub(crate) fn drains(&self) -> bool {
        self.draining.is_some()
    }

    /// Holds packets that have just arrived; false: they are to be started.
    #[inline]
    pub(crate) fn hold(&mut self, descriptors: &[Descriptor]) -> bool {
        let drains = self.drains();
        if drains {
            self.held.extend_from_slice(descriptors);
        }
        drains
    }

    /// Holds a packet that a host half of a function has just made, with its place.
    pub(crate) fn hold_created(&mut self, function: usize, packet: Descriptor, work: Work) {
        self.created.push((function, packet, work));
    }

    fn answer(&mut self, number: u64, held_ns: u64) {
        self.number = number;
        let answer = &self.shared.workers[self.worker];
        answer.held_ns.store(held_ns, Ordering::Relaxed);
        answer.number.store(number, Ordering::Release);
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.shared.workers[self.worker].number.store(ENDED, Ordering::Release);
    }
}

impl Worker {
    /// Once a turn, before anything is received: sees whether there is another plan, and takes it once it can.
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
        debug_assert!(self.places.iter().all(|place| place.packer.waiting() == 0 && place.lane.in_flight() == 0));
        debug_assert!(self.inputs.iter().all(|input| input.is_empty()), "a packet of the old plan is on its way");
        let (number, plan) = self.change.shared.latest();
        for place in &mut self.places {
            place.packer.set_streams(&plan.streams)?;
        }
        self.plan = Arc::clone(&plan);
        self.change.draining = None;
        let mut held = std::mem::take(&mut self.change.held);
        if self.tracer.is_choosing() {
            for packet in &held {
                let (stamp, arrival_ns) = self.order.remembered(packet);
                let packet = std::slice::from_ref(packet);
                self.tracer.choose(&plan, &self.region, packet, &[stamp], arrival_ns, &Origin::Port);
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

    /// A packet that a host half of a function has made goes on from inside of it.
    pub(crate) fn enter_created(&mut self, plan: &Plan, function: usize, packet: &Descriptor) {
        if !plan.classifier.is_trivial() {
            let class = plan.classifier.classify(&godwit_wire::parse(self.region.frame(packet)));
            self.order.classify(packet, class);
        }
        self.order.advance(packet, plan.stages[function].progress_inside());
        if self.tracer.is_choosing() {
            let (stamp, _) = self.order.remembered(packet);
            let time_ns = if self.packet_clock { stamp.time_ns } else { Clock::Machine.now_ns() };
            let (now_ns, stamp) = (self.now_ns(), Stamp { time_ns, ..stamp });
            let (packet, origin) = (std::slice::from_ref(packet), &Origin::Function(&plan.stages[function].name));
            self.tracer.choose(plan, &self.region, packet, &[stamp], now_ns, origin);
        }
    }
}

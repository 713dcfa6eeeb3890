//! Changes the plan of a worker, which describes the function chain, at run time. Packets in flight
//! finish the old chain, and later packets take the new chain. No packet is lost, and the arrival
//! order is kept.
//!
//! ```text
//! control thread   ask(plan) --------------------------------------> all workers have answered
//! worker           | sees the number, | holds new packets, | old packets gone: takes the plan,
//!                  | notes arrivals   | drains old ones    | starts held packets, answers
//! ```
//! A worker checks for a new plan once per loop iteration. When it sees one, it starts no more
//! packets. New packets are recorded in arrival order and wait. Packets that arrived earlier finish
//! the old chain, and the worker submits them to devices without waiting for more packets. When all
//! earlier packets have left, the worker takes the new plan. A batch of packets therefore never
//! mixes two plans. Workers do not wait for each other.
//!
//! Writes of the control thread before `ask`, such as the tables of the new chain on a device,
//! happen before the worker creates batches under the new plan. Work of a worker under the old plan
//! happens before the control thread sees the answer ([`Epochs`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use godwit_packet::Descriptor;

use crate::plan::chain_plan::ChainPlan;
use crate::plan::epoch::{Epochs, WorkerEpoch};

/// State of plan changes, shared by the control thread and the workers. A plan describes the
/// function chain to the workers. Plans are numbered from 0.
pub(crate) struct PlanChanges {
    epochs: Arc<Epochs>,
    latest: Mutex<(u64, Arc<ChainPlan>)>,
    /// Longest time for which any worker held back new packets during the last change of the
    /// function chain, in nanoseconds.
    held_ns: AtomicU64,
}

impl PlanChanges {
    pub(crate) fn new(plan: Arc<ChainPlan>, workers: usize) -> Arc<Self> {
        Arc::new(Self { epochs: Epochs::new(workers), latest: Mutex::new((0, plan)), held_ns: AtomicU64::new(0) })
    }

    /// Returns one worker's part of the state. It must exist before the worker starts. When it is
    /// dropped, the worker counts as ended.
    pub(crate) fn of_worker(self: &Arc<Self>, worker: usize) -> WorkerChange {
        WorkerChange {
            epoch: self.epochs.of_worker(worker),
            shared: Arc::clone(self),
            draining: None,
            held: Vec::new(),
        }
    }

    /// Asks all workers to take the new plan. `number` must be the successor of the previous plan's
    /// number. All workers must already use the previous plan.
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

    /// Returns the longest time for which a worker held new packets during the last change.
    pub(crate) fn held(&self) -> Duration {
        Duration::from_nanos(self.held_ns.load(Ordering::Relaxed))
    }

    fn latest(&self) -> (u64, Arc<ChainPlan>) {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// State of one worker during plan changes.
pub(crate) struct WorkerChange {
    epoch: WorkerEpoch,
    shared: Arc<PlanChanges>,
    draining: Option<Draining>,
    /// Packets that arrived after the start of the change, in arrival order. No function has
    /// processed them.
    held: Vec<Descriptor>,
}

/// State of a worker that waits until all packets of the old plan have left.
#[derive(Clone, Copy)]
struct Draining {
    /// Number of packets that had arrived at the start of the change. The worker takes the new plan
    /// when all of them have left.
    until: usize,
    since_ns: u64,
}

/// New plan for a worker, with the packets that the worker held back.
pub(crate) struct TakenPlan {
    number: u64,
    pub(crate) plan: Arc<ChainPlan>,
    /// Packets that the worker held back, in arrival order.
    pub(crate) held: Vec<Descriptor>,
    since_ns: u64,
}

impl WorkerChange {
    /// Returns whether a new plan waits for the worker.
    #[inline]
    pub(crate) fn is_requested(&self) -> bool {
        self.epoch.requested().is_some()
    }

    /// Returns whether the worker still processes packets of the old plan.
    #[inline]
    pub(crate) fn drains(&self) -> bool {
        self.draining.is_some()
    }

    /// Holds packets back during a plan change. At any other time, returns false, and the caller
    /// must process the packets.
    #[inline]
    pub(crate) fn hold(&mut self, packets: &[Descriptor]) -> bool {
        let drains = self.drains();
        if drains {
            self.held.extend_from_slice(packets);
        }
        drains
    }

    /// Starts or continues a plan change. Returns the new plan when all packets of the old plan
    /// have left.
    ///
    /// While [`WorkerChange::is_requested`] returns true, the worker calls this method before it
    /// receives packets. `arrived` and `passed` count the packets that have reached and left the
    /// worker since its start.
    pub(crate) fn take(&mut self, arrived: usize, passed: usize, now_ns: u64) -> Option<TakenPlan> {
        let begins = Draining { until: arrived, since_ns: now_ns };
        let Draining { until, since_ns } = *self.draining.get_or_insert(begins);
        if passed < until {
            return None;
        }
        self.draining = None;
        let (number, plan) = self.shared.latest();
        Some(TakenPlan { number, plan, held: std::mem::take(&mut self.held), since_ns })
    }

    /// Reports that the worker uses the new plan, and already processes the packets that it held
    /// back.
    pub(crate) fn answer(&mut self, taken: TakenPlan, now_ns: u64) {
        self.shared.held_ns.fetch_max(now_ns - taken.since_ns, Ordering::Relaxed);
        self.epoch.answer(taken.number);
        self.held = taken.held;
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::testing::{TWO_FUNCTIONS, chain_plan};

    #[test]
    fn worker_takes_a_plan_when_earlier_packets_are_gone() {
        let changes = PlanChanges::new(chain_plan(TWO_FUNCTIONS), 1);
        let mut worker = changes.of_worker(0);
        let packets = [1, 2].map(|buffer| Descriptor { buffer, ..Descriptor::default() });
        assert!(!worker.is_requested() && !worker.hold(&packets));
        let plan = chain_plan(TWO_FUNCTIONS);
        changes.ask(1, Arc::clone(&plan));
        assert!(worker.is_requested() && worker.take(10, 8, 1000).is_none());
        assert!(worker.drains() && worker.hold(&packets));
        assert!(worker.take(12, 9, 2000).is_none() && !changes.wait(1, Duration::ZERO));
        let taken = worker.take(12, 10, 3000).expect("the packets of the old plan are gone");
        assert!(Arc::ptr_eq(&taken.plan, &plan));
        assert_eq!(taken.held, packets);
        worker.answer(taken, 3000);
        assert!(changes.wait(1, Duration::ZERO) && !worker.is_requested() && !worker.drains());
        assert_eq!(changes.held(), Duration::from_nanos(2000));
        assert!(!worker.hold(&packets));
    }
}

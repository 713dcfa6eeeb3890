//! State that all components of a worker share.

use std::sync::Arc;
use std::time::Instant;

use godwit_packet::{Descriptor, Region};

use crate::observe::counters::{Counts, DROPPED, HELD, IN_FLIGHT};
use crate::observe::observer::Observer;
use crate::path::order::Order;
use crate::plan::chain_plan::ChainPlan;

/// State that all components of a worker share.
pub(crate) struct Core {
    pub(crate) plan: Arc<ChainPlan>,
    pub(crate) region: Region,
    pub(crate) order: Order,
    pub(crate) counts: Counts,
    pub(crate) observer: Observer,
    /// Number of packets that functions hold, such as fragments that wait for reassembly.
    pub(crate) held: u64,
    clock: Instant,
}

/// State of one iteration of the worker's loop, shared by the worker's components.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Iteration {
    /// Start time of the iteration on the worker's clock, in nanoseconds.
    pub(crate) now_ns: u64,
    /// Current time for functions, in nanoseconds. In a replay, it is the latest timestamp of all
    /// received packets. In a live run, it equals `now_ns`.
    pub(crate) packets_ns: u64,
    /// Whether the run is a replay.
    pub(crate) is_replay: bool,
    /// No later packet has a lower sequence number. The value `u64::MAX` means that no packet can
    /// arrive any more.
    pub(crate) sequence_next: u64,
    /// Whether no packet arrived in this iteration.
    pub(crate) is_idle: bool,
    /// Whether no packet can arrive any more.
    pub(crate) is_last: bool,
    /// Whether the worker waits until the packets of an old function chain have left.
    pub(crate) drains: bool,
}

impl Core {
    pub(crate) fn new(
        plan: Arc<ChainPlan>,
        region: Region,
        in_flight_packets: usize,
        observer: Observer,
        clock: Instant,
    ) -> Self {
        let order = Order::new(in_flight_packets, plan.gates.len());
        let counts = Counts::new(plan.layout.len());
        Self { plan, region, order, counts, observer, held: 0, clock }
    }

    /// Returns the time since the start of the engine, in nanoseconds.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// Drops a packet. `reason` is the index of the drop counter.
    pub(crate) fn drop_packet(&mut self, packet: &Descriptor, reason: usize) {
        self.observer.dropped(&self.plan, packet, reason);
        self.order.leave(packet);
        self.region.release(packet);
        self.counts.add(DROPPED, 1);
        self.counts.add(reason, 1);
    }

    /// Drops a packet of a lost device. Its buffer is never used again, because the device may
    /// still write to it.
    pub(crate) fn lose_packet(&mut self, packet: &Descriptor, reason: usize) {
        self.observer.dropped(&self.plan, packet, reason);
        self.order.leave(packet);
        self.region.quarantine(packet);
        self.counts.add(DROPPED, 1);
        self.counts.add(reason, 1);
    }

    /// Publishes the counters to other threads.
    pub(crate) fn publish(&mut self) {
        self.counts.set(HELD, self.held);
        self.counts.set(IN_FLIGHT, self.region.allocated() as u64 + self.held);
        self.counts.publish();
    }
}

//! Host halves that take packets apart, hold, join and make them: what that means for order and conservation.
//!
//! | step | place in the order | counted as |
//! |---|---|---|
//! | keep | its own | |
//! | split | that of the packet it was made of, behind it ([`Order::couple`](crate::order::Order::couple)) | created |
//! | hold | given up: packets behind it do not wait for it | held, which is in flight |
//! | join | that of the packet which was missing | merged: as many as were held |
//! | resume | a new one, as if it had just arrived | no longer held |
//! | create | a new one, as if it had just arrived | created |
//! | drop, expire | given up | dropped, by its reason |
//!
//! So at any time received + created = sent + dropped + merged + in flight.

use godwit_function::{Arrangement, Step, Work};
use godwit_packet::{Descriptor, Stamp};

use crate::bins::Input;
use crate::counters::{CREATED, DROPPED, MERGED};
use crate::plan::Plan;
use crate::worker::Worker;

impl Worker {
    /// Has the host half of a function arrange what has arrived at it, and lets it look at the time.
    #[cold]
    pub(crate) fn arrange(&mut self, plan: &Plan, function: usize, input: &mut Input, now_ns: u64) {
        let now_ns = if self.packet_clock { self.latest_ns } else { now_ns };
        let ending = self.flushing && self.order.in_flight() == 0;
        if input.pending.is_empty() && now_ns < input.wake_ns && !ending {
            return;
        }
        let Some(host_half) = &mut input.host_half else { return };
        let mut steps = std::mem::take(&mut input.steps);
        let (region, live) = (&mut self.region, !self.packet_clock);
        let (arrived, said) = (&input.pending, &input.said);
        let mut arrangement = Arrangement { region, now_ns, live, ending, arrived, said, steps: &mut steps };
        input.wake_ns = host_half.arrange(&mut arrangement);
        let settled = |step: &&Step| {
            matches!(step, Step::Keep { .. } | Step::Hold { .. } | Step::Join { .. } | Step::Drop { .. })
        };
        debug_assert_eq!(steps.iter().filter(settled).count(), input.pending.len(), "a step for each packet");
        input.pending.clear();
        input.said.clear();
        let reason = |reason| plan.stages[function].counters.drop(reason);
        for step in steps.drain(..) {
            match step {
                Step::Keep { packet, work } => input.put(packet, work),
                Step::Split { mut packet, work } => {
                    let Some(of) = input.prepared.last() else { unreachable!("it is made of a packet that goes on") };
                    (packet.port, packet.flow_hash) = (of.port, of.flow_hash);
                    self.order.couple(of, &mut packet);
                    if self.tracer.follows() {
                        self.tracer.split(&plan.stages[function].name, &self.region, of, &packet);
                    }
                    self.counts.add(CREATED, 1);
                    input.put(packet, work);
                }
                Step::Hold { packet } => {
                    if self.tracer.follows() {
                        self.tracer.held(&plan.stages[function].name, &packet);
                    }
                    self.order.leave(&packet);
                    self.region.release(&packet);
                    self.held += 1;
                }
                Step::Join { packet, mut whole, held, work } => {
                    if whole.buffer != packet.buffer {
                        self.region.release(&packet);
                    }
                    (whole.port, whole.flow_hash, whole.order) = (packet.port, packet.flow_hash, packet.order);
                    self.order.exchange(&packet, &whole);
                    if self.tracer.follows() {
                        self.tracer.joined(&plan.stages[function].name, &packet, &whole, held);
                    }
                    self.held -= u64::from(held);
                    self.counts.add(MERGED, held.into());
                    input.put(whole, work);
                }
                Step::Resume { packet, work, reason: number } => {
                    self.held -= 1;
                    if !self.enter(plan, function, input, packet, work, now_ns) {
                        self.counts.add(DROPPED, 1);
                        self.counts.add(reason(number), 1);
                    }
                }
                Step::Create { packet, work } => {
                    if self.enter(plan, function, input, packet, work, now_ns) {
                        self.counts.add(CREATED, 1);
                    }
                }
                Step::Drop { packet, reason: number } => self.drop_packet(&packet, reason(number)),
                Step::Expire { held, reason: number } => {
                    self.held -= u64::from(held);
                    self.counts.add(DROPPED, held.into());
                    self.counts.add(reason(number), held.into());
                }
            }
        }
        input.steps = steps;
        debug_assert!(
            !ending || self.held == 0 || plan.stages.len() > 1,
            "nothing comes any more, and packets are held"
        );
    }

    /// Gives a packet that a host half has made, or held, a place behind all that have arrived, and past the function's gate. False where
    /// no more can be in flight: its buffer is released.
    fn enter(
        &mut self,
        plan: &Plan,
        function: usize,
        input: &mut Input,
        mut packet: Descriptor,
        work: Work,
        now_ns: u64,
    ) -> bool {
        let sequence = self.sequence_next();
        if self.order.room() == 0 || sequence == u64::MAX {
            self.region.release(&packet);
            return false;
        }
        let stamp = Stamp { sequence, time_ns: now_ns };
        self.order.arrive(std::slice::from_mut(&mut packet), &[stamp], now_ns);
        if self.change.drains() {
            // Its place is behind packets that wait for another chain.
            self.change.hold_created(function, packet, work);
            return true;
        }
        self.enter_created(plan, function, &packet);
        input.put(packet, work);
        true
    }
}

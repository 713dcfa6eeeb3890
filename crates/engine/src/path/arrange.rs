//! Host halves that hold, split, join and create packets. Each step affects the order-ring slot of
//! a packet and the packet counters:
//!
//! | step | slot in the order ring | counted as |
//! |---|---|---|
//! | keep | unchanged | |
//! | split | shared with the original, after it ([`Order::share_slot`](crate::path::order::Order::share_slot)) | created |
//! | hold | released: later packets do not wait for it | held, which is part of in flight |
//! | join | that of the packet that completed the set | merged: the number of held packets |
//! | resume | a new slot, as for an arrival | no longer held |
//! | create | a new slot, as for an arrival | created |
//! | drop, expire | released | dropped, under its reason |
//!
//! At any time, received + created = sent + dropped + merged + in flight.

use godwit_function::{Arrangement, Step, Work};
use godwit_packet::{Descriptor, Stamp};

use crate::observe::counters::{CREATED, DROPPED, MERGED};
use crate::path::Worker;
use crate::path::bins::Input;
use crate::plan::chain_plan::ChainPlan;

impl Worker {
    /// Calls [`HostHalf::arrange`](godwit_function::HostHalf::arrange) of a function if it has
    /// pending packets or its wake-up time has come. Then executes the steps that the host half
    /// returned.
    #[cold]
    pub(crate) fn arrange(&mut self, plan: &ChainPlan, function: usize, input: &mut Input, now_ns: u64) {
        let now_ns = if self.packet_clock { self.latest_ns } else { now_ns };
        let ending = self.flushing && self.order.in_flight() == 0;
        if input.pending.is_empty() && now_ns < input.wake_ns && !ending {
            return;
        }
        let Some(host_half) = &mut input.host_half else { return };
        let mut steps = std::mem::take(&mut input.steps);
        let (region, live) = (&mut self.region, !self.packet_clock);
        let (arrived, previous) = (&input.pending, &input.previous_outcomes);
        let mut arrangement = Arrangement { region, now_ns, live, ending, arrived, previous, steps: &mut steps };
        input.wake_ns = host_half.arrange(&mut arrangement);
        let settled = |step: &&Step| {
            matches!(step, Step::Keep { .. } | Step::Hold { .. } | Step::Join { .. } | Step::Drop { .. })
        };
        debug_assert_eq!(steps.iter().filter(settled).count(), input.pending.len(), "one step per packet");
        input.pending.clear();
        input.previous_outcomes.clear();
        let reason = |reason| plan.stages[function].counters.drop(reason);
        for step in steps.drain(..) {
            match step {
                Step::Keep { packet, work } => input.put(packet, work),
                Step::Split { mut packet, work } => {
                    let Some(original) = input.prepared.last() else { unreachable!("a split follows its original") };
                    (packet.port, packet.flow_hash) = (original.port, original.flow_hash);
                    self.order.share_slot(original, &mut packet);
                    self.observer.split(plan, &self.region, function, original, &packet);
                    self.counts.add(CREATED, 1);
                    input.put(packet, work);
                }
                Step::Hold { packet } => {
                    self.observer.held(plan, function, &packet);
                    self.order.leave(&packet);
                    self.region.release(&packet);
                    self.held += 1;
                }
                Step::Join { packet, mut whole, held, work } => {
                    if whole.buffer != packet.buffer {
                        self.region.release(&packet);
                    }
                    (whole.port, whole.flow_hash, whole.order) = (packet.port, packet.flow_hash, packet.order);
                    self.order.replace_packet(&packet, &whole);
                    self.observer.joined(plan, function, &packet, &whole, held);
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
        debug_assert!(!ending || self.held == 0 || plan.stages.len() > 1, "packets are held after the last arrival");
    }

    /// Gives a held or newly created packet an order-ring slot, and moves it past the gate of its
    /// function. Returns false and releases the packet's buffer if no slot is free or no packet can
    /// arrive any more.
    fn enter(
        &mut self,
        plan: &ChainPlan,
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
            // The packet's slot is behind those of packets that wait for the new chain, so the
            // packet waits too.
            self.change.hold_created(function, packet, work);
            return true;
        }
        self.enter_created(plan, function, &packet);
        input.put(packet, work);
        true
    }
}

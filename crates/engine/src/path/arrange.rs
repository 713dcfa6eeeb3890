//! Executes the steps of functions that hold, split, join and create packets. The part of such a
//! function that runs on the CPU returns the steps. Each step affects the packet counters, and the
//! slot of the packet in the order ring, which stores packets in arrival order:
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

use godwit_function::{Arrangement, HostHalf, Step, Work};
use godwit_io::Clock;
use godwit_packet::{Descriptor, Stamp};

use crate::observe::counters::{CREATED, DROPPED, MERGED};
use crate::path::classify::classify_packet;
use crate::path::core::{Core, Iteration};
use crate::path::feed::{Feed, Input};

/// Number of buffers that must be free for each packet that a function may split, if no port is
/// live. With the smallest IPv4 MTU, a frame of 1518 bytes gives at most this many fragments.
pub(crate) const FRAGMENTS_MAX: usize = 32;

impl Feed {
    /// Calls [`Arrange::arrange`](godwit_function::Arrange::arrange) of a function if packets are
    /// pending, or if the time has come at which the function asked to be called. Then executes the
    /// steps that the function returned. At most the first `ready` packets are arranged.
    #[cold]
    pub(super) fn arrange(&mut self, core: &mut Core, function: usize, iteration: &Iteration, ready: usize) {
        let Self { inputs, created, waits, .. } = self;
        let input = &mut inputs[function];
        let (now_ns, live) = (iteration.packets_ns, !iteration.is_replay);
        let ending = iteration.is_last && core.order.in_flight() == 0;
        if input.pending.is_empty() && now_ns < input.wake_ns && !ending {
            return;
        }
        // Packets wait for the buffers of their fragments.
        let count = match core.region.free_packets() / FRAGMENTS_MAX {
            room if *waits => ready.min(room),
            _ => ready,
        };
        if count == 0 && !input.pending.is_empty() {
            return;
        }
        let Some(HostHalf::Arrange(host_half)) = &mut input.host_half else { return };
        let mut steps = std::mem::take(&mut input.steps);
        let arrived = &input.pending[..count];
        let previous = input.previous_outcomes.get(..count).unwrap_or_default();
        input.stamps.clear();
        if input.reads_times {
            let stamp = |packet| core.order.stamp_and_arrival(packet).0;
            input.stamps.extend(arrived.iter().map(stamp));
        }
        let (region, stamps) = (&mut core.region, &input.stamps[..]);
        let mut arrangement =
            Arrangement { region, now_ns, live, ending, arrived, previous, stamps, steps: &mut steps };
        input.wake_ns = host_half.arrange(&mut arrangement);
        let settled = |step: &&Step| {
            matches!(step, Step::Keep { .. } | Step::Hold { .. } | Step::Join { .. } | Step::Drop { .. })
        };
        debug_assert_eq!(steps.iter().filter(settled).count(), count, "one step per packet");
        input.pending.drain(..count);
        input.previous_outcomes.drain(..count.min(input.previous_outcomes.len()));
        for step in steps.drain(..) {
            input.execute(core, function, iteration, created, step);
        }
        input.steps = steps;
        debug_assert!(
            !ending || core.held == 0 || core.plan.stages.len() > 1,
            "packets are held after the last arrival"
        );
    }

    /// Passes waiting packets to the functions that created them. They waited during a change of
    /// the function chain.
    pub(crate) fn admit_created(&mut self, core: &mut Core, is_replay: bool) {
        for (function, packet, work) in std::mem::take(&mut self.created) {
            admit(core, function, &packet, is_replay);
            self.inputs[function].put(packet, work);
        }
    }
}

impl Input {
    /// Executes one step that the function returned. While the function chain changes, a packet
    /// that the function creates waits in the list `created`.
    fn execute(
        &mut self,
        core: &mut Core,
        function: usize,
        iteration: &Iteration,
        created: &mut Vec<(usize, Descriptor, Work)>,
        step: Step,
    ) {
        let counters = core.plan.stages[function].counters;
        match step {
            Step::Keep { packet, work } => self.put(packet, work),
            Step::Split { mut packet, work } => {
                let Some(original) = self.prepared.last() else { unreachable!("a split follows its original") };
                (packet.port, packet.flow_hash) = (original.port, original.flow_hash);
                core.order.share_slot(original, &mut packet);
                core.observer.split(&core.plan, &core.region, function, original, &packet);
                core.counts.add(CREATED, 1);
                self.put(packet, work);
            }
            Step::Hold { packet } => {
                core.observer.held(&core.plan, function, &packet);
                core.order.leave(&packet);
                core.region.release(&packet);
                core.held += 1;
            }
            Step::Join { packet, mut whole, held, work } => {
                if whole.buffer != packet.buffer {
                    core.region.release(&packet);
                }
                (whole.port, whole.flow_hash, whole.order) = (packet.port, packet.flow_hash, packet.order);
                core.order.replace_packet(&packet, &whole);
                core.observer.joined(&core.plan, function, &packet, &whole, held);
                core.held -= u64::from(held);
                core.counts.add(MERGED, held.into());
                self.put(whole, work);
            }
            Step::Resume { packet, work, reason } => {
                core.held -= 1;
                if !self.enter(core, function, iteration, created, packet, work) {
                    core.counts.add(DROPPED, 1);
                    core.counts.add(counters.drop(reason), 1);
                }
            }
            Step::Create { packet, work } => {
                if self.enter(core, function, iteration, created, packet, work) {
                    core.counts.add(CREATED, 1);
                }
            }
            Step::Drop { packet, reason } => core.drop_packet(&packet, counters.drop(reason)),
            Step::Expire { held, reason } => {
                core.held -= u64::from(held);
                core.counts.add(DROPPED, held.into());
                core.counts.add(counters.drop(reason), held.into());
            }
        }
    }

    /// Lets a held or created packet enter the function, and assigns its place in arrival order.
    ///
    /// Returns false and releases the packet's buffer if too many packets are in flight, or if no
    /// further packet can arrive.
    fn enter(
        &mut self,
        core: &mut Core,
        function: usize,
        iteration: &Iteration,
        created: &mut Vec<(usize, Descriptor, Work)>,
        mut packet: Descriptor,
        work: Work,
    ) -> bool {
        let sequence = iteration.sequence_next;
        if core.order.room() == 0 || sequence == u64::MAX {
            core.region.release(&packet);
            return false;
        }
        let stamp = Stamp { sequence, time_ns: iteration.packets_ns };
        core.order.arrive(std::slice::from_mut(&mut packet), &[stamp], iteration.packets_ns);
        if iteration.drains {
            // Earlier packets already wait for the new function chain. This packet must wait too,
            // because it follows them in arrival order.
            created.push((function, packet, work));
            return true;
        }
        admit(core, function, &packet, iteration.is_replay);
        self.put(packet, work);
        true
    }
}

/// Classifies a packet that `function` created, and records that the packet is inside the function.
fn admit(core: &mut Core, function: usize, packet: &Descriptor, is_replay: bool) {
    if !core.plan.classifier.is_trivial() {
        classify_packet(core, packet);
    }
    core.order.advance(packet, core.plan.stages[function].progress_inside());
    if core.observer.is_choosing() {
        let (stamp, _) = core.order.stamp_and_arrival(packet);
        let time_ns = if is_replay { stamp.time_ns } else { Clock::Machine.now_ns() };
        let (now_ns, stamp) = (core.now_ns(), Stamp { time_ns, ..stamp });
        core.observer.created(&core.plan, &core.region, function, packet, stamp, now_ns);
    }
}

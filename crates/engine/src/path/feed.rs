//! Prepares the packets of each function for its kernel, and puts them into batches for a device.

use godwit_abi::Outcome;
use godwit_function::{Complete, HostHalf, HostUse, PreviousOutcome, Step, Work, WorkColumns};
use godwit_packet::{Descriptor, Stamp};
use godwit_sched::{Insert, Parameters};

use crate::observe::counters::SETTLED;
use crate::path::core::{Core, Iteration};
use crate::path::device::WorkerDevice;
use crate::path::partition::Group;
use crate::plan::chain_plan::ChainPlan;

/// Minimum number of consecutive packets that are copied into a batch together. All of them need
/// the same kind of processing. Fewer packets are inserted one by one.
const RUN_PACKETS_MIN: usize = 4;

/// Inputs of all functions of a worker.
pub(crate) struct Feed {
    pub(super) inputs: Vec<Input>,
    /// Whether packets wait for free buffers before a function fragments them. They wait if no port
    /// is live.
    pub(crate) waits: bool,
    /// Whether packets of a replay wait until their results no longer depend on packets in flight.
    pub(crate) settles: bool,
    /// Packets that a function finished on the CPU before its kernel. They go to their next
    /// function or port without entering a batch.
    pub(crate) done: Done,
    /// Packets that functions created during a change of the chain. Each entry contains the number
    /// of the function and the work for its kernel.
    pub(super) created: Vec<(usize, Descriptor, Work)>,
}

/// Packets that one function finished on the CPU without its kernel, with their outcomes.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) packets: Vec<Descriptor>,
    pub(crate) outcomes: Vec<Outcome>,
}

/// Input queue of a function, with its CPU part and the packets that have not reached its kernel.
#[derive(Default)]
pub(super) struct Input {
    pub(super) host_half: Option<HostHalf>,
    /// Whether the function reads the times of packets.
    pub(super) reads_times: bool,
    /// Timestamps of the packets that are prepared next, in a replay.
    times_ns: Vec<u64>,
    /// Whether the function reads the outcome that the previous function returned for each packet.
    reads_previous: bool,
    /// Stamps of the pending packets. A stamp contains the sequence number and the source time. The
    /// list is valid only while [`Arrange::arrange`](godwit_function::Arrange::arrange) runs.
    pub(super) stamps: Vec<Stamp>,
    /// Time at which the function must arrange packets even if none arrive, in nanoseconds.
    pub(super) wake_ns: u64,
    pub(super) steps: Vec<Step>,
    /// Packets that have arrived at the function, but are not prepared for its kernel.
    pub(super) pending: Vec<Descriptor>,
    /// The previous function's outcome for each pending packet. The list is empty if the function
    /// does not read outcomes.
    pub(super) previous_outcomes: Vec<PreviousOutcome>,
    /// Packets that are prepared for the kernel. The first `taken` packets are already in batches.
    pub(super) prepared: Vec<Descriptor>,
    work: WorkColumns,
    taken: usize,
}

impl Input {
    fn new(host_half: Option<HostHalf>, host: HostUse) -> Self {
        let reads_previous = host.reads_previous && host_half.as_ref().is_some_and(HostHalf::arranges);
        Self { host_half, reads_times: host.reads_times, reads_previous, ..Self::default() }
    }

    /// Passes the times of the packets in `prepared` to the function.
    #[cold]
    #[inline(never)]
    fn set_time(&mut self, core: &Core, iteration: &Iteration) {
        self.times_ns.clear();
        if iteration.is_replay {
            let time_ns = |packet| core.order.stamp_and_arrival(packet).0.time_ns;
            self.times_ns.extend(self.prepared.iter().map(time_ns));
        }
        if let Some(HostHalf::Prepare(host_half)) = &mut self.host_half {
            host_half.set_time(iteration.packets_ns, iteration.is_replay.then_some(&self.times_ns[..]));
        }
    }

    /// Appends a prepared packet, with the kernel's work for it.
    pub(super) fn put(&mut self, packet: Descriptor, work: Work) {
        self.prepared.push(packet);
        self.work.push(work);
    }
}

impl Feed {
    /// Creates one input per function. `host_halves` contains the part of each function that runs
    /// on the CPU. `waits` states whether packets wait for free buffers before a function fragments
    /// them.
    pub(crate) fn new(plan: &ChainPlan, host_halves: Vec<Option<HostHalf>>, waits: bool) -> Self {
        let contracts = plan.stages.iter().map(|stage| stage.function.contract());
        let inputs = host_halves.into_iter().zip(contracts).map(|(half, contract)| Input::new(half, contract.host));
        let inputs = inputs.collect();
        Self { inputs, waits, settles: true, done: Done::default(), created: Vec::new() }
    }

    /// Returns the part of `function` that runs on the CPU after the kernel, if there is one.
    pub(crate) fn completing(&mut self, function: usize) -> Option<&mut dyn Complete> {
        self.inputs[function].host_half.as_mut().map(HostHalf::completing)
    }

    /// Returns whether any function splits, joins, holds or creates packets on the CPU.
    pub(crate) fn arranges(&self) -> bool {
        self.inputs.iter().filter_map(|input| input.host_half.as_ref()).any(HostHalf::arranges)
    }

    /// Returns whether no packet waits in front of a function.
    pub(crate) fn is_empty(&self) -> bool {
        self.inputs.iter().all(|input| input.pending.is_empty() && input.taken == input.prepared.len())
    }

    /// Accepts packets for `function`. If the function requires arrival order, packets wait until
    /// all earlier packets have passed or have taken another path.
    #[inline]
    pub(crate) fn accept(&mut self, core: &mut Core, function: usize, group: Group<'_>) {
        let Group { packets, from, .. } = group;
        let Core { plan, order, .. } = core;
        let stage = &plan.stages[function];
        if let Some(gate) = stage.gate {
            if !order.enter(gate, packets) {
                packets.iter().for_each(|packet| order.wait(packet, gate));
                return;
            }
        } else if stage.progress > 0 {
            packets.iter().for_each(|packet| order.advance(packet, stage.progress));
        }
        let input = &mut self.inputs[function];
        input.pending.extend_from_slice(packets);
        if input.reads_previous {
            let contract = from.map(|(function, _)| plan.stages[function].function.contract());
            let (function, outcomes) = from.unwrap_or_default();
            let outcome = |packet: usize| outcomes.get(packet).copied().unwrap_or_default();
            let previous = |packet| PreviousOutcome { contract, function, outcome: outcome(packet) };
            input.previous_outcomes.extend((0..packets.len()).map(previous));
        }
    }

    /// Prepares the pending packets of `function` for its kernel. They include packets that waited
    /// for their turn in arrival order.
    ///
    /// Does nothing while earlier prepared packets wait for room in batches.
    pub(crate) fn prepare(&mut self, core: &mut Core, function: usize, iteration: &Iteration) {
        let input = &mut self.inputs[function];
        if let Some(gate) = core.plan.stages[function].gate {
            core.order.open(gate, &mut input.pending);
        }
        if input.taken < input.prepared.len() {
            return;
        }
        input.taken = 0;
        input.prepared.clear();
        input.work.clear();
        let ready = match &mut input.host_half {
            Some(HostHalf::Prepare(half)) if iteration.is_replay && self.settles => {
                half.ready(&core.region, &input.pending)
            }
            Some(HostHalf::Arrange(half)) if iteration.is_replay && self.settles => {
                half.ready(&core.region, &input.pending)
            }
            _ => input.pending.len(),
        };
        if let Some(HostHalf::Arrange(_)) = &input.host_half {
            self.arrange(core, function, iteration, ready);
        } else {
            if ready < input.pending.len() {
                input.prepared.extend(input.pending.drain(..ready));
            } else {
                std::mem::swap(&mut input.prepared, &mut input.pending);
            }
            if input.reads_times {
                input.set_time(core, iteration);
            }
            if let Some(HostHalf::Prepare(host_half)) = &mut input.host_half {
                host_half.prepare_columns(&core.region, &input.prepared, &mut input.work);
                debug_assert_eq!(input.work.len(), input.prepared.len());
            }
        }
        let input = &self.inputs[function];
        core.observer.prepared(&core.plan, function, &input.prepared, &input.work);
    }

    /// Puts prepared packets of `function` into batches for `device`. Packets that need no kernel
    /// go to [`Feed::done`]. Returns the number of packets taken, and whether the submission is
    /// full.
    pub(crate) fn pack(&mut self, core: &mut Core, function: usize, device: &mut WorkerDevice, now_ns: u64) -> Packed {
        let Self { inputs, done, .. } = self;
        let input = &mut inputs[function];
        let first = input.taken;
        let is_full = if let Some(HostHalf::Prepare(_) | HostHalf::Arrange(_)) = &input.host_half {
            input.pack_prepared(core, function, device, now_ns, done)
        } else {
            input.pack_direct(core, function, device, now_ns)
        };
        Packed { packets: input.taken - first, is_full }
    }
}

/// Result of [`Feed::pack`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    /// Number of packets that were taken from the input of the function.
    pub(crate) packets: usize,
    /// Whether the submission is full. The input may then have packets left.
    pub(crate) is_full: bool,
}

impl Input {
    /// Puts packets into batches without preparation. All of them need the same kind of processing.
    fn pack_direct(&mut self, core: &mut Core, function: usize, device: &mut WorkerDevice, now_ns: u64) -> bool {
        let variant = core.plan.stages[function].variant;
        while self.taken < self.prepared.len() {
            let rest = &self.prepared[self.taken..];
            let (stream, run) = stream_run(core, function, rest);
            let (taken, insert) = device.packer.insert_all(now_ns, stream, variant, &rest[..run], Parameters::Alike(0));
            core.observer.binned(&core.plan, function, &device.id, variant, &rest[..taken]);
            self.taken += taken;
            if is_full(insert) {
                return true;
            }
        }
        false
    }

    /// Puts prepared packets into batches. Consecutive packets for the same batch are inserted
    /// together.
    fn pack_prepared(
        &mut self,
        core: &mut Core,
        function: usize,
        device: &mut WorkerDevice,
        now_ns: u64,
        done: &mut Done,
    ) -> bool {
        while self.taken < self.prepared.len() {
            let rest = &self.prepared[self.taken..];
            let Some((variant, run)) = self.work.run(self.taken) else {
                if let Work::Done(outcome) = self.work.at(self.taken) {
                    done.packets.push(rest[0]);
                    done.outcomes.push(outcome);
                    core.counts.add(core.plan.stages[function].counters.plain(SETTLED), 1);
                }
                self.taken += 1;
                continue;
            };
            let (stream, run) = stream_run(core, function, &rest[..run]);
            let parameters = self.work.parameters(self.taken..self.taken + run);
            let (taken, insert) = if run < RUN_PACKETS_MIN {
                let insert = device.packer.insert(now_ns, stream, variant, rest[0], parameters[0]);
                (usize::from(insert != Insert::Refused), insert)
            } else {
                device.packer.insert_all(now_ns, stream, variant, &rest[..run], Parameters::Each(parameters))
            };
            core.observer.binned(&core.plan, function, &device.id, variant, &rest[..taken]);
            self.taken += taken;
            if is_full(insert) {
                return true;
            }
        }
        false
    }
}

fn is_full(insert: Insert) -> bool {
    matches!(insert, Insert::ChunkFull | Insert::Refused)
}

/// Returns the packer input of the first packet, and the number of consecutive packets with the
/// same input. A batch contains packets of one input only.
fn stream_run(core: &Core, function: usize, packets: &[Descriptor]) -> (u16, usize) {
    let Some(streams) = &core.plan.stages[function].streams else { return (function as u16, packets.len()) };
    let stream_of = |packet: &Descriptor| streams[usize::from(core.order.class(packet))];
    let stream = stream_of(&packets[0]);
    (stream, packets.iter().position(|packet| stream_of(packet) != stream).unwrap_or(packets.len()))
}

#[cfg(test)]
mod tests {
    use godwit_chain::Next;

    use super::*;
    use crate::path::testing::{FIRST, SECOND, Surroundings, TWO_FUNCTIONS};
    use crate::place::LAST_RESORT;

    /// Creates a feed, one burst of packets, and the CPU as their device.
    fn feed(configuration: &str) -> (Core, Feed, WorkerDevice, Vec<Descriptor>) {
        let mut surroundings = Surroundings::new(configuration);
        let packets = surroundings.arrive();
        let feed = Feed::new(&surroundings.core.plan, surroundings.host_halves(), true);
        let device = surroundings.devices().remove(LAST_RESORT);
        (surroundings.core, feed, device, packets)
    }

    fn group(packets: &[Descriptor]) -> Group<'_> {
        Group { next: Next::Function(FIRST as u16), packets, from: None }
    }

    #[test]
    fn packets_wait_for_room_in_the_chunk() {
        let packing = "[packing]\nchunk_packets = 40\nleftover_packets = 1\n";
        let (mut core, mut feed, mut device, packets) = feed(&format!("{packing}{TWO_FUNCTIONS}"));
        let (core, device) = (&mut core, &mut device);
        feed.accept(core, FIRST, group(&packets));
        assert!(!feed.is_empty());
        feed.prepare(core, FIRST, &Iteration::default());
        let packed = feed.pack(core, FIRST, device, 0);
        assert_eq!((packed.packets, packed.is_full, device.packer.waiting()), (40, true, 40));
        let chunk = device.packer.take(0).expect("the chunk is full");
        assert_eq!(chunk.descriptors[..40], packets[..40]);
        let packed = feed.pack(core, FIRST, device, 0);
        assert_eq!((packed.packets, packed.is_full, device.packer.waiting()), (24, false, 24));
        assert!(feed.is_empty());
    }

    #[test]
    fn functions_have_separate_inputs_and_streams() {
        let (mut core, mut feed, mut device, packets) = feed(TWO_FUNCTIONS);
        let (core, device) = (&mut core, &mut device);
        feed.accept(core, SECOND, group(&packets[..10]));
        feed.accept(core, FIRST, group(&packets[10..]));
        for function in [FIRST, SECOND] {
            feed.prepare(core, function, &Iteration::default());
            feed.pack(core, function, device, 0);
        }
        let chunk = device.packer.take(0).expect("packets wait");
        let bins: Vec<_> = chunk.bins.iter().map(|bin| (usize::from(bin.instance), bin.count)).collect();
        assert!(bins.contains(&(FIRST, 54)) && bins.contains(&(SECOND, 10)), "{bins:?}");
    }

    #[test]
    fn finished_packets_leave_the_input_without_a_bin() {
        let ipsec = "kind = \"ipsec\"\n[[function.policy]]\naction = \"bypass\"";
        let text = TWO_FUNCTIONS.replacen("kind = \"echo\"\n    impl = \"scalar\"", ipsec, 1);
        let text = text.replace("from = \"first\"\n    to = \"left\"", "from = \"first\"\n    to = \"right\"");
        let (mut core, mut feed, mut device, packets) = feed(&text);
        let (core, device) = (&mut core, &mut device);
        feed.accept(core, FIRST, group(&packets));
        feed.prepare(core, FIRST, &Iteration::default());
        let packed = feed.pack(core, FIRST, device, 0);
        assert_eq!((packed.packets, device.packer.waiting()), (64, 0));
        assert_eq!((&feed.done.packets, feed.done.outcomes.len()), (&packets, 64));
        assert_eq!(core.counts.value(core.plan.stages[FIRST].counters.plain(SETTLED)), 64);
    }
}

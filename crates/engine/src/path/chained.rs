//! Completes batches that return from a device. The device may have passed their packets on to
//! further functions, as described in [`device_chain`](crate::place::device_chain).

use std::ops::Range;
use std::sync::Arc;

use godwit_abi::{Bin, Descriptor, HOPS_MAX, Outcome, TRAIL_NONE, VERDICT_DROP};
use godwit_function::Complete;
use godwit_sched::Chunk;

use crate::observe::counters::{BINS, BYTES, PACKETS};
use crate::observe::histogram::SharedHistogram;
use crate::path::core::Core;

/// Reusable memory for batches whose packets passed several functions on a device.
#[derive(Default)]
pub(super) struct ChainScratch {
    outcomes: Vec<Outcome>,
    /// Functions, other than the batch's first one, that processed packets of the batch on the
    /// device.
    seen: Vec<usize>,
}

impl ChainScratch {
    /// Completes the batch with this `index` in a submission of `device`. The first function of the
    /// batch finishes its packets on the CPU. All functions that processed the packets on the
    /// device are counted. Appends runs of consecutive packets with the same path to `completion`,
    /// each with its last function.
    pub(super) fn complete_bin(
        &mut self,
        core: &mut Core,
        device: usize,
        chunk: &mut Chunk,
        index: usize,
        host_half: Option<&mut dyn Complete>,
        completion: &mut Completion,
    ) {
        let bin = chunk.bins[index];
        let range = chunk.range(&bin);
        let descriptors = &chunk.descriptors[range.clone()];
        let (outcomes, trails) = (&mut chunk.outcomes[range.clone()], &mut chunk.trails[range.clone()]);
        if let Some(host_half) = host_half {
            let parameters = &chunk.parameters[range.clone()];
            self.complete(host_half, bin.variant, descriptors, parameters, outcomes, trails);
        }
        self.seen.clear();
        let mut from = 0;
        for run in trails.chunk_by(|one, next| one == next) {
            let packets = from..from + run.len();
            from = packets.end;
            let function = self.follow_trail(core, device, &bin, run[0], &descriptors[packets.clone()], completion);
            completion.done.push((function, range.start + packets.start..range.start + packets.end));
        }
    }

    /// Counts the functions that processed `packets` on the device, and returns the last one.
    /// `trail` contains the verdicts of all functions before the last one, with one verdict per
    /// byte.
    fn follow_trail(
        &mut self,
        core: &mut Core,
        device: usize,
        bin: &Bin,
        trail: u32,
        packets: &[Descriptor],
        completion: &mut Completion,
    ) -> usize {
        let Core { plan, counts, observer, .. } = core;
        let chain = plan.chains[device].as_deref();
        let mut function = usize::from(bin.instance);
        // Functions in a device chain do not change the length of packets.
        let bytes: u64 = packets.iter().map(|packet| u64::from(packet.length)).sum();
        for hop in 0..HOPS_MAX {
            let verdict = (trail >> (8 * hop)) as u8;
            if verdict == VERDICT_DROP {
                break;
            }
            counts.add(plan.stages[function].counters.verdict(verdict), packets.len() as u64);
            let Some(next) = chain.and_then(|chain| chain.next(function, bin.row, verdict)) else {
                let first = &plan.stages[usize::from(bin.instance)].name;
                unreachable!("a hop of packets from {first} is not in the chain");
            };
            observer.continued(plan, function, verdict, next, packets);
            function = next;
            let counters = plan.stages[function].counters;
            counts.add(counters.plain(PACKETS), packets.len() as u64);
            counts.add(counters.plain(BYTES), bytes);
            completion.record(function, packets.len());
            if !self.seen.contains(&function) {
                self.seen.push(function);
                counts.add(counters.plain(BINS), 1);
            }
        }
        function
    }

    /// Lets the first function of a batch finish its packets on the CPU.
    ///
    /// The outcomes of a packet come from the last function that processed it on the device. If
    /// this is not the first function, the first function's outcome is derived from the packet's
    /// trail. The trail contains the verdicts of all earlier functions. If the first function drops
    /// the packet, its trail is cleared.
    fn complete(
        &mut self,
        host_half: &mut dyn Complete,
        variant: u8,
        descriptors: &[Descriptor],
        parameters: &[u64],
        outcomes: &mut [Outcome],
        trails: &mut [u32],
    ) {
        let first = |(outcome, &trail): (&Outcome, &u32)| match trail {
            TRAIL_NONE => *outcome,
            // The first verdict of a trail is in its lowest bits.
            trail => Outcome::verdict(trail as u8),
        };
        self.outcomes.clear();
        self.outcomes.extend(outcomes.iter().zip(&*trails).map(first));
        host_half.complete(variant, descriptors, parameters, &mut self.outcomes);
        for ((completed, outcome), trail) in self.outcomes.iter().zip(outcomes).zip(trails) {
            if *trail == TRAIL_NONE || completed.verdict == VERDICT_DROP {
                (*outcome, *trail) = (*completed, TRAIL_NONE);
            }
        }
    }
}

/// State for the completion of the batches of one submission.
#[derive(Default)]
pub(super) struct Completion {
    /// Histogram of the time that packets spend in each function.
    pub(super) latency: Vec<Arc<SharedHistogram>>,
    /// Time since the submission received its first packet, in nanoseconds.
    pub(super) elapsed_ns: u64,
    /// Consecutive packets of the completed batch with the same path. Each entry contains their
    /// last function and their position in the submission.
    pub(super) done: Vec<(usize, Range<usize>)>,
}

impl Completion {
    /// Records the elapsed time in the histogram of `function`, once per packet.
    pub(super) fn record(&mut self, function: usize, packets: usize) {
        self.latency[function].record(self.elapsed_ns, packets as u64);
    }
}

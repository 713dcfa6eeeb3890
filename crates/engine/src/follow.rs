//! Chains that devices follow: which part of the chain a device leads packets through by itself, and what is made of a
//! chunk whose packets have gone that way.
//!
//! A device leads a packet on where both functions are placed on it, and where the next one needs nothing of the host in
//! between: no host half, no order of arrival, no frame that moves. The first function's host half must do with seeing
//! its packets when they are back. Everything else comes back, and the worker sends it on.

use std::sync::Arc;

use godwit_abi::{Bin, Descriptor, HOPS_MAX, Outcome, TRAIL_NONE, VERDICT_DROP};
use godwit_chain::{Chain, Next};
use godwit_device::DeviceChain;
use godwit_function::{Contract, Function, HostHalf};
use godwit_sched::{Chunk, Stream};

use crate::counters::{BINS, BYTES, PACKETS};
use crate::plan::Plan;
use crate::worker::Worker;

/// The part of the chain that device `device` can lead packets through; `None` where there is none, and nothing is to be
/// said of what comes back. `placement`: for each function its devices. `host_halves`: one worker's.
pub(crate) fn device_chain(
    chain: &Chain,
    functions: &[(String, Arc<dyn Function>)],
    placement: &[Box<[usize]>],
    host_halves: &[Option<Box<dyn HostHalf>>],
    device: usize,
) -> Option<DeviceChain> {
    let (decider, classes) = (chain.decider(), chain.classes().len());
    let verdicts = functions.iter().map(|(_, function)| function.contract().verdicts.len()).max().unwrap_or(0);
    let mut found = DeviceChain::new(functions.len(), classes, verdicts);
    let here = |function: &usize| placement[*function].contains(&device);
    let can_be_led_to = |function: usize| {
        let contract = functions[function].1.contract();
        here(&function)
            && host_halves[function].is_none()
            && !contract.in_order
            && contract.writes_bytes != Contract::ALL
            && (1..u16::MAX).contains(&chain.ranks()[function])
    };
    // Everything that is said of packets of all classes; numbers fit, the decider's own do.
    let said = |function: usize| {
        let verdicts = functions[function].1.contract().verdicts.len();
        (0..classes).flat_map(move |class| (0..verdicts).map(move |verdict| (class, verdict)))
    };
    let lets_lead_on = |function: &usize| host_halves[*function].as_ref().is_none_or(|half| half.lets_lead_on());
    for from in (0..functions.len()).filter(here).filter(lets_lead_on) {
        for (class, verdict) in said(from) {
            if let Next::Function(to) = decider.next(from as u16, class as u8, verdict as u8)
                && can_be_led_to(usize::from(to))
            {
                found.lead(from, class, verdict, to.into(), chain.ranks()[usize::from(to)]);
            }
        }
    }
    // Those behind come first, so that what they lead to is known.
    let mut order: Vec<usize> = (0..functions.len()).filter(here).collect();
    order.sort_by_key(|&function| std::cmp::Reverse(chain.ranks()[function]));
    let mut needed = vec![false; functions.len()];
    for from in order {
        needed[from] = said(from).any(|(class, verdict)| match found.next(from, class as u8, verdict as u8) {
            Some(to) => needed[to],
            None => !matches!(decider.next(from as u16, class as u8, verdict as u8), Next::Drop | Next::None),
        });
        if !needed[from] {
            found.nobody_needs(from);
        }
    }
    let says_anything = found.leads_any() || (0..functions.len()).any(|function| here(&function) && !needed[function]);
    says_anything.then_some(found)
}

/// What is never mixed in a bin: one stream a function, with its number, and one more for each further class of a function
/// from which a device leads packets of several classes different ways.
pub(crate) struct Streams {
    pub(crate) streams: Vec<Stream>,
    /// For each function the stream of each class, where they differ.
    of_class: Vec<Option<Box<[u16]>>>,
}

impl Streams {
    /// `tells_classes_apart`: whether a device leads packets of a function different ways by their class.
    pub(crate) fn new(kernels: &[u8], classes: usize, tells_classes_apart: impl Fn(usize) -> bool) -> Self {
        let stream = |(instance, &kernel): (u16, &u8)| Stream { instance, kernel, row: 0 };
        let mut streams: Vec<Stream> = (0..).zip(kernels).map(stream).collect();
        let of_class = (0..kernels.len()).map(|function| {
            tells_classes_apart(function).then(|| {
                let mut stream_of = |class: usize| {
                    if class == 0 {
                        return function as u16;
                    }
                    streams.push(Stream { row: class as u8, ..streams[function] });
                    (streams.len() - 1) as u16
                };
                (0..classes).map(&mut stream_of).collect()
            })
        });
        let of_class = of_class.collect();
        Self { streams, of_class }
    }

    /// For function `function` the stream of each class; `None`: all have the function's number.
    pub(crate) fn of_class(&self, function: usize) -> Option<Box<[u16]>> {
        self.of_class[function].clone()
    }
}

/// What a worker keeps between chunks, so that nothing is allocated.
#[derive(Default)]
pub(crate) struct Followed {
    outcomes: Vec<Outcome>,
    /// Functions that packets of the bin have come to.
    seen: Vec<usize>,
}

impl Followed {
    /// Has the host half of a bin's first function complete what that said, which `outcomes` has only of packets that were
    /// not led on. A packet that it drops was never led on.
    fn complete(
        &mut self,
        host_half: &mut dyn HostHalf,
        variant: u8,
        descriptors: &[Descriptor],
        parameters: &[u64],
        outcomes: &mut [Outcome],
        trails: &mut [u32],
    ) {
        let first = |(outcome, &trail): (&Outcome, &u32)| match trail {
            TRAIL_NONE => *outcome,
            // The first verdict is in the lowest bits.
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

impl Worker {
    /// Completes a bin whose packets the device has led on, and sends each on from where it came to.
    pub(crate) fn complete_followed(
        &mut self,
        plan: &Plan,
        chain: &DeviceChain,
        bin: Bin,
        chunk: &mut Chunk,
        elapsed_ns: u64,
    ) {
        let range = chunk.range(&bin);
        let descriptors = &chunk.descriptors[range.clone()];
        let (outcomes, trails) = (&mut chunk.outcomes[range.clone()], &mut chunk.trails[range.clone()]);
        let first = usize::from(bin.instance);
        let mut followed = std::mem::take(&mut self.followed);
        if let Some(host_half) = self.host_half(first) {
            let parameters = &chunk.parameters[range];
            followed.complete(host_half, bin.variant, descriptors, parameters, outcomes, trails);
        }
        followed.seen.clear();
        let mut from = 0;
        for run in trails.chunk_by(|one, next| one == next) {
            let packets = from..from + run.len();
            from = packets.end;
            let mut function = first;
            for behind in 0..HOPS_MAX {
                let verdict = (run[0] >> (8 * behind)) as u8;
                if verdict == VERDICT_DROP {
                    break;
                }
                self.counts.add(plan.stages[function].counters.verdict(verdict), run.len() as u64);
                let Some(next) = chain.next(function, bin.row, verdict) else {
                    unreachable!("a device led packets of {} where the chain does not", plan.stages[first].name);
                };
                if self.tracer.follows() {
                    self.tracer.led(plan, function, verdict, next, &descriptors[packets.clone()]);
                }
                function = next;
                self.count_led(plan, function, &descriptors[packets.clone()], elapsed_ns);
                if !followed.seen.contains(&function) {
                    followed.seen.push(function);
                    self.counts.add(plan.stages[function].counters.plain(BINS), 1);
                }
            }
            self.decide(plan, function, &descriptors[packets.clone()], &outcomes[packets]);
        }
        self.followed = followed;
    }

    /// Counts packets that came to a function on the device. Functions that are led to leave lengths as they are.
    fn count_led(&mut self, plan: &Plan, function: usize, packets: &[Descriptor], elapsed_ns: u64) {
        let counters = plan.stages[function].counters;
        let bytes: u64 = packets.iter().map(|packet| u64::from(packet.length)).sum();
        self.counts.add(counters.plain(PACKETS), packets.len() as u64);
        self.counts.add(counters.plain(BYTES), bytes);
        self.record_latency(function, elapsed_ns, packets.len() as u64);
    }
}

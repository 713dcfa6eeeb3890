//! Chains that devices follow: which part of the chain a device leads packets through by itself, and what is made of a
//! chunk whose packets have gone that way.
//!
//! A device leads a packet on where both functions are placed on it, and where the next one needs nothing of the host in
//! between: no host half, no order of arrival, no frame that moves. The first function's host half must do with seeing
//! its packets when they are back. Everything else comes back, and the worker sends it on.

use std::ops::Range;

use godwit_abi::{Bin, Descriptor, HOPS_MAX, Outcome, TRAIL_NONE, VERDICT_DROP};
use godwit_chain::{Chain, Next};
use godwit_device::DeviceChain;
use godwit_function::{Contract, HostHalf};
use godwit_sched::{Chunk, Stream};

use crate::config::FunctionConfig;
use crate::counters::{BINS, BYTES, PACKETS};
use crate::plan::Plan;
use crate::worker::Worker;

/// Rows of the table by which devices follow a chain: as many for the chain that packets take as for the one that they take
/// after it, so that each is written while no packet goes by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Of one chain.
    each: usize,
    /// Chains that there is room for.
    chains: usize,
}

impl Rows {
    /// Rows that a bin can name.
    const MAX: usize = 256;
    /// Classes that later chains may have at least.
    const LEAST: usize = 16;

    /// For a machine that starts with so many classes.
    pub(crate) fn new(classes: usize) -> Self {
        match classes.next_power_of_two().max(Self::LEAST) {
            each if 2 * each <= Self::MAX => Self { each, chains: 2 },
            _ => Self { each: classes, chains: 1 },
        }
    }

    /// The rows of the chain with this number.
    pub(crate) fn of(&self, number: u64) -> Range<usize> {
        let first = (number % self.chains as u64) as usize * self.each;
        first..first + self.each
    }

    /// Whether another chain can take the place of one.
    pub(crate) fn can_change(&self) -> bool {
        self.chains > 1
    }

    fn table(&self) -> usize {
        self.chains * self.each
    }
}

/// What a function does on the host, as far as chains on devices depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSide {
    is_there: bool,
    may_continue_on_device: bool,
}

impl HostSide {
    pub(crate) fn new(host_half: Option<&dyn HostHalf>) -> Self {
        Self {
            is_there: host_half.is_some(),
            may_continue_on_device: host_half.is_none_or(HostHalf::may_continue_on_device),
        }
    }
}

/// What does not depend on the chain.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) functions: &'a [FunctionConfig],
    /// For each function its devices.
    pub(crate) placement: &'a [Box<[usize]>],
    pub(crate) host_sides: &'a [HostSide],
    pub(crate) rows: Rows,
}

/// The part of the chain with this number that device `device` can lead packets through.
pub(crate) fn device_chain(chain: &Chain, number: u64, site: Site<'_>, device: usize) -> DeviceChain {
    let Site { functions, placement, host_sides, rows } = site;
    let (decider, classes) = (chain.decider(), chain.classes().len());
    let contract = |function: usize| functions[function].function.contract();
    let verdicts = (0..functions.len()).map(|function| contract(function).verdicts.len()).max().unwrap_or(0);
    let own_rows = rows.of(number);
    if classes > own_rows.len() {
        // Every packet comes back after each function.
        return DeviceChain::new(functions.len(), 0, verdicts).in_table(own_rows, rows.table());
    }
    let mut found = DeviceChain::new(functions.len(), classes, verdicts).in_table(own_rows, rows.table());
    let here = |function: &usize| placement[*function].contains(&device);
    let could_be_led_to = |function: usize| {
        let contract = contract(function);
        here(&function)
            && !host_sides[function].is_there
            && !contract.in_order
            && contract.writes_bytes != Contract::ALL
    };
    let can_be_led_to = |function: usize| could_be_led_to(function) && (1..u16::MAX).contains(&chain.ranks()[function]);
    // Everything that is said of packets of all classes; numbers fit, the decider's own do.
    let said = |function: usize| {
        let verdicts = contract(function).verdicts.len();
        (0..classes).flat_map(move |class| (0..verdicts).map(move |verdict| (class, verdict)))
    };
    let may_continue_on_device = |function: &usize| host_sides[*function].may_continue_on_device;
    for from in (0..functions.len()).filter(here).filter(may_continue_on_device) {
        for (class, verdict) in said(from) {
            if let Next::Function(to) = decider.next(from as u16, class as u8, verdict as u8)
                && can_be_led_to(usize::from(to))
            {
                found.connect(from, class, verdict, to.into(), chain.ranks()[usize::from(to)]);
            }
        }
    }
    // Those behind come first, so that what they lead to is known.
    let mut order: Vec<usize> = (0..functions.len()).filter(here).collect();
    order.sort_by_key(|&function| std::cmp::Reverse(chain.ranks()[function]));
    let mut needed = vec![false; functions.len()];
    for from in order {
        // Packets may come to it by another chain.
        let row = |class: usize| (rows.of(number).start + class) as u8;
        let is_needed = |(class, verdict): (usize, usize)| match found.next(from, row(class), verdict as u8) {
            Some(to) => needed[to],
            None => !matches!(decider.next(from as u16, class as u8, verdict as u8), Next::Drop | Next::None),
        };
        // Packets may come to it by another chain.
        needed[from] = !chain.is_reached(from) || said(from).any(is_needed);
        if !needed[from] {
            found.skip_copy_back(from);
        }
    }
    let waits = |function: usize| could_be_led_to(function) && !chain.is_reached(function);
    if (0..functions.len()).any(waits) && (0..functions.len()).filter(here).count() > 1 {
        found.reserve_table();
    }
    found
}

/// What is never mixed in a bin: one stream a function, with its number, and one more for each further class of a function
/// from which a device leads packets of several classes different ways.
pub(crate) struct Streams {
    pub(crate) streams: Vec<Stream>,
    /// For each function the stream of each class, where they differ.
    of_class: Vec<Option<Box<[u16]>>>,
}

impl Streams {
    /// `first_row`: that of class 0. `tells_classes_apart`: whether a device leads packets of a function different ways by their
    /// class.
    pub(crate) fn new(
        kernels: &[u8],
        classes: usize,
        first_row: usize,
        tells_classes_apart: impl Fn(usize) -> bool,
    ) -> Self {
        let stream = |(instance, &kernel): (u16, &u8)| Stream { instance, kernel, row: first_row as u8 };
        let mut streams: Vec<Stream> = (0..).zip(kernels).map(stream).collect();
        let of_class = (0..kernels.len()).map(|function| {
            tells_classes_apart(function).then(|| {
                let mut stream_of = |class: usize| {
                    if class == 0 {
                        return function as u16;
                    }
                    streams.push(Stream { row: (first_row + class) as u8, ..streams[function] });
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

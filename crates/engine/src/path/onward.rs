//! Next step of packets. A packet from a port goes to the first function of its class. A packet
//! from a function goes where the chain sends its verdict: to a function, to a port, or to a drop.

use godwit_abi::{Outcome, PORT_FLOOD, VERDICT_DROP};
use godwit_chain::Next;
use godwit_function::PreviousOutcome;
use godwit_io::Departure;
use godwit_packet::{Descriptor, verdict_of_all};

use crate::observe::counters::{DROPPED, DROPPED_CHAIN, DROPPED_PORT, DROPPED_UNROUTED};
use crate::path::Worker;
use crate::path::egress::Departing;
use crate::path::flood::Flood;
use crate::plan::chain_plan::ChainPlan;

impl Worker {
    /// Starts arrived packets at the first stage of their chain. Without class rules, all packets
    /// of a port have the same first stage.
    pub(crate) fn start(&mut self, plan: &ChainPlan, descriptors: &[Descriptor]) {
        if plan.classifier.is_trivial() {
            for run in descriptors.chunk_by(|one, next| one.port == next.port) {
                let next = plan.decider.entry(run[0].port, 0);
                self.send_on(plan, next, None, run, |_| Outcome::default());
            }
            return;
        }
        let mut partition = std::mem::take(&mut self.partition);
        let keys = descriptors.iter().map(|descriptor| {
            let class = plan.classifier.classify(&godwit_wire::parse(self.region.frame(descriptor)));
            self.order.classify(descriptor, class);
            key(class, descriptor.port)
        });
        if partition.begin(keys) {
            while let Some(key) = partition.next(descriptors, &[]) {
                self.start_alike(plan, key, &partition.descriptors);
            }
        } else if let Some(first) = descriptors.first() {
            self.start_alike(plan, key(self.order.class(first), first.port), descriptors);
        }
        self.partition = partition;
    }

    /// Starts packets of one class and port at their first stage. `key` encodes class and port.
    fn start_alike(&mut self, plan: &ChainPlan, key: u32, descriptors: &[Descriptor]) {
        let (class, port) = split_key(key);
        self.send_on(plan, plan.decider.entry(port, class), None, descriptors, |_| Outcome::default());
    }

    /// Sends packets to stage `next`. `outcome(i)` is the outcome of packet `i` from `function`.
    #[inline]
    fn send_on(
        &mut self,
        plan: &ChainPlan,
        next: Next,
        function: Option<usize>,
        descriptors: &[Descriptor],
        outcome: impl Fn(usize) -> Outcome,
    ) {
        match next {
            Next::Function(next) => {
                let stage = &plan.stages[usize::from(next)];
                if let Some(gate) = stage.gate {
                    if !self.order.enter(gate, descriptors) {
                        descriptors.iter().for_each(|descriptor| self.order.wait(descriptor, gate));
                        return;
                    }
                } else if stage.progress > 0 {
                    descriptors.iter().for_each(|descriptor| self.order.advance(descriptor, stage.progress));
                }
                let input = &mut self.inputs[usize::from(next)];
                input.pending.extend_from_slice(descriptors);
                if input.reads_previous {
                    let contract = function.map(|function| plan.stages[function].function.contract());
                    let function = function.unwrap_or_default();
                    let previous = |packet| PreviousOutcome { contract, function, outcome: outcome(packet) };
                    input.previous_outcomes.extend((0..descriptors.len()).map(previous));
                }
            }
            Next::Port(port) => self.send_out(plan, descriptors, u16::from(port)),
            Next::Egress => {
                let Some(Outcome { port, .. }) = (!descriptors.is_empty()).then(|| outcome(0)) else { return };
                let differences =
                    (0..descriptors.len()).fold(0, |differences, packet| differences | (outcome(packet).port ^ port));
                if differences == 0 && port != PORT_FLOOD {
                    self.send_out(plan, descriptors, port);
                    return;
                }
                for (packet, descriptor) in descriptors.iter().enumerate() {
                    let Outcome { port, value: set, .. } = outcome(packet);
                    match function {
                        Some(function) if port == PORT_FLOOD => {
                            self.order.wait_flood(descriptor, Flood { function, set });
                        }
                        _ => self.send_out(plan, std::slice::from_ref(descriptor), port),
                    }
                }
            }
            Next::Drop => descriptors.iter().for_each(|descriptor| self.drop_packet(descriptor, DROPPED_CHAIN)),
            Next::None => descriptors.iter().for_each(|descriptor| self.drop_packet(descriptor, DROPPED_UNROUTED)),
        }
    }

    #[inline]
    fn send_out(&mut self, plan: &ChainPlan, descriptors: &[Descriptor], port: u16) {
        match self.exits.get(usize::from(port)) {
            Some(true) if plan.ordered[usize::from(port)] => {
                let Departing { outs, arrivals } = &mut self.departing;
                let arrived = |arrival_ns, packets| arrivals.push((arrival_ns, packets));
                if !self.order.pass_exit(descriptors, &mut outs[usize::from(port)], arrived) {
                    self.order.wait_exit(descriptors, port as u8);
                }
            }
            Some(true) => descriptors.iter().for_each(|descriptor| self.send_at_once(descriptor, usize::from(port))),
            _ => descriptors.iter().for_each(|descriptor| self.drop_packet(descriptor, DROPPED_PORT)),
        }
    }

    /// Sends a packet by a port that does not keep arrival order.
    fn send_at_once(&mut self, descriptor: &Descriptor, port: usize) {
        let (stamp, arrival_ns) = self.order.stamp_and_arrival(descriptor);
        self.order.leave(descriptor);
        self.departing.outs[port].push(Departure { descriptor: *descriptor, stamp });
        self.departing.arrived(arrival_ns, 1);
    }

    pub(crate) fn drop_packet(&mut self, descriptor: &Descriptor, reason: usize) {
        self.observer.dropped(&self.plan, descriptor, reason);
        self.order.leave(descriptor);
        self.region.release(descriptor);
        self.counts.add(DROPPED, 1);
        self.counts.add(reason, 1);
    }

    /// Counts the outcomes of a function and sends each packet to its next stage.
    pub(crate) fn decide(
        &mut self,
        plan: &ChainPlan,
        function: usize,
        descriptors: &[Descriptor],
        outcomes: &[Outcome],
    ) {
        self.observer.verdicts(plan, |packet| self.order.class(packet), function, descriptors, outcomes);
        if plan.classifier.is_trivial()
            && let Some(verdict) = verdict_of_all(outcomes)
        {
            self.decide_alike(plan, function, key(0, verdict), descriptors, outcomes);
            return;
        }
        let mut partition = std::mem::take(&mut self.partition);
        let is_parted = if plan.classifier.is_trivial() {
            partition.begin(outcomes.iter().map(|outcome| key(0, outcome.verdict)))
        } else {
            let classes = descriptors.iter().map(|descriptor| self.order.class(descriptor));
            partition.begin(classes.zip(outcomes).map(|(class, outcome)| key(class, outcome.verdict)))
        };
        if is_parted {
            while let Some(key) = partition.next(descriptors, outcomes) {
                self.decide_alike(plan, function, key, &partition.descriptors, &partition.outcomes);
            }
        } else if let (Some(descriptor), Some(outcome)) = (descriptors.first(), outcomes.first()) {
            let class = if plan.classifier.is_trivial() { 0 } else { self.order.class(descriptor) };
            self.decide_alike(plan, function, key(class, outcome.verdict), descriptors, outcomes);
        }
        self.partition = partition;
    }

    /// Counts outcomes that have one class and one verdict, and sends their packets to the next
    /// stage. `key` encodes class and verdict.
    fn decide_alike(
        &mut self,
        plan: &ChainPlan,
        function: usize,
        key: u32,
        descriptors: &[Descriptor],
        outcomes: &[Outcome],
    ) {
        let counters = plan.stages[function].counters;
        let (class, verdict) = split_key(key);
        if verdict == VERDICT_DROP {
            for (descriptor, outcome) in descriptors.iter().zip(outcomes) {
                self.drop_packet(descriptor, counters.drop(outcome.reason));
            }
            return;
        }
        self.counts.add(counters.verdict(verdict), outcomes.len() as u64);
        let next = plan.decider.next(function as u16, class, verdict);
        self.send_on(plan, next, Some(function), descriptors, |packet| outcomes[packet]);
    }
}

/// Returns the key that encodes a class and a second value: an ingress port or a verdict. Packets
/// with equal keys have the same next stage.
#[inline]
fn key(class: u8, by: u8) -> u32 {
    u32::from(class) << 8 | u32::from(by)
}

#[inline]
fn split_key(key: u32) -> (u8, u8) {
    ((key >> 8) as u8, key as u8)
}

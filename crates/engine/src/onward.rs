//! Where packets go next: from a port to the first function of their class, from a function to what its verdict leads to,
//! out, or nowhere.

use godwit_abi::{Outcome, PORT_FLOOD, VERDICT_DROP};
use godwit_chain::Next;
use godwit_function::Said;
use godwit_io::Departure;
use godwit_packet::Descriptor;

use crate::counters::{DROPPED, DROPPED_CHAIN, DROPPED_PORT, DROPPED_UNROUTED};
use crate::flood::Flood;
use crate::plan::Plan;
use crate::worker::Worker;

impl Worker {
    /// Starts packets on their chains. Without class rules, packets of one port go the same way.
    pub(crate) fn start(&mut self, plan: &Plan, descriptors: &[Descriptor]) {
        if plan.classifier.is_trivial() {
            for run in descriptors.chunk_by(|one, next| one.port == next.port) {
                let next = plan.decider.entry(run[0].port, 0);
                self.send_on(plan, next, None, run, |_| Outcome::default());
            }
            return;
        }
        for descriptor in descriptors {
            let class = plan.classifier.classify(&godwit_wire::parse(self.region.frame(descriptor)));
            self.order.classify(descriptor, class);
            let next = plan.decider.entry(descriptor.port, class);
            self.send_on(plan, next, None, std::slice::from_ref(descriptor), |_| Outcome::default());
        }
    }

    /// Sends packets where the route decider says: all to the same place. `outcome(i)` is what `function` said of the `i`th.
    #[inline]
    fn send_on(
        &mut self,
        plan: &Plan,
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
                if input.hears {
                    let by = function.map(|function| plan.stages[function].function.contract());
                    let function = function.unwrap_or_default();
                    let said = |packet| Said { by, function, outcome: outcome(packet) };
                    input.said.extend((0..descriptors.len()).map(said));
                }
            }
            Next::Port(port) => self.send_out(plan, descriptors, u16::from(port)),
            Next::Egress => {
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
    fn send_out(&mut self, plan: &Plan, descriptors: &[Descriptor], port: u16) {
        match self.exits.get(usize::from(port)) {
            Some(true) if plan.ordered[usize::from(port)] => self.order.wait_exit(descriptors, port as u8),
            Some(true) => descriptors.iter().for_each(|descriptor| self.send_at_once(descriptor, usize::from(port))),
            _ => descriptors.iter().for_each(|descriptor| self.drop_packet(descriptor, DROPPED_PORT)),
        }
    }

    /// Sends a packet by a port that keeps no order.
    fn send_at_once(&mut self, descriptor: &Descriptor, port: usize) {
        let (stamp, arrival_ns) = self.order.remembered(descriptor);
        self.order.leave(descriptor);
        self.departing.outs[port].push(Departure { descriptor: *descriptor, stamp });
        self.departing.arrived(arrival_ns, 1);
    }

    pub(crate) fn drop_packet(&mut self, descriptor: &Descriptor, reason: usize) {
        if self.tracer.follows() {
            self.tracer.dropped(&self.plan, descriptor, reason);
        }
        self.order.leave(descriptor);
        self.region.release(descriptor);
        self.counts.add(DROPPED, 1);
        self.counts.add(reason, 1);
    }

    /// Counts what a function said of packets, and sends them on.
    pub(crate) fn decide(&mut self, plan: &Plan, function: usize, descriptors: &[Descriptor], outcomes: &[Outcome]) {
        let counters = plan.stages[function].counters;
        if self.tracer.follows() {
            self.tracer.said(plan, &self.order, function, descriptors, outcomes);
        }
        let mut first = 0;
        for run in outcomes.chunk_by(|one, next| one.verdict == next.verdict) {
            let (verdict, descriptors) = (run[0].verdict, &descriptors[first..first + run.len()]);
            first += run.len();
            if verdict == VERDICT_DROP {
                for (descriptor, outcome) in descriptors.iter().zip(run) {
                    self.drop_packet(descriptor, counters.drop(outcome.reason));
                }
                continue;
            }
            self.counts.add(counters.verdict(verdict), run.len() as u64);
            if plan.classifier.is_trivial() {
                let next = plan.decider.next(function as u16, 0, verdict);
                self.send_on(plan, next, Some(function), descriptors, |packet| run[packet]);
                continue;
            }
            for (descriptor, outcome) in descriptors.iter().zip(run) {
                let next = plan.decider.next(function as u16, self.order.class(descriptor), verdict);
                self.send_on(plan, next, Some(function), std::slice::from_ref(descriptor), |_| *outcome);
            }
        }
    }
}

//! The function chain as workers use it for packets. All workers share one immutable plan. A change
//! of the chain creates a new plan (`change.rs`).

use std::sync::Arc;

use godwit_chain::{Classifier, Decider, Next};
use godwit_device::DeviceChain;
use godwit_function::Function;
use godwit_sched::Stream;

use crate::observe::counters::{CounterLayout, FunctionLayout};
use crate::path::order::Order;
use crate::place::device_chain::Streams;
use crate::plan::stations::PortStations;

/// Immutable description of the function chain for workers.
pub(crate) struct ChainPlan {
    pub(crate) classifier: Classifier,
    /// Names of the traffic classes, by class number.
    pub(crate) classes: Vec<String>,
    pub(crate) decider: Decider,
    pub(crate) entries: Entries,
    /// Configured functions in the chain, by function number.
    pub(crate) stages: Vec<Stage>,
    /// Function numbers in topological order. Each function precedes all functions that may follow
    /// it in the chain.
    pub(crate) sequence: Vec<usize>,
    /// Functions that need packets in arrival order. Packets wait at a gate in front of each one.
    /// The number of the gate is the index in this list.
    pub(crate) gates: Vec<usize>,
    /// Whether packets leave in arrival order, for each port.
    pub(crate) ordered: Vec<bool>,
    pub(crate) stations: Vec<Option<PortStations>>,
    pub(crate) layout: CounterLayout,
    /// For each device, the part of the function chain that it executes without the host, or `None`
    /// if it returns packets after each function.
    pub(crate) chains: Vec<Option<Arc<DeviceChain>>>,
    /// Inputs of the packers, which put packets into batches. All packets of a batch come from one
    /// input.
    pub(crate) streams: Vec<Stream>,
}

/// A configured function in the chain.
pub(crate) struct Stage {
    /// Configured name of the function.
    pub(crate) name: String,
    pub(crate) function: Arc<dyn Function>,
    /// Kind of processing for every packet that is not prepared on the CPU.
    pub(crate) variant: u8,
    /// Number of the place in front of the function where packets wait for their turn in arrival
    /// order.
    ///
    /// It is `None` if the function does not need arrival order, or if packets come only from
    /// ports.
    pub(crate) gate: Option<usize>,
    /// Progress of a packet on its way to the function. It increases at each gate, where packets
    /// wait for their turn in arrival order.
    pub(crate) progress: u8,
    pub(crate) counters: FunctionLayout,
    /// Whether both class and verdict determine the next function or port of a packet.
    pub(crate) is_routed_by_class: bool,
    /// Devices that may run the function, as indices into the worker's list of devices. The list is
    /// not empty, and lost devices stay in it.
    pub(crate) devices: Box<[usize]>,
    /// Packer input of each traffic class. It is `None` if all classes share one input.
    pub(crate) streams: Option<Box<[u16]>>,
}

impl Stage {
    /// Returns the progress of a packet inside the function, after any wait for its turn in arrival
    /// order.
    pub(crate) fn progress_inside(&self) -> u8 {
        self.gate.map_or(self.progress, |gate| Order::after(gate + 1))
    }
}

/// First function or port of each packet, by ingress port and traffic class. Each possible target
/// has a number.
#[derive(Debug)]
pub(crate) struct Entries {
    /// Number of the first function or port, for each ingress port and traffic class.
    numbers: Box<[u8]>,
    /// Processing stage that belongs to each number.
    stages: Vec<Next>,
    classes: usize,
}

impl Entries {
    /// Determines the first stages of `ports` ports.
    fn new(decider: &Decider, ports: usize) -> Self {
        let mut stages = Vec::new();
        let mut number = |stage: Next| {
            let known = stages.iter().position(|known| *known == stage);
            // There are at most 64 ports and 64 functions, so the number fits into 8 bits.
            known.unwrap_or_else(|| {
                stages.push(stage);
                stages.len() - 1
            }) as u8
        };
        let classes = decider.classes();
        let keys = (0..ports).flat_map(|port| (0..classes).map(move |class| (port as u8, class as u8)));
        let numbers = keys.map(|(port, class)| number(decider.entry(port, class))).collect();
        Self { numbers, stages, classes }
    }

    /// Returns the number of the first function or port for each traffic class of a port.
    #[inline]
    pub(crate) fn of_port(&self, port: u8) -> &[u8] {
        &self.numbers[usize::from(port) * self.classes..][..self.classes]
    }

    /// Returns the stage with this number.
    #[inline]
    pub(crate) fn stage(&self, number: u8) -> Next {
        self.stages[usize::from(number)]
    }
}

/// Devices and packer inputs of all functions.
pub(crate) struct Placement<'a> {
    /// Devices of each function, as indices into `devices`.
    pub(crate) functions: &'a [Box<[usize]>],
    pub(crate) devices: &'a [&'a str],
    pub(crate) chains: Vec<Option<Arc<DeviceChain>>>,
    pub(crate) streams: &'a Streams,
}

/// Properties of the ports, by port number.
pub(crate) struct PortPlans {
    /// Whether packets leave in arrival order.
    pub(crate) ordered: Vec<bool>,
    /// Frames that the port accepts.
    pub(crate) stations: Vec<Option<PortStations>>,
}

impl ChainPlan {
    /// Creates a plan. `ranks` contains the rank of each function in the chain. Functions with
    /// lower ranks come first.
    pub(crate) fn new(
        classifier: Classifier,
        classes: &[String],
        decider: Decider,
        functions: &[(String, Arc<dyn Function>)],
        ranks: &[u16],
        placement: Placement<'_>,
        ports: PortPlans,
    ) -> Self {
        let contracts = functions.iter().map(|(name, function)| (name.as_str(), function.contract()));
        let layout = CounterLayout::new(contracts, placement.devices.iter().copied());
        let mut sequence: Vec<usize> = (0..functions.len()).collect();
        sequence.sort_by_key(|&index| (ranks[index], index));
        // The casts cannot truncate, because both numbers fit into `u8`.
        let outcomes_of = |function: usize| {
            let verdicts = functions[function].1.contract().verdicts.len();
            (0..classes.len()).flat_map(move |class| (0..verdicts).map(move |verdict| (class as u8, verdict as u8)))
        };
        let next = |function: usize, (class, verdict)| decider.next(function as u16, class, verdict);
        let follows_a_function = |function: usize| {
            let target = Next::Function(function as u16);
            (0..functions.len()).any(|from| outcomes_of(from).any(|outcome| next(from, outcome) == target))
        };
        let is_routed_by_class = |function: usize| {
            outcomes_of(function)
                .any(|(class, verdict)| next(function, (class, verdict)) != next(function, (0, verdict)))
        };
        let mut gates = Vec::new();
        let mut positions = vec![(None, 0); functions.len()];
        for &index in &sequence {
            let gates_before = gates.len();
            let in_order = functions[index].1.contract().in_order;
            if in_order {
                gates.push(index);
            }
            let gate = (in_order && follows_a_function(index)).then_some(gates_before);
            positions[index] = (gate, Order::after(gates_before));
        }
        let stages =
            functions.iter().zip(positions).enumerate().map(|(index, ((name, function), (gate, progress)))| Stage {
                name: name.clone(),
                variant: function.properties().variant,
                function: Arc::clone(function),
                gate,
                progress,
                counters: layout.function(index),
                is_routed_by_class: is_routed_by_class(index),
                devices: placement.functions[index].clone(),
                streams: placement.streams.of_class(index),
            });
        let stages = stages.collect();
        let streams = placement.streams.streams.clone();
        Self {
            classifier,
            classes: classes.to_vec(),
            entries: Entries::new(&decider, ports.ordered.len()),
            decider,
            stages,
            sequence,
            gates,
            ordered: ports.ordered,
            stations: ports.stations,
            layout,
            chains: placement.chains,
            streams,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::testing::{FIRST, SECOND, TWO_FUNCTIONS, chain_plan};

    #[test]
    fn the_first_stage_follows_from_port_and_class() {
        let plan = chain_plan(TWO_FUNCTIONS);
        let entries = |port: u8| -> Vec<Next> {
            plan.entries.of_port(port).iter().map(|&number| plan.entries.stage(number)).collect()
        };
        // Class 0 contains the packets that match no rule.
        assert_eq!(entries(0), [SECOND, FIRST].map(|function| Next::Function(function as u16)));
        assert_eq!(entries(1), [Next::None; 2]);
        assert!(plan.gates.is_empty() && plan.stages.iter().all(|stage| !stage.is_routed_by_class));
    }

    #[test]
    fn a_function_that_needs_arrival_order_has_a_gate_if_another_precedes_it() {
        let (before, second) = TWO_FUNCTIONS.split_once("name = \"second\"").unwrap();
        let ipsec = "kind = \"ipsec\"\n[[function.policy]]\naction = \"bypass\"";
        let second = second.replacen("kind = \"echo\"\n    impl = \"scalar\"", ipsec, 1);
        let text = format!("{before}name = \"second\"{second}");
        let from_port = chain_plan(&text);
        assert_eq!((&from_port.gates[..], from_port.stages[SECOND].gate), (&[SECOND][..], None));
        let after_first = chain_plan(&text.replacen(
            "from = \"first\"\n    to = \"left\"",
            "from = \"first\"\n    to = \"second\"",
            1,
        ));
        let stage = |function: usize| &after_first.stages[function];
        assert_eq!(after_first.sequence, [FIRST, SECOND]);
        assert_eq!((stage(FIRST).gate, stage(SECOND).gate), (None, Some(0)));
        assert_eq!((stage(SECOND).progress, stage(SECOND).progress_inside()), (Order::after(0), Order::after(1)));
    }
}

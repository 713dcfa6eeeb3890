//! The chain in the form that workers use on the packet path. All workers share one plan, and
//! nothing writes to it. A change of the chain creates a new plan (`change.rs`).

use std::sync::Arc;

use godwit_chain::{Classifier, Decider};
use godwit_device::DeviceChain;
use godwit_function::Function;
use godwit_sched::Stream;

use crate::observe::counters::{CounterLayout, FunctionLayout};
use crate::path::order::Order;
use crate::place::device_chain::Streams;

/// The chain in the form that workers use on the packet path. It is immutable.
pub(crate) struct ChainPlan {
    pub(crate) classifier: Classifier,
    /// Names of the classes. The index is the class number.
    pub(crate) classes: Vec<String>,
    pub(crate) decider: Decider,
    /// Configured functions in the chain. The index is the function number.
    pub(crate) stages: Vec<Stage>,
    /// Function numbers in an order in which each function precedes all functions that may follow
    /// it.
    pub(crate) sequence: Vec<usize>,
    /// Function number behind each gate.
    pub(crate) gates: Vec<usize>,
    /// Whether packets leave in arrival order. One entry per port.
    pub(crate) ordered: Vec<bool>,
    pub(crate) layout: CounterLayout,
    /// Device chain of each device: the part of the chain that the device executes. `None`: the
    /// device returns packets to the host after each function.
    pub(crate) chains: Vec<Option<Arc<DeviceChain>>>,
    /// Streams of all packers. A bin contains packets of one stream only.
    pub(crate) streams: Vec<Stream>,
}

/// A configured function in the chain.
pub(crate) struct Stage {
    /// Configured name of the function.
    pub(crate) name: String,
    pub(crate) function: Arc<dyn Function>,
    /// Gate in front of the function. `None`: the function does not need arrival order.
    pub(crate) gate: Option<usize>,
    /// Progress value of a packet on its way to the function. It counts the gates before the
    /// function.
    pub(crate) progress: u8,
    pub(crate) counters: FunctionLayout,
    /// Devices on which the function is placed, as indices into the worker's devices. Contains at
    /// least one device. Failover does not change this list.
    pub(crate) devices: Box<[usize]>,
    /// Stream of each class. `None`: all classes use one stream, whose index is the function
    /// number.
    pub(crate) streams: Option<Box<[u16]>>,
}

impl Stage {
    /// Returns the progress value of a packet that is inside the function: past its gate, in the
    /// host half or in a bin.
    pub(crate) fn progress_inside(&self) -> u8 {
        self.gate.map_or(self.progress, |gate| Order::after(gate + 1))
    }
}

/// Devices and streams of all functions.
pub(crate) struct Placement<'a> {
    /// Devices of each function, as indices into `devices`.
    pub(crate) functions: &'a [Box<[usize]>],
    pub(crate) devices: &'a [&'a str],
    /// Device chain of each device. `None`: the device returns packets to the host after each
    /// function.
    pub(crate) chains: Vec<Option<Arc<DeviceChain>>>,
    pub(crate) streams: &'a Streams,
}

impl ChainPlan {
    /// Creates a plan. `ranks` has one entry per function. The rank of a function is lower than the
    /// rank of every function that may follow it.
    pub(crate) fn new(
        classifier: Classifier,
        classes: &[String],
        decider: Decider,
        functions: &[(String, Arc<dyn Function>)],
        ranks: &[u16],
        placement: Placement<'_>,
        ordered: Vec<bool>,
    ) -> Self {
        let contracts = functions.iter().map(|(name, function)| (name.as_str(), function.contract()));
        let layout = CounterLayout::new(contracts, placement.devices.iter().copied());
        let mut sequence: Vec<usize> = (0..functions.len()).collect();
        sequence.sort_by_key(|&index| (ranks[index], index));
        let mut gates = Vec::new();
        let mut positions = vec![(None, 0); functions.len()];
        for &index in &sequence {
            let gates_before = gates.len();
            let gate = functions[index].1.contract().in_order.then_some(gates_before);
            if gate.is_some() {
                gates.push(index);
            }
            positions[index] = (gate, Order::after(gates_before));
        }
        let stages =
            functions.iter().zip(positions).enumerate().map(|(index, ((name, function), (gate, progress)))| Stage {
                name: name.clone(),
                function: Arc::clone(function),
                gate,
                progress,
                counters: layout.function(index),
                devices: placement.functions[index].clone(),
                streams: placement.streams.of_class(index),
            });
        let stages = stages.collect();
        let streams = placement.streams.streams.clone();
        Self {
            classifier,
            classes: classes.to_vec(),
            decider,
            stages,
            sequence,
            gates,
            ordered,
            layout,
            chains: placement.chains,
            streams,
        }
    }
}

//! What all workers share and nobody writes: the chain, made ready for the packet path. Another chain is another plan
//! (`change.rs`).

use std::sync::Arc;

use godwit_chain::{Classifier, Decider};
use godwit_device::DeviceChain;
use godwit_function::Function;
use godwit_sched::Stream;

use crate::counters::{CounterLayout, FunctionLayout};
use crate::device_chain::Streams;
use crate::order::Order;

/// The chain as workers see it.
pub(crate) struct Plan {
    pub(crate) classifier: Classifier,
    /// The names of classes, by number.
    pub(crate) classes: Vec<String>,
    pub(crate) decider: Decider,
    /// One per configured function; a function's number is its index.
    pub(crate) stages: Vec<Stage>,
    /// Function numbers, every one before those that may follow it.
    pub(crate) sequence: Vec<usize>,
    /// The function behind each gate.
    pub(crate) gates: Vec<usize>,
    /// Whether packets leave each port in order of arrival.
    pub(crate) ordered: Vec<bool>,
    pub(crate) layout: CounterLayout,
    /// For each device the chain that it follows.
    pub(crate) chains: Vec<Option<Arc<DeviceChain>>>,
    /// What is never mixed in a bin.
    pub(crate) streams: Vec<Stream>,
}

/// A configured function in the chain.
pub(crate) struct Stage {
    /// Its configured name.
    pub(crate) name: String,
    pub(crate) function: Arc<dyn Function>,
    /// The gate in front of it, where it needs order.
    pub(crate) gate: Option<usize>,
    /// The progress of a packet that goes to it.
    pub(crate) progress: u8,
    pub(crate) counters: FunctionLayout,
    /// The devices that run it as long as no device is lost: indices into a worker's places. One at least.
    pub(crate) places: Box<[usize]>,
    /// For each class the stream of its packets, where they differ; otherwise it has the function's number.
    pub(crate) streams: Option<Box<[u16]>>,
}

impl Stage {
    /// The progress of a packet that its host half has, or its bins.
    pub(crate) fn progress_inside(&self) -> u8 {
        self.gate.map_or(self.progress, |gate| Order::behind(gate + 1))
    }
}

/// Where functions run.
pub(crate) struct Placed<'a> {
    /// For each function the devices that run it, indices into `devices`.
    pub(crate) functions: &'a [Box<[usize]>],
    pub(crate) devices: &'a [&'a str],
    /// For each device the chain that it follows.
    pub(crate) chains: Vec<Option<Arc<DeviceChain>>>,
    pub(crate) streams: &'a Streams,
}

impl Plan {
    /// `ranks`: for each function a number that is smaller than that of every function that may follow it.
    pub(crate) fn new(
        classifier: Classifier,
        classes: &[String],
        decider: Decider,
        functions: &[(String, Arc<dyn Function>)],
        ranks: &[u16],
        placed: Placed<'_>,
        ordered: Vec<bool>,
    ) -> Self {
        let contracts = functions.iter().map(|(name, function)| (name.as_str(), function.contract()));
        let layout = CounterLayout::new(contracts, placed.devices.iter().copied());
        let mut sequence: Vec<usize> = (0..functions.len()).collect();
        sequence.sort_by_key(|&index| (ranks[index], index));
        let mut gates = Vec::new();
        let mut places = vec![(None, 0); functions.len()];
        for &index in &sequence {
            let before = gates.len();
            let gate = functions[index].1.contract().in_order.then_some(before);
            if gate.is_some() {
                gates.push(index);
            }
            places[index] = (gate, Order::behind(before));
        }
        let stages =
            functions.iter().zip(places).enumerate().map(|(index, ((name, function), (gate, progress)))| Stage {
                name: name.clone(),
                function: Arc::clone(function),
                gate,
                progress,
                counters: layout.function(index),
                places: placed.functions[index].clone(),
                streams: placed.streams.of_class(index),
            });
        let stages = stages.collect();
        let streams = placed.streams.streams.clone();
        Self {
            classifier,
            classes: classes.to_vec(),
            decider,
            stages,
            sequence,
            gates,
            ordered,
            layout,
            chains: placed.chains,
            streams,
        }
    }
}

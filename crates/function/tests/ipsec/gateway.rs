//! Receiving gateway. It runs the CPU part and the kernel in the same way as the engine, and reuses
//! its buffers.

use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_function::{Function, HostHalf, Work};
use godwit_packet::{Arena, ArenaConfig, Region};
use godwit_test_cases::ipsec::batch::{Form, run_bin};

pub(crate) struct Gateway {
    pub(crate) function: Arc<dyn Function>,
    host_half: HostHalf,
    region: Region,
    /// Scratch memory for the packets of one variant.
    descriptors: Vec<Descriptor>,
    parameters: Vec<u64>,
    outcomes: Vec<Outcome>,
}

/// Maximum number of packets per batch.
pub(crate) const BATCH: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) outcome: Outcome,
    pub(crate) frame: Vec<u8>,
}

impl Gateway {
    pub(crate) fn new(function: Arc<dyn Function>) -> Self {
        let config = ArenaConfig { packets: BATCH, frame_bytes_max: 2048, ..Default::default() };
        Self {
            host_half: function.host_half(0, 1).unwrap(),
            function,
            region: Arena::new(config, 1).unwrap().split().remove(0),
            descriptors: Vec::new(),
            parameters: Vec::new(),
            outcomes: Vec::new(),
        }
    }

    /// Processes frames. If `check` is set, compares the results with the reference implementation.
    pub(crate) fn pass(&mut self, form: Form, frames: &[Vec<u8>], check: bool) -> Vec<Passed> {
        frames.chunks(BATCH).flat_map(|frames| self.pass_batch(form, frames, check)).collect()
    }

    fn pass_batch(&mut self, form: Form, frames: &[Vec<u8>], check: bool) -> Vec<Passed> {
        let mut descriptors: Vec<Descriptor> = Vec::with_capacity(frames.len());
        for (order, frame) in frames.iter().enumerate() {
            let allocated = self.region.allocate(frame.len()).expect("all buffers are free");
            let descriptor = Descriptor { order: order as u16, ..allocated };
            self.region.frame_mut(&descriptor).copy_from_slice(frame);
            descriptors.push(descriptor);
        }
        let buffers = descriptors.clone();
        let mut work = Vec::with_capacity(frames.len());
        self.host_half.preparing().unwrap().prepare(&self.region, &descriptors, &mut work);
        assert_eq!(work.len(), frames.len());
        let mut outcomes = vec![Outcome::default(); frames.len()];
        let mut runs: Vec<(u8, usize, u64)> = Vec::new();
        for (index, work) in work.iter().enumerate() {
            match *work {
                Work::Done(outcome) => outcomes[index] = outcome,
                Work::Run { variant, parameter } => runs.push((variant, index, parameter)),
            }
        }
        runs.sort_by_key(|&(variant, index, _)| (variant, index));
        for bin in runs.chunk_by(|a, b| a.0 == b.0) {
            self.run(form, bin, &mut descriptors, &mut outcomes, check);
        }
        let passed = |(outcome, descriptor): (&Outcome, &Descriptor)| Passed {
            outcome: *outcome,
            frame: self.region.frame(descriptor).to_vec(),
        };
        let passed = outcomes.iter().zip(&descriptors).map(passed).collect();
        buffers.iter().for_each(|buffer| self.region.release(buffer));
        assert_eq!(self.region.allocated(), 0, "buffers leaked");
        passed
    }

    fn run(
        &mut self,
        form: Form,
        bin: &[(u8, usize, u64)],
        descriptors: &mut [Descriptor],
        outcomes: &mut [Outcome],
        check: bool,
    ) {
        let variant = bin[0].0;
        self.descriptors.clear();
        self.parameters.clear();
        self.outcomes.clear();
        for &(_, index, parameter) in bin {
            self.descriptors.push(descriptors[index]);
            self.parameters.push(parameter);
            self.outcomes.push(Outcome { verdict: 77, reason: 77, port: 77, value: 77 });
        }
        let expected: Vec<(Outcome, Descriptor, Vec<u8>)> = if check {
            bin.iter().map(|&(_, index, parameter)| self.expect(variant, descriptors[index], parameter)).collect()
        } else {
            Vec::new()
        };
        run_bin(
            &mut self.region,
            &*self.function,
            form,
            variant,
            &mut self.descriptors,
            &self.parameters,
            &mut self.outcomes,
        );
        for ((outcome, descriptor), (reference, after, frame)) in
            self.outcomes.iter().zip(&self.descriptors).zip(expected)
        {
            assert_eq!(*outcome, reference, "{form} and ref differ");
            if outcome.verdict != godwit_abi::VERDICT_DROP {
                assert_eq!(*descriptor, after);
                assert!(self.region.frame(descriptor) == frame, "{form} and ref differ");
            }
        }
        self.host_half.completing().complete(variant, &self.descriptors, &self.parameters, &mut self.outcomes);
        for ((&(_, index, _), descriptor), outcome) in bin.iter().zip(&self.descriptors).zip(&self.outcomes) {
            descriptors[index] = *descriptor;
            outcomes[index] = *outcome;
        }
    }

    fn expect(&mut self, variant: u8, mut descriptor: Descriptor, parameter: u64) -> (Outcome, Descriptor, Vec<u8>) {
        let mut buffer = self.region.buffer_mut(&descriptor).to_vec();
        let outcome = self.function.run_ref(&mut buffer, &mut descriptor, variant, parameter);
        let head = usize::from(descriptor.head);
        (outcome, descriptor, buffer[head..head + usize::from(descriptor.length)].to_vec())
    }
}

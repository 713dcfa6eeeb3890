//! Bins of several variants, and how a device gets them.
//!
//! ```text
//! in order of arrival          | A C A B | C B |                       lanes of a group
//! parts of one bin, by variant | A A | B B | C C |       A A . . . .   the group runs A,
//!                               more  more,  rest        . . B B . .   then B, the other lanes idle,
//!                                     rest               . . . . C C   then C
//! ```

use godwit_abi::{Bin, Descriptor, PART_MORE, PART_REST};

use crate::chunk::Chunk;
use crate::config::PackerConfig;

const VARIANTS: usize = 256;

/// Where variants change in bins that are filled in order of arrival. Has no memory where bins are of one variant each.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Of each place of a chunk: 1 + the variant that begins there in the midst of a bin; 0: as in the place before.
    begins: Box<[u16]>,
    /// Of each bin: whether its packets are of several variants.
    mixed: Box<[bool]>,
    // What follows is for parting one bin.
    variants: Vec<u8>,
    descriptors: Vec<Descriptor>,
    parameters: Vec<u64>,
}

impl Parts {
    pub(crate) fn new(config: &PackerConfig) -> Self {
        let (bins, packets) = match config.mixes_variants() {
            true => (config.bins as usize, config.bin_packets as usize),
            false => (0, 0),
        };
        Self {
            begins: vec![0; bins * packets].into(),
            mixed: vec![false; bins].into(),
            variants: vec![0; packets],
            descriptors: vec![Descriptor::default(); packets],
            parameters: vec![0; packets],
        }
    }

    /// From `place` on, which lies in the midst of a bin, packets are of another variant.
    pub(crate) fn begin(&mut self, bin: usize, place: usize, variant: u8) {
        self.begins[place] = 1 + u16::from(variant);
        self.mixed[bin] = true;
    }

    /// Adds a bin to those of the chunk: as it is, where it is of one variant, or else its packets sorted by variant, each in
    /// order of arrival, and a bin for each. `number`: which bin it is.
    pub(crate) fn push(&mut self, number: usize, whole: Bin, chunk: &mut Chunk) {
        if self.mixed.get(number).is_none_or(|mixed| !mixed) {
            chunk.bins.push(whole);
            return;
        }
        self.mixed[number] = false;
        let (first, count) = (whole.first as usize, usize::from(whole.count));
        let (descriptors, parameters) =
            (&mut chunk.descriptors[first..first + count], &mut chunk.parameters[first..first + count]);
        self.descriptors[..count].copy_from_slice(descriptors);
        self.parameters[..count].copy_from_slice(parameters);
        let mut parts = [Bin { count: 0, length_bytes: 0, ..whole }; VARIANTS];
        let mut variant = whole.variant;
        let begins = &mut self.begins[first..first + count];
        for ((begins, own), descriptor) in begins.iter_mut().zip(&mut self.variants).zip(&self.descriptors) {
            if let Some(begun) = std::mem::take(begins).checked_sub(1) {
                // It was made from one.
                variant = begun as u8;
            }
            *own = variant;
            let part = &mut parts[usize::from(variant)];
            part.variant = variant;
            part.count += 1;
            part.length_bytes = part.length_bytes.max(descriptor.length);
        }
        let mut next = whole.first;
        let bins = chunk.bins.len();
        for part in parts.iter_mut().filter(|part| part.count > 0) {
            part.first = next;
            part.part = PART_MORE | PART_REST;
            next += u32::from(part.count);
            chunk.bins.push(*part);
        }
        // Of one variant at least, and another began.
        chunk.bins[bins].part &= !PART_REST;
        if let Some(last) = chunk.bins.last_mut() {
            last.part &= !PART_MORE;
        }
        let packets = self.variants.iter().zip(&self.descriptors).zip(&self.parameters).take(count);
        for ((variant, descriptor), parameter) in packets {
            let place = &mut parts[usize::from(*variant)].first;
            let at = (*place - whole.first) as usize;
            *place += 1;
            (descriptors[at], parameters[at]) = (*descriptor, *parameter);
        }
    }
}

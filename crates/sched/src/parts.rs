//! Splits batches whose packets need several kinds of processing into one part for each kind.
//!
//! The drawing shows two batches with packets of the kinds A, B and C:
//!
//! ```text
//! in order of arrival          | A C A B | C B |        work-items of a group
//! parts of a batch, by kind    | A A | B B | C C |      A A . . . .  the group runs A,
//!                               more  more,  rest       . . B B . .  then B (others are idle),
//!                                     rest              . . . . C C  then C
//! ```

use godwit_abi::{Bin, Descriptor, PART_MORE, PART_REST};

use crate::chunk::Chunk;
use crate::config::{PackerConfig, VARIANTS};

/// Records the positions in a batch where the kind of processing changes. It allocates no memory if
/// each batch has only one kind of processing.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Entry for each packet position in the batches. It is the kind of processing plus 1 if a new
    /// kind begins at this position, and otherwise 0.
    begins: Box<[u16]>,
    /// Whether the packets of each batch need several kinds of processing.
    mixed: Box<[bool]>,
    // Scratch memory for splitting one batch into parts.
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

    /// Records that the kind of processing `variant` begins at position `slot` of a batch.
    pub(crate) fn begin(&mut self, bin: usize, slot: usize, variant: u8) {
        self.begins[slot] = 1 + u16::from(variant);
        self.mixed[bin] = true;
    }

    /// Adds the batch with the number `number` to the submission.
    ///
    /// A batch with one kind of processing is added unchanged. In any other batch, the packets are
    /// sorted by kind of processing. Packets of one kind stay in arrival order. Each kind
    /// becomes one entry of [`Chunk::bins`].
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
                // The value was converted from a `u8`.
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
        chunk.bins[bins].part &= !PART_REST;
        if let Some(last) = chunk.bins.last_mut() {
            last.part &= !PART_MORE;
        }
        let packets = self.variants.iter().zip(&self.descriptors).zip(&self.parameters).take(count);
        for ((variant, descriptor), parameter) in packets {
            let next = &mut parts[usize::from(*variant)].first;
            let index = (*next - whole.first) as usize;
            *next += 1;
            (descriptors[index], parameters[index]) = (*descriptor, *parameter);
        }
    }
}

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
    shares: Box<[Share]>,
    /// Variants whose share is not empty.
    present: Vec<u8>,
    variants: Vec<u8>,
    descriptors: Vec<Descriptor>,
    parameters: Vec<u64>,
}

/// What a variant has of a bin. All zeros between two bins. (Fields of 32 bits: as with the packer's cursors.)
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    count: u32,
    /// Longest frame, bytes.
    longest: u32,
    /// Where its next packet goes, counted from the bin's first.
    next: u32,
}

impl Parts {
    pub(crate) fn new(config: &PackerConfig) -> Self {
        let (bins, packets, variants) = match config.mixes_variants() {
            true => (config.bins as usize, config.bin_packets as usize, VARIANTS),
            false => (0, 0, 0),
        };
        Self {
            begins: vec![0; bins * packets].into(),
            mixed: vec![false; bins].into(),
            shares: vec![Share::default(); variants].into(),
            present: Vec::with_capacity(variants),
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
        match self.mixed.get_mut(number) {
            Some(mixed) if *mixed => *mixed = false,
            _ => return chunk.bins.push(whole),
        }
        let (first, count) = (whole.first as usize, usize::from(whole.count));
        self.count(&whole, &chunk.descriptors[first..first + count]);
        self.present.sort_unstable();
        let mut next = 0;
        for (index, &variant) in self.present.iter().enumerate() {
            let share = &mut self.shares[usize::from(variant)];
            share.next = next;
            let rest = if index == 0 { 0 } else { PART_REST };
            let more = if index + 1 == self.present.len() { 0 } else { PART_MORE };
            // Neither is more than the whole bin has.
            let (count, length_bytes) = (share.count as u16, share.longest as u16);
            chunk.bins.push(Bin {
                first: whole.first + next,
                count,
                variant,
                length_bytes,
                part: rest | more,
                ..whole
            });
            next += share.count;
        }
        let (descriptors, parameters) = (&mut self.descriptors[..count], &mut self.parameters[..count]);
        descriptors.copy_from_slice(&chunk.descriptors[first..first + count]);
        parameters.copy_from_slice(&chunk.parameters[first..first + count]);
        let targets = (&mut chunk.descriptors[first..first + count], &mut chunk.parameters[first..first + count]);
        for ((variant, descriptor), parameter) in self.variants.iter().zip(descriptors).zip(parameters) {
            let share = &mut self.shares[usize::from(*variant)];
            let at = share.next as usize;
            share.next += 1;
            (targets.0[at], targets.1[at]) = (*descriptor, *parameter);
        }
        for variant in self.present.drain(..) {
            self.shares[usize::from(variant)] = Share::default();
        }
    }

    /// What each variant has of a bin of several, and which each packet is of.
    fn count(&mut self, whole: &Bin, descriptors: &[Descriptor]) {
        let mut variant = whole.variant;
        let begins = &mut self.begins[whole.first as usize..][..descriptors.len()];
        for ((begins, own), descriptor) in begins.iter_mut().zip(&mut self.variants).zip(descriptors) {
            if *begins != 0 {
                // It was made from one.
                variant = (*begins - 1) as u8;
                *begins = 0;
            }
            *own = variant;
            let share = &mut self.shares[usize::from(variant)];
            if share.count == 0 {
                self.present.push(variant);
            }
            share.count += 1;
            share.longest = share.longest.max(descriptor.length.into());
        }
    }
}

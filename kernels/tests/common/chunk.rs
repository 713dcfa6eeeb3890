//! A chunk of several functions' bins, and what the CPU makes of it.

use std::iter::zip;

use godwit_abi::Bin;
use godwit_kernels::{KERNELS, levels};

use super::batch::{Batch, Lines};
use super::{CASES, Case, random_frames};

/// A configured function and its packets.
pub(crate) struct Part {
    pub(crate) case: Case,
    pub(crate) frames: Vec<Vec<u8>>,
    /// One for each frame.
    pub(crate) parameters: Vec<u64>,
    /// Of each frame: bytes in front of it, and at least so many behind it.
    pub(crate) places: Vec<(usize, usize)>,
}

impl Part {
    /// With headroom that varies, and so its alignment.
    pub(crate) fn new(case: Case, frames: Vec<Vec<u8>>) -> Self {
        let places = (0..frames.len()).map(|index| (64 + index % 17, 64)).collect();
        Self { case, parameters: vec![0; frames.len()], frames, places }
    }
}

/// Every case with so many random frames.
pub(crate) fn parts(packets_per_case: usize) -> Vec<Part> {
    let frames = |index| random_frames(packets_per_case, 11 + index as u64);
    CASES.iter().enumerate().map(|(index, case)| Part::new(case.clone(), frames(index))).collect()
}

/// Bins that lie in the arrays one after another, run in any order.
pub(crate) struct Chunk {
    pub(crate) parts: Vec<Part>,
    pub(crate) images: Lines,
    pub(crate) image_offsets: Vec<u64>,
    pub(crate) batch: Batch,
    pub(crate) bins: Vec<Bin>,
}

impl Chunk {
    /// The packets of every part, in bins of `bin_packets` by turns.
    pub(crate) fn new(parts: Vec<Part>, bin_packets: &[usize]) -> Self {
        let mut images = Lines::zeroed(64);
        let mut image_offsets = Vec::new();
        let mut bins: Vec<Bin> = Vec::new();
        let mut batch = Batch::of(&[]);
        let mut sizes = bin_packets.iter().copied().cycle();
        for (instance, part) in parts.iter().enumerate() {
            image_offsets.push(images.append(part.case.image.bytes()) as u64);
            let mut first = batch.descriptors.len();
            for (frame, &(head, tail)) in zip(&part.frames, &part.places) {
                batch.push(frame, head, tail);
            }
            batch.parameters.truncate(first);
            batch.parameters.extend(&part.parameters);
            while first < batch.descriptors.len() {
                let rest = &batch.descriptors[first..];
                let count = sizes.next().unwrap().min(rest.len());
                let longest = rest[..count].iter().map(|descriptor| descriptor.length).max();
                bins.push(Bin {
                    first: first as u32,
                    count: count as u16,
                    kernel: part.case.kernel,
                    variant: part.case.variant as u8,
                    instance: instance as u16,
                    length_bytes: longest.unwrap_or(0),
                    ..Bin::default()
                });
                first += count;
            }
        }
        // As a chunk has them: bins of several functions mixed.
        bins.sort_by_key(|bin| bin.first.wrapping_mul(0x9e37_79b9));
        Self { parts, images, image_offsets, batch, bins }
    }

    /// What the first CPU level makes of it.
    pub(crate) fn run_on_cpu(&self) -> Batch {
        let level = &levels()[0];
        let mut batch = self.batch.clone();
        for bin in &self.bins {
            let range = bin.first as usize..bin.first as usize + usize::from(bin.count);
            let case = &self.parts[usize::from(bin.instance)].case;
            batch.run_range(level, case.kernel, case.variant, &case.image, range);
        }
        batch
    }

    /// The function that a packet is for.
    pub(crate) fn name_of(&self, packet: usize) -> &'static str {
        let bin = self.bins.iter().rfind(|bin| {
            let first = bin.first as usize;
            (first..first + usize::from(bin.count)).contains(&packet)
        });
        bin.map_or("none", |bin| KERNELS[usize::from(bin.kernel)].name)
    }
}

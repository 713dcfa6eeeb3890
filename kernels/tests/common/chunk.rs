//! A chunk of several functions' bins, and what the CPU makes of it.

use godwit_abi::Bin;
use godwit_kernels::levels;

use super::batch::{Batch, Lines};
use super::{Case, random_frames};

/// Bins that lie in the arrays one after another, run in any order.
pub(crate) struct Chunk {
    pub(crate) images: Lines,
    pub(crate) image_offsets: Vec<u64>,
    pub(crate) batch: Batch,
    pub(crate) bins: Vec<Bin>,
}

impl Chunk {
    /// The packets of every case, in bins of `bin_packets` by turns.
    pub(crate) fn of(cases: &[Case], packets_per_case: usize, bin_packets: &[usize]) -> Self {
        let frames = random_frames(packets_per_case * cases.len(), 11);
        Self::with(cases, frames.chunks(packets_per_case), bin_packets)
    }

    /// The same with these frames for each case.
    pub(crate) fn with<'a>(
        cases: &[Case],
        frames: impl Iterator<Item = &'a [Vec<u8>]> + Clone,
        bin_packets: &[usize],
    ) -> Self {
        let mut images = Lines::zeroed(64);
        let mut image_offsets = Vec::new();
        let mut bins: Vec<Bin> = Vec::new();
        let batch = Batch::of(&frames.clone().flatten().cloned().collect::<Vec<_>>());
        let mut sizes = bin_packets.iter().copied().cycle();
        let mut end = 0;
        for ((instance, case), frames) in cases.iter().enumerate().zip(frames) {
            image_offsets.push(images.append(case.image.bytes()) as u64);
            let mut first = end;
            end += frames.len();
            while first < end {
                let count = sizes.next().unwrap().min(end - first);
                let longest = batch.descriptors[first..first + count].iter().map(|descriptor| descriptor.length).max();
                bins.push(Bin {
                    first: first as u32,
                    count: count as u16,
                    kernel: case.kernel,
                    variant: case.variant as u8,
                    instance: instance as u16,
                    length_bytes: longest.unwrap_or(0),
                    ..Bin::default()
                });
                first += count;
            }
        }
        Self { images, image_offsets, batch, bins: mixed(bins) }
    }

    /// What the first CPU level makes of it.
    pub(crate) fn run_on_cpu(&self, cases: &[Case]) -> Batch {
        let level = &levels()[0];
        let mut batch = self.batch.clone();
        for bin in &self.bins {
            let range = bin.first as usize..bin.first as usize + usize::from(bin.count);
            let case = &cases[usize::from(bin.instance)];
            batch.run_range(level, case.kernel, case.variant, &case.image, range);
        }
        batch
    }
}

/// As a chunk has them: bins of several functions mixed.
fn mixed(mut bins: Vec<Bin>) -> Vec<Bin> {
    bins.sort_by_key(|bin| bin.first.wrapping_mul(0x9e37_79b9));
    bins
}

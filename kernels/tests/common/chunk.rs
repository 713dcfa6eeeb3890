//! A chunk of several functions' bins, and what the CPU makes of it.

use std::iter::zip;

use godwit_abi::{Bin, HOP_NONE, HOPS_MAX, PART_MORE, PART_REST, VERDICT_DROP};
use godwit_kernels::{KERNELS, levels};

use super::batch::{Batch, Lines};
use super::ipsec::ipsec_parts;
use super::{CASES, Case, Random, random_frames};

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
    hops: Hops,
}

/// Where verdicts lead on a device: by instance, row and verdict.
pub(crate) struct Hops {
    pub(crate) rows: usize,
    pub(crate) verdicts: usize,
    pub(crate) hops: Vec<u32>,
}

impl Hops {
    /// Nothing leads on.
    pub(crate) const NONE: Self = Self { rows: 0, verdicts: 0, hops: Vec::new() };

    fn hop(&self, instance: u16, row: u8, verdict: u8) -> Option<u16> {
        if self.rows == 0 || usize::from(verdict) >= self.verdicts {
            return None;
        }
        let row = usize::from(instance) * self.rows + usize::from(row);
        // The instance is in the lower 16 bits.
        Some(self.hops[row * self.verdicts + usize::from(verdict)]).filter(|hop| *hop != HOP_NONE).map(|hop| hop as u16)
    }

    /// What table images begin with.
    fn image(&self, parts: &[Part]) -> Lines {
        let numbers = [self.rows, self.verdicts, parts.len()].map(|number| number as u32);
        let stops = parts.iter().flat_map(|part| [part.case.kernel.into(), part.case.variant]);
        let words = numbers.into_iter().chain([0; 13]).chain(stops).chain(self.hops.iter().copied());
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        let mut lines = Lines::zeroed(0);
        lines.append(&bytes);
        lines
    }
}

impl Chunk {
    /// The packets of every part, in bins of `bin_packets` by turns.
    pub(crate) fn new(parts: Vec<Part>, bin_packets: &[usize]) -> Self {
        Self::with_chain(parts, bin_packets, Hops::NONE)
    }

    /// The same, with a chain that devices follow. Bins are of its rows by turns.
    pub(crate) fn with_chain(parts: Vec<Part>, bin_packets: &[usize], hops: Hops) -> Self {
        let mut images = hops.image(&parts);
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
                    row: (bins.len() % hops.rows.max(1)) as u8,
                    ..Bin::default()
                });
                first += count;
            }
        }
        // As a chunk has them: bins of several functions mixed.
        bins.sort_by_key(|bin| bin.first.wrapping_mul(0x9e37_79b9));
        Self { parts, images, image_offsets, batch, bins, hops }
    }

    /// The same with bins of one function as parts, up to five, of one bin: a group runs them one after another, and no other
    /// group any of them.
    pub(crate) fn in_parts(mut self, seed: u64) -> Self {
        let mut random = Random(seed + 1);
        self.bins.sort_by_key(|bin| (bin.instance, bin.first));
        let mut wholes: Vec<Vec<Bin>> = Vec::new();
        for same in self.bins.chunk_by_mut(|one, next| one.instance == next.instance) {
            let mut rest = same;
            while !rest.is_empty() {
                let count = 1 + random.below(5.min(rest.len() as u64)) as usize;
                let (parts, behind) = rest.split_at_mut(count);
                parts[1..].iter_mut().for_each(|part| part.part |= PART_REST);
                parts[..count - 1].iter_mut().for_each(|part| part.part |= PART_MORE);
                wholes.push(parts.to_vec());
                rest = behind;
            }
        }
        wholes.sort_by_key(|parts| parts[0].first.wrapping_mul(0x9e37_79b9));
        self.bins = wholes.concat();
        self
    }

    /// What the first CPU level makes of it.
    pub(crate) fn run_on_cpu(&self) -> Batch {
        let level = &levels()[0];
        let mut batch = self.batch.clone();
        for bin in &self.bins {
            let range = bin.first as usize..bin.first as usize + usize::from(bin.count);
            let case = &self.parts[usize::from(bin.instance)].case;
            batch.run_range(level, case.kernel, case.variant, &case.image, range.clone());
            for packet in range {
                self.follow(&mut batch, bin, packet);
            }
        }
        batch
    }

    /// Runs what follows a packet's first function, one after the other.
    fn follow(&self, batch: &mut Batch, bin: &Bin, packet: usize) {
        let mut instance = bin.instance;
        let mut trail = [VERDICT_DROP; HOPS_MAX];
        for behind in &mut trail {
            let verdict = batch.outcomes[packet].verdict;
            let Some(next) = self.hops.hop(instance, bin.row, verdict) else { break };
            *behind = verdict;
            instance = next;
            batch.parameters[packet] = 0;
            let case = &self.parts[usize::from(next)].case;
            batch.run_range(&levels()[0], case.kernel, case.variant, &case.image, packet..packet + 1);
        }
        batch.trails[packet] = u32::from_le_bytes(trail);
    }

    /// Whether devices follow a chain.
    pub(crate) fn has_chain(&self) -> bool {
        self.hops.rows > 0
    }

    /// The function that a packet is for.
    pub(crate) fn name_of(&self, packet: usize) -> &'static str {
        let bin = self.bins.iter().rfind(|bin| {
            let first = bin.first as usize;
            (first..first + usize::from(bin.count)).contains(&packet)
        });
        let kernel = bin.and_then(|bin| KERNELS.iter().find(|kernel| kernel.number == bin.kernel));
        kernel.map_or("none", |kernel| kernel.name)
    }
}

/// Packets of every function and a random chain of all of them, in which each leads on to some behind it.
pub(crate) fn chained(seed: u64, bin_packets: &[usize]) -> Chunk {
    const ROWS: usize = 3;
    const VERDICTS: usize = 4;
    let parts: Vec<Part> = parts(150).into_iter().chain(ipsec_parts(150, seed)).collect();
    let mut random = Random(seed + 1);
    // Only functions that need no parameter are led to; a rank is a place in an order of its own.
    let ranks: Vec<u32> = (0..parts.len()).map(|_| 1 + random.below(1000) as u32).collect();
    let mut hops = Vec::new();
    for from in 0..parts.len() {
        for _ in 0..ROWS * VERDICTS {
            let to = random.below(parts.len() as u64) as usize;
            let leads = parts[to].case.kernel != godwit_kernels::IPSEC
                && (ranks[to], to) > (ranks[from], from)
                && random.below(4) > 0;
            hops.push(if leads { ranks[to] << 16 | to as u32 } else { HOP_NONE });
        }
    }
    Chunk::with_chain(parts, bin_packets, Hops { rows: ROWS, verdicts: VERDICTS, hops })
}

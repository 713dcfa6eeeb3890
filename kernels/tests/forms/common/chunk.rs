//! A chunk with bins of several functions, and its result on the CPU.

use std::iter::zip;

use godwit_abi::{Bin, HOP_NONE, HOPS_MAX, PART_MORE, PART_REST, VERDICT_DROP};
use godwit_kernels::{KERNELS, levels};
use godwit_test_support::Random;

use super::batch::{Batch, Lines};
use super::ipsec::ipsec_parts;
use super::{CASES, Case, random_frames};

/// Configured function and its packets.
pub(crate) struct Part {
    pub(crate) case: Case,
    pub(crate) frames: Vec<Vec<u8>>,
    /// Parameter of each frame.
    pub(crate) parameters: Vec<u64>,
    /// Headroom and minimum tailroom of each frame, in bytes.
    pub(crate) rooms: Vec<(usize, usize)>,
}

impl Part {
    /// Creates a part in which the headroom of the frames varies, and with it their alignment.
    pub(crate) fn new(case: Case, frames: Vec<Vec<u8>>) -> Self {
        let rooms = (0..frames.len()).map(|index| (64 + index % 17, 64)).collect();
        Self { case, parameters: vec![0; frames.len()], frames, rooms }
    }
}

/// Returns every case with `packets_per_case` random frames.
pub(crate) fn parts(packets_per_case: usize) -> Vec<Part> {
    let frames = |index| random_frames(packets_per_case, 11 + index as u64);
    CASES.iter().enumerate().map(|(index, case)| Part::new(case.clone(), frames(index))).collect()
}

/// Chunk whose bins are adjacent in the arrays and run in any order.
pub(crate) struct Chunk {
    pub(crate) parts: Vec<Part>,
    pub(crate) images: Lines,
    pub(crate) image_offsets: Vec<u64>,
    pub(crate) batch: Batch,
    pub(crate) bins: Vec<Bin>,
    hops: Hops,
}

/// Device chain: the next function by instance, class row and verdict.
pub(crate) struct Hops {
    pub(crate) rows: usize,
    pub(crate) verdicts: usize,
    pub(crate) hops: Vec<u32>,
}

impl Hops {
    /// Chain without edges.
    pub(crate) const NONE: Self = Self { rows: 0, verdicts: 0, hops: Vec::new() };

    fn hop(&self, instance: u16, row: u8, verdict: u8) -> Option<u16> {
        if self.rows == 0 || usize::from(verdict) >= self.verdicts {
            return None;
        }
        let row = usize::from(instance) * self.rows + usize::from(row);
        // The instance is in the lower 16 bits.
        Some(self.hops[row * self.verdicts + usize::from(verdict)]).filter(|hop| *hop != HOP_NONE).map(|hop| hop as u16)
    }

    /// Returns the chain in the format that precedes the table images.
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
    /// Puts the packets of every part into bins, whose sizes cycle through `bin_packets`.
    pub(crate) fn new(parts: Vec<Part>, bin_packets: &[usize]) -> Self {
        Self::with_chain(parts, bin_packets, Hops::NONE)
    }

    /// Like [`Chunk::new`], with a device chain. The rows of the bins cycle through its rows.
    pub(crate) fn with_chain(parts: Vec<Part>, bin_packets: &[usize], hops: Hops) -> Self {
        let mut images = hops.image(&parts);
        let mut image_offsets = Vec::new();
        let mut bins: Vec<Bin> = Vec::new();
        let mut batch = Batch::new(&[]);
        let mut sizes = bin_packets.iter().copied().cycle();
        for (instance, part) in parts.iter().enumerate() {
            image_offsets.push(images.append(part.case.image.bytes()) as u64);
            let mut first = batch.descriptors.len();
            for (frame, &(head, tail)) in zip(&part.frames, &part.rooms) {
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
        // The bins of several functions are mixed, as in a chunk of the packer.
        bins.sort_by_key(|bin| bin.first.wrapping_mul(0x9e37_79b9));
        Self { parts, images, image_offsets, batch, bins, hops }
    }

    /// Makes one to five bins of the same function the parts of one bin, at random. A single group
    /// runs all parts, one after the other.
    pub(crate) fn in_parts(mut self, seed: u64) -> Self {
        let mut random = Random::new(seed + 1);
        self.bins.sort_by_key(|bin| (bin.instance, bin.first));
        let mut wholes: Vec<Vec<Bin>> = Vec::new();
        for same in self.bins.chunk_by_mut(|one, next| one.instance == next.instance) {
            let mut rest = same;
            while !rest.is_empty() {
                let count = 1 + random.below(5.min(rest.len()));
                let (parts, others) = rest.split_at_mut(count);
                parts[1..].iter_mut().for_each(|part| part.part |= PART_REST);
                parts[..count - 1].iter_mut().for_each(|part| part.part |= PART_MORE);
                wholes.push(parts.to_vec());
                rest = others;
            }
        }
        wholes.sort_by_key(|parts| parts[0].first.wrapping_mul(0x9e37_79b9));
        self.bins = wholes.concat();
        self
    }

    /// Returns the result of the first CPU level.
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

    /// Runs the functions of the chain that follow the first function of a packet.
    fn follow(&self, batch: &mut Batch, bin: &Bin, packet: usize) {
        let mut instance = bin.instance;
        let mut trail = [VERDICT_DROP; HOPS_MAX];
        for hop in &mut trail {
            let verdict = batch.outcomes[packet].verdict;
            let Some(next) = self.hops.hop(instance, bin.row, verdict) else { break };
            *hop = verdict;
            instance = next;
            batch.parameters[packet] = 0;
            let case = &self.parts[usize::from(next)].case;
            batch.run_range(&levels()[0], case.kernel, case.variant, &case.image, packet..packet + 1);
        }
        batch.trails[packet] = u32::from_le_bytes(trail);
    }

    /// Returns whether the chunk has a device chain.
    pub(crate) fn has_chain(&self) -> bool {
        self.hops.rows > 0
    }

    /// Returns the name of the first function of a packet.
    pub(crate) fn name_of(&self, packet: usize) -> &'static str {
        let bin = self.bins.iter().rfind(|bin| {
            let first = bin.first as usize;
            (first..first + usize::from(bin.count)).contains(&packet)
        });
        let kernel = bin.and_then(|bin| KERNELS.iter().find(|kernel| kernel.number == bin.kernel));
        kernel.map_or("none", |kernel| kernel.name)
    }
}

/// Returns packets of every function, and a random chain without cycles over all of them.
pub(crate) fn chained(seed: u64, bin_packets: &[usize]) -> Chunk {
    const ROWS: usize = 3;
    const VERDICTS: usize = 4;
    let parts: Vec<Part> = parts(150).into_iter().chain(ipsec_parts(150, seed)).collect();
    let mut random = Random::new(seed + 1);
    // Only a function that needs no parameter can follow another one. Ranks define a random
    // topological order.
    let ranks: Vec<u32> = (0..parts.len()).map(|_| 1 + random.below(1000)).collect();
    let mut hops = Vec::new();
    for from in 0..parts.len() {
        for _ in 0..ROWS * VERDICTS {
            let to = random.below(parts.len());
            let has_edge = parts[to].case.kernel != godwit_kernels::IPSEC
                && (ranks[to], to) > (ranks[from], from)
                && random.below(4) > 0;
            hops.push(if has_edge { ranks[to] << 16 | to as u32 } else { HOP_NONE });
        }
    }
    Chunk::with_chain(parts, bin_packets, Hops { rows: ROWS, verdicts: VERDICTS, hops })
}

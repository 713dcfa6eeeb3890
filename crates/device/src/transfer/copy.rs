//! Blocks of bytes that copy engines move between the packet memory of the host and its copy on the
//! device. Offsets are the same in both memories. In the dense layout, packet buffers follow each
//! other without gaps. In the layout with slots, packet buffers start at equal distances.
//!
//! ```text
//! layout dense   | buffer | buffer | buffer |      one block of one row
//!                [--------------------------]
//! layout slots   | head~~frame~~~~ | head~~frame~~ | head~~frame~~~ |  one block, a row per slot
//!                    [--------)        [--------)       [--------)
//! ```
//!
//! A block contains only buffers of the submission, because ports may write to the buffers of other
//! packets at the same time.

use godwit_abi::BUFFER_UNIT_BYTES;
use godwit_packet::{Scan, scan};
use godwit_sched::Chunk;

/// Direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToDevice,
    ToHost,
}

/// Block of byte ranges with equal lengths and equal distances. A byte range is called a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    /// Offset of the first byte range from the start of the packet memory.
    pub(crate) offset: usize,
    /// Length of each byte range.
    pub(crate) bytes: usize,
    /// Number of byte ranges.
    pub(crate) rows: usize,
    /// Distance between the starts of two neighbouring byte ranges.
    pub(crate) pitch: usize,
}

impl Block {
    /// Returns a block with one byte range.
    pub(crate) const fn row(offset: usize, bytes: usize) -> Self {
        Self { offset, bytes, rows: 1, pitch: bytes }
    }

    /// Returns whether the block is one contiguous range of bytes.
    pub(crate) const fn is_row(&self) -> bool {
        self.rows == 1 && self.pitch == self.bytes
    }
}

/// A set of at most two blocks. Unused blocks are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks([Block; 2]);

impl Blocks {
    pub(crate) const NONE: Self = Self([Block { offset: 0, bytes: 0, rows: 0, pitch: 0 }; 2]);

    /// Returns a set that contains one block.
    pub(crate) fn one(block: Block) -> Self {
        Self([block, Block::default()])
    }

    /// Returns the blocks that are not empty.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Block> + '_ {
        self.0.iter().copied().filter(|block| block.bytes > 0 && block.rows > 0)
    }

    /// Returns the number of bytes in all byte ranges of the block.
    pub(crate) fn bytes(&self) -> usize {
        self.iter().map(|block| block.bytes * block.rows).sum()
    }

    /// Returns blocks with only the given byte ranges of each row.
    pub(super) fn columns(&self, columns: Columns) -> Self {
        if columns.bytes() == 0 {
            return Self::NONE;
        }
        Self(self.0.map(|block| Block { offset: block.offset + columns.first, bytes: columns.bytes(), ..block }))
    }
}

/// Address range that several packet buffers occupy, in units of `BUFFER_UNIT_BYTES`.
#[derive(Clone, Copy)]
pub(super) struct BufferExtent {
    first: u64,
    /// Start of the last buffer.
    last: u64,
    end: u64,
    units: u64,
    pub(super) packets: usize,
}

impl BufferExtent {
    pub(super) const NONE: Self = Self { first: u64::MAX, last: 0, end: 0, units: 0, packets: 0 };

    pub(super) fn join(&mut self, scan: &Scan, packets: usize) {
        self.first = self.first.min(scan.first.into());
        self.last = self.last.max(scan.last.into());
        self.end = self.end.max(scan.end);
        self.units += scan.units;
        self.packets += packets;
    }

    /// Returns one block that contains all of the buffers, or `None` if there are gaps between
    /// them. `pitch` is the distance between buffers in bytes, if the distance is fixed.
    fn block(&self, pitch: Option<usize>) -> Option<Block> {
        let unit = BUFFER_UNIT_BYTES;
        let offset = self.first as usize * unit;
        match pitch {
            None => (self.end - self.first == self.units).then(|| Block::row(offset, self.units as usize * unit)),
            Some(pitch) => {
                let bytes = (self.last - self.first) as usize * unit + pitch;
                let block = Block { offset, bytes: pitch, rows: self.packets, pitch };
                (bytes == self.packets * pitch).then_some(block)
            }
        }
    }

    /// Returns at most two blocks that contain all of the buffers, or `None` if two blocks do not
    /// suffice.
    ///
    /// A worker allocates buffers from a ring. If the ring wraps within a submission, the buffers
    /// form two blocks. `middle` is the middle of the worker's memory. `pitch` is the distance
    /// between buffers in bytes, if the distance is fixed.
    pub(super) fn blocks(&self, chunk: &Chunk, middle: u64, pitch: Option<usize>) -> Option<Blocks> {
        if self.packets == 0 {
            return Some(Blocks::NONE);
        }
        if let Some(block) = self.block(pitch) {
            return Some(Blocks::one(block));
        }
        // All buffers lie in the same half of the worker's memory, so the ring did not wrap between
        // them.
        if self.last < middle || self.first >= middle {
            return None;
        }
        let [first, second] = Self::halves(chunk, middle);
        let block = |half: &Self| if half.packets == 0 { Some(Block::default()) } else { half.block(pitch) };
        Some(Blocks([block(&first)?, block(&second)?]))
    }

    /// Returns the address ranges of the buffers in the lower and in the upper half of the worker's
    /// memory.
    fn halves(chunk: &Chunk, middle: u64) -> [Self; 2] {
        let mut halves = [Self::NONE; 2];
        let half = |buffer: u32| usize::from(u64::from(buffer) >= middle);
        for bin in &chunk.bins {
            let descriptors = &chunk.descriptors[chunk.range(bin)];
            let whole = scan(descriptors, 0);
            if half(whole.first) == half(whole.last) {
                halves[half(whole.last)].join(&whole, descriptors.len());
                continue;
            }
            for descriptor in descriptors {
                halves[half(descriptor.buffer)].join(&scan(std::slice::from_ref(descriptor), 0), 1);
            }
        }
        halves
    }
}

/// Alignment of copied byte ranges, in bytes. Copy engines are faster with aligned ranges.
const COLUMN_BYTES: usize = 64;

/// Range of bytes in each packet buffer of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) first: usize,
    pub(super) end: usize,
}

impl Columns {
    pub(super) const NONE: Self = Self { first: usize::MAX, end: 0 };

    pub(super) fn include(&mut self, first: usize, end: usize) {
        self.first = self.first.min(first);
        self.end = self.end.max(end);
    }

    /// Extends the range to multiples of [`COLUMN_BYTES`], but not beyond the end of a packet
    /// buffer. `pitch` is the size of a packet buffer in bytes.
    pub(super) fn rounded(self, pitch: usize) -> Self {
        let first = self.first / COLUMN_BYTES * COLUMN_BYTES;
        Self { first, end: self.end.next_multiple_of(COLUMN_BYTES).min(pitch) }
    }

    pub(super) fn bytes(self) -> usize {
        self.end.saturating_sub(self.first)
    }
}

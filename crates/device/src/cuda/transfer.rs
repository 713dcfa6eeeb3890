//! Decides how the buffers of a chunk are transferred to a CUDA device and back.
//!
//! One pass over the packets, without sorting, is usually sufficient. It combines all bins with the
//! same access needs. The buffers form one contiguous range if the worker received the packets one
//! after another. They form two ranges if the ring of the region wrapped between them; a second
//! pass finds these. Copy engines then copy ranges (dense layout) or rows (slot layout). The groups
//! of the device transfer other chunks themselves, by zero-copy: small chunks, functions that need
//! few bytes, and scattered buffers.

use godwit_abi::{BUFFER_UNIT_BYTES, Bin, Descriptor, Outcome};
use godwit_packet::{Region, Scan, scan, scan_all};
use godwit_sched::Chunk;

use crate::chain::AccessNeeds;
use crate::check::outside;
use crate::transfer::CopyRange;
use crate::{Error, Transfer};

/// Transfer of a chunk's buffers. Arena and shadow use the same offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChunkTransfer {
    /// Copies of whole buffers.
    Ranges(Vec<CopyRange>),
    /// Copies of the same columns of consecutive slots.
    Rows {
        /// Ranges of whole slots.
        ranges: Vec<CopyRange>,
        /// Distance between two slots, in bytes.
        pitch: usize,
        /// Columns of a slot that are copied to the device.
        columns_in: Columns,
        /// Columns of a slot that are copied back.
        columns_out: Columns,
    },
    /// The groups access buffers and chunk arrays over the bus. Nothing is copied.
    ZeroCopy,
    /// Packets stay in the device's memory.
    Resident,
}

/// Plan for the transfer of one chunk.
#[derive(Debug)]
pub(super) struct ChunkPlan {
    pub(super) transfer: ChunkTransfer,
    /// Whether any function writes to its packets.
    pub(super) writes: bool,
    /// Bytes of buffers transferred to the device and back.
    pub(super) bytes: [usize; 2],
}

impl ChunkPlan {
    /// Plan for packets that stay on the device.
    pub(super) const RESIDENT: Self = Self { transfer: ChunkTransfer::Resident, writes: false, bytes: [0, 0] };
}

/// Alignment of copied columns, in bytes. Copy engines are faster with it.
const COLUMN_BYTES: usize = 64;
/// Minimum cost of a row, in bytes copied in the same time. An H200 copies 247 million rows per
/// second both ways.
const ROW_BYTES_MIN: usize = 206;
/// Array bytes per packet in each direction: descriptor and parameter to the device, descriptor and
/// outcome back.
const ARRAYS_PACKET_BYTES: usize = size_of::<Descriptor>() + size_of::<Outcome>();
/// Fixed cost of a copied chunk, in bytes copied in the same time. Like the numbers in
/// [`zero_copy_cost_bytes`], it was fitted to the rates of `ipsec`, `ipv6` and `l2` on an H200
/// (docs/benchmarks.md).
const COPIES_BYTES: usize = 512 << 10;

/// Returns the cost of a zero-copy transfer, in bytes copied in the same time. `bytes` counts both
/// directions.
fn zero_copy_cost_bytes(packets: usize, bytes: [usize; 2]) -> usize {
    packets * 60 + bytes[0] * 14 / 10 + bytes[1] * 9 / 10
}

/// The extent of several buffers, in buffer units.
#[derive(Clone, Copy)]
struct BufferExtent {
    first: u64,
    /// Start of the last buffer.
    last: u64,
    end: u64,
    units: u64,
    packets: usize,
}

impl BufferExtent {
    const NONE: Self = Self { first: u64::MAX, last: 0, end: 0, units: 0, packets: 0 };

    fn join(&mut self, scan: &Scan, packets: usize) {
        self.first = self.first.min(scan.first.into());
        self.last = self.last.max(scan.last.into());
        self.end = self.end.max(scan.end);
        self.units += scan.units;
        self.packets += packets;
    }

    /// Returns the contiguous range of the buffers, if there are no gaps. Buffers do not overlap,
    /// so comparing sums is sufficient. `pitch` is the distance between slots, in bytes.
    fn range(&self, pitch: Option<usize>) -> Option<CopyRange> {
        if self.packets == 0 {
            return None;
        }
        let unit = BUFFER_UNIT_BYTES;
        let offset = self.first as usize * unit;
        match pitch {
            None => {
                (self.end - self.first == self.units).then(|| CopyRange { offset, bytes: self.units as usize * unit })
            }
            Some(pitch) => {
                let bytes = (self.last - self.first) as usize * unit + pitch;
                (bytes == self.packets * pitch).then_some(CopyRange { offset, bytes })
            }
        }
    }
}

/// Returns the ranges of a chunk's buffers, if there are at most two. If the ring of the region
/// wrapped between the buffers, the two ranges lie in different halves of the region, or are
/// adjacent.
fn ranges(chunk: &Chunk, all: &BufferExtent, middle: u64, pitch: Option<usize>) -> Option<Vec<CopyRange>> {
    if let Some(range) = all.range(pitch) {
        return Some(vec![range]);
    }
    if all.packets == 0 {
        return Some(Vec::new());
    }
    // The ring did not wrap.
    if all.last < middle || all.first >= middle {
        return None;
    }
    let mut halves = [BufferExtent::NONE; 2];
    for bin in &chunk.bins {
        let descriptors = &chunk.descriptors[chunk.range(bin)];
        let whole = scan(descriptors, 0);
        let half = |buffer: u32| usize::from(u64::from(buffer) >= middle);
        if half(whole.first) == half(whole.last) {
            halves[half(whole.last)].join(&whole, descriptors.len());
            continue;
        }
        for descriptor in descriptors {
            halves[half(descriptor.buffer)].join(&scan(std::slice::from_ref(descriptor), 0), 1);
        }
    }
    halves.iter().filter(|half| half.packets > 0).map(|half| half.range(pitch)).collect()
}

/// A range of bytes within a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) first: usize,
    pub(super) end: usize,
}

impl Columns {
    const NONE: Self = Self { first: usize::MAX, end: 0 };

    fn include(&mut self, first: usize, end: usize) {
        self.first = self.first.min(first);
        self.end = self.end.max(end);
    }

    /// Extends the range to multiples of [`COLUMN_BYTES`], within the slot.
    fn rounded(self, pitch: usize) -> Self {
        let first = self.first / COLUMN_BYTES * COLUMN_BYTES;
        Self { first, end: self.end.next_multiple_of(COLUMN_BYTES).min(pitch) }
    }

    pub(super) fn bytes(self) -> usize {
        self.end.saturating_sub(self.first)
    }
}

/// Plans the transfer of a chunk, and checks that all of its packets belong to the worker's region.
/// `pitch` is the distance between slots if the arena has the slot layout.
pub(super) fn plan(
    chunk: &Chunk,
    needs: &[AccessNeeds],
    region: &Region,
    pitch: Option<usize>,
    transfer: Transfer,
) -> Result<ChunkPlan, Error> {
    let (start, bytes) = region.extent();
    let (mut all, mut frames, mut written) = (BufferExtent::NONE, Columns::NONE, Columns::NONE);
    let (mut writes, mut zero_copy_bytes) = (false, [0, 0]);
    let (first, end) = (start.div_ceil(BUFFER_UNIT_BYTES) as u64, ((start + bytes) / BUFFER_UNIT_BYTES) as u64);
    let packets_of = |bin: &Bin| &chunk.descriptors[chunk.range(bin)];
    let is_inside = |scan: &Scan| !scan.beyond && u64::from(scan.first) >= first && scan.end <= end;
    let is_lent = |bin: &Bin| region.is_lending() && !packets_of(bin).iter().all(|packet| region.contains(packet));
    let needs_of = |bin: &Bin| &needs[usize::from(bin.instance)];
    // Adjacent bins with the same needs are scanned together. Usually this covers all bins.
    for bins in chunk.bins.chunk_by(|one, next| needs_of(one) == needs_of(next)) {
        let needs = needs_of(&bins[0]);
        let packets = bins.iter().map(|bin| usize::from(bin.count)).sum();
        if packets == 0 {
            continue;
        }
        let found = scan_all(bins.iter().map(packets_of), needs.reads_bytes);
        if !is_inside(&found) || bins.iter().any(is_lent) {
            let is_wrong = |bin: &&Bin| !is_inside(&scan(packets_of(bin), 0)) || is_lent(bin);
            return Err(outside(bins.iter().find(is_wrong).unwrap_or(&bins[0])));
        }
        all.join(&found, packets);
        let (head, end, read_bytes) = (found.head as usize, found.frame_end as usize, found.read_bytes as usize);
        frames.include(head, end);
        zero_copy_bytes[0] += read_bytes;
        match needs.writes_bytes {
            0 => {}
            u16::MAX => {
                let (headroom, tailroom) = (needs.headroom_bytes, needs.tailroom_bytes);
                written.include(head.saturating_sub(headroom.into()), end + usize::from(tailroom));
                // Assumes that every packet grows to its maximum.
                zero_copy_bytes[1] += read_bytes + packets * usize::from(headroom + tailroom);
                writes = true;
            }
            writes_bytes => {
                written.include(head, end);
                zero_copy_bytes[1] += packets * usize::from(writes_bytes);
                writes = true;
            }
        }
    }
    let packets = all.packets;
    let ranges = ranges(chunk, &all, ((start + bytes / 2) / BUFFER_UNIT_BYTES) as u64, pitch);
    let (copies, copied_bytes, cost_bytes) = match pitch {
        None => {
            let bytes: usize = ranges.iter().flatten().map(|range| range.bytes).sum();
            (ranges.map(ChunkTransfer::Ranges), [bytes, if writes { bytes } else { 0 }], bytes)
        }
        Some(pitch) => {
            let columns_out = if writes { written.rounded(pitch) } else { Columns::NONE };
            // Frame bytes that are copied back must also be copied to the device.
            let mut read = frames;
            read.include(frames.first.max(columns_out.first), frames.end.min(columns_out.end));
            let columns_in = read.rounded(pitch);
            let row_bytes = columns_in.bytes().max(columns_out.bytes()).max(ROW_BYTES_MIN);
            let bytes = [packets * columns_in.bytes(), packets * columns_out.bytes()];
            (
                ranges.map(|ranges| ChunkTransfer::Rows { ranges, pitch, columns_in, columns_out }),
                bytes,
                packets * row_bytes,
            )
        }
    };
    let is_copied = packets == 0
        || match transfer {
            Transfer::Auto => {
                cost_bytes + packets * ARRAYS_PACKET_BYTES + COPIES_BYTES
                    <= zero_copy_cost_bytes(packets, zero_copy_bytes)
            }
            Transfer::Copy => true,
            Transfer::ZeroCopy => false,
        };
    let (transfer, bytes) = match copies.filter(|_| is_copied) {
        Some(copies) => (copies, copied_bytes),
        None => (ChunkTransfer::ZeroCopy, zero_copy_bytes),
    };
    Ok(ChunkPlan { transfer, writes, bytes })
}

#[cfg(test)]
mod tests;

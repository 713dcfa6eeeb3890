//! Checks the packets of a chunk and selects its transfer.

use godwit_abi::{BUFFER_UNIT_BYTES, Bin};
use godwit_packet::{Region, Scan, scan, scan_all};
use godwit_sched::Chunk;

use super::copy::{Blocks, BufferExtent, Columns};
use super::cost::TransferCosts;
use super::zero_copy::accessed_bytes;
use crate::check::{outside, used_entries};
use crate::error::Error;
use crate::options::Transfer;
use crate::program::AccessNeeds;

/// Transfer of a chunk's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkTransfer {
    /// Copies of the planned blocks.
    Copy,
    /// The groups access buffers and chunk arrays over the bus. Nothing is copied.
    ZeroCopy,
    /// The CPU packs the buffers into a staging buffer, which is copied.
    Pack,
}

/// Plan for the transfer of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPlan {
    pub(crate) transfer: ChunkTransfer,
    /// Blocks that are copied to the device.
    pub(crate) to_device: Blocks,
    /// Blocks that are copied back.
    pub(crate) to_host: Blocks,
    /// Whether any function writes to its packets.
    pub(crate) writes: bool,
    /// Bytes of buffers transferred to the device and back.
    pub(crate) bytes: [usize; 2],
    /// Whether the device should use the chunk's own arrays, if their pages can be locked.
    pub(crate) uses_own_arrays: bool,
}

impl ChunkPlan {
    /// Plan for a chunk without packets.
    pub(crate) const EMPTY: Self = Self {
        transfer: ChunkTransfer::Copy,
        to_device: Blocks::NONE,
        to_host: Blocks::NONE,
        writes: false,
        bytes: [0, 0],
        uses_own_arrays: false,
    };
}

/// Plans the transfers of all chunks of a device.
#[derive(Debug)]
pub(crate) struct Planner {
    /// Needs of each program.
    pub(crate) needs: Vec<AccessNeeds>,
    /// Distance between slots in bytes, if the arena has the slot layout.
    pub(crate) pitch: Option<usize>,
    pub(crate) transfer: Transfer,
    pub(crate) costs: TransferCosts,
    /// Transfer of chunks that are not copied.
    pub(crate) otherwise: ChunkTransfer,
}

/// The bytes of buffers that a chunk needs.
struct Needed {
    buffers: BufferExtent,
    /// Columns of all frames.
    frames: Columns,
    /// Columns that functions may write.
    written: Columns,
    reads: bool,
    writes: bool,
    /// Bytes that groups would read and write by zero-copy.
    zero_copy_bytes: [usize; 2],
}

impl Planner {
    /// Plans the transfer of a chunk, and checks that all of its packets belong to the worker's
    /// region.
    ///
    /// # Errors
    /// Returns [`Error::Chunk`] if a packet lies outside the region.
    pub(crate) fn plan(&self, region: &Region, chunk: &Chunk) -> Result<ChunkPlan, Error> {
        let needed = self.scan(region, chunk)?;
        let (start, bytes) = region.extent();
        let middle = ((start + bytes / 2) / BUFFER_UNIT_BYTES) as u64;
        let buffers = needed.buffers.blocks(chunk, middle, self.pitch);
        let plan = match buffers.map(|buffers| self.copies(&needed, &buffers)) {
            Some((copies, cost_bytes)) if self.prefers_copy(&needed, cost_bytes) => copies,
            _ => ChunkPlan {
                transfer: self.otherwise,
                writes: needed.writes,
                bytes: needed.zero_copy_bytes,
                ..ChunkPlan::EMPTY
            },
        };
        Ok(ChunkPlan { uses_own_arrays: self.uses_own_arrays(chunk, plan.transfer), ..plan })
    }

    /// Returns whether the device should use the chunk's own arrays. They must lie on the same
    /// pages, as [`Chunk::new`] allocates them. The chunk must also be large and have few gaps
    /// between its bins, or use zero-copy.
    fn uses_own_arrays(&self, chunk: &Chunk, transfer: ChunkTransfer) -> bool {
        let packets = chunk.packets as usize;
        let own = chunk.parameters.pages();
        let others = [chunk.descriptors.pages(), chunk.outcomes.pages(), chunk.trails.pages()];
        let is_dense = || packets >= self.costs.direct_packets_min && used_entries(chunk) * 3 <= packets * 4;
        (transfer == ChunkTransfer::ZeroCopy || is_dense()) && others.iter().all(|other| other.base() == own.base())
    }

    /// Checks all packets and sums up their needs. Adjacent bins with the same needs are scanned
    /// together. Usually this covers all bins.
    fn scan(&self, region: &Region, chunk: &Chunk) -> Result<Needed, Error> {
        let mut needed = Needed {
            buffers: BufferExtent::NONE,
            frames: Columns::NONE,
            written: Columns::NONE,
            reads: false,
            writes: false,
            zero_copy_bytes: [0, 0],
        };
        let (start, bytes) = region.extent();
        let (first, end) = (start.div_ceil(BUFFER_UNIT_BYTES) as u64, ((start + bytes) / BUFFER_UNIT_BYTES) as u64);
        let packets_of = |bin: &Bin| &chunk.descriptors[chunk.range(bin)];
        let is_inside = |scan: &Scan| !scan.beyond && u64::from(scan.first) >= first && scan.end <= end;
        let is_lent = |bin: &Bin| region.is_lending() && !packets_of(bin).iter().all(|packet| region.contains(packet));
        let needs_of = |bin: &Bin| &self.needs[usize::from(bin.instance)];
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
            needed.add(needs, packets, &found);
        }
        Ok(needed)
    }

    /// Returns the plan of copies of these whole buffers, and their cost.
    fn copies(&self, needed: &Needed, buffers: &Blocks) -> (ChunkPlan, usize) {
        let (to_device, to_host, cost_bytes) = match self.pitch {
            None => (*buffers, *buffers, buffers.bytes()),
            Some(pitch) => {
                let columns_out = if needed.writes { needed.written.rounded(pitch) } else { Columns::NONE };
                // Frame bytes that are copied back must also be copied to the device.
                let mut read = needed.frames;
                read.include(read.first.max(columns_out.first), read.end.min(columns_out.end));
                let columns_in = read.rounded(pitch);
                let row_bytes = columns_in.bytes().max(columns_out.bytes()).max(self.costs.copy_row_bytes_min);
                (buffers.columns(columns_in), buffers.columns(columns_out), needed.buffers.packets * row_bytes)
            }
        };
        let to_device = if needed.reads || needed.writes { to_device } else { Blocks::NONE };
        let to_host = if needed.writes { to_host } else { Blocks::NONE };
        let bytes = [to_device.bytes(), to_host.bytes()];
        let plan = ChunkPlan { to_device, to_host, writes: needed.writes, bytes, ..ChunkPlan::EMPTY };
        (plan, cost_bytes)
    }

    /// Returns whether a chunk is copied, if copies of its buffers cost `cost_bytes`.
    fn prefers_copy(&self, needed: &Needed, cost_bytes: usize) -> bool {
        let packets = needed.buffers.packets;
        packets == 0
            || match self.transfer {
                Transfer::Auto => {
                    self.costs.copy(packets, cost_bytes) <= self.costs.zero_copy(packets, needed.zero_copy_bytes)
                }
                Transfer::Copy => true,
                Transfer::ZeroCopy => false,
            }
    }
}

impl Needed {
    /// Adds `packets` packets of a function.
    fn add(&mut self, needs: &AccessNeeds, packets: usize, found: &Scan) {
        self.buffers.join(found, packets);
        let (head, end) = (found.head as usize, found.frame_end as usize);
        self.frames.include(head, end);
        match needs.writes_bytes {
            0 => {}
            u16::MAX => {
                let (headroom, tailroom) = (needs.headroom_bytes, needs.tailroom_bytes);
                self.written.include(head.saturating_sub(headroom.into()), end + usize::from(tailroom));
            }
            _ => self.written.include(head, end),
        }
        self.reads |= needs.reads_bytes > 0;
        self.writes |= needs.writes_bytes > 0;
        let bytes = accessed_bytes(needs, packets, found.read_bytes as usize);
        self.zero_copy_bytes.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes);
    }
}

#[cfg(test)]
mod tests;

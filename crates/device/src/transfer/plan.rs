//! Checks the packets of a submission, and selects how the packets reach the device and return.

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

/// Way in which packet buffers reach the device and return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkTransfer {
    /// Copy engines copy the planned blocks.
    Copy,
    /// The kernel accesses packet buffers and arrays over the bus. Nothing is copied.
    ZeroCopy,
    /// The CPU packs the packet buffers into a staging buffer, and a copy engine copies this
    /// buffer.
    Pack,
}

/// Plan for the transfer of one submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPlan {
    pub(crate) transfer: ChunkTransfer,
    /// Blocks that are copied to the device.
    pub(crate) to_device: Blocks,
    /// Blocks that are copied back.
    pub(crate) to_host: Blocks,
    /// Whether any function writes to its packets.
    pub(crate) writes: bool,
    /// Number of packet bytes transferred to the device, and back.
    pub(crate) bytes: [usize; 2],
    /// Whether the device accesses the submission's arrays directly, in page-locked memory.
    pub(crate) uses_own_arrays: bool,
}

impl ChunkPlan {
    /// Plan for a submission without packets, which copies nothing.
    pub(crate) const EMPTY: Self = Self {
        transfer: ChunkTransfer::Copy,
        to_device: Blocks::NONE,
        to_host: Blocks::NONE,
        writes: false,
        bytes: [0, 0],
        uses_own_arrays: false,
    };
}

/// Plans the transfers of all submissions of a device.
#[derive(Debug)]
pub(crate) struct Planner {
    /// Number of bytes that each packet function accesses in a packet.
    pub(crate) needs: Vec<AccessNeeds>,
    /// Distance between two packet buffers in bytes, if all distances are equal.
    pub(crate) pitch: Option<usize>,
    pub(crate) transfer: Transfer,
    pub(crate) costs: TransferCosts,
    /// How the device accesses packets that the copy engines do not move.
    pub(crate) otherwise: ChunkTransfer,
}

struct Needed {
    buffers: BufferExtent,
    /// Byte range of a packet buffer that contains every frame.
    frames: Columns,
    /// Byte range of a packet buffer that functions may write.
    written: Columns,
    reads: bool,
    writes: bool,
    /// Numbers of bytes that the kernel would read and write over the bus by zero-copy.
    zero_copy_bytes: [usize; 2],
}

impl Planner {
    /// Plans how the packets of a submission reach the device and return. Checks that all packets
    /// lie in `region`, the memory of the worker.
    ///
    /// # Errors
    /// Returns [`Error::Chunk`] if a packet lies outside the memory of the worker.
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

    /// Returns whether the device should access the submission's arrays directly. The arrays must
    /// lie in one allocation, as [`Chunk::new`] creates it. If the packets are copied to the
    /// device, the submission must also be large and have few gaps between its batches.
    fn uses_own_arrays(&self, chunk: &Chunk, transfer: ChunkTransfer) -> bool {
        let packets = chunk.packets as usize;
        let own = chunk.parameters.pages();
        let others = [chunk.descriptors.pages(), chunk.outcomes.pages(), chunk.trails.pages()];
        let is_dense = || packets >= self.costs.direct_packets_min && used_entries(chunk) * 3 <= packets * 4;
        (transfer == ChunkTransfer::ZeroCopy || is_dense()) && others.iter().all(|other| other.base() == own.base())
    }

    /// Checks all packets of a submission, and adds up the bytes that their functions access.
    /// Adjacent batches whose functions access the same bytes are scanned together.
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

    /// Returns a plan in which copy engines copy whole packet buffers or only the byte ranges that
    /// functions access. Also returns the cost of these copies.
    fn copies(&self, needed: &Needed, buffers: &Blocks) -> (ChunkPlan, usize) {
        let (to_device, to_host, cost_bytes) = match self.pitch {
            None => (*buffers, *buffers, buffers.bytes()),
            Some(pitch) => {
                let columns_out = if needed.writes { needed.written.rounded(pitch) } else { Columns::NONE };
                // All bytes that are copied back must also be copied to the device, because the
                // kernel may leave some of them unchanged.
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

    /// Returns whether copy engines should transfer the packets, if copying their buffers costs
    /// `cost_bytes`.
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
    /// Adds the bytes that one function accesses in `packets` packets.
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

//! Tables of IPv4 routes in the DIR-24-8 layout (Gupta, Lin, McKeown, "Routing Lookups in Hardware
//! at Memory Access Speeds", INFOCOM 1998, section III):
//!
//! ```text
//! 0        64           tbl24_offset              tbl8_offset
//! | header | next hops  | 2^24 entries: by /24    | groups of 256 entries: by last octet |
//! ```
//!
//! There is spare room for next hops and groups, which `changes.rs` fills while packets flow.

use godwit_kernels::image::{
    ALIGNMENT_BYTES, IPV4_HOP_BLACKHOLE, IPV4_HOP_LOCAL, IPV4_HOP_UNREACHABLE, IPV4_HOP_UNRESOLVED, IPV4_MAGIC,
    Ipv4Image, Ipv4NextHop,
};
use godwit_packet::Memory;

use super::{Route, Spare};
use crate::Error;
use crate::routing::{Adjacency, NextHop};
use crate::tables::lpm4::{self, Built, Group, NARROW, TBL24_ENTRIES, WIDE, check_count};

const NEXT_HOPS_OFFSET: usize = size_of::<Ipv4Image>().next_multiple_of(ALIGNMENT_BYTES);
const NEXT_HOP_BYTES: usize = size_of::<Ipv4NextHop>();

/// Layout of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Number of next hops for which there is room.
    pub(super) next_hops: usize,
    pub(super) table: lpm4::Layout,
}

impl Layout {
    /// Computes the layout of the tables. The initial contents determine the size of an entry. The
    /// spare capacity is reduced if it would require larger entries.
    fn new(next_hops: usize, groups: usize, spare: Spare) -> Self {
        let narrow = next_hops <= NARROW.0 && groups <= NARROW.1;
        let (next_hops_max, groups_max) = if narrow { NARROW } else { WIDE };
        let next_hops = next_hops.saturating_add(spare.next_hops).min(next_hops_max);
        let groups = groups.saturating_add(spare.groups).min(groups_max).min(TBL24_ENTRIES);
        let tbl24_offset = (NEXT_HOPS_OFFSET + next_hops * NEXT_HOP_BYTES).next_multiple_of(ALIGNMENT_BYTES);
        Self { next_hops, table: lpm4::Layout::new(tbl24_offset, if narrow { 2 } else { 4 }, groups) }
    }

    /// Returns the offset of a next hop in the tables.
    pub(super) fn next_hop(&self, index: u32) -> usize {
        NEXT_HOPS_OFFSET + index as usize * NEXT_HOP_BYTES
    }

    fn header(&self) -> Ipv4Image {
        Ipv4Image {
            magic: IPV4_MAGIC,
            entry_bytes: self.table.entry_bytes as u32,
            next_hops: self.next_hops as u32,
            groups: self.table.groups as u32,
            next_hops_offset: NEXT_HOPS_OFFSET as u64,
            tbl24_offset: self.table.tbl24_offset as u64,
            tbl8_offset: self.table.tbl8_offset as u64,
            bytes: self.table.end as u64,
        }
    }
}

/// Memory for building the tables, in bytes per route. It holds sort keys, intervals and groups.
const BUILD_BYTES_PER_ROUTE: usize = 48;

/// Builds the tables. Returns the tables, their layout and their groups of 256 entries for prefixes
/// longer than /24.
///
/// # Errors
/// Returns [`Error::Memory`] if the machine has too little memory. Returns [`Error::Value`] if
/// there are more than [`ROUTES_MAX`] routes.
pub(super) fn image(
    routes: &[Route],
    next_hops: &[NextHop],
    spare: Spare,
) -> Result<(Memory, Layout, Vec<Group>), Error> {
    check_count(routes.len())?;
    // This allocation checks that enough memory is available, because later allocations cannot
    // report an error.
    drop(Memory::new(routes.len() * BUILD_BYTES_PER_ROUTE, "building the routes of an ipv4 function")?);
    let built = Built::new(routes);
    let layout = Layout::new(next_hops.len(), built.groups(), spare);
    let mut image = Memory::new(layout.table.end, "the routes of an ipv4 function")?;
    image[..size_of::<Ipv4Image>()].copy_from_slice(&layout.header().emit());
    for (record, next_hop) in image[NEXT_HOPS_OFFSET..].chunks_exact_mut(NEXT_HOP_BYTES).zip(next_hops) {
        record.copy_from_slice(&record_of(next_hop).emit());
    }
    let made = built.write(&layout.table, &mut image);
    Ok((image, layout, made))
}

/// Returns the encoded form of a next hop.
pub(super) fn record_of(next_hop: &NextHop) -> Ipv4NextHop {
    let station = |adjacency: &Adjacency, flags| {
        let Adjacency { port, destination, source, mtu } = *adjacency;
        Ipv4NextHop::new(destination.0, source.0, port as u8, flags, mtu)
    };
    let flagged = |flags| Ipv4NextHop::new([0; 6], [0; 6], 0, flags, Adjacency::MTU_MAX);
    match next_hop {
        NextHop::Forward(adjacency) => station(adjacency, 0),
        NextHop::Unresolved(adjacency) => station(adjacency, IPV4_HOP_UNRESOLVED),
        NextHop::Local => flagged(IPV4_HOP_LOCAL),
        NextHop::Blackhole => flagged(IPV4_HOP_BLACKHOLE),
        NextHop::Unreachable => flagged(IPV4_HOP_UNREACHABLE),
    }
}

//! Tables of IPv6 routes, whose layout `kernels/ipv6/lookup.h` shows. The modules `trie.rs` and
//! `hash.rs` build the lookup structures below the entries of the root table.
//!
//! Each entry of the root table is built separately. The builder needs the routes that begin in the
//! entry's address range, and the route that covers the whole range. A route change therefore
//! writes new lines for each affected entry, and then stores the entry.

use godwit_kernels::image::{
    ALIGNMENT_BYTES, IPV6_HASH, IPV6_HOP_BLACKHOLE, IPV6_HOP_LOCAL, IPV6_HOP_UNREACHABLE, IPV6_HOP_UNRESOLVED,
    IPV6_LINE_BYTES, IPV6_LINES_MAX, IPV6_MAGIC, IPV6_NONE, IPV6_TRIE, Ipv6Image, Ipv6NextHop,
};
use godwit_packet::Memory;

use super::lines::Lines;
use super::rib::{self, Rib};
use super::{Form, Route, Spare, hash, trie, walk};
use crate::Error;
use crate::routes::Address;
use crate::routing::{Adjacency, Format, NextHop, Record};

const NEXT_HOPS_OFFSET: usize = size_of::<Ipv6Image>().next_multiple_of(ALIGNMENT_BYTES);
const NEXT_HOP_BYTES: usize = size_of::<Ipv6NextHop>();

/// Number of address bits that select an entry of the root table. It must be even.
///
/// The number does not depend on the number of routes, because few routes may become many at run
/// time. For a small table, the root costs only 4 MiB of memory. The addresses in use begin alike,
/// so lookups touch few cache lines of the root.
///
/// The benchmark `bench ipv6-lookup` (AVX-512, a Xeon with 2 MiB of L2) compared this root with a
/// root of 16 bits. A lookup takes 5.4 ns instead of 5.8 ns for 500 prefixes of 2025. It takes 6.7
/// ns instead of 6.5 ns for 5000 prefixes, and 6.1 ns instead of 6.9 ns for 20,000 prefixes.
pub(super) const ROOT_BITS: u32 = 20;

/// Maximum number of next hops in a table.
pub(super) const NEXT_HOPS_MAX: usize = IPV6_NONE as usize;

/// Number of 64-byte lines that suffice to add 200,000 routes to an empty table. The number covers
/// both kinds of lookup structure, and the old lines that changes replace.
///
/// The lines take 32 MiB of address space on the host, but only written lines take memory. A device
/// with separate memory allocates all lines.
pub(super) const FULL_TABLE_LINES: usize = 1 << 19;

/// Error that reports too few free 64-byte lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full;

/// Destination to which a builder writes a lookup structure.
pub(super) trait Writer {
    /// Allocates `count` consecutive lines of 64 bytes. Returns the index of the first line.
    fn take(&mut self, count: u32) -> Result<u32, Full>;

    /// Writes `bytes` to the lines from `line` on.
    fn write(&mut self, line: u32, bytes: &[u8]);
}

/// Returns the table entry for a next hop. `IPV6_NONE` means that there is no next hop.
pub(super) fn leaf(next_hop: u32) -> u32 {
    next_hop
}

/// Layout of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) form: Form,
    /// Number of address bits that select an entry of the root table. The number is even.
    pub(super) root_bits: u32,
    /// Number of next hops for which there is room.
    pub(super) next_hops: usize,
    /// Number of 64-byte lines for which there is room.
    pub(super) lines: usize,
    pub(super) root_offset: usize,
    pub(super) lines_offset: usize,
    pub(super) bytes: usize,
}

impl Layout {
    fn new(form: Form, root_bits: u32, next_hops: usize, lines: usize) -> Self {
        let root_offset = (NEXT_HOPS_OFFSET + next_hops * NEXT_HOP_BYTES).next_multiple_of(ALIGNMENT_BYTES);
        let lines_offset = root_offset + (4 << root_bits);
        let bytes = lines_offset + lines * IPV6_LINE_BYTES;
        Self { form, root_bits, next_hops, lines, root_offset, lines_offset, bytes }
    }

    fn header(&self) -> Ipv6Image {
        Ipv6Image {
            magic: IPV6_MAGIC,
            form: match self.form {
                Form::Trie => IPV6_TRIE,
                Form::Hash => IPV6_HASH,
            },
            next_hops: self.next_hops as u32,
            root_shift: 64 - self.root_bits,
            next_hops_offset: NEXT_HOPS_OFFSET as u64,
            root_offset: self.root_offset as u64,
            lines_offset: self.lines_offset as u64,
            bytes: self.bytes as u64,
        }
    }

    /// Returns the offset of a next hop, in bytes.
    pub(super) fn next_hop(&self, index: u32) -> usize {
        NEXT_HOPS_OFFSET + index as usize * NEXT_HOP_BYTES
    }

    /// Returns the offset of an entry of the root table, in bytes.
    pub(super) fn root(&self, slot: u32) -> usize {
        self.root_offset + 4 * slot as usize
    }

    /// Returns the offset of a 64-byte line, in bytes.
    pub(super) fn line(&self, line: u32) -> usize {
        self.lines_offset + line as usize * IPV6_LINE_BYTES
    }
}

/// New tables, before they are copied to their final memory.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) form: Form,
    pub(super) root_bits: u32,
    root: Vec<u8>,
    bytes: Vec<u8>,
    lines: Lines,
}

impl Writer for Built {
    fn take(&mut self, count: u32) -> Result<u32, Full> {
        let first = self.lines.take(count).ok_or(Full)?;
        self.bytes.resize(self.lines.touched() * IPV6_LINE_BYTES, 0);
        Ok(first)
    }

    fn write(&mut self, line: u32, bytes: &[u8]) {
        self.bytes[line as usize * IPV6_LINE_BYTES..][..bytes.len()].copy_from_slice(bytes);
    }
}

impl Built {
    /// Builds the tables for all routes. The first `root_bits` bits of an address select the entry
    /// of the root table.
    pub(super) fn new(form: Form, rib: &Rib, root_bits: u32) -> Result<Self, Full> {
        let covering = covering(rib, root_bits, 0, 1 << root_bits);
        let root = covering.iter().flat_map(|next_hop| leaf(*next_hop).to_le_bytes()).collect();
        let mut built = Self { form, root_bits, root, bytes: Vec::new(), lines: Lines::new(IPV6_LINES_MAX) };
        let longer: Vec<Route> = rib.routes().filter(|route| u32::from(route.length) > root_bits).collect();
        let slot_of = |route: &Route| (route.prefix >> (128 - root_bits)) as usize;
        for routes in longer.chunk_by(|a, b| slot_of(a) == slot_of(b)) {
            let slot = slot_of(&routes[0]);
            let entry = below(form, root_bits, slot as u32, covering[slot], routes, &mut built)?;
            built.root[4 * slot..][..4].copy_from_slice(&entry.to_le_bytes());
        }
        Ok(built)
    }

    /// Returns a view of the table, for lookups on the CPU.
    pub(super) fn table(&self) -> walk::Table<&[u8]> {
        walk::Table { form: self.form, root_bits: self.root_bits, root: &self.root, lines: &self.bytes }
    }

    /// Creates the final tables, with spare capacity. Returns the tables, their layout and the
    /// allocator for their memory.
    pub(super) fn image(mut self, next_hops: &[Ipv6NextHop], spare: Spare) -> Result<(Memory, Layout, Lines), Error> {
        let used = self.lines.touched();
        // Changes write new lookup structures before they free the old ones. The default spare
        // capacity therefore equals the memory in use. It is larger for a small table, because a
        // routing daemon may add many routes.
        let spare_lines = spare.lines.unwrap_or(used.max(FULL_TABLE_LINES));
        let lines = used.saturating_add(spare_lines).min(IPV6_LINES_MAX);
        let room = next_hops.len().saturating_add(spare.next_hops).min(NEXT_HOPS_MAX);
        let layout = Layout::new(self.form, self.root_bits, room, lines);
        let mut memory = Memory::new(layout.bytes, "the routes of an ipv6 function")?;
        memory[..size_of::<Ipv6Image>()].copy_from_slice(&layout.header().emit());
        for (record, next_hop) in memory[NEXT_HOPS_OFFSET..].chunks_exact_mut(NEXT_HOP_BYTES).zip(next_hops) {
            record.copy_from_slice(&next_hop.emit());
        }
        memory[layout.root_offset..][..self.root.len()].copy_from_slice(&self.root);
        memory[layout.lines_offset..][..self.bytes.len()].copy_from_slice(&self.bytes);
        let mut lines = Lines::new(layout.lines);
        std::mem::swap(&mut lines, &mut self.lines);
        lines.limit(layout.lines);
        Ok((memory, layout, lines))
    }
}

/// Encoding of next hops.
pub(super) const FORMAT: Format = Format {
    record: |next_hop| {
        let Ipv6NextHop { to, from } = record_of(next_hop);
        Record { to, from }
    },
    unresolved: IPV6_HOP_UNRESOLVED,
};

/// Returns the encoded form of a next hop.
pub(super) fn record_of(next_hop: &NextHop) -> Ipv6NextHop {
    let station = |adjacency: &Adjacency, flags| {
        let Adjacency { port, destination, source, mtu } = *adjacency;
        Ipv6NextHop::new(destination.0, source.0, port as u8, flags, mtu)
    };
    let flagged = |flags| Ipv6NextHop::new([0; 6], [0; 6], 0, flags, Adjacency::MTU_MAX);
    match next_hop {
        NextHop::Forward(adjacency) => station(adjacency, 0),
        NextHop::Unresolved(adjacency) => station(adjacency, IPV6_HOP_UNRESOLVED),
        NextHop::Local => flagged(IPV6_HOP_LOCAL),
        NextHop::Blackhole => flagged(IPV6_HOP_BLACKHOLE),
        NextHop::Unreachable => flagged(IPV6_HOP_UNREACHABLE),
    }
}

/// Returns the next hop for each of `count` entries of the root table. It is the next hop of the
/// longest route that covers all addresses of the entry.
pub(super) fn covering(rib: &Rib, root_bits: u32, first: u32, count: usize) -> Vec<u32> {
    let start = u128::from(first) << (128 - root_bits);
    let (first, end) = (u64::from(first), u64::from(first) + count as u64);
    let slot_of = |route: &Route| (route.prefix >> (128 - root_bits)) as u64;
    let mut slots = vec![IPV6_NONE; count];
    let mut cover = |route: Route| {
        if u32::from(route.length) <= root_bits {
            let slot = slot_of(&route);
            let until = end.min(slot + (1 << (root_bits - u32::from(route.length))));
            slots[(slot.max(first) - first) as usize..(until - first) as usize].fill(route.next_hop);
        }
    };
    // The routes that begin before `start` are handled first. A shorter route thus comes before the
    // longer routes inside it, which overwrite its next hop.
    rib.around(start, root_bits as u8).for_each(&mut cover);
    rib.from(start).take_while(|route| slot_of(route) < end).for_each(cover);
    slots
}

/// Builds the lookup structure below an entry of the root table. Returns the new value of the
/// entry.
///
/// `routes` are the sorted routes inside the address range of this entry. `outside` is the next hop
/// of the longest route that covers the whole range.
pub(super) fn below(
    form: Form,
    root_bits: u32,
    slot: u32,
    outside: u32,
    routes: &[Route],
    writer: &mut dyn Writer,
) -> Result<u32, Full> {
    if routes.is_empty() {
        return Ok(leaf(outside));
    }
    match form {
        Form::Trie => {
            let start = u128::from(slot) << (128 - root_bits);
            let end = start | !u128::MAX.masked(root_bits as u8);
            let mut intervals = rib::intervals(start, outside, routes.iter().copied());
            intervals.retain(|interval| interval.start <= end);
            trie::build(&intervals, 64 - root_bits, writer)
        }
        Form::Hash => hash::build(routes, outside, writer),
    }
}

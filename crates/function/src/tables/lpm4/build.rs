//! Construction of a DIR-24-8 table (Gupta, Lin, McKeown, "Routing Lookups in Hardware at Memory
//! Access Speeds", INFOCOM 1998, section III).
//!
//! If the top bit of an entry is set, the entry refers to a group of 256 entries. Otherwise, it
//! refers to a next hop, and all ones mean "no route". Entries have 2 bytes if the indices of
//! groups and of next hops fit into 15 bits, because smaller entries cause fewer cache misses.
//! Otherwise, they have 4 bytes.
//!
//! The table is built in one pass over the address space. The prefixes are sorted by address, then
//! by length, so that each prefix comes before the prefixes that it contains. A stack holds the
//! prefixes that cover the current address. The top prefix applies until it ends or a longer one
//! begins. The result maps addresses to next hops as a list of disjoint intervals. Each entry of
//! the table is then written once, no matter how many prefixes cover it.
//!
//! Blocks of 256 addresses that are divided in the same way share a group. Real tables have few
//! routes longer than /24, but a million host routes would need a gigabyte of groups without
//! sharing. With sharing, they need 16,384 groups if there are 64 next hops.

use hashbrown::HashMap;

use super::Route;
use crate::Error;

pub(crate) const TBL24_ENTRIES: usize = 1 << 24;
pub(crate) const GROUP_ENTRIES: usize = 256;

/// Maximum number of routes in a table. The index of a route must fit into its sort key.
pub(crate) const ROUTES_MAX: usize = 1 << SEQUENCE_BITS;
const SEQUENCE_BITS: u32 = 26;

/// Next hop of addresses without a route.
pub(crate) const NO_ROUTE: u32 = u32::MAX;

/// Range of addresses with the same next hop. It begins at `start` and ends where the next interval
/// begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    start: u32,
    next_hop: u32,
}

/// Layout of both table levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) entry_bytes: usize,
    /// Number of groups of 256 entries for which there is room.
    pub(crate) groups: usize,
    pub(crate) tbl24_offset: usize,
    pub(crate) tbl8_offset: usize,
    /// Offset at which the second table level ends.
    pub(crate) end: usize,
}

/// Maximum number of next hops, and of groups of 256 entries, in a table with 2-byte entries. One
/// index is reserved for "no route".
pub(crate) const NARROW: (usize, usize) = (0x7fff, 0x8000);
/// Maximum number of next hops, and of groups of 256 entries, in a table with 4-byte entries.
pub(crate) const WIDE: (usize, usize) = (0x7fff_ffff, 0x8000_0000);

impl Layout {
    /// Returns the layout from `offset` on.
    pub(crate) fn new(offset: usize, entry_bytes: usize, groups: usize) -> Self {
        let tbl8_offset = offset + TBL24_ENTRIES * entry_bytes;
        let end = tbl8_offset + groups * GROUP_ENTRIES * entry_bytes;
        Self { entry_bytes, groups, tbl24_offset: offset, tbl8_offset, end }
    }

    /// Returns the top bit of an entry, which marks a reference to a group of 256 entries.
    pub(crate) fn top(&self) -> u32 {
        1 << (8 * self.entry_bytes - 1)
    }

    /// Returns the entry for a next hop or for [`NO_ROUTE`].
    pub(crate) fn entry(&self, next_hop: u32) -> u32 {
        if next_hop == NO_ROUTE { self.top() - 1 } else { next_hop }
    }
}

/// Contents of both table levels, before they are written to their final memory.
pub(crate) struct Built {
    intervals: Vec<Interval>,
    groups: Groups,
}

impl Built {
    pub(crate) fn new(routes: &[Route]) -> Self {
        let intervals = intervals(routes);
        let groups = Groups::new(&intervals);
        Self { intervals, groups }
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups.contents.len()
    }

    /// Writes both table levels to their final memory. Returns the groups of 256 entries in the
    /// second level.
    pub(crate) fn write(self, layout: &Layout, image: &mut [u8]) -> Vec<Group> {
        let (tbl24, tbl8) = image[layout.tbl24_offset..].split_at_mut(layout.tbl8_offset - layout.tbl24_offset);
        match layout.entry_bytes {
            2 => fill::<2>(&self.intervals, &self.groups, tbl24, tbl8),
            _ => fill::<4>(&self.intervals, &self.groups, tbl24, tbl8),
        }
        let mut made = vec![Group::default(); self.groups.contents.len()];
        self.groups.of_block.iter().for_each(|(_, group)| made[*group as usize].uses += 1);
        self.groups.contents.into_iter().for_each(|(pieces, group)| made[group as usize].pieces = pieces);
        made
    }
}

/// Checks that the sort key has room for `routes` routes.
pub(crate) fn check_count(routes: usize) -> Result<(), Error> {
    if routes <= ROUTES_MAX {
        return Ok(());
    }
    Err(Error::Value {
        span: None,
        message: format!("there are {routes} routes; a table has room for at most {ROUTES_MAX}"),
    })
}

/// Divides the address space into intervals with the same next hop. The first interval starts at
/// address 0. Adjacent intervals have different next hops.
fn intervals(routes: &[Route]) -> Vec<Interval> {
    // Sort keys order the routes by prefix, then by length, and then by their order in the file.
    // The low bits hold the index of the route.
    let mut keys: Vec<u64> = (routes.iter().zip(0u64..))
        .map(|(route, index)| u64::from(route.prefix) << 32 | u64::from(route.length) << SEQUENCE_BITS | index)
        .collect();
    keys.sort_unstable();

    let mut intervals = Vec::with_capacity(2 * routes.len() + 1);
    intervals.push(Interval { start: 0, next_hop: NO_ROUTE });
    // The stack holds the end address and the next hop of each prefix that covers the current
    // address. The longest prefix is on top. The lowest element covers the whole address space and
    // is never removed.
    let mut covering: Vec<(u64, u32)> = vec![(u64::MAX, NO_ROUTE)];
    for (position, key) in keys.iter().enumerate() {
        // If several routes have the same prefix, the last one applies.
        if keys.get(position + 1).is_some_and(|next| next >> SEQUENCE_BITS == key >> SEQUENCE_BITS) {
            continue;
        }
        let route = &routes[(key & (ROUTES_MAX as u64 - 1)) as usize];
        let start = u64::from(route.prefix);
        leave(&mut covering, &mut intervals, start);
        begin(&mut intervals, start, route.next_hop);
        covering.push((start + (1 << (32 - route.length)), route.next_hop));
    }
    leave(&mut covering, &mut intervals, u64::from(u32::MAX) + 1);
    intervals
}

/// Removes the prefixes that end at or before `address` from the stack. After each removed prefix,
/// an interval of the enclosing prefix begins.
fn leave(covering: &mut Vec<(u64, u32)>, intervals: &mut Vec<Interval>, address: u64) {
    while let Some(&(end, _)) = covering.last()
        && end <= address
    {
        covering.pop();
        if let Some(&(_, next_hop)) = covering.last() {
            begin(intervals, end, next_hop);
        }
    }
}

/// Begins an interval with `next_hop` at the address `start`. It replaces an existing interval with
/// the same start.
fn begin(intervals: &mut Vec<Interval>, start: u64, next_hop: u32) {
    let Ok(start) = u32::try_from(start) else {
        return;
    };
    if intervals.last().is_some_and(|last| last.start == start) {
        intervals.pop();
    }
    if intervals.last().is_none_or(|last| last.next_hop != next_hop) {
        intervals.push(Interval { start, next_hop });
    }
}

/// Group of 256 entries, one for each last octet of an address. The field `pieces` describes the
/// entries, and `uses` counts the /24 address blocks with this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) uses: u32,
}

/// Blocks of 256 addresses that have more than one next hop.
struct Groups {
    contents: HashMap<Vec<Piece>, u32>,
    /// The /24 address blocks that refer to groups, in ascending order, each with its group index.
    of_block: Vec<(u32, u32)>,
}

/// Range of last octets with the same next hop. It is encoded as `first_octet << 32 | next_hop`,
/// because a number hashes faster than a pair.
pub(crate) type Piece = u64;

impl Groups {
    fn new(intervals: &[Interval]) -> Self {
        let mut groups = Self { contents: HashMap::new(), of_block: Vec::new() };
        let mut pieces: Vec<Piece> = Vec::new();
        let mut index = 0;
        while let Some(first) = intervals.get(index) {
            if first.start & 0xff == 0 {
                index += 1;
                continue;
            }
            // The previous interval covers the start of the block. It always exists, because the
            // first interval starts at address 0.
            let block = first.start >> 8;
            pieces.clear();
            pieces.push(u64::from(intervals[index - 1].next_hop));
            for inside in intervals[index..].iter().take_while(|inside| inside.start >> 8 == block) {
                pieces.push(u64::from(inside.start & 0xff) << 32 | u64::from(inside.next_hop));
                index += 1;
            }
            let group = match groups.contents.get(pieces.as_slice()) {
                Some(group) => *group,
                None => {
                    let group = groups.contents.len() as u32;
                    groups.contents.insert(pieces.clone(), group);
                    group
                }
            };
            groups.of_block.push((block, group));
        }
        groups
    }
}

/// Writes the entries of both levels, with `N` bytes each.
fn fill<const N: usize>(intervals: &[Interval], groups: &Groups, tbl24: &mut [u8], tbl8: &mut [u8]) {
    let (tbl24, tbl8) = (tbl24.as_chunks_mut::<N>().0, tbl8.as_chunks_mut::<N>().0);
    let top = 1u32 << (8 * N - 1);
    let entry = |value: u32| -> [u8; N] {
        // The number is in little-endian byte order, so its first `N` bytes are the least
        // significant ones.
        let bytes = value.to_le_bytes();
        std::array::from_fn(|at| bytes[at])
    };
    let next_hop = |index: u32| entry(if index == NO_ROUTE { top - 1 } else { index });

    let ends = intervals[1..].iter().map(|next| next.start as usize).chain([1 << 32]);
    for (interval, end) in intervals.iter().zip(ends) {
        // These /24 address blocks lie entirely within the interval, so each block has a single
        // next hop.
        let (first, last) = ((interval.start as usize).div_ceil(GROUP_ENTRIES), end / GROUP_ENTRIES);
        if first < last {
            tbl24[first..last].fill(next_hop(interval.next_hop));
        }
    }
    for &(block, group) in &groups.of_block {
        tbl24[block as usize] = entry(top | group);
    }
    for (pieces, group) in &groups.contents {
        let group = &mut tbl8[*group as usize * GROUP_ENTRIES..][..GROUP_ENTRIES];
        for piece in pieces {
            // The following pieces overwrite the rest of the group.
            group[(piece >> 32) as usize..].fill(next_hop(*piece as u32));
        }
    }
}

//! Routes of a table, stored separately from the kernel's table. For each /24 address block, the
//! [`Rib`] knows the longest prefix up to /24 that covers the block.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::Route;
use super::build::{GROUP_ENTRIES, NO_ROUTE, Piece};
use crate::routes::Address;

const BLOCKS: usize = 1 << 24;
/// Flag in [`Rib::owners`]: the /24 address block contains routes longer than /24.
const HAS_LONGER: u8 = 0x80;

/// Routes of a table, as the module documentation describes.
pub(crate) struct Rib {
    /// Next hop of each prefix, in one map per prefix length.
    by_length: [HashMap<u32, u32>; 33],
    /// For each /24 address block, the length of the longest prefix up to /24 that covers the
    /// block, plus 1. The value is 0 if no such prefix exists.
    owners: Vec<u8>,
    /// Routes longer than /24 in each /24 address block, sorted by length and then by last octet.
    longer: HashMap<u32, BTreeMap<(u8, u8), u32>>,
    /// Number of routes that use each next hop.
    uses: Vec<u32>,
}

/// Cache for [`Rib::block`] with the length, prefix and next hop of the last result. Adjacent
/// address blocks usually have the same result.
#[derive(Default)]
pub(crate) struct BlockCache(Option<(u8, u32, u32)>);

impl Rib {
    /// Creates the list of `routes`. If several routes have the same prefix, the last one applies.
    pub(crate) fn new(routes: &[Route]) -> Self {
        let mut rib = Self {
            by_length: std::array::from_fn(|_| HashMap::new()),
            owners: vec![0; BLOCKS],
            longer: HashMap::new(),
            uses: Vec::new(),
        };
        for route in routes {
            rib.put(route.prefix, route.length, Some(route.next_hop));
        }
        for length in 0..=24 {
            for &prefix in rib.by_length[usize::from(length)].keys() {
                rib.owners[blocks(prefix, length)].fill(length + 1);
            }
        }
        for length in 25..=32 {
            for (&prefix, &next_hop) in &rib.by_length[usize::from(length)] {
                rib.longer.entry(prefix >> 8).or_default().insert((length, prefix as u8), next_hop);
                rib.owners[(prefix >> 8) as usize] |= HAS_LONGER;
            }
        }
        rib
    }

    /// Returns the number of routes.
    pub(crate) fn len(&self) -> usize {
        self.by_length.iter().map(HashMap::len).sum()
    }

    /// Sets the next hop of a prefix, or removes the route if `next_hop` is `None`. Returns the
    /// previous next hop.
    fn put(&mut self, prefix: u32, length: u8, next_hop: Option<u32>) -> Option<u32> {
        let routes = &mut self.by_length[usize::from(length)];
        let before = match next_hop {
            Some(next_hop) => routes.insert(prefix, next_hop),
            None => routes.remove(&prefix),
        };
        if let Some(next_hop) = next_hop {
            let count = self.uses.len().max(next_hop as usize + 1);
            self.uses.resize(count, 0);
            self.uses[next_hop as usize] += 1;
        }
        if let Some(before) = before {
            self.uses[before as usize] -= 1;
        }
        before
    }

    /// Applies a route change, and appends the affected ranges of /24 blocks to `dirty`. Returns
    /// the previous next hop.
    pub(crate) fn change(
        &mut self,
        prefix: u32,
        length: u8,
        next_hop: Option<u32>,
        dirty: &mut Vec<(u32, u32)>,
    ) -> Option<u32> {
        let before = self.put(prefix, length, next_hop);
        if before == next_hop {
            return before;
        }
        let first = prefix >> 8;
        if length > 24 {
            dirty.push((first, first + 1));
            let routes = self.longer.entry(first).or_default();
            match next_hop {
                Some(next_hop) => routes.insert((length, prefix as u8), next_hop),
                None => routes.remove(&(length, prefix as u8)),
            };
            let is_empty = routes.is_empty();
            let owner = &mut self.owners[first as usize];
            *owner &= !HAS_LONGER;
            if is_empty {
                self.longer.remove(&first);
            } else {
                *owner |= HAS_LONGER;
            }
            return before;
        }
        let range = blocks(prefix, length);
        dirty.push((range.start as u32, range.end as u32));
        let successor =
            if next_hop.is_some() { length + 1 } else { self.shorter(prefix, length).map_or(0, |cover| cover + 1) };
        for owner in &mut self.owners[range] {
            // A new route takes address blocks from shorter prefixes. A removed route gives up only
            // the address blocks for which it was the longest prefix.
            let is_ours =
                if next_hop.is_some() { *owner & !HAS_LONGER <= length } else { *owner & !HAS_LONGER == length + 1 };
            if is_ours {
                *owner = *owner & HAS_LONGER | successor;
            }
        }
        before
    }

    /// Returns the length of the next shorter route that covers this prefix.
    fn shorter(&self, prefix: u32, length: u8) -> Option<u8> {
        (0..length).rev().find(|&shorter| self.at(prefix.masked(shorter), shorter).is_some())
    }

    /// Returns the next hop of exactly this prefix.
    pub(crate) fn at(&self, prefix: u32, length: u8) -> Option<u32> {
        let routes = &self.by_length[usize::from(length)];
        if routes.is_empty() { None } else { routes.get(&prefix).copied() }
    }

    /// Returns the length and next hop of the longest prefix that covers an address.
    pub(crate) fn find(&self, address: u32) -> Option<(u8, u32)> {
        (0..=32).rev().find_map(|length| Some((length, self.at(address.masked(length), length)?)))
    }

    /// Returns the next hop of a /24 address block from the routes up to /24. Returns [`NO_ROUTE`]
    /// if no such route covers the block.
    pub(crate) fn block(&self, block: u32, cache: &mut BlockCache) -> u32 {
        let owner = self.owners[block as usize] & !HAS_LONGER;
        let Some(length) = owner.checked_sub(1) else { return NO_ROUTE };
        let prefix = (block << 8).masked(length);
        match cache.0 {
            Some((cached_length, cached_prefix, next_hop)) if (cached_length, cached_prefix) == (length, prefix) => {
                next_hop
            }
            _ => {
                let next_hop = self.at(prefix, length).unwrap_or(NO_ROUTE);
                cache.0 = Some((length, prefix, next_hop));
                next_hop
            }
        }
    }

    /// Divides a /24 address block into `pieces`, each with one next hop. Addresses without a route
    /// longer than /24 get the next hop `base`. Returns `false` if the block contains no such
    /// route.
    pub(crate) fn pieces(&self, block: u32, base: u32, pieces: &mut Vec<Piece>) -> bool {
        if self.owners[block as usize] & HAS_LONGER == 0 {
            return false;
        }
        let mut hops = [base; GROUP_ENTRIES];
        // Routes are sorted by length, so a longer route overwrites the shorter routes that contain
        // it.
        for (&(length, octet), &next_hop) in self.longer.get(&block).into_iter().flatten() {
            hops[usize::from(octet)..][..1 << (32 - length)].fill(next_hop);
        }
        pieces.clear();
        for (octet, &next_hop) in (0u64..).zip(&hops) {
            if pieces.last().is_none_or(|last| *last as u32 != next_hop) {
                pieces.push(octet << 32 | u64::from(next_hop));
            }
        }
        true
    }

    /// Returns the number of routes that use a next hop.
    pub(crate) fn uses(&self, next_hop: u32) -> u32 {
        self.uses.get(next_hop as usize).copied().unwrap_or(0)
    }

    /// Returns all routes, unsorted.
    pub(crate) fn routes(&self) -> impl Iterator<Item = Route> {
        (0u8..).zip(&self.by_length).flat_map(|(length, routes)| {
            routes.iter().map(move |(&prefix, &next_hop)| Route { prefix, length, next_hop })
        })
    }
}

/// Returns the range of /24 address blocks that a prefix of length 0 to 24 covers.
fn blocks(prefix: u32, length: u8) -> std::ops::Range<usize> {
    let first = (prefix >> 8) as usize;
    first..first + (1 << (24 - length))
}

//! Sorted list of routes, from which lookup tables are built.

use std::collections::BTreeMap;

use super::Route;
use crate::routes::Address;

/// Next hop of each route. Routes are sorted by prefix and then by length, so each prefix comes
/// before the longer prefixes inside it.
#[derive(Debug, Default)]
pub(super) struct Rib(BTreeMap<(u128, u8), u32>);

/// Range of addresses with the same next hop. It begins at `start` and ends where the next interval
/// begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) start: u128,
    pub(super) next_hop: u32,
}

impl Rib {
    /// Creates the list of `routes`. If several routes have the same prefix, the last one applies.
    pub(super) fn new(routes: &[Route]) -> Self {
        Self(routes.iter().map(|route| ((route.prefix, route.length), route.next_hop)).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Sets the next hop of a prefix, or removes the route if `next_hop` is `None`. Returns the
    /// previous next hop.
    pub(super) fn set(&mut self, prefix: u128, length: u8, next_hop: Option<u32>) -> Option<u32> {
        match next_hop {
            Some(next_hop) => self.0.insert((prefix, length), next_hop),
            None => self.0.remove(&(prefix, length)),
        }
    }

    /// Returns the next hop of exactly this prefix.
    pub(super) fn get(&self, prefix: u128, length: u8) -> Option<u32> {
        self.0.get(&(prefix, length)).copied()
    }

    /// Returns all routes, sorted.
    pub(super) fn routes(&self) -> impl Iterator<Item = Route> {
        self.0.iter().map(|(&(prefix, length), &next_hop)| Route { prefix, length, next_hop })
    }

    /// Returns the routes that begin at or after the address `start`, sorted by prefix.
    pub(super) fn from(&self, start: u128) -> impl Iterator<Item = Route> {
        self.0.range((start, 0)..).map(|(&(prefix, length), &next_hop)| Route { prefix, length, next_hop })
    }

    /// Returns the longer routes inside a prefix, sorted.
    pub(super) fn inside(&self, prefix: u128, length: u8) -> impl Iterator<Item = Route> {
        let last = prefix | !u128::MAX.masked(length);
        let range = self.0.range((prefix, length + 1)..=(last, u8::MAX));
        range.map(|(&(prefix, length), &next_hop)| Route { prefix, length, next_hop })
    }

    /// Returns the routes of at most `length` bits that cover an address. The shortest prefix comes
    /// first.
    pub(super) fn around(&self, address: u128, length: u8) -> impl Iterator<Item = Route> {
        (0..=length).filter_map(move |length| {
            let prefix = address.masked(length);
            self.get(prefix, length).map(|next_hop| Route { prefix, length, next_hop })
        })
    }
}

/// Divides the addresses from `start` on into intervals with the same next hop. `routes` must be
/// sorted and begin at or after `start`. An address without a route gets the next hop `outside`.
/// The first interval begins at `start`. Adjacent intervals have different next hops.
pub(super) fn intervals(start: u128, outside: u32, routes: impl Iterator<Item = Route>) -> Vec<Interval> {
    let mut intervals = vec![Interval { start, next_hop: outside }];
    // The stack holds the last address and the next hop of each route that covers the current
    // address. The longest prefix is on top.
    let mut covering: Vec<(u128, u32)> = Vec::new();
    let leave = |covering: &mut Vec<(u128, u32)>, intervals: &mut Vec<Interval>, until: Option<u128>| {
        while let Some(&(last, _)) = covering.last()
            && until.is_none_or(|until| last < until)
        {
            covering.pop();
            let around = covering.last().map_or(outside, |&(_, next_hop)| next_hop);
            if let Some(next) = last.checked_add(1) {
                begin(intervals, next, around);
            }
        }
    };
    for route in routes {
        leave(&mut covering, &mut intervals, Some(route.prefix));
        begin(&mut intervals, route.prefix, route.next_hop);
        covering.push((route.prefix | !u128::MAX.masked(route.length), route.next_hop));
    }
    leave(&mut covering, &mut intervals, None);
    intervals
}

/// Begins an interval with `next_hop` at the address `start`. It replaces an existing interval with
/// the same start.
fn begin(intervals: &mut Vec<Interval>, start: u128, next_hop: u32) {
    if intervals.last().is_some_and(|last| last.start == start) {
        intervals.pop();
    }
    if intervals.last().is_none_or(|last| last.next_hop != next_hop) {
        intervals.push(Interval { start, next_hop });
    }
}

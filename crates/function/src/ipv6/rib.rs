//! The routes, in order: what tables are built from.

use std::collections::BTreeMap;

use super::Route;
use crate::routes::Address;

/// The routes by prefix, then by length: a walk through their tree, each before those inside it.
#[derive(Debug, Default)]
pub(super) struct Rib(BTreeMap<(u128, u8), u32>);

/// From `start` up to the next one, all addresses have one next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) start: u128,
    pub(super) next_hop: u32,
}

impl Rib {
    /// Of equal prefixes the last one counts.
    pub(super) fn new(routes: &[Route]) -> Self {
        Self(routes.iter().map(|route| ((route.prefix, route.length), route.next_hop)).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The route of exactly this prefix gets this next hop, or is gone. Says what it had.
    pub(super) fn set(&mut self, prefix: u128, length: u8, next_hop: Option<u32>) -> Option<u32> {
        match next_hop {
            Some(next_hop) => self.0.insert((prefix, length), next_hop),
            None => self.0.remove(&(prefix, length)),
        }
    }

    /// The route of exactly this prefix.
    pub(super) fn get(&self, prefix: u128, length: u8) -> Option<u32> {
        self.0.get(&(prefix, length)).copied()
    }

    /// All of them, in order.
    pub(super) fn routes(&self) -> impl Iterator<Item = Route> {
        self.0.iter().map(|(&(prefix, length), &next_hop)| Route { prefix, length, next_hop })
    }

    /// Those that begin at an address or behind it, in order.
    pub(super) fn from(&self, start: u128) -> impl Iterator<Item = Route> {
        self.0.range((start, 0)..).map(|(&(prefix, length), &next_hop)| Route { prefix, length, next_hop })
    }

    /// Those inside a prefix that are longer than it, in order.
    pub(super) fn inside(&self, prefix: u128, length: u8) -> impl Iterator<Item = Route> {
        let last = prefix | !u128::MAX.masked(length);
        let range = self.0.range((prefix, length + 1)..=(last, u8::MAX));
        range.map(|(&(prefix, length), &next_hop)| Route { prefix, length, next_hop })
    }

    /// Those of at most `length` bits that cover an address, the shortest first.
    pub(super) fn around(&self, address: u128, length: u8) -> impl Iterator<Item = Route> {
        (0..=length).filter_map(move |length| {
            let prefix = address.masked(length);
            self.get(prefix, length).map(|next_hop| Route { prefix, length, next_hop })
        })
    }
}

/// What the addresses from `start` on have: `outside`, where none of the routes covers them, which all begin there or
/// later and come in order. The first interval begins at `start`, neighbours differ.
pub(super) fn intervals(start: u128, outside: u32, routes: impl Iterator<Item = Route>) -> Vec<Interval> {
    let mut intervals = vec![Interval { start, next_hop: outside }];
    // Those that cover the present address, longest last: their last address and next hop.
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

/// From `start` on it is `next_hop`. A later word about the same address counts.
fn begin(intervals: &mut Vec<Interval>, start: u128, next_hop: u32) {
    if intervals.last().is_some_and(|last| last.start == start) {
        intervals.pop();
    }
    if intervals.last().is_none_or(|last| last.next_hop != next_hop) {
        intervals.push(Interval { start, next_hop });
    }
}

//! Flow table with a fixed maximum number of flows.
//!
//! Its hash has a random key, so an attacker cannot fill one bucket with many flows. A full table
//! removes new flows first, then closed flows, and then established flows. Among equal flows, it
//! removes the one that has been idle longest.

use super::{Flow, FlowState, Key};
use crate::packet::Micros;
use hashbrown::HashTable;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Number of a flow in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowId(u32);

/// Counters of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableCounters {
    /// Flows that began.
    pub created: u64,
    /// Flows that ended after their timeout.
    pub expired: u64,
    /// New flows that were removed from a full table. They had neither a reply nor a complete
    /// handshake.
    pub evicted_new: u64,
    /// Established and closed flows that were removed from a full table.
    pub evicted_established: u64,
}

/// Flow timeouts in seconds. The values are Suricata's defaults.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// Timeouts of TCP flows: before the handshake is complete, while the connection is
    /// established, and after it is closed.
    pub tcp: [u32; 3],
    /// Timeouts of other flows: after packets in one direction only, after packets in both
    /// directions, and after the flow is closed.
    pub other: [u32; 3],
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { tcp: [60, 600, 60], other: [30, 300, 30] }
    }
}

const NONE: u32 = u32::MAX;

struct Slot {
    flow: Option<Flow>,
    /// Neighbours of this slot in a list that is sorted by last packet time.
    before: u32,
    after: u32,
    class: u8,
}

/// List of flows, sorted by the time of their last packets.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

/// Table of flows.
pub struct FlowTable {
    hasher: RandomState,
    index: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// TCP flows and other flows have three lists each, one per flow state.
    lists: [List; 6],
    flows_max: usize,
    timeouts: Timeouts,
    counters: TableCounters,
    next_number: u64,
}

impl FlowTable {
    /// Returns an empty table for at most `flows_max` flows.
    pub fn new(flows_max: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            index: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            lists: [List { first: NONE, last: NONE }; 6],
            flows_max: flows_max.max(1),
            timeouts: Timeouts::default(),
            counters: TableCounters::default(),
            next_number: 1,
        }
    }

    /// Sets the number of the next flow.
    pub fn number_from(&mut self, number: u64) {
        self.next_number = number;
    }

    /// Returns the number of flows.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns whether the table has no flows.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Returns the counters.
    pub fn counters(&self) -> TableCounters {
        self.counters
    }

    /// Returns the flow with this key.
    pub fn find(&self, key: &Key) -> Option<FlowId> {
        let hash = self.hasher.hash_one(key);
        let found = self.index.find(hash, |slot| self.flow_at(*slot).is_some_and(|flow| flow.key == *key));
        found.copied().map(FlowId)
    }

    fn flow_at(&self, slot: u32) -> Option<&Flow> {
        self.slots.get(slot as usize)?.flow.as_ref()
    }

    /// Returns the flow with this number.
    pub fn get(&self, id: FlowId) -> Option<&Flow> {
        self.flow_at(id.0)
    }

    /// Returns a mutable reference to a flow. The caller must call [`Self::touch`] after each
    /// packet of the flow.
    pub fn get_mut(&mut self, id: FlowId) -> Option<&mut Flow> {
        self.slots.get_mut(id.0 as usize)?.flow.as_mut()
    }

    /// Takes a flow out of its slot while the caller processes it. The slot stays reserved for the
    /// flow.
    pub fn take(&mut self, id: FlowId) -> Option<Flow> {
        self.slots.get_mut(id.0 as usize)?.flow.take()
    }

    /// Puts a flow back into its slot.
    pub fn put_back(&mut self, id: FlowId, flow: Flow) {
        self.slots[id.0 as usize].flow = Some(flow);
        self.touch(id);
    }

    /// Adds a flow and returns its number. If the table is full, also returns the removed flow.
    pub fn insert(&mut self, key: Key, now: Micros) -> (FlowId, Option<Flow>) {
        let evicted = if self.index.len() >= self.flows_max { self.evict() } else { None };
        let flow = Flow::new(key, self.next_number, now);
        self.next_number += 1;
        self.counters.created += 1;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot { flow: None, before: NONE, after: NONE, class: 0 });
                self.slots.len() as u32 - 1
            }
        };
        let class = class_of(&flow);
        self.slots[slot as usize].flow = Some(flow);
        self.link(slot, class);
        let hash = self.hasher.hash_one(key);
        let (hasher, slots) = (&self.hasher, &self.slots);
        self.index.insert_unique(hash, slot, |slot| {
            slots[*slot as usize].flow.as_ref().map_or(0, |flow| hasher.hash_one(flow.key))
        });
        (FlowId(slot), evicted)
    }

    /// Moves a flow to the end of the list for its state.
    pub fn touch(&mut self, id: FlowId) {
        let Some(class) = self.get(id).map(class_of) else { return };
        if self.lists[usize::from(class)].last == id.0 && self.slots[id.0 as usize].class == class {
            return;
        }
        self.unlink(id.0);
        self.link(id.0, class);
    }

    /// Removes a flow and returns it.
    pub fn remove(&mut self, id: FlowId) -> Option<Flow> {
        let key = self.get(id)?.key;
        let hash = self.hasher.hash_one(key);
        if let Ok(entry) = self.index.find_entry(hash, |slot| *slot == id.0) {
            entry.remove();
        }
        self.unlink(id.0);
        self.free.push(id.0);
        self.slots[id.0 as usize].flow.take()
    }

    /// Removes and returns one flow that has timed out.
    pub fn expire(&mut self, now: Micros) -> Option<Flow> {
        for class in 0..self.lists.len() {
            let first = self.lists[class].first;
            let Some(flow) = (first != NONE).then(|| self.flow_at(first)).flatten() else { continue };
            let seconds = if class < 3 { self.timeouts.tcp[class] } else { self.timeouts.other[class - 3] };
            if flow.last + u64::from(seconds) * 1_000_000 < now {
                self.counters.expired += 1;
                return self.remove(FlowId(first));
            }
        }
        None
    }

    /// Removes and returns the oldest flow.
    pub fn pop(&mut self) -> Option<Flow> {
        let oldest = self.lists.iter().filter(|list| list.first != NONE).map(|list| list.first);
        let first = oldest.min_by_key(|slot| self.flow_at(*slot).map_or(0, |flow| flow.number))?;
        self.remove(FlowId(first))
    }

    fn evict(&mut self) -> Option<Flow> {
        // New flows are removed first, then closed flows, then established flows.
        for class in [0, 3, 2, 5, 1, 4] {
            let first = self.lists[class].first;
            if first != NONE {
                let counter = match class {
                    0 | 3 => &mut self.counters.evicted_new,
                    _ => &mut self.counters.evicted_established,
                };
                *counter += 1;
                return self.remove(FlowId(first));
            }
        }
        None
    }

    fn link(&mut self, slot: u32, class: u8) {
        let list = &mut self.lists[usize::from(class)];
        let before = std::mem::replace(&mut list.last, slot);
        if before == NONE {
            list.first = slot;
        } else {
            self.slots[before as usize].after = slot;
        }
        let entry = &mut self.slots[slot as usize];
        (entry.before, entry.after, entry.class) = (before, NONE, class);
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { before, after, class, .. } = self.slots[slot as usize];
        let list = usize::from(class);
        if before == NONE {
            self.lists[list].first = after;
        } else {
            self.slots[before as usize].after = after;
        }
        if after == NONE {
            self.lists[list].last = before;
        } else {
            self.slots[after as usize].before = before;
        }
    }
}

fn class_of(flow: &Flow) -> u8 {
    let state = match flow.state {
        FlowState::New => 0,
        FlowState::Established => 1,
        FlowState::Closed => 2,
    };
    if flow.key.protocol == 6 { state } else { 3 + state }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn key(port: u16) -> Key {
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        Key {
            client: address(1),
            server: address(2),
            client_port: port,
            server_port: 80,
            protocol: 6,
            vlans: [0; 3],
            id: 0,
            depth: 0,
        }
    }

    #[test]
    fn finds_both_directions() {
        let mut table = FlowTable::new(10);
        let (id, evicted) = table.insert(key(1), 0);
        assert!(evicted.is_none());
        let mut answer = key(1);
        answer.swap();
        assert_eq!(table.find(&answer), Some(id));
        assert_eq!(table.get(id).unwrap().key.direction(&answer), Direction::ToClient);
        assert_eq!(table.find(&key(2)), None);
    }

    use crate::app::Direction;

    #[test]
    fn a_full_table_evicts_new_flows_first() {
        let mut table = FlowTable::new(3);
        let (first, _) = table.insert(key(1), 0);
        table.get_mut(first).unwrap().state = FlowState::Established;
        table.touch(first);
        table.insert(key(2), 1);
        table.insert(key(3), 2);
        assert_eq!(table.insert(key(4), 3).1.unwrap().key.client_port, 2);
        assert_eq!(table.insert(key(5), 4).1.unwrap().key.client_port, 3);
        assert_eq!((table.len(), table.counters().evicted_new), (3, 2));
        assert!(table.find(&key(1)).is_some());
    }

    #[test]
    fn flows_expire_by_class() {
        let mut table = FlowTable::new(10);
        table.insert(key(1), 0);
        assert!(table.expire(60_000_000).is_none());
        assert_eq!(table.expire(60_000_001).unwrap().key.client_port, 1);
        assert!(table.is_empty() && table.pop().is_none());
    }
}

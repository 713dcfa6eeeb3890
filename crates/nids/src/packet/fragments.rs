//! Reassembles fragmented IPv4 and IPv6 datagrams, within fixed bounds.
//!
//! Later fragments never change bytes of earlier fragments. Fragments that contradict earlier bytes
//! are counted.

use super::{Micros, Packet};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// One fragment.
pub struct Fragment<'a> {
    /// Identification of the datagram.
    pub id: u32,
    /// Offset of the fragment in the datagram's payload.
    pub offset: usize,
    /// Whether more fragments follow (the flag MF).
    pub more: bool,
    /// Protocol of the payload.
    pub next: u8,
    /// Bytes of the fragment.
    pub bytes: &'a [u8],
}

/// Counters of the reassembly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FragmentCounters {
    /// Number of received fragments.
    pub fragments: u64,
    /// Number of datagrams that were reassembled completely.
    pub completed: u64,
    /// Number of datagrams discarded because too many waited or their memory was used up.
    pub evicted: u64,
    /// Number of datagrams that were discarded after the timeout.
    pub expired: u64,
    /// Number of fragments that extend beyond 65,535 bytes.
    pub too_large: u64,
    /// Number of fragments that contradict the bytes of earlier fragments.
    pub overlaps: u64,
}

/// Maximum time between the fragments of a datagram.
const TIMEOUT_MICROS: Micros = 60_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    id: u32,
    protocol: u8,
    vlan: u16,
}

struct Datagram {
    bytes: Vec<u8>,
    /// Byte ranges that have arrived, sorted and disjoint.
    ranges: Vec<(usize, usize)>,
    end: Option<usize>,
    next: u8,
    first: Micros,
}

/// Datagrams that wait for fragments.
pub struct Fragments {
    datagrams: HashMap<Key, Datagram>,
    order: VecDeque<(Key, Micros)>,
    datagrams_max: usize,
    bytes_max: usize,
    bytes: usize,
    counters: FragmentCounters,
}

impl Fragments {
    /// Returns an empty store with limits on the number of datagrams and their memory.
    pub fn new(datagrams_max: usize, bytes_max: usize) -> Self {
        Self {
            datagrams: HashMap::new(),
            order: VecDeque::new(),
            datagrams_max,
            bytes_max,
            bytes: 0,
            counters: FragmentCounters::default(),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> FragmentCounters {
        self.counters
    }

    /// Adds a fragment. Returns the protocol and payload of the datagram if it is complete, and
    /// whether the fragment contradicts earlier bytes.
    pub fn insert(&mut self, packet: &Packet<'_>, fragment: &Fragment<'_>) -> (Option<(u8, Vec<u8>)>, bool) {
        self.counters.fragments += 1;
        self.expire(packet.time);
        let end = fragment.offset + fragment.bytes.len();
        if end > 65_535 {
            self.counters.too_large += 1;
            return (None, false);
        }
        let protocol = if packet.version == 4 { packet.protocol } else { 0 };
        let key = Key {
            source: packet.source,
            destination: packet.destination,
            id: fragment.id,
            protocol,
            vlan: packet.vlans[0],
        };
        if !self.datagrams.contains_key(&key) {
            self.make_room();
            self.order.push_back((key, packet.time));
        }
        let datagram = self.datagrams.entry(key).or_insert_with(|| Datagram {
            bytes: Vec::new(),
            ranges: Vec::new(),
            end: None,
            next: fragment.next,
            first: packet.time,
        });
        let before = datagram.bytes.len();
        let overlap = datagram.add(fragment);
        self.bytes += datagram.bytes.len() - before;
        self.counters.overlaps += u64::from(overlap);
        if !datagram.is_complete() {
            return (None, overlap);
        }
        let Some(datagram) = self.datagrams.remove(&key) else { return (None, overlap) };
        self.bytes -= datagram.bytes.len();
        self.counters.completed += 1;
        (Some((datagram.next, datagram.bytes)), overlap)
    }

    /// Removes the oldest datagrams until a new datagram fits.
    fn make_room(&mut self) {
        while self.datagrams.len() >= self.datagrams_max || self.bytes >= self.bytes_max {
            let Some((key, _)) = self.order.pop_front() else { return };
            if let Some(datagram) = self.datagrams.remove(&key) {
                self.bytes -= datagram.bytes.len();
                self.counters.evicted += 1;
            }
        }
    }

    fn expire(&mut self, now: Micros) {
        while let Some((key, first)) = self.order.front().copied() {
            let waiting = self.datagrams.get(&key).is_some_and(|datagram| datagram.first == first);
            if waiting && first + TIMEOUT_MICROS > now {
                return;
            }
            self.order.pop_front();
            if waiting && let Some(datagram) = self.datagrams.remove(&key) {
                self.bytes -= datagram.bytes.len();
                self.counters.expired += 1;
            }
        }
    }
}

impl Datagram {
    /// Adds the bytes of a fragment that are new. Returns whether its other bytes differ from the
    /// stored bytes.
    fn add(&mut self, fragment: &Fragment<'_>) -> bool {
        let (start, end) = (fragment.offset, fragment.offset + fragment.bytes.len());
        if !fragment.more && self.end.is_none() {
            self.end = Some(end);
        }
        if start == 0 {
            self.next = fragment.next;
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let mut differs = false;
        let mut at = start;
        for &(from, to) in &self.ranges {
            if to <= at || from >= end {
                continue;
            }
            if from > at {
                self.bytes[at..from].copy_from_slice(&fragment.bytes[at - start..from - start]);
            }
            let (low, high) = (from.max(at), to.min(end));
            differs |= self.bytes[low..high] != fragment.bytes[low - start..high - start];
            at = high;
        }
        if at < end {
            self.bytes[at..end].copy_from_slice(&fragment.bytes[at - start..]);
        }
        self.ranges.push((start, end));
        self.ranges.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::with_capacity(self.ranges.len());
        for (from, to) in self.ranges.drain(..) {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        self.ranges = merged;
        differs
    }

    fn is_complete(&mut self) -> bool {
        let Some(end) = self.end else { return false };
        let complete = self.ranges.first().is_some_and(|range| range.0 == 0 && range.1 >= end);
        if complete {
            self.bytes.truncate(end);
        }
        complete
    }
}

//! Packets that a worker holds until the Ethernet addresses of their stations are resolved. The
//! worker copies these packets and frees their buffers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use godwit_abi::Descriptor;

use crate::neighbours::Station;

/// Maximum number of packets that a worker holds in total.
const HELD_MAX: usize = 1024;
/// Age in nanoseconds after which a held packet precedes all packets in flight. Below this age,
/// 16-bit sequence numbers determine the packet order. Fewer than 2^15 packets must therefore
/// arrive in this time.
const IN_FLIGHT_NS: u64 = 2_000_000;

/// Held packets, grouped by station.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_station: HashMap<Station, Vec<Held>>,
    count: usize,
}

/// Held packet.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) frame: Vec<u8>,
    /// Descriptor of the packet when it arrived.
    pub(super) packet: Descriptor,
    since_ns: u64,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Stores a copy of the packet, unless `limit` copies are already held for the station. Returns
    /// whether the copy was stored.
    pub(super) fn hold(
        &mut self,
        station: Station,
        packet: &Descriptor,
        frame: &[u8],
        limit: usize,
        now_ns: u64,
    ) -> bool {
        if self.count >= HELD_MAX || limit == 0 {
            return false;
        }
        let queue = match self.by_station.entry(station) {
            Entry::Occupied(queue) if queue.get().len() >= limit => return false,
            queue => queue.or_default(),
        };
        // Held packets must leave in the order of arrival, but reach this function in any order.
        // Their 16-bit sequence numbers determine the order. The comparison allows for the
        // wrap-around of these numbers.
        let is_before = |held: &Held| {
            let is_long_ago = now_ns.saturating_sub(held.since_ns) > IN_FLIGHT_NS;
            is_long_ago || packet.order.wrapping_sub(held.packet.order) as i16 >= 0
        };
        let index = queue.iter().rposition(is_before).map_or(0, |before| before + 1);
        queue.insert(index, Held { frame: frame.to_vec(), packet: *packet, since_ns: now_ns });
        self.count += 1;
        true
    }

    /// Returns whether packets of a station have been held since before `since_ns`.
    pub(super) fn is_older(&self, station: Station, since_ns: u64) -> bool {
        self.by_station.get(&station).is_some_and(|held| is_older(held, since_ns))
    }

    /// Returns the stations for which packets have been held since before `since_ns`.
    pub(super) fn older(&self, since_ns: u64) -> impl Iterator<Item = Station> {
        self.by_station.iter().filter(move |(_, held)| is_older(held, since_ns)).map(|(station, _)| *station)
    }

    /// Returns the stations for which packets are held.
    pub(super) fn stations(&self) -> impl Iterator<Item = Station> {
        self.by_station.keys().copied()
    }

    /// Removes and returns the packets held for `station`.
    pub(super) fn take(&mut self, station: Station) -> Vec<Held> {
        let held = self.by_station.remove(&station).unwrap_or_default();
        self.count -= held.len();
        held
    }

    /// Removes all held packets and returns their number.
    pub(super) fn clear(&mut self) -> usize {
        self.by_station.clear();
        std::mem::take(&mut self.count)
    }
}

fn is_older(held: &[Held], since_ns: u64) -> bool {
    held.first().is_some_and(|held| held.since_ns < since_ns)
}

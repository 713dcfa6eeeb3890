//! Packets that wait, outside of the arena, until their station has said where it is, or has not. Of one worker.

use std::collections::HashMap;

use godwit_abi::Descriptor;

use crate::neighbours::Station;

/// Packets of a worker that wait for whatever station.
const HELD_MAX: usize = 1024;
/// Longer ago than any packet that is still in flight, and less than what 2^15 packets take to arrive.
const IN_FLIGHT_NS: u64 = 2_000_000;

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_station: HashMap<Station, Vec<Held>>,
    count: usize,
}

/// A packet that waits.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) frame: Vec<u8>,
    /// As it arrived.
    pub(super) packet: Descriptor,
    since_ns: u64,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether it may wait: at most `each` do for one station.
    pub(super) fn hold(
        &mut self,
        station: Station,
        packet: &Descriptor,
        frame: &[u8],
        each: usize,
        now_ns: u64,
    ) -> bool {
        let held = self.by_station.get(&station).map_or(0, Vec::len);
        if self.count >= HELD_MAX || held >= each {
            return false;
        }
        let all = self.by_station.entry(station).or_default();
        // Bins come back in any order; packets that wait leave as they arrived. Places are modulo 2^16.
        let is_before = |held: &Held| {
            let is_long_ago = now_ns.saturating_sub(held.since_ns) > IN_FLIGHT_NS;
            is_long_ago || packet.order.wrapping_sub(held.packet.order) as i16 >= 0
        };
        let at = all.iter().rposition(is_before).map_or(0, |before| before + 1);
        all.insert(at, Held { frame: frame.to_vec(), packet: *packet, since_ns: now_ns });
        self.count += 1;
        true
    }

    /// Stations that somebody waits for.
    pub(super) fn stations(&self) -> Vec<Station> {
        let mut stations: Vec<_> = self.by_station.keys().copied().collect();
        stations.sort_unstable();
        stations
    }

    /// Those that waited for a station.
    pub(super) fn take(&mut self, station: Station) -> Vec<Held> {
        let held = self.by_station.remove(&station).unwrap_or_default();
        self.count -= held.len();
        held
    }

    /// Nobody waits any more; so many did.
    pub(super) fn clear(&mut self) -> usize {
        self.by_station.clear();
        std::mem::take(&mut self.count)
    }
}

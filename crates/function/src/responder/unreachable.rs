//! Stations whose Ethernet addresses the operating system resolves, in one list per worker. A
//! station that does not answer for a while counts as unreachable. The work per packet is constant.

use std::collections::{HashMap, VecDeque};

use crate::neighbours::{Bucket, NEW_PER_SENDER, Resolution, Station};

const SECOND_NS: u64 = 1_000_000_000;
/// Time after which a station without an answer counts as unreachable, in nanoseconds. Linux sends
/// three requests in this time, one second apart.
pub(super) const SILENCE_NS: u64 = 3 * SECOND_NS;
/// Time after which a station is forgotten if no packets are sent to it, in nanoseconds. The next
/// packet then starts its address resolution again.
const FORGET_NS: u64 = 10 * SECOND_NS;
/// Maximum number of stations in [`Unreachable`]. The rate limit [`NEW_PER_SENDER`] prevents
/// packets from one port from displacing a station within [`SILENCE_NS`].
const STATIONS_MAX: usize = 1024;

/// Stations to which packets could not be forwarded.
#[derive(Debug, Default)]
pub(super) struct Unreachable {
    /// Times of the first and the last packet for each station.
    stations: HashMap<Station, (u64, u64)>,
    /// Stations in the order in which they were added.
    order: VecDeque<Station>,
    /// Rate limit for new stations, one for each ingress port.
    senders: Vec<Option<Bucket>>,
}

impl Unreachable {
    /// Records that a packet for `station` arrived on port `from`. Returns whether the station is
    /// pending, counts as unreachable (silent), or is not remembered because of the rate limit.
    pub(super) fn look_up(&mut self, station: Station, from: u16, now_ns: u64) -> Resolution {
        if let Some((first_ns, last_ns)) = self.stations.get_mut(&station) {
            if now_ns.saturating_sub(*last_ns) >= FORGET_NS {
                *first_ns = now_ns;
            }
            *last_ns = now_ns;
            let is_silent = now_ns.saturating_sub(*first_ns) >= SILENCE_NS;
            return if is_silent { Resolution::Silent } else { Resolution::Pending };
        }
        let from = usize::from(from);
        if self.senders.len() <= from {
            self.senders.resize(from + 1, None);
        }
        let bucket = self.senders[from].get_or_insert_with(|| Bucket::new(NEW_PER_SENDER));
        if !bucket.take(NEW_PER_SENDER, now_ns) {
            return Resolution::Policed;
        }
        if self.order.len() >= STATIONS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.stations.remove(&oldest);
        }
        self.stations.insert(station, (now_ns, now_ns));
        self.order.push_back(station);
        Resolution::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station(number: u32) -> Station {
        (1, std::net::Ipv4Addr::from_bits(0x0a01_0000 + number).into())
    }

    #[test]
    fn a_silent_station_is_unreachable_and_a_scan_does_not_hide_it() {
        let mut unreachable = Unreachable::default();
        let start_ns = 100 * SECOND_NS;
        let mut random = 1u32;
        let mut is_unreachable = Vec::new();
        for packet in 0..400_000u64 {
            let now_ns = start_ns + packet * 10_000;
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            unreachable.look_up(station(1 + (random >> 16)), 0, now_ns);
            if packet % 50_000 == 49_999 {
                is_unreachable.push(unreachable.look_up(station(0), 2, now_ns) == Resolution::Silent);
            }
        }
        assert_eq!(is_unreachable, [false, false, false, false, false, false, true, true]);
        assert!(unreachable.stations.len() <= STATIONS_MAX && unreachable.order.len() == unreachable.stations.len());
        // The station is forgotten after a pause without packets.
        assert_eq!(unreachable.look_up(station(0), 2, start_ns + 20 * SECOND_NS), Resolution::Pending);
    }
}

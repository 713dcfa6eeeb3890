//! Stations for which packets wait while the operating system resolves their Ethernet addresses.
//!
//! ```text
//! responder, on a worker                  route function, on the housekeeping thread
//! awaits a station, holds its packets --> takes the awaited stations
//! releases the packets <----------------- reports the address; routes use it a little later
//! ```
//!
//! Routes use a reported address after [`SETTLE_NS`](super::SETTLE_NS), so that the held packets
//! leave first. The work for each packet is constant.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use godwit_wire::MacAddress;

use super::{SECOND_NS, Station, Target};

/// Maximum number of stations in one generation.
const STATIONS_MAX: usize = 4096;
/// Age in nanoseconds at which a new generation of stations begins. It exceeds the time for which
/// packets are held.
const GENERATION_NS: u64 = 5 * SECOND_NS;

/// Table of awaited stations. Each responder function has one.
#[derive(Debug, Default)]
pub(crate) struct KernelStations {
    table: Mutex<Table>,
    /// Version of the table, which increases with each reported address.
    version: AtomicU64,
    /// Whether a function tracks the neighbours of the operating system.
    used: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    /// Next hops to stations, by function number and next hop index.
    targets: HashMap<(usize, u32), Target>,
    /// Stations to which packets were sent recently, each with its address if it is known. Stations
    /// without packets are forgotten after a while.
    awaited: HashMap<Station, Option<MacAddress>>,
    /// Generation before `awaited`.
    before: HashMap<Station, Option<MacAddress>>,
    /// Time at which `awaited` began, in nanoseconds.
    since_ns: u64,
    /// Stations newly added to `awaited` that a function has not taken yet, by function number.
    new: HashMap<usize, Vec<Station>>,
}

impl KernelStations {
    /// Returns whether a function tracks the operating system's neighbours.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// Returns the table version, which increases with each reported address.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Registers a next hop of a function, or removes it with `None`.
    pub(crate) fn register(&self, function: usize, next_hop: u32, target: Option<Target>) {
        let mut table = self.lock();
        match target {
            Some(target) => table.targets.insert((function, next_hop), target),
            None => table.targets.remove(&(function, next_hop)),
        };
        self.used.store(true, Ordering::Release);
    }

    /// Returns the station to which a packet for `destination` is sent. Returns `None` if the next
    /// hop is not registered.
    pub(crate) fn station(&self, function: usize, next_hop: u32, destination: IpAddr) -> Option<(Station, Target)> {
        let target = *self.lock().targets.get(&(function, next_hop))?;
        Some(((target.port, target.gateway.unwrap_or(destination)), target))
    }

    /// Enters a station that a packet of `function` waits for. Returns its address, or `Some(None)`
    /// if the operating system has not reported it. Returns `None` if the table is full.
    pub(crate) fn enter(&self, function: usize, station: Station, now_ns: u64) -> Option<Option<MacAddress>> {
        self.lock().enter(function, station, now_ns)
    }

    /// Returns the address of an awaited station, or `Some(None)` if it is not known yet. Returns
    /// `None` for a station that is not awaited.
    pub(crate) fn address(&self, station: Station) -> Option<Option<MacAddress>> {
        self.lock().find(station).copied()
    }

    /// Returns the stations awaited since the last call for this function.
    pub(crate) fn take_new(&self, function: usize) -> Vec<Station> {
        self.lock().new.remove(&function).unwrap_or_default()
    }

    /// Reports the address of a station. `None` means that the operating system no longer knows it.
    /// Returns whether the station is awaited.
    pub(crate) fn learn(&self, station: Station, address: Option<MacAddress>) -> bool {
        let mut table = self.lock();
        let Some(known) = table.find_mut(station) else { return false };
        if std::mem::replace(known, address) != address {
            drop(table);
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn find(&self, station: Station) -> Option<&Option<MacAddress>> {
        self.awaited.get(&station).or_else(|| self.before.get(&station))
    }

    fn find_mut(&mut self, station: Station) -> Option<&mut Option<MacAddress>> {
        match self.awaited.get_mut(&station) {
            None => self.before.get_mut(&station),
            found => found,
        }
    }

    fn enter(&mut self, function: usize, station: Station, now_ns: u64) -> Option<Option<MacAddress>> {
        if now_ns.saturating_sub(self.since_ns) >= GENERATION_NS {
            self.before = std::mem::take(&mut self.awaited);
            self.since_ns = now_ns;
        }
        if let Some(address) = self.awaited.get(&station) {
            return Some(*address);
        }
        if self.awaited.len() >= STATIONS_MAX {
            return None;
        }
        let before = self.before.remove(&station);
        let address = before.flatten();
        self.awaited.insert(station, address);
        // If no function takes the list, it holds at most the stations of two generations.
        let new = self.new.entry(function).or_default();
        if before.is_none() && new.len() < 2 * STATIONS_MAX {
            new.push(station);
        }
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const START_NS: u64 = 100 * SECOND_NS;

    fn address(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a02_0000 + number).into()
    }

    fn stations() -> KernelStations {
        let stations = KernelStations::default();
        assert!(!stations.is_used());
        stations.register(3, 0, Some(Target { port: 1, gateway: None, mtu: 1500 }));
        stations.register(3, 1, Some(Target { port: 1, gateway: Some(address(9)), mtu: 1400 }));
        assert!(stations.is_used());
        stations
    }

    #[test]
    fn reports_reach_awaited_stations_only() {
        let stations = stations();
        let enter = |station| stations.enter(3, station, START_NS);
        assert_eq!(stations.station(3, 2, address(7)), None);
        let (station, target) = stations.station(3, 0, address(7)).unwrap();
        assert_eq!((station, target.mtu), ((1, address(7)), 1500));
        assert!(!stations.learn(station, Some(ONE)) && stations.address(station).is_none(), "nobody waits for it");
        let (gateway, target) = stations.station(3, 1, address(7)).unwrap();
        assert_eq!((gateway, target.mtu), ((1, address(9)), 1400));
        assert_eq!([station, gateway, station].map(enter), [Some(None); 3]);
        assert_eq!(stations.take_new(3), [station, gateway]);
        assert_eq!((stations.take_new(3), stations.take_new(4)), (vec![], vec![]));
        let version = stations.version();
        assert!(stations.learn(station, Some(ONE)) && stations.version() > version);
        assert_eq!((stations.address(station), stations.address(gateway)), (Some(Some(ONE)), Some(None)));
        assert_eq!(enter(station), Some(Some(ONE)));
        // A repetition is no news.
        let version = stations.version();
        assert!(stations.learn(station, Some(ONE)) && stations.version() == version);
        assert!(stations.learn(station, None) && stations.version() > version);
        stations.register(3, 0, None);
        assert_eq!(stations.station(3, 0, address(7)), None);
    }

    #[test]
    fn a_scan_is_bounded_and_forgotten() {
        let stations = stations();
        let enter = |number, now_ns| stations.enter(3, (1, address(number)), now_ns).is_some();
        for number in 0..100_000 {
            assert_eq!(enter(number, START_NS), number < STATIONS_MAX as u32, "{number}");
        }
        // A station with packets in each generation keeps its state. The others are forgotten.
        stations.learn((1, address(0)), Some(ONE));
        for generation in 1..4 {
            assert!(enter(0, START_NS + generation * GENERATION_NS));
            assert_eq!(stations.address((1, address(0))), Some(Some(ONE)), "{generation}");
        }
        assert_eq!(stations.address((1, address(1))), None);
        assert_eq!(stations.take_new(3).len(), STATIONS_MAX);
    }
}

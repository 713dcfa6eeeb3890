//! Addresses of the router itself. The router accepts only frames to its MAC addresses. A packet
//! with one of its IP addresses as source is forged, or has looped back.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use godwit_wire::MacAddress;

use super::{NextHop, Prefix, Routing};

/// Addresses of the router itself, as one function knows them.
///
/// Workers copy the IP addresses, and compare the version to notice a change. They take no lock
/// while the addresses stay the same.
#[derive(Debug, Default)]
pub struct OwnAddresses {
    /// MAC addresses of the router, each with its port. They never change.
    stations: Vec<(u16, MacAddress)>,
    addresses: Mutex<BTreeSet<IpAddr>>,
    version: AtomicU64,
}

impl OwnAddresses {
    /// Creates the set with its initial IP addresses.
    pub(crate) fn new(
        stations: impl IntoIterator<Item = (u16, MacAddress)>,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Self {
        let (stations, addresses) = (stations.into_iter().collect(), addresses.into_iter().collect());
        Self { stations, addresses: Mutex::new(addresses), version: AtomicU64::new(0) }
    }

    /// Collects the router's addresses from its routes and next hops. The MAC addresses are the
    /// source addresses of the next hops. The IP addresses are those of the host routes to the
    /// router itself.
    pub(crate) fn of_routes(next_hops: &[NextHop], host_routes: impl Iterator<Item = (IpAddr, u32)>) -> Self {
        let forwarding = next_hops.iter().filter_map(NextHop::adjacency);
        let stations: BTreeSet<_> = forwarding.map(|adjacency| (adjacency.port, adjacency.source.0)).collect();
        let is_local = |&(_, next_hop): &(IpAddr, u32)| next_hops[next_hop as usize] == NextHop::Local;
        let addresses = host_routes.filter(is_local).map(|(address, _)| address);
        Self::new(stations.into_iter().map(|(port, station)| (port, MacAddress(station))), addresses)
    }

    /// Returns the MAC addresses of the router on a port.
    pub fn stations(&self, port: u16) -> impl Iterator<Item = MacAddress> {
        self.stations.iter().filter(move |(of, _)| *of == port).map(|(_, station)| *station)
    }

    /// Returns a number that increases with every change.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the current addresses.
    pub fn all(&self) -> Vec<IpAddr> {
        self.lock().iter().copied().collect()
    }

    /// Adds or removes an address.
    pub(crate) fn set(&self, address: IpAddr, is_own: bool) {
        let mut addresses = self.lock();
        if if is_own { addresses.insert(address) } else { addresses.remove(&address) } {
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Updates the IP addresses of the router after an operator has changed routes. The router has
    /// the address of each host route with the next hop [`NextHop::Local`].
    pub(crate) fn changed_by_operator(&self, request: &serde_json::Value, routing: &dyn Routing) {
        for prefix in super::commands::prefixes(request).filter(Prefix::is_host) {
            let next_hop = routing.route(prefix).and_then(|index| routing.next_hop(index));
            self.set(prefix.address(), next_hop == Some(NextHop::Local));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<IpAddr>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_increase_the_version() {
        let [first, second]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let own = OwnAddresses::new([], [first]);
        own.set(first, true);
        own.set(second, false);
        assert_eq!((own.version(), own.all()), (0, vec![first]));
        own.set(second, true);
        own.set(first, false);
        assert_eq!((own.version(), own.all()), (2, vec![second]));
    }
}

//! Implementation of [`Routing`] for `ipv6`, through which routes change at run time.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{MutexGuard, PoisonError};

use super::changes::{Change, Changer};
use super::{Ipv6, Reference, reference};
use crate::routing::{Family, NextHop, Prefix, RouteChange, Routing, Unchanged};
use crate::{Error, Running};

impl Ipv6 {
    pub(super) fn changer(&self) -> MutexGuard<'_, Changer> {
        self.changer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn with_reference<T>(&self, act: impl FnOnce(&Reference) -> T) -> T {
        if let Some(reference) = &*self.reference.read().unwrap_or_else(PoisonError::into_inner) {
            return act(reference);
        }
        let changer = self.changer();
        let mut reference = self.reference.write().unwrap_or_else(PoisonError::into_inner);
        let reference = reference.get_or_insert_with(|| {
            let mut prefixes = reference::Prefixes::new();
            let routes = changer.rib().routes();
            routes.for_each(|route| prefixes.set(route.prefix, route.length, Some(route.next_hop)));
            let mut next_hops = Vec::new();
            changer.next_hops.all().for_each(|(index, next_hop)| put(&mut next_hops, index, next_hop));
            Reference { prefixes, next_hops }
        });
        act(reference)
    }

    fn change_reference(&self, change: impl FnOnce(&mut Reference)) {
        if let Some(reference) = &mut *self.reference.write().unwrap_or_else(PoisonError::into_inner) {
            change(reference);
        }
    }
}

/// Stores a next hop at `index`. Unused blackhole entries fill any gap before it.
fn put(next_hops: &mut Vec<NextHop>, index: u32, next_hop: NextHop) {
    let index = index as usize;
    if next_hops.len() <= index {
        next_hops.resize(index + 1, NextHop::Blackhole);
    }
    next_hops[index] = next_hop;
}

fn numbers(prefix: Prefix) -> Option<(u128, u8)> {
    match prefix.address() {
        IpAddr::V6(address) => Some((address.to_bits(), prefix.length())),
        IpAddr::V4(_) => None,
    }
}

fn prefix_of(address: u128, length: u8) -> Option<Prefix> {
    Prefix::of(Ipv6Addr::from_bits(address).into(), length)
}

impl Routing for Ipv6 {
    fn family(&self) -> Family {
        Family::V6
    }

    fn add_next_hops(&self, next_hops: &[NextHop], running: &dyn Running) -> Result<Vec<u32>, Error> {
        let mut changer = self.changer();
        changer.send_again(running)?;
        let indexes = changer.next_hops.add(next_hops, running)?;
        self.change_reference(|reference| {
            indexes
                .iter()
                .zip(next_hops)
                .for_each(|(index, next_hop)| put(&mut reference.next_hops, *index, *next_hop));
        });
        Ok(indexes)
    }

    fn set_next_hops(&self, next_hops: &[(u32, NextHop)], running: &dyn Running) -> Result<(), Error> {
        let mut changer = self.changer();
        changer.next_hops.set(next_hops, running)?;
        self.change_reference(|reference| {
            next_hops.iter().for_each(|(index, next_hop)| put(&mut reference.next_hops, *index, *next_hop));
        });
        Ok(())
    }

    fn remove_next_hops(&self, indexes: &[u32], _running: &dyn Running) -> Result<(), Error> {
        self.changer().remove_next_hops(indexes)
    }

    fn change(&self, changes: &[RouteChange], running: &dyn Running) -> Result<(), Unchanged> {
        let mut numbered: Vec<Change> = Vec::with_capacity(changes.len());
        for change in changes {
            let Some((prefix, length)) = numbers(change.prefix) else {
                let message =
                    format!("{} belongs to the other address family than this function's routes", change.prefix);
                return Err(Unchanged { made: 0, error: Error::Command { message } });
            };
            numbered.push((prefix, length, change.next_hop));
        }
        let mut applied = |changes: &[Change]| {
            self.change_reference(|reference| {
                for &(prefix, length, next_hop) in changes {
                    reference.prefixes.set(prefix, length, next_hop);
                }
            });
        };
        self.changer().change(&numbered, running, &mut applied)
    }

    fn find(&self, address: IpAddr) -> Option<(Prefix, u32)> {
        let (address, _) = numbers(Prefix::host(address))?;
        let route = self.changer().rib().around(address, 128).last()?;
        Some((prefix_of(route.prefix, route.length)?, route.next_hop))
    }

    fn route(&self, prefix: Prefix) -> Option<u32> {
        let (prefix, length) = numbers(prefix)?;
        self.changer().rib().get(prefix, length)
    }

    fn routes(&self) -> Vec<(Prefix, u32)> {
        let changer = self.changer();
        let routes = changer.rib().routes();
        routes.filter_map(|route| Some((prefix_of(route.prefix, route.length)?, route.next_hop))).collect()
    }

    fn next_hop(&self, index: u32) -> Option<NextHop> {
        self.changer().next_hops.at(index)
    }

    fn next_hops(&self) -> Vec<(u32, NextHop)> {
        self.changer().next_hops.all().collect()
    }

    fn next_hop_names(&self) -> &[String] {
        &self.names
    }

    fn port_names(&self) -> &[String] {
        &self.ports
    }
}

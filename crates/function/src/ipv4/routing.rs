//! Implementation of [`Routing`] for `ipv4`, through which routes change at run time.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{MutexGuard, PoisonError};

use super::changes::Changer;
use super::{Ipv4, Reference, Route, Table, reference};
use crate::routing::{Family, NextHop, Prefix, RouteChange, Routing, Unchanged};
use crate::tables::lpm4::Change;
use crate::{Error, Running};

struct Changing<'a>(MutexGuard<'a, Table>);

impl Changing<'_> {
    fn changer(&mut self) -> &mut Changer {
        match &mut *self.0 {
            Table::Changing(changer) => changer,
            Table::Start { .. } => unreachable!("`Ipv4::changing` converts the table"),
        }
    }
}

impl Ipv4 {
    fn changing(&self) -> Changing<'_> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Table::Start { routes, next_hops, groups } = &*table {
            let changer = Changer::new(self.image.clone(), self.layout, routes, next_hops, groups);
            *table = Table::Changing(Box::new(changer));
        }
        Changing(table)
    }

    pub(super) fn with_reference<T>(&self, act: impl FnOnce(&Reference) -> T) -> T {
        if let Some(reference) = &*self.reference.read().unwrap_or_else(PoisonError::into_inner) {
            return act(reference);
        }
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reference = self.reference.write().unwrap_or_else(PoisonError::into_inner);
        let reference = reference.get_or_insert_with(|| {
            let mut prefixes = reference::Prefixes::new();
            let mut enter = |route: Route| prefixes.set(route.prefix, route.length, Some(route.next_hop));
            let next_hops = match &*table {
                Table::Start { routes, next_hops, .. } => {
                    routes.iter().copied().for_each(enter);
                    next_hops.clone()
                }
                Table::Changing(changer) => {
                    changer.rib().routes().for_each(&mut enter);
                    let mut next_hops = Vec::new();
                    for (index, next_hop) in changer.next_hops() {
                        put(&mut next_hops, index, next_hop);
                    }
                    next_hops
                }
            };
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

fn numbers(prefix: Prefix) -> Option<(u32, u8)> {
    match prefix.address() {
        IpAddr::V4(address) => Some((address.to_bits(), prefix.length())),
        IpAddr::V6(_) => None,
    }
}

fn prefix_of(address: u32, length: u8) -> Option<Prefix> {
    Prefix::of(Ipv4Addr::from_bits(address).into(), length)
}

impl Routing for Ipv4 {
    fn family(&self) -> Family {
        Family::V4
    }

    fn add_next_hops(&self, next_hops: &[NextHop], running: &dyn Running) -> Result<Vec<u32>, Error> {
        let indexes = self.changing().changer().add_next_hops(next_hops, running)?;
        self.change_reference(|reference| {
            indexes
                .iter()
                .zip(next_hops)
                .for_each(|(index, next_hop)| put(&mut reference.next_hops, *index, *next_hop));
        });
        Ok(indexes)
    }

    fn set_next_hops(&self, next_hops: &[(u32, NextHop)], running: &dyn Running) -> Result<(), Error> {
        self.changing().changer().set_next_hops(next_hops, running)?;
        self.change_reference(|reference| {
            next_hops.iter().for_each(|(index, next_hop)| put(&mut reference.next_hops, *index, *next_hop));
        });
        Ok(())
    }

    fn remove_next_hops(&self, indexes: &[u32], _running: &dyn Running) -> Result<(), Error> {
        self.changing().changer().remove_next_hops(indexes)
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
        self.changing().changer().change(&numbered, running, &mut applied)
    }

    fn find(&self, address: IpAddr) -> Option<(Prefix, u32)> {
        let (address, _) = numbers(Prefix::host(address))?;
        let (length, next_hop) = self.changing().changer().rib().find(address)?;
        Some((prefix_of(address, length)?, next_hop))
    }

    fn route(&self, prefix: Prefix) -> Option<u32> {
        let (prefix, length) = numbers(prefix)?;
        self.changing().changer().rib().at(prefix, length)
    }

    fn routes(&self) -> Vec<(Prefix, u32)> {
        let mut changing = self.changing();
        let mut routes: Vec<Route> = changing.changer().rib().routes().collect();
        drop(changing);
        routes.sort_unstable_by_key(|route| (route.prefix, route.length));
        routes.iter().filter_map(|route| Some((prefix_of(route.prefix, route.length)?, route.next_hop))).collect()
    }

    fn next_hop(&self, index: u32) -> Option<NextHop> {
        self.changing().changer().next_hop(index)
    }

    fn next_hops(&self) -> Vec<(u32, NextHop)> {
        self.changing().changer().next_hops().collect()
    }

    fn next_hop_names(&self) -> &[String] {
        &self.names
    }

    fn port_names(&self) -> &[String] {
        &self.ports
    }
}

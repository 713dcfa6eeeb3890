//! Next hops whose Ethernet addresses a responder function resolves. The housekeeping thread copies
//! the addresses from the responder's table ([`Neighbours`]) into next hops and routes.
//!
//! The next hop of a gateway is resolved while the gateway answers. The next hop of an on-link
//! prefix stays unresolved. Each station in the prefix that has answered gets a host route (/32 or
//! /128). The module `kernel` treats the neighbours of the operating system in the same way.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use godwit_wire::MacAddress;

use super::{Adjacency, Family, NextHop, Prefix, RouteChange, Routing};
use crate::neighbours::{Neighbours, Station, Target};
use crate::{Error, Function, Running};

/// Interval of the check for changes in neighbour tables.
pub(crate) const INTERVAL: Duration = Duration::from_millis(20);

/// Configured next hop without an Ethernet address. A responder function resolves the address at
/// run time.
#[derive(Clone, Debug)]
pub(crate) struct DynamicNextHop {
    /// Index of the next hop.
    pub(crate) next_hop: u32,
    /// Configured name of the next hop.
    pub(crate) name: String,
    /// IP address of the gateway. With `None`, each packet is sent directly to its destination on
    /// the link.
    pub(crate) gateway: Option<IpAddr>,
    /// Port, source address and MTU of the next hop. The source address is zero unless it is
    /// configured.
    pub(crate) adjacency: Adjacency,
}

/// Updates the next hops of a forwarding function from the neighbour tables of responder functions.
#[derive(Debug)]
pub(crate) struct Resolver {
    dynamic: Vec<DynamicNextHop>,
    /// Neighbour table of each dynamic next hop. The list is set once, after all functions are
    /// built.
    tables: OnceLock<Vec<Arc<Neighbours>>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Versions of the neighbour tables at the last update. Empty if an update is required.
    seen: Vec<u64>,
    /// Current contents of the next hops of gateways, by index.
    gateways: HashMap<u32, NextHop>,
    /// Host routes in the table, each with the index and contents of its next hop.
    stations: HashMap<Prefix, (u32, NextHop)>,
}

impl Resolver {
    /// Creates a resolver for next hops without configured Ethernet addresses. Returns `None` if
    /// there are no such next hops.
    pub(crate) fn new(dynamic: Vec<DynamicNextHop>) -> Option<Self> {
        (!dynamic.is_empty()).then(|| Self { dynamic, tables: OnceLock::new(), state: Mutex::default() })
    }

    /// Finds the responder function for each dynamic next hop, and registers the next hop with the
    /// responder. Functions call this method in [`Function::connect`].
    pub(crate) fn connect(&self, functions: &[Arc<dyn Function>], own: usize) -> Result<(), Error> {
        let mut tables = Vec::with_capacity(self.dynamic.len());
        for dynamic in &self.dynamic {
            let port = dynamic.adjacency.port;
            let mut candidates = functions.iter().filter_map(|function| function.station()?.neighbours());
            let Some(table) = candidates.find(|neighbours| neighbours.source(port).is_some()) else {
                let message = format!(
                    "next hop \"{}\" needs a function of kind \"responder\" with an interface on its port to resolve its Ethernet \
                     address: add one, or write destination_mac",
                    dynamic.name
                );
                return Err(Error::Value { span: None, message });
            };
            tables.push(Arc::clone(table));
        }
        for (dynamic, table) in self.dynamic.iter().zip(&tables) {
            let DynamicNextHop { next_hop, gateway, adjacency: Adjacency { port, mtu, .. }, .. } = *dynamic;
            table.register(own, next_hop, Target { port, gateway, mtu });
        }
        // `set` fails only if the same tables are already set.
        let _ = self.tables.set(tables);
        Ok(())
    }

    /// Schedules an update after an operator has changed routes.
    pub(crate) fn changed_by_operator(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).seen.clear();
    }

    /// Updates next hops and host routes if a neighbour table has changed. Functions call this
    /// method in [`Function::housekeeping`].
    pub(crate) fn update(&self, routing: &dyn Routing, running: &dyn Running) -> Result<(), Error> {
        let Some(tables) = self.tables.get() else { return Ok(()) };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The versions are read before the tables. If a table changes in between, the next call
        // notices its newer version.
        let seen: Vec<u64> = tables.iter().map(|table| table.version()).collect();
        if state.seen == seen {
            return Ok(());
        }
        let known = known(tables);
        self.update_gateways(&mut state, &known, routing, running)?;
        self.update_stations(&mut state, &known, routing, running)?;
        state.seen = seen;
        Ok(())
    }

    /// Returns the contents of the dynamic next hop with the given index. `address` is the Ethernet
    /// address of the station, or `None` if it is unknown.
    fn next_hop(&self, index: usize, address: Option<MacAddress>) -> NextHop {
        let adjacency = self.dynamic[index].adjacency;
        let tables = self.tables.get().map_or(&[][..], Vec::as_slice);
        let own = tables.get(index).and_then(|table| table.source(adjacency.port)).unwrap_or_default();
        let source = if adjacency.source == MacAddress::default() { own } else { adjacency.source };
        match address {
            Some(destination) => NextHop::Forward(Adjacency { destination, source, ..adjacency }),
            None => NextHop::Unresolved(Adjacency { source, ..adjacency }),
        }
    }

    fn update_gateways(
        &self,
        state: &mut State,
        known: &HashMap<Station, MacAddress>,
        routing: &dyn Routing,
        running: &dyn Running,
    ) -> Result<(), Error> {
        let gateways =
            self.dynamic.iter().enumerate().filter_map(|(index, dynamic)| Some((index, dynamic, dynamic.gateway?)));
        let mut changed: Vec<(u32, NextHop)> = gateways
            .map(|(index, dynamic, gateway)| {
                let address = known.get(&(dynamic.adjacency.port, gateway));
                (dynamic.next_hop, self.next_hop(index, address.copied()))
            })
            .collect();
        changed.retain(|(index, next_hop)| state.gateways.get(index) != Some(next_hop));
        if !changed.is_empty() {
            routing.set_next_hops(&changed, running)?;
            state.gateways.extend(changed);
        }
        Ok(())
    }

    fn update_stations(
        &self,
        state: &mut State,
        known: &HashMap<Station, MacAddress>,
        routing: &dyn Routing,
        running: &dyn Running,
    ) -> Result<(), Error> {
        let mut expected: HashMap<Prefix, NextHop> = HashMap::new();
        for (&(port, address), station) in known {
            let host = Prefix::host(address);
            let is_taken = !state.stations.contains_key(&host) && routing.route(host).is_some();
            if Family::of(address) != routing.family() || is_taken {
                continue;
            }
            if let Some(index) = self.on_link_next_hop(port, address, routing) {
                expected.insert(host, self.next_hop(index, Some(*station)));
            }
        }
        let gone: Vec<Prefix> =
            state.stations.keys().filter(|prefix| !expected.contains_key(*prefix)).copied().collect();
        if !gone.is_empty() {
            let changes: Vec<_> = gone.iter().map(|&prefix| RouteChange { prefix, next_hop: None }).collect();
            routing.change(&changes, running).map_err(|unchanged| unchanged.error)?;
            let unused: Vec<u32> =
                gone.iter().filter_map(|prefix| state.stations.remove(prefix)).map(|(index, _)| index).collect();
            routing.remove_next_hops(&unused, running)?;
        }
        let (mut moved, mut new) = (Vec::new(), Vec::new());
        for (prefix, next_hop) in expected {
            match state.stations.get_mut(&prefix) {
                Some((index, before)) if *before != next_hop => {
                    *before = next_hop;
                    moved.push((*index, next_hop));
                }
                Some(_) => {}
                None => new.push((prefix, next_hop)),
            }
        }
        if !moved.is_empty() {
            routing.set_next_hops(&moved, running)?;
        }
        if new.is_empty() {
            return Ok(());
        }
        let next_hops: Vec<NextHop> = new.iter().map(|(_, next_hop)| *next_hop).collect();
        let indexes = routing.add_next_hops(&next_hops, running)?;
        let changes: Vec<RouteChange> = (new.iter().zip(&indexes))
            .map(|((prefix, _), index)| RouteChange { prefix: *prefix, next_hop: Some(*index) })
            .collect();
        let made = match routing.change(&changes, running) {
            Ok(()) => new.len(),
            Err(unchanged) => {
                routing.remove_next_hops(&indexes[unchanged.made..], running)?;
                unchanged.made
            }
        };
        let installed = new.iter().zip(&indexes).take(made);
        state.stations.extend(installed.map(|((prefix, next_hop), index)| (*prefix, (*index, *next_hop))));
        if made < new.len() {
            let message = format!("{} stations have no host route, because the table is full", new.len() - made);
            return Err(Error::Command { message });
        }
        Ok(())
    }

    /// Returns the dynamic next hop of the subnet that contains the station. Ignores routes to
    /// single addresses.
    fn on_link_next_hop(&self, port: u16, address: IpAddr, routing: &dyn Routing) -> Option<usize> {
        let index =
            (0..Family::of(address).bits()).rev().find_map(|length| routing.route(Prefix::of(address, length)?))?;
        let matches = |dynamic: &DynamicNextHop| {
            dynamic.next_hop == index && dynamic.gateway.is_none() && dynamic.adjacency.port == port
        };
        self.dynamic.iter().position(matches)
    }
}

fn known(tables: &[Arc<Neighbours>]) -> HashMap<Station, MacAddress> {
    tables.iter().flat_map(|table| table.settled()).collect()
}

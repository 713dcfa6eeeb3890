//! Next hops whose stations this machine asks for itself: routes follow what a responder finds out of its neighbours
//! ([`Neighbours`]). On the thread of housekeeping.
//!
//! A gateway's next hop becomes resolved and unresolved as the gateway answers and falls silent. A net at a port stays unresolved, and
//! each of its stations that has answered has a route of its own (/32, /128), as with the kernel's neighbours (`follow`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use godwit_wire::MacAddress;

use super::{Adjacency, Family, NextHop, Prefix, RouteChange, Routing};
use crate::neighbours::{Neighbours, Station, Target};
use crate::{Error, Function, Running};

/// How often it looks whether there is news.
pub(crate) const INTERVAL: Duration = Duration::from_millis(20);

/// A next hop of the configuration whose station is to be asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Its index.
    pub(crate) next_hop: u32,
    /// What the configuration calls it.
    pub(crate) name: String,
    /// `None`: packets' own destinations are stations.
    pub(crate) gateway: Option<IpAddr>,
    /// Without the station's address; the port's own where it is given.
    pub(crate) adjacency: Adjacency,
}

/// Keeps a function's next hops as its neighbours are.
#[derive(Debug)]
pub(crate) struct Resolver {
    asked: Vec<Asked>,
    /// For each of these who asks, once all functions are there.
    askers: OnceLock<Vec<Arc<Neighbours>>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Versions of the neighbours that routes say; empty: to be looked at in any case.
    seen: Vec<u64>,
    /// What the gateways' next hops say.
    gateways: HashMap<u32, NextHop>,
    /// Routes of stations of a net: next hop, and what it says.
    stations: HashMap<Prefix, (u32, NextHop)>,
}

impl Resolver {
    /// `None`: there is nobody to ask for.
    pub(crate) fn new(asked: Vec<Asked>) -> Option<Self> {
        (!asked.is_empty()).then(|| Self { asked, askers: OnceLock::new(), state: Mutex::default() })
    }

    /// See [`Function::meet`].
    pub(crate) fn meet(&self, functions: &[Arc<dyn Function>], own: usize) -> Result<(), Error> {
        let mut askers = Vec::with_capacity(self.asked.len());
        for asked in &self.asked {
            let port = asked.adjacency.port;
            let mut all = functions.iter().filter_map(|function| function.neighbours());
            let Some(asker) = all.find(|neighbours| neighbours.source(port).is_some()) else {
                let message = format!(
                    "next hop \"{}\" has to be asked for its Ethernet address, and nobody can: add a function of kind \"responder\" \
                     with an interface of that port, or give destination_mac",
                    asked.name
                );
                return Err(Error::Value { span: None, message });
            };
            askers.push(Arc::clone(asker));
        }
        for (asked, asker) in self.asked.iter().zip(&askers) {
            let Asked { next_hop, gateway, adjacency: Adjacency { port, mtu, .. }, .. } = *asked;
            asker.register(own, next_hop, Target { port, gateway, mtu });
        }
        // Once for each configuration; a second call would find the same functions.
        let _ = self.askers.set(askers);
        Ok(())
    }

    /// An operator has changed routes: stations may be behind others now.
    pub(crate) fn changed_by_operator(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).seen.clear();
    }

    /// See [`Function::housekeeping`].
    pub(crate) fn keep(&self, routing: &dyn Routing, running: &dyn Running) -> Result<(), Error> {
        let Some(askers) = self.askers.get() else { return Ok(()) };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Read before what they count: news that come meanwhile are looked at the next time.
        let seen: Vec<u64> = askers.iter().map(|asker| asker.version()).collect();
        if state.seen == seen {
            return Ok(());
        }
        let known = known(askers);
        self.gateways(&mut state, &known, routing, running)?;
        self.stations(&mut state, &known, routing, running)?;
        state.seen = seen;
        Ok(())
    }

    /// What a next hop of this kind says for a station with this address.
    fn says(&self, at: usize, address: Option<MacAddress>) -> NextHop {
        let adjacency = self.asked[at].adjacency;
        let askers = self.askers.get().map_or(&[][..], Vec::as_slice);
        let own = askers.get(at).and_then(|asker| asker.source(adjacency.port)).unwrap_or_default();
        let source = if adjacency.source == MacAddress::default() { own } else { adjacency.source };
        match address {
            Some(destination) => NextHop::Forward(Adjacency { destination, source, ..adjacency }),
            None => NextHop::Unresolved(Adjacency { source, ..adjacency }),
        }
    }

    fn gateways(
        &self,
        state: &mut State,
        known: &HashMap<Station, MacAddress>,
        routing: &dyn Routing,
        running: &dyn Running,
    ) -> Result<(), Error> {
        let of_gateways = self.asked.iter().enumerate().filter_map(|(at, asked)| Some((at, asked, asked.gateway?)));
        let mut news: Vec<(u32, NextHop)> = of_gateways
            .map(|(at, asked, gateway)| {
                let address = known.get(&(asked.adjacency.port, gateway));
                (asked.next_hop, self.says(at, address.copied()))
            })
            .collect();
        news.retain(|(index, says)| state.gateways.get(index) != Some(says));
        if !news.is_empty() {
            routing.set_next_hops(&news, running)?;
            state.gateways.extend(news);
        }
        Ok(())
    }

    fn stations(
        &self,
        state: &mut State,
        known: &HashMap<Station, MacAddress>,
        routing: &dyn Routing,
        running: &dyn Running,
    ) -> Result<(), Error> {
        let mut wanted: HashMap<Prefix, NextHop> = HashMap::new();
        for (&(port, address), station) in known {
            let host = Prefix::host(address);
            let is_taken = !state.stations.contains_key(&host) && routing.route(host).is_some();
            if Family::of(address) != routing.family() || is_taken {
                continue;
            }
            if let Some(at) = self.net(port, address, routing) {
                wanted.insert(host, self.says(at, Some(*station)));
            }
        }
        let gone: Vec<Prefix> = state.stations.keys().filter(|prefix| !wanted.contains_key(*prefix)).copied().collect();
        if !gone.is_empty() {
            let changes: Vec<_> = gone.iter().map(|&prefix| RouteChange { prefix, next_hop: None }).collect();
            routing.change(&changes, running).map_err(|unchanged| unchanged.error)?;
            let unused: Vec<u32> =
                gone.iter().filter_map(|prefix| state.stations.remove(prefix)).map(|(index, _)| index).collect();
            routing.remove_next_hops(&unused, running)?;
        }
        let (mut moved, mut new) = (Vec::new(), Vec::new());
        for (prefix, says) in wanted {
            match state.stations.get_mut(&prefix) {
                Some((index, before)) if *before != says => {
                    *before = says;
                    moved.push((*index, says));
                }
                Some(_) => {}
                None => new.push((prefix, says)),
            }
        }
        if !moved.is_empty() {
            routing.set_next_hops(&moved, running)?;
        }
        if new.is_empty() {
            return Ok(());
        }
        let says: Vec<NextHop> = new.iter().map(|(_, says)| *says).collect();
        let indexes = routing.add_next_hops(&says, running)?;
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
        state.stations.extend(installed.map(|((prefix, says), index)| (*prefix, (*index, *says))));
        if made < new.len() {
            let message = format!("{} stations have no route of their own: the table is full", new.len() - made);
            return Err(Error::Command { message });
        }
        Ok(())
    }

    /// The next hop of this configuration whose net the station is of: the longest route that covers it but its own.
    fn net(&self, port: u16, address: IpAddr, routing: &dyn Routing) -> Option<usize> {
        let index =
            (0..Family::of(address).bits()).rev().find_map(|length| routing.route(Prefix::of(address, length)?))?;
        let is_it = |asked: &Asked| asked.next_hop == index && asked.gateway.is_none() && asked.adjacency.port == port;
        self.asked.iter().position(is_it)
    }
}

fn known(askers: &[Arc<Neighbours>]) -> HashMap<Station, MacAddress> {
    askers.iter().flat_map(|asker| asker.settled()).collect()
}

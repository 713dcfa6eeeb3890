//! State of this machine's routing, and the routes that the function's table must have.
//!
//! | state of this machine | route in the table |
//! |---|---|
//! | route to a gateway over a configured interface | next hop with the gateway's address; unresolved until it is known |
//! | route to an on-link prefix of a configured interface | unresolved; each known neighbour in it gets a host route |
//! | route to a local address, or over another interface | local: the kernel handles the packets |
//! | blackhole, unreachable, prohibit | blackhole or unreachable |

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use godwit_wire::MacAddress;
use hashbrown::{HashMap, HashSet};

use super::super::{Adjacency, Family, NextHop, OwnAddresses, Prefix, RouteChange, Routing};
use super::awaiting::Awaiting;
use super::fpm::{Fpm, Notice};
use super::netlink::{Event, Link, Monitor, Requester, Route, Target};
use super::{RouteSource, Settings};
use crate::{Error, Running};

/// Number of the kernel's `local` routing table (rtnetlink(7)).
const TABLE_LOCAL: u32 = 255;
/// Minimum interval between two resolution requests for the same neighbour.
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of stale neighbours that one update probes.
const PROBES_MAX: usize = 32;
/// Maximum number of neighbours whose last request time is remembered.
const REQUESTED_MAX: usize = 4096;
/// Pause after an error before the next attempt.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of routes from zebra that are not in the table yet. This limit is reached only if
/// the table is full.
const WAITING_MAX: usize = 1 << 17;
/// Time for which a refused connection is reported as an error. Repeated attempts within this time
/// cause a single error in the log.
const REPORT_TIME: Duration = Duration::from_secs(60);

/// Targets of the kernel's routes for one prefix, with the preferred target first. Routes of the
/// local routing table are preferred, and then routes with a low metric.
type Candidates = BTreeMap<(bool, u32), Target>;

pub(super) struct State {
    settings: Settings,
    kernel: Option<(Monitor, Requester)>,
    fpm: Option<Fpm>,
    links: HashMap<u32, Link>,
    neighbours: HashMap<(u32, IpAddr), MacAddress>,
    /// Neighbours that have not answered the kernel for a while.
    stale: HashSet<(u32, IpAddr)>,
    routes: HashMap<Prefix, Candidates>,
    /// Routes from zebra. The value is `true` if zebra has sent the route on its latest connection.
    zebra_routes: HashMap<Prefix, (Target, bool)>,
    /// Routes over a gateway that an operator added. They take precedence over routes from the
    /// kernel and zebra.
    operator_routes: HashMap<Prefix, Target>,
    objects: HashMap<u32, Target>,
    /// Number of routes and nexthop objects that were ignored since zebra last connected.
    ignored: usize,
    /// Last refused connection to the FPM listener, with its time.
    refusal: Option<(String, Instant)>,
    /// Neighbour to which this process may not send packets.
    forbidden: Option<IpAddr>,
    /// Prefixes whose route comes from the configuration or an operator. The kernel and zebra must
    /// not replace these routes.
    static_routes: Option<HashSet<Prefix>>,
    /// Installed routes from the kernel and zebra, with the keys of their next hops.
    installed: HashMap<Prefix, HopKey>,
    hops: HashMap<HopKey, Hop>,
    /// Responders that hold packets for unresolved neighbours.
    pub(super) awaiting: Awaiting,
    /// Prefixes whose routes may have to change.
    dirty: HashSet<Prefix>,
    /// Keys of the next hops whose contents may have to change.
    changed: HashSet<HopKey>,
    /// Time of the last request for each station.
    requested: HashMap<(u32, IpAddr), Instant>,
    /// Whether the complete routing state must be requested from the kernel.
    needs_resync: bool,
    retry_at: Instant,
}

/// Key of a next hop in the table. Interfaces are identified by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum HopKey {
    Station(u32, IpAddr),
    OnLink(u32),
    Local,
    Blackhole,
    Unreachable,
}

/// Next hop in the table, with the number of routes from the kernel and zebra that use it.
struct Hop {
    index: u32,
    next_hop: NextHop,
    routes: usize,
}

impl State {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            kernel: None,
            fpm: None,
            links: HashMap::new(),
            neighbours: HashMap::new(),
            stale: HashSet::new(),
            routes: HashMap::new(),
            zebra_routes: HashMap::new(),
            operator_routes: HashMap::new(),
            objects: HashMap::new(),
            ignored: 0,
            refusal: None,
            forbidden: None,
            static_routes: None,
            installed: HashMap::new(),
            hops: HashMap::new(),
            awaiting: Awaiting::default(),
            dirty: HashSet::new(),
            changed: HashSet::new(),
            requested: HashMap::new(),
            needs_resync: true,
            retry_at: Instant::now(),
        }
    }

    fn release(&mut self, key: HopKey) {
        if let Some(hop) = self.hops.get_mut(&key) {
            hop.routes -= 1;
        }
    }

    /// Reads new messages about routes and neighbours, and updates the table. `queue` holds the
    /// addresses to resolve, each with its port. `own` receives the addresses of this machine.
    pub(super) fn update(
        &mut self,
        queue: Vec<(u16, IpAddr)>,
        routing: &dyn Routing,
        own: &OwnAddresses,
        running: &dyn Running,
    ) -> Result<(), Error> {
        if Instant::now() < self.retry_at {
            return Ok(());
        }
        self.record_settled(routing.family());
        let done = self.read_messages(routing).and_then(|()| {
            self.report_awaited();
            self.request_stations(queue);
            self.install(routing, own, running)
        });
        if done.is_err() {
            self.retry_at = Instant::now() + RETRY_INTERVAL;
        }
        done.and_then(|()| self.report())
    }

    /// Returns an error about ignored routes, a neighbour that could not be resolved, or a refused
    /// connection.
    fn report(&mut self) -> Result<(), Error> {
        if self.ignored > 0 {
            return Err(refuse(
                "the table has no room for all routes of zebra, and ignores the rest: \
                 raise the spare capacity of the function"
                    .to_owned(),
            ));
        }
        if let Some(address) = self.forbidden.take() {
            return Err(refuse(format!(
                "no permission to resolve the neighbour {address}: allow its network in IPAddressAllow of the unit"
            )));
        }
        self.refusal.take_if(|(_, since)| since.elapsed() > REPORT_TIME);
        match &self.refusal {
            Some((reason, _)) => Err(refuse(format!("connection to {}: {reason}", self.settings.fpm))),
            None => Ok(()),
        }
    }

    fn read_messages(&mut self, routing: &dyn Routing) -> Result<(), Error> {
        let family = routing.family();
        if self.static_routes.is_none() {
            self.static_routes = Some(routing.routes().into_iter().map(|(prefix, _)| prefix).collect());
        }
        if self.kernel.is_none() {
            let opened = Monitor::open(family).and_then(|monitor| Ok((monitor, Requester::open()?)));
            self.kernel = Some(opened.map_err(|error| refuse(format!("cannot open a netlink socket: {error}")))?);
            self.needs_resync = true;
        }
        if self.settings.source == RouteSource::Fpm && self.fpm.is_none() {
            let address = self.settings.fpm;
            let fpm = Fpm::listen(address, self.settings.peers.clone(), family)
                .map_err(|error| refuse(format!("cannot listen for zebra on {address}: {error}")))?;
            self.fpm = Some(fpm);
        }
        let Some((monitor, requester)) = self.kernel.take() else { return Ok(()) };
        let read = monitor.read(|event| self.event(event, family));
        let read = read.and_then(|is_whole| {
            // Notifications may arrive during the dump. A later call reads them, and they may
            // repeat parts of the state.
            if !is_whole || std::mem::take(&mut self.needs_resync) {
                self.resync(&requester, family)?;
            }
            Ok(())
        });
        read.map_err(|error| {
            self.needs_resync = true;
            refuse(format!("cannot read routes from the kernel: {error}"))
        })?;
        self.kernel = Some((monitor, requester));
        if let Some(fpm) = self.fpm.take() {
            let refusal = fpm.poll(|notice| match notice {
                Notice::Connected => {
                    self.ignored = 0;
                    self.zebra_routes.values_mut().for_each(|(_, is_current)| *is_current = false);
                }
                Notice::Event(event) => self.zebra_event(event),
                Notice::Synced => self.sweep(),
            });
            if let Some(reason) = refusal {
                self.refusal.get_or_insert((reason, Instant::now()));
            }
            // Some routes were ignored because the table was full. The table has room again, so
            // zebra must resend all its routes.
            if self.ignored > 0 && self.zebra_routes.len() + WAITING_MAX / 2 < self.zebra_routes_max() {
                self.ignored = 0;
                fpm.disconnect();
            }
            self.fpm = Some(fpm);
        }
        Ok(())
    }

    /// Replaces the recorded state with the kernel's current state. Removes all entries that the
    /// kernel does not report.
    fn resync(&mut self, requester: &Requester, family: Family) -> std::io::Result<()> {
        let mut events = Vec::new();
        requester.dump(family, |event| events.push(event))?;
        self.dirty.extend(self.routes.drain().map(|(prefix, _)| prefix));
        self.dirty.extend(self.neighbours.drain().map(|((_, address), _)| Prefix::host(address)));
        self.stale.clear();
        self.awaiting.clear();
        self.changed.extend(self.hops.keys());
        self.links.clear();
        for event in events {
            self.event(event, family);
        }
        self.needs_resync = false;
        Ok(())
    }

    /// Removes the routes that zebra has not sent on its latest connection.
    fn sweep(&mut self) {
        let gone = self.zebra_routes.extract_if(|_, (_, is_current)| !*is_current);
        self.dirty.extend(gone.map(|(prefix, _)| prefix));
    }

    /// Processes an event. Routes use a new address only after the packets that wait for it have
    /// left.
    fn event(&mut self, event: Event, family: Family) {
        if let Event::Neighbour { interface, address, station, .. } = event {
            self.awaiting.replace((interface, address));
            let is_known = self.neighbours.contains_key(&(interface, address));
            let port = self.port(interface).map(|(port, _)| port);
            let is_awaited = port.is_some_and(|port| self.awaiting.report(port, address, station));
            if is_awaited && station.is_some() && !is_known {
                self.awaiting.settle(event);
                return;
            }
        }
        self.record(event, family);
    }

    /// Processes the addresses that routes may use now.
    fn record_settled(&mut self, family: Family) {
        while let Some(event) = self.awaiting.settled() {
            self.record(event, family);
        }
    }

    /// Reports known addresses to the responders that wait for them.
    fn report_awaited(&self) {
        self.awaiting.report_known(|(port, address)| {
            let interface = self.interface_of(port)?;
            self.neighbours.get(&(interface, address)).copied()
        });
    }

    fn record(&mut self, event: Event, family: Family) {
        match event {
            Event::Link { index, link } => {
                let before = match link {
                    Some(link) => {
                        let is_up = link.is_up;
                        let before = self.links.insert(index, link);
                        // The kernel removes the routes of an interface that is down, and sends no
                        // notification for each route.
                        self.needs_resync |= before.as_ref().is_some_and(|before| before.is_up != is_up);
                        before
                    }
                    None => self.links.remove(&index).inspect(|_| self.needs_resync = true),
                };
                if before.as_ref() != self.links.get(&index) {
                    let of_link = |key: &&HopKey| matches!(key, HopKey::Station(interface, _) | HopKey::OnLink(interface) if *interface == index);
                    self.changed.extend(self.hops.keys().filter(of_link));
                }
            }
            Event::Neighbour { interface, address, station, is_stale } => {
                let key = (interface, address);
                match is_stale {
                    true => self.stale.insert(key),
                    false => self.stale.remove(&key),
                };
                let before = match station {
                    Some(station) => self.neighbours.insert(key, station),
                    None => self.neighbours.remove(&key),
                };
                if before != station {
                    // An IPv4 route can lead to an IPv6 gateway. Such a gateway lies in no IPv4
                    // prefix, so it needs no host route.
                    if Family::of(address) == family {
                        self.dirty.insert(Prefix::host(address));
                    }
                    self.changed.insert(HopKey::Station(interface, address));
                }
            }
            Event::Route { route, is_there } => self.route(route, is_there, family),
            Event::AddressGone => self.needs_resync = true,
            Event::NextHop { .. } => {}
        }
    }

    fn route(&mut self, route: Route, is_there: bool, family: Family) {
        let Route { prefix, table, metric, is_of_address, target } = route;
        let is_tracked = match self.settings.source {
            RouteSource::Kernel => table == TABLE_LOCAL || table == self.settings.table,
            RouteSource::Fpm => table == TABLE_LOCAL || table == self.settings.table && is_of_address,
        };
        if !is_tracked || prefix.family() != family {
            return;
        }
        // The kernel looks up the local table first (ip-rule(8)).
        let key = (table != TABLE_LOCAL, metric);
        let candidates = self.routes.entry(prefix).or_default();
        let changed = match is_there {
            true => candidates.insert(key, target) != Some(target),
            // A newer route with the same table and metric must stay.
            false => candidates.get(&key) == Some(&target) && candidates.remove(&key).is_some(),
        };
        if candidates.is_empty() {
            self.routes.remove(&prefix);
        }
        if changed {
            self.dirty.insert(prefix);
            self.neighbours_below(prefix, target);
        }
    }

    /// Marks the neighbours in an on-link prefix for an update, because their host routes depend on
    /// the route of the prefix.
    fn neighbours_below(&mut self, prefix: Prefix, target: Target) {
        if let Target::Link { gateway: None, .. } = target {
            let below = self.neighbours.keys().filter(|(_, address)| prefix.covers(*address));
            self.dirty.extend(below.map(|(_, address)| Prefix::host(*address)));
        }
    }

    /// Returns the maximum number of routes from zebra, which grows with the number of routes in
    /// the table.
    fn zebra_routes_max(&self) -> usize {
        self.installed.len() + self.static_routes.as_ref().map_or(0, HashSet::len) + WAITING_MAX
    }

    fn zebra_event(&mut self, event: Event) {
        match event {
            Event::Route { route, is_there: true } => {
                let has_room = self.zebra_routes.len() < self.zebra_routes_max();
                if has_room || self.zebra_routes.contains_key(&route.prefix) {
                    self.zebra_routes.insert(route.prefix, (route.target, true));
                    self.dirty.insert(route.prefix);
                } else {
                    self.ignored += 1;
                }
            }
            Event::Route { route, is_there: false } if self.zebra_routes.remove(&route.prefix).is_some() => {
                self.dirty.insert(route.prefix);
            }
            Event::NextHop { id, target } => {
                if target.is_some() && !self.objects.contains_key(&id) && self.objects.len() >= self.zebra_routes_max()
                {
                    self.ignored += 1;
                    return;
                }
                let before = match target {
                    Some(target) => self.objects.insert(id, target),
                    None => self.objects.remove(&id),
                };
                if before.is_some() && before != target {
                    let with_object =
                        self.zebra_routes.iter().filter(|(_, (target, _))| matches!(target, Target::Object(_)));
                    self.dirty.extend(with_object.map(|(prefix, _)| *prefix));
                }
            }
            _ => {}
        }
    }

    /// Returns the preferred target for exactly this prefix.
    fn target(&self, prefix: Prefix) -> Option<Target> {
        let from_operator = self.operator_routes.get(&prefix).copied();
        let from_kernel = || self.routes.get(&prefix).and_then(|candidates| candidates.values().next().copied());
        from_operator.or_else(from_kernel).or_else(|| {
            let (mut target, _) = *self.zebra_routes.get(&prefix)?;
            // A nexthop group may contain other groups. The limit breaks cycles, which have no
            // target.
            for _ in 0..8 {
                let Target::Object(id) = target else { return Some(target) };
                target = *self.objects.get(&id)?;
            }
            None
        })
    }

    fn has_port(&self, interface: u32) -> bool {
        self.port(interface).is_some()
    }

    fn port(&self, interface: u32) -> Option<(u16, &Link)> {
        let link = self.links.get(&interface)?;
        let (_, port) = self.settings.ports.iter().find(|(name, _)| *name == link.name)?;
        Some((*port, link))
    }

    /// Returns the interface index of a port.
    fn interface_of(&self, port: u16) -> Option<u32> {
        let matches =
            |link: &Link| self.settings.ports.iter().any(|(name, known)| *known == port && *name == link.name);
        self.links.iter().find_map(|(index, link)| matches(link).then_some(*index))
    }

    /// Returns the identifier of the next hop for this prefix.
    fn hop_key(&self, prefix: Prefix) -> Option<HopKey> {
        match self.target(prefix) {
            Some(Target::Link { interface, .. }) if !self.has_port(interface) => Some(HopKey::Local),
            Some(Target::Link { interface, gateway: Some(gateway) }) => Some(HopKey::Station(interface, gateway)),
            Some(Target::Link { interface, gateway: None }) if prefix.is_host() => {
                Some(HopKey::Station(interface, prefix.address()))
            }
            Some(Target::Link { interface, gateway: None }) => Some(HopKey::OnLink(interface)),
            Some(Target::Local) => Some(HopKey::Local),
            Some(Target::Blackhole) => Some(HopKey::Blackhole),
            Some(Target::Unreachable | Target::Object(_)) => Some(HopKey::Unreachable),
            None if prefix.is_host() => self.station(prefix.address()),
            None => None,
        }
    }

    /// Returns the next hop key of a known neighbour in an on-link prefix.
    fn station(&self, address: IpAddr) -> Option<HopKey> {
        let covering = (0..Family::of(address).bits()).rev().find_map(|length| {
            let prefix = Prefix::of(address, length)?;
            self.target(prefix)
        });
        let Some(Target::Link { interface, gateway: None }) = covering else { return None };
        let is_known = self.has_port(interface) && self.neighbours.contains_key(&(interface, address));
        is_known.then_some(HopKey::Station(interface, address))
    }

    fn next_hop(&self, key: HopKey) -> NextHop {
        let adjacency = |interface, destination: Option<&MacAddress>| match self.port(interface) {
            Some((port, link)) if link.is_up => {
                let mtu = u16::try_from(link.mtu).unwrap_or(Adjacency::MTU_MAX).max(68);
                let destination = destination.copied();
                let adjacency =
                    Adjacency { port, destination: destination.unwrap_or_default(), source: link.address, mtu };
                if destination.is_some() { NextHop::Forward(adjacency) } else { NextHop::Unresolved(adjacency) }
            }
            _ => NextHop::Unreachable,
        };
        match key {
            HopKey::Station(interface, address) => adjacency(interface, self.neighbours.get(&(interface, address))),
            HopKey::OnLink(interface) => adjacency(interface, None),
            HopKey::Local => NextHop::Local,
            HopKey::Blackhole => NextHop::Blackhole,
            HopKey::Unreachable => NextHop::Unreachable,
        }
    }

    /// Makes the kernel resolve the stations in `queue` and the unresolved gateways. Makes the
    /// kernel probe stale neighbours.
    fn request_stations(&mut self, queue: Vec<(u16, IpAddr)>) {
        let Some((_, requester)) = &self.kernel else { return };
        let now = Instant::now();
        if self.requested.len() > REQUESTED_MAX {
            self.requested.retain(|_, at| now.duration_since(*at) < REQUEST_INTERVAL);
        }
        let gateways = self.hops.iter().filter_map(|(key, hop)| match (key, hop.next_hop) {
            (HopKey::Station(interface, address), NextHop::Unresolved(_)) => Some((*interface, *address)),
            _ => None,
        });
        let stations = queue.into_iter().filter_map(|(port, address)| Some((self.interface_of(port)?, address)));
        let stations: Vec<(u32, IpAddr)> = stations.chain(gateways).collect();
        for (interface, address) in stations {
            let last = self.requested.get(&(interface, address));
            if self.requested.len() <= REQUESTED_MAX
                && last.is_none_or(|at| now.duration_since(*at) >= REQUEST_INTERVAL)
            {
                self.requested.insert((interface, address), now);
                // The kernel reports the resolved address in a notification. Errors of the request,
                // such as a link that is down, need no handling.
                if let Err(error) = requester.resolve(interface, address)
                    && error.kind() == std::io::ErrorKind::PermissionDenied
                {
                    self.forbidden = Some(address);
                }
            }
        }
        // The kernel does not see the packets that Godwit sends to neighbours. Without these
        // probes, it would not notice that a neighbour has gone or has a new Ethernet address.
        let in_use =
            |&(interface, address): &(u32, IpAddr)| self.hops.contains_key(&HopKey::Station(interface, address));
        for (interface, address) in self.stale.extract_if(in_use).take(PROBES_MAX) {
            let _ = requester.resolve(interface, address);
        }
    }
}

fn refuse(message: String) -> Error {
    Error::Command { message }
}

mod fuzz;
mod install;
mod operator;
#[cfg(test)]
mod tests;

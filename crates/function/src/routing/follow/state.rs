//! What there is on this machine, and what the table is to say of it.
//!
//! | there is | the table says |
//! |---|---|
//! | a route to a gateway by one of our interfaces | a next hop with the gateway's address, unresolved while that is not known |
//! | a route to a net at one of our interfaces | unresolved; each neighbour of the net that is known has a route of its own |
//! | a route of the machine's own address; a route by an interface that is not ours | local: the kernel has it |
//! | blackhole, unreachable, prohibit | the same |

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use godwit_wire::MacAddress;
use hashbrown::{HashMap, HashSet};

use super::super::{Adjacency, Family, NextHop, Prefix, RouteChange, Routing};
use super::fpm::{Fpm, Heard};
use super::netlink::{Asker, Event, Link, Monitor, Route, Target};
use super::{From, Settings};
use crate::{Error, Running};

/// The table of the machine's own addresses (rtnetlink(7)).
const TABLE_LOCAL: u32 = 255;
/// A neighbour is asked for so often at most.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// So many stale neighbours are asked for in one turn.
const STALE_PER_TURN: usize = 32;
/// A net's stations that are remembered as asked for.
const ASKED_MAX: usize = 4096;
/// When something could not be done, it is tried again then.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Where routes of one prefix lead, by preference: table, then metric.
type Ways = BTreeMap<(bool, u32), Target>;

pub(super) struct State {
    settings: Settings,
    kernel: Option<(Monitor, Asker)>,
    fpm: Option<Fpm>,
    links: HashMap<u32, Link>,
    neighbours: HashMap<(u32, IpAddr), MacAddress>,
    /// Neighbours that the kernel has not heard of for a while.
    stale: HashSet<(u32, IpAddr)>,
    routes: HashMap<Prefix, Ways>,
    /// Of zebra, and whether it has said so since it connected.
    told: HashMap<Prefix, (Target, bool)>,
    objects: HashMap<u32, Target>,
    /// Routes that are not ours: of the configuration, or of an operator.
    others: Option<HashSet<Prefix>>,
    /// What the table says, as far as it is ours.
    installed: HashMap<Prefix, Way>,
    ways: HashMap<Way, Hop>,
    dirty: HashSet<Prefix>,
    /// Next hops to look at again.
    changed: HashSet<Way>,
    asked: HashMap<(u32, IpAddr), Instant>,
    ask_all: bool,
    try_at: Instant,
}

/// A next hop of the table, by what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Way {
    Station(u32, IpAddr),
    Net(u32),
    Local,
    Blackhole,
    Unreachable,
}

struct Hop {
    index: u32,
    says: NextHop,
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
            told: HashMap::new(),
            objects: HashMap::new(),
            others: None,
            installed: HashMap::new(),
            ways: HashMap::new(),
            dirty: HashSet::new(),
            changed: HashSet::new(),
            asked: HashMap::new(),
            ask_all: true,
            try_at: Instant::now(),
        }
    }

    /// The route for a prefix is an operator's, or no more.
    pub(super) fn keep_off(&mut self, prefix: Prefix, is_his: bool) {
        let others = self.others.get_or_insert_default();
        if is_his {
            others.insert(prefix);
            if let Some(way) = self.installed.remove(&prefix) {
                self.leave(way);
            }
        } else {
            others.remove(&prefix);
            if let Some(way) = self.installed.remove(&prefix) {
                self.leave(way);
            }
            self.dirty.insert(prefix);
        }
    }

    fn leave(&mut self, way: Way) {
        if let Some(hop) = self.ways.get_mut(&way) {
            hop.routes -= 1;
        }
    }

    /// Takes in what has happened, and makes the table say so.
    pub(super) fn turn(
        &mut self,
        wanted: Vec<(u16, IpAddr)>,
        routing: &dyn Routing,
        running: &dyn Running,
    ) -> Result<(), Error> {
        if Instant::now() < self.try_at {
            return Ok(());
        }
        let done = self.take_in(routing).and_then(|()| {
            self.ask(wanted);
            self.install(routing, running)
        });
        if done.is_err() {
            self.try_at = Instant::now() + RETRY_INTERVAL;
        }
        done
    }

    fn take_in(&mut self, routing: &dyn Routing) -> Result<(), Error> {
        let family = routing.family();
        if self.others.is_none() {
            self.others = Some(routing.routes().into_iter().map(|(prefix, _)| prefix).collect());
        }
        if self.kernel.is_none() {
            let opened = Monitor::open(family).and_then(|monitor| Ok((monitor, Asker::open()?)));
            self.kernel = Some(opened.map_err(|error| refuse(format!("the kernel gives no netlink socket: {error}")))?);
            self.ask_all = true;
        }
        if self.settings.from == From::Fpm && self.fpm.is_none() {
            let at = self.settings.fpm;
            let fpm =
                Fpm::listen(at, family).map_err(|error| refuse(format!("cannot listen for zebra at {at}: {error}")))?;
            self.fpm = Some(fpm);
        }
        let Some((monitor, asker)) = self.kernel.take() else { return Ok(()) };
        let read = monitor.read(|event| self.event(event, family));
        let read = read.and_then(|is_whole| {
            // What follows an answer is read from the monitor afterwards, and says the same again at worst.
            if !is_whole || std::mem::take(&mut self.ask_all) {
                self.ask_for_all(&asker, family)?;
            }
            Ok(())
        });
        read.map_err(|error| {
            self.ask_all = true;
            refuse(format!("the kernel does not say what its routes are: {error}"))
        })?;
        self.kernel = Some((monitor, asker));
        if let Some(fpm) = self.fpm.take() {
            fpm.turn(|heard| match heard {
                Heard::Begun => self.told.values_mut().for_each(|(_, is_told)| *is_told = false),
                Heard::Event(event) => self.zebra(event),
                Heard::Told => self.sweep(),
            });
            self.fpm = Some(fpm);
        }
        Ok(())
    }

    /// Begins anew with what the kernel has: what it does not say goes.
    fn ask_for_all(&mut self, asker: &Asker, family: Family) -> std::io::Result<()> {
        let mut events = Vec::new();
        asker.all(family, |event| events.push(event))?;
        self.dirty.extend(self.routes.drain().map(|(prefix, _)| prefix));
        self.dirty.extend(self.neighbours.drain().map(|((_, address), _)| Prefix::host(address)));
        self.stale.clear();
        self.changed.extend(self.ways.keys());
        self.links.clear();
        for event in events {
            self.event(event, family);
        }
        self.ask_all = false;
        Ok(())
    }

    /// What zebra has not said again since it connected goes.
    fn sweep(&mut self) {
        let gone = self.told.extract_if(|_, (_, is_told)| !*is_told);
        self.dirty.extend(gone.map(|(prefix, _)| prefix));
    }

    fn event(&mut self, event: Event, family: Family) {
        match event {
            Event::Link { index, link } => {
                let before = match link {
                    Some(link) => {
                        let is_up = link.is_up;
                        let before = self.links.insert(index, link);
                        // The kernel flushes routes of an interface without a word.
                        self.ask_all |= before.as_ref().is_some_and(|before| before.is_up != is_up);
                        before
                    }
                    None => self.links.remove(&index).inspect(|_| self.ask_all = true),
                };
                if before.as_ref() != self.links.get(&index) {
                    let of_link = |way: &&Way| matches!(way, Way::Station(of, _) | Way::Net(of) if *of == index);
                    self.changed.extend(self.ways.keys().filter(of_link));
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
                    // An IPv4 route can lead to an IPv6 gateway, which is no station of an IPv4 net.
                    if Family::of(address) == family {
                        self.dirty.insert(Prefix::host(address));
                    }
                    self.changed.insert(Way::Station(interface, address));
                }
            }
            Event::Route { route, is_there } => self.route(route, is_there, family),
            Event::AddressGone => self.ask_all = true,
            Event::NextHop { .. } => {}
        }
    }

    fn route(&mut self, route: Route, is_there: bool, family: Family) {
        let Route { prefix, table, metric, is_of_address, target } = route;
        let is_ours = match self.settings.from {
            From::Kernel => table == TABLE_LOCAL || table == self.settings.table,
            From::Fpm => table == TABLE_LOCAL || table == self.settings.table && is_of_address,
        };
        if !is_ours || prefix.family() != family {
            return;
        }
        // The table of local addresses is asked first (ip-rule(8)).
        let key = (table != TABLE_LOCAL, metric);
        let ways = self.routes.entry(prefix).or_default();
        let changed = match is_there {
            true => ways.insert(key, target) != Some(target),
            // Another one may have taken its place meanwhile.
            false => ways.get(&key) == Some(&target) && ways.remove(&key).is_some(),
        };
        if ways.is_empty() {
            self.routes.remove(&prefix);
        }
        if changed {
            self.dirty.insert(prefix);
            self.neighbours_below(prefix, target);
        }
    }

    /// Neighbours of a net have routes of their own as long as the net has.
    fn neighbours_below(&mut self, prefix: Prefix, target: Target) {
        if let Target::Link { gateway: None, .. } = target {
            let below = self.neighbours.keys().filter(|(_, address)| prefix.covers(*address));
            self.dirty.extend(below.map(|(_, address)| Prefix::host(*address)));
        }
    }

    fn zebra(&mut self, event: Event) {
        match event {
            Event::Route { route, is_there } => {
                match is_there {
                    true => self.told.insert(route.prefix, (route.target, true)),
                    false => self.told.remove(&route.prefix),
                };
                self.dirty.insert(route.prefix);
            }
            Event::NextHop { id, target } => {
                let before = match target {
                    Some(target) => self.objects.insert(id, target),
                    None => self.objects.remove(&id),
                };
                if before.is_some() && before != target {
                    let of_object = self.told.iter().filter(|(_, (target, _))| matches!(target, Target::Object(_)));
                    self.dirty.extend(of_object.map(|(prefix, _)| *prefix));
                }
            }
            _ => {}
        }
    }

    /// The target that counts for exactly this prefix.
    fn target(&self, prefix: Prefix) -> Option<Target> {
        let of_kernel = self.routes.get(&prefix).and_then(|ways| ways.values().next().copied());
        of_kernel.or_else(|| {
            let (mut target, _) = *self.told.get(&prefix)?;
            // An object may be a group of groups; what goes round in a circle leads nowhere.
            for _ in 0..8 {
                let Target::Object(id) = target else { return Some(target) };
                target = *self.objects.get(&id)?;
            }
            None
        })
    }

    fn is_ours(&self, interface: u32) -> bool {
        self.port(interface).is_some()
    }

    fn port(&self, interface: u32) -> Option<(u16, &Link)> {
        let link = self.links.get(&interface)?;
        let (_, port) = self.settings.ports.iter().find(|(name, _)| *name == link.name)?;
        Some((*port, link))
    }

    /// What the table is to say of a prefix.
    fn way(&self, prefix: Prefix) -> Option<Way> {
        match self.target(prefix) {
            Some(Target::Link { interface, .. }) if !self.is_ours(interface) => Some(Way::Local),
            Some(Target::Link { interface, gateway: Some(gateway) }) => Some(Way::Station(interface, gateway)),
            Some(Target::Link { interface, gateway: None }) if prefix.is_host() => {
                Some(Way::Station(interface, prefix.address()))
            }
            Some(Target::Link { interface, gateway: None }) => Some(Way::Net(interface)),
            Some(Target::Local) => Some(Way::Local),
            Some(Target::Blackhole) => Some(Way::Blackhole),
            Some(Target::Unreachable | Target::Object(_)) => Some(Way::Unreachable),
            None if prefix.is_host() => self.station(prefix.address()),
            None => None,
        }
    }

    /// A neighbour of one of our nets.
    fn station(&self, address: IpAddr) -> Option<Way> {
        let covering = (0..Family::of(address).bits()).rev().find_map(|length| {
            let prefix = Prefix::of(address, length)?;
            self.target(prefix)
        });
        let Some(Target::Link { interface, gateway: None }) = covering else { return None };
        let is_known = self.is_ours(interface) && self.neighbours.contains_key(&(interface, address));
        is_known.then_some(Way::Station(interface, address))
    }

    fn says(&self, way: Way) -> NextHop {
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
        match way {
            Way::Station(interface, address) => adjacency(interface, self.neighbours.get(&(interface, address))),
            Way::Net(interface) => adjacency(interface, None),
            Way::Local => NextHop::Local,
            Way::Blackhole => NextHop::Blackhole,
            Way::Unreachable => NextHop::Unreachable,
        }
    }

    /// Has the kernel look for stations that packets came for, and for gateways.
    fn ask(&mut self, wanted: Vec<(u16, IpAddr)>) {
        let Some((_, asker)) = &self.kernel else { return };
        let now = Instant::now();
        if self.asked.len() > ASKED_MAX {
            self.asked.retain(|_, at| now.duration_since(*at) < ASK_INTERVAL);
        }
        let gateways = self.ways.iter().filter_map(|(way, hop)| match (way, hop.says) {
            (Way::Station(interface, address), NextHop::Unresolved(_)) => Some((*interface, *address)),
            _ => None,
        });
        let of_port = |port| {
            let is_it = |link: &Link| self.settings.ports.iter().any(|(name, of)| *of == port && *name == link.name);
            self.links.iter().find_map(|(index, link)| is_it(link).then_some(*index))
        };
        let stations = wanted.into_iter().filter_map(|(port, address)| Some((of_port(port)?, address)));
        for (interface, address) in stations.chain(gateways) {
            let asked = self.asked.get(&(interface, address));
            if self.asked.len() <= ASKED_MAX && asked.is_none_or(|at| now.duration_since(*at) >= ASK_INTERVAL) {
                self.asked.insert((interface, address), now);
                // It says itself what it finds; a link that is down, nothing.
                let _ = asker.resolve(interface, address);
            }
        }
        // The kernel never sees the packets that go to these: left alone, it would not find out that one is gone, or has
        // another Ethernet address. When it has, it says so, which is when they are stale again too.
        let in_use = |&(interface, address): &(u32, IpAddr)| self.ways.contains_key(&Way::Station(interface, address));
        for (interface, address) in self.stale.extract_if(in_use).take(STALE_PER_TURN) {
            let _ = asker.resolve(interface, address);
        }
    }

    /// Makes the table say what there is.
    fn install(&mut self, routing: &dyn Routing, running: &dyn Running) -> Result<(), Error> {
        let changed: Vec<Way> = self.changed.iter().copied().collect();
        let mut hops = Vec::new();
        for way in changed {
            let says = self.says(way);
            if let Some(hop) = self.ways.get_mut(&way)
                && hop.says != says
            {
                hops.push((hop.index, says));
                hop.says = says;
            }
        }
        if !hops.is_empty() {
            // Should a device not take them, their next change brings them too.
            routing.set_next_hops(&hops, running)?;
        }
        self.changed.clear();
        if self.dirty.is_empty() {
            return Ok(());
        }
        let others = self.others.take().unwrap_or_default();
        let dirty: Vec<Prefix> = self.dirty.iter().filter(|prefix| !others.contains(*prefix)).copied().collect();
        self.others = Some(others);
        let moves: Vec<(Prefix, Option<Way>)> = (dirty.into_iter())
            .map(|prefix| (prefix, self.way(prefix)))
            .filter(|(prefix, way)| self.installed.get(prefix) != way.as_ref())
            .collect();
        self.add_hops(&moves, routing, running)?;
        let changes: Vec<RouteChange> = moves
            .iter()
            .map(|&(prefix, way)| RouteChange { prefix, next_hop: way.map(|way| self.ways[&way].index) })
            .collect();
        let done = routing.change(&changes, running);
        let made = done.as_ref().map_or_else(|unchanged| unchanged.made, |()| changes.len());
        for &(prefix, way) in &moves[..made] {
            self.dirty.remove(&prefix);
            let before = match way {
                Some(way) => {
                    if let Some(hop) = self.ways.get_mut(&way) {
                        hop.routes += 1;
                    }
                    self.installed.insert(prefix, way)
                }
                None => self.installed.remove(&prefix),
            };
            if let Some(before) = before {
                self.leave(before);
            }
        }
        done.map_err(|unchanged| unchanged.error)?;
        self.dirty.clear();
        let unused: Vec<(Way, u32)> =
            self.ways.iter().filter(|(_, hop)| hop.routes == 0).map(|(way, hop)| (*way, hop.index)).collect();
        let indexes: Vec<u32> = unused.iter().map(|(_, index)| *index).collect();
        routing.remove_next_hops(&indexes, running)?;
        for (way, _) in &unused {
            self.ways.remove(way);
        }
        Ok(())
    }

    fn add_hops(
        &mut self,
        moves: &[(Prefix, Option<Way>)],
        routing: &dyn Routing,
        running: &dyn Running,
    ) -> Result<(), Error> {
        let new: HashSet<Way> =
            moves.iter().filter_map(|(_, way)| *way).filter(|way| !self.ways.contains_key(way)).collect();
        let new: Vec<(Way, NextHop)> = new.into_iter().map(|way| (way, self.says(way))).collect();
        let says: Vec<NextHop> = new.iter().map(|(_, says)| *says).collect();
        let indexes = routing.add_next_hops(&says, running)?;
        for ((way, says), index) in new.into_iter().zip(indexes) {
            self.ways.insert(way, Hop { index, says, routes: 0 });
        }
        Ok(())
    }
}

fn refuse(message: String) -> Error {
    Error::Command { message }
}

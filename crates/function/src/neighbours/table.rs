//! Table of stations. The work for each packet is constant, independent of the number of stations.
//!
//! | structure | answers |
//! |---|---|
//! | `stations` | the state of a station |
//! | `timers` | which station is due next |
//! | `Port::unanswered` | which station of a port has been without an answer for the longest time |
//!
//! The timers and queues may contain outdated items, which are skipped. An item is valid if the
//! table entry of its station refers to the item.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use godwit_wire::MacAddress;

use super::{
    Bucket, NEW_A_SECOND, NEW_PER_SENDER, REACHABLE_NS, REQUESTS_MAX, RETRY_NS, Request, Resolution, SETTLE_NS,
    SILENCE_NS, STATIONS_MAX, Station, Target, UNANSWERED_MAX,
};

#[derive(Debug, Default)]
pub(super) struct Table {
    /// Next hops whose addresses must be resolved, by the number of their function and by their
    /// index in the function.
    targets: Vec<Vec<Option<Target>>>,
    stations: HashMap<Station, Entry>,
    /// Stations, each with the time of its next action. An item is valid if its time equals the
    /// station's [`Entry::timer_ns`].
    timers: BinaryHeap<Reverse<(u64, Station)>>,
    /// State of each port with stations.
    ports: Vec<Port>,
    /// Rate limit for new stations, one for each ingress port.
    senders: Vec<Bucket>,
    queued: u64,
    /// Whether a station was removed to make room since the last poll.
    has_evicted: bool,
    asked: u64,
    learned: u64,
    silent: u64,
    evicted: u64,
}

#[derive(Debug)]
struct Port {
    new: Bucket,
    /// Stations that have not answered, in the order in which they were added. An item is valid if
    /// its number equals the station's [`Entry::item`].
    unanswered: VecDeque<(u64, Station)>,
    /// Number of valid items in `unanswered`.
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    phase: Phase,
    /// Time at which the station changes its state or needs another request.
    due_ns: u64,
    timer_ns: u64,
    item: u64,
    /// Whether the station is a gateway. Gateways are never removed from the table.
    is_kept: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Resolving {
        requests: u8,
    },
    Known {
        address: MacAddress,
        requests: u8,
        /// Whether routes may use the address.
        is_settled: bool,
    },
    Silent,
}

impl Table {
    pub(super) fn register(&mut self, function: usize, next_hop: u32, target: Target) {
        if self.targets.len() <= function {
            self.targets.resize_with(function + 1, Vec::new);
        }
        let (targets, next_hop) = (&mut self.targets[function], next_hop as usize);
        if targets.len() <= next_hop {
            targets.resize(next_hop + 1, None);
        }
        targets[next_hop] = Some(target);
        if let Some(gateway) = target.gateway {
            self.insert((target.port, gateway), 0, true);
        }
    }

    pub(super) fn target(&self, function: usize, next_hop: u32) -> Option<Target> {
        *self.targets.get(function)?.get(next_hop as usize)?
    }

    pub(super) fn resolution(&self, station: Station) -> Option<Resolution> {
        self.stations.get(&station).map(Entry::resolution)
    }

    /// Adds a new station to the table because of a packet from port `from`, unless a rate limit is
    /// reached. If there is no room, removes the station that has been without an answer for the
    /// longest time.
    pub(super) fn admit(&mut self, station: Station, from: u16, now_ns: u64) -> Resolution {
        let senders = usize::from(from) + 1;
        if self.senders.len() < senders {
            self.senders.resize(senders, Bucket::new(NEW_PER_SENDER));
        }
        let has_token = self.senders[usize::from(from)].take(NEW_PER_SENDER, now_ns)
            && self.port(station.0).new.take(NEW_A_SECOND, now_ns);
        if !has_token {
            return Resolution::Policed;
        }
        while self.port(station.0).count >= UNANSWERED_MAX {
            self.evict(station.0);
        }
        if self.stations.len() >= STATIONS_MAX {
            let others = (0..self.ports.len()).max_by_key(|port| self.ports[*port].count);
            let is_own = self.port(station.0).count > 0;
            let port = if is_own { Some(station.0) } else { others.map(|port| port as u16) };
            if !port.is_some_and(|port| self.evict(port)) {
                return Resolution::TableFull;
            }
        }
        self.insert(station, now_ns, false);
        Resolution::Pending
    }

    fn insert(&mut self, station: Station, now_ns: u64, is_kept: bool) {
        let entry =
            Entry { phase: Phase::Resolving { requests: 0 }, due_ns: now_ns, timer_ns: now_ns, item: 0, is_kept };
        self.stations.insert(station, entry);
        self.timers.push(Reverse((now_ns, station)));
        if !is_kept {
            self.queue(station);
        }
    }

    fn port(&mut self, port: u16) -> &mut Port {
        let ports = usize::from(port) + 1;
        while self.ports.len() < ports {
            self.ports.push(Port { new: Bucket::new(NEW_A_SECOND), unanswered: VecDeque::new(), count: 0 });
        }
        &mut self.ports[usize::from(port)]
    }

    fn queue(&mut self, station: Station) {
        self.queued += 1;
        let item = self.queued;
        if let Some(entry) = self.stations.get_mut(&station) {
            entry.item = item;
        }
        self.port(station.0);
        let Self { ports, stations, .. } = self;
        let port = &mut ports[usize::from(station.0)];
        port.count += 1;
        port.unanswered.push_back((item, station));
        // At least half of the examined items were added after the previous cleanup, so the average
        // cost per added item is constant.
        if port.unanswered.len() > 2 * port.count.max(UNANSWERED_MAX) {
            port.unanswered.retain(|(item, station)| stations.get(station).is_some_and(|entry| entry.is_item(*item)));
        }
    }

    /// Removes the station that has been without an answer for the longest time on a port. Returns
    /// whether a station was removed.
    fn evict(&mut self, port: u16) -> bool {
        while let Some((item, station)) = self.port(port).unanswered.pop_front() {
            if self.stations.get(&station).is_some_and(|entry| entry.is_item(item)) {
                self.stations.remove(&station);
                self.port(port).count -= 1;
                self.evicted += 1;
                self.has_evicted = true;
                return true;
            }
        }
        false
    }

    /// Records the Ethernet address of a station. Returns whether held packets or routes must be
    /// updated, and the time of the next poll.
    pub(super) fn learn(&mut self, station: Station, address: MacAddress, now_ns: u64) -> (bool, u64) {
        let Some(entry) = self.stations.get_mut(&station) else { return (false, u64::MAX) };
        let is_queued = entry.is_unanswered();
        let is_new = match &mut entry.phase {
            Phase::Known { address: before, requests, is_settled } => {
                *requests = 0;
                if *is_settled {
                    entry.due_ns = now_ns + REACHABLE_NS;
                }
                std::mem::replace(before, address) != address
            }
            phase => {
                *phase = Phase::Known { address, requests: 0, is_settled: false };
                entry.due_ns = now_ns + SETTLE_NS;
                entry.timer_ns = entry.due_ns;
                self.timers.push(Reverse((entry.due_ns, station)));
                true
            }
        };
        let due_ns = entry.due_ns;
        if is_queued {
            self.port(station.0).count -= 1;
        }
        self.learned += u64::from(is_new);
        (is_new, due_ns)
    }

    /// Returns the time of the earliest timer.
    pub(super) fn next_ns(&self) -> u64 {
        self.timers.peek().map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns)
    }

    /// Appends all due address requests to the list `requests`. Updates the states of stations
    /// whose timers have expired. Returns whether held packets or routes must be updated.
    pub(super) fn poll(&mut self, now_ns: u64, requests: &mut Vec<Request>) -> bool {
        let mut has_news = std::mem::take(&mut self.has_evicted);
        while self.next_ns() <= now_ns {
            let Some(Reverse((timer_ns, station))) = self.timers.pop() else { break };
            let Some(entry) = self.stations.get_mut(&station).filter(|entry| entry.timer_ns == timer_ns) else {
                continue;
            };
            let was_queued = entry.is_unanswered();
            let mut is_gone = false;
            if entry.due_ns <= now_ns {
                let (action, is_news) = entry.advance(now_ns);
                has_news |= is_news;
                match action {
                    Action::Nothing => {}
                    Action::Request(to) => {
                        self.asked += 1;
                        requests.push(Request { station, to });
                    }
                    Action::Silent => self.silent += 1,
                    Action::Forget => is_gone = true,
                }
            }
            entry.timer_ns = entry.due_ns;
            let (due_ns, is_queued) = (entry.due_ns, entry.is_unanswered());
            if is_gone {
                self.stations.remove(&station);
                if was_queued {
                    self.port(station.0).count -= 1;
                }
            } else {
                self.timers.push(Reverse((due_ns, station)));
                if is_queued && !was_queued {
                    self.queue(station);
                }
            }
        }
        has_news
    }

    /// Returns the stations whose addresses routes may use.
    pub(super) fn settled(&self) -> Vec<(Station, MacAddress)> {
        (self.stations.iter())
            .filter_map(|(station, entry)| match entry.phase {
                Phase::Known { address, is_settled: true, .. } => Some((*station, address)),
                _ => None,
            })
            .collect()
    }

    pub(super) fn counts(&self) -> [u64; 4] {
        [self.asked, self.learned, self.silent, self.evicted]
    }
}

impl Entry {
    fn resolution(&self) -> Resolution {
        match self.phase {
            Phase::Known { address, is_settled, .. } => Resolution::Known { address, is_settled },
            Phase::Resolving { .. } => Resolution::Pending,
            Phase::Silent => Resolution::Silent,
        }
    }

    /// Returns whether the station belongs in the queue of unanswered stations.
    fn is_unanswered(&self) -> bool {
        !self.is_kept && !matches!(self.phase, Phase::Known { .. })
    }

    fn is_item(&self, item: u64) -> bool {
        self.is_unanswered() && self.item == item
    }

    /// Updates the state of a station whose timer has expired. Returns the action to take, and
    /// whether held packets or routes must be updated.
    fn advance(&mut self, now_ns: u64) -> (Action, bool) {
        let (action, has_news, pause_ns) = match &mut self.phase {
            Phase::Known { is_settled, .. } if !*is_settled => {
                *is_settled = true;
                (Action::Nothing, true, REACHABLE_NS)
            }
            Phase::Known { address, requests, .. } if *requests < REQUESTS_MAX => {
                *requests += 1;
                (Action::Request(Some(*address)), false, RETRY_NS)
            }
            Phase::Resolving { requests } if *requests < REQUESTS_MAX => {
                *requests += 1;
                (Action::Request(None), false, RETRY_NS)
            }
            Phase::Resolving { .. } => {
                self.phase = Phase::Silent;
                (Action::Silent, true, SILENCE_NS)
            }
            Phase::Silent if !self.is_kept => (Action::Forget, false, 0),
            // A station that no longer answers may have a new Ethernet address, so the next request
            // goes to all stations of the link. Requests to a silent gateway are repeated after a
            // pause.
            Phase::Known { .. } | Phase::Silent => {
                self.phase = Phase::Resolving { requests: 1 };
                (Action::Request(None), true, RETRY_NS)
            }
        };
        self.due_ns = now_ns + pause_ns;
        (action, has_news)
    }
}

/// Action for a station whose timer has expired.
enum Action {
    Nothing,
    /// Sends a request to the last known address of the station. With `None`, the request goes to
    /// all stations.
    Request(Option<MacAddress>),
    Silent,
    Forget,
}

#[cfg(test)]
impl Table {
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        (self.stations.len(), self.timers.len(), self.ports.iter().map(|port| port.unanswered.len()).sum())
    }

    /// Panics if a count or a timer contradicts the entries.
    pub(super) fn check(&self) {
        for (number, port) in self.ports.iter().enumerate() {
            let unanswered =
                |(station, entry): &(&Station, &Entry)| usize::from(station.0) == number && entry.is_unanswered();
            assert_eq!(port.count, self.stations.iter().filter(unanswered).count(), "port {number}");
            let is_valid = |(item, station): &&(u64, Station)| {
                self.stations.get(station).is_some_and(|entry| entry.is_item(*item))
            };
            assert_eq!(port.count, port.unanswered.iter().filter(is_valid).count(), "queue of port {number}");
        }
        for (station, entry) in &self.stations {
            let timers = self.timers.iter().filter(|Reverse(timer)| *timer == (entry.timer_ns, *station)).count();
            assert!(timers > 0 && entry.timer_ns <= entry.due_ns, "{station:?} {entry:?}");
        }
    }
}

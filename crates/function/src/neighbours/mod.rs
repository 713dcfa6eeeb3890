//! Address resolution for the stations around this machine, where no operating system does it (RFC
//! 826; RFC 1122, section 2.3.2; RFC 4861, section 7).
//!
//! This module keeps the table and the timers; the caller passes the time. The responder sends and
//! receives the frames. The route functions take the resolved addresses into their next hops.
//!
//! ```text
//!            resolve              3 requests, 1 s apart             3 s
//!   (none) --------> resolving ----------------------------> silent -----> (none), or resolving
//!                    |    ^                                                if it is a gateway
//!              learn |    | 3 requests to the station without an answer
//!                    v    |
//!                    known        requests start again after 30 s without a frame from the station
//! ```
//!
//! All workers share one table, because the worker that receives an answer is not always the one
//! that sent the request. A mutex guards the table. Workers take it for packets to unresolved
//! stations and for answers, but not for forwarded packets.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use godwit_wire::MacAddress;

const MILLISECOND_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1000 * MILLISECOND_NS;
/// Interval between two requests (RFC 4861, section 10: RETRANS_TIMER).
pub(crate) const RETRY_NS: u64 = SECOND_NS;
/// Number of unanswered requests before a station is given up (RFC 4861: MAX_MULTICAST_SOLICIT,
/// MAX_UNICAST_SOLICIT).
pub(crate) const REQUESTS_MAX: u8 = 3;
/// Time without a frame from a station after which it is asked again (RFC 4861: REACHABLE_TIME).
pub(crate) const REACHABLE_NS: u64 = 30 * SECOND_NS;
/// Pause before a silent station is asked again.
pub(crate) const SILENCE_NS: u64 = 3 * SECOND_NS;
/// Time from the answer of a station until routes use its address. Packets that waited for the
/// station leave within this time, so no later packet overtakes them.
pub(crate) const SETTLE_NS: u64 = 20 * MILLISECOND_NS;
/// Minimum interval between two searches of the table for due entries.
const LOOK_NS: u64 = 5 * MILLISECOND_NS;
/// Maximum number of stations in the table, including silent ones.
pub(crate) const STATIONS_MAX: usize = 4096;

/// Station, identified by its port and IP address.
pub(crate) type Station = (u16, IpAddr);

/// Table of neighbouring stations. Each responder has one.
#[derive(Debug)]
pub struct Neighbours {
    /// Ethernet addresses of this machine, indexed by port.
    sources: Vec<Option<MacAddress>>,
    state: Mutex<State>,
    /// Version of the table. It grows with each change that concerns waiting packets or routes.
    version: AtomicU64,
    /// Time of the next search for due entries.
    next_ns: AtomicU64,
    /// Whether any next hop needs resolution.
    used: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Next hops that need resolution, by function and index of the next hop.
    targets: HashMap<(usize, u32), Target>,
    stations: HashMap<Station, Entry>,
    asked: u64,
    learned: u64,
    silent: u64,
}

/// Next hop whose station must be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) port: u16,
    /// Address of the gateway. `None`: the packet's destination is itself the station.
    pub(crate) gateway: Option<IpAddr>,
    /// MTU of the next hop, in bytes.
    pub(crate) mtu: u16,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    phase: Phase,
    /// Time at which the entry changes its phase or needs another request.
    due_ns: u64,
    /// The station is a gateway, which is never forgotten.
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

/// State of a station, as seen by a packet that is sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// The address is known.
    Known {
        address: MacAddress,
        /// Whether all packets that waited for the station have left.
        is_settled: bool,
    },
    /// The station is being resolved. The packet may wait.
    Pending,
    /// The station does not answer.
    Silent,
    /// The table is full.
    TableFull,
}

/// Address request that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) station: Station,
    /// Last known address of the station. `None`: the request is sent to all stations.
    pub(crate) to: Option<MacAddress>,
}

impl Neighbours {
    /// Creates an empty table. `sources` holds this machine's Ethernet address for each port that
    /// has one.
    pub(crate) fn new(sources: Vec<Option<MacAddress>>) -> Self {
        let (version, next_ns) = Default::default();
        Self { sources, state: Mutex::default(), version, next_ns, used: AtomicBool::new(false) }
    }

    /// Returns this machine's Ethernet address on `port`. Without one, no requests can be sent
    /// there.
    pub(crate) fn source(&self, port: u16) -> Option<MacAddress> {
        *self.sources.get(usize::from(port))?
    }

    /// Registers a next hop of a function for resolution. A gateway is requested at once.
    pub(crate) fn register(&self, function: usize, next_hop: u32, target: Target) {
        let mut state = self.lock();
        state.targets.insert((function, next_hop), target);
        if let Some(gateway) = target.gateway {
            let entry = Entry { phase: Phase::Resolving { requests: 0 }, due_ns: 0, is_kept: true };
            state.stations.insert((target.port, gateway), entry);
        }
        self.used.store(true, Ordering::Release);
    }

    /// Returns whether any next hop needs resolution.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// Returns the version, which grows with each change that concerns waiting packets or routes.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the time of the next call of [`Neighbours::poll`] that has work to do.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns.load(Ordering::Acquire)
    }

    /// Looks up the station of a packet for `destination`, and starts its resolution if it is not
    /// in the table.
    ///
    /// Returns `None` if this next hop is not registered.
    pub(crate) fn resolve(
        &self,
        function: usize,
        next_hop: u32,
        destination: IpAddr,
        now_ns: u64,
    ) -> Option<(Station, Target, Resolution)> {
        let mut state = self.lock();
        let target = *state.targets.get(&(function, next_hop))?;
        let station = (target.port, target.gateway.unwrap_or(destination));
        let known = state.stations.get(&station).map(Entry::resolution);
        let resolution = match known {
            Some(resolution) => resolution,
            None if !state.make_room() => Resolution::TableFull,
            None => {
                let entry = Entry { phase: Phase::Resolving { requests: 0 }, due_ns: now_ns, is_kept: false };
                state.stations.insert(station, entry);
                self.next_ns.fetch_min(now_ns, Ordering::AcqRel);
                Resolution::Pending
            }
        };
        Some((station, target, resolution))
    }

    /// Returns the state of a station that packets wait for.
    pub(crate) fn resolution(&self, station: Station) -> Resolution {
        // Only silent stations are forgotten.
        self.lock().stations.get(&station).map_or(Resolution::Silent, Entry::resolution)
    }

    /// Records the address of a station. Stations that are not in the table are ignored.
    pub(crate) fn learn(&self, station: Station, address: MacAddress, now_ns: u64) {
        if address.is_multicast() || address == MacAddress::default() {
            return;
        }
        let mut state = self.lock();
        let Some(entry) = state.stations.get_mut(&station) else { return };
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
                self.next_ns.fetch_min(entry.due_ns, Ordering::AcqRel);
                true
            }
        };
        if is_new {
            state.learned += 1;
            self.version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Appends the requests that are due to `requests`, and advances the phases of due stations.
    pub(crate) fn poll(&self, now_ns: u64, requests: &mut Vec<Request>) {
        if now_ns < self.next_ns() {
            return;
        }
        let mut state = self.lock();
        let State { stations, asked, silent, .. } = &mut *state;
        let (mut next_ns, mut has_changed) = (u64::MAX, false);
        stations.retain(|&station, entry| {
            if entry.due_ns <= now_ns {
                let (action, has_news) = entry.advance(now_ns);
                has_changed |= has_news;
                match action {
                    Action::Nothing => {}
                    Action::Request(to) => {
                        *asked += 1;
                        requests.push(Request { station, to });
                    }
                    Action::Silent => *silent += 1,
                    Action::Forget => return false,
                }
            }
            next_ns = next_ns.min(entry.due_ns);
            true
        });
        self.next_ns.store(next_ns.max(now_ns + LOOK_NS), Ordering::Release);
        if has_changed {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns the stations whose addresses routes may use, sorted.
    pub(crate) fn settled(&self) -> Vec<(Station, MacAddress)> {
        let state = self.lock();
        let mut settled: Vec<_> = (state.stations.iter())
            .filter_map(|(station, entry)| match entry.phase {
                Phase::Known { address, is_settled: true, .. } => Some((*station, address)),
                _ => None,
            })
            .collect();
        settled.sort_unstable_by_key(|(station, _)| *station);
        settled
    }

    /// Returns the counters: requests sent, addresses learned, stations found silent.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let state = self.lock();
        [state.asked, state.learned, state.silent]
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether there is room for another station. Removes silent stations if the table is
    /// full.
    fn make_room(&mut self) -> bool {
        if self.stations.len() >= STATIONS_MAX {
            self.stations.retain(|_, entry| entry.is_kept || !matches!(entry.phase, Phase::Silent));
        }
        self.stations.len() < STATIONS_MAX
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

    /// Advances a due entry. Returns the action to take, and whether waiting packets or routes must
    /// be updated.
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
            // A known station may have a new address by now. A gateway is never given up.
            Phase::Known { .. } | Phase::Silent => {
                self.phase = Phase::Resolving { requests: 1 };
                (Action::Request(None), true, RETRY_NS)
            }
        };
        self.due_ns = now_ns + pause_ns;
        (action, has_news)
    }
}

/// Action for a station whose entry is due.
enum Action {
    Nothing,
    /// Send a request to the last known address, or to all stations.
    Request(Option<MacAddress>),
    Silent,
    Forget,
}

#[cfg(test)]
mod tests;

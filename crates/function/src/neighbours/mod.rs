//! Address resolution for the stations around this machine, if no operating system does it (RFC
//! 826; RFC 1122, section 2.3.2; RFC 4861, section 7).
//!
//! This module keeps the table and the timers, and the caller passes the time. The responder
//! function sends and receives the frames. The functions that have routes copy the resolved
//! addresses into their next hops.
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
//! that sent the request. A mutex guards the table. Workers lock it for packets to unresolved
//! stations and for answers, but not for forwarded packets. The work per packet is constant, as
//! `table.rs` explains. A scan of an on-link prefix costs as much as other unresolved packets.

mod bucket;
mod kernel;
mod table;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use godwit_wire::MacAddress;

pub(crate) use bucket::Bucket;
pub(crate) use kernel::KernelStations;
use table::Table;

const MILLISECOND_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1000 * MILLISECOND_NS;
/// Interval between two address requests to a station, in nanoseconds (RETRANS_TIMER of RFC 4861,
/// section 10).
pub(crate) const RETRY_NS: u64 = SECOND_NS;
/// Number of unanswered requests after which a station counts as silent (MAX_MULTICAST_SOLICIT and
/// MAX_UNICAST_SOLICIT of RFC 4861, section 10).
pub(crate) const REQUESTS_MAX: u8 = 3;
/// Time after the last frame from a station until the station is probed again, in nanoseconds
/// (REACHABLE_TIME of RFC 4861, section 10).
pub(crate) const REACHABLE_NS: u64 = 30 * SECOND_NS;
/// Pause before a silent station is asked again.
pub(crate) const SILENCE_NS: u64 = 3 * SECOND_NS;
/// Time between a station's answer and the use of its address by routes, in nanoseconds. Held
/// packets leave in this time, so later packets do not overtake them.
pub(crate) const SETTLE_NS: u64 = 20 * MILLISECOND_NS;
/// Minimum interval between two checks of due entries.
const LOOK_NS: u64 = 5 * MILLISECOND_NS;
/// Maximum number of stations in the table, including stations that do not answer.
pub(crate) const STATIONS_MAX: usize = 4096;
/// Maximum number of stations on one port that have not answered (RFC 6583, section 7.1). Because
/// of the rate limit [`NEW_A_SECOND`], each of these stations stays in the table for at least two
/// seconds.
const UNANSWERED_MAX: usize = 1024;
/// Maximum number of new stations per second on one port.
const NEW_A_SECOND: u32 = 512;
/// Maximum number of new stations per second that packets from one ingress port can add to the
/// table. Packets from other ports can use the remainder of [`NEW_A_SECOND`].
pub(crate) const NEW_PER_SENDER: u32 = NEW_A_SECOND / 2;

/// Station (a host or router on the link of a port), identified by its port and IP address.
pub(crate) type Station = (u16, IpAddr);

/// Table of neighbouring stations. Each responder function has one table.
#[derive(Debug)]
pub struct Neighbours {
    /// Ethernet addresses of this machine, indexed by port.
    sources: Vec<Option<MacAddress>>,
    table: Mutex<Table>,
    /// Version of the table. It increases when routes or waiting packets must be examined again.
    version: AtomicU64,
    /// Time of the next search for due entries.
    next_ns: AtomicU64,
    /// Whether any next hop needs resolution.
    used: AtomicBool,
    /// Whether the full table has refused a station since the last call to
    /// [`Neighbours::take_full`].
    full: AtomicBool,
    /// Stations that the operating system resolves.
    kernel: KernelStations,
}

/// Next hop for which a station must be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) port: u16,
    /// IP address of the gateway. With `None`, each packet is sent directly to its destination on
    /// the link.
    pub(crate) gateway: Option<IpAddr>,
    /// MTU of the next hop, in bytes.
    pub(crate) mtu: u16,
}

/// State of a station to which a packet is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// The address is known.
    Known {
        address: MacAddress,
        /// Whether all packets held for the station have left.
        is_settled: bool,
    },
    /// The address of the station is not known yet. A packet may be held until then.
    Pending,
    /// The station does not answer.
    Silent,
    /// The rate limit for new stations is reached.
    Policed,
    /// The table is full of stations that have answered.
    TableFull,
}

/// Address request that must be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) station: Station,
    /// Last known address of the station, to which the request is sent. With `None`, the request
    /// goes to all stations on the link.
    pub(crate) to: Option<MacAddress>,
}

impl Neighbours {
    /// Creates an empty table. `sources` contains the Ethernet address of this machine on each
    /// port, or `None` for a port without an address.
    pub(crate) fn new(sources: Vec<Option<MacAddress>>) -> Self {
        let (version, next_ns) = Default::default();
        let [used, full] = Default::default();
        let kernel = KernelStations::default();
        Self { sources, table: Mutex::default(), version, next_ns, used, full, kernel }
    }

    /// Returns the Ethernet address of this machine on `port`. Returns `None` if the machine has no
    /// address there and thus cannot send requests.
    pub(crate) fn source(&self, port: u16) -> Option<MacAddress> {
        *self.sources.get(usize::from(port))?
    }

    /// Returns the stations that the operating system resolves.
    pub(crate) fn kernel(&self) -> &KernelStations {
        &self.kernel
    }

    /// Registers a next hop of a function, so that the addresses of its stations are resolved. For
    /// a gateway, the first request is sent at once.
    pub(crate) fn register(&self, function: usize, next_hop: u32, target: Target) {
        self.lock().register(function, next_hop, target);
        self.used.store(true, Ordering::Release);
    }

    /// Returns whether any next hop needs resolution.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// Returns the version of the table, which increases when routes or waiting packets must be
    /// examined again.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the earliest time at which [`Neighbours::poll`] has work to do.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns.load(Ordering::Acquire)
    }

    /// Returns whether the full table has refused a station since the last call.
    pub(crate) fn take_full(&self) -> bool {
        self.full.load(Ordering::Relaxed) && self.full.swap(false, Ordering::Relaxed)
    }

    /// Returns the station to which a packet for `destination` is sent, and the state of the
    /// station. If the station is not in the table, the first request for its address is sent.
    /// `from` is the ingress port of the packet.
    ///
    /// Returns `None` if the next hop is not registered.
    pub(crate) fn resolve(
        &self,
        function: usize,
        next_hop: u32,
        destination: IpAddr,
        from: u16,
        now_ns: u64,
    ) -> Option<(Station, Target, Resolution)> {
        let mut table = self.lock();
        let target = table.target(function, next_hop)?;
        let station = (target.port, target.gateway.unwrap_or(destination));
        let resolution = table.resolution(station).unwrap_or_else(|| {
            let resolution = table.admit(station, from, now_ns);
            if resolution == Resolution::Pending {
                self.next_ns.fetch_min(now_ns, Ordering::AcqRel);
            } else if resolution == Resolution::TableFull {
                self.full.store(true, Ordering::Relaxed);
            }
            resolution
        });
        Some((station, target, resolution))
    }

    /// Determines the states of stations for which packets are held.
    pub(crate) fn find_states(&self, stations: &mut [(Station, Resolution)]) {
        if stations.is_empty() {
            return;
        }
        let table = self.lock();
        for (station, resolution) in stations {
            // The table forgets only stations that have not answered. A station that is not in the
            // table is therefore silent.
            *resolution = table.resolution(*station).unwrap_or(Resolution::Silent);
        }
    }

    #[cfg(test)]
    fn resolution(&self, station: Station) -> Resolution {
        let mut states = [(station, Resolution::Pending)];
        self.find_states(&mut states);
        states[0].1
    }

    /// Records the Ethernet address of a station. A station that is not in the table is ignored.
    pub(crate) fn learn(&self, station: Station, address: MacAddress, now_ns: u64) {
        if address.is_multicast() || address == MacAddress::default() {
            return;
        }
        let (has_news, next_ns) = self.lock().learn(station, address, now_ns);
        self.next_ns.fetch_min(next_ns, Ordering::AcqRel);
        if has_news {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Appends all due address requests to the list `requests`. Updates the states of stations
    /// whose timers have expired.
    pub(crate) fn poll(&self, now_ns: u64, requests: &mut Vec<Request>) {
        if now_ns < self.next_ns() {
            return;
        }
        let mut table = self.lock();
        let has_news = table.poll(now_ns, requests);
        self.next_ns.store(table.next_ns().max(now_ns + LOOK_NS), Ordering::Release);
        drop(table);
        if has_news {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns the stations whose Ethernet addresses routes may use, sorted by station.
    pub(crate) fn settled(&self) -> Vec<(Station, MacAddress)> {
        let mut settled = self.lock().settled();
        settled.sort_unstable_by_key(|(station, _)| *station);
        settled
    }

    /// Returns the numbers of requests sent, addresses learned, stations without an answer, and
    /// stations removed to make room.
    pub(crate) fn counts(&self) -> [u64; 4] {
        self.lock().counts()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

//! Routes that change while packets flow.
//!
//! [`Routing`] is the interface between a function that forwards by routes and the sources of
//! changes: operators, the routing table of the operating system, and routing daemons.
//!
//! A route maps a prefix to a *next hop*, which has an index. Routes share next hops, so a new
//! address of a neighbour is stored in one place. Changes run concurrently with lookups on all
//! devices. A lookup returns the result from before or after a change, and nothing else
//! (`docs/decisions/0009-route-changes.md`).

mod commands;
mod kernel;
mod next_hops;
mod prefix;
mod resolve;
mod reverse_path;

use std::net::IpAddr;

use godwit_wire::MacAddress;

use crate::{Error, Running};

pub use commands::command;
pub(crate) use kernel::{INTERVAL as KERNEL_ROUTES_INTERVAL, KernelRoutes, KernelRoutesConfig};
pub(crate) use next_hops::{Format, NextHops, Record};
pub use prefix::{Family, Prefix};
pub(crate) use resolve::{DynamicNextHop, INTERVAL as RESOLVE_INTERVAL, Resolver};
pub(crate) use reverse_path::{ReversePath, ReversePathConfig, ReversePathHost, SourceLookup, SourceRoute, packet_of};

/// Treatment of the packets of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// Packets are forwarded to another station.
    Forward(Adjacency),
    /// Packets belong to a station whose address is unknown: [`Adjacency::destination`] is not
    /// valid.
    Unresolved(Adjacency),
    /// Packets are delivered to this machine.
    Local,
    /// Packets are dropped.
    Blackhole,
    /// Packets are treated as if no route covered them. Shorter prefixes do not apply.
    Unreachable,
}

/// Port and addresses for packets to a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// Output port, below 256.
    pub port: u16,
    /// Ethernet address of the station.
    pub destination: MacAddress,
    /// Ethernet address of the port.
    pub source: MacAddress,
    /// MTU: maximum length of an IP packet, in bytes. [`Adjacency::MTU_MAX`] means no limit.
    pub mtu: u16,
}

impl Adjacency {
    /// MTU that no packet exceeds.
    pub const MTU_MAX: u16 = u16::MAX;
}

impl NextHop {
    /// Returns a next hop to a station, without an MTU.
    pub fn forward(port: u16, destination: MacAddress, source: MacAddress) -> Self {
        Self::Forward(Adjacency { port, destination, source, mtu: Adjacency::MTU_MAX })
    }

    /// Returns the adjacency of the station, if the next hop is one.
    pub fn adjacency(&self) -> Option<&Adjacency> {
        match self {
            Self::Forward(adjacency) | Self::Unresolved(adjacency) => Some(adjacency),
            Self::Local | Self::Blackhole | Self::Unreachable => None,
        }
    }
}

/// Addition, change or withdrawal of the route of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteChange {
    /// Prefix of the table's address family.
    pub prefix: Prefix,
    /// Index of the next hop. `None` withdraws the route, so that the next shorter prefix applies.
    /// A withdrawal of a missing route has no effect.
    pub next_hop: Option<u32>,
}

/// Error of [`Routing::change`].
#[derive(Debug)]
pub struct Unchanged {
    /// Number of changes that were made before the error. They stay in effect.
    pub made: usize,
    /// Reason why the next change was not made.
    pub error: Error,
}

/// Routes and next hops of a function. Changes from several threads are serialized.
///
/// `running` is the engine. A change copies bytes of the image to devices and may wait until
/// packets in flight have left. Workers must therefore not call these methods.
pub trait Routing: Send + Sync {
    /// Returns the address family of the routes.
    fn family(&self) -> Family;

    /// Adds next hops without routes. Returns their indices, in order. An index is reused after its
    /// next hop was removed and no packet in flight can refer to it.
    ///
    /// # Errors
    /// [`Error::Command`] if there is no room for all of them, or a device did not take them. None
    /// is added in this case.
    fn add_next_hops(&self, next_hops: &[NextHop], running: &dyn Running) -> Result<Vec<u32>, Error>;

    /// Changes next hops, and with them all routes that use them.
    ///
    /// A single store suffices if the address of a station changes, or becomes known or unknown.
    /// Other changes make the next hop unresolved for a moment.
    ///
    /// # Errors
    /// [`Error::Command`] if one of the next hops does not exist (nothing is changed), or if a
    /// device did not take the change.
    fn set_next_hops(&self, next_hops: &[(u32, NextHop)], running: &dyn Running) -> Result<(), Error>;

    /// Removes next hops that no route uses.
    ///
    /// # Errors
    /// [`Error::Command`] if a route uses one of them, or if one does not exist. None is removed in
    /// this case.
    fn remove_next_hops(&self, indexes: &[u32], running: &dyn Running) -> Result<(), Error>;

    /// Applies changes in order. The last change of a prefix wins. A batch is much cheaper than
    /// single changes.
    ///
    /// # Errors
    /// Returns the reason why a change failed: no room, a device that did not take it, or a missing
    /// next hop. Earlier changes stay in effect.
    fn change(&self, changes: &[RouteChange], running: &dyn Running) -> Result<(), Unchanged>;

    /// Returns the longest prefix that covers an address, and its next hop.
    fn find(&self, address: IpAddr) -> Option<(Prefix, u32)>;

    /// Returns the next hop of exactly this prefix.
    fn route(&self, prefix: Prefix) -> Option<u32>;

    /// Returns all routes, sorted by address, then by length.
    fn routes(&self) -> Vec<(Prefix, u32)>;

    /// Returns the next hop with this index.
    fn next_hop(&self, index: u32) -> Option<NextHop>;

    /// Returns all next hops with their indices.
    fn next_hops(&self) -> Vec<(u32, NextHop)>;

    /// Returns the names of the configured next hops, by index from 0.
    fn next_hop_names(&self) -> &[String];
}

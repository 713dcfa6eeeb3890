//! Routes that change while packets flow.
//!
//! [`Routing`] is the interface to a function that forwards packets by routes. Its users are the
//! sources of changes: operators, the routing table of the operating system, and routing daemons.
//!
//! A route maps a prefix to a *next hop*, which has an index. Routes share next hops, so a new
//! address of a neighbour is stored in one place. Changes run concurrently with lookups on all
//! devices. A lookup returns the result from before or after a change, and nothing else
//! (`docs/decisions/0009-route-changes.md`).

mod commands;
mod kernel;
mod next_hops;
mod own;
mod prefix;
mod resolve;
mod reverse_path;
mod via;

use std::net::IpAddr;

use godwit_wire::MacAddress;

use crate::{Error, Running};

pub use commands::command;
#[doc(hidden)]
pub use kernel::netlink_messages;
pub(crate) use kernel::{INTERVAL as KERNEL_ROUTES_INTERVAL, KernelRoutes, KernelRoutesConfig};
pub(crate) use next_hops::{Format, NextHops, Record};
pub use own::OwnAddresses;
pub use prefix::{Family, Prefix};
pub(crate) use resolve::{DynamicNextHop, INTERVAL as RESOLVE_INTERVAL, Resolver};
pub(crate) use reverse_path::{ReversePath, ReversePathConfig, ReversePathHost, SourceLookup, SourceRoute, packet_of};
pub(crate) use via::add_via;

/// Next hop of a route, which states what happens to its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// Packets are forwarded to another station, such as a router.
    Forward(Adjacency),
    /// Packets are for another station whose Ethernet address is not known yet.
    /// [`Adjacency::destination`] is therefore not valid.
    Unresolved(Adjacency),
    /// Packets are delivered to this machine.
    Local,
    /// Packets are dropped.
    Blackhole,
    /// Packets are treated as if no route covered their address. Routes with shorter prefixes are
    /// not tried.
    Unreachable,
}

/// Egress port and Ethernet addresses for packets to another station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// Number of the egress port, at most 255.
    pub port: u16,
    /// Ethernet address of the station.
    pub destination: MacAddress,
    /// Ethernet address of the egress port.
    pub source: MacAddress,
    /// MTU, which is the maximum length of an IP packet in bytes. The value [`Adjacency::MTU_MAX`]
    /// means that there is no limit.
    pub mtu: u16,
}

impl Adjacency {
    /// Value of the MTU that no packet exceeds.
    pub const MTU_MAX: u16 = u16::MAX;
}

impl NextHop {
    /// Returns a next hop to another station, without an MTU limit.
    pub fn forward(port: u16, destination: MacAddress, source: MacAddress) -> Self {
        Self::Forward(Adjacency { port, destination, source, mtu: Adjacency::MTU_MAX })
    }

    /// Returns the port and the addresses of a next hop to another station. Returns `None` for all
    /// other next hops.
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
    /// Prefix of the route. It must have the address family of the table.
    pub prefix: Prefix,
    /// Index of the next hop. The value `None` removes the route if it exists. The next shorter
    /// prefix then applies.
    pub next_hop: Option<u32>,
}

/// Error of [`Routing::change`] after some of the changes.
#[derive(Debug)]
pub struct Unchanged {
    /// Number of changes that were made before the error. These changes stay in effect.
    pub made: usize,
    /// Reason why the next change in the list was not made.
    pub error: Error,
}

/// Routes and next hops of a function. Several threads may call the methods, and their changes are
/// made one after the other.
///
/// `running` gives access to the running engine. A change copies bytes of the function's tables to
/// devices, and may wait until packets in flight have left. Workers must therefore not call these
/// methods.
pub trait Routing: Send + Sync {
    /// Returns the address family of the routes.
    fn family(&self) -> Family;

    /// Adds next hops that no route uses yet. Returns their indices, in order. The index of a
    /// removed next hop is used again once no packet in flight can refer to it.
    ///
    /// # Errors
    /// Returns [`Error::Command`] if there is no room for all next hops, or if a device did not
    /// receive them. No next hop is added in this case.
    fn add_next_hops(&self, next_hops: &[NextHop], running: &dyn Running) -> Result<Vec<u32>, Error>;

    /// Changes next hops, and with them all routes that use them.
    ///
    /// A single memory write applies the change if it only affects the Ethernet address of a
    /// station. During any other change, the next hop is unresolved for a moment.
    ///
    /// # Errors
    /// Returns [`Error::Command`] if one of the next hops does not exist, or if a device did not
    /// receive the change. In the first case, no next hop is changed.
    fn set_next_hops(&self, next_hops: &[(u32, NextHop)], running: &dyn Running) -> Result<(), Error>;

    /// Removes next hops that no route uses.
    ///
    /// # Errors
    /// Returns [`Error::Command`] if a route uses one of the next hops, or if one does not exist.
    /// No next hop is removed in this case.
    fn remove_next_hops(&self, indexes: &[u32], running: &dyn Running) -> Result<(), Error>;

    /// Applies route changes in order. If a prefix occurs several times, its last change counts.
    /// One call with many changes is much cheaper than many calls.
    ///
    /// # Errors
    /// Returns the reason why a change failed. Either there is no room, a device did not receive
    /// the change, or the next hop does not exist. Earlier changes stay in effect.
    fn change(&self, changes: &[RouteChange], running: &dyn Running) -> Result<(), Unchanged>;

    /// Returns the longest route prefix that covers an address, and the index of its next hop.
    fn find(&self, address: IpAddr) -> Option<(Prefix, u32)>;

    /// Returns the index of the next hop of exactly this prefix.
    fn route(&self, prefix: Prefix) -> Option<u32>;

    /// Returns all routes, sorted by address and then by prefix length.
    fn routes(&self) -> Vec<(Prefix, u32)>;

    /// Returns the next hop with this index.
    fn next_hop(&self, index: u32) -> Option<NextHop>;

    /// Returns all next hops with their indices.
    fn next_hops(&self) -> Vec<(u32, NextHop)>;

    /// Returns the names of the configured next hops. Their indices start at 0.
    fn next_hop_names(&self) -> &[String];

    /// Returns the port names by port number. The list is empty if the function was not built from
    /// a configuration.
    fn port_names(&self) -> &[String];
}

//! Routes that change while packets flow: what a function that forwards by routes offers those who know of changes
//! (operators, the routing table of the operating system, a routing daemon).
//!
//! A route leads from a prefix to a *next hop*, which has an index: several routes share one, and what is known of a
//! neighbour is changed in one place. All changes go on beside look-ups, on every device; a look-up gives what was the
//! answer before or what is the answer after, and never anything else (`docs/decisions/0009-route-changes.md`).

mod commands;
mod follow;
mod next_hops;
mod prefix;
mod resolve;

use std::net::IpAddr;

use godwit_wire::MacAddress;

use crate::{Error, Running};

pub use commands::command;
pub(crate) use follow::{FollowConfig, Follower, INTERVAL as FOLLOW_INTERVAL};
pub(crate) use next_hops::{Format, NextHops, Record};
pub use prefix::{Family, Prefix};
pub(crate) use resolve::{Asked, INTERVAL as RESOLVE_INTERVAL, Resolver};

/// What is done with packets of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// They go to another station.
    Forward(Adjacency),
    /// They would go to a station whose address is not known yet: [`Adjacency::destination`] says nothing.
    Unresolved(Adjacency),
    /// They are for this machine.
    Local,
    /// They are dropped.
    Blackhole,
    /// It is as if there were no route, and a shorter prefix does not count.
    Unreachable,
}

/// How a station is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// By this port, below 256.
    pub port: u16,
    /// The station's address.
    pub destination: MacAddress,
    /// The port's own address.
    pub source: MacAddress,
    /// Longest IP packet that goes there, bytes; [`Adjacency::MTU_MAX`]: of any length.
    pub mtu: u16,
}

impl Adjacency {
    /// No packet is longer.
    pub const MTU_MAX: u16 = u16::MAX;
}

impl NextHop {
    /// To this station, with packets of any length.
    pub fn forward(port: u16, destination: MacAddress, source: MacAddress) -> Self {
        Self::Forward(Adjacency { port, destination, source, mtu: Adjacency::MTU_MAX })
    }

    /// The station, where there is one.
    pub fn adjacency(&self) -> Option<&Adjacency> {
        match self {
            Self::Forward(adjacency) | Self::Unresolved(adjacency) => Some(adjacency),
            Self::Local | Self::Blackhole | Self::Unreachable => None,
        }
    }
}

/// A prefix gets a route, or another one, or none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteChange {
    /// Of the table's family.
    pub prefix: Prefix,
    /// Index of the next hop; `None`: the route is withdrawn, and what it covered falls to the next shorter prefix. To
    /// withdraw what is not there is no error.
    pub next_hop: Option<u32>,
}

/// A change that could not be made.
#[derive(Debug)]
pub struct Unchanged {
    /// So many changes before it are made, and stay.
    pub made: usize,
    /// Why.
    pub error: Error,
}

/// The routes and next hops of a function. One thread at a time changes them; others wait.
///
/// `running` is the engine around the function. It is asked to bring changed bytes of the image to devices, and sometimes to
/// wait until packets in flight are gone, so that none of these is for workers.
pub trait Routing: Send + Sync {
    /// Of which addresses.
    fn family(&self) -> Family;

    /// Adds next hops and says their indexes, in order. No route leads there yet. An index is used again when it has been
    /// removed and no packet can know it.
    ///
    /// # Errors
    /// [`Error::Command`]: there is no room for them all, or a device did not take them; none is added.
    fn add_next_hops(&self, next_hops: &[NextHop], running: &dyn Running) -> Result<Vec<u32>, Error>;

    /// Changes next hops; whatever leads there follows. A station that gets another address, or whose address becomes known or
    /// unknown, is changed by one store; other changes make the next hop unresolved for a moment.
    ///
    /// # Errors
    /// [`Error::Command`]: there is no such next hop (nothing is changed), or a device did not take the change.
    fn set_next_hops(&self, next_hops: &[(u32, NextHop)], running: &dyn Running) -> Result<(), Error>;

    /// Removes next hops that no route leads to.
    ///
    /// # Errors
    /// [`Error::Command`]: a route leads to one of them, or there is no such next hop; none is removed.
    fn remove_next_hops(&self, indexes: &[u32], running: &dyn Running) -> Result<(), Error>;

    /// Makes changes in their order. Of several for one prefix the last counts. Many at once cost far less than one by one.
    ///
    /// # Errors
    /// The first change that could not be made, for want of room, or because a device did not take it, or because there is
    /// no such next hop; those before it are made.
    fn change(&self, changes: &[RouteChange], running: &dyn Running) -> Result<(), Unchanged>;

    /// The longest prefix that covers an address, and its next hop.
    fn find(&self, address: IpAddr) -> Option<(Prefix, u32)>;

    /// Index of the next hop of exactly this prefix.
    fn route(&self, prefix: Prefix) -> Option<u32>;

    /// All routes, by address, then by length.
    fn routes(&self) -> Vec<(Prefix, u32)>;

    /// What is at an index.
    fn next_hop(&self, index: u32) -> Option<NextHop>;

    /// All next hops that there are.
    fn next_hops(&self) -> Vec<(u32, NextHop)>;

    /// Names of the next hops that the configuration names, by index from 0 on.
    fn next_hop_names(&self) -> &[String];
}

//! Parser and configuration of routes and next hops, shared by all functions that forward by
//! longest prefix.

mod address;
mod config;
mod file;

pub use address::Address;
pub(crate) use config::{NextHopConfig, Resolved, RouteConfig, Stanza, parse_mac, port_index};
pub use file::{Names, parse, parse_prefix};

/// Route from a prefix to a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route<A> {
    /// Address of the prefix, in host byte order. All bits after the first `length` bits are 0.
    pub prefix: A,
    /// Length of the prefix, in bits.
    pub length: u8,
    /// Index of the next hop.
    pub next_hop: u32,
}

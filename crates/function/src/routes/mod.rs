//! Routes and next hops: what the functions that forward by prefix share.

mod address;
mod config;
mod file;

pub use address::Address;
pub(crate) use config::{NextHopConfig, Resolved, RouteConfig, Stanza, parse_mac, port_index};
pub use file::{Names, parse, parse_prefix};

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route<A> {
    /// The address, host byte order; bits beyond `length` are 0.
    pub prefix: A,
    /// Bits of the address that count.
    pub length: u8,
    /// Index of the next hop.
    pub next_hop: u32,
}

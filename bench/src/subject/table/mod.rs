//! Lookup tables without packets.

pub(super) mod ipv4;
pub(super) mod ipv6;
pub(super) mod l2;

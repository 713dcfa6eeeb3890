//! Longest-prefix match of IPv4 addresses in a DIR-24-8 table. Routes change while kernels look up
//! addresses.

mod build;
mod rib;
mod table;

pub(crate) use build::{
    Built, GROUP_ENTRIES, Group, Layout, NARROW, NO_ROUTE, ROUTES_MAX, TBL24_ENTRIES, WIDE, check_count,
};
pub(crate) use rib::Rib;
pub(crate) use table::{Change, Slots, Table};

/// Route from an IPv4 prefix of length 0 to 32 to a next hop. A next hop is a number whose meaning
/// depends on the packet function.
pub(crate) type Route = crate::routes::Route<u32>;

//! Longest matching IPv4 prefix in a DIR-24-8 table, whose routes change while lookups run.

mod build;
mod rib;
mod table;

pub(crate) use build::{
    Built, GROUP_ENTRIES, Group, Layout, NARROW, NO_ROUTE, ROUTES_MAX, TBL24_ENTRIES, WIDE, check_count,
};
pub(crate) use rib::Rib;
pub(crate) use table::{Change, Slots, Table};

/// Route to an IPv4 prefix of length 0 to 32. The next hop is a number, which the owner of the
/// table interprets.
pub(crate) type Route = crate::routes::Route<u32>;

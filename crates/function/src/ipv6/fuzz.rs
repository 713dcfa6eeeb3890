//! Entry points for fuzz targets. They panic if an invariant is violated.

use std::sync::Arc;

use godwit_wire::MacAddress;

use super::reference::Prefixes;
use super::rib::Rib;
use super::tables::Built;
use super::{Form, Ipv6, Route};
use crate::Function;
use crate::routes::Address;
use crate::routing::NextHop;

/// Length of an encoded route, in bytes. The encoding consists of the prefix in network byte order,
/// its length and its next hop.
const ROUTE_BYTES: usize = 18;
/// Maximum number of routes in one fuzz input. More routes cost time without finding more errors.
const ROUTES_MAX: usize = 64;
const NEXT_HOPS: u8 = 8;
/// Number of address bits that select an entry of the root table. The root table is small, because
/// a table of 4 MiB would slow the fuzzing down.
const ROOT_BITS: u32 = 16;

/// Returns a forwarding function with a few routes and with next hops of all kinds. No route covers
/// addresses that begin with the byte 0x24.
pub fn function(form: Form) -> Arc<dyn Function> {
    let (destination, source) = (MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
    let forward = NextHop::forward(0, destination, source);
    let route = |first: u128, length: u8, next_hop| Route { prefix: first << 112, length, next_hop };
    let routes = [route(0x2001, 16, 0), route(0x2600, 8, 0), route(0x2601, 16, 1), route(0x2602, 16, 2)];
    let function = Ipv6::new(&routes, &[forward, NextHop::Local, NextHop::Blackhole], Some(form));
    Arc::new(function.expect("a few routes fit into any table"))
}

/// Decodes `bytes` as routes and builds both lookup structures. Checks that the structures agree
/// with a linear search at the first and last address of each prefix.
pub fn ipv6_routes(bytes: &[u8]) {
    let routes: Vec<Route> = bytes
        .as_chunks::<ROUTE_BYTES>()
        .0
        .iter()
        .take(ROUTES_MAX)
        .map(|bytes| {
            let [address @ .., length, next_hop] = *bytes;
            let length = length % 129;
            let prefix = u128::from_be_bytes(address).masked(length);
            Route { prefix, length, next_hop: u32::from(next_hop % NEXT_HOPS) }
        })
        .collect();
    let rib = Rib::new(&routes);
    let mut prefixes = Prefixes::new();
    routes.iter().for_each(|route| prefixes.set(route.prefix, route.length, Some(route.next_hop)));
    for form in [Form::Trie, Form::Hash] {
        let built = Built::new(form, &rib, ROOT_BITS).expect("a few routes fit into any table");
        let table = built.table();
        for route in &routes {
            let last = route.prefix | !u128::MAX.masked(route.length);
            for address in [route.prefix, route.prefix.wrapping_sub(1), last, last.wrapping_add(1)] {
                let found = table.lookup(address);
                assert_eq!(found, prefixes.lookup(address), "{form:?}: {address:#x} of {routes:x?}");
            }
        }
    }
}

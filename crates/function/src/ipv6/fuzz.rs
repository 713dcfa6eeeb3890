//! What the fuzz targets call, and the function that frames are for. Panics when something that must hold does not.

use std::sync::Arc;

use godwit_wire::MacAddress;

use super::{Form, Ipv6, Route};
use crate::Function;
use crate::routes::Address;
use crate::routing::NextHop;

/// Bytes of a route: prefix as on the wire, length, next hop.
const ROUTE_BYTES: usize = 18;
/// More routes say no more, and take longer.
const ROUTES_MAX: usize = 64;
const NEXT_HOPS: u8 = 8;

/// A few routes, with next hops of all kinds; addresses that begin with 0x24 have none.
pub fn function(form: Form) -> Arc<dyn Function> {
    let (destination, source) = (MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
    let forward = NextHop::forward(0, destination, source);
    let route = |first: u128, length: u8, next_hop| Route { prefix: first << 112, length, next_hop };
    let routes = [route(0x2001, 16, 0), route(0x2600, 8, 0), route(0x2601, 16, 1), route(0x2602, 16, 2)];
    let function = Ipv6::new(&routes, &[forward, NextHop::Local, NextHop::Blackhole], Some(form));
    Arc::new(function.expect("so few routes fit into any table"))
}

/// Any bytes as routes: both forms of the table say of addresses on the edges of all of them what a search says.
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
    for form in [Form::Trie, Form::Hash] {
        let function = Ipv6::new(&routes, &[NextHop::Local; NEXT_HOPS as usize], Some(form));
        let function = function.expect("so few routes fit into any table");
        let image = function.image().to_vec();
        for route in &routes {
            let last = route.prefix | !u128::MAX.masked(route.length);
            for address in [route.prefix, route.prefix.wrapping_sub(1), last, last.wrapping_add(1)] {
                let said = function.lookup_image(&image, address);
                assert_eq!(said, function.lookup_ref(address), "{form:?}: {address:#x} of {routes:x?}");
            }
        }
    }
}

//! Route tables, and the functions built from them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use godwit_function::Function;

use crate::error::Error;
use crate::load::build::build;
use crate::load::frames::Random;

/// Full table of October 2025 (`bench/data/README.md`).
const PREFIXES_2025: &[u8] = include_bytes!("../../data/tier1-2025-10-prefixes.txt.xz");

/// Number of next hops: the adjacencies of a router.
pub(crate) const NEXT_HOPS: u32 = 200;

/// An IPv4 route: prefix in host byte order, prefix length, index of the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) prefix: u32,
    pub(crate) length: u8,
    pub(crate) next_hop: u32,
}

/// An IPv6 route: prefix in host byte order, prefix length, index of the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route6 {
    pub(crate) prefix: u128,
    pub(crate) length: u8,
    pub(crate) next_hop: u32,
}

/// Returns the table of 2025 as text, one prefix per line.
pub(crate) fn text_2025() -> Result<String, Error> {
    let mut text = Vec::new();
    lzma_rs::xz_decompress(&mut &PREFIXES_2025[..], &mut text).map_err(|error| Error::setup(format!("{error:?}")))?;
    String::from_utf8(text).map_err(Error::setup)
}

/// Returns `count` distinct random prefixes of 48 to 64 bits below 2000::/3.
pub(crate) fn random_prefixes6(count: usize) -> Vec<Route6> {
    let mut random = Random::new(66);
    let mut seen = std::collections::HashSet::with_capacity(count);
    let mut routes = Vec::with_capacity(count);
    while routes.len() < count {
        let length = 48 + random.below(17) as u8;
        let bits = u64::from(random.next_u32()) << 32 | u64::from(random.next_u32());
        let high = (bits >> 3 | 1 << 61) & u64::MAX << (64 - length);
        if seen.insert((high, length)) {
            let (prefix, next_hop) = (u128::from(high) << 64, random.below(NEXT_HOPS));
            routes.push(Route6 { prefix, length, next_hop });
        }
    }
    routes
}

/// Writes IPv6 routes to a text file that `ipv6` reads.
pub(crate) fn write_file6(routes: &[Route6]) -> Result<tempfile::NamedTempFile, Error> {
    let mut text = String::with_capacity(routes.len() * 36);
    for route in routes {
        let address = Ipv6Addr::from(route.prefix);
        let _ = writeln!(text, "{address}/{} hop{}", route.length, route.next_hop);
    }
    temporary(text.as_bytes())
}

/// Returns the 901,899 IPv4 prefixes of 2025, each with a random next hop.
pub(crate) fn prefixes_2025() -> Result<Vec<Route>, Error> {
    let text = text_2025()?;
    let mut random = Random::new(2025);
    let routes = text.lines().filter_map(|line| {
        let (address, length) = line.split_once('/')?;
        let prefix = u32::from(address.parse::<Ipv4Addr>().ok()?);
        Some(Route { prefix, length: length.parse().ok()?, next_hop: random.below(NEXT_HOPS) })
    });
    Ok(routes.collect())
}

/// Returns `count` distinct random routes. Their length distribution resembles a full table: mostly
/// /24, and some longer prefixes.
pub(crate) fn random_routes(count: usize) -> Vec<Route> {
    let mut random = Random::new(1);
    let mut seen = std::collections::HashSet::with_capacity(count);
    let mut routes = Vec::with_capacity(count);
    while routes.len() < count {
        let length = match random.below(100) {
            0..55 => 24,
            55..65 => 23,
            65..77 => 22,
            77..95 => 14 + random.below(8) as u8,
            _ => 25 + random.below(8) as u8,
        };
        let prefix = random.next_u32() & (u32::MAX << (32 - u32::from(length)));
        // Skip addresses that routers never forward.
        if !(1..224).contains(&(prefix >> 24)) || prefix >> 24 == 127 || !seen.insert((prefix, length)) {
            continue;
        }
        routes.push(Route { prefix, length, next_hop: random.below(NEXT_HOPS) });
    }
    routes
}

/// Writes IPv4 routes to a text file that `ipv4` reads.
pub(crate) fn write_file(routes: &[Route]) -> Result<tempfile::NamedTempFile, Error> {
    let mut text = String::with_capacity(routes.len() * 24);
    for route in routes {
        let address = Ipv4Addr::from(route.prefix);
        let _ = writeln!(text, "{address}/{} hop{}", route.length, route.next_hop);
    }
    temporary(text.as_bytes())
}

/// Builds `ipv4` with these routes.
pub(crate) fn ipv4(routes: &[Route]) -> Result<Arc<dyn Function>, Error> {
    let file = write_file(routes)?;
    ipv4_from(file.path())
}

/// Builds `ipv4` with the routes of a file.
pub(crate) fn ipv4_from(file: &Path) -> Result<Arc<dyn Function>, Error> {
    build("ipv4", &stanza(file))
}

/// Returns uniformly random addresses.
pub(crate) fn random_addresses(count: usize) -> Vec<u32> {
    let mut random = Random::new(99);
    (0..count).map(|_| crate::load::frames::address(&mut random)).collect()
}

/// Returns addresses below uniformly drawn prefixes, with random host bits, as a router sees them.
pub(crate) fn routed_addresses(routes: &[Route], count: usize) -> Vec<u32> {
    let mut random = Random::new(98);
    let address = |_| {
        let route = &routes[random.below(routes.len() as u32) as usize];
        route.prefix | random.next_u32().checked_shr(route.length.into()).unwrap_or(0)
    };
    (0..count).map(address).collect()
}

/// Returns routes in the peers' input format. Prefix, length and next hop are 32-bit little-endian
/// words.
pub(crate) fn records(routes: &[Route]) -> Vec<u8> {
    let words = routes.iter().flat_map(|route| [route.prefix, u32::from(route.length), route.next_hop]);
    words.flat_map(u32::to_le_bytes).collect()
}

/// Returns addresses in the peers' input format: 32-bit little-endian words.
pub(crate) fn address_list(addresses: &[u32]) -> Vec<u8> {
    addresses.iter().copied().flat_map(u32::to_le_bytes).collect()
}

/// Returns the configuration keys of `ipv4` or `ipv6` with a route file. All next hops use the port
/// `out`.
pub(crate) fn stanza(file: &Path) -> String {
    let mut text = format!("routes = {:?}\n", file.display().to_string());
    for hop in 0..NEXT_HOPS {
        let _ = writeln!(
            text,
            "[[next_hop]]\nname = \"hop{hop}\"\nport = \"out\"\nsource_mac = \"02:00:00:00:00:01\"\n\
             destination_mac = \"02:00:00:00:{:02x}:{:02x}\"",
            hop >> 8,
            hop & 0xff
        );
    }
    text
}

/// Writes a temporary file with this content.
pub(crate) fn temporary(content: &[u8]) -> Result<tempfile::NamedTempFile, Error> {
    let mut file = tempfile::NamedTempFile::new().map_err(Error::setup)?;
    file.write_all(content).and_then(|()| file.flush()).map_err(Error::setup)?;
    Ok(file)
}

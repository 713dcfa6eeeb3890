//! Route tables and addresses to look up, and the functions made from them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::Error;
use crate::frames::Random;

/// A full table of 2025; see `data/README.md`.
const PREFIXES_2025: &[u8] = include_bytes!("../data/tier1-2025-10-prefixes.txt.xz");

/// Next hops that the prefixes are spread over: a router's adjacencies.
pub(crate) const NEXT_HOPS: u32 = 200;

/// One route: prefix in host order, its length, the next hop's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) prefix: u32,
    pub(crate) length: u8,
    pub(crate) next_hop: u32,
}

/// One route of IPv6: prefix in host order, its length, the next hop's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route6 {
    pub(crate) prefix: u128,
    pub(crate) length: u8,
    pub(crate) next_hop: u32,
}

/// The file of 2025 as text.
pub(crate) fn text_2025() -> Result<String, Error> {
    let mut text = Vec::new();
    lzma_rs::xz_decompress(&mut &PREFIXES_2025[..], &mut text).map_err(|error| Error::setup(format!("{error:?}")))?;
    String::from_utf8(text).map_err(Error::setup)
}

/// `count` random prefixes of 48 to 64 bits below 2000::/3, none twice.
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

/// As [`write_file`].
pub(crate) fn write_file6(routes: &[Route6]) -> Result<tempfile::NamedTempFile, Error> {
    let mut text = String::with_capacity(routes.len() * 36);
    for route in routes {
        let address = Ipv6Addr::from(route.prefix);
        let _ = writeln!(text, "{address}/{} hop{}", route.length, route.next_hop);
    }
    temporary(text.as_bytes())
}

/// The 901,899 IPv4 prefixes of 2025, each with a next hop drawn by seed.
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

/// `count` different random routes, lengths spread as in a full table: mostly /24, some longer.
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
        // Addresses that are never forwarded to have no routes.
        if !(1..224).contains(&(prefix >> 24)) || prefix >> 24 == 127 || !seen.insert((prefix, length)) {
            continue;
        }
        routes.push(Route { prefix, length, next_hop: random.below(NEXT_HOPS) });
    }
    routes
}

/// The routes as the text file that `ipv4` reads.
pub(crate) fn write_file(routes: &[Route]) -> Result<tempfile::NamedTempFile, Error> {
    let mut text = String::with_capacity(routes.len() * 24);
    for route in routes {
        let address = Ipv4Addr::from(route.prefix);
        let _ = writeln!(text, "{address}/{} hop{}", route.length, route.next_hop);
    }
    temporary(text.as_bytes())
}

/// The stanza of an `ipv4` function over a file of routes made by [`write_file`]; next hop `n` leaves by port 0.
pub(crate) fn stanza(file: &std::path::Path) -> String {
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

/// A temporary file with this content.
pub(crate) fn temporary(content: &[u8]) -> Result<tempfile::NamedTempFile, Error> {
    let mut file = tempfile::NamedTempFile::new().map_err(Error::setup)?;
    file.write_all(content).and_then(|()| file.flush()).map_err(Error::setup)?;
    Ok(file)
}

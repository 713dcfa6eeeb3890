//! `ipv4`: forwards IPv4 packets by their longest matching prefix.

mod config;
mod reference;
mod routes;
mod tables;

use std::sync::{Arc, OnceLock};

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{ImageRef, Memory};
use godwit_wire::MacAddress;
use toml::Spanned;
use toml::de::DeTable;

use crate::{Contract, Drop, Error, Function, Kind, Site, Verdict};

pub use config::Config;
pub use routes::{Names, parse as parse_routes, parse_prefix};
pub use tables::ROUTES_MAX;

/// The packet has its new addresses, TTL and checksum, and goes out by the chosen port; `Outcome::value` is the index
/// of the next hop.
pub const VERDICT_FORWARD: u8 = 0;
/// The route says that the packet is for this machine; `Outcome::value` is the index of the next hop.
pub const VERDICT_LOCAL: u8 = 1;
/// The packet may not make another hop.
pub const VERDICT_TTL_EXCEEDED: u8 = 2;
/// The frame carries no IPv4.
pub const VERDICT_NOT_IPV4: u8 = 3;

/// The frame ends too early.
pub const DROP_TRUNCATED: u8 = 0;
/// The header contradicts itself.
pub const DROP_MALFORMED: u8 = 1;
/// The header checksum is wrong.
pub const DROP_CHECKSUM: u8 = 2;
/// No route covers the destination.
pub const DROP_NO_ROUTE: u8 = 3;
/// The route says so.
pub const DROP_BLACKHOLE: u8 = 4;
/// An address that no router forwards.
pub const DROP_MARTIAN: u8 = 5;

/// Variant of a table with 2-byte entries.
pub const VARIANT_ENTRIES_16: u8 = 0;
/// Variant of a table with 4-byte entries.
pub const VARIANT_ENTRIES_32: u8 = 1;

/// The contract block of `kernels/ipv4/`, as data.
pub const CONTRACT: Contract = Contract {
    kind: "ipv4",
    summary: "Forwards IPv4 packets by their longest matching prefix (DIR-24-8).",
    kernel: godwit_kernels::IPV4,
    verdicts: &[
        Verdict {
            name: "forward",
            sentence: "A route was found; addresses, TTL and checksum are rewritten.",
            chooses_port: true,
        },
        Verdict { name: "local", sentence: "The route says that the packet is for this machine.", chooses_port: false },
        Verdict {
            name: "ttl_exceeded",
            sentence: "A route was found, but the TTL is 0 or 1; the packet is unchanged.",
            chooses_port: false,
        },
        Verdict {
            name: "not_ipv4",
            sentence: "The frame carries no IPv4, or carries it behind two VLAN tags.",
            chooses_port: false,
        },
    ],
    drops: &[
        Drop { name: "truncated", sentence: "The frame ends before the header, or before the length it states." },
        Drop { name: "malformed", sentence: "Version, header length or total length contradict each other." },
        Drop { name: "checksum", sentence: "The header checksum is wrong." },
        Drop { name: "no_route", sentence: "No route covers the destination." },
        Drop { name: "blackhole", sentence: "The route says that the packet is to be dropped." },
        Drop { name: "martian", sentence: "Source or destination is in 0/8, in 127/8, or at or above 224.0.0.0." },
    ],
    variants: &["entries16", "entries32"],
    in_order: false,
    reads_bytes: 78,
    writes_bytes: 30,
    headroom_bytes: 0,
    tailroom_bytes: 0,
    tailroom_saved: [0; 16],
    spec: "RFC 791, RFC 1624, RFC 1812 section 5; Gupta et al., INFOCOM 1998",
};

/// The registration.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The address, host byte order; bits beyond `length` are 0.
    pub prefix: u32,
    /// Bits of the address that count, 0 to 32.
    pub length: u8,
    /// Index of the next hop.
    pub next_hop: u32,
}

/// What is done with packets of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// They go to another station.
    Forward {
        /// By this port.
        port: u16,
        /// The station's address.
        destination: MacAddress,
        /// The port's own address.
        source: MacAddress,
    },
    /// They are for this machine.
    Local,
    /// They are dropped.
    Blackhole,
}

/// The configured function.
#[derive(Debug)]
pub struct Ipv4 {
    routes: Vec<Route>,
    next_hops: Vec<NextHop>,
    image: Memory,
    entry_bytes: usize,
    /// Made when `ref` first runs: nothing else needs it, and it is larger than the routes.
    prefixes: OnceLock<reference::Prefixes>,
}

impl Ipv4 {
    /// A table of these routes; of equal prefixes the last one counts.
    ///
    /// # Errors
    /// [`Error::Memory`] where the machine has too little, [`Error::Value`] for more than [`ROUTES_MAX`] routes.
    ///
    /// # Panics
    /// When a route names a next hop that is not there, or has bits set beyond its length.
    pub fn new(routes: Vec<Route>, next_hops: Vec<NextHop>) -> Result<Self, Error> {
        for route in &routes {
            assert!((route.next_hop as usize) < next_hops.len(), "no such next hop: {route:?}");
            assert!(route.length <= 32 && route.prefix & !routes::mask(route.length) == 0, "no prefix: {route:?}");
        }
        let (image, entry_bytes) = tables::image(&routes, &next_hops)?;
        Ok(Self { routes, next_hops, image, entry_bytes, prefixes: OnceLock::new() })
    }

    /// The routes as given.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The next hop of the longest prefix that covers `address` (host byte order), found without the table image.
    pub fn lookup_ref(&self, address: u32) -> Option<u32> {
        self.prefixes().lookup(address)
    }

    fn prefixes(&self) -> &reference::Prefixes {
        self.prefixes.get_or_init(|| reference::Prefixes::new(&self.routes))
    }
}

fn build(stanza: Spanned<DeTable<'_>>, site: &Site<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    let (routes, next_hops) = config.resolve(site)?;
    Ok(Arc::new(Ipv4::new(routes, next_hops)?))
}

impl Function for Ipv4 {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        (&self.image).into()
    }

    fn variant(&self) -> u8 {
        if self.entry_bytes == 2 { VARIANT_ENTRIES_16 } else { VARIANT_ENTRIES_32 }
    }

    fn run_ref(&self, window: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        reference::run_ref(window, descriptor, self.prefixes(), &self.next_hops)
    }
}

#[cfg(test)]
mod tests;

//! `ipv4`: forwards IPv4 packets by their longest matching prefix.

mod changes;
mod config;
mod reference;
mod rib;
mod routing;
mod tables;

use std::sync::{Arc, Mutex, RwLock};

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{Image, ImageRef};
use toml::Spanned;
use toml::de::DeTable;

use crate::routes::{Address, Resolved};
use crate::routing::{FOLLOW_INTERVAL, Follower, NextHop, RESOLVE_INTERVAL, Resolver, Routing};
use crate::{BuildContext, Contract, Drop, Error, Function, HostHalf, Kind, Running, Verdict};

pub use config::Config;
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
/// No route covers the destination, or the route says that there is none.
pub const VERDICT_NO_ROUTE: u8 = 4;
/// The address of the next station is not known; `Outcome::port` is its port, `Outcome::value` the index of the next hop.
pub const VERDICT_UNRESOLVED: u8 = 5;
/// The packet is longer than the next hop takes, and must not be fragmented; `Outcome::port` is the next hop's port,
/// `Outcome::value` its MTU.
pub const VERDICT_TOO_BIG: u8 = 6;
/// As [`VERDICT_FORWARD`], but the packet is longer than the next hop takes: `Outcome::value` is its MTU.
pub const VERDICT_FRAGMENT: u8 = 7;

/// The frame ends too early.
pub const DROP_TRUNCATED: u8 = 0;
/// The header contradicts itself.
pub const DROP_MALFORMED: u8 = 1;
/// The header checksum is wrong.
pub const DROP_CHECKSUM: u8 = 2;
/// The route says so.
pub const DROP_BLACKHOLE: u8 = 3;
/// An address that no router forwards.
pub const DROP_MARTIAN: u8 = 4;

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
        Verdict {
            name: "no_route",
            sentence: "No route covers the destination, or its route says that it is unreachable; the packet is unchanged.",
            chooses_port: false,
        },
        Verdict {
            name: "unresolved",
            sentence: "The Ethernet address of the next station is not known; the packet is unchanged.",
            chooses_port: true,
        },
        Verdict {
            name: "too_big",
            sentence: "The packet is longer than the next hop's MTU and has DF set; it is unchanged.",
            chooses_port: true,
        },
        Verdict {
            name: "fragment",
            sentence: "As `forward`, but the packet is longer than the next hop's MTU, and may be fragmented.",
            chooses_port: true,
        },
    ],
    drops: &[
        Drop { name: "truncated", sentence: "The frame ends before the header, or before the length it states." },
        Drop { name: "malformed", sentence: "Version, header length or total length contradict each other." },
        Drop { name: "checksum", sentence: "The header checksum is wrong." },
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
    counters: &[],
    spec: "RFC 791, RFC 1624, RFC 1812 section 5; Gupta et al., INFOCOM 1998",
};

/// The registration.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// One route; a length of 0 to 32.
pub type Route = crate::routes::Route<u32>;

/// For how many next hops and groups of longer prefixes there is room besides those of the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    /// Next hops.
    pub next_hops: usize,
    /// Blocks of 256 addresses that routes longer than /24 split, each in a way of its own.
    pub groups: usize,
}

impl Default for Spare {
    fn default() -> Self {
        Self { next_hops: 4096, groups: 8192 }
    }
}

/// The configured function.
#[derive(Debug)]
pub struct Ipv4 {
    image: Arc<Image>,
    layout: tables::Layout,
    /// Names of next hops, from the first one on.
    names: Vec<String>,
    table: Mutex<Table>,
    /// What `ref` goes by, once it has run: nothing else needs it, and it is larger than the routes. Locked behind `table`.
    reference: RwLock<Option<Reference>>,
    /// Makes the table follow this machine's, where asked to.
    follower: Option<Follower>,
    /// Keeps next hops whose stations are asked for as these are, where there are any.
    resolver: Option<Resolver>,
}

/// Routes and next hops: as at the start, until somebody asks for them or changes them.
#[derive(Debug)]
enum Table {
    Start { routes: Vec<Route>, next_hops: Vec<NextHop>, groups: Vec<tables::Group> },
    Changing(Box<changes::Changer>),
}

#[derive(Debug)]
struct Reference {
    prefixes: reference::Prefixes,
    next_hops: Vec<NextHop>,
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
        Self::with_room(routes, next_hops, Vec::new(), Spare::default())
    }

    /// As [`Ipv4::new`], with names of the next hops, and as much room as asked for.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn with_room(
        routes: Vec<Route>,
        next_hops: Vec<NextHop>,
        names: Vec<String>,
        spare: Spare,
    ) -> Result<Self, Error> {
        for route in &routes {
            assert!((route.next_hop as usize) < next_hops.len(), "no such next hop: {route:?}");
            assert!(route.length <= 32 && route.prefix.masked(route.length) == route.prefix, "no prefix: {route:?}");
        }
        let (memory, layout, groups) = tables::image(&routes, &next_hops, spare)?;
        let image = Arc::new(Image::without_secrets(memory));
        let table = Mutex::new(Table::Start { routes, next_hops, groups });
        Ok(Self { image, layout, names, table, reference: RwLock::new(None), follower: None, resolver: None })
    }

    /// The next hop of the longest prefix that covers `address` (host byte order), found without the table image.
    pub fn lookup_ref(&self, address: u32) -> Option<u32> {
        self.with_reference(|reference| reference.prefixes.lookup(address))
    }
}

fn build(stanza: Spanned<DeTable<'_>>, site: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    let Resolved { routes, next_hops, asked } = config.resolve(site)?;
    let mut function = Ipv4::with_room(routes, next_hops, config.names(), config.spare()?)?;
    function.follower = config.follower(site)?;
    function.resolver = Resolver::new(asked);
    Ok(Arc::new(function))
}

impl Function for Ipv4 {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        (&*self.image).into()
    }

    fn variant(&self) -> u8 {
        if self.layout.entry_bytes == 2 { VARIANT_ENTRIES_16 } else { VARIANT_ENTRIES_32 }
    }

    fn routing(&self) -> Option<&dyn Routing> {
        Some(self)
    }

    fn command(&self, request: &serde_json::Value, running: &dyn Running) -> Result<serde_json::Value, Error> {
        let done = crate::routing::command(self, request, running)?;
        if let Some(follower) = &self.follower {
            follower.changed_by_operator(request);
        }
        if let Some(resolver) = &self.resolver {
            resolver.changed_by_operator();
        }
        Ok(done)
    }

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<Box<dyn HostHalf>> {
        Some(self.follower.as_ref()?.host_half(VERDICT_UNRESOLVED))
    }

    fn housekeeping_interval(&self) -> Option<std::time::Duration> {
        let follows = self.follower.as_ref().map(|_| FOLLOW_INTERVAL);
        follows.or(self.resolver.as_ref().map(|_| RESOLVE_INTERVAL))
    }

    fn housekeeping(&self, running: &dyn Running) -> Result<(), Error> {
        self.follower.as_ref().map_or(Ok(()), |follower| follower.keep(self, running))?;
        self.resolver.as_ref().map_or(Ok(()), |resolver| resolver.keep(self, running))
    }

    fn meet(&self, functions: &[Arc<dyn Function>], own: usize) -> Result<(), Error> {
        self.resolver.as_ref().map_or(Ok(()), |resolver| resolver.meet(functions, own))
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        self.with_reference(|reference| {
            reference::run_ref(buffer, descriptor, &reference.prefixes, &reference.next_hops)
        })
    }
}

#[cfg(test)]
mod tests;

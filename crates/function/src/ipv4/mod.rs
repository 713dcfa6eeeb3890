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
use crate::routing::{KERNEL_ROUTES_INTERVAL, KernelRoutes, NextHop, RESOLVE_INTERVAL, Resolver, Routing};
use crate::{BuildContext, Contract, Drop, Error, Function, HostHalf, Kind, Running, Verdict};

pub use config::Config;
pub use tables::ROUTES_MAX;

/// The packet has new Ethernet addresses, TTL and checksum and leaves by `Outcome::port`.
/// `Outcome::value` is the index of the next hop.
pub const VERDICT_FORWARD: u8 = 0;
/// The route delivers the packet to this machine. `Outcome::value` is the index of the next hop.
pub const VERDICT_LOCAL: u8 = 1;
/// The TTL is used up.
pub const VERDICT_TTL_EXCEEDED: u8 = 2;
/// The frame does not carry IPv4.
pub const VERDICT_NOT_IPV4: u8 = 3;
/// No route covers the destination, or its route is unreachable.
pub const VERDICT_NO_ROUTE: u8 = 4;
/// The Ethernet address of the next station is unknown. `Outcome::port` is its port,
/// `Outcome::value` the index of the next hop.
pub const VERDICT_UNRESOLVED: u8 = 5;
/// The packet exceeds the MTU of the next hop and must not be fragmented. `Outcome::port` is the
/// port of the next hop, `Outcome::value` its MTU.
pub const VERDICT_TOO_BIG: u8 = 6;
/// The packet is forwarded as with [`VERDICT_FORWARD`], but it exceeds the MTU of the next hop.
/// `Outcome::value` is the MTU.
pub const VERDICT_FRAGMENT: u8 = 7;

/// The frame ends within a header, or before the length that the header states.
pub const DROP_TRUNCATED: u8 = 0;
/// The fields of the header contradict each other.
pub const DROP_MALFORMED: u8 = 1;
/// The header checksum is wrong.
pub const DROP_CHECKSUM: u8 = 2;
/// The route is a blackhole.
pub const DROP_BLACKHOLE: u8 = 3;
/// The source or destination address must not be forwarded.
pub const DROP_MARTIAN: u8 = 4;

/// Variant of a table with 2-byte entries.
pub const VARIANT_ENTRIES_16: u8 = 0;
/// Variant of a table with 4-byte entries.
pub const VARIANT_ENTRIES_32: u8 = 1;

/// Contract of the function; see also `kernels/ipv4/`.
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
        Verdict { name: "local", sentence: "The route delivers the packet to this machine.", chooses_port: false },
        Verdict {
            name: "ttl_exceeded",
            sentence: "A route was found, but the TTL is 0 or 1; the packet is unchanged.",
            chooses_port: false,
        },
        Verdict {
            name: "not_ipv4",
            sentence: "The frame does not carry IPv4, or has two VLAN tags.",
            chooses_port: false,
        },
        Verdict {
            name: "no_route",
            sentence: "No route covers the destination, or its route is unreachable; the packet is unchanged.",
            chooses_port: false,
        },
        Verdict {
            name: "unresolved",
            sentence: "The Ethernet address of the next station is unknown; the packet is unchanged.",
            chooses_port: true,
        },
        Verdict {
            name: "too_big",
            sentence: "The packet exceeds the MTU of the next hop and has DF set; it is unchanged.",
            chooses_port: true,
        },
        Verdict {
            name: "fragment",
            sentence: "As `forward`, but the packet exceeds the MTU of the next hop and may be fragmented.",
            chooses_port: true,
        },
    ],
    drops: &[
        Drop {
            name: "truncated",
            sentence: "The frame ends within a header, or before the length that the header states.",
        },
        Drop { name: "malformed", sentence: "The version, header length or total length is inconsistent." },
        Drop { name: "checksum", sentence: "The header checksum is wrong." },
        Drop { name: "blackhole", sentence: "The route is a blackhole." },
        Drop { name: "martian", sentence: "The source or destination is in 0/8, in 127/8, or at or above 224.0.0.0." },
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

/// Registration of the function.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Route to an IPv4 prefix of length 0 to 32.
pub type Route = crate::routes::Route<u32>;

/// Extra capacity of the table, in addition to the initial next hops and groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    /// Number of next hops.
    pub next_hops: usize,
    /// Number of groups. Blocks of 256 addresses that routes longer than /24 divide differently
    /// need separate groups.
    pub groups: usize,
}

impl Default for Spare {
    fn default() -> Self {
        Self { next_hops: 4096, groups: 8192 }
    }
}

/// Configured IPv4 forwarding function.
#[derive(Debug)]
pub struct Ipv4 {
    image: Arc<Image>,
    layout: tables::Layout,
    /// Names of the configured next hops, by index.
    names: Vec<String>,
    table: Mutex<Table>,
    /// Table of `ref`, created when `ref` first runs, because it is larger than the routes. Locked
    /// after `table`.
    reference: RwLock<Option<Reference>>,
    /// Copies the routes of the kernel into the table, if configured.
    kernel_routes: Option<KernelRoutes>,
    /// Updates next hops whose stations are resolved by a responder, if there are any.
    resolver: Option<Resolver>,
}

/// Routes and next hops. They stay in the initial form until they are first read or changed.
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
    /// Creates a table of `routes` with the default spare capacity. The last route of a prefix
    /// wins.
    ///
    /// # Errors
    /// [`Error::Memory`] if the machine has too little memory, [`Error::Value`] for more than
    /// [`ROUTES_MAX`] routes.
    ///
    /// # Panics
    /// Panics if a route refers to a missing next hop, or has bits set beyond its length.
    pub fn new(routes: Vec<Route>, next_hops: Vec<NextHop>) -> Result<Self, Error> {
        Self::with_room(routes, next_hops, Vec::new(), Spare::default())
    }

    /// Like [`Ipv4::new`], with names of the next hops and a chosen spare capacity.
    ///
    /// # Errors
    /// As [`Ipv4::new`].
    ///
    /// # Panics
    /// As [`Ipv4::new`].
    pub fn with_room(
        routes: Vec<Route>,
        next_hops: Vec<NextHop>,
        names: Vec<String>,
        spare: Spare,
    ) -> Result<Self, Error> {
        for route in &routes {
            assert!((route.next_hop as usize) < next_hops.len(), "no such next hop: {route:?}");
            assert!(route.length <= 32 && route.prefix.masked(route.length) == route.prefix, "not a prefix: {route:?}");
        }
        let (memory, layout, groups) = tables::image(&routes, &next_hops, spare)?;
        let image = Arc::new(Image::without_secrets(memory));
        let table = Mutex::new(Table::Start { routes, next_hops, groups });
        Ok(Self { image, layout, names, table, reference: RwLock::new(None), kernel_routes: None, resolver: None })
    }

    /// Returns the next hop of the longest prefix that covers `address` (host byte order), without
    /// using the table image.
    pub fn lookup_ref(&self, address: u32) -> Option<u32> {
        self.with_reference(|reference| reference.prefixes.lookup(address))
    }
}

fn build(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    let Resolved { routes, next_hops, dynamic } = config.resolve(context)?;
    let mut function = Ipv4::with_room(routes, next_hops, config.names(), config.spare()?)?;
    function.kernel_routes = config.kernel_routes(context)?;
    function.resolver = Resolver::new(dynamic);
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
        if let Some(kernel_routes) = &self.kernel_routes {
            kernel_routes.changed_by_operator(request);
        }
        if let Some(resolver) = &self.resolver {
            resolver.changed_by_operator();
        }
        Ok(done)
    }

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<Box<dyn HostHalf>> {
        Some(self.kernel_routes.as_ref()?.host_half(VERDICT_UNRESOLVED))
    }

    fn housekeeping_interval(&self) -> Option<std::time::Duration> {
        let kernel_routes = self.kernel_routes.as_ref().map(|_| KERNEL_ROUTES_INTERVAL);
        kernel_routes.or(self.resolver.as_ref().map(|_| RESOLVE_INTERVAL))
    }

    fn housekeeping(&self, running: &dyn Running) -> Result<(), Error> {
        self.kernel_routes.as_ref().map_or(Ok(()), |kernel_routes| kernel_routes.update(self, running))?;
        self.resolver.as_ref().map_or(Ok(()), |resolver| resolver.update(self, running))
    }

    fn connect(&self, functions: &[Arc<dyn Function>], own: usize) -> Result<(), Error> {
        self.resolver.as_ref().map_or(Ok(()), |resolver| resolver.connect(functions, own))
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        self.with_reference(|reference| {
            reference::run_ref(buffer, descriptor, &reference.prefixes, &reference.next_hops)
        })
    }
}

#[cfg(test)]
mod tests;

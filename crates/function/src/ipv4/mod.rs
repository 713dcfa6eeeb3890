//! The function `ipv4` forwards IPv4 packets by the longest prefix that matches their destination.

mod changes;
mod config;
mod reference;
mod routing;
mod source;
mod tables;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{Image, ImageRef};
use toml::Spanned;
use toml::de::DeTable;

use crate::routes::{Address, Resolved};
use crate::routing::{
    KERNEL_ROUTES_INTERVAL, KernelRoutes, NextHop, OwnAddresses, RESOLVE_INTERVAL, Resolver, ReversePath,
    ReversePathHost, Routing, add_via,
};
use crate::sizes::Sizes;
use crate::tables::lpm4::Group;
use crate::{
    BuildContext, Contract, Error, Function, HostHalf, Housekeeping, Kind, Operate, Properties, Running, Station,
};

pub use config::Config;

/// Properties, verdicts and drop reasons of the function, as declared in `kernels/ipv4/ipv4.h`.
pub use godwit_kernels::declared::ipv4::*;
/// Maximum number of routes in a table.
pub const ROUTES_MAX: usize = crate::tables::lpm4::ROUTES_MAX;

/// Registration of the function kind `ipv4`.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Route to an IPv4 prefix of length 0 to 32.
pub type Route = crate::tables::lpm4::Route;

/// Capacity of the table in addition to the initial next hops and groups. A group holds 256 entries
/// for prefixes longer than /24.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    /// Number of next hops.
    pub next_hops: usize,
    /// Number of groups. Two /24 address blocks share a group if routes longer than /24 divide both
    /// blocks in the same way.
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
    /// Names of the ports, by number.
    ports: Vec<String>,
    table: Mutex<Table>,
    /// Table of the reference implementation, created on first use because it takes much memory. A
    /// thread must lock `table` before `reference`.
    reference: RwLock<Option<Reference>>,
    /// Copies routes of the operating system into the table, if this is configured.
    kernel_routes: Option<KernelRoutes>,
    /// Updates the next hops whose Ethernet addresses a responder function resolves, if there are
    /// any.
    resolver: Option<Resolver>,
    reverse_path: Option<ReversePath>,
    /// Addresses of the router itself.
    own: Arc<OwnAddresses>,
    sizes: Sizes<2>,
}

/// Routes and next hops. The changeable form is created when a command first reads or changes the
/// routes.
#[derive(Debug)]
enum Table {
    Start { routes: Vec<Route>, next_hops: Vec<NextHop>, groups: Vec<Group> },
    Changing(Box<changes::Changer>),
}

#[derive(Debug)]
struct Reference {
    prefixes: reference::Prefixes,
    next_hops: Vec<NextHop>,
}

impl Ipv4 {
    /// Creates a table of `routes` with the default spare capacity. If several routes have the same
    /// prefix, the last one applies.
    ///
    /// # Errors
    /// Returns [`Error::Memory`] if the machine has too little memory. Returns [`Error::Value`] if
    /// there are more than [`ROUTES_MAX`] routes.
    ///
    /// # Panics
    /// Panics if a route refers to a missing next hop, or has bits set beyond its length.
    pub fn new(routes: Vec<Route>, next_hops: Vec<NextHop>) -> Result<Self, Error> {
        Self::with_room(routes, next_hops, Vec::new(), Spare::default())
    }

    /// Creates a table like [`Ipv4::new`], with next hop names and a chosen spare capacity.
    ///
    /// # Errors
    /// Returns the same errors as [`Ipv4::new`].
    ///
    /// # Panics
    /// Panics in the same cases as [`Ipv4::new`].
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
        let host_routes = routes.iter().filter(|route| route.length == 32);
        let addresses = host_routes.map(|route| (Ipv4Addr::from_bits(route.prefix).into(), route.next_hop));
        let own = Arc::new(OwnAddresses::of_routes(&next_hops, addresses));
        let (memory, layout, groups) = tables::image(&routes, &next_hops, spare)?;
        let image = Arc::new(Image::without_secrets(memory));
        let table = Mutex::new(Table::Start { routes, next_hops, groups });
        Ok(Self {
            image,
            layout,
            names,
            ports: Vec::new(),
            table,
            reference: RwLock::new(None),
            kernel_routes: None,
            resolver: None,
            reverse_path: None,
            own,
            sizes: Sizes::new(["routes", "next_hops"]),
        })
    }

    /// Returns the next hop index for the longest prefix that covers `address`, which is in host
    /// byte order. The search uses the table of the reference implementation, not the kernel's
    /// table.
    pub fn lookup_ref(&self, address: u32) -> Option<u32> {
        self.with_reference(|reference| reference.prefixes.lookup(address))
    }
}

fn build(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    let Resolved { routes, next_hops, dynamic } = config.resolve(context)?;
    let mut function = Ipv4::with_room(routes, next_hops, config.names(), config.spare()?)?;
    function.ports = context.ports.to_vec();
    function.kernel_routes = config.kernel_routes(context)?;
    function.resolver = Resolver::new(dynamic);
    function.reverse_path = config.reverse_path(context)?;
    Ok(Arc::new(function))
}

impl Ipv4 {
    /// Returns the kind of processing for every packet, which depends on the form of the table.
    fn variant(&self) -> u8 {
        if self.layout.table.entry_bytes == 2 { VARIANT_ENTRIES16 } else { VARIANT_ENTRIES32 }
    }
}

impl Function for Ipv4 {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        (&*self.image).into()
    }

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<HostHalf> {
        let inner = self.kernel_routes.as_ref().map(|routes| routes.host_half(VERDICT_UNRESOLVED));
        let Some(filter) = self.reverse_path.clone() else { return inner.map(HostHalf::Complete) };
        let lookup = source::Ipv4Sources { image: Arc::clone(&self.image), layout: self.layout };
        let host = ReversePathHost { filter, lookup, variant: self.variant(), reason: DROP_REVERSE_PATH, inner };
        Some(HostHalf::Prepare(Box::new(host)))
    }

    fn properties(&self) -> Properties {
        Properties { variant: self.variant(), ..Properties::of(&CONTRACT) }
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn housekeeping(&self) -> Option<&dyn Housekeeping> {
        (self.kernel_routes.is_some() || self.resolver.is_some()).then_some(self)
    }

    fn station(&self) -> Option<&dyn Station> {
        Some(self)
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        self.with_reference(|reference| {
            reference::run_ref(buffer, descriptor, &reference.prefixes, &reference.next_hops)
        })
    }
}

impl Operate for Ipv4 {
    fn tables(&self) -> Vec<(String, u64)> {
        self.sizes.read(&self.table, |table| match table {
            Table::Start { routes, next_hops, .. } => [routes.len(), next_hops.len()],
            Table::Changing(changer) => [changer.rib().len(), changer.next_hops().count()],
        })
    }

    fn command(&self, request: &serde_json::Value, running: &dyn Running) -> Result<serde_json::Value, Error> {
        if let Some(done) = add_via(self, self.kernel_routes.as_ref(), &self.own, request, running)? {
            return Ok(done);
        }
        let done = crate::routing::command(self, request, running)?;
        self.own.changed_by_operator(request, self);
        if let Some(kernel_routes) = &self.kernel_routes {
            kernel_routes.changed_by_operator(request);
        }
        if let Some(resolver) = &self.resolver {
            resolver.changed_by_operator();
        }
        Ok(done)
    }
}

impl Housekeeping for Ipv4 {
    fn interval(&self) -> Duration {
        if self.kernel_routes.is_some() { KERNEL_ROUTES_INTERVAL } else { RESOLVE_INTERVAL }
    }

    fn run(&self, running: &dyn Running) -> Result<(), Error> {
        self.kernel_routes.as_ref().map_or(Ok(()), |kernel_routes| kernel_routes.update(self, &self.own, running))?;
        self.resolver.as_ref().map_or(Ok(()), |resolver| resolver.update(self, running))
    }
}

impl Station for Ipv4 {
    fn routing(&self) -> Option<&dyn Routing> {
        Some(self)
    }

    fn own_addresses(&self) -> &Arc<OwnAddresses> {
        &self.own
    }

    fn connect(&self, functions: &[Arc<dyn Function>], own: usize) -> Result<(), Error> {
        self.kernel_routes.iter().for_each(|kernel_routes| kernel_routes.connect(functions, own));
        self.resolver.as_ref().map_or(Ok(()), |resolver| resolver.connect(functions, own))
    }
}

#[cfg(test)]
mod tests;

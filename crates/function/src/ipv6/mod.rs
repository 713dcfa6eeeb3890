//! The function `ipv6` forwards IPv6 packets by the longest prefix that matches their destination.

mod changes;
mod choose;
mod config;
pub mod fuzz;
mod hash;
mod lines;
mod reference;
mod rib;
mod routing;
mod source;
mod tables;
mod trie;
mod walk;

use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{Image, ImageRef};
use toml::Spanned;
use toml::de::DeTable;

use crate::routes::{Address, Resolved};
use crate::routing::{
    KERNEL_ROUTES_INTERVAL, KernelRoutes, NextHop, NextHops, OwnAddresses, RESOLVE_INTERVAL, Resolver, ReversePath,
    ReversePathHost, Routing, add_via,
};
use crate::sizes::Sizes;
use crate::{
    BuildContext, Contract, Error, Function, HostHalf, Housekeeping, Kind, Operate, Properties, Running, Station,
};

pub use config::Config;

/// Properties, verdicts and drop reasons of the function, as declared in `kernels/ipv6/ipv6.h`.
pub use godwit_kernels::declared::ipv6::*;

/// Registration of the function kind `ipv6`.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Route to an IPv6 prefix of length 0 to 128.
pub type Route = crate::routes::Route<u128>;

/// Lookup structure of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Multibit trie, which is searched by parts of the address.
    Trie,
    /// Hash tables, which are searched by prefix length.
    Hash,
}

/// Capacity of the table in addition to the initial routes and next hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    /// Number of next hops.
    pub next_hops: usize,
    /// Number of spare lines of 64 bytes. A line holds up to six intervals or three prefixes. A
    /// change writes new lines before it frees old lines.
    ///
    /// With `None`, there are as many spare lines as lines in use, and at least enough for 200,000
    /// routes.
    pub lines: Option<usize>,
}

impl Default for Spare {
    fn default() -> Self {
        Self { next_hops: 4096, lines: None }
    }
}

/// Configured IPv6 forwarding function.
#[derive(Debug)]
pub struct Ipv6 {
    image: Arc<Image>,
    layout: tables::Layout,
    /// Names of the configured next hops, by index.
    names: Vec<String>,
    /// Names of the ports, by number.
    ports: Vec<String>,
    changer: Mutex<changes::Changer>,
    /// Table of the reference implementation, created on first use. A thread must lock `changer`
    /// before `reference`.
    reference: RwLock<Option<Reference>>,
    kernel_routes: Option<KernelRoutes>,
    resolver: Option<Resolver>,
    reverse_path: Option<ReversePath>,
    /// Addresses of the router itself.
    own: Arc<OwnAddresses>,
    sizes: Sizes<2>,
}

#[derive(Debug)]
struct Reference {
    prefixes: reference::Prefixes,
    next_hops: Vec<NextHop>,
}

impl Ipv6 {
    /// Creates a table of `routes` with the default spare capacity. If several routes have the same
    /// prefix, the last one applies. If `form` is `None`, both lookup structures are measured and
    /// the faster one is used.
    ///
    /// # Errors
    /// Returns [`Error::Memory`] if the machine has too little memory. Returns [`Error::Value`] if
    /// the table has too many routes.
    ///
    /// # Panics
    /// Panics if a route refers to a missing next hop, or has bits set beyond its length.
    pub fn new(routes: &[Route], next_hops: &[NextHop], form: Option<Form>) -> Result<Self, Error> {
        Self::with_room(routes, next_hops, Vec::new(), form, Spare::default())
    }

    /// Creates a table like [`Ipv6::new`], with next hop names and a chosen spare capacity.
    ///
    /// # Errors
    /// Returns the same errors as [`Ipv6::new`].
    ///
    /// # Panics
    /// Panics in the same cases as [`Ipv6::new`].
    pub fn with_room(
        routes: &[Route],
        next_hops: &[NextHop],
        names: Vec<String>,
        form: Option<Form>,
        spare: Spare,
    ) -> Result<Self, Error> {
        for route in routes {
            assert!((route.next_hop as usize) < next_hops.len(), "no such next hop: {route:?}");
            assert!(
                route.length <= 128 && route.prefix.masked(route.length) == route.prefix,
                "not a prefix: {route:?}"
            );
        }
        let host_routes = routes.iter().filter(|route| route.length == 128);
        let addresses = host_routes.map(|route| (Ipv6Addr::from_bits(route.prefix).into(), route.next_hop));
        let own = Arc::new(OwnAddresses::of_routes(next_hops, addresses));
        let rib = rib::Rib::new(routes);
        let build = |form| {
            let message = || format!("there are {} routes, which is more than a table has room for", rib.len());
            let built = tables::Built::new(form, &rib, tables::ROOT_BITS);
            built.map_err(|tables::Full| Error::Value { span: None, message: message() })
        };
        let built = match form {
            Some(form) => build(form)?,
            None => match (build(Form::Trie), build(Form::Hash)) {
                (Ok(trie), Ok(hash)) => choose::faster(trie, hash, &rib),
                // A trie has room for more routes than hash tables do.
                (Ok(built), Err(_)) | (Err(_), Ok(built)) => built,
                (Err(error), Err(_)) => return Err(error),
            },
        };
        let records: Vec<_> = next_hops.iter().map(tables::record_of).collect();
        let (memory, layout, lines) = built.image(&records, spare)?;
        let image = Arc::new(Image::without_secrets(memory));
        let next_hops =
            NextHops::new(Arc::clone(&image), layout.next_hop(0), layout.next_hops, tables::FORMAT, next_hops);
        let changer = Mutex::new(changes::Changer::new(Arc::clone(&image), layout, lines, rib, next_hops));
        Ok(Self {
            image,
            layout,
            names,
            ports: Vec::new(),
            changer,
            reference: RwLock::new(None),
            kernel_routes: None,
            resolver: None,
            reverse_path: None,
            own,
            sizes: Sizes::new(["routes", "next_hops"]),
        })
    }

    /// Returns the lookup structure of the table.
    pub fn form(&self) -> Form {
        self.layout.form
    }

    /// Returns the number of bytes in use by the tables, without spare capacity.
    pub fn bytes_used(&self) -> usize {
        self.layout.line(self.changer().lines_used() as u32)
    }

    #[cfg(test)]
    fn lookup_image(&self, image: &[u8], address: u128) -> Option<u32> {
        let (root, lines) =
            image[self.layout.root_offset..].split_at(self.layout.lines_offset - self.layout.root_offset);
        let (form, root_bits) = (self.layout.form, self.layout.root_bits);
        walk::Table { form, root_bits, root, lines }.lookup(address)
    }

    /// Returns the next hop index for the longest prefix that covers `address`, which is in host
    /// byte order. The search uses the table of the reference implementation, not the kernel's
    /// tables.
    pub fn lookup_ref(&self, address: u128) -> Option<u32> {
        self.with_reference(|reference| reference.prefixes.lookup(address))
    }
}

fn build(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    let Resolved { routes, next_hops, dynamic } = config.resolve(context)?;
    let mut function = Ipv6::with_room(&routes, &next_hops, config.names(), config.form()?, config.spare()?)?;
    function.ports = context.ports.to_vec();
    function.kernel_routes = config.kernel_routes(context)?;
    function.resolver = Resolver::new(dynamic);
    function.reverse_path = config.reverse_path(context)?;
    Ok(Arc::new(function))
}

impl Ipv6 {
    /// Returns the kind of processing for every packet, which depends on the form of the table.
    fn variant(&self) -> u8 {
        match self.layout.form {
            Form::Trie => VARIANT_TRIE,
            Form::Hash => VARIANT_HASH,
        }
    }
}

impl Function for Ipv6 {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        (&*self.image).into()
    }

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<HostHalf> {
        let inner = self.kernel_routes.as_ref().map(|routes| routes.host_half(VERDICT_UNRESOLVED));
        let Some(filter) = self.reverse_path.clone() else { return inner.map(HostHalf::Complete) };
        let lookup = source::Ipv6Sources { image: Arc::clone(&self.image), layout: self.layout };
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

impl Operate for Ipv6 {
    fn tables(&self) -> Vec<(String, u64)> {
        self.sizes.read(&self.changer, |changer| [changer.rib().len(), changer.next_hops.all().count()])
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

impl Housekeeping for Ipv6 {
    fn interval(&self) -> Duration {
        if self.kernel_routes.is_some() { KERNEL_ROUTES_INTERVAL } else { RESOLVE_INTERVAL }
    }

    fn run(&self, running: &dyn Running) -> Result<(), Error> {
        self.kernel_routes.as_ref().map_or(Ok(()), |kernel_routes| kernel_routes.update(self, &self.own, running))?;
        self.resolver.as_ref().map_or(Ok(()), |resolver| resolver.update(self, running))
    }
}

impl Station for Ipv6 {
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

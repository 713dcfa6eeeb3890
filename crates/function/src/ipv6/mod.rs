//! `ipv6`: forwards IPv6 packets by their longest matching prefix.

mod changes;
mod choose;
mod config;
pub mod fuzz;
mod hash;
mod lines;
mod reference;
mod rib;
mod routing;
mod tables;
mod trie;
mod walk;

use std::sync::{Arc, Mutex, RwLock};

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{Image, ImageRef};
use toml::Spanned;
use toml::de::DeTable;

use crate::routes::{Address, Resolved};
use crate::routing::{KERNEL_ROUTES_INTERVAL, KernelRoutes, NextHop, NextHops, RESOLVE_INTERVAL, Resolver, Routing};
use crate::{BuildContext, Contract, Drop, Error, Function, HostHalf, Kind, Running, Verdict};

pub use config::Config;

/// The packet has new Ethernet addresses and hop limit and leaves by `Outcome::port`.
/// `Outcome::value` is the index of the next hop.
pub const VERDICT_FORWARD: u8 = 0;
/// The route delivers the packet to this machine. `Outcome::value` is the index of the next hop.
pub const VERDICT_LOCAL: u8 = 1;
/// The hop limit is used up.
pub const VERDICT_HOP_LIMIT_EXCEEDED: u8 = 2;
/// The frame does not carry IPv6.
pub const VERDICT_NOT_IPV6: u8 = 3;
/// No route covers the destination, or its route is unreachable.
pub const VERDICT_NO_ROUTE: u8 = 4;
/// The Ethernet address of the next station is unknown. `Outcome::port` is its port,
/// `Outcome::value` the index of the next hop.
pub const VERDICT_UNRESOLVED: u8 = 5;
/// The packet exceeds the MTU of the next hop. `Outcome::port` is the port of the next hop,
/// `Outcome::value` its MTU.
pub const VERDICT_TOO_BIG: u8 = 6;
/// The destination is on the link. It may be this machine.
pub const VERDICT_LINK_LOCAL: u8 = 7;
/// The source is link-local, but the destination is not on the link.
pub const VERDICT_BEYOND_SCOPE: u8 = 8;
/// A hop-by-hop option is unknown and requires an ICMP error. `Outcome::value` is its offset from
/// the start of the IPv6 header, in bytes.
pub const VERDICT_PARAMETER_PROBLEM: u8 = 9;

/// The frame ends within a header, or before the length that the header states.
pub const DROP_TRUNCATED: u8 = 0;
/// The header is inconsistent.
pub const DROP_MALFORMED: u8 = 1;
/// A hop-by-hop option is unknown and requires that the packet is dropped.
pub const DROP_OPTION: u8 = 2;
/// The route is a blackhole.
pub const DROP_BLACKHOLE: u8 = 3;
/// The source or destination address must not be forwarded.
pub const DROP_MARTIAN: u8 = 4;

/// Variant of a table with a trie.
pub const VARIANT_TRIE: u8 = 0;
/// Variant of a table with hash tables.
pub const VARIANT_HASH: u8 = 1;

/// Contract of the function; see also `kernels/ipv6/`.
pub const CONTRACT: Contract = Contract {
    kind: "ipv6",
    summary: "Forwards IPv6 packets by their longest matching prefix (a trie, or hash tables by length).",
    kernel: godwit_kernels::IPV6,
    verdicts: &[
        Verdict {
            name: "forward",
            sentence: "A route was found; Ethernet addresses and hop limit are rewritten.",
            chooses_port: true,
        },
        Verdict { name: "local", sentence: "The route delivers the packet to this machine.", chooses_port: false },
        Verdict {
            name: "hop_limit_exceeded",
            sentence: "A route was found, but the hop limit is 0 or 1; the packet is unchanged.",
            chooses_port: false,
        },
        Verdict {
            name: "not_ipv6",
            sentence: "The frame does not carry IPv6, or has two VLAN tags.",
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
            sentence: "The packet exceeds the MTU of the next hop; it is unchanged.",
            chooses_port: true,
        },
        Verdict {
            name: "link_local",
            sentence: "The destination is a link-local unicast or multicast address; the packet is unchanged.",
            chooses_port: false,
        },
        Verdict {
            name: "beyond_scope",
            sentence: "A route was found, but the source is link-local; the packet is unchanged.",
            chooses_port: false,
        },
        Verdict {
            name: "parameter_problem",
            sentence: "A hop-by-hop option is unknown and requires an ICMP error; the packet is unchanged.",
            chooses_port: false,
        },
    ],
    drops: &[
        Drop {
            name: "truncated",
            sentence: "The frame ends within a header, or before the length that the header states.",
        },
        Drop { name: "malformed", sentence: "The version is not 6, or a hop-by-hop option or its header is too long." },
        Drop { name: "option", sentence: "A hop-by-hop option is unknown and requires that the packet is dropped." },
        Drop { name: "blackhole", sentence: "The route is a blackhole." },
        Drop {
            name: "martian",
            sentence: "The source or destination is not valid on a link, or the destination is multicast beyond the link.",
        },
    ],
    counters: &[],
    variants: &["trie", "hash"],
    in_order: false,
    reads_bytes: 122,
    writes_bytes: 26,
    headroom_bytes: 0,
    tailroom_bytes: 0,
    tailroom_saved: [0; 16],
    spec: "RFC 8200, RFC 4291, RFC 4007 section 9, RFC 9673 section 5.2; Waldvogel et al., SIGCOMM 1997",
};

/// Registration of the function.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Route to an IPv6 prefix of length 0 to 128.
pub type Route = crate::routes::Route<u128>;

/// Lookup structure of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Multibit trie.
    Trie,
    /// Hash tables, searched by length.
    Hash,
}

/// Extra capacity of the table, in addition to the initial contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    /// Number of next hops.
    pub next_hops: usize,
    /// Number of lines of 64 bytes. A line holds up to six intervals or three prefixes. Changes
    /// need free lines in addition to those that they replace. `None`: as many as are in use, and
    /// at least enough for a full table of 200,000 routes.
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
    changer: Mutex<changes::Changer>,
    /// Table of `ref`, created when `ref` first runs. Locked after `changer`.
    reference: RwLock<Option<Reference>>,
    kernel_routes: Option<KernelRoutes>,
    resolver: Option<Resolver>,
}

#[derive(Debug)]
struct Reference {
    prefixes: reference::Prefixes,
    next_hops: Vec<NextHop>,
}

impl Ipv6 {
    /// Creates a table of `routes` with the default spare capacity. The last route of a prefix
    /// wins. If `form` is `None`, both structures are measured and the faster one is used.
    ///
    /// # Errors
    /// [`Error::Memory`] if the machine has too little memory, [`Error::Value`] if the table has
    /// too many routes.
    ///
    /// # Panics
    /// Panics if a route refers to a missing next hop, or has bits set beyond its length.
    pub fn new(routes: &[Route], next_hops: &[NextHop], form: Option<Form>) -> Result<Self, Error> {
        Self::with_room(routes, next_hops, Vec::new(), form, Spare::default())
    }

    /// Like [`Ipv6::new`], with names of the next hops and a chosen spare capacity.
    ///
    /// # Errors
    /// As [`Ipv6::new`].
    ///
    /// # Panics
    /// As [`Ipv6::new`].
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
        Ok(Self { image, layout, names, changer, reference: RwLock::new(None), kernel_routes: None, resolver: None })
    }

    /// Returns the lookup structure of the table.
    pub fn form(&self) -> Form {
        self.layout.form
    }

    /// Returns the number of bytes of the image that are in use. The rest is spare capacity.
    pub fn bytes_used(&self) -> usize {
        self.layout.line(self.changer().lines_used() as u32)
    }

    /// Looks up an address in a copy of the image, as a kernel does.
    #[cfg(test)]
    fn lookup_image(&self, image: &[u8], address: u128) -> Option<u32> {
        let (root, lines) =
            image[self.layout.root_offset..].split_at(self.layout.lines_offset - self.layout.root_offset);
        let (form, root_bits) = (self.layout.form, self.layout.root_bits);
        walk::Table { form, root_bits, root, lines }.lookup(address)
    }

    /// Returns the next hop of the longest prefix that covers `address` (host byte order), without
    /// using the table image.
    pub fn lookup_ref(&self, address: u128) -> Option<u32> {
        self.with_reference(|reference| reference.prefixes.lookup(address))
    }
}

fn build(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    let Resolved { routes, next_hops, dynamic } = config.resolve(context)?;
    let mut function = Ipv6::with_room(&routes, &next_hops, config.names(), config.form()?, config.spare()?)?;
    function.kernel_routes = config.kernel_routes(context)?;
    function.resolver = Resolver::new(dynamic);
    Ok(Arc::new(function))
}

impl Function for Ipv6 {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        (&*self.image).into()
    }

    fn variant(&self) -> u8 {
        match self.layout.form {
            Form::Trie => VARIANT_TRIE,
            Form::Hash => VARIANT_HASH,
        }
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

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
use crate::routing::{FOLLOW_INTERVAL, Follower, NextHop, NextHops, RESOLVE_INTERVAL, Resolver, Routing};
use crate::{BuildContext, Contract, Drop, Error, Function, HostHalf, Kind, Running, Verdict};

pub use config::Config;

/// The packet has its new addresses and hop limit, and goes out by the chosen port; `Outcome::value` is the index of the next
/// hop.
pub const VERDICT_FORWARD: u8 = 0;
/// The route says that the packet is for this machine; `Outcome::value` is the index of the next hop.
pub const VERDICT_LOCAL: u8 = 1;
/// The packet may not make another hop.
pub const VERDICT_HOP_LIMIT_EXCEEDED: u8 = 2;
/// The frame carries no IPv6.
pub const VERDICT_NOT_IPV6: u8 = 3;
/// No route covers the destination, or the route says that there is none.
pub const VERDICT_NO_ROUTE: u8 = 4;
/// The address of the next station is not known; `Outcome::port` is its port, `Outcome::value` the index of the next hop.
pub const VERDICT_UNRESOLVED: u8 = 5;
/// The packet is longer than the next hop takes; `Outcome::port` is the next hop's port, `Outcome::value` its MTU.
pub const VERDICT_TOO_BIG: u8 = 6;
/// The destination does not lie beyond the link: it may be this machine.
pub const VERDICT_LINK_LOCAL: u8 = 7;
/// The source does not reach beyond the link.
pub const VERDICT_BEYOND_SCOPE: u8 = 8;
/// A hop-by-hop option is unknown and asks for an answer; `Outcome::value` is where it lies, bytes from the start of the IPv6
/// header.
pub const VERDICT_PARAMETER_PROBLEM: u8 = 9;

/// The frame ends too early.
pub const DROP_TRUNCATED: u8 = 0;
/// The header contradicts itself.
pub const DROP_MALFORMED: u8 = 1;
/// A hop-by-hop option that is unknown says so.
pub const DROP_OPTION: u8 = 2;
/// The route says so.
pub const DROP_BLACKHOLE: u8 = 3;
/// An address that no router forwards.
pub const DROP_MARTIAN: u8 = 4;

/// Variant of a table that is a trie.
pub const VARIANT_TRIE: u8 = 0;
/// Variant of a table that is hashed.
pub const VARIANT_HASH: u8 = 1;

/// The contract block of `kernels/ipv6/`, as data.
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
        Verdict { name: "local", sentence: "The route says that the packet is for this machine.", chooses_port: false },
        Verdict {
            name: "hop_limit_exceeded",
            sentence: "A route was found, but the hop limit is 0 or 1; the packet is unchanged.",
            chooses_port: false,
        },
        Verdict {
            name: "not_ipv6",
            sentence: "The frame carries no IPv6, or carries it behind two VLAN tags.",
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
            sentence: "The packet is longer than the next hop's MTU; it is unchanged.",
            chooses_port: true,
        },
        Verdict {
            name: "link_local",
            sentence: "The destination is link-local, or a group on the link: never forwarded, perhaps for this machine.",
            chooses_port: false,
        },
        Verdict {
            name: "beyond_scope",
            sentence: "A route was found, but the source is link-local; the packet is unchanged.",
            chooses_port: false,
        },
        Verdict {
            name: "parameter_problem",
            sentence: "A hop-by-hop option is unknown and asks for an answer; the packet is unchanged.",
            chooses_port: false,
        },
    ],
    drops: &[
        Drop { name: "truncated", sentence: "The frame ends before the header, or before the length it states." },
        Drop {
            name: "malformed",
            sentence: "The version is not 6, or hop-by-hop options are longer than what holds them.",
        },
        Drop { name: "option", sentence: "A hop-by-hop option is unknown and says to drop the packet then." },
        Drop { name: "blackhole", sentence: "The route says that the packet is to be dropped." },
        Drop {
            name: "martian",
            sentence: "Source or destination is on no wire, or the destination is a group beyond the link.",
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

/// The registration.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// One route; a length of 0 to 128.
pub type Route = crate::routes::Route<u128>;

/// How the longest prefix is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By a multibit trie.
    Trie,
    /// By hash tables, searched by length.
    Hash,
}

/// For how much more there is room than there is at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    /// Next hops.
    pub next_hops: usize,
    /// Lines of 64 bytes, of which each six intervals or three prefixes take one, beside those that they replace; `None`: as many
    /// again, and at least so many that a full table of 200,000 routes can come into an empty one.
    pub lines: Option<usize>,
}

impl Default for Spare {
    fn default() -> Self {
        Self { next_hops: 4096, lines: None }
    }
}

/// The configured function.
#[derive(Debug)]
pub struct Ipv6 {
    image: Arc<Image>,
    layout: tables::Layout,
    /// Names of next hops, from the first one on.
    names: Vec<String>,
    changer: Mutex<changes::Changer>,
    /// What `ref` goes by, once it has run: nothing else needs it. Locked behind `changer`.
    reference: RwLock<Option<Reference>>,
    follower: Option<Follower>,
    resolver: Option<Resolver>,
}

#[derive(Debug)]
struct Reference {
    prefixes: reference::Prefixes,
    next_hops: Vec<NextHop>,
}

impl Ipv6 {
    /// A table of these routes; of equal prefixes the last one counts. Without a form the faster one is taken, measured here.
    ///
    /// # Errors
    /// [`Error::Memory`] where the machine has too little, [`Error::Value`] for more routes than a table takes.
    ///
    /// # Panics
    /// When a route names a next hop that is not there, or has bits set beyond its length.
    pub fn new(routes: &[Route], next_hops: &[NextHop], form: Option<Form>) -> Result<Self, Error> {
        Self::with_room(routes, next_hops, Vec::new(), form, Spare::default())
    }

    /// As [`Ipv6::new`], with names of the next hops, and as much room as asked for.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn with_room(
        routes: &[Route],
        next_hops: &[NextHop],
        names: Vec<String>,
        form: Option<Form>,
        spare: Spare,
    ) -> Result<Self, Error> {
        for route in routes {
            assert!((route.next_hop as usize) < next_hops.len(), "no such next hop: {route:?}");
            assert!(route.length <= 128 && route.prefix.masked(route.length) == route.prefix, "no prefix: {route:?}");
        }
        let rib = rib::Rib::new(routes);
        let build = |form| {
            let message = || format!("there are {} routes, which is more than a table takes", rib.len());
            let built = tables::Built::new(form, &rib, tables::ROOT_BITS);
            built.map_err(|tables::Full| Error::Value { span: None, message: message() })
        };
        let built = match form {
            Some(form) => build(form)?,
            None => match (build(Form::Trie), build(Form::Hash)) {
                (Ok(trie), Ok(hash)) => choose::faster(trie, hash, &rib),
                // A trie takes more routes than hash tables do.
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
        Ok(Self { image, layout, names, changer, reference: RwLock::new(None), follower: None, resolver: None })
    }

    /// How the table is looked up.
    pub fn form(&self) -> Form {
        self.layout.form
    }

    /// Bytes of the image that are in use; the others are room for changes.
    pub fn bytes_used(&self) -> usize {
        self.layout.line(self.changer().lines_used() as u32)
    }

    /// What a kernel would find in a copy of the image.
    #[cfg(test)]
    fn lookup_image(&self, image: &[u8], address: u128) -> Option<u32> {
        let (root, lines) =
            image[self.layout.root_offset..].split_at(self.layout.lines_offset - self.layout.root_offset);
        let (form, root_bits) = (self.layout.form, self.layout.root_bits);
        walk::Table { form, root_bits, root, lines }.lookup(address)
    }

    /// The next hop of the longest prefix that covers `address` (host byte order), found without the table image.
    pub fn lookup_ref(&self, address: u128) -> Option<u32> {
        self.with_reference(|reference| reference.prefixes.lookup(address))
    }
}

fn build(stanza: Spanned<DeTable<'_>>, site: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    let Resolved { routes, next_hops, asked } = config.resolve(site)?;
    let mut function = Ipv6::with_room(&routes, &next_hops, config.names(), config.form()?, config.spare()?)?;
    function.follower = config.follower(site)?;
    function.resolver = Resolver::new(asked);
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

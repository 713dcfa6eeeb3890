//! Configuration keys for routes and next hops.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;

use godwit_wire::MacAddress;
use serde::Deserialize;
use toml::Spanned;

use super::file::{self, Names};
use super::{Address, Route};
use crate::config::value;
use crate::fragments::IPV4_MTU_MIN;
use crate::routing::{Adjacency, DynamicNextHop, NextHop};
use crate::{BuildContext, Error};

/// Settings that define routes and next hops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stanza<'a> {
    /// Path of a text file of routes.
    pub(crate) routes: Option<&'a PathBuf>,
    /// Next hop of the routes that name no next hop.
    pub(crate) default_next_hop: Option<&'a Spanned<String>>,
    /// Routes that are added after those of the file.
    pub(crate) route: &'a [RouteConfig],
    /// Named next hops, which routes refer to by their names.
    pub(crate) next_hop: &'a [NextHopConfig],
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteConfig {
    prefix: Spanned<String>,
    next_hop: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NextHopConfig {
    pub(crate) name: Spanned<String>,
    port: Option<Spanned<String>>,
    destination_mac: Option<Spanned<String>>,
    source_mac: Option<Spanned<String>>,
    /// IP address of a gateway, whose Ethernet address is resolved at run time. It replaces
    /// `destination_mac`.
    via: Option<Spanned<String>>,
    /// Whether each packet is sent directly to its destination, whose Ethernet address is resolved
    /// at run time. This replaces `destination_mac`.
    #[serde(default)]
    on_link: bool,
    mtu: Option<Spanned<u32>>,
    #[serde(default)]
    local: bool,
    #[serde(default)]
    blackhole: bool,
}

/// Parsed routes in order, and their next hops sorted by index.
pub(crate) struct Resolved<A> {
    pub(crate) routes: Vec<Route<A>>,
    pub(crate) next_hops: Vec<NextHop>,
    /// Next hops whose Ethernet addresses a responder function must resolve.
    pub(crate) dynamic: Vec<DynamicNextHop>,
}

impl<A> Default for Resolved<A> {
    fn default() -> Self {
        Self { routes: Vec::new(), next_hops: Vec::new(), dynamic: Vec::new() }
    }
}

impl Stanza<'_> {
    /// Reads the routes of a function that also follows the kernel's routes. Resolves all names as
    /// [`Stanza::resolve`] does.
    ///
    /// The configuration need not contain routes. It must not contain next hops whose addresses a
    /// responder function resolves.
    pub(crate) fn resolve_with_kernel_routes<A: Address>(
        &self,
        context: &BuildContext<'_>,
    ) -> Result<Resolved<A>, Error> {
        if self.routes.is_none() && self.route.is_empty() && self.next_hop.is_empty() {
            return Ok(Resolved::default());
        }
        let resolved = self.resolve(context)?;
        if let Some(dynamic) = resolved.dynamic.first() {
            let message = format!(
                "next hop \"{}\" has via or on_link, but the function has follow, which uses the kernel's neighbours: \
                 remove one of them",
                dynamic.name
            );
            return Err(Error::Value { span: None, message });
        }
        Ok(resolved)
    }

    /// Reads the configured routes, and replaces next hop and port names with numbers.
    pub(crate) fn resolve<A: Address>(&self, context: &BuildContext<'_>) -> Result<Resolved<A>, Error> {
        if self.routes.is_none() && self.route.is_empty() {
            let message = format!(
                "function \"{}\" has no routes: name a file with routes = \"FILE\", or add [[function.route]]",
                context.name
            );
            return Err(Error::Value { span: None, message });
        }
        let mut names = Names { index: HashMap::new(), default: None };
        let mut next_hops = Vec::with_capacity(self.next_hop.len());
        let mut dynamic = Vec::new();
        for config in self.next_hop {
            let name = config.name.get_ref();
            if names.index.insert(name.as_bytes(), next_hops.len() as u32).is_some() {
                return Err(value(config.name.span(), format!("there are two next hops named \"{name}\"; rename one")));
            }
            let next_hop = config.resolve(context)?;
            if let NextHop::Unresolved(adjacency) = next_hop {
                let (next_hop, name) = (next_hops.len() as u32, name.clone());
                dynamic.push(DynamicNextHop { next_hop, name, gateway: config.gateway(A::BITS)?, adjacency });
            }
            next_hops.push(next_hop);
        }
        if let Some(name) = self.default_next_hop {
            names.default = Some(lookup(&names, name)?);
        }

        let mut routes = Vec::new();
        if let Some(path) = self.routes {
            let (path, text) = crate::config::read_file(context.directory, path)?;
            file::parse(&text, &names, &mut routes).map_err(|(line, message)| Error::Line { path, line, message })?;
        }
        for config in self.route {
            let (prefix, length) = file::parse_prefix(config.prefix.get_ref().as_bytes())
                .map_err(|error| error.at(config.prefix.span()))?;
            let next_hop = match &config.next_hop {
                Some(name) => lookup(&names, name)?,
                None => names.default.ok_or_else(|| value(config.prefix.span(), file::NO_NEXT_HOP.to_owned()))?,
            };
            routes.push(Route { prefix, length, next_hop });
        }
        Ok(Resolved { routes, next_hops, dynamic })
    }
}

impl NextHopConfig {
    /// Returns the configured next hop. It is unresolved if a responder function must resolve its
    /// Ethernet address.
    fn resolve(&self, context: &BuildContext<'_>) -> Result<NextHop, Error> {
        let name = self.name.get_ref();
        let refuse = |message| Err(value(self.name.span(), message));
        let is_dynamic = self.via.is_some() || self.on_link;
        let forwards =
            self.port.is_some() || self.destination_mac.is_some() || self.source_mac.is_some() || self.mtu.is_some();
        match (self.local, self.blackhole, forwards || is_dynamic) {
            (true, false, false) => return Ok(NextHop::Local),
            (false, true, false) => return Ok(NextHop::Blackhole),
            (false, false, _) => {}
            _ => {
                return refuse(format!(
                    "next hop \"{name}\" has conflicting keys: write either local = true, or blackhole = true, \
                     or port, destination_mac and source_mac, or port and via, or port and on_link = true"
                ));
            }
        }
        if u8::from(self.via.is_some()) + u8::from(self.on_link) + u8::from(self.destination_mac.is_some()) > 1 {
            return refuse(format!("next hop \"{name}\" must have only one of destination_mac, via and on_link"));
        }
        let Some(port) = &self.port else { return refuse(self.incomplete()) };
        let port = port_index(port, context.ports)?;
        let source = self.source_mac.as_ref().map(parse_mac).transpose()?;
        if source.is_some_and(|source| source.is_multicast()) {
            return refuse(format!("source_mac of next hop \"{name}\" is a group address; write a unicast address"));
        }
        let mtu = match &self.mtu {
            None => Adjacency::MTU_MAX,
            Some(mtu) => match u16::try_from(*mtu.get_ref()) {
                Ok(bytes) if usize::from(bytes) >= IPV4_MTU_MIN => bytes,
                _ => return Err(value(mtu.span(), format!("mtu must be {IPV4_MTU_MIN} to {}", u16::MAX))),
            },
        };
        let adjacency = |destination, source| Adjacency { port, destination, source, mtu };
        match (&self.destination_mac, source) {
            (Some(destination), Some(source)) => Ok(NextHop::Forward(adjacency(parse_mac(destination)?, source))),
            (None, source) if is_dynamic => {
                Ok(NextHop::Unresolved(adjacency(MacAddress::default(), source.unwrap_or_default())))
            }
            _ => refuse(self.incomplete()),
        }
    }

    fn incomplete(&self) -> String {
        format!(
            "next hop \"{}\" needs port, destination_mac and source_mac, or port and via, or port and on_link = true \
             (or local = true, or blackhole = true)",
            self.name.get_ref()
        )
    }

    /// Returns the IP address of the gateway, if there is one. Addresses of its family have `bits`
    /// bits.
    fn gateway(&self, bits: u8) -> Result<Option<IpAddr>, Error> {
        let Some(via) = &self.via else { return Ok(None) };
        let address = via.get_ref().parse::<IpAddr>().ok();
        let unicast = address.filter(|address| {
            let is_of_family = address.is_ipv4() == (bits == u32::BITS as u8);
            is_of_family && !address.is_multicast() && !address.is_unspecified() && !address.is_loopback()
        });
        let family = if bits == u32::BITS as u8 { "IPv4" } else { "IPv6" };
        unicast
            .map(Some)
            .ok_or_else(|| value(via.span(), format!("via = \"{}\" is not a unicast {family} address", via.get_ref())))
    }
}

fn lookup(names: &Names<'_>, name: &Spanned<String>) -> Result<u32, Error> {
    match names.index.get(name.get_ref().as_bytes()) {
        Some(&index) => Ok(index),
        None => Err(value(name.span(), file::unknown_next_hop(name.get_ref().as_bytes()))),
    }
}

/// Returns the number of a port.
pub(crate) fn port_index(port: &Spanned<String>, ports: &[String]) -> Result<u16, Error> {
    let index = ports.iter().position(|candidate| candidate == port.get_ref());
    index.and_then(|index| u16::try_from(index).ok()).ok_or_else(|| {
        let known = ports.join(", ");
        value(port.span(), format!("there is no port named \"{}\"; the ports are: {known}", port.get_ref()))
    })
}

/// Parses an Ethernet address, written as six pairs of hexadecimal digits separated by `:` or `-`.
pub(crate) fn parse_mac(text: &Spanned<String>) -> Result<MacAddress, Error> {
    let mut address = [0; 6];
    let mut pairs = text.get_ref().split([':', '-']);
    let parsed = address.iter_mut().all(|byte| match pairs.next() {
        Some(pair) if pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            u8::from_str_radix(pair, 16).map(|value| *byte = value).is_ok()
        }
        _ => false,
    });
    if parsed && pairs.next().is_none() {
        return Ok(MacAddress(address));
    }
    let message = format!("\"{}\" is not an Ethernet address such as 02:00:00:00:00:01", text.get_ref());
    Err(value(text.span(), message))
}

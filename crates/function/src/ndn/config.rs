//! Configuration of `ndn`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::names::{self, Names, NextHops};
use super::{Carrier, NextHop, Parts, UDP_PORT};
use crate::config::value;
use crate::routes::{parse_mac, port_index};
use crate::{BuildContext, Error};

/// Maximum spare capacity that can be configured, for names and for next hops.
const SPARE_MAX: usize = 1 << 30;
const NEXT_HOPS_MAX: usize = 1 << 16;

/// Configuration keys of a function of kind `ndn`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Path of a text file of names.
    names: Option<PathBuf>,
    /// Next hop of names that are configured without a next hop.
    default_next_hop: Option<Spanned<String>>,
    /// Names that are added after those of the file.
    #[serde(default)]
    route: Vec<RouteConfig>,
    /// Next hops of Interests.
    #[serde(default)]
    pub(super) next_hop: Vec<NextHopConfig>,
    /// UDP port of NDN.
    udp_port: Option<u16>,
    /// Number of names that can be added while packets flow.
    spare_names: Option<Spanned<usize>>,
    /// Number of next hops that can be added while packets flow.
    spare_next_hops: Option<Spanned<usize>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteConfig {
    prefix: Spanned<String>,
    next_hop: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NextHopConfig {
    pub(super) name: Spanned<String>,
    port: Option<Spanned<String>>,
    destination_mac: Option<Spanned<String>>,
    source_mac: Option<Spanned<String>>,
    destination_address: Option<Spanned<String>>,
    source_address: Option<Spanned<String>>,
    destination_port: Option<u16>,
    source_port: Option<u16>,
    #[serde(default)]
    local: bool,
    #[serde(default)]
    blackhole: bool,
}

impl Config {
    /// Reads the names and resolves all next hops.
    pub(super) fn resolve(&self, context: &BuildContext<'_>) -> Result<Parts, Error> {
        if self.names.is_none() && self.route.is_empty() {
            let message =
                format!("function \"{}\" has no names: add names = \"FILE\" or [[function.route]]", context.name);
            return Err(Error::Value { span: None, message });
        }
        let udp_port = self.udp_port.unwrap_or(UDP_PORT);
        let mut known = NextHops::default();
        let mut next_hops = Vec::with_capacity(self.next_hop.len());
        for config in &self.next_hop {
            let name = config.name.get_ref();
            if known.index.insert(name.as_bytes(), next_hops.len() as u32).is_some() {
                return Err(value(config.name.span(), format!("two next hops have the name \"{name}\"")));
            }
            next_hops.push((name.clone(), config.resolve(context.ports, udp_port)?));
        }
        if let Some(name) = &self.default_next_hop {
            known.default = Some(lookup(&known, name)?);
        }

        let mut names = Names::new();
        if let Some(file) = &self.names {
            let (path, text) = crate::config::read_file(context.directory, file)?;
            names::parse_with(&text, &known, &mut names).map_err(|(line, message)| Error::Line {
                path,
                line,
                message,
            })?;
        }
        for config in &self.route {
            let next_hop = match &config.next_hop {
                Some(name) => lookup(&known, name)?,
                None => known.default.ok_or_else(|| value(config.prefix.span(), names::NO_NEXT_HOP.to_owned()))?,
            };
            names
                .push_uri(config.prefix.get_ref().as_bytes(), next_hop)
                .map_err(|error| error.at(config.prefix.span()))?;
        }
        let mut parts = Parts { ports: context.ports.to_vec(), udp_port, ..Parts::new(names, next_hops) };
        parts.spare_names = limited(&self.spare_names, parts.spare_names, SPARE_MAX, "spare_names")?;
        parts.spare_next_hops =
            limited(&self.spare_next_hops, parts.spare_next_hops, NEXT_HOPS_MAX, "spare_next_hops")?;
        Ok(parts)
    }
}

fn limited(given: &Option<Spanned<usize>>, default: usize, max: usize, key: &str) -> Result<usize, Error> {
    match given {
        Some(number) if *number.get_ref() > max => Err(value(number.span(), format!("{key} must be at most {max}"))),
        Some(number) => Ok(*number.get_ref()),
        None => Ok(default),
    }
}

impl NextHopConfig {
    pub(super) fn resolve(&self, ports: &[String], udp_port: u16) -> Result<NextHop, Error> {
        let name = self.name.get_ref();
        let refuse = |message| Err(value(self.name.span(), message));
        let texts =
            [&self.port, &self.destination_mac, &self.source_mac, &self.destination_address, &self.source_address];
        let forwards =
            texts.iter().any(|text| text.is_some()) || self.destination_port.is_some() || self.source_port.is_some();
        match (self.local, self.blackhole, forwards) {
            (true, false, false) => return Ok(NextHop::Local),
            (false, true, false) => return Ok(NextHop::Blackhole),
            (false, false, _) => {}
            _ => {
                return refuse(format!(
                    "next hop \"{name}\" must have either local = true, or blackhole = true, \
                     or port, destination_mac and source_mac"
                ));
            }
        }
        let (Some(port), Some(destination), Some(source)) = (&self.port, &self.destination_mac, &self.source_mac)
        else {
            return refuse(format!(
                "next hop \"{name}\" needs port, destination_mac and source_mac (or local = true, or blackhole = true)"
            ));
        };
        let port = port_index(port, ports)?;
        let (destination, source) = (parse_mac(destination)?, parse_mac(source)?);
        if source.is_multicast() {
            return refuse(format!(
                "source_mac of next hop \"{name}\" is a group address: it must be the address of one station"
            ));
        }
        Ok(NextHop::Forward { port, destination, source, carrier: self.carrier(udp_port)? })
    }

    fn carrier(&self, udp_port: u16) -> Result<Carrier, Error> {
        let name = self.name.get_ref();
        let (destination, source) = match (&self.destination_address, &self.source_address) {
            (None, None) if self.destination_port.is_none() && self.source_port.is_none() => {
                return Ok(Carrier::Ethernet);
            }
            (Some(destination), Some(source)) => (address(destination)?, address(source)?),
            _ => {
                let message = format!("next hop \"{name}\" needs both destination_address and source_address for UDP");
                return Err(value(self.name.span(), message));
            }
        };
        let (to, from) = (self.destination_port.unwrap_or(udp_port), self.source_port.unwrap_or(udp_port));
        if to == 0 {
            return Err(value(self.name.span(), format!("destination_port of next hop \"{name}\" must not be 0")));
        }
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Ok(Carrier::Udp4 { source: (source, from), destination: (destination, to) })
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Ok(Carrier::Udp6 { source: (source, from), destination: (destination, to) })
            }
            _ => {
                let message = format!("the addresses of next hop \"{name}\" have different IP versions");
                Err(value(self.name.span(), message))
            }
        }
    }
}

/// Parses an IP address. The unspecified address is refused.
fn address(text: &Spanned<String>) -> Result<IpAddr, Error> {
    let refuse = |problem: &str| Err(value(text.span(), format!("\"{}\" is {problem}", text.get_ref())));
    match text.get_ref().parse() {
        Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) | Ok(IpAddr::V6(Ipv6Addr::UNSPECIFIED)) => {
            refuse("not the address of a station")
        }
        Ok(address) => Ok(address),
        Err(_) => refuse("not an IP address such as 192.0.2.1 or 2001:db8::1"),
    }
}

fn lookup(known: &NextHops<'_>, name: &Spanned<String>) -> Result<u32, Error> {
    match known.index.get(name.get_ref().as_bytes()) {
        Some(&index) => Ok(index),
        None => Err(value(name.span(), names::unknown_next_hop(name.get_ref().as_bytes()))),
    }
}

//! Configuration keys of the responder.

use std::net::IpAddr;
use std::sync::Arc;

use godwit_wire::MacAddress;
use serde::Deserialize;
use toml::Spanned;

use crate::config::value;
use crate::neighbours::Neighbours;
use crate::routing::{OwnAddresses, Prefix};
use crate::{BuildContext, Error};

/// Default maximum number of ICMP errors per second and worker (RFC 1812, section 4.3.2.8; RFC
/// 4443, section 2.4 (f)).
const MESSAGES_A_SECOND: u32 = 1000;

/// Default number of packets that a worker holds for one unresolved station.
const HELD_PACKETS: u16 = 16;

/// Configuration keys of a function of kind `responder`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Addresses that this machine has on each port.
    interface: Vec<InterfaceConfig>,
    messages_a_second: Option<u32>,
    held_packets: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InterfaceConfig {
    port: Spanned<String>,
    mac: Spanned<String>,
    addresses: Vec<Spanned<String>>,
}

/// Configuration of the responder with resolved names.
#[derive(Debug)]
pub(super) struct Settings {
    /// Interfaces, indexed by port.
    pub(super) interfaces: Vec<Option<Interface>>,
    pub(super) messages_a_second: u32,
    /// Maximum number of packets that a worker holds for one unresolved station.
    pub(super) held_packets: usize,
    /// Addresses of all interfaces.
    pub(super) own: Arc<OwnAddresses>,
    /// Stations that the responder resolves.
    pub(super) neighbours: Arc<Neighbours>,
}

/// Addresses that this machine has on one port.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) mac: MacAddress,
    pub(super) addresses: Vec<IpAddr>,
}

impl Settings {
    pub(super) fn interface(&self, port: u16) -> Option<&Interface> {
        self.interfaces.get(usize::from(port))?.as_ref()
    }

    /// Returns whether this machine has `address` on any port.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.interfaces.iter().flatten().any(|interface| interface.addresses.contains(&address))
    }
}

impl Interface {
    /// Returns the source address for requests to `neighbour`. It has the same address family as
    /// `neighbour` and shares the longest prefix with it.
    pub(super) fn nearest(&self, neighbour: IpAddr) -> Option<IpAddr> {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        let of_family = self.addresses.iter().copied().filter(|own| own.is_ipv4() == neighbour.is_ipv4());
        of_family.max_by_key(|own| (bits(*own) ^ bits(neighbour)).leading_zeros())
    }

    /// Returns the first address of an address family.
    pub(super) fn of_family(&self, is_v4: bool) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| address.is_ipv4() == is_v4)
    }
}

impl Config {
    pub(super) fn resolve(&self, context: &BuildContext<'_>) -> Result<Settings, Error> {
        let mut interfaces: Vec<Option<Interface>> = context.ports.iter().map(|_| None).collect();
        for config in &self.interface {
            let name = config.port.get_ref();
            let Some(port) = context.ports.iter().position(|known| known == name) else {
                let known = context.ports.join(", ");
                let message = format!("there is no port named \"{name}\"; the ports are: {known}");
                return Err(value(config.port.span(), message));
            };
            if interfaces[port].is_some() {
                return Err(value(config.port.span(), format!("port \"{name}\" has two interfaces; write one")));
            }
            let mac = crate::routes::parse_mac(&config.mac)?;
            if mac.is_multicast() {
                return Err(value(
                    config.mac.span(),
                    "mac is a group address; an interface needs a unicast address".to_owned(),
                ));
            }
            let mut addresses = Vec::new();
            for text in &config.addresses {
                // A prefix length may follow the address, as in the output of `ip address`. It must
                // be valid, but has no effect.
                let address = text.get_ref().split('/').next().unwrap_or_default().parse::<IpAddr>();
                let usable = address.ok().filter(|address| !address.is_multicast() && !address.is_unspecified());
                let Some(address) = usable.filter(|address| {
                    text.get_ref().split_once('/').is_none_or(|(_, length)| {
                        length.parse().is_ok_and(|length| Prefix::of(*address, length).is_some())
                    })
                }) else {
                    let message = format!("\"{}\" is not a host address; write one like 192.0.2.1/24", text.get_ref());
                    return Err(value(text.span(), message));
                };
                addresses.push(address);
            }
            interfaces[port] = Some(Interface { mac, addresses });
        }
        let known = || (0..).zip(&interfaces).filter_map(|(port, interface)| Some((port, interface.as_ref()?)));
        let own = OwnAddresses::new(
            known().map(|(port, interface)| (port, interface.mac)),
            known().flat_map(|(_, interface)| interface.addresses.iter().copied()),
        );
        let sources = interfaces.iter().map(|interface| Some(interface.as_ref()?.mac)).collect();
        Ok(Settings {
            own: Arc::new(own),
            interfaces,
            messages_a_second: self.messages_a_second.unwrap_or(MESSAGES_A_SECOND),
            held_packets: self.held_packets.unwrap_or(HELD_PACKETS).into(),
            neighbours: Arc::new(Neighbours::new(sources)),
        })
    }
}

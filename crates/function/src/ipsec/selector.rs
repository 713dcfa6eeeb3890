//! Selectors, which choose packets by their header fields (RFC 4301, section 4.4.1.1).

use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;
use std::ops::{BitAnd, Not};

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Unexpected, Visitor};
use serde_json::{Value, json};

use crate::Error;

/// Conditions on packet fields. The default selector matches every packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    /// Prefix of the source address.
    pub(super) source: Prefix,
    /// Prefix of the destination address.
    pub(super) destination: Prefix,
    /// IP protocol. `None` matches any protocol.
    pub(super) protocol: Option<u8>,
    /// Range of source ports. `None` matches all packets, even packets without ports.
    pub(super) source_ports: Option<Ports>,
    /// Range of destination ports. `None` matches all packets, even packets without ports.
    pub(super) destination_ports: Option<Ports>,
}

/// Packet fields that selectors compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketFields<A> {
    pub(super) source: A,
    pub(super) destination: A,
    pub(super) protocol: u8,
    /// Source and destination port, if the packet contains ports.
    pub(super) ports: Option<(u16, u16)>,
}

/// Result of the comparison of a packet with a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    Yes,
    No,
    /// The selector requires ports, but the packet contains none. All other fields match.
    Unknown,
}

/// An address as a number: `u32` for IPv4, `u128` for IPv6.
pub(super) trait Address: Copy + Eq + Hash + Ord + Default + BitAnd<Output = Self> + Not<Output = Self> {
    /// Returns the address and the mask of a prefix. Returns `None` for a prefix of the other
    /// address family.
    fn bits(prefix: Prefix) -> Option<Bits<Self>>;
}

impl Address for u32 {
    fn bits(prefix: Prefix) -> Option<Bits<Self>> {
        match prefix {
            Prefix::Any => Some(Bits::default()),
            Prefix::Ipv4(bits) => Some(bits),
            Prefix::Ipv6(_) => None,
        }
    }
}

impl Address for u128 {
    fn bits(prefix: Prefix) -> Option<Bits<Self>> {
        match prefix {
            Prefix::Any => Some(Bits::default()),
            Prefix::Ipv6(bits) => Some(bits),
            Prefix::Ipv4(_) => None,
        }
    }
}

/// Address prefix of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits<A> {
    pub(super) address: A,
    pub(super) mask: A,
}

impl<A: Address> Bits<A> {
    #[inline]
    fn contains(&self, address: A) -> bool {
        address & self.mask == self.address
    }
}

/// Selector for packets of one address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern<A> {
    pub(super) source: Bits<A>,
    pub(super) destination: Bits<A>,
    protocol: Option<u8>,
    source_ports: Option<Ports>,
    destination_ports: Option<Ports>,
}

impl<A: Address> Pattern<A> {
    pub(super) fn matches(&self, fields: &PacketFields<A>) -> Match {
        let protocol = self.protocol.is_none_or(|protocol| protocol == fields.protocol);
        if !protocol || !self.source.contains(fields.source) || !self.destination.contains(fields.destination) {
            return Match::No;
        }
        if self.source_ports.is_none() && self.destination_ports.is_none() {
            return Match::Yes;
        }
        let Some((source, destination)) = fields.ports else {
            return Match::Unknown;
        };
        let within = |ports: Option<Ports>, port| ports.is_none_or(|ports| ports.0 <= port && port <= ports.1);
        if within(self.source_ports, source) && within(self.destination_ports, destination) {
            Match::Yes
        } else {
            Match::No
        }
    }

    pub(super) fn is_address_only(&self) -> bool {
        self.protocol.is_none() && self.source_ports.is_none() && self.destination_ports.is_none()
    }
}

impl Selector {
    /// Returns the selector for packets of one address family, or `None` if it matches no packet of
    /// this family.
    pub(super) fn pattern<A: Address>(&self) -> Option<Pattern<A>> {
        Some(Pattern {
            source: A::bits(self.source)?,
            destination: A::bits(self.destination)?,
            protocol: self.protocol,
            source_ports: self.source_ports,
            destination_ports: self.destination_ports,
        })
    }

    /// Returns whether both prefixes allow the same address family. Otherwise, the selector matches
    /// no packet.
    pub(super) fn is_possible(&self) -> bool {
        self.pattern::<u32>().is_some() || self.pattern::<u128>().is_some()
    }

    pub(super) fn matches(&self, fields: &PacketFields<IpAddr>) -> Match {
        fn compare<A: Address>(selector: &Selector, fields: PacketFields<A>) -> Match {
            selector.pattern().map_or(Match::No, |pattern| pattern.matches(&fields))
        }
        let &PacketFields { source, destination, protocol, ports } = fields;
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => compare(
                self,
                PacketFields { source: u32::from(source), destination: destination.into(), protocol, ports },
            ),
            (IpAddr::V6(source), IpAddr::V6(destination)) => compare(
                self,
                PacketFields { source: u128::from(source), destination: destination.into(), protocol, ports },
            ),
            _ => Match::No,
        }
    }
}

impl Selector {
    /// Describes the selector as JSON with the keys of the configuration. Fields that match any
    /// value are omitted.
    pub(super) fn describe(&self) -> Value {
        let mut description = json!({});
        let prefixes = [("source", self.source), ("destination", self.destination)];
        for (key, prefix) in prefixes.into_iter().filter(|(_, prefix)| *prefix != Prefix::Any) {
            description[key] = prefix.to_string().into();
        }
        if let Some(protocol) = self.protocol {
            let name = PROTOCOLS.iter().find(|known| known.1 == protocol).map(|known| known.0);
            description["protocol"] = name.map_or_else(|| protocol.into(), Into::into);
        }
        for (key, ports) in [("source_ports", self.source_ports), ("destination_ports", self.destination_ports)] {
            if let Some(Ports(first, last)) = ports {
                description[key] = if first == last { first.into() } else { format!("{first}-{last}").into() };
            }
        }
        description
    }
}

/// Returns whether the protocol header begins with two ports, as in TCP, UDP, DCCP, SCTP and
/// UDP-Lite.
pub(super) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

/// Address prefix in the configuration. The default prefix covers all addresses of both families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Prefix {
    #[default]
    Any,
    Ipv4(Bits<u32>),
    Ipv6(Bits<u128>),
}

impl Prefix {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || Error::value(format!("\"{text}\" is not an IP prefix such as 10.0.0.0/8 or 2001:db8::/32"));
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse::<u32>().ok().filter(|bits| *bits <= longest).ok_or_else(wrong)?,
            None => longest,
        };
        let (prefix, first) = match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                let first = u32::from(address) & mask;
                (Self::Ipv4(Bits { address: first, mask }), IpAddr::V4(first.into()))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
                let first = u128::from(address) & mask;
                (Self::Ipv6(Bits { address: first, mask }), IpAddr::V6(first.into()))
            }
        };
        if address != first {
            return Err(Error::value(format!("\"{text}\" has bits set after its prefix: use {first}/{bits}")));
        }
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Ipv4(bits) => write!(f, "{}/{}", std::net::Ipv4Addr::from(bits.address), bits.mask.count_ones()),
            Self::Ipv6(bits) => write!(f, "{}/{}", std::net::Ipv6Addr::from(bits.address), bits.mask.count_ones()),
        }
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

/// Inclusive range of ports: first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports(pub(super) u16, pub(super) u16);

impl Ports {
    /// Every port.
    pub(super) const ANY: Self = Self(0, u16::MAX);
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PortsVisitor)
    }
}

struct PortsVisitor;

impl Visitor<'_> for PortsVisitor {
    type Value = Ports;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a port such as 53, or a range such as \"1024-65535\"")
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Ports, E> {
        let port = u16::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))?;
        Ok(Ports(port, port))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Ports, E> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Ports(first, last)),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

/// IP protocol, given by number or name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Protocol(pub(super) u8);

/// Protocol names that the configuration accepts (IANA, Protocol Numbers).
const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ospf", 89),
    ("sctp", 132),
];

impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "protocol must be a number or a name such as \"tcp\"")]
        enum Written {
            Number(i64),
            Name(String),
        }
        let number = match Written::deserialize(deserializer)? {
            Written::Number(number) => u8::try_from(number).ok(),
            Written::Name(name) => PROTOCOLS.iter().find(|known| known.0 == name).map(|known| known.1),
        };
        let names = || PROTOCOLS.iter().map(|known| known.0).collect::<Vec<_>>().join(", ");
        number.map(Self).ok_or_else(|| D::Error::custom(format!("protocol must be 0 to 255 or one of {}", names())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Written<T> {
        value: T,
    }

    fn read<T: for<'de> Deserialize<'de>>(value: &str) -> Result<T, toml::de::Error> {
        toml::from_str::<Written<T>>(&format!("value = {value}")).map(|document| document.value)
    }

    #[test]
    fn parses_prefixes() {
        let ipv4 = |address, mask| Ok(Prefix::Ipv4(Bits { address, mask }));
        assert_eq!(read("\"10.0.0.0/8\""), ipv4(0x0a00_0000, 0xff00_0000));
        assert_eq!(read("\"192.0.2.1\""), ipv4(0xc000_0201, u32::MAX));
        assert_eq!(read("\"0.0.0.0/0\""), ipv4(0, 0));
        let ipv6 = |address, mask| Ok(Prefix::Ipv6(Bits { address, mask }));
        assert_eq!(read("\"2001:db8::/32\""), ipv6(0x2001_0db8 << 96, 0xffff_ffff << 96));
        assert_eq!(read("\"::1\""), ipv6(1, u128::MAX));
        assert_eq!(read("\"::/0\""), ipv6(0, 0));
        assert!(read::<Prefix>("\"2001:db8::1/32\"").unwrap_err().message().contains("2001:db8::/32"));
        assert!(read::<Prefix>("\"10.0.0.1/8\"").unwrap_err().message().contains("10.0.0.0/8"));
        for wrong in ["\"10.0.0.0/33\"", "\"10.0.0/8\"", "\"\"", "\"::/129\"", "\"10.0.0.0/-1\"", "\"10.0.0.0/\"", "10"]
        {
            assert!(read::<Prefix>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn parses_ports_and_protocols() {
        assert_eq!(read("53"), Ok(Ports(53, 53)));
        assert_eq!(read("\"53\""), Ok(Ports(53, 53)));
        assert_eq!(read("\"1024-65535\""), Ok(Ports(1024, 65535)));
        assert_eq!(read("\"udp\""), Ok(Protocol(17)));
        assert_eq!(read("89"), Ok(Protocol(89)));
        for wrong in ["65536", "-1", "\"2-1\"", "\"1-\"", "\"a\"", "true"] {
            assert!(read::<Ports>(wrong).is_err(), "{wrong}");
        }
        for wrong in ["256", "-1", "\"tpc\"", "true"] {
            assert!(read::<Protocol>(wrong).unwrap_err().message().contains("protocol must be"), "{wrong}");
        }
    }

    #[test]
    fn a_selector_with_ports_is_unknown_for_packets_without_ports() {
        let address = |address: u32| IpAddr::V4(address.into());
        let fields = |source, protocol, ports| PacketFields {
            source: address(source),
            destination: address(9),
            protocol,
            ports,
        };
        let all = Selector::default();
        assert_eq!(all.matches(&fields(1, 6, None)), Match::Yes);
        let web = Selector { protocol: Some(6), destination_ports: Some(Ports(80, 81)), ..all.clone() };
        assert_eq!(web.matches(&fields(1, 6, Some((1, 80)))), Match::Yes);
        assert_eq!(web.matches(&fields(1, 6, Some((1, 82)))), Match::No);
        assert_eq!(web.matches(&fields(1, 6, Some((80, 1)))), Match::No);
        assert_eq!(web.matches(&fields(1, 17, Some((1, 80)))), Match::No);
        assert_eq!(web.matches(&fields(1, 6, None)), Match::Unknown);
        let from = Selector { source: Prefix::Ipv4(Bits { address: 0x100, mask: 0xffff_ff00 }), ..web };
        assert_eq!(from.matches(&fields(0x1ff, 6, None)), Match::Unknown);
        assert_eq!(from.matches(&fields(0x200, 6, None)), Match::No);
    }

    #[test]
    fn selectors_match_only_their_address_family() {
        let fields = |source: &str, destination: &str| PacketFields {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol: 1,
            ports: None,
        };
        let all = Selector::default();
        assert_eq!(all.matches(&fields("10.0.0.1", "10.0.0.2")), Match::Yes);
        assert_eq!(all.matches(&fields("::1", "::2")), Match::Yes);
        let ipv4 = Selector { source: Prefix::parse("0.0.0.0/0").unwrap(), ..all.clone() };
        assert_eq!(ipv4.matches(&fields("10.0.0.1", "10.0.0.2")), Match::Yes);
        assert_eq!(ipv4.matches(&fields("::1", "::2")), Match::No);
        let both = Selector { destination: Prefix::parse("::/0").unwrap(), ..ipv4.clone() };
        assert!(ipv4.is_possible() && all.is_possible() && !both.is_possible());
    }
}

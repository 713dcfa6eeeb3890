//! Classes: rules over the 5-tuple, and the classifier made from them.

use std::ops::{BitAnd, BitOr, BitXor, RangeInclusive};

use godwit_wire::{IpAddress, Parsed, protocol};

use crate::Prefix;

/// Most classes besides class 0.
pub const CLASSES_MAX: usize = 254;

/// Which packets are of a class. What is absent fits every packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The class, from 1.
    pub class: u8,
    /// Protocol number behind IPv4 or the IPv6 extension headers.
    pub protocol: Option<u8>,
    /// Where the packet comes from.
    pub source: Option<Prefix>,
    /// Where it goes.
    pub destination: Option<Prefix>,
    /// Source port; fits only packets that show ports.
    pub source_ports: Option<RangeInclusive<u16>>,
    /// Destination port; fits only packets that show ports.
    pub destination_ports: Option<RangeInclusive<u16>>,
}

/// The class of a packet: that of the first rule that fits, or class 0.
///
/// Linear in the rules, each a handful of masked compares without a branch between them; meant for a few dozen.
/// A packet that is not IP is of class 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classifier {
    v4: Box<[Compiled<u32>]>,
    v6: Box<[Compiled<u128>]>,
}

/// A rule for one address family: `(packet ^ value) & mask` is zero where it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Compiled<A> {
    source: (A, A),
    destination: (A, A),
    source_ports: Ports,
    destination_ports: Ports,
    /// Of [`Key::protocol`].
    protocol: (u16, u16),
    class: u8,
}

/// `port - low <= span`, wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ports {
    low: u16,
    span: u16,
}

/// What rules look at.
struct Key<A> {
    source: A,
    destination: A,
    source_port: u16,
    destination_port: u16,
    /// Protocol number, and [`HAS_PORTS`] where the packet shows ports.
    protocol: u16,
}

const HAS_PORTS: u16 = 0x100;

impl Classifier {
    /// Rules in order of precedence. A rule with prefixes of both address families fits nothing.
    pub fn new(rules: &[Rule]) -> Self {
        let narrow = |(value, mask): (u128, u128)| (value as u32, mask as u32);
        Self {
            v4: rules.iter().filter_map(|rule| Compiled::new(rule, false, narrow)).collect(),
            v6: rules.iter().filter_map(|rule| Compiled::new(rule, true, |wide| wide)).collect(),
        }
    }

    /// Whether every packet is of class 0, so that none needs to be looked at.
    #[inline]
    pub fn is_trivial(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// The class of a packet.
    #[inline]
    pub fn classify(&self, parsed: &Parsed) -> u8 {
        if self.is_trivial() { 0 } else { self.classify_by_rules(parsed) }
    }
}

impl Classifier {
    fn classify_by_rules(&self, parsed: &Parsed) -> u8 {
        let Some(five_tuple) = &parsed.five_tuple else { return 0 };
        let shows_ports = protocol::has_ports(five_tuple.protocol) && !parsed.fragment;
        let protocol = u16::from(five_tuple.protocol) | if shows_ports { HAS_PORTS } else { 0 };
        let (source_port, destination_port) = (five_tuple.source_port, five_tuple.destination_port);
        match (five_tuple.source, five_tuple.destination) {
            (IpAddress::V4(source), IpAddress::V4(destination)) => {
                let (source, destination) = (u32::from_be_bytes(source), u32::from_be_bytes(destination));
                first_fit(&self.v4, &Key { source, destination, source_port, destination_port, protocol })
            }
            (IpAddress::V6(source), IpAddress::V6(destination)) => {
                let (source, destination) = (u128::from_be_bytes(source), u128::from_be_bytes(destination));
                first_fit(&self.v6, &Key { source, destination, source_port, destination_port, protocol })
            }
            // A five-tuple has addresses of one family.
            _ => 0,
        }
    }
}

/// An address as a number.
trait Address: Copy + PartialEq + Default + BitXor<Output = Self> + BitAnd<Output = Self> + BitOr<Output = Self> {}
impl Address for u32 {}
impl Address for u128 {}

fn first_fit<A: Address>(rules: &[Compiled<A>], key: &Key<A>) -> u8 {
    rules.iter().find(|rule| rule.fits(key)).map_or(0, |rule| rule.class)
}

impl<A: Address> Compiled<A> {
    /// The rule for one address family; `None` where its prefixes are of the other.
    fn new(rule: &Rule, v6: bool, number: impl Fn((u128, u128)) -> (A, A)) -> Option<Self> {
        let prefixes = [rule.source, rule.destination];
        if prefixes.iter().flatten().any(|prefix| prefix.is_v6() != v6) {
            return None;
        }
        let [source, destination] =
            prefixes.map(|prefix| number(prefix.map_or((0, 0), |prefix| prefix.value_and_mask())));
        let needs_ports = rule.source_ports.is_some() || rule.destination_ports.is_some();
        let port_bit = if needs_ports { HAS_PORTS } else { 0 };
        let protocol = match rule.protocol {
            Some(protocol) => (u16::from(protocol) | port_bit, 0xff | port_bit),
            None => (port_bit, port_bit),
        };
        Some(Self {
            source,
            destination,
            source_ports: Ports::new(rule.source_ports.as_ref()),
            destination_ports: Ports::new(rule.destination_ports.as_ref()),
            protocol,
            class: rule.class,
        })
    }

    #[inline(always)]
    fn fits(&self, key: &Key<A>) -> bool {
        let addresses = ((key.source ^ self.source.0) & self.source.1)
            | ((key.destination ^ self.destination.0) & self.destination.1);
        let protocol = (key.protocol ^ self.protocol.0) & self.protocol.1;
        (addresses == A::default())
            & (protocol == 0)
            & self.source_ports.fit(key.source_port)
            & self.destination_ports.fit(key.destination_port)
    }
}

impl Ports {
    fn new(range: Option<&RangeInclusive<u16>>) -> Self {
        let (low, high) = range.map_or((0, u16::MAX), |range| (*range.start(), *range.end()));
        Self { low, span: high.saturating_sub(low) }
    }

    #[inline(always)]
    fn fit(self, port: u16) -> bool {
        port.wrapping_sub(self.low) <= self.span
    }
}

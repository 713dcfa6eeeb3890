//! Assigns packets to classes by rules for their five-tuples.

mod bulk;

use std::ops::{BitAnd, BitOr, BitXor, RangeInclusive};

use godwit_wire::{IpAddress, Parsed, protocol};

use crate::Prefix;

/// Maximum number of classes, without the default class 0.
pub const CLASSES_MAX: usize = 254;

/// A rule that assigns packets to a class. A field that is `None` matches every packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Class of matching packets, which is at least 1. Class 0 is the default class.
    pub class: u8,
    /// Protocol number after the IPv4 header or the IPv6 extension headers.
    pub protocol: Option<u8>,
    /// Prefix of the source address.
    pub source: Option<Prefix>,
    /// Prefix of the destination address.
    pub destination: Option<Prefix>,
    /// Range of source ports. A rule with a range matches neither fragments nor packets without
    /// ports.
    pub source_ports: Option<RangeInclusive<u16>>,
    /// Range of destination ports. A rule with a range matches neither fragments nor packets
    /// without ports.
    pub destination_ports: Option<RangeInclusive<u16>>,
}

/// Assigns each packet the class of the first matching rule, or class 0 if no rule matches.
///
/// The search is linear, with a few masked comparisons and no branch within a rule. It is fast
/// enough for a few dozen rules. Packets that are not IP have class 0.
///
/// ```
/// use godwit_chain::{Classifier, Rule};
///
/// let dns = Rule {
///     class: 1,
///     protocol: Some(17),
///     source: None,
///     destination: "10.0.0.0/8".parse().ok(),
///     source_ports: None,
///     destination_ports: Some(53..=53),
/// };
/// let classifier = Classifier::new(&[dns]);
/// assert_eq!(classifier.classify(&godwit_wire::parse(&[0; 60])), 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classifier {
    v4: Box<[Compiled<u32>]>,
    v6: Box<[Compiled<u128>]>,
}

/// A compiled rule for one address family. A field of a packet matches if `(packet ^ value) & mask`
/// is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Compiled<A> {
    source: (A, A),
    destination: (A, A),
    source_ports: Ports,
    destination_ports: Ports,
    /// Value and mask for [`Key::protocol`].
    protocol: (u16, u16),
    class: u8,
}

/// A range of port numbers. A port matches if `port - low <= span`, with wrapping subtraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ports {
    low: u16,
    span: u16,
}

/// Fields of a packet that the classification rules compare.
struct Key<A> {
    source: A,
    destination: A,
    source_port: u16,
    destination_port: u16,
    /// Protocol number. The bit [`HAS_PORTS`] is set if the protocol has ports and the packet is
    /// not a fragment.
    protocol: u16,
}

const HAS_PORTS: u16 = 0x100;

impl Classifier {
    /// Compiles the rules, which are in order of precedence. A rule with both an IPv4 prefix and an
    /// IPv6 prefix matches no packet.
    pub fn new(rules: &[Rule]) -> Self {
        let narrow = |(value, mask): (u128, u128)| (value as u32, mask as u32);
        Self {
            v4: rules.iter().filter_map(|rule| Compiled::new(rule, false, narrow)).collect(),
            v6: rules.iter().filter_map(|rule| Compiled::new(rule, true, |wide| wide)).collect(),
        }
    }

    /// Returns whether every packet has class 0. Packets then need no classification.
    #[inline]
    pub fn is_trivial(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Returns the class of a packet.
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
                first_match(&self.v4, &Key { source, destination, source_port, destination_port, protocol })
            }
            (IpAddress::V6(source), IpAddress::V6(destination)) => {
                let (source, destination) = (u128::from_be_bytes(source), u128::from_be_bytes(destination));
                first_match(&self.v6, &Key { source, destination, source_port, destination_port, protocol })
            }
            // Both addresses of a five-tuple have the same family.
            _ => 0,
        }
    }
}

trait Address: Copy + PartialEq + Default + BitXor<Output = Self> + BitAnd<Output = Self> + BitOr<Output = Self> {}
impl Address for u32 {}
impl Address for u128 {}

fn first_match<A: Address>(rules: &[Compiled<A>], key: &Key<A>) -> u8 {
    rules.iter().find(|rule| rule.matches(key)).map_or(0, |rule| rule.class)
}

impl<A: Address> Compiled<A> {
    /// Compiles a rule for one address family. Returns `None` if a prefix belongs to the other
    /// family.
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
    fn matches(&self, key: &Key<A>) -> bool {
        let addresses = ((key.source ^ self.source.0) & self.source.1)
            | ((key.destination ^ self.destination.0) & self.destination.1);
        let protocol = (key.protocol ^ self.protocol.0) & self.protocol.1;
        (addresses == A::default())
            & (protocol == 0)
            & self.source_ports.contains(key.source_port)
            & self.destination_ports.contains(key.destination_port)
    }
}

impl Ports {
    fn new(range: Option<&RangeInclusive<u16>>) -> Self {
        let (low, high) = range.map_or((0, u16::MAX), |range| (*range.start(), *range.end()));
        Self { low, span: high.saturating_sub(low) }
    }

    #[inline(always)]
    fn contains(self, port: u16) -> bool {
        port.wrapping_sub(self.low) <= self.span
    }
}

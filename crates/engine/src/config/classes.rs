//! Reads the `[[class]]` stanzas. A class is a set of packets that match the same rules.

use std::fmt;
use std::ops::{Range, RangeInclusive};

use godwit_chain::{CLASSES_MAX, Prefix, Rule, names};
use godwit_wire::protocol;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use toml::Spanned;

use super::document::{Document, Stanza};
use super::error::ConfigError;

/// Protocols that have a name in configurations. Other protocols are written as numbers.
const PROTOCOLS: [(&str, u8); 8] = [
    ("tcp", protocol::TCP),
    ("udp", protocol::UDP),
    ("icmp", protocol::ICMP),
    ("icmpv6", protocol::ICMPV6),
    ("sctp", protocol::SCTP),
    ("udp-lite", protocol::UDP_LITE),
    ("esp", protocol::ESP),
    ("ah", protocol::AH),
];

/// Returns the name of a protocol in configurations, or `None` if it has no name.
pub fn protocol_name(protocol: u8) -> Option<&'static str> {
    PROTOCOLS.iter().find(|(_, number)| *number == protocol).map(|(name, _)| *name)
}

/// Maximum number of rules of all packet classes together.
pub(crate) const RULES_MAX: usize = 4096;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassKeys {
    #[serde(default)]
    protocol: Terms,
    #[serde(default)]
    source: Terms,
    #[serde(default)]
    destination: Terms,
    #[serde(default)]
    source_ports: Terms,
    #[serde(default)]
    destination_ports: Terms,
}

/// Reads all packet classes. Returns the class names, starting with class 1, and the rules in file
/// order.
pub(super) fn read<'a>(
    document: &Document<'a>,
    stanzas: Vec<Stanza<'a>>,
) -> Result<(Vec<String>, Vec<Rule>), ConfigError> {
    let mut names: Vec<String> = Vec::new();
    let mut rules = Vec::new();
    for mut stanza in stanzas {
        if names.len() == CLASSES_MAX {
            return Err(document.refuse(stanza.span(), format!("too many classes: at most {CLASSES_MAX}")));
        }
        let name = document.name(&mut stanza)?;
        if names.contains(&name) {
            let message = format!("two classes are named `{name}`: use lists of values in one class instead");
            return Err(document.refuse(stanza.span_of("name"), message));
        }
        names.push(name);
        // At most CLASSES_MAX classes exist, so a class number fits into 8 bits.
        let class = names.len() as u8;
        rules_of(document, &mut stanza, class, &mut rules)?;
    }
    Ok((names, rules))
}

/// Appends the rules of one packet class. Each combination of the listed values is one rule.
fn rules_of<'a>(
    document: &Document<'a>,
    stanza: &mut Stanza<'a>,
    class: u8,
    rules: &mut Vec<Rule>,
) -> Result<(), ConfigError> {
    let keys: ClassKeys = document.read(stanza, &["name"])?;
    let protocols = keys.protocol.each(document, read_protocol)?;
    let sources = keys.source.each(document, read_prefix)?;
    let destinations = keys.destination.each(document, read_prefix)?;
    let source_ports = keys.source_ports.each(document, read_ports)?;
    let destination_ports = keys.destination_ports.each(document, read_ports)?;
    let lists = Lists { protocols, sources, destinations, source_ports, destination_ports };
    if let Some((key, message)) = lists.contradiction("class") {
        return Err(document.refuse(stanza.span_of(key), message));
    }
    if lists.rules().is_none_or(|count| rules.len() + count > RULES_MAX) {
        let message = format!("too many rules: the combinations of the lists of all classes exceed {RULES_MAX}");
        return Err(document.refuse(stanza.span(), message));
    }
    lists.append(class, rules);
    Ok(())
}

/// Values in a packet class or in a trace filter, with one list per key. The value `None` matches
/// all packets. If a key is absent, its list contains only `None`.
pub(crate) struct Lists {
    pub(crate) protocols: Vec<Option<u8>>,
    pub(crate) sources: Vec<Option<Prefix>>,
    pub(crate) destinations: Vec<Option<Prefix>>,
    pub(crate) source_ports: Vec<Option<RangeInclusive<u16>>>,
    pub(crate) destination_ports: Vec<Option<RangeInclusive<u16>>>,
}

impl Lists {
    /// Checks whether any packet can match these lists. If none can, returns the faulty key and an
    /// error message. `what` is the name of the lists in the message: `class` or `filter`.
    pub(crate) fn contradiction(&self, what: &str) -> Option<(&'static str, String)> {
        let has_ports = |protocol: &Option<u8>| protocol.is_none_or(protocol::has_ports);
        let ports = [("source_ports", &self.source_ports), ("destination_ports", &self.destination_ports)];
        for (key, ports) in ports {
            if ports[0].is_some() && !self.protocols.iter().all(has_ports) {
                return Some((key, format!("`{key}` requires protocols with ports, such as tcp and udp")));
            }
        }
        let families = |prefixes: &[Option<Prefix>]| {
            let has = |v6| prefixes.iter().any(|prefix| prefix.is_none_or(|prefix| prefix.is_v6() == v6));
            (has(false), has(true))
        };
        let (source_v4, source_v6) = families(&self.sources);
        let (destination_v4, destination_v6) = families(&self.destinations);
        let fits = source_v4 && destination_v4 || source_v6 && destination_v6;
        let message =
            || format!("`source` and `destination` have different IP versions, so no packet matches this {what}");
        (!fits).then(|| ("destination", message()))
    }

    /// Returns the number of combinations of the listed values. Each combination is one rule.
    /// Returns `None` if the number overflows.
    pub(crate) fn rules(&self) -> Option<usize> {
        let Self { protocols, sources, destinations, source_ports, destination_ports } = self;
        let lists = [sources.len(), destinations.len(), source_ports.len(), destination_ports.len()];
        lists.iter().try_fold(protocols.len(), |product, length| product.checked_mul(*length))
    }

    /// Appends one rule for each combination of the listed values.
    pub(crate) fn append(&self, class: u8, rules: &mut Vec<Rule>) {
        for &protocol in &self.protocols {
            for &source in &self.sources {
                for &destination in &self.destinations {
                    for source_ports in &self.source_ports {
                        for destination_ports in &self.destination_ports {
                            let (source_ports, destination_ports) = (source_ports.clone(), destination_ports.clone());
                            rules.push(Rule { class, protocol, source, destination, source_ports, destination_ports });
                        }
                    }
                }
            }
        }
    }
}

/// Error in a configuration value. The caller adds the line number.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TermError {
    #[error("{0} is not a protocol number: must be 0 to 255")]
    Protocol(i64),
    /// A name does not exist. The message lists the names that do.
    #[error("{0}")]
    Unknown(String),
    #[error(transparent)]
    Prefix(#[from] godwit_chain::PrefixError),
    #[error("{0} is not a prefix such as \"10.0.0.0/8\" or \"2001:db8::/32\"")]
    NotPrefix(i64),
    #[error("{0} is not a port: must be 0 to 65535")]
    Port(String),
    #[error("`{0}` is neither a port such as 80 nor a range such as \"1024-65535\"")]
    NotPorts(String),
    #[error("`{0}` is an empty range: the first port is larger than the last")]
    EmptyRange(String),
}

pub(crate) fn read_protocol(term: &Term) -> Result<u8, TermError> {
    match term {
        Term::Number(number) => u8::try_from(*number).map_err(|_| TermError::Protocol(*number)),
        Term::Text(text) => match PROTOCOLS.iter().find(|(name, _)| name == text) {
            Some((_, number)) => Ok(*number),
            None => Err(TermError::Unknown(names::unknown("protocol", text, &PROTOCOLS.map(|(name, _)| name)))),
        },
    }
}

pub(crate) fn read_prefix(term: &Term) -> Result<Prefix, TermError> {
    match term {
        Term::Text(text) => Ok(text.parse::<Prefix>()?),
        Term::Number(number) => Err(TermError::NotPrefix(*number)),
    }
}

pub(crate) fn read_ports(term: &Term) -> Result<RangeInclusive<u16>, TermError> {
    match term {
        Term::Number(number) => {
            let port = u16::try_from(*number).map_err(|_| TermError::Port(number.to_string()))?;
            Ok(port..=port)
        }
        Term::Text(text) => {
            let shown = || text.escape_debug().to_string();
            let port = |text: &str| match text.trim() {
                digits if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                    digits.parse::<u16>().map_err(|_| TermError::Port(digits.to_owned()))
                }
                _ => Err(TermError::NotPorts(shown())),
            };
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (port(first)?, port(last)?);
            if first > last {
                return Err(TermError::EmptyRange(shown()));
            }
            Ok(first..=last)
        }
    }
}

/// Values of a key. A single value is a list with one element. The list is empty if the key is
/// absent.
#[derive(Default)]
struct Terms(Vec<Spanned<Term>>);

/// A value of a key: a number or a string.
#[derive(Debug)]
pub(crate) enum Term {
    Number(i64),
    Text(String),
}

impl Terms {
    /// Parses each value of a key. If the key is absent, the result contains only `None`.
    fn each<T>(
        &self,
        document: &Document<'_>,
        read: impl Fn(&Term) -> Result<T, TermError>,
    ) -> Result<Vec<Option<T>>, ConfigError> {
        if self.0.is_empty() {
            return Ok(vec![None]);
        }
        let one = |term: &Spanned<Term>| {
            let refuse = |error| document.refuse(Range::clone(&term.span()), error);
            read(term.get_ref()).map(Some).map_err(refuse)
        };
        self.0.iter().map(one).collect()
    }
}

impl<'de> Deserialize<'de> for Terms {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Spanned::<OneOrMore>::deserialize(deserializer)?;
        let span = value.span();
        Ok(Self(match value.into_inner() {
            OneOrMore::One(term) => vec![Spanned::new(span, term)],
            OneOrMore::More(terms) => terms,
        }))
    }
}

enum OneOrMore {
    One(Term),
    More(Vec<Spanned<Term>>),
}

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMoreVisitor)
    }
}

struct OneOrMoreVisitor;

impl<'de> Visitor<'de> for OneOrMoreVisitor {
    type Value = OneOrMore;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a string, or a list of them")
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<OneOrMore, E> {
        Ok(OneOrMore::One(Term::Number(value)))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<OneOrMore, E> {
        Ok(OneOrMore::One(Term::Text(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<OneOrMore, A::Error> {
        let mut terms = Vec::new();
        while let Some(term) = sequence.next_element()? {
            terms.push(term);
        }
        if terms.is_empty() {
            return Err(serde::de::Error::custom("an empty list matches no packet"));
        }
        Ok(OneOrMore::More(terms))
    }
}

impl<'de> Deserialize<'de> for Term {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match OneOrMore::deserialize(deserializer)? {
            OneOrMore::One(term) => Ok(term),
            OneOrMore::More(_) => Err(serde::de::Error::custom("a list must not contain lists")),
        }
    }
}

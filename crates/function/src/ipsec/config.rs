//! What the operator writes: `[[function.sa]]` and `[[function.policy]]`.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use serde::Deserialize;
use toml::Spanned;

use super::database::{Database, Sa};
use super::key::Key;
use super::policies::{Action, Policy};
use super::selector::{Ports, Prefix, Protocol, Selector, has_ports};
use crate::Error;

/// SPIs below are reserved (RFC 4303, section 2.1).
const SPI_MIN: u32 = 256;
/// So many SAs or policies: more than anybody writes by hand.
const COUNT_MAX: usize = 1 << 20;

/// The keys of the stanza.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The security associations.
    #[serde(default)]
    sa: Vec<SaConfig>,
    /// What is to be done with packets, in order: the first that matches counts.
    #[serde(default)]
    policy: Vec<PolicyConfig>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SaConfig {
    name: Spanned<String>,
    spi: Spanned<u32>,
    direction: Direction,
    source: Spanned<Ipv4Addr>,
    destination: Spanned<Ipv4Addr>,
    // The only ones there are: serde checks the names, nothing reads the values.
    #[serde(rename = "encryption")]
    _encryption: Encryption,
    encryption_key: Key,
    #[serde(rename = "authentication")]
    _authentication: Authentication,
    authentication_key: Key,
    selectors: Option<Spanned<Vec<Spanned<SelectorConfig>>>>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Direction {
    /// We encrypt.
    Out,
    /// We decrypt.
    In,
}

#[derive(Debug, Deserialize)]
enum Encryption {
    #[serde(rename = "aes-128-cbc")]
    Aes128Cbc,
}

#[derive(Debug, Deserialize)]
enum Authentication {
    #[serde(rename = "hmac-sha1-96")]
    HmacSha1,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SelectorConfig {
    #[serde(default)]
    source: Prefix,
    #[serde(default)]
    destination: Prefix,
    protocol: Option<Protocol>,
    source_ports: Option<Ports>,
    destination_ports: Option<Ports>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyConfig {
    action: Spanned<ActionConfig>,
    #[serde(default)]
    source: Prefix,
    #[serde(default)]
    destination: Prefix,
    protocol: Option<Protocol>,
    source_ports: Option<Ports>,
    destination_ports: Option<Ports>,
    sa: Option<Spanned<String>>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum ActionConfig {
    Protect,
    Bypass,
    Discard,
}

impl Config {
    /// The databases that the stanza describes.
    ///
    /// # Errors
    /// [`Error::Value`] with one sentence, and no key in it, for what cannot work.
    pub(super) fn database(self) -> Result<Database, Error> {
        let Self { sa, policy } = self;
        if sa.len() > COUNT_MAX || policy.len() > COUNT_MAX {
            let message = format!("ipsec takes at most {COUNT_MAX} SAs and as many policies");
            return Err(Error::Value { span: None, message });
        }
        check_unique(&sa)?;
        let names: HashMap<&str, usize> =
            sa.iter().enumerate().map(|(index, sa)| (sa.name.get_ref().as_str(), index)).collect();
        let policies = policy.iter().map(|policy| policy.resolve(&names, &sa)).collect::<Result<Vec<_>, _>>()?;
        let sas = sa.iter().map(SaConfig::resolve).collect::<Result<_, _>>()?;
        Ok(Database::new(sas, &policies))
    }
}

/// Names are unique; inbound SPIs are (they alone find the SA: RFC 4301, section 4.1); outbound SPIs are per destination.
fn check_unique(sas: &[SaConfig]) -> Result<(), Error> {
    let mut names = HashMap::new();
    let mut spis = HashMap::new();
    for sa in sas {
        let (name, spi) = (sa.name.get_ref(), *sa.spi.get_ref());
        if names.insert(name, ()).is_some() {
            return value(&sa.name, format!("two SAs are called \"{name}\""));
        }
        if spi < SPI_MIN {
            return value(
                &sa.spi,
                format!("spi = {spi} of SA \"{name}\" is reserved; {SPI_MIN} is the first that is not"),
            );
        }
        let place = match sa.direction {
            Direction::In => None,
            Direction::Out => Some(*sa.destination.get_ref()),
        };
        if let Some(other) = spis.insert((spi, place), name) {
            let to = place.map_or(String::new(), |destination| format!(" to {destination}"));
            return value(&sa.spi, format!("SA \"{name}\" has the same SPI {spi:#x}{to} as SA \"{other}\""));
        }
    }
    Ok(())
}

impl SaConfig {
    fn resolve(&self) -> Result<Sa, Error> {
        let name = self.name.get_ref();
        for endpoint in [&self.source, &self.destination] {
            let address = endpoint.get_ref();
            if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
                return value(endpoint, format!("{address} of SA \"{name}\" is not the address of a tunnel endpoint"));
            }
        }
        if self.source.get_ref() == self.destination.get_ref() {
            return value(&self.destination, format!("SA \"{name}\" has the same source and destination"));
        }
        // The place given is that of the name: who shows the line of an error must not show a key.
        let wrong = |key: &str, what: String| Error::Value {
            span: Some(self.name.span()),
            message: format!("{key} of SA \"{name}\" {what}"),
        };
        Ok(Sa {
            spi: *self.spi.get_ref(),
            direction: self.direction,
            source: u32::from(*self.source.get_ref()),
            destination: u32::from(*self.destination.get_ref()),
            // RFC 3602, section 2.1.
            encryption_key: self.encryption_key.bytes().map_err(|what| wrong("encryption_key", what))?,
            // RFC 2404, section 3.
            authentication_key: self.authentication_key.bytes().map_err(|what| wrong("authentication_key", what))?,
            selectors: self.selectors()?,
        })
    }

    fn selectors(&self) -> Result<Vec<Selector>, Error> {
        let name = self.name.get_ref();
        match (&self.selectors, self.direction) {
            (Some(selectors), Direction::Out) => {
                let message = format!("SA \"{name}\" is outbound: policies choose its packets, not selectors");
                value(selectors, message)
            }
            (Some(selectors), Direction::In) if selectors.get_ref().is_empty() => value(
                selectors,
                format!("SA \"{name}\" has no selectors: it would accept nothing; leave the key out to accept all"),
            ),
            (Some(selectors), Direction::In) => selectors.get_ref().iter().map(SelectorConfig::resolve).collect(),
            (None, Direction::Out) => Ok(Vec::new()),
            (None, Direction::In) => Ok(vec![Selector::default()]),
        }
    }
}

impl SelectorConfig {
    fn resolve(this: &Spanned<Self>) -> Result<Selector, Error> {
        let keys = this.get_ref();
        let selector = Selector {
            source: keys.source,
            destination: keys.destination,
            protocol: keys.protocol.map(|protocol| protocol.0),
            source_ports: keys.source_ports,
            destination_ports: keys.destination_ports,
        };
        check_ports(&selector, this).map(|()| selector)
    }
}

impl PolicyConfig {
    fn resolve(&self, names: &HashMap<&str, usize>, sas: &[SaConfig]) -> Result<Policy, Error> {
        let selector = Selector {
            source: self.source,
            destination: self.destination,
            protocol: self.protocol.map(|protocol| protocol.0),
            source_ports: self.source_ports,
            destination_ports: self.destination_ports,
        };
        check_ports(&selector, &self.action)?;
        let action = match (*self.action.get_ref(), &self.sa) {
            (ActionConfig::Protect, Some(sa)) => Action::Protect(outbound(sa, names, sas)?),
            (ActionConfig::Protect, None) => {
                return value(&self.action, "a policy that protects must name its SA: sa = \"...\"".to_owned());
            }
            (_, Some(sa)) => {
                return value(sa, "only a policy with action = \"protect\" has an SA".to_owned());
            }
            (ActionConfig::Bypass, None) => Action::Bypass,
            (ActionConfig::Discard, None) => Action::Discard,
        };
        Ok(Policy { selector, action })
    }
}

/// The index of the outbound SA that a policy names.
fn outbound(sa: &Spanned<String>, names: &HashMap<&str, usize>, sas: &[SaConfig]) -> Result<u32, Error> {
    let name = sa.get_ref();
    let Some(&index) = names.get(name.as_str()) else {
        let mut known: Vec<&str> = names.keys().copied().collect();
        known.sort_unstable();
        let known =
            if known.is_empty() { "there is none".to_owned() } else { format!("there are {}", known.join(", ")) };
        return value(sa, format!("no SA is called \"{name}\"; {known}"));
    };
    if sas[index].direction == Direction::In {
        return value(sa, format!("SA \"{name}\" is inbound and cannot protect; name one with direction = \"out\""));
    }
    // There are at most COUNT_MAX.
    Ok(index as u32)
}

/// Ports mean something only with a protocol that has them.
fn check_ports<T>(selector: &Selector, place: &Spanned<T>) -> Result<(), Error> {
    let ports = selector.source_ports.is_some() || selector.destination_ports.is_some();
    if ports && !selector.protocol.is_some_and(has_ports) {
        return value(place, "ports need protocol = \"tcp\", \"udp\" or another that has ports".to_owned());
    }
    Ok(())
}

fn value<T, U>(place: &Spanned<U>, message: String) -> Result<T, Error> {
    Err(crate::config::value(place.span(), message))
}

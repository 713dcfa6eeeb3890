//! Configuration of the `ipsec` function and its policies.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

pub(super) use super::config_sa::{Direction, Mode, SaConfig};
use super::policies::{Action, Policy};
use super::selector::{Ports, Prefix, Protocol, Selector, has_ports};
use crate::Error;
use crate::fragments::Limits;

/// Configuration of the `ipsec` function.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Security associations.
    #[serde(default)]
    pub(super) sa: Vec<SaConfig>,
    /// IPsec policies in order. The first matching policy applies.
    #[serde(default)]
    pub(super) policy: Vec<PolicyConfig>,
    /// Maximum number of SAs, including SAs that are added later.
    pub(super) sa_capacity: Option<Spanned<usize>>,
    /// Maximum number of selectors. Only inbound SAs have selectors.
    pub(super) selector_capacity: Option<Spanned<usize>>,
    /// Default path MTU of outbound tunnels, in bytes.
    pub(super) path_mtu: Option<Spanned<u16>>,
    /// Limits for the reassembly of fragments that are sent to local endpoints. Without these
    /// limits, fragments are not reassembled.
    pub(super) reassembly: Option<Spanned<ReassemblyConfig>>,
    /// Names of the unprotected ports, which lead to the network outside the tunnels.
    #[serde(default)]
    pub(super) unprotected_ports: Vec<Spanned<String>>,
    /// Minimum headroom of packets, in bytes. A larger value leaves space for SAs that are added
    /// later.
    pub(super) headroom_bytes: Option<u16>,
    /// Minimum tailroom of packets, in bytes. A larger value leaves space for SAs that are added
    /// later.
    pub(super) tailroom_bytes: Option<u16>,
}

/// Limits for packets whose fragments have not all arrived.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ReassemblyConfig {
    packets: usize,
    bytes: usize,
    timeout_ms: u64,
}

impl Default for ReassemblyConfig {
    fn default() -> Self {
        Self { packets: 256, bytes: 4 << 20, timeout_ms: 2000 }
    }
}

impl ReassemblyConfig {
    pub(super) fn limits(this: &Spanned<Self>) -> Result<Limits, Error> {
        let Self { packets, bytes, timeout_ms } = *this.get_ref();
        let ranges = [
            ("packets", packets, 1..(1 << 20) + 1),
            ("bytes", bytes, (64 << 10)..(1 << 32) + 1),
            ("timeout_ms", timeout_ms as usize, 1..120_001),
        ];
        for (key, number, range) in ranges {
            if !range.contains(&number) {
                let message = format!("reassembly: {key} = {number} must be {} to {}", range.start, range.end - 1);
                return value(this, message);
            }
        }
        Ok(Limits { packets, bytes, frame_bytes: usize::MAX, timeout_ns: timeout_ms * 1_000_000 })
    }
}

/// Selector of an inbound SA.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SelectorConfig {
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
pub(super) struct PolicyConfig {
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

impl SelectorConfig {
    pub(super) fn resolve(this: &Spanned<Self>) -> Result<Selector, Error> {
        let keys = this.get_ref();
        let selector = Selector {
            source: keys.source,
            destination: keys.destination,
            protocol: keys.protocol.map(|protocol| protocol.0),
            source_ports: keys.source_ports,
            destination_ports: keys.destination_ports,
        };
        check(&selector, this).map(|()| selector)
    }
}

/// Returns the index of the outbound SA with the given name, or an error.
pub(super) type FindSa<'a> = &'a dyn Fn(&str) -> Result<u32, Error>;

impl PolicyConfig {
    pub(super) fn resolve(&self, find_sa: FindSa<'_>) -> Result<Policy, Error> {
        let selector = Selector {
            source: self.source,
            destination: self.destination,
            protocol: self.protocol.map(|protocol| protocol.0),
            source_ports: self.source_ports,
            destination_ports: self.destination_ports,
        };
        check(&selector, &self.action)?;
        let action = match (*self.action.get_ref(), &self.sa) {
            (ActionConfig::Protect, Some(sa)) => {
                Action::Protect(find_sa(sa.get_ref()).map_err(|error| error.at(sa.span()))?)
            }
            (ActionConfig::Protect, None) => {
                return value(&self.action, "a policy that protects must name its SA: sa = \"...\"".to_owned());
            }
            (_, Some(sa)) => {
                return value(sa, "only a policy with action = \"protect\" can have an SA: leave sa out".to_owned());
            }
            (ActionConfig::Bypass, None) => Action::Bypass,
            (ActionConfig::Discard, None) => Action::Discard,
        };
        Ok(Policy { selector, action })
    }
}

/// Checks that a selector with ports has a protocol with ports. Also checks that both prefixes
/// belong to the same address family.
fn check<T>(selector: &Selector, key: &Spanned<T>) -> Result<(), Error> {
    let ports = selector.source_ports.is_some() || selector.destination_ports.is_some();
    if ports && !selector.protocol.is_some_and(has_ports) {
        return value(key, "ports need protocol = \"tcp\", \"udp\" or another protocol with ports".to_owned());
    }
    if !selector.is_possible() {
        let Selector { source, destination, .. } = selector;
        return value(key, format!("no packet goes from {source} to {destination}: one is IPv4, the other IPv6"));
    }
    Ok(())
}

/// Converts port names to a set with bit `n` for port `n`.
pub(super) fn port_set(names: &[Spanned<String>], ports: &[String]) -> Result<u64, Error> {
    let mut set = 0;
    for name in names {
        let Some(index) = ports.iter().position(|port| port == name.get_ref()) else {
            let known = ports.join(", ");
            let message =
                format!("unprotected_ports: there is no port named \"{}\"; the ports are: {known}", name.get_ref());
            return value(name, message);
        };
        set |= 1 << index;
    }
    Ok(set)
}

/// Returns the value of a numeric key. Returns an error at the position of the key if the value is
/// out of range.
pub(super) fn within(key: &str, given: &Spanned<usize>, range: Range<usize>) -> Result<usize, Error> {
    let number = *given.get_ref();
    if range.contains(&number) {
        return Ok(number);
    }
    value(given, format!("{key} = {number} must be {} to {}", range.start, range.end - 1))
}

/// Returns an error at the location of `key`.
pub(super) fn value<T, U>(key: &Spanned<U>, message: String) -> Result<T, Error> {
    Err(crate::config::value(key.span(), message))
}

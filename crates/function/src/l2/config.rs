//! Configuration keys of `l2`.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::control::{Control, Limits};
use super::macs;
use super::switch::{Port, Switch};
use super::{key, tables};
use crate::config::value;
use crate::{BuildContext, Error};

/// Default VLAN of ports and of static addresses.
const DEFAULT_VLAN: u16 = 1;
/// Default capacity of the table, in addresses.
const DEFAULT_CAPACITY: u64 = 65_536;
/// Default ageing time, in seconds (IEEE 802.1Q-2018, table 8-6).
const DEFAULT_AGEING_S: u64 = 300;
/// Maximum ageing time, in seconds (IEEE 802.1Q-2018, table 8-6).
const AGEING_S_MAX: u64 = 1_000_000;

/// Configuration keys of a function of kind `l2`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Number of addresses that the table must have room for.
    capacity: Option<Spanned<u64>>,
    /// Ageing time of learned addresses, in seconds. With the value 0, addresses do not age.
    ageing_s: Option<Spanned<u64>>,
    /// Path of a text file of static addresses.
    macs: Option<PathBuf>,
    /// Static addresses in the configuration.
    #[serde(default)]
    mac: Vec<MacConfig>,
    /// Ports of the switch. If the list is empty, all ports belong to the switch and to VLAN 1.
    #[serde(default)]
    port: Vec<PortConfig>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MacConfig {
    vlan: Option<Spanned<u16>>,
    mac: Spanned<String>,
    port: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PortConfig {
    port: Spanned<String>,
    access: Option<Spanned<u16>>,
    trunk: Option<Spanned<Vec<VlanRange>>>,
    native: Option<Spanned<u16>>,
    learn: Option<bool>,
    mac_limit: Option<u32>,
}

/// VLAN or range of VLANs, written as `10`, `"10"` or `"10-19"`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum VlanRange {
    One(u16),
    Text(String),
}

impl Config {
    pub(super) fn switch(&self, context: &BuildContext<'_>) -> Result<Switch, Error> {
        let mut ports: Vec<Option<Port>> = context.ports.iter().map(|_| None).collect();
        if self.port.is_empty() {
            let port = |name: &String| Port { name: name.clone(), untagged: Some(DEFAULT_VLAN), ..Port::default() };
            return Ok(Switch::new(context.ports.iter().map(|name| Some(port(name))).collect()));
        }
        for config in &self.port {
            let name = config.port.get_ref();
            let Some(number) = context.ports.iter().position(|known| known == name) else {
                let known = context.ports.join(", ");
                let message = format!("there is no port named \"{name}\"; the ports are: {known}");
                return Err(value(config.port.span(), message));
            };
            if ports[number].is_some() {
                return Err(value(
                    config.port.span(),
                    format!("port \"{name}\" is configured twice; remove one entry"),
                ));
            }
            ports[number] = Some(config.resolve()?);
        }
        Ok(Switch::new(ports))
    }

    pub(super) fn limits(&self) -> Result<Limits, Error> {
        let capacity = self.capacity.as_ref().map_or(DEFAULT_CAPACITY, |capacity| *capacity.get_ref());
        let Some(bucket_bits) = tables::bucket_bits(capacity).filter(|_| capacity > 0) else {
            let span = self.capacity.as_ref().map_or(0..0, Spanned::span);
            let capacity_max = crate::tables::exact::capacity_of(tables::BUCKET_BITS.end - 1);
            return Err(value(span, format!("capacity = {capacity}: must be 1 to {capacity_max} addresses")));
        };
        let ageing_s = self.ageing_s.as_ref().map_or(DEFAULT_AGEING_S, |ageing| *ageing.get_ref());
        if ageing_s > AGEING_S_MAX {
            let span = self.ageing_s.as_ref().map_or(0..0, Spanned::span);
            return Err(value(span, format!("ageing_s = {ageing_s}: must be 0 (never) to {AGEING_S_MAX} seconds")));
        }
        Ok(Limits { bucket_bits, ageing: (ageing_s > 0).then(|| Duration::from_secs(ageing_s)) })
    }

    /// Adds the static addresses of the file to the table, and then those of the configuration.
    pub(super) fn add_static(
        &self,
        switch: &Switch,
        context: &BuildContext<'_>,
        control: &mut Control,
    ) -> Result<(), Error> {
        if let Some(file) = &self.macs {
            let (path, text) = crate::config::read_file(context.directory, file)?;
            let refuse = |(line, message)| Error::Line { path: path.clone(), line, message };
            let addresses = macs::parse(&text, |vid, name| member(switch, vid, name)).map_err(refuse)?;
            control.add(&addresses, Duration::ZERO).map_err(|(index, message)| {
                let (vid, mac) = super::vid_and_mac(addresses[index].0);
                value(0..0, format!("{}: VLAN {vid}, {mac}: {message}", path.display()))
            })?;
        }
        for config in &self.mac {
            let vid = config.vlan.as_ref().map_or(Ok(DEFAULT_VLAN), vid)?;
            let mac = macs::station(config.mac.get_ref()).map_err(|error| error.at(config.mac.span()))?;
            let port = member(switch, vid, config.port.get_ref());
            let port = port.map_err(|error| error.at(config.port.span()))?;
            let added = control.add(&[(key(vid, mac), port)], Duration::ZERO);
            added.map_err(|(_, message)| value(config.mac.span(), message))?;
        }
        control.publish(None)
    }
}

/// Returns the number of the port `name`. Returns an error if the port does not belong to the VLAN.
pub(super) fn member(switch: &Switch, vid: u16, name: &str) -> Result<u8, Error> {
    let port = switch.number(name)?;
    match switch.is_member(vid, port) {
        true => Ok(port),
        false => Err(Error::value(format!("port \"{name}\" does not belong to VLAN {vid}"))),
    }
}

fn vid(vid: &Spanned<u16>) -> Result<u16, Error> {
    match macs::is_vid(*vid.get_ref()) {
        true => Ok(*vid.get_ref()),
        false => Err(value(vid.span(), format!("{} is not a VLAN, 1 to 4094", vid.get_ref()))),
    }
}

impl PortConfig {
    fn resolve(&self) -> Result<Port, Error> {
        let name = self.port.get_ref();
        let refuse = |message: String| value(self.port.span(), message);
        let untagged = match (&self.access, &self.trunk, &self.native) {
            (Some(access), None, None) => Some(vid(access)?),
            (None, Some(_), native) => native.as_ref().map(vid).transpose()?,
            (None, None, None) => Some(DEFAULT_VLAN),
            (None, None, Some(_)) => {
                return Err(refuse(format!("port \"{name}\" has native, which requires trunk = [VLAN, ...]")));
            }
            (Some(_), ..) => {
                return Err(refuse(format!(
                    "port \"{name}\" must have either access = VLAN, or trunk = [VLAN, ...] and optionally native = VLAN"
                )));
            }
        };
        let mut tagged = Vec::new();
        for range in self.trunk.iter().flat_map(|trunk| trunk.get_ref()) {
            let span = self.trunk.as_ref().map_or(0..0, Spanned::span);
            let (first, last) = range.resolve().map_err(|error| error.at(span))?;
            tagged.extend((first..=last).filter(|vid| Some(*vid) != untagged));
        }
        tagged.sort_unstable();
        tagged.dedup();
        if self.trunk.is_some() && tagged.is_empty() {
            return Err(refuse(format!(
                "port \"{name}\" is a trunk without tagged VLANs; write access = VLAN for a port with one VLAN"
            )));
        }
        Ok(Port {
            name: name.clone(),
            untagged,
            tagged,
            is_trunk: self.trunk.is_some(),
            learns: self.learn.unwrap_or(true),
            mac_limit: self.mac_limit,
        })
    }
}

impl VlanRange {
    fn resolve(&self) -> Result<(u16, u16), Error> {
        let (first, last) = match self {
            Self::One(one) => (*one, *one),
            Self::Text(text) => {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                (macs::vid(first.trim())?, macs::vid(last.trim())?)
            }
        };
        match macs::is_vid(first) && macs::is_vid(last) && first <= last {
            true => Ok((first, last)),
            false => Err(Error::value(format!(
                "\"{first}-{last}\" is not a range of VLANs; write two numbers from 1 to 4094, the lower first"
            ))),
        }
    }
}

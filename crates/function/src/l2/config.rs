//! What the operator writes.

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

/// VLAN of ports of which nothing is said.
const DEFAULT_VLAN: u16 = 1;
/// Addresses of a table of which nothing is said.
const DEFAULT_CAPACITY: u64 = 65_536;
/// IEEE 802.1Q-2018, table 8-6.
const DEFAULT_AGEING_S: u64 = 300;
/// The same table.
const AGEING_S_MAX: u64 = 1_000_000;

/// The keys of the stanza.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Addresses that the table has to hold.
    capacity: Option<Spanned<u64>>,
    /// Seconds without a frame after which a learned address is forgotten; 0: never.
    ageing_s: Option<Spanned<u64>>,
    /// A text file of static addresses, see `macs.rs`.
    macs: Option<PathBuf>,
    /// Static addresses in place.
    #[serde(default)]
    mac: Vec<MacConfig>,
    /// Ports; without any, all ports there are, in VLAN 1.
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

/// One VLAN, or some: `10`, `"10"`, `"10-19"`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum VlanRange {
    One(u16),
    Text(String),
}

impl Config {
    pub(super) fn switch(&self, site: &BuildContext<'_>) -> Result<Switch, Error> {
        let mut ports: Vec<Option<Port>> = site.ports.iter().map(|_| None).collect();
        if self.port.is_empty() {
            let port = |name: &String| Port { name: name.clone(), untagged: Some(DEFAULT_VLAN), ..Port::default() };
            return Ok(Switch::new(site.ports.iter().map(|name| Some(port(name))).collect()));
        }
        for config in &self.port {
            let name = config.port.get_ref();
            let Some(number) = site.ports.iter().position(|known| known == name) else {
                let known = site.ports.join(", ");
                let message = format!("there is no port called \"{name}\"; the ports are: {known}");
                return Err(value(config.port.span(), message));
            };
            if ports[number].is_some() {
                return Err(value(config.port.span(), format!("port \"{name}\" is said twice")));
            }
            ports[number] = Some(config.resolve()?);
        }
        Ok(Switch::new(ports))
    }

    pub(super) fn limits(&self) -> Result<Limits, Error> {
        let capacity = self.capacity.as_ref().map_or(DEFAULT_CAPACITY, |capacity| *capacity.get_ref());
        let Some(bucket_bits) = tables::bucket_bits(capacity).filter(|_| capacity > 0) else {
            let span = self.capacity.as_ref().map_or(0..0, Spanned::span);
            let most = tables::capacity_of(tables::BUCKET_BITS.end - 1);
            return Err(value(span, format!("capacity = {capacity}: must be 1 to {most} addresses")));
        };
        let ageing_s = self.ageing_s.as_ref().map_or(DEFAULT_AGEING_S, |ageing| *ageing.get_ref());
        if ageing_s > AGEING_S_MAX {
            let span = self.ageing_s.as_ref().map_or(0..0, Spanned::span);
            return Err(value(span, format!("ageing_s = {ageing_s}: must be 0 (never) to {AGEING_S_MAX} seconds")));
        }
        Ok(Limits { bucket_bits, ageing: (ageing_s > 0).then(|| Duration::from_secs(ageing_s)) })
    }

    /// The static addresses, those of the file first.
    pub(super) fn add_static(
        &self,
        switch: &Switch,
        site: &BuildContext<'_>,
        control: &mut Control,
    ) -> Result<(), Error> {
        if let Some(file) = &self.macs {
            let (path, text) = crate::config::read_file(site.directory, file)?;
            let refuse = |(line, message)| Error::Line { path: path.clone(), line, message };
            let addresses = macs::parse(&text, |vid, name| member(switch, vid, name)).map_err(refuse)?;
            control.add(&addresses, Duration::ZERO).map_err(|(index, message)| {
                let (vid, mac) = super::vid_and_mac(addresses[index].0);
                value(0..0, format!("{}: VLAN {vid}, {mac}: {message}", path.display()))
            })?;
        }
        for config in &self.mac {
            let vid = config.vlan.as_ref().map_or(Ok(DEFAULT_VLAN), vid)?;
            let mac = macs::station(config.mac.get_ref()).map_err(|message| value(config.mac.span(), message))?;
            let port = member(switch, vid, config.port.get_ref());
            let port = port.map_err(|message| value(config.port.span(), message))?;
            let added = control.add(&[(key(vid, mac), port)], Duration::ZERO);
            added.map_err(|(_, message)| value(config.mac.span(), message))?;
        }
        control.publish(None)
    }
}

/// The number of a port that belongs to a VLAN, or what to say.
pub(super) fn member(switch: &Switch, vid: u16, name: &str) -> Result<u8, String> {
    let port = switch.number(name)?;
    match switch.is_member(vid, port) {
        true => Ok(port),
        false => Err(format!("port \"{name}\" does not belong to VLAN {vid}")),
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
                return Err(refuse(format!("port \"{name}\" has native, which goes with trunk = [VLAN, ...]")));
            }
            (Some(_), ..) => {
                return Err(refuse(format!(
                    "port \"{name}\" must have either access = VLAN, or trunk = [VLAN, ...] and perhaps native = VLAN"
                )));
            }
        };
        let mut tagged = Vec::new();
        for range in self.trunk.iter().flat_map(|trunk| trunk.get_ref()) {
            let span = self.trunk.as_ref().map_or(0..0, Spanned::span);
            let (first, last) = range.resolve().map_err(|message| value(span, message))?;
            tagged.extend((first..=last).filter(|vid| Some(*vid) != untagged));
        }
        tagged.sort_unstable();
        tagged.dedup();
        if self.trunk.is_some() && tagged.is_empty() {
            return Err(refuse(format!(
                "port \"{name}\" is a trunk without VLANs; with one VLAN only it is access = VLAN"
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
    fn resolve(&self) -> Result<(u16, u16), String> {
        let (first, last) = match self {
            Self::One(one) => (*one, *one),
            Self::Text(text) => {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                (macs::vid(first.trim())?, macs::vid(last.trim())?)
            }
        };
        match macs::is_vid(first) && macs::is_vid(last) && first <= last {
            true => Ok((first, last)),
            false => Err(format!("VLANs {first} to {last}: they are 1 to 4094, the lower one first")),
        }
    }
}

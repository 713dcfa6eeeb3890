//! Reads the `[[port]]` stanzas.

use std::path::Path;
use std::sync::Arc;

use godwit_chain::names;
use godwit_io::live::Live;
use godwit_io::{af_xdp, pcap, synthetic, tap};
use serde::Deserialize;

use super::document::{Document, Stanza};
use super::error::ConfigError;

/// Maximum number of ports.
pub const PORTS_MAX: usize = 64;

/// A configured port.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Configured name of the port.
    pub name: String,
    /// Whether packets leave through the port in arrival order.
    pub ordered: bool,
    /// Kind of the port, with its keys.
    pub kind: PortKind,
    /// Line number of the port's stanza in the configuration, counted from 1.
    pub line: usize,
}

/// Kind of a port, with its settings. Relative paths are already resolved.
#[derive(Clone, Debug)]
pub enum PortKind {
    /// A synthetic port, which generates packets and discards the packets sent to it.
    Synthetic(synthetic::Config),
    /// A capture port, which reads packets from a capture file and writes packets to another file.
    Pcap(pcap::Config),
    /// A live port, which exchanges packets with the network. The fields are its kind and its
    /// configuration.
    Live(&'static str, Arc<dyn Live>),
}

/// Values that the key `kind` of a port can have.
const KINDS: [&str; 5] = ["synthetic", "pcap", "af_xdp", "dpdk", "tap"];
/// Keys that every `[[port]]` stanza can have.
const KEYS: [&str; 3] = ["name", "kind", "order"];

impl PortKind {
    /// Returns the value of the key `kind` for this port.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Synthetic(_) => KINDS[0],
            Self::Pcap(_) => KINDS[1],
            Self::Live(kind, _) => kind,
        }
    }

    /// Returns whether the port can receive packets.
    pub fn receives(&self) -> bool {
        match self {
            Self::Synthetic(_) | Self::Live(..) => true,
            Self::Pcap(config) => config.file.is_some(),
        }
    }

    /// Returns whether the port can transmit packets.
    pub fn transmits(&self) -> bool {
        match self {
            Self::Synthetic(_) | Self::Live(..) => true,
            Self::Pcap(config) => config.write.is_some(),
        }
    }
}

pub(super) fn read<'a>(
    document: &Document<'a>,
    stanzas: Vec<Stanza<'a>>,
    eal: Option<&[String]>,
    directory: &Path,
) -> Result<Vec<PortConfig>, ConfigError> {
    if stanzas.is_empty() {
        return Err(document.refuse(0..0, "there is no port: add at least one [[port]]"));
    }
    let mut ports: Vec<PortConfig> = Vec::new();
    for mut stanza in stanzas {
        if ports.len() == PORTS_MAX {
            return Err(document.refuse(stanza.span(), format!("too many ports: at most {PORTS_MAX}")));
        }
        let name = document.name(&mut stanza)?;
        if let Some(other) = ports.iter().find(|port| port.name == name) {
            let message = format!("two ports are named `{name}`: the other one starts on line {}", other.line);
            return Err(document.refuse(stanza.span_of("name"), message));
        }
        ports.push(read_one(document, stanza, name, eal, directory)?);
    }
    let is_stale = |port: &&PortConfig| match &port.kind {
        PortKind::Synthetic(config) => config.payload == synthetic::PayloadKind::Stale,
        _ => false,
    };
    let is_outside = |port: &&PortConfig| !matches!(port.kind, PortKind::Synthetic(_));
    if let (Some(stale), Some(outside)) = (ports.iter().find(is_stale), ports.iter().find(is_outside)) {
        let message = format!(
            "payload = \"stale\" of port `{}` would expose bytes of other packets to port `{}`: all ports must be synthetic",
            stale.name, outside.name
        );
        return Err(document.refuse_line(stale.line, message));
    }
    Ok(ports)
}

/// Warns about synthetic ports whose frames are longer than a buffer. The port would count and skip
/// these frames, which is never intended.
pub(super) fn warn_of_long_frames(
    ports: &[PortConfig],
    frame_bytes_max: usize,
    origin: &str,
    warnings: &mut Vec<String>,
) {
    for port in ports {
        if let PortKind::Synthetic(config) = &port.kind
            && usize::from(config.size.bounds().1) > frame_bytes_max
        {
            let (name, line, longest) = (&port.name, port.line, config.size.bounds().1);
            warnings.push(format!(
                "{origin}:{line}: port `{name}` generates frames of up to {longest} bytes, but [arena] accepts at most \
                 frame_bytes_max = {frame_bytes_max}"
            ));
        }
    }
}

fn read_one<'a>(
    document: &Document<'a>,
    mut stanza: Stanza<'a>,
    name: String,
    eal: Option<&[String]>,
    directory: &Path,
) -> Result<PortConfig, ConfigError> {
    let line = document.line(stanza.span().start);
    let kind = stanza.require_text(document, "kind")?;
    let ordered = match stanza.take_text(document, "order")? {
        None => true,
        Some(order) => match order.get_ref().as_str() {
            "arrival" => true,
            "none" => false,
            other => {
                let message = format!("`order`: {}", names::unknown("value", other, &["arrival", "none"]));
                return Err(document.refuse(order.span(), message));
            }
        },
    };
    let (kind, checked) = match kind.get_ref().as_str() {
        "synthetic" => {
            let mut config: synthetic::Config = document.read(&mut stanza, &KEYS)?;
            config.resolve(directory);
            let checked = config.validate();
            (PortKind::Synthetic(config), checked)
        }
        "pcap" => {
            let mut config: pcap::Config = document.read(&mut stanza, &KEYS)?;
            config.resolve(directory);
            let checked = config.validate();
            (PortKind::Pcap(config), checked)
        }
        "af_xdp" => live::<af_xdp::Config>(document, &mut stanza, KINDS[2])?,
        #[cfg(feature = "dpdk")]
        "dpdk" => {
            let mut config: godwit_io::dpdk::Config = document.read(&mut stanza, &KEYS)?;
            config.eal = eal.map(<[String]>::to_vec);
            let checked = config.validate();
            (PortKind::Live(KINDS[3], Arc::new(config)), checked)
        }
        #[cfg(not(feature = "dpdk"))]
        "dpdk" => {
            let _ = eal;
            let message = "this Godwit was built without DPDK: build it with `--features dpdk` (Debian: libdpdk-dev), or use kind = \"af_xdp\"";
            return Err(document.refuse(kind.span(), message));
        }
        "tap" => live::<tap::Config>(document, &mut stanza, KINDS[4])?,
        other => return Err(document.refuse(kind.span(), names::unknown("kind of port", other, &KINDS))),
    };
    at_key(&stanza, document, checked)?;
    Ok(PortConfig { name, ordered, kind, line })
}

/// Reads the configuration of a live port.
fn live<'a, C: Live + Deserialize<'a> + 'static>(
    document: &Document<'a>,
    stanza: &mut Stanza<'a>,
    kind: &'static str,
) -> Result<(PortKind, Result<(), godwit_io::Error>), ConfigError> {
    let config: C = document.read(stanza, &KEYS)?;
    let checked = config.validate();
    Ok((PortKind::Live(kind, Arc::new(config)), checked))
}

/// Converts a port error into a configuration error that names the key's line.
fn at_key(
    stanza: &Stanza<'_>,
    document: &Document<'_>,
    checked: Result<(), godwit_io::Error>,
) -> Result<(), ConfigError> {
    checked.map_err(|error| {
        let at = match &error {
            godwit_io::Error::Config { key, .. } => stanza.span_of(key),
            _ => stanza.span(),
        };
        document.refuse(at, error)
    })
}

//! `[[port]]`.

use std::path::Path;

use godwit_chain::names;
use godwit_io::{pcap, synthetic};

use super::document::{Document, Stanza};
use super::{ConfigError, PORTS_MAX};

/// One `[[port]]`.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Its name.
    pub name: String,
    /// Whether packets leave by it in order of arrival.
    pub ordered: bool,
    /// What it is.
    pub kind: PortKind,
    /// Line of the configuration that begins it.
    pub line: usize,
}

/// What a port is, with the keys of that kind. File names start from the working directory.
#[derive(Clone, Debug)]
pub enum PortKind {
    /// Makes packets, swallows packets.
    Synthetic(synthetic::Config),
    /// Reads and writes captures.
    Pcap(pcap::Config),
}

/// All kinds of port, as `kind` names them.
const KINDS: [&str; 2] = ["synthetic", "pcap"];
/// Keys of every port.
const KEYS: [&str; 3] = ["name", "kind", "order"];

impl PortKind {
    /// The kind, as the configuration names it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Synthetic(_) => KINDS[0],
            Self::Pcap(_) => KINDS[1],
        }
    }

    /// Whether packets can come in by it.
    pub fn receives(&self) -> bool {
        match self {
            Self::Synthetic(_) => true,
            Self::Pcap(config) => config.file.is_some(),
        }
    }

    /// Whether packets can leave by it.
    pub fn transmits(&self) -> bool {
        match self {
            Self::Synthetic(_) => true,
            Self::Pcap(config) => config.write.is_some(),
        }
    }
}

pub(super) fn read<'a>(
    document: &Document<'a>,
    stanzas: Vec<Stanza<'a>>,
    directory: &Path,
) -> Result<Vec<PortConfig>, ConfigError> {
    if stanzas.is_empty() {
        return Err(document.refuse(0..0, "no port is configured: at least one [[port]] is needed"));
    }
    let mut ports: Vec<PortConfig> = Vec::new();
    for mut stanza in stanzas {
        if ports.len() == PORTS_MAX {
            return Err(document.refuse(stanza.span(), format!("too many ports: at most {PORTS_MAX}")));
        }
        let name = document.name(&mut stanza)?;
        if let Some(other) = ports.iter().find(|port| port.name == name) {
            let message = format!("there are two ports called `{name}`: the other begins in line {}", other.line);
            return Err(document.refuse(stanza.span_of("name"), message));
        }
        ports.push(read_one(document, stanza, name, directory)?);
    }
    Ok(ports)
}

/// A frame longer than any window is counted and passed over: never what a generator is for.
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
                "{origin}:{line}: port `{name}` makes frames of up to {longest} bytes, and [arena] takes those of up to \
                 frame_bytes_max = {frame_bytes_max} only"
            ));
        }
    }
}

fn read_one<'a>(
    document: &Document<'a>,
    mut stanza: Stanza<'a>,
    name: String,
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
        other => return Err(document.refuse(kind.span(), names::unknown("kind of port", other, &KINDS))),
    };
    match checked {
        Ok(()) => Ok(PortConfig { name, ordered, kind, line }),
        Err(error) => {
            let at = match &error {
                godwit_io::Error::Config { key, .. } => stanza.span_of(key),
                _ => stanza.span(),
            };
            Err(document.refuse(at, error))
        }
    }
}

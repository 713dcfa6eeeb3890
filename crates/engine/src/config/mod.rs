//! Reads and checks the configuration. `docs/configuration.md` describes every key.
//!
//! | file | content |
//! |---|---|
//! | `document.rs` | text, stanzas, positions, and messages for TOML errors |
//! | `settings.rs` | `[engine]`, `[arena]`, `[packing]`, `[dpdk]` |
//! | `devices.rs` | `[[device]]` |
//! | `ports.rs` | `[[port]]` |
//! | `placement.rs` | `[placement]` |
//! | `functions.rs` | `[[function]]` |
//! | `classes.rs` | `[[class]]` |
//! | `chain.rs` | `[[chain]]` |
//! | `workers.rs` | checks whether several workers can share the chain |
//! | `change.rs` | new chain for a running engine |
//! | `isolate.rs` | some functions alone, for measurements |
//! | `fingerprint.rs` | detects changes to other stanzas |
//!
//! Every error is one sentence with file and line ([`ConfigError`]). Reading a configuration also
//! builds the tables of its functions, because only this detects all errors in them. It does not
//! open any port.

mod chain;
mod change;
pub(crate) mod classes;
mod devices;
mod document;
mod error;
mod fingerprint;
mod functions;
#[doc(hidden)]
pub mod fuzz;
mod isolate;
mod metrics;
mod placement;
mod ports;
mod settings;
mod workers;

use std::path::{Path, PathBuf};

use godwit_chain::{Chain, Classifier, Next};
use godwit_function::Durable;
use godwit_packet::ArenaConfig;
use godwit_sched::PackerConfig;
use zeroize::Zeroizing;

use crate::place::model::Model;

pub use change::ChainConfig;
pub use classes::protocol_name;
pub use devices::{DeviceConfig, ModelTimes};
use document::Document;
pub use error::ConfigError;
pub use functions::{FUNCTIONS_MAX, FunctionConfig, function_kinds};
pub use isolate::Isolated;
pub use metrics::MetricsAddress;
pub use placement::PlacementConfig;
pub use ports::{PORTS_MAX, PortConfig, PortKind};
pub use settings::{EngineConfig, Idle, IoModel};

/// A valid configuration.
pub struct Config {
    /// Settings of the workers.
    pub engine: EngineConfig,
    /// Packet memory settings. The headroom and tailroom suffice for the function chain.
    pub arena: ArenaConfig,
    /// Whether the configuration sets the key `reuse` in the stanza `[arena]`. If not, the engine
    /// chooses the order in which buffers are reused.
    pub has_reuse: bool,
    /// Address at which metrics are served, if configured.
    pub metrics: Option<MetricsAddress>,
    /// Settings of the placement. If it is `None`, functions stay on their devices.
    pub placement: Option<PlacementConfig>,
    /// Default sizes and deadline of the batches of all devices.
    pub packing: PackerConfig,
    /// Devices that run functions or have a `[[device]]` stanza. The CPU comes first.
    pub devices: Vec<DeviceConfig>,
    /// Configured ports. The index of a port is its number.
    pub ports: Vec<PortConfig>,
    /// Configured functions. The index of a function is its number.
    pub functions: Vec<FunctionConfig>,
    /// Classifier that maps a packet to its class.
    pub classifier: Classifier,
    /// Function chain, which determines the next function or port of each packet.
    pub chain: Chain,
    /// Warnings about probable mistakes. Each warning is one sentence. Some start with `FILE:LINE:
    /// `.
    pub warnings: Vec<String>,
    /// Name of the configuration file in errors and warnings.
    origin: String,
    path: Option<PathBuf>,
    /// Headroom and tailroom of the packet buffers. A new function chain must not need more.
    room: settings::Room,
    fingerprint: fingerprint::Fingerprint,
}

impl Config {
    /// Reads the configuration file at `path`. Relative paths in the file start at its folder.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or is invalid. The error names the file and, if
    /// possible, the line.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        // The text may contain keys, so it is overwritten after use.
        let text = Zeroizing::new(read(path)?);
        let mut config = Self::parse(&text, &path.display().to_string(), folder(path))?;
        // The path is absolute, because a later reload may happen in another working directory.
        config.path = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        Ok(config)
    }

    /// Reads the configuration in `text`. Errors show `origin` as the file name. Relative paths in
    /// `text` start at `directory`.
    ///
    /// # Errors
    /// Returns an error if the text is invalid. The error names file and line.
    pub fn parse(text: &str, origin: &str, directory: &Path) -> Result<Self, ConfigError> {
        let document = Document::new(text, origin);
        let mut root = document.root()?;
        if root.is_empty() {
            let message = "the configuration is empty: it needs at least one [[port]] and one [[chain]]";
            return Err(document.refuse(0..0, message));
        }
        root.refuse_unknown(&document, &STANZAS)?;
        let fingerprint = fingerprint::Fingerprint::new(root.rest());

        let engine = EngineConfig::read(&document, root.table(&document, "engine")?, directory)?;
        let (packing, packing_keys) = settings::packing(&document, root.table(&document, "packing")?)?;
        let arena = settings::ArenaStanza::read(&document, root.table(&document, "arena")?, &engine)?;
        let has_reuse = arena.has_reuse();
        let metrics = metrics::read(&document, root.table(&document, "metrics")?, directory)?;
        let has_placement = root.has("placement");
        let placement = root.table(&document, "placement")?;
        let placement = has_placement.then(|| placement::read(&document, placement, directory)).transpose()?;
        let eal = settings::eal(&document, root.table(&document, "dpdk")?)?;
        let ports = ports::read(&document, root.tables(&document, "port")?, eal.as_deref(), directory)?;
        let names: Vec<String> = ports.iter().map(|port| port.name.clone()).collect();
        let functions = functions::read(&document, root.tables(&document, "function")?, &names, directory)?;
        let (class_names, rules) = classes::read(&document, root.tables(&document, "class")?)?;
        let mut warnings = Vec::new();
        let stanzas = root.tables(&document, "device")?;
        let devices = devices::read(&document, stanzas, &engine, &packing_keys, &functions, &mut warnings)?;
        let edges = root.tables(&document, "chain")?;
        let chain = chain::read(&document, edges, directory, &ports, &functions, &class_names, &mut warnings)?;
        let (arena, room) = arena.with_room_for(&document, &chain, &functions, &ports, &mut warnings)?;
        ports::warn_of_long_frames(&ports, arena.frame_bytes_max, origin, &mut warnings);

        for FunctionConfig { name, function, line, .. } in &functions {
            let sentences = function.operate().map(|part| part.warnings()).unwrap_or_default().into_iter();
            warnings.extend(sentences.map(|sentence| format!("{origin}:{line}: function `{name}`: {sentence}")));
        }

        workers::check(&document, &engine, &chain, &functions)?;

        Ok(Self {
            engine,
            arena,
            has_reuse,
            metrics,
            placement,
            packing,
            devices,
            ports,
            functions,
            classifier: Classifier::new(&rules),
            chain,
            warnings,
            origin: origin.to_owned(),
            path: None,
            room,
            fingerprint,
        })
    }

    /// Checks that live ports can work on this machine, and that their queues suit the functions.
    /// The check is separate from [`Config::parse`], because a replay does not use live ports.
    ///
    /// # Errors
    /// Returns an error if a port cannot work. The error names the line of the first such port.
    pub fn check_live(&self) -> Result<(), ConfigError> {
        for port in &self.ports {
            let PortKind::Live(_, live) = &port.kind else { continue };
            let refuse = |error| ConfigError::at(&self.origin, port.line, format!("port `{}`: {error}", port.name));
            live.check().map_err(refuse)?;
        }
        Ok(())
    }

    /// Checks that no secret key would repeat its nonces after a restart. `has_folder` states
    /// whether a folder stores the last sequence numbers. The check is separate from
    /// [`Config::parse`], because a replay repeats its output on purpose.
    ///
    /// # Errors
    /// Returns an error if a function needs a state folder. The error names the line of the
    /// function.
    pub fn check_state(&self, has_folder: bool) -> Result<(), ConfigError> {
        if has_folder || self.path.is_none() {
            return Ok(());
        }
        for entry in &self.functions {
            let keys = entry.function.durable().map(Durable::keys).unwrap_or_default();
            if let Some(key) = keys.into_iter().find(|key| key.needs_folder) {
                let message = format!(
                    "{} of function `{}` would repeat nonces after a restart, which reveals the plaintext: set [engine] state \
                     to a folder for its sequence numbers, or key_is_new = true if each start has a new key",
                    key.owner, entry.name
                );
                return Err(ConfigError::at(&self.origin, entry.line, &message));
            }
        }
        Ok(())
    }

    /// Checks that the profile of the placement exists, belongs to this machine, and contains the
    /// costs of every function on each of its devices. [`Config::parse`] does not check this,
    /// because `godwit profile` measures the profile with the same configuration.
    ///
    /// # Errors
    /// Returns an error if the profile cannot be used. The error names the line of the stanza.
    pub fn check_placement(&self) -> Result<(), ConfigError> {
        let line = self.placement.as_ref().map_or(1, |placement| placement.line);
        match Model::load(self) {
            Ok(_) => Ok(()),
            Err(sentence) => Err(ConfigError::at(&self.origin, line, sentence)),
        }
    }

    /// Returns what a run needs from the machine, one phrase per requirement.
    pub fn needs_of_machine(&self) -> Vec<String> {
        let mut needs = Vec::new();
        for port in &self.ports {
            match &port.kind {
                PortKind::Live(_, live) => {
                    needs.extend(live.hardware().map(|hardware| format!("{hardware} of port `{}`", port.name)));
                }
                PortKind::Pcap(config) => {
                    let file =
                        config.file.iter().map(|path| format!("capture {} of port `{}`", path.display(), port.name));
                    needs.extend(file);
                }
                PortKind::Synthetic(config) => {
                    let load = config.load.iter();
                    needs.extend(load.map(|path| format!("load program {} of port `{}`", path.display(), port.name)));
                }
            }
        }
        let others = self.devices.iter().filter(|device| device.id != "cpu");
        needs.extend(others.map(|device| format!("device `{}`", device.id)));
        let profile = self.placement.iter().map(|placement| format!("profile {}", placement.profile.display()));
        needs.extend(profile);
        needs.extend(self.engine.user.iter().map(|user| format!("user `{user}`")));
        needs.push("cores and memory".to_owned());
        needs
    }

    /// Returns whether a function has secret keys. Such keys must not appear in a core dump.
    pub fn holds_keys(&self) -> bool {
        self.functions.iter().any(|entry| entry.function.durable().is_some())
    }

    /// Returns the name of the configuration file, as given.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns whether the configuration comes from a file.
    pub(crate) fn is_from_file(&self) -> bool {
        self.path.is_some()
    }

    /// Adapts the packet buffers to the port requirements. Tests call this method after they
    /// replace ports.
    ///
    /// # Errors
    /// Returns an error if a requirement cannot be met.
    #[doc(hidden)]
    pub fn apply_port_needs(&mut self) -> Result<(), ConfigError> {
        settings::apply_port_needs(&mut self.arena, &self.ports)
            .map_err(|(_, message)| ConfigError::at(&self.origin, 1, message))
    }

    /// Returns whether packets from a port enter the function chain.
    pub(crate) fn feeds_chain(&self, port: u8) -> bool {
        feeds(&self.chain, port)
    }

    /// Checks that the input capture files of all ports exist, and that load programs are valid.
    /// The check is separate from [`Config::parse`], because a replay uses other capture files.
    ///
    /// # Errors
    /// Returns an error if a capture file cannot be opened, or a load program is invalid. The error
    /// names the line of its port.
    pub fn check_captures(&self) -> Result<(), ConfigError> {
        for port in &self.ports {
            if let PortKind::Synthetic(config) = &port.kind
                && let Err(error) = config.check_load()
            {
                return Err(ConfigError::at(&self.origin, port.line, format!("port `{}`: {error}", port.name)));
            }
            if let PortKind::Pcap(config) = &port.kind
                && let Some(path) = &config.file
                && let Err(source) = std::fs::File::open(path)
            {
                let message = format!("port `{}`: cannot read {}: {source}", port.name, path.display());
                return Err(ConfigError::at(&self.origin, port.line, message));
            }
        }
        Ok(())
    }
}

/// Names of all stanzas that a configuration can contain.
const STANZAS: [&str; 11] =
    ["engine", "arena", "packing", "metrics", "placement", "device", "dpdk", "port", "function", "class", "chain"];

/// Reads a text file. If the text is not valid UTF-8, the error names the line.
fn read(path: &Path) -> Result<String, ConfigError> {
    let bytes = std::fs::read(path).map_err(|source| ConfigError::File { path: path.to_owned(), source })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid_bytes = error.utf8_error().valid_up_to();
        let bytes = Zeroizing::new(error.into_bytes());
        let line = 1 + bytes[..valid_bytes].iter().filter(|&&byte| byte == b'\n').count();
        ConfigError::at(&path.display().to_string(), line, "this is not valid UTF-8 text")
    })
}

fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Returns whether packets from a port enter a function chain.
fn feeds(chain: &Chain, port: u8) -> bool {
    let decider = chain.decider();
    (0..decider.classes()).any(|class| decider.entry(port, class as u8) != Next::None)
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("engine", &self.engine)
            .field("arena", &self.arena)
            .field("packing", &self.packing)
            .field("devices", &self.devices)
            .field("ports", &self.ports)
            .field("functions", &self.functions)
            .finish_non_exhaustive()
    }
}

//! What the operator writes, read and checked. `docs/configuration.md` describes every key.
//!
//! | file | holds |
//! |---|---|
//! | `document.rs` | the text: stanzas, places, and errors of the TOML reader as sentences |
//! | `settings.rs` | `[engine]`, `[arena]`, `[packing]`, `[dpdk]` |
//! | `devices.rs` | `[[device]]` |
//! | `ports.rs` | `[[port]]` |
//! | `functions.rs` | `[[function]]` |
//! | `classes.rs` | `[[class]]` |
//! | `chain.rs` | `[[chain]]` |
//! | `workers.rs` | whether several workers can share the chain |
//! | `change.rs` | another chain for a Godwit that runs |
//! | `fingerprint.rs` | whether all but the chain is as it was |
//!
//! Whatever is wrong is one sentence with the file and the line: [`ConfigError`]. Reading a configuration builds the
//! tables of its functions, because only that finds what is wrong with them; it opens no port.

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
mod ports;
mod settings;
mod workers;

use std::path::{Path, PathBuf};

use godwit_chain::{Chain, Classifier, Next};
use godwit_packet::ArenaConfig;
use godwit_sched::PackerConfig;
use zeroize::Zeroizing;

pub use change::ChainConfig;
pub use classes::protocol_name;
pub use devices::{ChunkDefaults, DeviceConfig};
use document::Document;
pub use error::ConfigError;
pub use functions::FunctionConfig;
pub use ports::{PortConfig, PortKind};
pub use settings::{EngineConfig, Idle, IoModel};

/// Most configured ports.
pub const PORTS_MAX: usize = 64;
/// Most configured functions.
pub const FUNCTIONS_MAX: usize = 64;

/// A configuration that can work.
pub struct Config {
    /// The workers.
    pub engine: EngineConfig,
    /// The memory; with room for what the chain's functions prepend and append.
    pub arena: ArenaConfig,
    /// Whether the operator says which free buffer a packet gets. Otherwise that depends on the devices.
    pub says_reuse: bool,
    /// Bins and chunks, of a device without packing of its own.
    pub packing: PackerConfig,
    /// The devices that functions run on, and those that have a stanza. The CPU is the first, whether it is used or not.
    pub devices: Vec<DeviceConfig>,
    /// The ports; a port's number is its index.
    pub ports: Vec<PortConfig>,
    /// The functions; a function's number is its index.
    pub functions: Vec<FunctionConfig>,
    /// Packet → class.
    pub classifier: Classifier,
    /// (stage, class, verdict) → next stage.
    pub chain: Chain,
    /// What is probably not meant, one sentence each, as `FILE:LINE: …` where a line is at fault.
    pub warnings: Vec<String>,
    /// The name of the file, as warnings and errors show it.
    origin: String,
    /// The file, where it came from one.
    path: Option<PathBuf>,
    /// Room around frames that buffers have for functions.
    room: settings::Room,
    /// All that stays as it is while Godwit runs.
    fingerprint: fingerprint::Fingerprint,
}

impl Config {
    /// Reads the file at `path`. Relative file names in it start from its directory.
    ///
    /// # Errors
    /// One sentence that says what is wrong, and where.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        // It may hold keys.
        let text = Zeroizing::new(read(path)?);
        let mut config = Self::parse(&text, &path.display().to_string(), folder(path))?;
        // Wherever the process is when it is read again.
        config.path = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        Ok(config)
    }

    /// Reads `text`. `origin` is the name that errors show; relative file names start from `directory`.
    ///
    /// # Errors
    /// One sentence that says what is wrong, and where.
    pub fn parse(text: &str, origin: &str, directory: &Path) -> Result<Self, ConfigError> {
        let document = Document::new(text, origin);
        let mut root = document.root()?;
        if root.is_empty() {
            let message = "there is nothing in this file: a configuration has at least one [[port]] and one [[chain]]";
            return Err(document.refuse(0..0, message));
        }
        root.refuse_unknown(&document, &STANZAS)?;
        let fingerprint = fingerprint::Fingerprint::new(root.rest());

        let engine = EngineConfig::read(&document, root.table(&document, "engine")?, directory)?;
        let (packing, packing_keys) = settings::packing(&document, root.table(&document, "packing")?)?;
        let arena = settings::ArenaStanza::read(&document, root.table(&document, "arena")?, &engine)?;
        let says_reuse = arena.says_reuse();
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

        workers::check(&document, &engine, &chain, &functions)?;

        Ok(Self {
            engine,
            arena,
            says_reuse,
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

    /// Checks that ports outside of the program can be there, and that their queues are enough for the functions.
    ///
    /// Apart from [`Config::parse`], because a replay puts captures in their place.
    ///
    /// # Errors
    /// The first port at fault, with its line.
    pub fn check_live(&self) -> Result<(), ConfigError> {
        for (index, port) in self.ports.iter().enumerate() {
            let PortKind::Live(kind, live) = &port.kind else { continue };
            let refuse = |message: String| ConfigError::at(&self.origin, port.line, message);
            live.check().map_err(|error| refuse(format!("port `{}`: {error}", port.name)))?;
            let keyed = self.functions.iter().find(|entry| entry.function.steer_key().is_some());
            if let Some(entry) = keyed.filter(|_| self.engine.workers > 1 && self.feeds_chain(index as u8)) {
                return Err(refuse(format!(
                    "port `{}` ({kind}) gives worker i what comes to its queue i, and function `{}` keeps state for many flows at \
                     once, which one worker owns: set workers = 1",
                    port.name, entry.name
                )));
            }
        }
        Ok(())
    }

    /// Makes the arena what its ports ask of it, where a test has put others in their place.
    ///
    /// # Errors
    /// What cannot be met.
    #[doc(hidden)]
    pub fn meet_ports(&mut self) -> Result<(), ConfigError> {
        settings::meet(&mut self.arena, &self.ports).map_err(|(_, message)| ConfigError::at(&self.origin, 1, message))
    }

    /// Whether the chain takes packets from a port.
    pub(crate) fn feeds_chain(&self, port: u8) -> bool {
        feeds(&self.chain, port)
    }

    /// Checks that every capture that a port is to read is there.
    ///
    /// Apart from [`Config::parse`], because a replay puts other captures in their place.
    ///
    /// # Errors
    /// The first capture that cannot be opened, with the line that names it.
    pub fn check_captures(&self) -> Result<(), ConfigError> {
        for port in &self.ports {
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

/// Stanzas that there are.
const STANZAS: [&str; 9] = ["engine", "arena", "packing", "device", "dpdk", "port", "function", "class", "chain"];

/// The text of a file.
fn read(path: &Path) -> Result<String, ConfigError> {
    let bytes = std::fs::read(path).map_err(|source| ConfigError::File { path: path.to_owned(), source })?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        ConfigError::at(&path.display().to_string(), line, "this is not UTF-8 text")
    })
}

/// Where file names in a configuration start from.
fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Whether a chain takes packets from a port.
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

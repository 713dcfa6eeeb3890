//! Reads the stanzas `[engine]`, `[arena]`, `[packing]` and `[dpdk]`.

use std::fmt;
use std::path::{Path, PathBuf};

use godwit_chain::Chain;
use godwit_function::Function;
use godwit_packet::{ArenaConfig, BUCKETS, Layout, Reuse};
use godwit_sched::{Grouping, PackerConfig};
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};

use super::document::{Document, Stanza};
use super::error::ConfigError;
use super::functions::FunctionConfig;
use super::ports::{PortConfig, PortKind};

/// Maximum number of packets in flight per worker. Each one has a 16-bit number.
const IN_FLIGHT_PACKETS_MAX: usize = 65536;
/// Maximum size of a packet buffer in bytes: 255 units of 64 bytes.
const BUFFER_BYTES_MAX: usize = 16320;

/// Settings of the workers, from the stanza `[engine]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Number of workers, 1 to 128. The parser replaces "auto" with a number that suits the
    /// machine's cores.
    pub workers: usize,
    /// Choice of the threads that receive and transmit packets.
    pub io: IoModel,
    /// Whether each worker is pinned to a core.
    pub pin: bool,
    /// Behavior of an idle worker.
    pub idle: Idle,
    /// Maximum number of packets that a worker receives from a port at once, 1 to
    /// `in_flight_packets`.
    pub burst_packets: usize,
    /// Maximum number of packets in flight per worker: a power of two, at most 65536.
    pub in_flight_packets: usize,
    /// Path of the control socket, if configured.
    pub control: Option<PathBuf>,
    /// User to which the process switches after it has opened all ports and files.
    pub user: Option<String>,
    /// Folder for the state that survives a restart, if configured.
    pub state: Option<PathBuf>,
}

/// Behavior of an idle worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// The idle worker polls its ports without a pause, which keeps its core busy.
    #[default]
    Spin,
    /// The idle worker sleeps until one of its ports wakes it. If a port cannot wake it, the worker
    /// only yields its core.
    Sleep,
}

/// Threads that receive and transmit packets (PIPSEA, CCS '16, section 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoModel {
    /// Each worker receives and transmits its packets.
    #[default]
    Single,
    /// Each worker receives its packets, and a separate sender thread transmits them.
    Dual,
}

impl IoModel {
    /// Returns the number of threads per worker.
    fn threads(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Dual => 2,
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            workers: 1,
            io: IoModel::Single,
            pin: true,
            idle: Idle::Spin,
            burst_packets: 256,
            in_flight_packets: 8192,
            control: None,
            user: None,
            state: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EngineStanza {
    workers: Workers,
    io: IoModel,
    pin: bool,
    idle: Idle,
    burst_packets: usize,
    in_flight_packets: usize,
    control: Option<PathBuf>,
    user: Option<String>,
    state: Option<PathBuf>,
}

impl Default for EngineStanza {
    fn default() -> Self {
        let EngineConfig { workers, io, pin, idle, burst_packets, in_flight_packets, control, user, state } =
            EngineConfig::default();
        let workers = Workers::Number(workers);
        Self { workers, io, pin, idle, burst_packets, in_flight_packets, control, user, state }
    }
}

impl EngineConfig {
    pub(super) fn read<'a>(
        document: &Document<'a>,
        mut stanza: Stanza<'a>,
        directory: &Path,
    ) -> Result<Self, ConfigError> {
        let EngineStanza { workers, io, pin, idle, burst_packets, in_flight_packets, control, user, state } =
            document.read(&mut stanza, &[])?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let workers = match workers {
            Workers::Number(number) => number,
            Workers::Auto => (cores() / io.threads()).clamp(1, BUCKETS),
        };
        within(document, &stanza, "workers", workers, 1, BUCKETS)?;
        if !in_flight_packets.is_power_of_two() || !(2..=IN_FLIGHT_PACKETS_MAX).contains(&in_flight_packets) {
            let message = format!(
                "in_flight_packets = {in_flight_packets}: must be a power of two, 2 to {IN_FLIGHT_PACKETS_MAX}"
            );
            return Err(document.refuse(stanza.span_of("in_flight_packets"), message));
        }
        if !(1..=in_flight_packets).contains(&burst_packets) {
            let message =
                format!("burst_packets = {burst_packets}: must be 1 to in_flight_packets = {in_flight_packets}");
            return Err(document.refuse(stanza.span_of("burst_packets"), message));
        }
        let [control, state] = [control, state].map(|path| path.map(|path| directory.join(path)));
        Ok(Self { workers, io, pin, idle, burst_packets, in_flight_packets, control, user, state })
    }
}

/// Value of the key `workers`: a number or "auto".
enum Workers {
    Number(usize),
    Auto,
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WorkersVisitor)
    }
}

struct WorkersVisitor;

impl Visitor<'_> for WorkersVisitor {
    type Value = Workers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer or \"auto\"")
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Workers, E> {
        // A negative number becomes 0, which is out of range too.
        Ok(Workers::Number(usize::try_from(value).unwrap_or(0)))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Workers, E> {
        Ok(Workers::Number(usize::try_from(value).unwrap_or(usize::MAX)))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Workers, E> {
        match value {
            "auto" => Ok(Workers::Auto),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(value), &self)),
        }
    }
}

/// Reads the stanza `[packing]`. Returns the resulting settings and the keys that are present.
pub(super) fn packing<'a>(
    document: &Document<'a>,
    mut stanza: Stanza<'a>,
) -> Result<(PackerConfig, PackingKeys), ConfigError> {
    let keys: PackingKeys = document.read(&mut stanza, &[])?;
    let mut config = PackerConfig::default();
    keys.apply(&mut config);
    validate_packing(document, &stanza, &config)?;
    Ok((config, keys))
}

/// Reads the stanza `[dpdk]`. Returns the arguments of the DPDK environment abstraction layer
/// (EAL), or `None` if the key is absent.
pub(super) fn eal<'a>(document: &Document<'a>, mut stanza: Stanza<'a>) -> Result<Option<Vec<String>>, ConfigError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Keys {
        eal: Option<Vec<String>>,
    }
    let keys: Keys = document.read(&mut stanza, &[])?;
    Ok(keys.eal)
}

/// Keys that configure how packets are put into batches. An absent key is `None`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PackingKeys {
    pub(super) chunk_packets: Option<u32>,
    pub(super) chunk_bytes: Option<u32>,
    pub(super) bins: Option<u32>,
    pub(super) bin_packets: Option<u32>,
    pub(super) length_granularity_bytes: Option<u32>,
    pub(super) deadline_ns: Option<u64>,
    pub(super) sort: Option<bool>,
    pub(super) grouping: Option<Grouping>,
    pub(super) leftover_packets: Option<u32>,
}

impl PackingKeys {
    /// Replaces each setting in `config` whose key is present.
    pub(super) fn apply(&self, config: &mut PackerConfig) {
        fn put<T: Copy>(key: Option<T>, value: &mut T) {
            *value = key.unwrap_or(*value);
        }
        put(self.chunk_packets, &mut config.chunk_packets);
        config.chunk_bytes = self.chunk_bytes.or(config.chunk_bytes);
        put(self.bins, &mut config.bins);
        put(self.bin_packets, &mut config.bin_packets);
        put(self.length_granularity_bytes, &mut config.length_granularity_bytes);
        put(self.deadline_ns, &mut config.deadline_ns);
        put(self.sort, &mut config.sort);
        put(self.grouping, &mut config.grouping);
        put(self.leftover_packets, &mut config.leftover_packets);
    }
}

/// Checks the batch settings. An error names the line of the faulty key.
pub(super) fn validate_packing(
    document: &Document<'_>,
    stanza: &Stanza<'_>,
    config: &PackerConfig,
) -> Result<(), ConfigError> {
    let keys = ["chunk_packets", "chunk_bytes", "bins", "bin_packets", "length_granularity_bytes", "leftover_packets"];
    config.validate().map_err(|error| {
        // The error message starts with the name of the faulty key.
        let message = error.to_string();
        let key = keys.iter().find(|key| message.split(' ').next() == Some(key)).copied().unwrap_or_default();
        document.refuse(stanza.span_of(key), message)
    })
}

/// The stanza `[arena]`, which configures the packet memory. It does not include the requirements
/// of the functions yet.
pub(super) struct ArenaStanza<'a> {
    config: ArenaConfig,
    stanza: Stanza<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ArenaKeys {
    layout: LayoutName,
    reuse: Option<ReuseName>,
    packets: Option<usize>,
    frame_bytes_max: Option<usize>,
    headroom_bytes: Option<usize>,
    tailroom_bytes: Option<usize>,
    align_bytes: Option<usize>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LayoutName {
    #[default]
    Slots,
    Dense,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReuseName {
    Last,
    Oldest,
}

impl<'a> ArenaStanza<'a> {
    pub(super) fn read(
        document: &Document<'a>,
        mut stanza: Stanza<'a>,
        engine: &EngineConfig,
    ) -> Result<Self, ConfigError> {
        let keys: ArenaKeys = document.read(&mut stanza, &[])?;
        if matches!(keys.layout, LayoutName::Dense) && keys.reuse.is_some() {
            let message = "`reuse` applies only to layout = \"slots\": a dense ring has no choice of buffers";
            return Err(document.refuse(stanza.span_of("reuse"), message.to_owned()));
        }
        let default = ArenaConfig::default();
        let config = ArenaConfig {
            layout: match keys.layout {
                LayoutName::Slots => Layout::Slots,
                LayoutName::Dense => Layout::Dense,
            },
            reuse: match keys.reuse {
                Some(ReuseName::Oldest) => Reuse::Oldest,
                Some(ReuseName::Last) | None => Reuse::Last,
            },
            packets: keys.packets.unwrap_or(engine.in_flight_packets + engine.burst_packets),
            frame_bytes_max: keys.frame_bytes_max.unwrap_or(default.frame_bytes_max),
            headroom_bytes: keys.headroom_bytes.unwrap_or(default.headroom_bytes),
            tailroom_bytes: keys.tailroom_bytes.unwrap_or(default.tailroom_bytes),
            tailroom_saved: [0; 16],
            align_bytes: keys.align_bytes.unwrap_or(default.align_bytes),
            prefix_bytes: 0,
            slot_bytes: None,
        };
        within(document, &stanza, "packets", config.packets, 1, 1 << 20)?;
        within(document, &stanza, "frame_bytes_max", config.frame_bytes_max, 60, 16128)?;
        within(document, &stanza, "headroom_bytes", config.headroom_bytes, 0, BUFFER_BYTES_MAX)?;
        within(document, &stanza, "tailroom_bytes", config.tailroom_bytes, 0, BUFFER_BYTES_MAX)?;
        if !matches!(config.align_bytes, 64 | 128) {
            let message = format!("align_bytes = {}: must be 64 or 128", config.align_bytes);
            return Err(document.refuse(stanza.span_of("align_bytes"), message));
        }
        Ok(Self { config, stanza })
    }

    /// Returns whether the stanza contains the key `reuse`.
    pub(super) fn has_reuse(&self) -> bool {
        self.stanza.has("reuse")
    }

    /// Returns packet memory settings whose headroom and tailroom suffice for the longest path
    /// through the function chain.
    pub(super) fn with_room_for(
        self,
        document: &Document<'_>,
        chain: &Chain,
        functions: &[FunctionConfig],
        ports: &[PortConfig],
        warnings: &mut Vec<String>,
    ) -> Result<(ArenaConfig, Room), ConfigError> {
        let Self { mut config, stanza } = self;
        let needed = Room::needed(chain, functions);
        let rooms = [
            ("headroom_bytes", needed.headroom_bytes, &mut config.headroom_bytes),
            ("tailroom_bytes", needed.tailroom_bytes, &mut config.tailroom_bytes),
        ];
        for (key, needed, bytes) in rooms {
            if needed > *bytes {
                let raised = needed.next_multiple_of(64);
                if stanza.has(key) {
                    let message =
                        format!("{key} = {bytes} is raised to {raised}: the functions of the chain need {needed}");
                    warnings.push(document.warn(stanza.span_of(key), message));
                }
                *bytes = raised;
            }
        }
        config.tailroom_saved = needed.tailroom_saved;
        let room = Room {
            headroom_bytes: config.headroom_bytes,
            tailroom_bytes: config.tailroom_bytes,
            tailroom_saved: config.tailroom_saved,
        };
        apply_port_needs(&mut config, ports).map_err(|(key, message)| document.refuse(stanza.span_of(key), message))?;
        if config.buffer_bytes() > BUFFER_BYTES_MAX {
            let ArenaConfig { frame_bytes_max, headroom_bytes, tailroom_bytes, .. } = config;
            let message = format!(
                "frame_bytes_max = {frame_bytes_max}, headroom_bytes = {headroom_bytes} and tailroom_bytes = \
                 {tailroom_bytes} do not fit into a buffer, which has at most {BUFFER_BYTES_MAX} bytes"
            );
            let keys = ["frame_bytes_max", "headroom_bytes", "tailroom_bytes"];
            let key = keys.iter().find(|key| stanza.has(key)).copied().unwrap_or_default();
            return Err(document.refuse(stanza.span_of(key), message));
        }
        Ok((config, room))
    }
}

/// Headroom and tailroom, which are the free bytes before and after a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) headroom_bytes: usize,
    pub(super) tailroom_bytes: usize,
    /// See [`ArenaConfig::tailroom_saved`].
    tailroom_saved: [u8; 16],
}

impl Room {
    /// Returns the headroom and tailroom that the longest path through the function chain needs.
    pub(super) fn needed(chain: &Chain, functions: &[FunctionConfig]) -> Self {
        let needs = |bytes: fn(&dyn Function) -> u16| {
            let weights: Vec<u32> = functions.iter().map(|function| u32::from(bytes(&*function.function))).collect();
            chain.path_max(&weights) as usize
        };
        // `tailroom_saved` depends on the frame length at arrival, so it applies only if no other
        // function changes frame lengths.
        let reached = functions.iter().enumerate().filter(|(index, _)| chain.is_reached(*index));
        let mut resizing =
            reached.map(|(_, entry)| &entry.function).filter(|function| function.contract().changes_length());
        let tailroom_saved = match (resizing.next(), resizing.next()) {
            (Some(function), None) => function.properties().tailroom_saved,
            _ => [0; 16],
        };
        Self {
            headroom_bytes: needs(|function| function.properties().headroom_bytes),
            tailroom_bytes: needs(|function| function.properties().tailroom_bytes),
            tailroom_saved,
        }
    }

    /// Returns whether this headroom and tailroom suffice for `needed`, for frames of any length.
    pub(super) fn is_enough_for(&self, needed: &Self) -> bool {
        let tailroom =
            |room: &Self, length: usize| room.tailroom_bytes.saturating_sub(usize::from(room.tailroom_saved[length]));
        self.headroom_bytes >= needed.headroom_bytes
            && (0..self.tailroom_saved.len()).all(|length| tailroom(self, length) >= tailroom(needed, length))
    }
}

/// Adapts the packet buffers in `config` to the requirements of live ports.
///
/// # Errors
/// Returns the faulty key and an error message.
pub(super) fn apply_port_needs(config: &mut ArenaConfig, ports: &[PortConfig]) -> Result<(), (&'static str, String)> {
    let live = ports.iter().filter_map(|port| match &port.kind {
        PortKind::Live(kind, live) => Some((format!("port `{}` ({kind})", port.name), live.needs())),
        _ => None,
    });
    let live: Vec<_> = live.collect();
    for (_, needs) in &live {
        config.headroom_bytes = config.headroom_bytes.max(needs.headroom_bytes);
        config.packets += needs.buffers;
        config.prefix_bytes = config.prefix_bytes.max(needs.prefix_bytes);
    }
    config.tailroom_bytes += live.iter().map(|(_, needs)| needs.driver_bytes).max().unwrap_or(0);
    for (port, needs) in &live {
        if (needs.slot_bytes.is_some() || needs.prefix_bytes > 0) && config.layout == Layout::Dense {
            let message = format!(
                "layout = \"dense\": {port} needs buffers before the length of frames is known: use layout = \"slots\""
            );
            return Err(("layout", message));
        }
        let Some((min, max)) = needs.slot_bytes else { continue };
        let needed = config.prefix_bytes + config.buffer_bytes();
        let slot_bytes = config.slot_bytes.unwrap_or(0).max(min).max(needed.next_power_of_two());
        if slot_bytes > max {
            let ArenaConfig { frame_bytes_max, headroom_bytes, tailroom_bytes, .. } = config;
            let message = format!(
                "frame_bytes_max = {frame_bytes_max} with {headroom_bytes} bytes of headroom and {tailroom_bytes} of tailroom does \
                 not fit into the {max} bytes that {port} provides per frame"
            );
            return Err(("frame_bytes_max", message));
        }
        config.slot_bytes = Some(slot_bytes);
    }
    if config.packets > 1 << 20 {
        let message =
            format!("packets = {}: the sum with the buffers of live ports exceeds 1048576 per worker", config.packets);
        return Err(("packets", message));
    }
    Ok(())
}

/// Checks that the value of a key is between `min` and `max`. An error names the line of the key.
pub(super) fn within(
    document: &Document<'_>,
    stanza: &Stanza<'_>,
    key: &str,
    value: usize,
    min: usize,
    max: usize,
) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(document.refuse(stanza.span_of(key), format!("{key} = {value}: must be {min} to {max}")))
}

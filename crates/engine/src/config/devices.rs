//! Reads the `[[device]]` stanzas.

use std::collections::BTreeMap;

use godwit_device::{ChunkDefaults, DeviceOptions, Kind, LAST_RESORT, Mode, Transfer, is_synchronous, kind_of};
use godwit_sched::place::Fit;
use godwit_sched::{Grouping, PackerConfig};
use serde::Deserialize;

use super::document::{Document, Stanza};
use super::error::ConfigError;
use super::functions::{FunctionConfig, no_device};
use super::settings::{EngineConfig, PackingKeys, validate_packing, within};

/// Number of submissions to the CPU for which a worker reserves memory. The CPU finishes each
/// submission before the next one starts.
const CHUNKS_SYNCHRONOUS: usize = 4;
/// Maximum number of submissions to another device for which a worker reserves memory. More
/// submissions in flight do not increase the throughput.
const CHUNKS_MAX: usize = 64;
/// Maximum watchdog timeout: one hour, in milliseconds.
const WATCHDOG_MS_MAX: usize = 3_600_000;
/// Minimum number of batches per submission to a device other than the CPU.
const BINS: u32 = 64;
/// Maximum weight of a function in the key `share`. A device's work-groups are divided between
/// functions in proportion to these weights.
const SHARE_MAX: u32 = 1000;
/// Maximum number of packets in a submission to a device.
const BIN_CAPACITY_MAX: u32 = 1 << 24;

/// Maximum time in the key `times` of a modelled device: one second, in nanoseconds.
const TIME_NS_MAX: f64 = 1e9;

/// Configuration of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceConfig {
    /// Name of the device, such as `cpu`, `opencl:0` or `cuda:0`.
    pub id: String,
    /// Mode in which the device runs kernels. In mode `launch`, each submission launches a kernel.
    /// In mode `persistent`, one kernel runs all the time and waits for packets.
    pub mode: Mode,
    /// Method that copies packets to the device's memory and back. Only the mode `launch` uses it.
    pub transfer: Transfer,
    /// Watchdog timeout, in milliseconds. A device that needs longer for a submission counts as
    /// lost.
    pub watchdog_ms: u64,
    /// Number of submissions for which each worker reserves memory. The worker fills one submission
    /// while the device processes the others.
    pub chunks: usize,
    /// Whether a packet may continue to the next function without leaving the device.
    pub device_chain: bool,
    /// Functions that have reserved persistent work-groups, with their shares of these work-groups.
    /// Other functions run on all work-groups.
    pub share: Vec<(String, u32)>,
    /// Sizes and deadline of batches and of submissions.
    pub packing: PackerConfig,
    /// Times of each function on a modelled device. The list is empty for all other devices.
    pub times: Vec<(String, ModelTimes)>,
    /// Number of submissions after which a modelled device fails, or `None` if it never fails.
    pub fails_after_chunks: Option<u64>,
}

/// Times that a modelled device needs for a function, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelTimes {
    /// Time per submission.
    pub chunk_ns: f64,
    /// Time per packet.
    pub packet_ns: f64,
    /// Time per byte of a frame.
    pub byte_ns: f64,
    /// Additional time until the worker sees that a submission is finished. The device processes
    /// other submissions during this time.
    pub trip_ns: f64,
}

impl ModelTimes {
    /// Returns the times as costs of the modelled device.
    pub(crate) fn costs(&self) -> Fit {
        let Self { chunk_ns, packet_ns, byte_ns, trip_ns } = *self;
        Fit { chunk_ns, packet_ns, byte_ns, trip_ns, ..Fit::default() }
    }
}

impl DeviceConfig {
    /// Creates the configuration of a device without a `[[device]]` stanza.
    fn new(id: &str, mode: Mode, engine: &EngineConfig, packing: &PackingKeys) -> Self {
        let defaults = chunk_defaults(id, mode, engine);
        Self {
            id: id.to_owned(),
            mode,
            transfer: Transfer::default(),
            watchdog_ms: DeviceOptions::default().watchdog.as_millis() as u64,
            chunks: defaults.map_or(CHUNKS_SYNCHRONOUS, |defaults| defaults.chunks),
            device_chain: true,
            share: Vec::new(),
            packing: packing_of(defaults, engine, &[packing]),
            times: Vec::new(),
            fails_after_chunks: None,
        }
    }
}

impl DeviceConfig {
    /// Returns the weight of `function` in the device's key `share`, or 0 if the function runs on
    /// all work-groups.
    pub(crate) fn share_of(&self, function: &str) -> u32 {
        self.share.iter().find(|(name, _)| name == function).map_or(0, |(_, share)| *share)
    }
}

/// Returns the default number and size of submissions for a device. Returns `None` for the CPU,
/// which runs on the worker's thread.
fn chunk_defaults(id: &str, mode: Mode, engine: &EngineConfig) -> Option<ChunkDefaults> {
    kind_of(id)?.chunks(mode, engine.workers)
}

/// Returns the sizes and the deadline of a device's batches and submissions. Later elements of
/// `keys` override earlier ones, and all of them override the defaults of the device.
///
/// If `chunks` is `None`, the device is the CPU, which processes small submissions that stay in its
/// caches. All other devices process more packets at once than fit into these caches. Their
/// submissions are large, and several submissions are in flight. Their batches are small and
/// contain packets with a similar processing time, so the SIMD lanes that process a batch finish
/// together.
fn packing_of(chunks: Option<ChunkDefaults>, engine: &EngineConfig, keys: &[&PackingKeys]) -> PackerConfig {
    let mut packing = PackerConfig::default();
    if let Some(chunks) = chunks {
        // A worker has at most 65536 packets in flight, so this number fits into 32 bits.
        let share = (engine.in_flight_packets / chunks.chunks).max(1) as u32;
        packing.chunk_packets = share.min(chunks.packets_max);
        packing.chunk_bytes = Some(chunks.bytes);
        packing.bin_packets = chunks.bin_packets;
        packing.deadline_ns = chunks.deadline_ns;
        packing.grouping = Grouping::VariantLength;
    }
    keys.iter().for_each(|keys| keys.apply(&mut packing));
    if chunks.is_some() && keys.iter().all(|keys| keys.bins.is_none()) {
        // Some batches stay partly empty. A submission therefore has twice as many batches as full
        // batches would need.
        let bin_packets = packing.bin_packets.max(1);
        let bins = 2 * (packing.chunk_packets / bin_packets);
        packing.bins = bins.max(BINS).min(BIN_CAPACITY_MAX / bin_packets).clamp(1, u16::MAX.into());
    }
    packing
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DeviceKeys {
    mode: Option<Mode>,
    transfer: Option<Transfer>,
    watchdog_ms: Option<usize>,
    chunks: Option<usize>,
    device_chain: Option<bool>,
    share: Option<BTreeMap<String, u32>>,
    chunk_packets: Option<u32>,
    chunk_bytes: Option<u32>,
    bins: Option<u32>,
    bin_packets: Option<u32>,
    length_granularity_bytes: Option<u32>,
    deadline_ns: Option<u64>,
    sort: Option<bool>,
    grouping: Option<Grouping>,
    leftover_packets: Option<u32>,
    times: Option<BTreeMap<String, ModelTimes>>,
    fails_after_chunks: Option<u64>,
}

impl DeviceKeys {
    fn packing(&self) -> PackingKeys {
        PackingKeys {
            chunk_packets: self.chunk_packets,
            chunk_bytes: self.chunk_bytes,
            bins: self.bins,
            bin_packets: self.bin_packets,
            length_granularity_bytes: self.length_granularity_bytes,
            deadline_ns: self.deadline_ns,
            sort: self.sort,
            grouping: self.grouping,
            leftover_packets: self.leftover_packets,
        }
    }
}

/// Reads the configuration of all devices: the CPU, devices with a `[[device]]` stanza, and devices
/// that a function names.
pub(super) fn read<'a>(
    document: &Document<'a>,
    stanzas: Vec<Stanza<'a>>,
    engine: &EngineConfig,
    packing: &PackingKeys,
    functions: &[FunctionConfig],
    warnings: &mut Vec<String>,
) -> Result<Vec<DeviceConfig>, ConfigError> {
    let mut devices = vec![DeviceConfig::new(LAST_RESORT, Mode::Launch, engine, packing)];
    let mut lines: Vec<(String, usize)> = Vec::new();
    for mut stanza in stanzas {
        let config = read_one(document, &mut stanza, engine, packing)?;
        validate_share(document, &stanza, &config, functions)?;
        validate_times(document, &stanza, &config, functions)?;
        let at = stanza.span_of("name");
        if let Some((id, line)) = lines.iter().find(|(id, _)| *id == config.id) {
            let message = format!("two devices are named `{id}`: the other one starts on line {line}");
            return Err(document.refuse(at, message));
        }
        lines.push((config.id.clone(), document.line(stanza.span().start)));
        if config.id == LAST_RESORT {
            devices[0] = config;
            continue;
        }
        if !functions.iter().any(|function| function.devices.contains(&config.id)) {
            let message = format!(
                "no function runs on device `{}`: set device = \"{0}\" in a function, or remove the device",
                config.id
            );
            warnings.push(document.warn(at, message));
        }
        devices.push(config);
    }
    for function in functions {
        for id in &function.devices {
            if devices.iter().any(|device| device.id == *id) {
                continue;
            }
            if is_modelled(id) {
                let name = &function.name;
                let message = format!(
                    "function `{name}` has no times on the modelled device `{id}`: add a [[device]] with name = \"{id}\" \
                     and times = {{ {name} = {{ packet_ns = 100 }} }}"
                );
                return Err(document.refuse_line(function.line, message));
            }
            devices.push(DeviceConfig::new(id, Mode::Launch, engine, packing));
        }
    }
    Ok(devices)
}

/// Returns whether a device is a model for tests.
fn is_modelled(id: &str) -> bool {
    kind_of(id).is_some_and(Kind::is_for_tests)
}

fn read_one<'a>(
    document: &Document<'a>,
    stanza: &mut Stanza<'a>,
    engine: &EngineConfig,
    packing: &PackingKeys,
) -> Result<DeviceConfig, ConfigError> {
    let name = stanza.require_text(document, "name")?;
    let id = name.get_ref();
    if !godwit_device::is_id(id) {
        return Err(document.refuse(name.span(), format!("unknown device {}", no_device(id))));
    }
    for key in ["mode", "transfer", "watchdog_ms", "chunks", "device_chain", "share"] {
        if is_synchronous(id) && stanza.has(key) {
            let message = format!("`{key}` does not apply to the CPU, which runs chunks on the worker's thread");
            return Err(document.refuse(stanza.span_of(key), message));
        }
    }
    for key in ["times", "fails_after_chunks"] {
        if !is_modelled(id) && stanza.has(key) {
            let message = format!("`{key}` applies only to modelled devices such as `model:0`, which are for tests");
            return Err(document.refuse(stanza.span_of(key), message));
        }
    }
    let keys: DeviceKeys = document.read(stanza, &["name"])?;
    let mut config = DeviceConfig::new(id, keys.mode.unwrap_or_default(), engine, packing);
    if let Some(transfer) = keys.transfer {
        config.transfer = transfer;
        if !kind_of(id).is_some_and(|kind| kind.transfers(config.mode).contains(&transfer)) {
            let message = "`transfer` applies only to CUDA devices in launch mode: other devices have a fixed transfer";
            return Err(document.refuse(stanza.span_of("transfer"), message.to_owned()));
        }
    }
    if let Some(chunks) = keys.chunks {
        within(document, stanza, "chunks", chunks, 2, CHUNKS_MAX)?;
        config.chunks = chunks;
    }
    if let Some(watchdog_ms) = keys.watchdog_ms {
        within(document, stanza, "watchdog_ms", watchdog_ms, 1, WATCHDOG_MS_MAX)?;
        config.watchdog_ms = watchdog_ms as u64;
    }
    config.device_chain = keys.device_chain.unwrap_or(true);
    config.share = keys.share.clone().unwrap_or_default().into_iter().collect();
    config.times = keys.times.clone().unwrap_or_default().into_iter().collect();
    config.fails_after_chunks = keys.fails_after_chunks;
    let defaults =
        chunk_defaults(id, config.mode, engine).map(|defaults| ChunkDefaults { chunks: config.chunks, ..defaults });
    config.packing = packing_of(defaults, engine, &[packing, &keys.packing()]);
    validate_packing(document, stanza, &config.packing)?;
    Ok(config)
}

/// Checks the key `share` of a device. Each listed function must run on the device, and the device
/// must have persistent work-groups.
fn validate_share(
    document: &Document<'_>,
    stanza: &Stanza<'_>,
    config: &DeviceConfig,
    functions: &[FunctionConfig],
) -> Result<(), ConfigError> {
    let refuse = |message: String| Err(document.refuse(stanza.span_of("share"), message));
    let DeviceConfig { id, mode, share, .. } = config;
    for (name, share) in share {
        let Some(function) = functions.iter().find(|function| function.name == *name) else {
            return refuse(format!("`share` names the function `{name}`, which does not exist"));
        };
        if !function.devices.contains(id) {
            return refuse(format!("`share` names the function `{name}`, which does not run on `{id}`"));
        }
        if !(1..=SHARE_MAX).contains(share) {
            return refuse(format!("the share of `{name}` is {share}: must be 1 to {SHARE_MAX}"));
        }
    }
    if !share.is_empty() && *mode != Mode::Persistent {
        let message = "`share` divides persistent groups: set mode = \"persistent\" or remove `share`";
        return refuse(message.to_owned());
    }
    Ok(())
}

/// Checks the key `times` of a modelled device. Each function on the device needs times.
fn validate_times(
    document: &Document<'_>,
    stanza: &Stanza<'_>,
    config: &DeviceConfig,
    functions: &[FunctionConfig],
) -> Result<(), ConfigError> {
    let refuse = |message: String| Err(document.refuse(stanza.span_of("times"), message));
    let id = &config.id;
    for (name, times) in &config.times {
        if !functions.iter().any(|function| function.name == *name) {
            return refuse(format!("`times` names the function `{name}`, which does not exist"));
        }
        let keys = [
            ("chunk_ns", times.chunk_ns),
            ("packet_ns", times.packet_ns),
            ("byte_ns", times.byte_ns),
            ("trip_ns", times.trip_ns),
        ];
        if let Some((key, value)) = keys.iter().find(|(_, value)| !(0.0..=TIME_NS_MAX).contains(value)) {
            return refuse(format!("{key} = {value} of `{name}`: must be 0 to {TIME_NS_MAX}"));
        }
    }
    let lacks = |function: &&FunctionConfig| {
        function.devices.contains(id) && !config.times.iter().any(|(name, _)| *name == function.name)
    };
    if is_modelled(id)
        && let Some(function) = functions.iter().find(lacks)
    {
        let name = &function.name;
        return refuse(format!(
            "function `{name}` has no times on the modelled device `{id}`: add times = {{ {name} = {{ packet_ns = 100 }} }}"
        ));
    }
    Ok(())
}

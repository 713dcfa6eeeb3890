//! `[[device]]`.

use std::collections::BTreeMap;

use godwit_device::{DeviceOptions, Mode, Transfer, cpu, cuda};
use godwit_sched::{Grouping, PackerConfig};
use serde::Deserialize;

use super::document::{Document, Stanza};
use super::functions::no_device;
use super::settings::{PackingKeys, validate_packing, within};
use super::{ConfigError, EngineConfig, FunctionConfig};

/// Most sets of bins of a worker and a device, unless the operator says otherwise.
const CHUNKS: usize = 4;
/// Most of them. More than a few in flight gain nothing.
const CHUNKS_MAX: usize = 64;
/// Chunks that all workers together have on a discrete GPU: a few more than keep both directions of the bus busy. With 48 it
/// copied less than with 16 (an H200, 16 workers, 1408 bytes: 0.80 and 0.88 of half the duplex copy rate).
const CHUNKS_IN_FLIGHT: usize = 16;
/// Longest watchdog: an hour.
const WATCHDOG_MS_MAX: usize = 3_600_000;
/// Packets of a bin of such a device: two warps.
const BIN_PACKETS: u32 = 64;
/// Fewest bins of a chunk of such a device.
const BINS: u32 = 64;
/// How long a packet waits for a fuller chunk there, nanoseconds: a large chunk takes a worker so long to fill.
const DEADLINE_NS: u64 = 1_000_000;
/// Most of what a function's share can be.
const SHARE_MAX: u32 = 1000;
/// Most packets that the bins of a chunk may have room for.
const PLACES_MAX: u32 = 1 << 24;

/// How chunks for a device other than the CPU are made, unless the operator says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkDefaults {
    /// Sets of bins of each worker: one fills while the others are on the device.
    pub chunks: usize,
    /// Most packets of a chunk: `bytes` of short ones.
    pub packets_max: u32,
    /// Bytes of buffers with which a chunk is full.
    pub bytes: u32,
}

impl ChunkDefaults {
    /// For a device of which each of so many workers has its share.
    pub fn of(id: &str, mode: Mode, workers: usize) -> Self {
        if mode == Mode::Launch && cuda::number(id).is_some() {
            // Copies of 8 MiB reach 0.95 of the bus, of 2 MiB with the small ones beside them 0.85 (an H200); but with 16 workers
            // that have 18 MiB of buffers each, chunks of 6 MiB come around sooner: 512 bytes and IMIX 1.04 times as fast as
            // with 8, longer frames alike.
            let in_flight = (CHUNKS_IN_FLIGHT / workers.max(1)).clamp(1, CHUNKS - 1);
            return Self { chunks: 1 + in_flight, packets_max: 32_768, bytes: 6 << 20 };
        }
        Self { chunks: CHUNKS, packets_max: 16_384, bytes: 2 << 20 }
    }
}

/// A device and how it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Its name: `cpu`, `opencl:0`, `cuda:0`.
    pub id: String,
    /// How bins come to it.
    pub mode: Mode,
    /// How packets of launched chunks come to memory of its own, and back.
    pub transfer: Transfer,
    /// A chunk that is not back after this time makes the device lost, milliseconds.
    pub watchdog_ms: u64,
    /// Sets of bins of each worker: one fills while the others are on the device.
    pub chunks: usize,
    /// Whether it leads packets from function to function by itself, where it can.
    pub device_chain: bool,
    /// Of its persistent groups: function and share, in the operator's order. Any group serves functions that it does not
    /// name.
    pub share: Vec<(String, u32)>,
    /// Its bins and chunks.
    pub packing: PackerConfig,
}

impl DeviceConfig {
    /// A device that the operator says no more of than `packing`.
    fn new(id: &str, mode: Mode, engine: &EngineConfig, packing: &PackingKeys) -> Self {
        let defaults = ChunkDefaults::of(id, mode, engine.workers);
        Self {
            id: id.to_owned(),
            mode,
            transfer: Transfer::default(),
            watchdog_ms: DeviceOptions::default().watchdog.as_millis() as u64,
            chunks: defaults.chunks,
            device_chain: true,
            share: Vec::new(),
            packing: packing_of(id, defaults, engine, &[packing]),
        }
    }
}

impl DeviceConfig {
    /// Share of its groups that this function has to itself; 0: any group serves it.
    pub(crate) fn share_of(&self, function: &str) -> u32 {
        self.share.iter().find(|(name, _)| name == function).map_or(0, |(_, share)| *share)
    }
}

/// The packing of a device: what `keys` say, the last of them first, else what suits its kind.
///
/// A core works through small chunks that stay in its caches. All other devices do more at once than a core has packets
/// in its caches: large chunks, of which as many are in flight as the worker has packets for; small bins of packets that
/// take alike long, so that lanes in lockstep end together.
fn packing_of(id: &str, chunks: ChunkDefaults, engine: &EngineConfig, keys: &[&PackingKeys]) -> PackerConfig {
    let mut packing = PackerConfig::default();
    if id != cpu::ID {
        // A worker has at most 65536 packets in flight.
        let share = (engine.in_flight_packets / chunks.chunks).max(1) as u32;
        packing.chunk_packets = share.min(chunks.packets_max);
        packing.chunk_bytes = Some(chunks.bytes);
        packing.bin_packets = BIN_PACKETS;
        packing.deadline_ns = DEADLINE_NS;
        packing.grouping = Grouping::VariantLength;
    }
    keys.iter().for_each(|keys| keys.apply(&mut packing));
    if id != cpu::ID && keys.iter().all(|keys| keys.bins.is_none()) {
        // As many as are full, and as many again for those that are not; all together within what a packer takes.
        let bin_packets = packing.bin_packets.max(1);
        let bins = 2 * (packing.chunk_packets / bin_packets);
        packing.bins = bins.max(BINS).min(PLACES_MAX / bin_packets).clamp(1, u16::MAX.into());
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

/// The CPU, and every device that a function runs on or that has a stanza.
pub(super) fn read<'a>(
    document: &Document<'a>,
    stanzas: Vec<Stanza<'a>>,
    engine: &EngineConfig,
    packing: &PackingKeys,
    functions: &[FunctionConfig],
    warnings: &mut Vec<String>,
) -> Result<Vec<DeviceConfig>, ConfigError> {
    let mut devices = vec![DeviceConfig::new(cpu::ID, Mode::Launch, engine, packing)];
    let mut lines: Vec<(String, usize)> = Vec::new();
    for mut stanza in stanzas {
        let config = read_one(document, &mut stanza, engine, packing)?;
        validate_share(document, &stanza, &config, functions)?;
        let at = stanza.span_of("name");
        if let Some((id, line)) = lines.iter().find(|(id, _)| *id == config.id) {
            let message = format!("there are two devices called `{id}`: the other begins in line {line}");
            return Err(document.refuse(at, message));
        }
        lines.push((config.id.clone(), document.line(stanza.span().start)));
        if config.id == cpu::ID {
            devices[0] = config;
            continue;
        }
        if !functions.iter().any(|function| function.devices.contains(&config.id)) {
            let message = format!("no function runs on device `{}`: one does that says device = \"{0}\"", config.id);
            warnings.push(document.warn(at, message));
        }
        devices.push(config);
    }
    for id in functions.iter().flat_map(|function| &function.devices) {
        if !devices.iter().any(|device| device.id == *id) {
            devices.push(DeviceConfig::new(id, Mode::Launch, engine, packing));
        }
    }
    Ok(devices)
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
        return Err(document.refuse(name.span(), format!("there can be no device {}", no_device(id))));
    }
    for key in ["mode", "transfer", "watchdog_ms", "chunks", "device_chain", "share"] {
        if id == cpu::ID && stanza.has(key) {
            let message = format!("the CPU runs a chunk at once, on the worker's own thread: it has no `{key}`");
            return Err(document.refuse(stanza.span_of(key), message));
        }
    }
    let keys: DeviceKeys = document.read(stanza, &["name"])?;
    let mut config = DeviceConfig::new(id, keys.mode.unwrap_or_default(), engine, packing);
    if let Some(transfer) = keys.transfer {
        config.transfer = transfer;
        if cuda::number(id).is_none() || config.mode != Mode::Launch {
            let message = "`transfer` is of CUDA devices that launch: others have but one way to come by their packets";
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
    let defaults = ChunkDefaults { chunks: config.chunks, ..ChunkDefaults::of(id, config.mode, engine.workers) };
    config.packing = packing_of(id, defaults, engine, &[packing, &keys.packing()]);
    validate_packing(document, stanza, &config.packing)?;
    Ok(config)
}

/// Each share is of a function that runs on the device, in groups that stay on it.
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
            return refuse(format!("`share` names the function `{name}`, and there is none of that name"));
        };
        if !function.devices.contains(id) {
            return refuse(format!("`share` names the function `{name}`, which does not run on `{id}`"));
        }
        if !(1..=SHARE_MAX).contains(share) {
            return refuse(format!("the share of `{name}` is {share}, and must be 1 to {SHARE_MAX}"));
        }
    }
    if !share.is_empty() && *mode != Mode::Persistent {
        let message = "`share` splits groups that stay on the device, for which it says mode = \"persistent\": the groups of a \
                       launch take whatever bin is next";
        return refuse(message.to_owned());
    }
    Ok(())
}

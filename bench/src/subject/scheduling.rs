//! The settings of the packer on a device (PIPSEA, figures 9, 10, 11 and 17).
//!
//! Each packet belongs to one of six random variants: AES-CBC with HMAC-SHA1, AES-CBC alone and
//! HMAC-SHA1 alone, each with encryption and decryption and with separate SAs. The packer of the
//! engine makes the chunks before the timed passes; the detail `packer_ns` contains its time per
//! packet. The first setting is the paper's baseline: bins in arrival order with mixed variants and
//! lengths.

use godwit_device::{Mode, has_own_memory};
use godwit_sched::{Grouping, PackerConfig};

use crate::error::Error;
use crate::load::associations::Associations;
use crate::load::frames;
use crate::load::size::Size;
use crate::progress::Progress;
use crate::run::feed::Feed;
use crate::run::flow::{Flow, FlowConfig};
use crate::run::lane::implementation;
use crate::run::options::{Context, LaneOptions};
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};

/// Packets of a chunk in the paper (section 4.2).
const CHUNK_PACKETS: u32 = 4096;
/// Bins of a chunk in the paper.
const BINS: u32 = 64;
/// Length classes of the paper, in bytes.
const GRANULARITY_BYTES: u32 = 256;
/// Packets of a chunk in figure 10.
const CHUNKS: [u32; 4] = [1024, 2048, 4096, 8192];
/// Bins of a chunk in figure 10.
const BIN_COUNTS: [u32; 4] = [16, 32, 64, 128];
/// Length classes of figure 11. The last class contains all lengths.
const GRANULARITIES: [u32; 4] = [64, 256, 512, 1536];
/// Suites of the variants.
const SUITES: [&str; 3] = ["cbc128_sha1", "cbc128_none", "null_sha1"];
/// SAs of each variant.
const SAS: u32 = 1024;
/// Name of the baseline.
const UNSCHEDULED: &str = "no scheduling: in order of arrival";

/// A setting of the packer.
struct Setting {
    /// Figure of PIPSEA.
    figure: &'static str,
    name: String,
    config: PackerConfig,
}

/// Measures each setting, with packets in host memory and with packets that stay in device memory.
pub(super) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let options = &LaneOptions::parse(context)?;
    let associations = Associations::new(&SUITES, SUITES.len() as u32 * SAS, true)?.both_ways();
    let functions = [associations.function(1)?];
    let feed = Feed::new(options, Size::Random);
    let chunk_packets = options.batch.map_or(CHUNK_PACKETS, |batch| batch as u32).min(feed.packets as u32 / 2).max(1);
    let settings = settings(chunk_packets, feed.packets as u32 / 2);
    let mut rows = Vec::new();
    for resident in [false, true] {
        for &size in &options.common.sizes {
            let config = FlowConfig {
                device: options.device(),
                mode: options.mode.unwrap_or(Mode::Launch),
                implementation: implementation(options)?,
                resident,
                layout: options.layout,
                transfer: options.transfer.unwrap_or_default(),
                functions: &functions,
                packets: feed.packets,
                bins: settings.iter().map(|setting| setting.config.entries_max()).max().unwrap_or(1),
                bin_packets: settings.iter().map(|setting| setting.config.bin_packets as usize).max().unwrap_or(1),
                in_flight: feed.in_flight,
                share: &[],
                chain: None,
            };
            let any = &mut |random: &mut _| associations.any(random);
            if resident && !has_own_memory(config.device) {
                progress(&format!("{} keeps no packets in separate memory", config.device));
                break;
            }
            let mut flow = Flow::new(&config, size, &frames::filled(frames::noise), any)?;
            measure(&mut flow, size, resident, &settings, options, progress, &mut rows)?;
        }
    }
    Ok(rows)
}

fn measure(
    flow: &mut Flow,
    size: Size,
    resident: bool,
    settings: &[Setting],
    options: &LaneOptions,
    progress: &mut Progress<'_>,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let memory = if resident { "device" } else { "host" };
    // Times of bins, by which some settings sort.
    let mut observed = Vec::new();
    let mut first = None;
    for Setting { figure, name, config } in settings {
        let packer_ns = flow.prepare_by_packer(config, &observed)?;
        let (verified, times) = flow.verify()?;
        observed = times;
        let (packets, chunks) = flow.prepared();
        let mut passes = flow.measure(options.common.time)?;
        let mpps = passes.mpps();
        let (p50, p99) = median_p99(&mut passes.latencies_ns);
        let ratio = mpps / *first.get_or_insert(mpps);
        progress(&format!("{size}, {name}, packets in {memory} memory: {mpps:.2} Mpps, {ratio:.2} of no scheduling"));
        rows.push(Row {
            device: options.device().to_owned(),
            implementation: name.clone(),
            mode: flow.device.mode().name().to_owned(),
            size: Some(size),
            batch: config.chunk_packets as usize,
            mpps,
            gbps: mpps * flow.frame_bytes() * 8.0 / 1e3,
            p50_us: p50 / 1e3,
            p99_us: p99 / 1e3,
            details: Details::default()
                .with("figure", *figure)
                .with("memory", memory)
                .with("ratio_to_unscheduled", ratio)
                .with("bins", u64::from(config.bins))
                .with("bin_packets", u64::from(config.bin_packets))
                .with("length_classes_bytes", u64::from(config.length_granularity_bytes))
                .with("packets_per_chunk", packets as f64 / chunks.max(1) as f64)
                .with("packer_ns", packer_ns)
                .with("verified", verified),
            ..Row::default()
        });
    }
    Ok(())
}

/// Returns all settings. `limit` is the largest chunk of figure 10, in packets.
fn settings(chunk_packets: u32, limit: u32) -> Vec<Setting> {
    let config = |chunk_packets: u32, bins: u32, granularity_bytes: u32, grouping, sort| PackerConfig {
        chunk_packets,
        chunk_bytes: None,
        bins,
        bin_packets: (chunk_packets / bins).max(1),
        length_granularity_bytes: granularity_bytes,
        deadline_ns: u64::from(u32::MAX),
        sort,
        grouping,
        leftover_packets: chunk_packets,
    };
    let both = Grouping::VariantLength;
    let mut settings: Vec<Setting> = [
        (UNSCHEDULED, Grouping::None, false),
        ("by variant", Grouping::Variant, false),
        ("by variant and length", both, false),
        ("by variant and length, longest first", both, true),
    ]
    .into_iter()
    .map(|(name, grouping, sort)| Setting {
        figure: "9 and 17",
        name: name.to_owned(),
        config: config(chunk_packets, BINS, GRANULARITY_BYTES, grouping, sort),
    })
    .collect();
    for chunk in CHUNKS.into_iter().filter(|&chunk| chunk <= limit) {
        settings.extend(BIN_COUNTS.map(|bins| Setting {
            figure: "10",
            name: format!("{chunk} packets in {bins} bins"),
            config: config(chunk, bins, GRANULARITY_BYTES, both, true),
        }));
    }
    settings.extend(GRANULARITIES.map(|granularity| Setting {
        figure: "11",
        name: format!("classes of {granularity} bytes"),
        config: config(chunk_packets, BINS, granularity, both, true),
    }));
    settings
}

//! What PIPSEA's bins are worth on a device (figures 9, 10, 11 and 17 of the paper).
//!
//! Each packet is for one of six variants at random: AES-CBC with HMAC-SHA1, AES-CBC alone, HMAC-SHA1 alone, each encryption
//! and decryption, with SAs of their own. A packer makes chunks of them ahead of the timing, as the engine's does while
//! packets come; its own cost is in the notes. The first setting is the paper's baseline: bins in order of arrival, in which all
//! variants and lengths are mixed.

use godwit_device::Mode;
use godwit_sched::{Grouping, PackerConfig};

use crate::flow::{Flow, Site};
use crate::frames;
use crate::suites::Associations;
use crate::throughput::{Feed, implementation};
use crate::{BenchOptions, Error, Progress, Row, Size, function, median_p99};

/// The paper's choice (section 4.2): chunks of 4096 packets in 64 bins, length classes of 256 bytes.
const CHUNK_PACKETS: u32 = 4096;
const BINS: u32 = 64;
const GRANULARITY_BYTES: u32 = 256;
/// Figure 10.
const CHUNKS: [u32; 4] = [1024, 2048, 4096, 8192];
const BIN_COUNTS: [u32; 4] = [16, 32, 64, 128];
/// Figure 11: length classes; the last has all lengths in one.
const GRANULARITIES: [u32; 4] = [64, 256, 512, 1536];
/// AES-CBC with HMAC-SHA1, and either alone; each is encryption and decryption.
const SUITES: [&str; 3] = ["cbc128_sha1", "cbc128_none", "null_sha1"];
/// SAs of each variant.
const SAS: u32 = 1024;
/// The baseline.
const UNSCHEDULED: &str = "no scheduling: in order of arrival";

/// One setting of the knobs.
struct Setting {
    figure: &'static str,
    name: String,
    config: PackerConfig,
}

/// The bench `scheduling`.
pub(crate) fn run(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let associations = Associations::new(&SUITES, SUITES.len() as u32 * SAS, true)?.both_ways();
    let functions = [function::many_sas(&associations, 1)?];
    let feed = Feed::new(options, Size::Random);
    let chunk_packets = options.batch.map_or(CHUNK_PACKETS, |batch| batch as u32).min(feed.packets as u32 / 2).max(1);
    let settings = settings(chunk_packets, feed.packets as u32 / 2);
    let sizes = if options.sizes.is_empty() { vec![Size::Imix, Size::Random] } else { options.sizes.clone() };
    let mut rows = Vec::new();
    for resident in [false, true] {
        for &size in &sizes {
            let site = Site {
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
            let mut flow = Flow::new(&site, size, &frames::filled(frames::noise), any)?;
            if resident && !flow.device.is_resident() {
                progress(&format!("{} has no packets in memory of its own: host to host only", site.device));
                break;
            }
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
    options: &BenchOptions,
    progress: &mut Progress<'_>,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let place = if resident { "resident in device memory" } else { "host to host" };
    // What bins take, for the settings that sort by it.
    let mut observed = Vec::new();
    let mut first = None;
    for Setting { figure, name, config } in settings {
        let packer_ns = flow.prepare_by_packer(config, &observed)?;
        let (verified, times) = flow.verify()?;
        observed = times;
        let (packets, chunks) = flow.prepared();
        let mut passes = flow.measure(options.time)?;
        let mpps = passes.mpps();
        let (p50, p99) = median_p99(&mut passes.latencies_ns);
        let ratio = mpps / *first.get_or_insert(mpps);
        progress(&format!("{figure}, {size}, {name}, {place}: {mpps:.2} Mpps, {ratio:.2} of no scheduling"));
        rows.push(Row {
            bench: "scheduling".to_owned(),
            device: options.device().to_owned(),
            implementation: name.clone(),
            mode: flow.device.mode().name(),
            size: Some(size),
            batch: config.chunk_packets as usize,
            mpps,
            gbps: mpps * flow.frame_bytes() * 8.0 / 1e3,
            p50_us: p50 / 1e3,
            p99_us: p99 / 1e3,
            watts: None,
            peer: false,
            note: format!(
                "{figure}; {ratio:.2} of no scheduling; {place}; {} bins of {}, {:.0} packets a chunk; packer {packer_ns:.0} ns a packet; {verified} compared with ref",
                config.bins,
                config.bin_packets,
                packets as f64 / chunks.max(1) as f64,
            ),
        });
    }
    Ok(())
}

fn settings(chunk_packets: u32, most: u32) -> Vec<Setting> {
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
        figure: "figures 9 and 17",
        name: name.to_owned(),
        config: config(chunk_packets, BINS, GRANULARITY_BYTES, grouping, sort),
    })
    .collect();
    for chunk in CHUNKS.into_iter().filter(|&chunk| chunk <= most) {
        settings.extend(BIN_COUNTS.map(|bins| Setting {
            figure: "figure 10",
            name: format!("{chunk} packets in {bins} bins"),
            config: config(chunk, bins, GRANULARITY_BYTES, both, true),
        }));
    }
    settings.extend(GRANULARITIES.map(|granularity| Setting {
        figure: "figure 11",
        name: format!("classes of {granularity} bytes"),
        config: config(chunk_packets, BINS, granularity, both, true),
    }));
    settings
}

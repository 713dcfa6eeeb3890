//! Sends prepared chunks of packets through the lane of a device, with several chunks in flight.

use std::sync::Arc;
use std::time::Duration;

use godwit_device::{Implementation, LAST_RESORT, Mode, has_own_memory, is_synchronous};
use godwit_function::Function;
use godwit_sched::{Grouping, PackerConfig};

use crate::error::Error;
use crate::load::frames::{Make, Random};
use crate::load::job::Job;
use crate::load::size::Size;
use crate::progress::Progress;
use crate::run::cores;
use crate::run::feed::Feed;
use crate::run::flow::passes::Passes;
use crate::run::flow::{Flow, FlowConfig};
use crate::run::link::{link, moved};
use crate::run::options::{LaneOptions, layout_name};
use crate::run::power::PowerWatch;
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};
use crate::run::several::{self, at_once, on_threads, uncounted};
use crate::run::workload::Workload;

/// Length classes of PIPSEA (section 4.2), in bytes.
const GRANULARITY_BYTES: u32 = 256;

/// Returns the requested implementation on the CPU.
///
/// # Errors
/// Returns an error if the implementation does not exist on the requested devices.
pub(crate) fn implementation(options: &LaneOptions) -> Result<Implementation, Error> {
    let on_cpu = options.devices().contains(&LAST_RESORT);
    match options.common.implementation.as_deref() {
        None | Some("native") if on_cpu => Ok(Implementation::Native),
        None | Some("scalar") => Ok(Implementation::Scalar),
        Some("gopt") if on_cpu => Ok(Implementation::Gopt),
        Some("ref") if on_cpu => Ok(Implementation::Ref),
        Some(name) => {
            let known = if on_cpu { vec!["ref", "scalar", "gopt", "native"] } else { vec!["scalar"] };
            let known = known.into_iter().map(str::to_owned).collect();
            Err(Error::Unknown { what: "implementation", name: name.to_owned(), known })
        }
    }
}

/// Measures a function at each size, through the lane of one device or of several devices at once.
pub(crate) fn measure(
    workload: &Workload<'_>,
    options: &LaneOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let (threads, cores) = cores::feeding(options)?;
    if options.devices().len() > 1 {
        return measure_several(workload, options, progress);
    }
    let implementation = implementation(options)?;
    let (device, common) = (options.device(), &options.common);
    let kind = workload.function.contract().kind;
    // Only packets that are copied use the link.
    let time = common.time.min(Duration::from_millis(200)) / 4;
    let link = has_own_memory(device).then(|| link(device, time, progress)).flatten();
    let mut rows = Vec::new();
    for &size in &common.sizes {
        for &threads in &threads {
            let feed = Feed::for_threads(options, size, threads)?;
            let mut flows = flows(Packets::of(workload), options, device, implementation, &feed, size, threads)?;
            let on_device = Arc::clone(&flows[0].device);
            if let Some(reason) = on_device.fallback() {
                progress(&format!("{device} runs in mode {}: {reason}", on_device.mode().name()));
            }
            let verified = on_threads(flows.iter_mut().collect(), Flow::verify)?;
            let verified: usize = verified.iter().map(|(verified, _)| verified).sum();
            progress(&format!("{kind} at {size} on {device}: {verified} packets compared with ref"));
            let (packets, chunks) = flows[0].prepared();
            let watch = PowerWatch::start(device);
            let measured = match &mut flows[..] {
                [flow] => flow.measure(common.time).map(|passes| (vec![passes], 0)),
                flows => at_once(flows, &vec![vec![usize::MAX]; threads], Some(&cores[..threads]), common.time),
            };
            let watts = watch.stop();
            let (mut each, apart) = measured?;
            let rates: Vec<f64> = each.iter_mut().map(Passes::mpps).collect();
            let gbps = rates.iter().zip(&flows).map(|(mpps, flow)| mpps * flow.frame_bytes() * 8.0 / 1e3).sum();
            let mpps = rates.iter().sum();
            let mut passes = Passes::default();
            each.into_iter().for_each(|thread| passes.append(thread));
            let (p50, p99) = median_p99(&mut passes.latencies_ns);
            let details = details(&feed, options, verified, mpps, passes.moved_per_packet(), link);
            rows.push(Row {
                device: device.to_owned(),
                implementation: on_device.choices()[0].form.clone(),
                mode: on_device.mode().name().to_owned(),
                size: Some(size),
                batch: if workload.packed { packets / chunks.max(1) } else { feed.batch },
                mpps,
                gbps,
                p50_us: p50 / 1e3,
                p99_us: p99 / 1e3,
                watts,
                details: workload.details.clone().with("threads", threads).and(details).and(uncounted(apart)),
                ..Row::default()
            });
        }
    }
    Ok(rows)
}

/// The part of a workload that threads share.
#[derive(Clone, Copy)]
pub(crate) struct Packets<'a> {
    function: &'a Arc<dyn Function>,
    frame: &'a Make<'a>,
    job: Option<&'a (dyn Fn(&mut Random) -> Job + Sync)>,
    packed: bool,
}

impl<'a> Packets<'a> {
    /// Returns the shared part of a workload.
    pub(crate) fn of(workload: &'a Workload<'_>) -> Self {
        Self { function: &workload.function, frame: workload.frame, job: workload.job, packed: workload.packed }
    }
}

/// Prepares the packets of a workload for one thread.
fn flow(
    packets: Packets<'_>,
    options: &LaneOptions,
    device: &str,
    implementation: Implementation,
    feed: &Feed,
    size: Size,
) -> Result<Flow, Error> {
    Ok(flows(packets, options, device, implementation, feed, size, 1)?.remove(0))
}

/// Prepares the workload's packets for each of several threads that feed one device.
pub(crate) fn flows(
    Packets { function, frame, job, packed }: Packets<'_>,
    options: &LaneOptions,
    device: &str,
    implementation: Implementation,
    feed: &Feed,
    size: Size,
    threads: usize,
) -> Result<Vec<Flow>, Error> {
    let mut job = |random: &mut Random| match job {
        Some(job) => job(random),
        None => Job::plain(0, function.properties().variant),
    };
    let config = FlowConfig {
        device,
        mode: options.mode.filter(|_| !is_synchronous(device)).unwrap_or(Mode::Launch),
        implementation,
        resident: false,
        layout: options.layout,
        transfer: options.transfer.unwrap_or_default(),
        functions: std::slice::from_ref(function),
        packets: feed.packets,
        // Each length may have a bin that is not full.
        bins: feed.batch.div_ceil(feed.bin_packets) + 4,
        bin_packets: feed.bin_packets,
        in_flight: feed.in_flight,
        share: &[],
        chain: None,
    };
    let mut flows = Flow::for_threads(&config, threads, size, frame, &mut job)?;
    for flow in &mut flows {
        if packed {
            // The packer sorts bins by their measured times, longest first.
            let config = packing(feed);
            flow.prepare_by_packer(&config, &[])?;
            let (_, observed) = flow.verify()?;
            flow.prepare_by_packer(&config, &observed)?;
        } else {
            flow.prepare_by_length(feed.batch, feed.bin_packets);
        }
    }
    Ok(flows)
}

/// Returns the settings of PIPSEA's packer for these chunks.
fn packing(feed: &Feed) -> PackerConfig {
    // At least two chunks with at least one bin each.
    let bin_packets = feed.bin_packets.min(feed.packets / 2).max(1);
    let bins = (feed.batch.min(feed.packets / 2) / bin_packets).max(1);
    PackerConfig {
        chunk_packets: (bins * bin_packets) as u32,
        chunk_bytes: None,
        bins: bins as u32,
        bin_packets: bin_packets as u32,
        length_granularity_bytes: GRANULARITY_BYTES,
        deadline_ns: u64::from(u32::MAX),
        sort: true,
        grouping: Grouping::VariantLength,
        leftover_packets: (bins * bin_packets) as u32,
    }
}

/// Measures a function on several devices, each alone and all at once.
fn measure_several(
    workload: &Workload<'_>,
    options: &LaneOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let links = several::links(&options.common, progress);
    let packets = Packets::of(workload);
    let mut rows = Vec::new();
    for &size in &options.common.sizes {
        let make = |device: &str, feed: &Feed| flow(packets, options, device, Implementation::Native, feed, size);
        let load = several::Load { name: None, size, frames: true, make: &make };
        rows.extend(several::rows(&load, options, &links, progress)?);
    }
    Ok(rows)
}

/// Returns the settings of a row, and the load of the link.
fn details(
    feed: &Feed,
    options: &LaneOptions,
    verified: usize,
    mpps: f64,
    per_packet: Option<[f64; 2]>,
    link: Option<f64>,
) -> Details {
    Details::default()
        .with("layout", layout_name(options.layout))
        .with("in_flight", feed.in_flight)
        .with("bin_packets", feed.bin_packets)
        .with("arena_packets", feed.packets)
        .with("verified", verified)
        .and(moved(mpps, per_packet, link))
}

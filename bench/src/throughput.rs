//! A function on a device, arena to arena: prepared chunks through a lane, several in flight (PIPSEA figure 8, APUNet
//! figure 3).

use std::sync::Arc;
use std::time::Duration;

use godwit_device::{Implementation, Mode, cpu, has_own_memory, measure};
use godwit_function::Function;
use godwit_sched::{Grouping, PackerConfig};

use crate::flow::{Flow, Job, Site};
use crate::frames::Random;
use crate::function::{Make, Workload};
use crate::passes::Passes;
use crate::power::PowerWatch;
use crate::several::{self, apart_note, at_once, on_threads};
use crate::{BenchOptions, Error, Layout, Progress, Row, Size, cores, median_p99};

/// Frame sizes, where the user names none.
pub(crate) const SIZES: [Size; 6] =
    [Size::Bytes(60), Size::Bytes(256), Size::Bytes(512), Size::Bytes(1024), Size::Bytes(1408), Size::Imix];

/// Size of copies that the link is measured with, bytes: beyond the knee of every copy engine.
pub(crate) const COPY_BYTES: usize = 32 << 20;

/// Frames of a chunk for a discrete GPU, bytes: about 8 MiB of buffers.
const COPY_PACKETS_BYTES: usize = 4 << 20;

/// A pass has so many times the chunks that a thread keeps in flight: half of it is then time in which as many are, and where several
/// threads feed a device, all of them do.
const PIPELINES: usize = 4;
/// But no more packets for that than so many, unless the user says so.
const PIPELINES_PACKETS_MAX: usize = 1 << 20;

/// PIPSEA's choice of length classes (section 4.2).
const GRANULARITY_BYTES: u32 = 256;

/// What a device is fed with, unless the user says otherwise.
pub(crate) struct Feed {
    /// Packets of a chunk.
    pub(crate) batch: usize,
    pub(crate) bin_packets: usize,
    pub(crate) in_flight: usize,
    /// Packets in the arena.
    pub(crate) packets: usize,
}

impl Feed {
    /// For frames of a size.
    pub(crate) fn new(options: &BenchOptions, size: Size) -> Self {
        Self::of(options, options.device(), size)
    }

    /// The same of one of several devices.
    pub(crate) fn of(options: &BenchOptions, device: &str, size: Size) -> Self {
        // A discrete GPU wants copies of 8 MB and four of them under way, for beside the buffers each chunk has small copies
        // (an H200 at 60 bytes: 0.80 of half the duplex copy rate with chunks of 16,384, 0.94 with 65,536); the processor wants
        // chunks that stay in its L2 cache, and runs them on submission. Arenas are larger than the last-level cache.
        let kind = device.split(':').next().unwrap_or_default();
        let (batch, bin_packets, in_flight, packets) = match kind {
            cpu::ID => (256, 256, 1, 1 << 16),
            "opencl" => (1024, 64, 4, 1 << 16),
            _ => ((COPY_PACKETS_BYTES / size.frame_bytes_mean()).clamp(1 << 14, 1 << 16), 64, 4, 1 << 19),
        };
        let batch = options.batch.unwrap_or(batch).max(1);
        let in_flight = options.in_flight.unwrap_or(in_flight).max(1);
        let pipelines = batch.saturating_mul(in_flight).saturating_mul(PIPELINES).min(PIPELINES_PACKETS_MAX);
        // With little time to measure, a large arena takes longer to make than to measure.
        let packets =
            if options.time < Duration::from_millis(100) { packets.min(2048) } else { packets.max(pipelines) };
        let packets = options.packets.unwrap_or(packets);
        Self {
            batch: batch.min(packets),
            bin_packets: options.bin_packets.unwrap_or(bin_packets).clamp(1, usize::from(u16::MAX)),
            in_flight,
            packets,
        }
    }

    /// What each of so many threads that feed the device has, which share the packets; chunks are smaller where there are too few for
    /// several threads, unless the user says how large they are.
    ///
    /// # Errors
    /// There are too few packets.
    pub(crate) fn for_threads(options: &BenchOptions, size: Size, threads: usize) -> Result<Self, Error> {
        let mut feed = Self::new(options, size);
        if threads == 1 {
            return Ok(feed);
        }
        feed.packets /= threads;
        let chunks = PIPELINES * feed.in_flight;
        feed.batch = options.batch.unwrap_or_else(|| feed.batch.min(feed.packets / chunks)).max(1);
        if feed.batch * chunks > feed.packets {
            return Err(Error::Setup(format!(
                "{threads} workers with {} chunks of {} packets in flight each need --packets {} or more, or smaller chunks",
                feed.in_flight,
                feed.batch,
                feed.batch * chunks * threads
            )));
        }
        Ok(feed)
    }
}

/// The implementation asked for, of the CPU.
pub(crate) fn implementation(options: &BenchOptions) -> Result<Implementation, Error> {
    let on_cpu = options.devices().contains(&cpu::ID);
    match options.implementation.as_deref() {
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

/// The device's link, both ways at once, bytes per second; `None`, and why, where it cannot be measured.
pub(crate) fn link(device: &str, time: Duration, progress: &mut Progress<'_>) -> Option<f64> {
    let rates = measure::open(device).and_then(|mut device| device.copy(COPY_BYTES, time, &|| {}));
    match rates {
        Ok(rates) => {
            progress(&format!(
                "copies of 32 MiB: {:.1} GB/s to {device}, {:.1} from it, {:.1} both ways in sum",
                rates.host_to_device / 1e9,
                rates.device_to_host / 1e9,
                rates.both / 1e9
            ));
            Some(rates.both)
        }
        Err(error) => {
            progress(&format!("copies are not measured: {error}"));
            None
        }
    }
}

/// Measures a function at each size through the lane of the device asked for.
pub(crate) fn measure(
    workload: &Workload<'_>,
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let (threads, cores) = cores::feeding(options)?;
    if options.devices().len() > 1 {
        return measure_several(workload, options, progress);
    }
    let implementation = implementation(options)?;
    let device = options.device();
    // Where nothing is copied, no link is in the way.
    let time = options.time.min(Duration::from_millis(200)) / 4;
    let link = has_own_memory(device).then(|| link(device, time, progress)).flatten();
    let mut rows = Vec::new();
    for &size in sizes(workload, options) {
        for &threads in &threads {
            let feed = Feed::for_threads(options, size, threads)?;
            let mut flows = flows(Packets::of(workload), options, device, implementation, &feed, size, threads)?;
            let on_device = Arc::clone(&flows[0].device);
            if let Some(reason) = on_device.fallback() {
                progress(&format!("{device} runs in mode {}: {reason}", on_device.mode().name()));
            }
            let verified = on_threads(flows.iter_mut().collect(), Flow::verify)?;
            let verified: usize = verified.iter().map(|(verified, _)| verified).sum();
            progress(&format!("{} at {size} on {device}: {verified} packets compared with ref", workload.bench));
            let (packets, chunks) = flows[0].prepared();
            let watch = PowerWatch::start(device);
            let measured = match &mut flows[..] {
                [flow] => flow.measure(options.time).map(|passes| (vec![passes], 0)),
                flows => at_once(flows, &vec![vec![usize::MAX]; threads], Some(&cores[..threads]), options.time),
            };
            let watts = watch.stop();
            let (mut each, apart) = measured?;
            let rates: Vec<f64> = each.iter_mut().map(Passes::mpps).collect();
            let gbps = rates.iter().zip(&flows).map(|(mpps, flow)| mpps * flow.frame_bytes() * 8.0 / 1e3).sum();
            let mpps = rates.iter().sum();
            let mut passes = Passes::default();
            each.into_iter().for_each(|of_one| passes.append(of_one));
            let (p50, p99) = median_p99(&mut passes.latencies_ns);
            let front = if threads > 1 { format!("fed by {threads} threads, each: ") } else { String::new() };
            let note = front + &note(&feed, options, verified, mpps, passes.moved_per_packet(), link);
            rows.push(Row {
                bench: workload.bench.to_owned(),
                device: device.to_owned(),
                implementation: on_device.choices()[0].form.clone(),
                mode: on_device.mode().name(),
                size: Some(size),
                batch: if workload.packed { packets / chunks.max(1) } else { feed.batch },
                mpps,
                gbps,
                p50_us: p50 / 1e3,
                p99_us: p99 / 1e3,
                watts,
                peer: false,
                note: note + &apart_note(apart),
            });
        }
    }
    Ok(rows)
}

fn sizes<'a>(workload: &Workload<'a>, options: &'a BenchOptions) -> &'a [Size] {
    match (options.sizes.as_slice(), workload.sizes) {
        ([], sizes) if sizes.len() > 1 => sizes,
        ([], _) => &SIZES,
        (sizes, _) => sizes,
    }
}

/// What threads share of a workload.
#[derive(Clone, Copy)]
pub(crate) struct Packets<'a> {
    function: &'a Arc<dyn Function>,
    frame: &'a Make<'a>,
    job: Option<&'a (dyn Fn(&mut Random) -> Job + Sync)>,
    packed: bool,
}

impl<'a> Packets<'a> {
    pub(crate) fn of(workload: &'a Workload<'_>) -> Self {
        Self { function: &workload.function, frame: workload.frame, job: workload.job, packed: workload.packed }
    }
}

/// Packets of a workload in an arena of their own, in chunks.
fn flow(
    packets: Packets<'_>,
    options: &BenchOptions,
    device: &str,
    implementation: Implementation,
    feed: &Feed,
    size: Size,
) -> Result<Flow, Error> {
    Ok(flows(packets, options, device, implementation, feed, size, 1)?.remove(0))
}

/// The same for so many threads that feed one device, each with as many packets.
pub(crate) fn flows(
    Packets { function, frame, job, packed }: Packets<'_>,
    options: &BenchOptions,
    device: &str,
    implementation: Implementation,
    feed: &Feed,
    size: Size,
    threads: usize,
) -> Result<Vec<Flow>, Error> {
    let mut job = |random: &mut Random| match job {
        Some(job) => job(random),
        None => Job { instance: 0, variant: function.variant(), parameter: 0, before: None, row: 0 },
    };
    let site = Site {
        device,
        mode: options.mode.filter(|_| device != cpu::ID).unwrap_or(Mode::Launch),
        implementation,
        resident: false,
        layout: options.layout,
        transfer: options.transfer.unwrap_or_default(),
        functions: std::slice::from_ref(function),
        packets: feed.packets,
        // A bin that is not full for each length there is.
        bins: feed.batch.div_ceil(feed.bin_packets) + 4,
        bin_packets: feed.bin_packets,
        in_flight: feed.in_flight,
        share: &[],
        chain: None,
    };
    let mut flows = Flow::for_threads(&site, threads, size, frame, &mut job)?;
    for flow in &mut flows {
        if packed {
            // Longest first: by what bins were seen to take.
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

/// PIPSEA's packer, as full as the feed says.
fn packing(feed: &Feed) -> PackerConfig {
    // At least two chunks, of at least one bin.
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

/// The same on several devices at once.
fn measure_several(
    workload: &Workload<'_>,
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let links = several::links(options, progress);
    let packets = Packets::of(workload);
    let mut rows = Vec::new();
    for &size in sizes(workload, options) {
        let make = |device: &str, feed: &Feed| flow(packets, options, device, Implementation::Native, feed, size);
        let load = several::Load { bench: workload.bench, name: None, size, frames: true, make: &make };
        rows.extend(several::rows(&load, options, &links, progress)?);
    }
    Ok(rows)
}

/// As the option `--layout` has it.
pub(crate) fn layout_name(layout: Layout) -> &'static str {
    match layout {
        Layout::Dense => "dense",
        Layout::Slots => "slots",
    }
}

fn note(
    feed: &Feed,
    options: &BenchOptions,
    verified: usize,
    mpps: f64,
    moved: Option<[f64; 2]>,
    link: Option<f64>,
) -> String {
    let layout = layout_name(options.layout);
    let note = format!(
        "{layout}, {} in flight, bins of {}, arena of {} packets, {verified} compared with ref",
        feed.in_flight, feed.bin_packets, feed.packets
    );
    note + &moved_note(options.device(), mpps, moved, link)
}

/// What a packet needs of the device's link: `moved` is bytes there and back a packet.
pub(crate) fn moved_note(device: &str, mpps: f64, moved: Option<[f64; 2]>, link: Option<f64>) -> String {
    match moved {
        Some([there, back]) => {
            let mut note = format!("; {there:.0} B a packet to the device, {back:.0} B back");
            if let Some(link) = link {
                let busier = there.max(back) * mpps * 1e6;
                note += &format!(
                    ", {:.2} of half the duplex copy rate of this run ({:.1} GB/s)",
                    busier / (link / 2.0),
                    link / 2e9
                );
            }
            note
        }
        None if has_own_memory(device) => "; bytes moved are not counted".to_owned(),
        None => "; nothing is copied".to_owned(),
    }
}

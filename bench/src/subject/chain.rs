//! A chain of ESP decryption, inspection for 10,000 patterns and routing, arena to arena
//! (Hummingbird, figures 3, 6, 7 and 8).
//!
//! | row | setup |
//! |---|---|
//! | `esp` | decryption alone, for comparison |
//! | `chain` | the device moves packets from function to function; they cross its link once each way |
//! | `chain, a trip for each` | chunks return to the host after each function |
//! | `chain, ipsec on device` | decryption on the device; inspection and routing on the cores that feed it |
//! | `chain, verdict only` | only the verdicts return to the host |
//! | `dynamic 50/50`, `93/7` | a share of the packets passes all functions, the others skip the inspection; by class |
//! | `dynamic by verdict` | packets with a pattern pass a second inspection |
//! | `chain` on `cpu` | all cores, each with its own packets |
//!
//! The bench `several` measures `esp`, `dpi` (inspection alone) and `chain` on two, four and more
//! devices of the machine.
//!
//! Packets of every row are compared with the result of `ref`, function after function.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use godwit_device::{DeviceChain, Implementation, LAST_RESORT, Mode, has_own_memory, is_synchronous};
use godwit_function::Function;

use crate::error::Error;
use crate::load::associations::Associations;
use crate::load::build::build;
use crate::load::frames::{self, Random};
use crate::load::job::Job;
use crate::load::patterns;
use crate::load::size::Size;
use crate::progress::Progress;
use crate::run::cores;
use crate::run::feed::Feed;
use crate::run::flow::passes::Passes;
use crate::run::flow::{By, Chain, Flow, FlowConfig};
use crate::run::link::{link, moved};
use crate::run::options::{Context, LaneOptions, SUITE};
use crate::run::power::PowerWatch;
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};
use crate::run::several::{self, Links, Load};

/// Variants that are measured in persistent mode.
const PERSISTENT: [&str; 2] = ["esp", "chain"];
/// A route for every packet.
const ROUTES: &str = "[[next_hop]]\nname = \"there\"\nport = \"out\"\ndestination_mac = \"02:00:00:00:00:07\"\n\
                      source_mac = \"02:00:00:00:00:08\"\n[[route]]\nprefix = \"0.0.0.0/0\"\nnext_hop = \"there\"\n";

// Indexes of the functions.
const DECRYPT: usize = 0;
const INSPECT: usize = 1;
const ROUTE: usize = 2;
const AGAIN: usize = 3;
/// Largest number of verdicts of a function.
const VERDICTS: usize = 4;
/// Number of classes. Packets of the second class skip the inspection.
const ROWS: usize = 2;

/// A variant of the chain.
struct Variant {
    name: &'static str,
    /// Index of the first function.
    first: usize,
    chain: Option<Chain>,
    /// Percentage of packets of the second class.
    second_class: u32,
}

/// Measures each size on a device or on the CPU.
pub(super) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let options = &LaneOptions::parse(context)?;
    let bench = ChainBench::new(context, options, progress)?;
    let device = options.device();
    let mut rows = Vec::new();
    let link = link(device, options.common.time.min(Duration::from_millis(200)) / 4, progress);
    for &size in &options.common.sizes {
        if !is_synchronous(device) {
            let mode = options.mode.unwrap_or(Mode::Launch);
            for variant in variants() {
                rows.extend(bench.on_device(&variant, size, mode, link, progress)?);
            }
            if options.mode.is_none() {
                for variant in variants().iter().filter(|variant| PERSISTENT.contains(&variant.name)) {
                    rows.extend(bench.on_device(variant, size, Mode::Persistent, link, progress)?);
                }
            }
            rows.push(bench.on_device_and_cores(size, mode, progress)?);
        }
        rows.push(bench.on_cpu(size, progress)?);
    }
    Ok(rows)
}

/// Measures each size on the first two, four, eight devices and on all of them. Without named
/// devices, these are the devices of the first kind that have their own memory.
pub(super) fn on_several(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let all = LaneOptions::parse(context)?;
    let mut devices = all.common.devices.clone();
    if !all.common.devices_named {
        devices.retain(|device| has_own_memory(device));
        // One GPU can be a device of two kinds.
        let kind = |device: &str| device.split(':').next().unwrap_or_default().to_owned();
        if let Some(first) = devices.first().map(|device| kind(device)) {
            devices.retain(|device| kind(device) == first);
        }
    }
    if devices.len() < 2 {
        return Err(Error::Setup(format!(
            "the bench needs two or more devices with their own memory, and this machine has {}; name others with \
             --device, such as --device cpu,opencl:0",
            devices.len()
        )));
    }
    let counts = [2, 4, 8].into_iter().filter(|&count| count < devices.len()).chain([devices.len()]);
    let mut rows = Vec::new();
    for count in counts {
        let mut options = all.clone();
        options.common.devices = devices[..count].to_vec();
        let bench = ChainBench::new(context, &options, progress)?;
        let links = several::links(&options.common, progress);
        for &size in &options.common.sizes {
            for variant in &several_variants() {
                rows.extend(bench.on_several(variant, size, &links, progress)?);
            }
        }
    }
    Ok(rows)
}

/// Returns the rate per core and per watt (figure 8).
fn efficiency(gbps: f64, cores: usize, watts: Option<f64>) -> Details {
    Details::default()
        .with("cores", cores)
        .with("gbps_per_core", gbps / cores as f64)
        .with_option("gbps_per_watt", watts.map(|watts| gbps / watts))
}

/// Returns the next function for each function, class and verdict. If `needed` is false, frames do
/// not return to the host.
fn hops(needed: bool, second_inspection: bool) -> Arc<DeviceChain> {
    let mut hops = DeviceChain::new(4, ROWS, VERDICTS);
    let decrypted = godwit_function::ipsec::VERDICT_DECRYPTED.into();
    hops.connect(DECRYPT, 0, decrypted, INSPECT, 2);
    hops.connect(DECRYPT, 1, decrypted, ROUTE, 4);
    for row in 0..ROWS {
        // Verdict 0 is `clean`, verdict 1 is `match`.
        hops.connect(INSPECT, row, 0, ROUTE, 4);
        let next = if second_inspection { (AGAIN, 3) } else { (ROUTE, 4) };
        hops.connect(INSPECT, row, 1, next.0, next.1);
        hops.connect(AGAIN, row, 0, ROUTE, 4);
        hops.connect(AGAIN, row, 1, ROUTE, 4);
    }
    if !needed {
        (0..4).for_each(|function| hops.skip_copy_back(function));
    }
    Arc::new(hops)
}

fn variants() -> Vec<Variant> {
    let chain = |hops, by| Some(Chain { hops, by });
    let static_chain = || hops(true, false);
    vec![
        Variant { name: "esp", first: DECRYPT, chain: None, second_class: 0 },
        Variant { name: "chain", first: DECRYPT, chain: chain(static_chain(), By::Device), second_class: 0 },
        Variant {
            name: "chain, a trip for each",
            first: DECRYPT,
            chain: chain(static_chain(), By::Host),
            second_class: 0,
        },
        Variant {
            name: "chain, verdict only",
            first: DECRYPT,
            chain: chain(hops(false, false), By::Device),
            second_class: 0,
        },
        Variant { name: "dynamic 50/50", first: DECRYPT, chain: chain(static_chain(), By::Device), second_class: 50 },
        Variant { name: "dynamic 93/7", first: DECRYPT, chain: chain(static_chain(), By::Device), second_class: 7 },
        Variant {
            name: "dynamic by verdict",
            first: DECRYPT,
            chain: chain(hops(true, true), By::Device),
            second_class: 0,
        },
    ]
}

/// Returns the variants that several devices run.
fn several_variants() -> Vec<Variant> {
    let inspection = Variant { name: "dpi", first: INSPECT, chain: None, second_class: 0 };
    let mut variants = variants();
    variants.retain(|variant| PERSISTENT.contains(&variant.name));
    variants.insert(1, inspection);
    variants
}

struct ChainBench<'a> {
    options: &'a LaneOptions,
    associations: Associations,
    patterns: Vec<String>,
    functions: Vec<Arc<dyn Function>>,
}

impl<'a> ChainBench<'a> {
    /// Builds the functions.
    fn new(context: &Context, options: &'a LaneOptions, progress: &mut Progress<'_>) -> Result<Self, Error> {
        let suite: Option<String> = context.values.get(SUITE.name)?;
        let associations = Associations::new(&[suite.as_deref().unwrap_or("cbc128_sha1")], 4096, true)?;
        let patterns = patterns::patterns();
        let inspection = patterns::inspection(&patterns, progress)?;
        let route = build("ipv4", ROUTES)?;
        // A device has the image of the inspection twice.
        let functions = vec![associations.function(1)?, Arc::clone(&inspection), route, inspection];
        Ok(Self { options, associations, patterns, functions })
    }

    fn flow(&self, device: &str, feed: &Feed, variant: &Variant, size: Size) -> Result<Flow, Error> {
        let mode = self.options.mode.unwrap_or(Mode::Launch);
        Ok(self.flows(device, mode, feed, variant, size, 1)?.remove(0))
    }

    /// Prepares packets for each thread that feeds the device.
    fn flows(
        &self,
        device: &str,
        mode: Mode,
        feed: &Feed,
        variant: &Variant,
        size: Size,
        threads: usize,
    ) -> Result<Vec<Flow>, Error> {
        let config = FlowConfig {
            device,
            mode: if is_synchronous(device) { Mode::Launch } else { mode },
            implementation: Implementation::Native,
            resident: false,
            layout: self.options.layout,
            transfer: self.options.transfer.unwrap_or_default(),
            functions: &self.functions,
            packets: feed.packets,
            bins: ROWS * (feed.batch.div_ceil(feed.bin_packets) + 4),
            bin_packets: feed.bin_packets,
            in_flight: feed.in_flight,
            share: &[],
            chain: variant.chain.clone(),
        };
        let mut job = |random: &mut Random| {
            let row = u8::from(random.below(100) < variant.second_class);
            match variant.first {
                DECRYPT => Job { row, ..self.associations.any(random) },
                first => Job { row, ..Job::plain(first as u16, self.functions[first].properties().variant) },
            }
        };
        let frame = frames::filled(|random, payload| patterns::plant(&self.patterns, random, payload));
        let mut flows = Flow::for_threads(&config, threads, size, &frame, &mut job)?;
        flows.iter_mut().for_each(|flow| flow.prepare_by_length(feed.batch, feed.bin_packets));
        Ok(flows)
    }

    /// Measures several devices. Each packet stays on one device for the whole chain.
    fn on_several(
        &self,
        variant: &Variant,
        size: Size,
        links: &Links,
        progress: &mut Progress<'_>,
    ) -> Result<Vec<Row>, Error> {
        let make = |device: &str, feed: &Feed| {
            // On the CPU, returning chunks to the host after each function costs nothing.
            let by = if is_synchronous(device) { By::Host } else { By::Device };
            let chain = variant.chain.clone().map(|chain| Chain { by, ..chain });
            let flow = self.flow(device, feed, &Variant { chain, ..*variant }, size)?;
            if by == By::Device && variant.chain.is_some() && !flow.device.runs_chain() {
                return Err(Error::Setup(format!("{device} does not support chains")));
            }
            Ok(flow)
        };
        let load = Load { name: Some(variant.name), size, frames: true, make: &make };
        several::rows(&load, self.options, links, progress)
    }

    /// Measures a variant on the device. If the device does not support the mode, reports this and
    /// returns `None`.
    fn on_device(
        &self,
        variant: &Variant,
        size: Size,
        mode: Mode,
        link: Option<f64>,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Row>, Error> {
        let device = self.options.device();
        let mut feed = Feed::new(self.options, size);
        if mode == Mode::Persistent {
            // Persistent groups are made for many small chunks.
            feed.batch = self.options.batch.unwrap_or(256).min(feed.packets);
            feed.in_flight = self.options.in_flight.unwrap_or(16);
        }
        let mut flow = self.flows(device, mode, &feed, variant, size, 1)?.remove(0);
        if self.options.mode.is_none() && flow.device.mode() != mode {
            let why = flow.device.fallback().unwrap_or("it has no other mode");
            progress(&format!("{device} does not run in mode {}: {why}", mode.name()));
            return Ok(None);
        }
        if variant.chain.as_ref().is_some_and(|chain| chain.by == By::Device) && !flow.device.runs_chain() {
            return Err(Error::Setup(format!("{device} does not support chains")));
        }
        let (verified, _) = flow.verify_frames(variant.name != "chain, verdict only")?;
        progress(&format!("{} at {size} on {device}: {verified} packets compared with ref", variant.name));
        let watch = PowerWatch::start(device);
        let mut passes = flow.measure(self.options.common.time)?;
        let watts = watch.stop();
        let mpps = passes.mpps();
        let (p50, p99) = median_p99(&mut passes.latencies_ns);
        let gbps = mpps * flow.frame_bytes() * 8.0 / 1e3;
        let details = Details::default().with("in_flight", feed.in_flight).with("verified", verified);
        Ok(Some(Row {
            device: device.to_owned(),
            implementation: variant.name.to_owned(),
            mode: flow.device.mode().name().to_owned(),
            size: Some(size),
            batch: feed.batch,
            mpps,
            gbps,
            p50_us: p50 / 1e3,
            p99_us: p99 / 1e3,
            watts,
            details: details.and(efficiency(gbps, 1, watts)).and(moved(mpps, passes.moved_per_packet(), link)),
            ..Row::default()
        }))
    }

    /// Returns the requested number of cores, or all.
    fn cores(&self) -> usize {
        self.options.workers.first().copied().unwrap_or_else(cores::count)
    }

    /// Measures decryption on the device and the other functions on the cores. All cores feed the
    /// device.
    fn on_device_and_cores(&self, size: Size, mode: Mode, progress: &mut Progress<'_>) -> Result<Row, Error> {
        let (device, cores) = (self.options.device(), self.cores());
        let mut feed = Feed::new(self.options, size);
        feed.packets = (feed.packets / cores).max(1);
        // Every thread needs enough chunks for its chunks in flight.
        feed.batch = feed.batch.min((feed.packets / (2 * feed.in_flight)).max(1));
        let chain = Some(Chain { hops: hops(true, false), by: By::HostOnCpu });
        let variant = Variant { name: "chain, ipsec on device", first: DECRYPT, chain, second_class: 0 };
        let mut flows = self.flows(device, mode, &feed, &variant, size, cores)?;
        let verified = several::on_threads(flows.iter_mut().collect(), Flow::verify)?[0].0;
        progress(&format!(
            "{} at {size} on {device}: {verified} packets of each thread compared with ref",
            variant.name
        ));
        let watch = PowerWatch::start(device);
        let measured = several::at_once(&mut flows, &vec![vec![usize::MAX]; cores], None, self.options.common.time);
        let watts = watch.stop();
        let mut passes = measured?.0;
        let mpps: f64 = passes.iter_mut().map(Passes::mpps).sum();
        let mut latencies_ns: Vec<f64> = passes.iter().flat_map(|passes| passes.latencies_ns.clone()).collect();
        let (p50, p99) = median_p99(&mut latencies_ns);
        let gbps = mpps * flows[0].frame_bytes() * 8.0 / 1e3;
        Ok(Row {
            device: format!("{device}+cpu"),
            implementation: variant.name.to_owned(),
            mode: flows[0].device.mode().name().to_owned(),
            size: Some(size),
            batch: feed.batch,
            mpps,
            gbps,
            p50_us: p50 / 1e3,
            p99_us: p99 / 1e3,
            watts,
            details: efficiency(gbps, cores, watts).with("in_flight", feed.in_flight).with("verified", verified),
            ..Row::default()
        })
    }

    /// Measures the cores alone.
    fn on_cpu(&self, size: Size, progress: &mut Progress<'_>) -> Result<Row, Error> {
        let cores = self.cores();
        let packets = self.options.packets.unwrap_or(1 << 14).min(1 << 14);
        let feed = Feed { batch: 256.min(packets), bin_packets: 256, in_flight: 1, packets };
        let chain = Some(Chain { hops: hops(true, false), by: By::Host });
        let variant = Variant { name: "chain", first: DECRYPT, chain, second_class: 0 };
        let ready = Barrier::new(cores + 1);
        let (measured, watts) = std::thread::scope(|scope| {
            let one = || -> Result<(f64, f64, usize), Error> {
                let made =
                    self.flow(LAST_RESORT, &feed, &variant, size).and_then(|mut flow| Ok((flow.verify()?.0, flow)));
                ready.wait();
                let (verified, mut flow) = made?;
                Ok((flow.measure(self.options.common.time)?.mpps(), flow.frame_bytes(), verified))
            };
            let threads: Vec<_> = (0..cores).map(|_| scope.spawn(one)).collect();
            ready.wait();
            let watch = PowerWatch::start(LAST_RESORT);
            let joined = threads.into_iter().map(|thread| thread.join());
            let joined: Vec<_> = joined
                .map(|result| result.unwrap_or_else(|_| Err(Error::Setup("a thread panicked".to_owned()))))
                .collect();
            (joined, watch.stop())
        });
        let measured = measured.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mpps = measured.iter().map(|(mpps, ..)| mpps).sum::<f64>();
        let gbps: f64 = measured.iter().map(|(mpps, bytes, _)| mpps * bytes * 8.0 / 1e3).sum();
        progress(&format!("chain at {size} on {cores} cores: {} packets compared with ref on each", measured[0].2));
        Ok(Row {
            device: LAST_RESORT.to_owned(),
            implementation: "chain".to_owned(),
            mode: "launch".to_owned(),
            size: Some(size),
            batch: feed.batch,
            mpps,
            gbps,
            watts,
            details: efficiency(gbps, cores, watts).with("arena_packets", packets).with("verified", measured[0].2),
            ..Row::default()
        })
    }
}

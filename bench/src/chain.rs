//! ESP decryption, 10,000 patterns and the route, one after the other, arena to arena (Hummingbird, figures 3, 6, 7 and 8).
//!
//! | row | what happens |
//! |---|---|
//! | `esp` | decryption alone: what the chain is compared with |
//! | `chain` | the device leads packets from function to function; they cross its link once each way |
//! | `chain, a trip for each` | chunks come back after each function and are submitted anew |
//! | `chain, ipsec on device` | decryption on the device, patterns and route on the cores that feed it |
//! | `chain, verdict only` | nobody needs the packets: only what was said of them comes back |
//! | `dynamic 50/50`, `93/7` | so many packets go through all three, the others past the patterns; by class |
//! | `dynamic by verdict` | packets with a pattern go to a second inspection on the way |
//! | `chain` on `cpu` | all cores, each with packets of its own |
//!
//! Of every row packets are compared with what `ref` makes of them, function after function.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use godwit_device::{DeviceChain, Implementation, Mode, cpu};
use godwit_function::Function;

use crate::flow::{By, Chain, Flow, Job, Site};
use crate::frames::{self, Random};
use crate::function;
use crate::passes::Passes;
use crate::power::PowerWatch;
use crate::several::{self, Links, Load};
use crate::suites::Associations;
use crate::throughput::{Feed, link, moved_note};
use crate::{BenchOptions, Error, Progress, Row, Size, median_p99};

/// Frame sizes before encryption, where the user names none.
const SIZES: [Size; 4] = [Size::Bytes(60), Size::Bytes(512), Size::Bytes(1408), Size::Imix];
/// Ways that are measured on several devices at once.
const SEVERAL: [&str; 2] = ["esp", "chain"];
/// What gets every packet on.
const ROUTES: &str = "[[next_hop]]\nname = \"there\"\nport = \"out\"\ndestination_mac = \"02:00:00:00:00:07\"\n\
                      source_mac = \"02:00:00:00:00:08\"\n[[route]]\nprefix = \"0.0.0.0/0\"\nnext_hop = \"there\"\n";

// Places of the functions.
const OPEN: usize = 0;
const INSPECT: usize = 1;
const ROUTE: usize = 2;
const AGAIN: usize = 3;
/// Most verdicts of any of them.
const VERDICTS: usize = 4;
/// Classes: all three functions; past the patterns.
const ROWS: usize = 2;

/// One way to run the chain.
struct Way {
    name: &'static str,
    chain: Option<Chain>,
    /// Of 100 packets those of the second class.
    second_class: u32,
}

/// The bench `chain`.
pub(crate) fn run(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let associations = Associations::new(&[options.suite.as_deref().unwrap_or("cbc128_sha1")], 4096, true)?;
    let patterns = function::patterns();
    let inspection = function::inspection(&patterns, progress)?;
    let route = function::build("ipv4", ROUTES)?;
    let functions: Vec<Arc<dyn Function>> = vec![
        function::many_sas(&associations, 1)?,
        Arc::clone(&inspection),
        route,
        // The same image twice on a device, as two configured functions have it.
        inspection,
    ];
    let bench = ChainBench { options, associations: &associations, patterns: &patterns, functions: &functions };
    let sizes = if options.sizes.is_empty() { &SIZES[..] } else { &options.sizes };
    let device = options.device();
    let mut rows = Vec::new();
    if options.devices().len() > 1 {
        let links = several::links(options, progress);
        for &size in sizes {
            for way in ways().iter().filter(|way| SEVERAL.contains(&way.name)) {
                rows.extend(bench.on_several(way, size, &links, progress)?);
            }
        }
        return Ok(rows);
    }
    let link = link(device, options.time.min(Duration::from_millis(200)) / 4, progress);
    for &size in sizes {
        if device != cpu::ID {
            let mode = options.mode.unwrap_or(Mode::Launch);
            for way in ways() {
                rows.extend(bench.on_device(&way, size, mode, link, progress)?);
            }
            // Groups that stay, beside launches.
            if options.mode.is_none() {
                for way in ways().iter().filter(|way| SEVERAL.contains(&way.name)) {
                    rows.extend(bench.on_device(way, size, Mode::Persistent, link, progress)?);
                }
            }
            rows.push(bench.on_device_and_cores(size, mode, progress)?);
        }
        rows.push(bench.on_cpu(size, progress)?);
    }
    Ok(rows)
}

/// What a row is by core and by watt (figure 8).
fn per(gbps: f64, cores: usize, watts: Option<f64>) -> String {
    let by_watt =
        watts.map_or("per watt not measured".to_owned(), |watts| format!("{:.3} Gbps per watt", gbps / watts));
    format!("; {:.2} Gbps per core of {cores}, {by_watt}", gbps / cores as f64)
}

/// Where packets go; `needed`: what comes back of them.
fn hops(needed: bool, second_inspection: bool) -> Arc<DeviceChain> {
    let mut hops = DeviceChain::new(4, ROWS, VERDICTS);
    let opened = godwit_function::ipsec::VERDICT_DECRYPTED.into();
    hops.connect(OPEN, 0, opened, INSPECT, 2);
    hops.connect(OPEN, 1, opened, ROUTE, 4);
    for row in 0..ROWS {
        // Clean, and match.
        hops.connect(INSPECT, row, 0, ROUTE, 4);
        let behind = if second_inspection { (AGAIN, 3) } else { (ROUTE, 4) };
        hops.connect(INSPECT, row, 1, behind.0, behind.1);
        hops.connect(AGAIN, row, 0, ROUTE, 4);
        hops.connect(AGAIN, row, 1, ROUTE, 4);
    }
    if !needed {
        (0..4).for_each(|function| hops.skip_copy_back(function));
    }
    Arc::new(hops)
}

fn ways() -> Vec<Way> {
    let chain = |hops, by| Some(Chain { hops, by });
    let static_chain = || hops(true, false);
    vec![
        Way { name: "esp", chain: None, second_class: 0 },
        Way { name: "chain", chain: chain(static_chain(), By::Device), second_class: 0 },
        Way { name: "chain, a trip for each", chain: chain(static_chain(), By::Host), second_class: 0 },
        Way { name: "chain, verdict only", chain: chain(hops(false, false), By::Device), second_class: 0 },
        Way { name: "dynamic 50/50", chain: chain(static_chain(), By::Device), second_class: 50 },
        Way { name: "dynamic 93/7", chain: chain(static_chain(), By::Device), second_class: 7 },
        Way { name: "dynamic by verdict", chain: chain(hops(true, true), By::Device), second_class: 0 },
    ]
}

struct ChainBench<'a> {
    options: &'a BenchOptions,
    associations: &'a Associations,
    patterns: &'a [String],
    functions: &'a [Arc<dyn Function>],
}

impl ChainBench<'_> {
    fn flow(&self, device: &str, feed: &Feed, way: &Way, size: Size) -> Result<Flow, Error> {
        let mode = self.options.mode.unwrap_or(Mode::Launch);
        Ok(self.flows(device, mode, feed, way, size, 1)?.remove(0))
    }

    /// One for each thread that feeds the device.
    fn flows(
        &self,
        device: &str,
        mode: Mode,
        feed: &Feed,
        way: &Way,
        size: Size,
        threads: usize,
    ) -> Result<Vec<Flow>, Error> {
        let site = Site {
            device,
            mode: if device == cpu::ID { Mode::Launch } else { mode },
            implementation: Implementation::Native,
            resident: false,
            layout: self.options.layout,
            transfer: self.options.transfer.unwrap_or_default(),
            functions: self.functions,
            packets: feed.packets,
            bins: ROWS * (feed.batch.div_ceil(feed.bin_packets) + 4),
            bin_packets: feed.bin_packets,
            in_flight: feed.in_flight,
            share: &[],
            chain: way.chain.clone(),
        };
        let mut job = |random: &mut Random| {
            let row = u8::from(random.below(100) < way.second_class);
            Job { row, ..self.associations.any(random) }
        };
        let frame = frames::filled(|random, payload| function::plant(self.patterns, random, payload));
        let mut flows = Flow::for_threads(&site, threads, size, &frame, &mut job)?;
        flows.iter_mut().for_each(|flow| flow.prepare_by_length(feed.batch, feed.bin_packets));
        Ok(flows)
    }

    /// Several devices, each with packets of its own that stay on it for all of the chain.
    fn on_several(&self, way: &Way, size: Size, links: &Links, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
        let make = |device: &str, feed: &Feed| {
            // What the CPU follows is a trip for each function, which costs it nothing.
            let by = if device == cpu::ID { By::Host } else { By::Device };
            let chain = way.chain.clone().map(|chain| Chain { by, ..chain });
            let flow = self.flow(device, feed, &Way { chain, ..*way }, size)?;
            if by == By::Device && way.chain.is_some() && !flow.device.runs_chain() {
                return Err(Error::Setup(format!("{device} does not follow chains")));
            }
            Ok(flow)
        };
        let load = Load { bench: "chain", name: Some(way.name), size, frames: true, make: &make };
        several::rows(&load, self.options, links, progress)
    }

    /// `None`, and why, where the device does not run in this mode.
    fn on_device(
        &self,
        way: &Way,
        size: Size,
        mode: Mode,
        link: Option<f64>,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Row>, Error> {
        let device = self.options.device();
        let mut feed = Feed::new(self.options, size);
        if mode == Mode::Persistent {
            // Small chunks, and more of them: what groups that stay are for.
            feed.batch = self.options.batch.unwrap_or(256).min(feed.packets);
            feed.in_flight = self.options.in_flight.unwrap_or(16);
        }
        let mut flow = self.flows(device, mode, &feed, way, size, 1)?.remove(0);
        if self.options.mode.is_none() && flow.device.mode() != mode {
            let why = flow.device.fallback().unwrap_or("it has no other mode");
            progress(&format!("{device} does not run in mode {}: {why}", mode.name()));
            return Ok(None);
        }
        if way.chain.as_ref().is_some_and(|chain| chain.by == By::Device) && !flow.device.runs_chain() {
            return Err(Error::Setup(format!("{device} does not follow chains")));
        }
        let (verified, _) = flow.verify_frames(way.name != "chain, verdict only")?;
        progress(&format!("{} at {size} on {device}: {verified} packets compared with ref", way.name));
        let watch = PowerWatch::start(device);
        let mut passes = flow.measure(self.options.time)?;
        let watts = watch.stop();
        let mpps = passes.mpps();
        let (p50, p99) = median_p99(&mut passes.latencies_ns);
        let gbps = mpps * flow.frame_bytes() * 8.0 / 1e3;
        let note = format!("{} in flight, {verified} compared with ref", feed.in_flight) + &per(gbps, 1, watts);
        Ok(Some(Row {
            bench: "chain".to_owned(),
            device: device.to_owned(),
            implementation: way.name.to_owned(),
            mode: flow.device.mode().name(),
            size: Some(size),
            batch: feed.batch,
            mpps,
            gbps,
            p50_us: p50 / 1e3,
            p99_us: p99 / 1e3,
            watts,
            peer: false,
            note: note + &moved_note(device, mpps, passes.moved_per_packet(), link),
        }))
    }

    /// All cores, or as many as asked for.
    fn cores(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.options.workers.first().copied().unwrap_or(cores)
    }

    /// Decryption on the device, which all cores feed, and what is behind it on the cores.
    fn on_device_and_cores(&self, size: Size, mode: Mode, progress: &mut Progress<'_>) -> Result<Row, Error> {
        let (device, cores) = (self.options.device(), self.cores());
        let mut feed = Feed::new(self.options, size);
        feed.packets = (feed.packets / cores).max(1);
        // Enough chunks for every thread to keep as many in flight as asked for.
        feed.batch = feed.batch.min((feed.packets / (2 * feed.in_flight)).max(1));
        let chain = Some(Chain { hops: hops(true, false), by: By::HostOnCpu });
        let way = Way { name: "chain, ipsec on device", chain, second_class: 0 };
        let mut flows = self.flows(device, mode, &feed, &way, size, cores)?;
        let verified = several::on_threads(flows.iter_mut().collect(), Flow::verify)?[0].0;
        progress(&format!("{} at {size} on {device}: {verified} packets of each thread compared with ref", way.name));
        let watch = PowerWatch::start(device);
        let measured = several::at_once(&mut flows, &vec![vec![usize::MAX]; cores], None, self.options.time);
        let watts = watch.stop();
        let mut passes = measured?.0;
        let mpps: f64 = passes.iter_mut().map(Passes::mpps).sum();
        let mut latencies_ns: Vec<f64> = passes.iter().flat_map(|passes| passes.latencies_ns.clone()).collect();
        let (p50, p99) = median_p99(&mut latencies_ns);
        let gbps = mpps * flows[0].frame_bytes() * 8.0 / 1e3;
        Ok(Row {
            bench: "chain".to_owned(),
            device: format!("{device}+cpu"),
            implementation: way.name.to_owned(),
            mode: flows[0].device.mode().name(),
            size: Some(size),
            batch: feed.batch,
            mpps,
            gbps,
            p50_us: p50 / 1e3,
            p99_us: p99 / 1e3,
            watts,
            peer: false,
            note: format!(
                "{cores} cores, each with a lane, {} in flight; watts are the device's{}",
                feed.in_flight,
                per(gbps, cores, watts)
            ),
        })
    }

    /// The cores alone.
    fn on_cpu(&self, size: Size, progress: &mut Progress<'_>) -> Result<Row, Error> {
        let cores = self.cores();
        let packets = self.options.packets.unwrap_or(1 << 14).min(1 << 14);
        let feed = Feed { batch: 256.min(packets), bin_packets: 256, in_flight: 1, packets };
        let way = Way { name: "chain", chain: Some(Chain { hops: hops(true, false), by: By::Host }), second_class: 0 };
        let ready = Barrier::new(cores + 1);
        let (measured, watts) = std::thread::scope(|scope| {
            let one = || -> Result<(f64, f64, usize), Error> {
                let made = self.flow(cpu::ID, &feed, &way, size).and_then(|mut flow| Ok((flow.verify()?.0, flow)));
                ready.wait();
                let (verified, mut flow) = made?;
                Ok((flow.measure(self.options.time)?.mpps(), flow.frame_bytes(), verified))
            };
            let threads: Vec<_> = (0..cores).map(|_| scope.spawn(one)).collect();
            ready.wait();
            let watch = PowerWatch::start(cpu::ID);
            let joined = threads.into_iter().map(|thread| thread.join());
            let joined: Vec<_> =
                joined.map(|said| said.unwrap_or_else(|_| Err(Error::Setup("a thread panicked".to_owned())))).collect();
            (joined, watch.stop())
        });
        let measured = measured.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mpps = measured.iter().map(|(mpps, ..)| mpps).sum::<f64>();
        let gbps: f64 = measured.iter().map(|(mpps, bytes, _)| mpps * bytes * 8.0 / 1e3).sum();
        progress(&format!("chain at {size} on {cores} cores: {} packets compared with ref on each", measured[0].2));
        Ok(Row {
            bench: "chain".to_owned(),
            device: cpu::ID.to_owned(),
            implementation: "chain".to_owned(),
            mode: "launch",
            size: Some(size),
            batch: feed.batch,
            mpps,
            gbps,
            p50_us: 0.0,
            p99_us: 0.0,
            watts,
            peer: false,
            note: format!("{cores} cores, each {packets} packets of its own, over and over{}", per(gbps, cores, watts)),
        })
    }
}

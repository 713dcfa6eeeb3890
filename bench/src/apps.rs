//! Whole functions in the engine, port to port: G-Opt's figures 10 to 12.
//!
//! An application is a row of [`cases::apps`]: a function, and frames that its table knows. Before a figure is
//! taken, the frames of one turn go through the same configuration, and a digest of what left is compared with `ref`'s.

mod cases;
mod patterns;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use godwit_device::{cpu, has_own_memory};
use godwit_engine::config::{Config, PortKind};
use godwit_engine::{Conservation, Engine, Options, Report};

pub(crate) use patterns::patterns;

use cases::{Ask, Case, apps};

use crate::lookups::Extent;
use crate::traffic::Traffic;
use crate::{BenchOptions, Error, Progress, Row, Size, median_p99};

/// Frames of a turn: so many that a table's lines that one turn wants have left the caches when the next comes.
const FRAMES: usize = 1 << 20;
/// Packets that are compared with `ref`.
const VERIFIED_PACKETS: u64 = 4096;
/// Rounds of each figure.
const ROUNDS: usize = 3;

/// How packets are put together for the function.
#[derive(Clone, Copy, Debug)]
struct Packing {
    burst: usize,
    bin: usize,
    chunk: usize,
    bins: usize,
    grouping: &'static str,
    length_granularity: u16,
    deadline_ns: u64,
    sort: bool,
}

/// As in the bench `engine`.
const BURSTS: Packing = Packing {
    burst: 256,
    bin: 256,
    chunk: 256,
    bins: 64,
    grouping: "none",
    length_granularity: 64,
    deadline_ns: 100_000,
    sort: false,
};

/// A configuration of the engine around one application.
#[derive(Clone, Copy)]
struct Setup<'a> {
    case: &'a Case,
    device: &'a str,
    implementation: &'a str,
    workers: usize,
    packing: Packing,
}

impl Setup<'_> {
    fn configuration(&self) -> String {
        let Self { case, device, implementation, workers, packing } = *self;
        let Packing { burst, bin, chunk, bins, grouping, length_granularity, deadline_ns, sort } = packing;
        let longest = case.frames.bytes_max().max(60);
        // A device is fed in chunks of its own size.
        let (packing, in_flight) = if device == cpu::ID {
            let keys = format!(
                "[packing]\nchunk_packets = {chunk}\nbin_packets = {bin}\nbins = {bins}\ngrouping = \"{grouping}\"\n\
                 length_granularity_bytes = {length_granularity}\ndeadline_ns = {deadline_ns}\nsort = {sort}"
            );
            (keys, (4 * chunk).next_power_of_two())
        } else {
            (format!("[[device]]\nname = \"{device}\""), if has_own_memory(device) { 65_536 } else { 8192 })
        };
        let far = if case.far { "[[port]]\nname = \"far\"\nkind = \"synthetic\"\n" } else { "" };
        let mut text = format!(
            r#"
            [engine]
            workers = {workers}
            burst_packets = {burst}
            in_flight_packets = {in_flight}
            [arena]
            frame_bytes_max = {longest}
            {packing}
            [[port]]
            name = "out"
            kind = "synthetic"
            {far}
            [[chain]]
            from = "out"
            to = "{first}"
            "#,
            first = case.functions[0].name,
        );
        for (port, function) in case.class_ports.iter().zip(&case.functions) {
            let name = &function.name;
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "[[class]]\nname = \"{name}\"\ndestination_ports = {port}\n\
                 [[chain]]\nfrom = \"out\"\nclass = \"{name}\"\nto = \"{name}\""
            );
        }
        for function in &case.functions {
            let (name, kind, keys) = (&function.name, function.kind, function.keys());
            for (verdict, to) in case.exits {
                let verdict = if verdict.is_empty() { String::new() } else { format!("verdict = \"{verdict}\"\n") };
                let _ = writeln!(text, "[[chain]]\nfrom = \"{name}\"\n{verdict}to = \"{to}\"");
            }
            let _ = writeln!(
                text,
                "[[function]]\nname = \"{name}\"\nkind = \"{kind}\"\nimpl = \"{implementation}\"\n\
                 device = \"{device}\"\n{keys}"
            );
        }
        text
    }

    fn run(&self, traffic: Traffic, time: Option<Duration>) -> Result<Report, Error> {
        let mut config = Config::parse(&self.configuration(), "bench apps", Path::new(".")).map_err(Error::setup)?;
        let who = || format!("{} on {} by {}", self.case.kind(), self.device, self.implementation);
        for (configured, built) in config.functions.iter_mut().zip(&self.case.functions) {
            configured.function = Arc::clone(&built.function);
        }
        for port in &mut config.ports {
            port.kind = PortKind::Live("frames", Arc::new(traffic.clone()));
        }
        let engine = Engine::new(config, &Options::default()).map_err(Error::setup)?;
        let stop = Arc::new(AtomicBool::new(false));
        let report = engine.run(&stop, time, &mut |_| {}).map_err(Error::setup)?;
        let conservation = report.conservation;
        if !conservation.holds() || conservation.in_flight > 0 {
            return Err(Error::Wrong { who: who(), what: conservation.to_string() });
        }
        match report.lost_devices.first() {
            Some(lost) => Err(Error::Setup(format!("device {} was lost: {}", lost.device, lost.reason))),
            None => Ok(report),
        }
    }

    /// Runs for the time of a figure; where little is asked for, for a few packets, however long that takes on a busy machine.
    fn measure(&self, traffic: Traffic, ask: &Ask, options: &BenchOptions) -> Result<Report, Error> {
        if ask.extent.little {
            return self.run(Traffic { packets: Some(VERIFIED_PACKETS), ..traffic }, None);
        }
        self.run(traffic, Some(options.time))
    }

    /// A digest of what leaves for the first packets, with how many were sent and dropped, and what was said of them.
    fn digest(&self) -> Result<Proof, Error> {
        let traffic = Traffic { packets: Some(VERIFIED_PACKETS), ..Traffic::new(&self.case.frames) };
        let report = self.run(traffic.clone(), None)?;
        let verdicts = report.functions.iter().flat_map(|function| function.verdicts.clone()).collect();
        let Conservation { received, sent, dropped, .. } = report.conservation;
        if received != VERIFIED_PACKETS || sent == 0 {
            let what = format!("of {received} packets {sent} left");
            return Err(Error::Wrong { who: self.case.kind().to_owned(), what });
        }
        Ok(Proof { digest: traffic.digest.load(Ordering::Relaxed), sent, dropped, verdicts })
    }

    /// Compares with what `ref` makes of the same packets.
    fn verify(&self, expected: &Proof) -> Result<(), Error> {
        let found = self.digest()?;
        if found == *expected {
            return Ok(());
        }
        let who = format!("{} on {} by {}", self.case.kind(), self.device, self.implementation);
        Err(Error::Wrong { who, what: format!("{found:?} instead of ref's {expected:?}") })
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Proof {
    digest: u64,
    sent: u64,
    dropped: u64,
    verdicts: Vec<(String, u64)>,
}

fn proof(case: &Case) -> Result<Proof, Error> {
    Setup { case, device: cpu::ID, implementation: "ref", workers: 1, packing: BURSTS }.digest()
}

/// What is measured of an application: an implementation on a device.
#[derive(Clone, Debug)]
struct Place {
    device: String,
    implementation: String,
}

/// On the CPU by every implementation asked for, and on every other device here, or those of them that are asked for.
fn places(options: &BenchOptions) -> Vec<Place> {
    let mut places = Vec::new();
    let asked = |id: &str| options.device.is_none() || options.devices().contains(&id);
    if asked(cpu::ID) {
        let known = ["scalar", "gopt"].iter().filter(|name| known(name)).map(|name| (*name).to_owned());
        let implementations = options.implementation.clone().map_or_else(|| known.collect(), |name| vec![name]);
        let place = |implementation| Place { device: cpu::ID.to_owned(), implementation };
        places.extend(implementations.into_iter().map(place));
    }
    let probes = [godwit_device::opencl::probe(), godwit_device::cuda::probe()];
    let found = probes.into_iter().flat_map(|probe| probe.found).filter(|found| found.usable.is_ok());
    let others = found.map(|found| found.capabilities.id);
    let place = |device| Place { device, implementation: "scalar".to_owned() };
    places.extend(others.filter(|id| asked(id)).map(place));
    places
}

fn known(implementation: &str) -> bool {
    godwit_device::Implementation::ALL.iter().any(|known| known.name() == implementation)
}

fn mpps(report: &Report) -> f64 {
    report.conservation.received as f64 / report.elapsed_s / 1e6
}

/// How many workers, one after the other: 1, 2, 4 and so on, and all cores.
fn workers(options: &BenchOptions) -> Vec<usize> {
    if !options.workers.is_empty() {
        return options.workers.clone();
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&count| count < cores).collect();
    counts.push(cores);
    counts
}

fn ask(options: &BenchOptions) -> Ask {
    let extent = Extent::asked(options);
    let frames = options.packets.unwrap_or(if extent.little { VERIFIED_PACKETS as usize } else { FRAMES });
    let size = options.sizes.first().copied().unwrap_or(Size::Bytes(60));
    Ask { frames, size, extent }
}

/// The bench `apps`: figure 10.
pub(crate) fn run(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for app in apps(&options.apps)? {
        let ask = ask(options);
        let case = (app.make)(&ask)?;
        let expected = proof(&case)?;
        for workers in workers(options) {
            let places = places(options);
            let mut reports: Vec<Vec<Report>> = vec![Vec::new(); places.len()];
            for round in 0..if ask.extent.little { 1 } else { ROUNDS } {
                for (Place { device, implementation }, reports) in places.iter().zip(&mut reports) {
                    let setup = Setup { case: &case, device, implementation, workers, packing: BURSTS };
                    if round == 0 {
                        setup.verify(&expected)?;
                    }
                    reports.push(setup.measure(Traffic::new(&case.frames), &ask, options)?);
                }
            }
            let mut scalar = None;
            for (Place { device, .. }, reports) in places.iter().zip(&mut reports) {
                let mut row = row("apps", &case, device, ask.size, BURSTS, reports);
                let ratio = row.mpps / *scalar.get_or_insert(row.mpps);
                row.implementation = format!("{} {}", app.name, row.implementation);
                row.note = format!("{workers} workers; {ratio:.2} x the first row of these; {}", row.note);
                progress(&format!("{} on {device}, {workers} workers: {:.2} Mpps", row.implementation, row.mpps));
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

fn row(bench: &str, case: &Case, device: &str, size: Size, packing: Packing, reports: &mut [Report]) -> Row {
    let mut rates: Vec<f64> = reports.iter().map(mpps).collect();
    let (median, _) = median_p99(&mut rates);
    reports.sort_by(|a, b| mpps(a).total_cmp(&mpps(b)));
    let report = &reports[reports.len() / 2];
    let latency = report.latency.unwrap_or_default();
    let functions = &report.functions;
    let kernel_ns: f64 = functions.iter().map(|one| one.busy_ns_per_packet * one.packets as f64).sum();
    let packets: u64 = functions.iter().map(|one| one.packets).sum();
    let table_bytes: usize = case.functions.iter().map(|one| one.function.image().len()).sum();
    let dropped = 100.0 * report.conservation.dropped as f64 / report.conservation.received.max(1) as f64;
    Row {
        bench: bench.to_owned(),
        device: device.to_owned(),
        implementation: functions[0].implementation.clone(),
        mode: "engine",
        size: Some(size),
        batch: packing.chunk,
        mpps: median,
        gbps: median * case.frames.bytes_mean() * 8.0 / 1e3,
        p50_us: latency.p50_ns as f64 / 1e3,
        p99_us: latency.p99_ns as f64 / 1e3,
        watts: report.power.iter().find(|power| power.device == device).and_then(|power| power.watts),
        peer: false,
        note: format!(
            "{:.2} to {:.2} Mpps in {} rounds; {:.1} ns a packet in the kernel; {dropped:.1} % dropped; tables of {:.1} MiB",
            rates.first().copied().unwrap_or(0.0),
            rates.last().copied().unwrap_or(0.0),
            rates.len(),
            kernel_ns / packets.max(1) as f64,
            table_bytes as f64 / f64::from(1 << 20)
        ),
    }
}

/// Shares of what the slowest can take that are offered in `lookup-latency`.
const LOADS: [f64; 8] = [0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.25, 1.5];

/// The bench `lookup-latency`: figure 11, from when a packet was due until it left.
pub(crate) fn lookup_latency(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let workers = options.workers.first().copied().unwrap_or(1);
    for app in apps(&options.apps)? {
        let ask = ask(options);
        let case = (app.make)(&ask)?;
        let expected = proof(&case)?;
        let places: Vec<Place> = places(options);
        let mut most = f64::INFINITY;
        for Place { device, implementation } in &places {
            let setup = Setup { case: &case, device, implementation, workers, packing: BURSTS };
            setup.verify(&expected)?;
            let report = setup.measure(Traffic::new(&case.frames), &ask, options)?;
            progress(&format!("{} by {implementation} on {device}: at most {:.2} Mpps", app.name, mpps(&report)));
            if device == cpu::ID {
                most = most.min(mpps(&report));
            }
        }
        if !most.is_finite() {
            most = 1.0;
        }
        let loads = if ask.extent.little { &LOADS[..1] } else { &LOADS };
        for load in loads {
            let offered = load * most;
            for Place { device, implementation } in &places {
                let setup = Setup { case: &case, device, implementation, workers, packing: BURSTS };
                let traffic = Traffic { rate: Some(offered * 1e6), ..Traffic::new(&case.frames) };
                let report = setup.measure(traffic.clone(), &ask, options)?;
                let missed: u64 = report.ports[0].passed_over.iter().map(|(_, count)| count).sum();
                let missed = 100.0 * missed as f64 / (missed + report.conservation.received).max(1) as f64;
                let mut row = row("lookup-latency", &case, device, ask.size, BURSTS, &mut [report]);
                row.implementation = format!("{} {}", app.name, row.implementation);
                let latency = |share| traffic.latencies.ns(share).map_or(0.0, |time_ns| time_ns / 1e3);
                (row.p50_us, row.p99_us) = (latency(0.5), latency(0.99));
                row.note = format!("{offered:.2} Mpps offered, {missed:.2} % missed; {}", row.note);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

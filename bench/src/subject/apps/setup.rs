//! Configures and runs the engine around a function, and compares the results with `ref`.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use godwit_device::{LAST_RESORT, has_own_memory, is_synchronous};
use godwit_engine::config::{Config, PortKind};
use godwit_engine::{Conservation, Engine, Options, Report};

use super::cases::{Case, Request};
use crate::error::Error;
use crate::load::lookups::Extent;
use crate::load::size::Size;
use crate::load::traffic::Traffic;
use crate::run::cores;
use crate::run::devices;
use crate::run::options::{Common, Context, PACKETS, WORKERS};
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};

/// Number of different frames. When a frame repeats, the caches no longer contain the table lines
/// that it needs.
const FRAMES: usize = 1 << 20;
/// Packets that are compared with `ref`.
pub(super) const VERIFIED_PACKETS: u64 = 4096;
/// Rounds of each figure.
pub(super) const ROUNDS: usize = 3;

/// Settings of the packer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packing {
    pub(super) burst: usize,
    pub(super) bin: usize,
    pub(super) chunk: usize,
    pub(super) bins: usize,
    pub(super) grouping: &'static str,
    pub(super) length_granularity: u16,
    pub(super) deadline_ns: u64,
    pub(super) sort: bool,
}

/// Bursts that become one bin each, as in `subject/engine.rs`.
pub(super) const BURSTS: Packing = Packing {
    burst: 256,
    bin: 256,
    chunk: 256,
    bins: 64,
    grouping: "none",
    length_granularity: 64,
    deadline_ns: 100_000,
    sort: false,
};

/// A configuration of the engine around a function.
#[derive(Clone, Copy)]
pub(super) struct Setup<'a> {
    pub(super) case: &'a Case,
    pub(super) device: &'a str,
    pub(super) implementation: &'a str,
    pub(super) workers: usize,
    pub(super) packing: Packing,
}

impl Setup<'_> {
    fn configuration(&self) -> String {
        let Self { case, device, implementation, workers, packing } = *self;
        let Packing { burst, bin, chunk, bins, grouping, length_granularity, deadline_ns, sort } = packing;
        let longest = case.frames.bytes_max().max(60);
        // Other devices use their default chunk size.
        let (packing, in_flight) = if is_synchronous(device) {
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

    /// Runs for a time, or until the traffic ends.
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

    /// Runs for the time of a figure. Brief runs instead process a few packets, because a busy
    /// machine may process none in a short time.
    pub(super) fn measure(&self, traffic: Traffic, settings: &Settings) -> Result<Report, Error> {
        if settings.request.extent.brief {
            return self.run(Traffic { packets: Some(VERIFIED_PACKETS), ..traffic }, None);
        }
        self.run(traffic, Some(settings.common.time))
    }

    /// Runs the first packets. Returns a digest of the sent frames, and the counters.
    fn digest(&self) -> Result<Proof, Error> {
        let traffic = Traffic { packets: Some(VERIFIED_PACKETS), ..Traffic::new(&self.case.frames) };
        let report = self.run(traffic.clone(), None)?;
        let verdicts = report.functions.iter().flat_map(|function| function.verdicts.clone()).collect();
        let Conservation { received, sent, dropped, .. } = report.conservation;
        if received != VERIFIED_PACKETS || sent == 0 {
            let what = format!("it sent {sent} of {received} packets");
            return Err(Error::Wrong { who: self.case.kind().to_owned(), what });
        }
        Ok(Proof { digest: traffic.digest.load(Ordering::Relaxed), sent, dropped, verdicts })
    }

    /// Compares the results with those of `ref` for the same packets.
    pub(super) fn verify(&self, expected: &Proof) -> Result<(), Error> {
        let found = self.digest()?;
        if found == *expected {
            return Ok(());
        }
        let who = format!("{} on {} by {}", self.case.kind(), self.device, self.implementation);
        Err(Error::Wrong { who, what: format!("{found:?} instead of {expected:?} of `ref`") })
    }
}

/// Results that are compared with `ref`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Proof {
    digest: u64,
    sent: u64,
    dropped: u64,
    verdicts: Vec<(String, u64)>,
}

/// Returns the results of `ref`.
pub(super) fn proof(case: &Case) -> Result<Proof, Error> {
    Setup { case, device: LAST_RESORT, implementation: "ref", workers: 1, packing: BURSTS }.digest()
}

/// Device that runs the function, and its implementation.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) device: String,
    pub(super) implementation: String,
}

/// The request, and the defaults of these benches.
pub(super) struct Settings {
    pub(super) common: Common,
    pub(super) request: Request,
    /// Numbers of workers, if the request gives some.
    pub(super) workers: Vec<usize>,
    /// Names of the functions.
    pub(super) apps: Vec<String>,
}

impl Settings {
    pub(super) fn parse(context: &Context) -> Result<Self, Error> {
        let Context { common, values } = context;
        let table_bytes = values.get::<usize>("table_mib")?.map(|mib| mib << 20);
        let extent = Extent { brief: common.brief(), table_bytes };
        let default = if extent.brief { VERIFIED_PACKETS as usize } else { FRAMES };
        let frames = values.get(PACKETS.name)?.unwrap_or(default);
        Ok(Self {
            common: common.clone(),
            request: Request { frames, size: common.sizes[0], extent },
            workers: values.list(WORKERS.name)?,
            apps: values.list("app")?,
        })
    }

    /// Returns the CPU with each requested implementation, and the other requested devices.
    pub(super) fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        let requested = |id: &str| self.common.devices.iter().any(|device| device == id);
        if requested(LAST_RESORT) {
            let default = || ["scalar", "gopt"].map(str::to_owned).to_vec();
            let implementations = self.common.implementation.clone().map_or_else(default, |name| vec![name]);
            let target = |implementation| Target { device: LAST_RESORT.to_owned(), implementation };
            targets.extend(implementations.into_iter().map(target));
        }
        let others = devices::others().into_iter().map(|found| found.capabilities.id);
        let target = |device| Target { device, implementation: "scalar".to_owned() };
        targets.extend(others.filter(|id| requested(id)).map(target));
        targets
    }

    /// Returns the worker counts: 1, 2, 4 and so on, and all cores.
    pub(super) fn worker_counts(&self) -> Vec<usize> {
        if !self.workers.is_empty() {
            return self.workers.clone();
        }
        let cores = cores::count();
        let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&count| count < cores).collect();
        counts.push(cores);
        counts
    }

    /// Returns the first requested number of workers, or one.
    pub(super) fn single_worker_count(&self) -> usize {
        self.workers.first().copied().unwrap_or(1)
    }
}

/// Returns the received packets in millions per second.
pub(super) fn mpps(report: &Report) -> f64 {
    report.conservation.received as f64 / report.elapsed_s / 1e6
}

/// Returns the row of a figure from the reports of its rounds.
pub(super) fn row(case: &Case, device: &str, size: Size, packing: Packing, reports: &mut [Report]) -> Row {
    let mut rates: Vec<f64> = reports.iter().map(mpps).collect();
    let (median, _) = median_p99(&mut rates);
    reports.sort_by(|a, b| mpps(a).total_cmp(&mpps(b)));
    let report = &reports[reports.len() / 2];
    let latency = report.latency.unwrap_or_default();
    let functions = &report.functions;
    let kernel_ns: f64 = functions.iter().map(|one| one.busy_ns_per_packet * one.packets as f64).sum();
    let packets: u64 = functions.iter().map(|one| one.packets).sum();
    let table_bytes: usize = case.functions.iter().map(|one| one.function.image().len()).sum();
    let dropped = report.conservation.dropped as f64 / report.conservation.received.max(1) as f64;
    Row {
        device: device.to_owned(),
        implementation: functions[0].implementation.clone(),
        mode: "engine".to_owned(),
        size: Some(size),
        batch: packing.chunk,
        mpps: median,
        gbps: median * case.frames.bytes_mean() * 8.0 / 1e3,
        p50_us: latency.p50_ns as f64 / 1e3,
        p99_us: latency.p99_ns as f64 / 1e3,
        watts: report.power.iter().find(|power| power.device == device).and_then(|power| power.watts),
        details: Details::default()
            .with("rounds", rates.len())
            .with("mpps_min", rates.first().copied().unwrap_or(0.0))
            .with("mpps_max", rates.last().copied().unwrap_or(0.0))
            .with("kernel_ns", kernel_ns / packets.max(1) as f64)
            .with("dropped_share", dropped)
            .with("table_mib", table_bytes as f64 / f64::from(1 << 20))
            .with("workers", report.workers),
        ..Row::default()
    }
}

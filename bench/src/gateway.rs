//! An ESP gateway as it would run: the whole engine, port to port, with the function on the device asked for.
//!
//! ```text
//! synthetic port -> host half (SPD, sequence number) -> bins -> device -> outcomes, in order -> synthetic port
//! ```
//! Every SA protects a /24 of its own, and flows are random over all of them. Before anything is timed, what leaves for
//! a known number of packets is compared with what the CPU makes of them by `ref`, by a digest of all frames.

mod together;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use godwit_device::{Implementation, cpu, has_own_memory};
use godwit_engine::config::{ChunkDefaults, Config, EngineConfig};
use godwit_engine::{Engine, Options, Report};
use godwit_packet::Layout;

use crate::several;
use crate::suites::Associations;
use crate::throughput::{self, layout_name, moved_note};
use crate::{BenchOptions, Error, Progress, Row, Size};

/// Frame sizes, where the user names none.
const SIZES: [Size; 5] = [Size::Bytes(60), Size::Bytes(512), Size::Bytes(1024), Size::Bytes(1408), Size::Imix];
/// Flows, on average.
const FLOWS_PER_SA: u32 = 4;
/// Most packets of a worker in flight.
const IN_FLIGHT_PACKETS_MAX: usize = 65_536;
/// In front of a frame, for what ESP prepends.
const HEADROOM_BYTES: usize = 44;
/// Behind it, for what ESP appends.
const TAILROOM_BYTES: usize = 29;
const ALIGN_BYTES: usize = 64;
/// The same on the CPU, which has done a chunk when it has taken it: packets stay in the caches (`engine.rs`).
const CPU_IN_FLIGHT_PACKETS: usize = 1024;
/// Packets that are compared with `ref`.
const VERIFIED_PACKETS: u32 = 4096;

/// A gateway that sends nothing for so long never will.
const PATIENCE: Duration = Duration::from_secs(10);

/// The bench `gateway`.
pub(crate) fn run(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let implementation = throughput::implementation(options)?;
    let associations = associations(options)?;
    let devices = options.devices();
    let sizes = if options.sizes.is_empty() { &SIZES[..] } else { &options.sizes };
    let cores = [std::thread::available_parallelism().map_or(1, usize::from)];
    let workers = if options.workers.is_empty() { &cores[..] } else { &options.workers };
    if options.together {
        return together::run(options, &associations, sizes, progress);
    }
    let links = several::links(options, progress);
    // Each device alone, then all of them.
    let mut sets: Vec<(&[&str], Option<f64>)> = devices.chunks(1).zip(links.alone()).collect();
    if devices.len() > 1 {
        sets.push((&devices, links.at_once_in_sum()));
    }
    let mut rows = Vec::new();
    for &size in sizes {
        let expected = Gateway::new(options, &associations, size).expected()?;
        for &workers in workers {
            let mut alone = Vec::new();
            for &(devices, link) in &sets {
                let gateway =
                    Gateway { workers, implementation, devices, ..Gateway::new(options, &associations, size) };
                gateway.verify(&expected, progress)?;
                let (chunk_packets, report) = gateway.time(options.time)?;
                let mut row = row(options, devices, size, chunk_packets, &report, link);
                if devices.len() > 1 {
                    row.note += &spread_note(devices, &report, row.mpps, &alone);
                }
                alone.push(row.mpps);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// The SAs asked for, where a gateway can have them.
pub(crate) fn associations(options: &BenchOptions) -> Result<Associations, Error> {
    let associations = Associations::asked(options)?;
    if options.decrypt {
        return Err(Error::Setup("the gateway encrypts: --decrypt is for the bench ipsec".to_owned()));
    }
    if !associations.sas.is_power_of_two() {
        let message = format!("{} SAs: the gateway's are a power of two, a /24 for each", associations.sas);
        return Err(Error::Setup(message));
    }
    Ok(associations)
}

/// How a function was spread over devices, and what that is worth; `alone`: of each its rate, Mpps.
fn spread_note(devices: &[&str], report: &Report, mpps: f64, alone: &[f64]) -> String {
    let packets = |device: &&str| {
        let name = format!("device_packets{{device=\"{device}\"}}");
        report.counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, packets)| *packets)
    };
    let each: Vec<u64> = devices.iter().map(packets).collect();
    let all = each.iter().sum::<u64>().max(1) as f64;
    let shares: Vec<String> = devices
        .iter()
        .zip(each)
        .map(|(device, packets)| format!("{:.0} % on {device}", packets as f64 / all * 100.0))
        .collect();
    let mean = alone.iter().sum::<f64>() / alone.len().max(1) as f64;
    format!("; {}; {:.2} x one", shares.join(", "), mpps / mean)
}

/// One configuration of the engine.
struct Gateway<'a> {
    options: &'a BenchOptions,
    size: Size,
    /// That run the function: one, or several that it is spread over.
    devices: &'a [&'a str],
    implementation: Implementation,
    workers: usize,
    associations: &'a Associations,
}

/// Where `ref` runs.
const CPU: &[&str] = &[cpu::ID];

impl<'a> Gateway<'a> {
    fn new(options: &'a BenchOptions, associations: &'a Associations, size: Size) -> Self {
        Self { options, size, devices: CPU, implementation: Implementation::Scalar, workers: 1, associations }
    }

    /// What `ref` makes of packets on the CPU, by one worker: which of them does a packet changes nothing of it.
    fn expected(self) -> Result<Report, Error> {
        let by_ref = Self { devices: CPU, implementation: Implementation::Ref, ..self };
        Ok(by_ref.run(Some(VERIFIED_PACKETS), None)?.1)
    }

    /// Compares what it makes of packets with that.
    fn verify(&self, expected: &Report, progress: &mut Progress<'_>) -> Result<(), Error> {
        let (_, found) = self.run(Some(VERIFIED_PACKETS), None)?;
        let (size, device) = (self.size, self.name());
        let digest = |report: &Report| report.ports[0].digest;
        let sent = [expected, &found].map(|report| report.conservation.sent);
        if digest(&found) != digest(expected) || sent != [u64::from(VERIFIED_PACKETS); 2] {
            let what = format!("{sent:?} packets of {VERIFIED_PACKETS} at {size} left by ref and by it, not the same");
            return Err(Error::Wrong { who: format!("the gateway on {device}"), what });
        }
        progress(&format!("gateway at {size} on {device}: {VERIFIED_PACKETS} packets compared with ref"));
        Ok(())
    }

    /// Runs it for `time`, or for as much longer as it takes until a packet has left.
    fn time(&self, mut time: Duration) -> Result<(usize, Report), Error> {
        time = time.max(Duration::from_millis(1));
        loop {
            let (chunk_packets, report) = self.run(None, Some(time))?;
            if report.conservation.sent > 0 {
                return Ok((chunk_packets, report));
            }
            if time >= PATIENCE {
                return Err(Error::Setup(format!("no packet left the gateway within {} s", time.as_secs())));
            }
            time *= 4;
        }
    }

    /// Runs it for so many packets, or for so long: packets of a chunk, and the engine's report.
    fn run(&self, packets: Option<u32>, time: Option<Duration>) -> Result<(usize, Report), Error> {
        self.run_after(packets, time, || {})
    }

    /// The same; when it is built, `begin` says when it begins, also where it could not be built.
    fn run_after(
        &self,
        packets: Option<u32>,
        time: Option<Duration>,
        begin: impl FnOnce(),
    ) -> Result<(usize, Report), Error> {
        let built = self.build(packets);
        begin();
        let (chunk_packets, engine) = built?;
        let stop = Arc::new(AtomicBool::new(false));
        let report = engine.run(&stop, time, &mut |_| {}).map_err(Error::setup)?;
        self.check(&report)?;
        Ok((chunk_packets, report))
    }

    fn build(&self, packets: Option<u32>) -> Result<(usize, Engine), Error> {
        let text = self.configuration(packets);
        let config = Config::parse(&text, "bench gateway", Path::new(".")).map_err(Error::setup)?;
        let device = config.devices.iter().find(|device| device.id == self.devices[0]);
        let chunk_packets = device.map_or(0, |device| device.packing.chunk_packets as usize);
        Ok((chunk_packets, Engine::new(config, &Options::default()).map_err(Error::setup)?))
    }

    /// Every packet is accounted for, and every one that left was encrypted by the device asked for.
    fn check(&self, report: &Report) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Wrong { who: format!("the gateway on {}", self.name()), what });
        let conservation = report.conservation;
        if !conservation.holds() || conservation.in_flight > 0 {
            return wrong(conservation.to_string());
        }
        if let Some(lost) = report.lost_devices.first() {
            return Err(Error::Setup(format!("device {} was lost: {}", lost.device, lost.reason)));
        }
        let encrypted = report.functions[0].verdicts.iter().find(|(verdict, _)| verdict == "encrypted");
        match encrypted {
            Some((_, packets)) if *packets == conservation.sent => Ok(()),
            _ => wrong(format!("{} packets were sent, and encrypted: {encrypted:?}", conservation.sent)),
        }
    }

    fn name(&self) -> String {
        self.devices.join("+")
    }

    /// Whether packets are copied to any of them.
    fn copies(&self) -> bool {
        self.devices.iter().any(|device| has_own_memory(device))
    }

    /// Buffer of a frame of so many bytes.
    fn buffer_bytes(frame_bytes: usize) -> usize {
        (HEADROOM_BYTES + frame_bytes + TAILROOM_BYTES / 2).next_multiple_of(ALIGN_BYTES)
    }

    fn mean_buffer_bytes(&self) -> usize {
        match self.size {
            Size::Bytes(bytes) => Self::buffer_bytes(bytes.into()),
            Size::Random => Self::buffer_bytes((60 + 1514) / 2),
            Size::Uniform { min, max } => Self::buffer_bytes((usize::from(min) + usize::from(max)) / 2),
            Size::Imix => (7 * Self::buffer_bytes(60) + 4 * Self::buffer_bytes(566) + Self::buffer_bytes(1514)) / 12,
            Size::ImixPipsea => {
                (60 * Self::buffer_bytes(56) + 23 * Self::buffer_bytes(532) + 15 * Self::buffer_bytes(1356)) / 98
            }
        }
    }

    /// Packets of as many bytes as a worker's chunks take.
    fn packets_of_chunks(&self) -> usize {
        let mode = self.options.mode.unwrap_or_default();
        let defaults = ChunkDefaults::of(self.devices[0], mode, self.workers);
        let chunks = self.options.in_flight.map_or(defaults.chunks, |chunks| chunks + 1);
        // Each device has its own.
        chunks * self.devices.len() * defaults.bytes as usize / self.mean_buffer_bytes()
    }

    /// The key of `[arena]` that makes a worker's ring as long as packets in flight need, and an eighth: what goes around in
    /// more memory comes back colder.
    fn ring(&self, in_flight_packets: usize) -> String {
        if !self.copies() || self.options.layout != Layout::Dense {
            return String::new();
        }
        let packets = self.options.packets.unwrap_or_else(|| self.packets_of_chunks()).min(in_flight_packets);
        let bytes = packets * self.mean_buffer_bytes() * 9 / 8;
        let longest = HEADROOM_BYTES + self.size.frame_bytes_max().max(60) + TAILROOM_BYTES;
        format!("packets = {}", bytes / longest + 1)
    }

    /// `packets`: how many there are, all digested; `None`: no end.
    fn configuration(&self, packets: Option<u32>) -> String {
        let Self { options, size, devices, workers, .. } = *self;
        let layout = layout_name(options.layout);
        let in_flight_packets = match (options.packets, devices) {
            (Some(packets), _) => packets,
            (None, CPU) => CPU_IN_FLIGHT_PACKETS,
            (None, _) if self.copies() => self.packets_of_chunks().next_power_of_two().min(IN_FLIGHT_PACKETS_MAX),
            (None, _) => EngineConfig::default().in_flight_packets,
        };
        let ring = self.ring(in_flight_packets);
        let flows = FLOWS_PER_SA * self.associations.sas;
        let prefix_bits = 24 - self.associations.sas.ilog2();
        let size_text = size.configured();
        // While the clock runs, cores write no payload: a NIC would, and what they write to memory copies to a device wait for
        // (an H200 and 16 cores, 1408 bytes: 48 GB/s each way, 39 while these write 25.6 million such frames a second).
        let (count, digest, payload) = match packets {
            Some(packets) => (packets, true, "zero"),
            None => (0, false, "stale"),
        };
        let mut text = format!(
            r#"
            [engine]
            workers = {workers}
            in_flight_packets = {in_flight_packets}
            [arena]
            layout = "{layout}"
            {ring}
            frame_bytes_max = {}
            align_bytes = {ALIGN_BYTES}
            headroom_bytes = {HEADROOM_BYTES}
            tailroom_bytes = {TAILROOM_BYTES}
            [[port]]
            name = "memory"
            kind = "synthetic"
            size = {size_text}
            flows = {flows}
            destination = "10.0.0.0/{prefix_bits}"
            payload = "{payload}"
            packets = {count}
            digest = {digest}
            [[chain]]
            from = "memory"
            to = "gateway"
            [[chain]]
            from = "gateway"
            to = "memory"
            "#,
            size.frame_bytes_max().max(60),
        );
        for &device in devices {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "[[device]]\nname = \"{device}\"");
            if let Some(mode) = options.mode.filter(|_| device != cpu::ID) {
                let _ = writeln!(text, "mode = \"{}\"", mode.name());
            }
            if let Some(transfer) = options.transfer.filter(|_| device != cpu::ID) {
                let _ = writeln!(text, "transfer = \"{}\"", transfer.name());
            }
            if !options.devices().contains(&device) {
                continue;
            }
            // One more than are in flight: one fills. The CPU runs a chunk at once.
            let chunks = options.in_flight.filter(|_| device != cpu::ID).map(|chunks| chunks + 1);
            // A chunk of so many packets is not cut short.
            let unlimited = options.batch.map(|_| u32::MAX as usize);
            let keys = [
                ("chunk_packets", options.batch),
                ("chunk_bytes", unlimited),
                ("bin_packets", options.bin_packets),
                ("chunks", chunks),
            ];
            for (key, value) in keys {
                if let Some(value) = value {
                    let _ = writeln!(text, "{key} = {value}");
                }
            }
        }
        let _ = writeln!(text, "[[function]]\nname = \"gateway\"\nkind = \"ipsec\"\ndevice = {devices:?}");
        // Devices beside the CPU have one form.
        if devices == CPU {
            let _ = writeln!(text, "impl = \"{}\"", self.implementation.name());
        }
        text += &self.associations.text("function.sa", 1);
        for sa in 0..self.associations.sas {
            let prefix = format!("{}.{}.{}.0/24", 10 + (sa >> 16), (sa >> 8) & 255, sa & 255);
            let _ = writeln!(
                text,
                "[[function.policy]]\naction = \"protect\"\ndestination = \"{prefix}\"\nsa = \"sa-{sa}\""
            );
        }
        text
    }
}

fn row(
    options: &BenchOptions,
    devices: &[&str],
    size: Size,
    chunk_packets: usize,
    report: &Report,
    link: Option<f64>,
) -> Row {
    let watts =
        |device: &&str| report.power.iter().find(|power| power.device == **device).and_then(|power| power.watts);
    let sent = report.conservation.sent;
    let mpps = sent as f64 / report.elapsed_s / 1e6;
    let function = &report.functions[0];
    let latency = report.latency.unwrap_or_default();
    Row {
        bench: "gateway".to_owned(),
        device: devices.join("+"),
        implementation: function.implementation.clone(),
        mode: "engine",
        size: Some(size),
        batch: chunk_packets,
        mpps,
        gbps: function.gbps,
        p50_us: latency.p50_ns as f64 / 1e3,
        p99_us: latency.p99_ns as f64 / 1e3,
        watts: devices.iter().map(watts).sum(),
        peer: false,
        note: note(options, devices, report, mpps, link),
    }
}

fn note(options: &BenchOptions, devices: &[&str], report: &Report, mpps: f64, link: Option<f64>) -> String {
    let counter = |name: &str| report.counters.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value);
    let of_devices = |name: &str| -> u64 {
        devices.iter().map(|device| counter(&format!("device_{name}{{device=\"{device}\"}}"))).sum()
    };
    let function = &report.functions[0];
    let busy_ns = counter("engine_busy_ns") as f64;
    let mut note = format!(
        "{} workers, {:.1} cores busy, {:.1} ns of them a packet; {}, {}, bins {:.0} % full; sent {:.2} Gbps",
        report.workers,
        busy_ns / 1e9 / report.elapsed_s,
        busy_ns / report.conservation.sent as f64,
        function.mode,
        layout_name(options.layout),
        function.batch_fill * 100.0,
        report.ports[0].sent_bytes as f64 * 8.0 / report.elapsed_s / 1e9,
    );
    let moved = [of_devices("moved_to"), of_devices("moved_back")];
    let packets = report.conservation.sent as f64;
    let moved = (moved != [0, 0]).then(|| moved.map(|bytes| bytes as f64 / packets));
    note += &moved_note(devices[0], mpps, moved, link);
    if report.conservation.dropped > 0 {
        // Writing to a String cannot fail.
        let _ = write!(note, "; {} packets DROPPED", report.conservation.dropped);
    }
    note
}

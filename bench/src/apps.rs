//! Whole functions in the engine, port to port: G-Opt's figures 10 to 12.
//!
//! An application is a row of [`APPS`]: the stanza of a function, and frames that its table knows. Before a figure is
//! taken, the frames of one turn go through the same configuration, and a digest of what left is compared with `ref`'s.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use godwit_device::{cpu, has_own_memory};
use godwit_engine::config::{Config, PortKind};
use godwit_engine::{Conservation, Engine, Options, Report};

use crate::frames::{self, Random};
use crate::traffic::{Frames, Traffic};
use crate::{BenchOptions, Error, LITTLE, Progress, Row, Size, median_p99, routes};

/// An application of figure 10.
struct App {
    /// Also the function's kind.
    name: &'static str,
    /// With room for so many frames of that size; small where a test asks.
    make: fn(&Ask) -> Result<Case, Error>,
}

/// One line for each.
const APPS: &[App] = &[
    App { name: "echo", make: echo },
    App { name: "ipv4", make: ipv4 },
    App { name: "ipv6", make: ipv6 },
    App { name: "l2", make: l2 },
    App { name: "ndn", make: ndn },
];

/// Those whose function there is.
fn apps() -> impl Iterator<Item = &'static App> {
    APPS.iter().filter(|app| godwit_function::kind(app.name).is_some())
}

/// What a row of [`APPS`] is asked for.
struct Ask {
    frames: usize,
    size: Size,
    /// Whether tables are to be small.
    little: bool,
}

/// A function with its traffic.
struct Case {
    kind: &'static str,
    /// Keys of its stanza, `[[function]]` itself left out; tables in it begin with `function.`.
    stanza: String,
    /// Where verdicts lead; `""` are all others.
    exits: &'static [(&'static str, &'static str)],
    /// Whether there is a second port, by which packets leave.
    far: bool,
    frames: Arc<Frames>,
    /// What the stanza names.
    _files: Vec<tempfile::NamedTempFile>,
}

fn echo(ask: &Ask) -> Result<Case, Error> {
    Ok(Case {
        kind: "echo",
        stanza: String::new(),
        exits: &[("", "egress")],
        far: false,
        frames: udp(ask),
        _files: Vec::new(),
    })
}

/// The table of 2025, and addresses at random.
fn ipv4(ask: &Ask) -> Result<Case, Error> {
    let routes = if ask.little { routes::random_routes(1000) } else { routes::prefixes_2025()? };
    let file = routes::write_file(&routes)?;
    let stanza = routes::stanza(file.path()).replace("[[next_hop]]", "[[function.next_hop]]");
    let exits = &[("forward", "egress"), ("", "drop")];
    Ok(Case { kind: "ipv4", stanza, exits, far: false, frames: udp(ask), _files: vec![file] })
}

/// 200,000 random prefixes of 48 to 64 bits, and addresses below them.
fn ipv6(ask: &Ask) -> Result<Case, Error> {
    let routes = routes::random_prefixes6(if ask.little { 1000 } else { 200_000 });
    let file = routes::write_file6(&routes)?;
    let stanza = routes::stanza(file.path()).replace("[[next_hop]]", "[[function.next_hop]]");
    let mut random = Random::new(16);
    let frame = |_| {
        let route = &routes[random.below(routes.len() as u32) as usize];
        let host = u128::from(random.next_u32()) << 32 | u128::from(random.next_u32());
        let mut frame = ethernet(ask.size, 0x86dd);
        let payload = (frame.len() - 54) as u16;
        // No next header, so that it fits where UDP does not.
        frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, (payload >> 8) as u8, payload as u8, 59, 64]);
        frame[22..38].copy_from_slice(&(0x2001_0db8_u128 << 96 | u128::from(random.next_u32())).to_be_bytes());
        frame[38..54].copy_from_slice(&(route.prefix | host).to_be_bytes());
        frame
    };
    let frames = Arc::new(Frames::new((0..ask.frames).map(frame)));
    Ok(Case {
        kind: "ipv6",
        stanza,
        exits: &[("forward", "egress"), ("", "drop")],
        far: false,
        frames,
        _files: vec![file],
    })
}

/// A million stations beyond the other port, spoken to by 64 on this one.
fn l2(ask: &Ask) -> Result<Case, Error> {
    let stations: u32 = if ask.little { 1000 } else { 1_000_000 };
    // Local unicast addresses, all different.
    let station = |number: u32| [2, 1, (number >> 24) as u8, (number >> 16) as u8, (number >> 8) as u8, number as u8];
    let mut text = String::with_capacity(stations as usize * 26);
    for number in 0..stations + 64 {
        let [a, b, c, d, e, f] = station(number);
        let port = if number < stations { "far" } else { "out" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "1 {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} {port}");
    }
    let file = routes::temporary(text.as_bytes())?;
    let stanza = format!("capacity = {}\nmacs = {:?}\n", stations + 64, file.path().display().to_string());
    let mut random = Random::new(20);
    let frame = |_| {
        let mut frame = ethernet(ask.size, 0x88b5);
        frame[..6].copy_from_slice(&station(random.below(stations)));
        frame[6..12].copy_from_slice(&station(stations + random.below(64)));
        frame
    };
    let frames = Arc::new(Frames::new((0..ask.frames).map(frame)));
    Ok(Case {
        kind: "l2",
        stanza,
        exits: &[("forward", "egress"), ("", "drop")],
        far: true,
        frames,
        _files: vec![file],
    })
}

/// A frame of this size, zeros behind the Ethernet header.
fn ethernet(size: Size, ether_type: u16) -> Vec<u8> {
    let length = match size {
        Size::Bytes(bytes) => usize::from(bytes).max(60),
        Size::Imix | Size::Random => 60,
    };
    let mut frame = vec![0; length];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
    frame
}

/// Two million names of two components, and Interests for names that have one more.
fn ndn(ask: &Ask) -> Result<Case, Error> {
    let names: u32 = if ask.little { 1000 } else { 2_000_000 };
    // The factor is odd: all names differ.
    let name = |number: u32| [format!("{:08x}", number.wrapping_mul(0x9e37_79b1)), format!("{:03x}", number % 1000)];
    let mut text = String::with_capacity(names as usize * 24);
    for number in 0..names {
        let [first, second] = name(number);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "/{first}/{second} hop{}", number % routes::NEXT_HOPS);
    }
    let file = routes::temporary(text.as_bytes())?;
    let stanza =
        routes::stanza(file.path()).replacen("routes", "names", 1).replace("[[next_hop]]", "[[function.next_hop]]");
    let mut random = Random::new(23);
    let element = |kind: u8, value: &[u8]| [&[kind, value.len() as u8][..], value].concat();
    let frame = |_| {
        let [first, second] = name(random.below(names));
        let third = format!("{:04x}", random.below(1 << 16));
        let components: Vec<u8> = [first, second, third].iter().flat_map(|part| element(8, part.as_bytes())).collect();
        let nonce = random.next_u32().to_be_bytes();
        let interest = element(5, &[element(7, &components), element(10, &nonce)].concat());
        let mut frame = ethernet(ask.size, 0x8624);
        frame[14..14 + interest.len()].copy_from_slice(&interest);
        frame
    };
    let frames = Arc::new(Frames::new((0..ask.frames).map(frame)));
    Ok(Case {
        kind: "ndn",
        stanza,
        exits: &[("forward", "egress"), ("", "drop")],
        far: false,
        frames,
        _files: vec![file],
    })
}

/// Patterns of 8 to 24 letters, one in 30 % of the packets; the others are letters too, so that the automaton leaves its root.
fn dpi(ask: &Ask) -> Result<Case, Error> {
    let mut random = Random::new(12);
    let letter = |random: &mut Random| b'a' + random.below(26) as u8;
    let word = |random: &mut Random| (0..8 + random.below(17)).map(|_| letter(random)).collect::<Vec<u8>>();
    let patterns: Vec<Vec<u8>> = (0..if ask.little { 100 } else { 20_000 }).map(|_| word(&mut random)).collect();
    let file = routes::temporary(&patterns.join(&b'\n'))?;
    let payload = |random: &mut Random, payload: &mut [u8]| {
        payload.fill_with(|| letter(random));
        let pattern = &patterns[random.below(patterns.len() as u32) as usize];
        if random.below(100) < 30 && payload.len() > pattern.len() {
            let at = random.below((payload.len() - pattern.len()) as u32) as usize;
            payload[at..at + pattern.len()].copy_from_slice(pattern);
        }
    };
    let stanza = format!("patterns = {:?}", file.path().display().to_string());
    // Payloads are ten times as long as those of look-ups.
    let frames = (ask.frames / 16).max(VERIFIED_PACKETS as usize);
    let frames = Arc::new(Frames::new((0..frames).map(|_| frames::frame(ask.size, &mut random, &payload))));
    Ok(Case { kind: "dpi", stanza, exits: &[("", "out")], far: false, frames, _files: vec![file] })
}

/// UDP over IPv4 from anywhere to anywhere.
fn udp(ask: &Ask) -> Arc<Frames> {
    let mut random = Random::new(10);
    let payload = |random: &mut Random, payload: &mut [u8]| payload.fill_with(|| random.next_u32() as u8);
    Arc::new(Frames::new((0..ask.frames).map(|_| frames::frame(ask.size, &mut random, &payload))))
}

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
    grouping: &'static str,
    sort: bool,
}

/// As in the bench `engine`.
const BURSTS: Packing = Packing { burst: 256, bin: 256, chunk: 256, grouping: "none", sort: false };

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
        let Self { case: Case { kind, stanza, frames, exits, far, .. }, device, implementation, workers, packing } =
            *self;
        let Packing { burst, bin, chunk, grouping, sort } = packing;
        let longest = frames.bytes_max().max(60);
        // A device is fed in chunks of its own size.
        let (packing, in_flight) = if device == cpu::ID {
            let keys =
                format!("chunk_packets = {chunk}\nbin_packets = {bin}\ngrouping = \"{grouping}\"\nsort = {sort}");
            (format!("[packing]\n{keys}"), (4 * chunk).next_power_of_two())
        } else {
            (format!("[[device]]\nname = \"{device}\""), if has_own_memory(device) { 65_536 } else { 8192 })
        };
        let edge = |(verdict, to): &(&str, &str)| {
            let verdict = if verdict.is_empty() { String::new() } else { format!("verdict = \"{verdict}\"\n") };
            format!("[[chain]]\nfrom = \"app\"\n{verdict}to = \"{to}\"\n")
        };
        let far = if *far { "[[port]]\nname = \"far\"\nkind = \"synthetic\"\n" } else { "" };
        let chain: String = exits.iter().map(edge).collect();
        format!(
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
            to = "app"
            {chain}
            [[function]]
            name = "app"
            kind = "{kind}"
            impl = "{implementation}"
            device = "{device}"
            {stanza}
            "#
        )
    }

    fn run(&self, traffic: Traffic, time: Option<Duration>) -> Result<Report, Error> {
        let mut config = Config::parse(&self.configuration(), "bench apps", Path::new(".")).map_err(Error::setup)?;
        let who = || format!("{} on {} by {}", self.case.kind, self.device, self.implementation);
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

    /// A digest of what leaves for the first packets, with how many were sent and dropped, and what was said of them.
    fn digest(&self) -> Result<Proof, Error> {
        let traffic = Traffic { packets: Some(VERIFIED_PACKETS), ..Traffic::new(&self.case.frames) };
        let report = self.run(traffic.clone(), None)?;
        let verdicts = report.functions[0].verdicts.clone();
        let Conservation { received, sent, dropped, .. } = report.conservation;
        if received != VERIFIED_PACKETS || sent == 0 {
            let what = format!("of {received} packets {sent} left");
            return Err(Error::Wrong { who: self.case.kind.to_owned(), what });
        }
        Ok(Proof { digest: traffic.digest.load(Ordering::Relaxed), sent, dropped, verdicts })
    }

    /// Compares with what `ref` makes of the same packets.
    fn verify(&self, expected: &Proof) -> Result<(), Error> {
        let found = self.digest()?;
        if found == *expected {
            return Ok(());
        }
        let who = format!("{} on {} by {}", self.case.kind, self.device, self.implementation);
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

/// On the CPU by every implementation asked for, and on every other device here.
fn places(options: &BenchOptions) -> Vec<Place> {
    let mut places = Vec::new();
    if options.device.is_none() || options.device.as_deref() == Some(cpu::ID) {
        let known = ["scalar", "gopt"].iter().filter(|name| known(name)).map(|name| (*name).to_owned());
        let implementations = options.implementation.clone().map_or_else(|| known.collect(), |name| vec![name]);
        let place = |implementation| Place { device: cpu::ID.to_owned(), implementation };
        places.extend(implementations.into_iter().map(place));
    }
    let probes = [godwit_device::opencl::probe(), godwit_device::cuda::probe()];
    let found = probes.into_iter().flat_map(|probe| probe.found).filter(|found| found.usable.is_ok());
    let others = found.map(|found| found.capabilities.id);
    let asked = |id: &String| options.device.as_ref().is_none_or(|device| device == id);
    let place = |device| Place { device, implementation: "scalar".to_owned() };
    places.extend(others.filter(asked).map(place));
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
    let little = options.time < LITTLE;
    let frames = options.packets.unwrap_or(if little { VERIFIED_PACKETS as usize } else { FRAMES });
    Ask { frames, size: options.sizes.first().copied().unwrap_or(Size::Bytes(60)), little }
}

/// The bench `apps`: figure 10.
pub(crate) fn run(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for app in apps() {
        let ask = ask(options);
        let case = (app.make)(&ask)?;
        let expected = proof(&case)?;
        for workers in workers(options) {
            let places = places(options);
            let mut reports: Vec<Vec<Report>> = vec![Vec::new(); places.len()];
            for round in 0..if ask.little { 1 } else { ROUNDS } {
                for (Place { device, implementation }, reports) in places.iter().zip(&mut reports) {
                    let setup = Setup { case: &case, device, implementation, workers, packing: BURSTS };
                    if round == 0 {
                        setup.verify(&expected)?;
                    }
                    reports.push(setup.run(Traffic::new(&case.frames), Some(time(options)))?);
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

fn time(options: &BenchOptions) -> Duration {
    options.time.max(Duration::from_millis(20))
}

fn row(bench: &str, case: &Case, device: &str, size: Size, packing: Packing, reports: &mut [Report]) -> Row {
    let mut rates: Vec<f64> = reports.iter().map(mpps).collect();
    let (median, _) = median_p99(&mut rates);
    reports.sort_by(|a, b| mpps(a).total_cmp(&mpps(b)));
    let report = &reports[reports.len() / 2];
    let latency = report.latency.unwrap_or_default();
    let function = &report.functions[0];
    let dropped = 100.0 * report.conservation.dropped as f64 / report.conservation.received.max(1) as f64;
    Row {
        bench: bench.to_owned(),
        device: device.to_owned(),
        implementation: function.implementation.clone(),
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
            "{:.2} to {:.2} Mpps in {} rounds; {:.1} ns a packet in the kernel; {dropped:.1} % dropped",
            rates.first().copied().unwrap_or(0.0),
            rates.last().copied().unwrap_or(0.0),
            rates.len(),
            function.busy_ns_per_packet
        ),
    }
}

/// How packets come to the automaton in `patterns`: what a row calls it.
const PACKINGS: [(&str, Packing); 4] = [
    ("8 in order", Packing { burst: 8, bin: 8, chunk: 8, grouping: "none", sort: false }),
    ("256 in order", BURSTS),
    ("8192 in order", Packing { burst: 256, bin: 256, chunk: 8192, grouping: "none", sort: false }),
    ("8192 by length", Packing { burst: 256, bin: 256, chunk: 8192, grouping: "variant+length", sort: true }),
];

/// The bench `patterns`: figure 12, with one automaton.
pub(crate) fn patterns(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let ask = Ask { size: options.sizes.first().copied().unwrap_or(Size::Random), ..ask(options) };
    let case = dpi(&ask)?;
    let expected = proof(&case)?;
    let workers = options.workers.first().copied().unwrap_or(1);
    let places: Vec<Place> = places(options).into_iter().filter(|place| place.device == cpu::ID).collect();
    let mut variants = Vec::new();
    for (name, packing) in PACKINGS {
        for Place { device, implementation } in &places {
            let setup = Setup { case: &case, device, implementation, workers, packing };
            setup.verify(&expected)?;
            variants.push((name, setup, Vec::new()));
        }
    }
    for _ in 0..if ask.little { 1 } else { ROUNDS } {
        for (_, setup, reports) in &mut variants {
            reports.push(setup.run(Traffic::new(&case.frames), Some(time(options)))?);
        }
    }
    let mut first = None;
    let mut rows = Vec::new();
    for (name, setup, reports) in &mut variants {
        let mut row = row("patterns", &case, setup.device, ask.size, setup.packing, reports);
        let ratio = row.mpps / *first.get_or_insert(row.mpps);
        row.implementation = format!("{name}, {}", setup.implementation);
        row.note = format!("{ratio:.2} x the first row; {}", row.note);
        progress(&format!("{}: {:.2} Gbps", row.implementation, row.gbps));
        rows.push(row);
    }
    Ok(rows)
}

/// Shares of what the slowest can take that are offered in `lookup-latency`.
const LOADS: [f64; 8] = [0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.25, 1.5];

/// The bench `lookup-latency`: figure 11, from when a packet was due until it left.
pub(crate) fn lookup_latency(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let workers = options.workers.first().copied().unwrap_or(1);
    for app in apps() {
        let ask = ask(options);
        let case = (app.make)(&ask)?;
        let expected = proof(&case)?;
        let places: Vec<Place> = places(options);
        let mut most = f64::INFINITY;
        for Place { device, implementation } in &places {
            let setup = Setup { case: &case, device, implementation, workers, packing: BURSTS };
            setup.verify(&expected)?;
            let report = setup.run(Traffic::new(&case.frames), Some(time(options)))?;
            progress(&format!("{} by {implementation} on {device}: at most {:.2} Mpps", app.name, mpps(&report)));
            if device == cpu::ID {
                most = most.min(mpps(&report));
            }
        }
        if !most.is_finite() {
            most = 1.0;
        }
        let loads = if ask.little { &LOADS[..1] } else { &LOADS };
        for load in loads {
            let offered = load * most;
            for Place { device, implementation } in &places {
                let setup = Setup { case: &case, device, implementation, workers, packing: BURSTS };
                let traffic = Traffic { rate: Some(offered * 1e6), ..Traffic::new(&case.frames) };
                let report = setup.run(traffic.clone(), Some(time(options)))?;
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

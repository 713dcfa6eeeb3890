//! Each function alone, on packets in memory: host half and kernel, bin after bin.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_abi::{Bin, Outcome, VERDICT_DROP};
use godwit_device::cpu::CpuDevice;
use godwit_device::{Device, Implementation, Lane, Program};
use godwit_engine::FunctionProgram;
use godwit_function::ipsec::suite::Protocol;
use godwit_function::{BuildContext, Function, HostHalf, WorkColumns};
use godwit_packet::Region;
use godwit_sched::Chunk;
use toml::de::DeTable;

use crate::flow::Job;
use crate::frames::{self, Packets, Random};
use crate::ipsec::{together, whole};
use crate::suites::Associations;
use crate::{BenchOptions, Error, Progress, Row, Size, figures, median_p99, routes, throughput};

/// Packets of a bin.
const BIN_PACKETS: usize = 256;
/// Packets that a pass goes over: they stay in the L2 cache, as fresh packets do on a machine whose NIC writes to the cache.
pub(crate) const PACKETS: usize = 1024;

/// How long each implementation passes over them before it is another's turn: long enough to have the caches to itself.
const ROUND: Duration = Duration::from_millis(20);

/// What every pass does to the packets before it is timed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refresh {
    /// Makes them what they were.
    Frames,
    /// The same, with new random destinations.
    Addresses,
    /// Makes other frames of the same lengths.
    Made,
}

/// A peer that is asked round by round.
pub(crate) struct Competitor<'a> {
    pub(crate) device: &'static str,
    pub(crate) implementation: &'static str,
    pub(crate) note: String,
    /// How it is asked: `call`, `process`.
    pub(crate) mode: &'static str,
    /// Packets of a round.
    pub(crate) packets: usize,
    /// One round over these frames: its time in nanoseconds.
    pub(crate) round: Round<'a>,
}

type Round<'a> = Box<dyn FnMut(&[Vec<u8>]) -> Result<f64, Error> + 'a>;
/// Makes a frame of this size.
pub(crate) type Make<'a> = dyn Fn(Size, &mut Random) -> Vec<u8> + Sync + 'a;

/// What is measured.
pub(crate) struct Workload<'a> {
    pub(crate) bench: &'static str,
    pub(crate) function: Arc<dyn Function>,
    /// Frame sizes, where the user names none.
    pub(crate) sizes: &'a [Size],
    pub(crate) frame: &'a Make<'a>,
    pub(crate) refresh: Refresh,
    pub(crate) competitor: Option<Competitor<'a>>,
    /// What is done with each packet, where there is no host half in between; `None`: the same with all.
    pub(crate) job: Option<&'a (dyn Fn(&mut Random) -> Job + Sync)>,
    /// Whether the chunks of a lane are what a packer makes of packets as they come, and not bins of one length each.
    pub(crate) packed: bool,
    /// What is done with all frames before each pass, untimed: a pass opens what this seals.
    pub(crate) before: Option<Arc<dyn Function>>,
    /// What the notes of ours begin with.
    pub(crate) note: String,
}

impl Workload<'_> {
    /// A function on random payloads.
    pub(crate) fn new(bench: &'static str, function: Arc<dyn Function>) -> Self {
        Self {
            bench,
            function,
            sizes: &[Size::Bytes(60)],
            frame: &|size, random| frames::frame(size, random, &frames::noise),
            refresh: Refresh::Frames,
            competitor: None,
            job: None,
            packed: false,
            before: None,
            note: String::new(),
        }
    }
}

/// Builds a function from its stanza; port 0 is `out`.
pub(crate) fn build(kind: &str, stanza: &str) -> Result<Arc<dyn Function>, Error> {
    build_at(kind, stanza, &["out".to_owned()])
}

/// The same where there are these ports.
pub(crate) fn build_at(kind: &str, stanza: &str, ports: &[String]) -> Result<Arc<dyn Function>, Error> {
    let registration = godwit_function::kind(kind).ok_or_else(|| Error::Setup(format!("no function `{kind}`")))?;
    let site = BuildContext { name: kind, ports, directory: Path::new(".") };
    let table = DeTable::parse(stanza).map_err(Error::setup)?;
    (registration.build)(table, &site).map_err(Error::setup)
}

/// The bench `template`.
pub(crate) fn template(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    measure(Workload::new("template", build("template", "")?), options, progress)
}

/// The bench `echo`.
pub(crate) fn echo(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    measure(Workload::new("echo", build("echo", "")?), options, progress)
}

/// The bench `ipsec`.
pub(crate) fn ipsec(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    if options.figures {
        return figures::run(options, progress);
    }
    let associations = Associations::asked(options)?;
    if options.together {
        return together::run(&associations, options, progress);
    }
    let opened = if options.decrypt { ", opened" } else { "" };
    if options.through_lane() {
        progress(&format!("ipsec: {}, {} SAs{opened}", associations.name(), associations.sas));
        let function = many_sas(&associations, 1)?;
        let any = |random: &mut Random| associations.any(random);
        let workload = Workload { sizes: &throughput::SIZES, job: Some(&any), ..Workload::new("ipsec", function) };
        return measure(workload, options, progress);
    }
    if options.sas.is_some() {
        let message = "packets of so many SAs go through a device's lane: say --mode launch too";
        return Err(Error::Setup(message.to_owned()));
    }
    // One suite of ESP, with a peer.
    if let Some(suite) = associations.only().filter(|suite| suite.protocol == Protocol::Esp) {
        return whole(suite, options.decrypt, options, progress);
    }
    if options.decrypt {
        let message = "packets of AH, and of several suites, are opened through a device's lane: say --mode launch too";
        return Err(Error::Setup(message.to_owned()));
    }
    let function = many_sas(&associations.with(1), 1)?;
    let sizes = [Size::Bytes(60), Size::Bytes(252), Size::Bytes(508), Size::Bytes(1020), Size::Bytes(1404), Size::Imix];
    measure(Workload { sizes: &sizes, ..Workload::new("ipsec", function) }, options, progress)
}

/// `ipsec` with these SAs, keys by seed; all packets for the host half are protected by the first.
pub(crate) fn many_sas(associations: &Associations, seed: u64) -> Result<Arc<dyn Function>, Error> {
    build("ipsec", &(associations.text("sa", seed) + "[[policy]]\naction = \"protect\"\nsa = \"sa-0\"\n"))
}

/// 10,000 patterns of 8 to 24 letters.
pub(crate) fn patterns() -> Vec<String> {
    let mut random = Random::new(10_000);
    let mut word = || (0..8 + random.below(17)).map(|_| (b'a' + random.below(26) as u8) as char).collect::<String>();
    (0..10_000).map(|_| word()).collect()
}

/// `dpi` that looks for them.
pub(crate) fn inspection(patterns: &[String], progress: &mut Progress<'_>) -> Result<Arc<dyn Function>, Error> {
    let file = routes::temporary(patterns.join("\n").as_bytes())?;
    let started = Instant::now();
    let function = build("dpi", &format!("patterns = {:?}", file.path().display().to_string()))?;
    let built_ms = started.elapsed().as_millis();
    progress(&format!("10,000 patterns: image of {} MB built in {built_ms} ms", function.image().len() >> 20));
    Ok(function)
}

/// Random bytes, and in 30 % of the packets one of the patterns.
pub(crate) fn plant(patterns: &[String], random: &mut Random, payload: &mut [u8]) {
    payload.fill_with(|| random.next_u32() as u8);
    let pattern = patterns[random.below(patterns.len() as u32) as usize].as_bytes();
    if random.below(100) < 30 && payload.len() > pattern.len() {
        let at = random.below((payload.len() - pattern.len()) as u32) as usize;
        payload[at..at + pattern.len()].copy_from_slice(pattern);
    }
}

/// The bench `dpi`: 10,000 patterns of 8 to 24 letters, in 30 % of the packets.
pub(crate) fn dpi(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let patterns = patterns();
    let function = inspection(&patterns, progress)?;
    let frame = frames::filled(|random, payload| plant(&patterns, random, payload));
    let asked = options.peers && !options.through_lane();
    let peer = asked.then(|| aho_corasick::dfa::DFA::new(&patterns)).transpose().map_err(Error::setup)?;
    let competitor = peer.map(|peer| Competitor {
        device: "aho-corasick",
        implementation: "dfa",
        note: "the crate's DFA, all overlapping matches counted".to_owned(),
        mode: "call",
        packets: PACKETS,
        round: Box::new(move |frames| Ok(scan(&peer, frames))),
    });
    let sizes: &[Size] = if options.through_lane() {
        &throughput::SIZES
    } else {
        &[Size::Bytes(60), Size::Bytes(508), Size::Bytes(1404)]
    };
    let workload = Workload::new("dpi", function);
    measure(Workload { sizes, frame: &frame, competitor, ..workload }, options, progress)
}

fn scan(dfa: &aho_corasick::dfa::DFA, frames: &[Vec<u8>]) -> f64 {
    use aho_corasick::automaton::{Automaton, OverlappingState};
    let started = Instant::now();
    let mut matches = 0u64;
    for frame in frames {
        let input = aho_corasick::Input::new(&frame[42..]);
        let mut state = OverlappingState::start();
        while dfa.try_find_overlapping(&input, &mut state).is_ok() && state.get_match().is_some() {
            matches += 1;
        }
    }
    std::hint::black_box(matches);
    started.elapsed().as_nanos() as f64
}

/// Measures a function at each size, all implementations and the peer in turn.
pub(crate) fn measure(
    workload: Workload<'_>,
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    if options.through_lane() {
        return throughput::measure(&workload, options, progress);
    }
    let Workload { bench, function, sizes, frame, refresh, mut competitor, before, note: front, .. } = workload;
    let mut runners = runners(&function, options)?;
    if !options.peers {
        competitor = None;
    }
    let sizes = if options.sizes.is_empty() { sizes } else { &options.sizes };
    let mut rows = Vec::new();
    for &size in sizes {
        progress(&format!("{bench} at {size}"));
        let mut packets = Packets::new(PACKETS, size, frame)?;
        let mut preparation = before.as_ref().map(|before| Preparation::new(before, &mut packets)).transpose()?;
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); runners.len()];
        let mut peer_times = Vec::new();
        let started = Instant::now();
        while started.elapsed() < options.time || times[0].is_empty() {
            for (runner, times) in runners.iter_mut().zip(&mut times) {
                let round = Instant::now();
                while round.elapsed() < ROUND || times.len() < 3 {
                    match refresh {
                        Refresh::Frames => (),
                        Refresh::Addresses => packets.redirect(),
                        Refresh::Made => packets.make_again(frame),
                    }
                    if let Some(preparation) = &mut preparation {
                        preparation.again(&mut packets)?;
                    }
                    times.push(runner.pass(&mut packets)?);
                }
            }
            if let Some(competitor) = &mut competitor {
                let plain = preparation.as_ref().map_or(packets.frames(), |preparation| preparation.plain.frames());
                peer_times.push((competitor.round)(plain)?);
            }
        }
        let bits = packets.bytes() as f64 * 8.0 / PACKETS as f64;
        let row = |device: &str, form: &str, mode: &'static str, times: &mut [f64], count: usize, note: String| {
            let (p50, p99) = median_p99(times);
            let mpps = count as f64 / p50 * 1e3;
            Row {
                bench: bench.to_owned(),
                device: device.to_owned(),
                implementation: form.to_owned(),
                mode,
                size: Some(size),
                batch: BIN_PACKETS,
                mpps,
                gbps: mpps * bits / 1e3,
                p50_us: p50 / 1e3 / count as f64 * BIN_PACKETS as f64,
                p99_us: p99 / 1e3 / count as f64 * BIN_PACKETS as f64,
                watts: None,
                peer: false,
                note,
            }
        };
        for (runner, times) in runners.iter_mut().zip(&mut times) {
            let (kernel, _) = median_p99(&mut runner.kernel_ns);
            runner.kernel_ns.clear();
            let said = runner.host_half.is_some();
            let said = said.then(|| format!("{:.1} ns a packet in the kernel", kernel / PACKETS as f64));
            let parts: Vec<String> =
                [Some(front.clone()), said].into_iter().flatten().filter(|part| !part.is_empty()).collect();
            rows.push(row("cpu", &runner.form, "call", times, PACKETS, parts.join("; ")));
        }
        if let Some(competitor) = &competitor {
            let Competitor { device, implementation, mode, ref note, packets, .. } = *competitor;
            rows.push(Row { peer: true, ..row(device, implementation, mode, &mut peer_times, packets, note.clone()) });
        }
        say_ratio(&rows, progress);
    }
    Ok(rows)
}

/// Says how the best of ours compares with the peer, at the size measured last.
pub(crate) fn say_ratio(rows: &[Row], progress: &mut Progress<'_>) {
    let Some(peer) = rows.last().filter(|row| row.peer) else {
        return;
    };
    let ours = rows.iter().filter(|row| !row.peer && row.size == peer.size).map(|row| row.mpps);
    let best = ours.fold(0.0, f64::max);
    let mut line = String::new();
    let _ = write!(line, "{:.2} Mpps against {:.2} of {}: ratio {:.2}", best, peer.mpps, peer.device, best / peer.mpps);
    progress(&line);
}

/// Passes that frames are made for together: most passes then find in the caches what a pass before them left there.
const PREPARED_PASSES: usize = 16;

/// What is done with packets before they are what is measured.
struct Preparation {
    plain: Packets,
    runner: Runner,
    /// Frames of passes to come.
    ready: Vec<Vec<Vec<u8>>>,
    /// Index of those of the next pass.
    next: usize,
}

impl Preparation {
    /// Makes `packets` those that `function` makes of them.
    fn new(function: &Arc<dyn Function>, packets: &mut Packets) -> Result<Self, Error> {
        let runner = Runner::new(function, Implementation::Native)?;
        let plain = Packets::of(packets.frames().to_vec())?;
        let mut preparation = Self { plain, runner, ready: Vec::new(), next: PREPARED_PASSES };
        let mut frames = Vec::with_capacity(PACKETS);
        preparation.each(&mut |_, frame| frames.push(frame.to_vec()))?;
        preparation.ready = vec![frames.clone(); PREPARED_PASSES];
        *packets = Packets::of(frames)?;
        Ok(preparation)
    }

    /// Makes `packets` new ones, as long as they were.
    fn again(&mut self, packets: &mut Packets) -> Result<(), Error> {
        if self.next == PREPARED_PASSES {
            let mut ready = std::mem::take(&mut self.ready);
            for frames in &mut ready {
                self.each(&mut |index, frame| frames[index].copy_from_slice(frame))?;
            }
            (self.ready, self.next) = (ready, 0);
        }
        packets.exchange(&mut self.ready[self.next]);
        self.next += 1;
        Ok(())
    }

    /// Does it with all packets once more.
    fn each(&mut self, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), Error> {
        let mut index = 0;
        let mut show = |region: &Region, chunk: &Chunk| {
            for descriptor in chunk.descriptors.iter() {
                take(index, region.frame(descriptor));
                index += 1;
            }
        };
        self.runner.pass_to(&mut self.plain, &mut show)?;
        Ok(())
    }
}

/// One implementation on the CPU.
struct Runner {
    form: String,
    lane: Box<dyn Lane>,
    host_half: Option<Box<dyn HostHalf>>,
    variant: u8,
    kernel: u8,
    work: WorkColumns,
    outcomes: Vec<Outcome>,
    /// Of each pass, what the kernel took.
    kernel_ns: Vec<f64>,
}

/// The implementations asked for; without a wish, the fast one.
fn runners(function: &Arc<dyn Function>, options: &BenchOptions) -> Result<Vec<Runner>, Error> {
    let implementations = match options.implementation.as_deref() {
        None | Some("native") => vec![Implementation::Native],
        Some("gopt") => vec![Implementation::Gopt],
        Some("scalar") => vec![Implementation::Scalar],
        Some("ref") => vec![Implementation::Ref],
        Some("all") => vec![Implementation::Ref, Implementation::Scalar, Implementation::Gopt, Implementation::Native],
        Some(name) => {
            let known = ["ref", "scalar", "gopt", "native", "all"].map(str::to_owned).to_vec();
            return Err(Error::Unknown { what: "implementation", name: name.to_owned(), known });
        }
    };
    implementations.into_iter().map(|implementation| Runner::new(function, implementation)).collect()
}

impl Runner {
    fn new(function: &Arc<dyn Function>, implementation: Implementation) -> Result<Self, Error> {
        let name = function.contract().kind.to_owned();
        let program: Arc<dyn Program> = Arc::new(FunctionProgram::new(name, Arc::clone(function)));
        let device = Arc::new(CpuDevice::new(vec![(program, implementation)]).map_err(Error::setup)?);
        Ok(Self {
            form: device.choices()[0].form.clone(),
            lane: device.lane().map_err(Error::setup)?,
            host_half: function.host_half(0, 1),
            variant: function.variant(),
            kernel: function.contract().kernel,
            work: WorkColumns::default(),
            outcomes: vec![Outcome::default(); BIN_PACKETS],
            kernel_ns: Vec::new(),
        })
    }

    /// One pass over all packets: nanoseconds in host half and kernel, with what the host half learns afterwards.
    fn pass(&mut self, packets: &mut Packets) -> Result<f64, Error> {
        self.pass_to(packets, &mut |_, _| ())
    }

    /// The same; each chunk is shown before its packets are what they were again.
    fn pass_to(&mut self, packets: &mut Packets, show: &mut dyn FnMut(&Region, &Chunk)) -> Result<f64, Error> {
        let (mut total_ns, mut kernel_ns) = (0.0, 0.0);
        let mut chunk = Chunk::new(1, BIN_PACKETS);
        for start in (0..PACKETS).step_by(BIN_PACKETS) {
            let range = start..start + BIN_PACKETS;
            packets.refresh(range.clone());
            chunk.descriptors.copy_from_slice(&packets.descriptors[range.clone()]);
            let mut bin =
                Bin { count: BIN_PACKETS as u16, kernel: self.kernel, variant: self.variant, ..Bin::default() };
            let started = Instant::now();
            if let Some(host_half) = &mut self.host_half {
                self.work.clear();
                host_half.prepare_columns(&packets.region, &chunk.descriptors, &mut self.work);
                match self.work.run(0) {
                    Some((variant, BIN_PACKETS)) => bin.variant = variant,
                    _ => {
                        let what = format!("the host half settles packets, or parts them: {:?}", self.work.at(0));
                        return Err(Error::Wrong { who: self.form.clone(), what });
                    }
                }
                chunk.parameters.copy_from_slice(self.work.parameters(0..BIN_PACKETS));
            }
            chunk.bins.clear();
            chunk.bins.push(bin);
            let begun = started.elapsed();
            self.lane.submit(&mut packets.region, chunk).map_err(|rejected| Error::setup(rejected.error))?;
            let done = self.lane.poll(&mut packets.region).map_err(Error::setup)?;
            kernel_ns += (started.elapsed() - begun).as_nanos() as f64;
            if let (Some(host_half), Some(chunk)) = (&mut self.host_half, &done) {
                // A worker reads the outcomes from the chunk, and so does this.
                self.outcomes.copy_from_slice(&chunk.outcomes);
                host_half.complete(bin.variant, &chunk.descriptors, &chunk.parameters, &mut self.outcomes);
            }
            total_ns += started.elapsed().as_nanos() as f64;
            chunk = done.ok_or_else(|| Error::Setup("the CPU gave no chunk back".to_owned()))?;
            self.check(&chunk)?;
            show(&packets.region, &chunk);
        }
        self.kernel_ns.push(kernel_ns);
        Ok(total_ns)
    }

    /// Where there is a host half, every packet is one that it lets through: a pass over packets that are dropped at once would be
    /// fast.
    fn check(&self, chunk: &Chunk) -> Result<(), Error> {
        let drops = |outcomes: &[Outcome]| outcomes.iter().filter(|said| said.verdict == VERDICT_DROP).count();
        let dropped = if self.host_half.is_some() { drops(&self.outcomes).max(drops(&chunk.outcomes)) } else { 0 };
        if dropped == 0 {
            return Ok(());
        }
        let what = format!("{dropped} of {} packets dropped", chunk.outcomes.len());
        Err(Error::Wrong { who: self.form.clone(), what })
    }
}

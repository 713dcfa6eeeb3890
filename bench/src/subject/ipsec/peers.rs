//! The peer ipsec-mb on all cores, and on the cores that do not feed a device. Each core runs a
//! separate process.
//!
//! All processes begin a round at the same time. Each gets jobs in proportion to its rate alone, so
//! that all end at about the same time. The rate of a process refers to its whole round.

use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use godwit_function::ipsec::suite::{Protocol, Suite};
use godwit_packet::{ArenaConfig, Layout};

use super::jobs::{keys, packets, stanza};
use super::whole::direction;
use crate::error::Error;
use crate::load::associations::Associations;
use crate::load::build::build;
use crate::load::frames::{self, Random};
use crate::load::routes;
use crate::load::size::Size;
use crate::progress::Progress;
use crate::run::cores;
use crate::run::flow::Flow;
use crate::run::flow::passes::Passes;
use crate::run::peer::{self, Peer};
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};
use crate::run::several::{even, on_threads};

/// The peer program, with the suite and direction that it measures.
pub(super) struct Program {
    path: PathBuf,
    suite: &'static Suite,
    decrypts: bool,
}

/// Returns the peer, or `None` if it was not built or does not support the request. It supports a
/// single ESP suite.
pub(super) fn find(associations: &Associations, decrypts: bool, progress: &mut Progress<'_>) -> Option<Program> {
    let suite = associations.only().filter(|suite| suite.protocol == Protocol::Esp)?;
    let path = peer::find_or_report("ipsec_mb", progress)?;
    Some(Program { path, suite, decrypts })
}

/// One process per core. All have copies of the same packets.
pub(super) struct Peers<'a> {
    peers: Vec<Peer>,
    cores: &'a [usize],
    size: Size,
    packets: usize,
    frame_bytes: f64,
    suite: &'static Suite,
    decrypts: bool,
    /// Sum of the data and ICV words of the first packets, by number of packets.
    sums: Vec<u64>,
}

/// A participant of a round.
enum Part<'a> {
    Device { core: usize, flow: &'a mut Flow, passes: &'a mut [Passes], chunks: usize },
    Peer { peer: &'a mut Peer, packets: usize },
}

impl<'a> Peers<'a> {
    /// Starts a process on each core.
    pub(super) fn start(program: &Program, cores: &'a [usize], size: Size, count: usize) -> Result<Self, Error> {
        let keys = keys(program.suite);
        let function = build("ipsec", &stanza(program.suite, &keys, false))?;
        let mut random = Random::new(7);
        let frames: Vec<Vec<u8>> = (0..count).map(|_| frames::frame(size, &mut random, &frames::noise)).collect();
        // The same layout as packets that go through a lane.
        let properties = function.properties();
        let config = ArenaConfig {
            layout: Layout::Dense,
            headroom_bytes: properties.headroom_bytes.into(),
            tailroom_bytes: properties.tailroom_bytes.into(),
            tailroom_saved: properties.tailroom_saved,
            align_bytes: 64,
            ..ArenaConfig::default()
        };
        let (bytes, of_packets) = packets(program.suite, program.decrypts, &*function, &keys, &frames, &config)?;
        let sums = std::iter::once(0).chain(of_packets.iter().scan(0, |sum, of_packet| {
            *sum += of_packet;
            Some(*sum)
        }));
        let file = routes::temporary(&bytes)?;
        let start = |core: &usize| cores::on(&[*core], || Peer::start(&program.path, &[file.path().as_os_str()]));
        Ok(Self {
            peers: on_threads(cores.iter().collect(), start)?,
            cores,
            size,
            packets: count,
            frame_bytes: frames.iter().map(Vec::len).sum::<usize>() as f64 / count as f64,
            suite: program.suite,
            decrypts: program.decrypts,
            sums: sums.collect(),
        })
    }

    /// Returns a row of all processes alone, and a row of the device together with the processes on
    /// the cores that do not feed it. The device alone reaches `device_mpps`. Together with our
    /// form on the other cores, it reaches `both_mpps`.
    pub(super) fn rows(
        mut self,
        on_device: &mut [Flow],
        device_mpps: f64,
        both_mpps: f64,
        time: Duration,
    ) -> Result<[Row; 2], Error> {
        let (all, feeding) = (self.cores.len(), on_device.len());
        let (alone_mpps, _) = self.rounds(&mut [], &vec![self.packets; all], time)?;
        let each = alone_mpps[1] / all as f64;
        let details = Details::default().with("cores", all).with("ours_of_peer", both_mpps / alone_mpps[1]);
        let alone = self.row("ipsec-mb".to_owned(), alone_mpps[1], details);

        let mut prepared: Vec<(usize, usize)> = on_device.iter().map(Flow::prepared).collect();
        let mut rates = vec![device_mpps / feeding as f64; feeding];
        prepared.resize(all, (self.packets, self.packets));
        rates.resize(all, each);
        let limits = even(&prepared, &rates);
        let ([device, cpu], apart) = self.rounds(on_device, &limits, time)?;
        let details = Details::default()
            .with("cores", all)
            .with("feeding_cores", feeding)
            .with("device_mpps", device)
            .with("cpu_mpps", cpu)
            .with("share_of_cpu_alone", (device + cpu) / alone_mpps[1])
            .with("longest_of_shortest_part", apart);
        let id = on_device[0].device.capabilities().id.clone();
        Ok([alone, self.row(format!("{id}+ipsec-mb"), device + cpu, details)])
    }

    /// Runs rounds for about `time`, but at least three rounds. Returns the median rates of the
    /// device and of the peers in millions of packets per second. Also returns the median ratio of
    /// the longest to the shortest part of a round. `limits` contains the chunks of each flow, then
    /// the packets of each peer.
    fn rounds(&mut self, flows: &mut [Flow], limits: &[usize], time: Duration) -> Result<([f64; 2], f64), Error> {
        let feeding = flows.len();
        let (mut rates, mut apart) = ([Vec::new(), Vec::new()], Vec::new());
        let mut passes: Vec<Vec<Passes>> = flows.iter().map(Flow::no_passes).collect();
        let started = Instant::now();
        while rates[0].len() < 3 || started.elapsed() < time {
            on_threads(flows.iter_mut().collect(), Flow::refresh)?;
            on_threads(self.peers[feeding..].iter_mut().collect(), |peer| peer.ask("fresh").map(|_| ()))?;
            let on_device = self
                .cores
                .iter()
                .zip(flows.iter_mut())
                .zip(&mut passes)
                .zip(limits)
                .map(|(((&core, flow), passes), &chunks)| Part::Device { core, flow, passes, chunks });
            let others = self.peers[feeding..].iter_mut().zip(&limits[feeding..]);
            let parts: Vec<Part<'_>> =
                on_device.chain(others.map(|(peer, &packets)| Part::Peer { peer, packets })).collect();
            let barrier = Barrier::new(parts.len());
            let sums = &self.sums;
            // Packets per nanosecond and nanoseconds of each part.
            let round: Vec<(f64, f64)> = on_threads(parts, |part| part.run(&barrier, sums))?;
            let sum = |parts: &[(f64, f64)]| parts.iter().map(|(rate, _)| rate * 1e3).sum::<f64>();
            rates[0].push(sum(&round[..feeding]));
            rates[1].push(sum(&round[feeding..]));
            let times = round.iter().map(|(_, time_ns)| *time_ns);
            apart.push(times.clone().fold(0.0, f64::max) / times.fold(f64::INFINITY, f64::min));
        }
        flows.iter().try_for_each(Flow::check_drops)?;
        Ok((rates.map(|mut rates| median_p99(&mut rates).0), median_p99(&mut apart).0))
    }

    fn row(&self, device: String, mpps: f64, details: Details) -> Row {
        Row {
            device,
            implementation: "jobs".to_owned(),
            mode: "process".to_owned(),
            size: Some(self.size),
            batch: 1,
            mpps,
            gbps: mpps * self.frame_bytes * 8.0 / 1e3,
            peer: true,
            details: details
                .with("work", "bare jobs, one by one")
                .with("packets", self.packets)
                .with("suite", self.suite.name)
                .with("direction", direction(self.decrypts)),
            ..Row::default()
        }
    }
}

impl Part<'_> {
    /// Runs this part of a round. Returns its rate in packets per nanosecond, and its time in
    /// nanoseconds.
    fn run(self, barrier: &Barrier, sums: &[u64]) -> Result<(f64, f64), Error> {
        match self {
            Part::Device { core, flow, passes, chunks } => {
                let pinned = cores::pin(&[core]);
                barrier.wait();
                pinned?;
                let started = Instant::now();
                flow.pass(passes, None, &[chunks])?;
                let rate = passes[0].rates.last().copied().unwrap_or(0.0);
                Ok((rate, started.elapsed().as_nanos() as f64))
            }
            Part::Peer { peer, packets } => {
                barrier.wait();
                let (time_ns, sum) = peer.ask(&format!("jobs {packets}"))?;
                if sum != sums[packets] {
                    let what = format!("the sum of {packets} packets is {sum} instead of {}", sums[packets]);
                    return Err(Error::Wrong { who: "ipsec_mb".to_owned(), what });
                }
                Ok((packets as f64 / time_ns, time_ns))
            }
        }
    }
}

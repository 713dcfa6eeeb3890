//! The peer ipsec-mb on all cores, and on those beside a device: a process for each core, which does jobs of its own.
//!
//! A round begins at the same time for all; how much each does in it follows from what it did alone, so that all end at about the
//! same time. A process knows nothing of the others' time, so its rate is that of the whole round.

use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use godwit_function::ipsec::suite::{Protocol, Suite};
use godwit_packet::{ArenaConfig, Layout};

use super::{keys, packets, stanza};
use crate::flow::Flow;
use crate::frames::{self, Random};
use crate::function::build;
use crate::passes::Passes;
use crate::peer::{self, Peer};
use crate::several::{even, on_threads};
use crate::suites::Associations;
use crate::{BenchOptions, Error, Progress, Row, Size, cores, median_p99, routes};

/// The peer's program, and what it is to do.
pub(super) struct Program {
    path: PathBuf,
    suite: &'static Suite,
    opens: bool,
}

/// `None` where it is not wanted, is not built, or does nothing of what is asked for: it does one suite of ESP.
pub(super) fn find(
    associations: &Associations,
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Option<Program> {
    let suite = associations.only().filter(|suite| suite.protocol == Protocol::Esp)?;
    if !options.peers {
        return None;
    }
    let path = peer::find("ipsec_mb");
    if path.is_none() {
        progress("peer ipsec_mb is not built (`make peers`): left out");
    }
    path.map(|path| Program { path, suite, opens: options.decrypt })
}

/// One for each core, each with a copy of the same packets.
pub(super) struct Peers<'a> {
    peers: Vec<Peer>,
    cores: &'a [usize],
    size: Size,
    packets: usize,
    frame_bytes: f64,
    /// Of the first packets, so many, the sum of the words of their data and ICVs.
    sums: Vec<u64>,
}

/// Who takes part in a round.
enum Part<'a> {
    Device { core: usize, flow: &'a mut Flow, passes: &'a mut [Passes], chunks: usize },
    Peer { peer: &'a mut Peer, packets: usize },
}

impl<'a> Peers<'a> {
    /// Starts them on their cores.
    pub(super) fn start(program: &Program, cores: &'a [usize], size: Size, count: usize) -> Result<Self, Error> {
        let keys = keys(program.suite);
        let function = build("ipsec", &stanza(program.suite, &keys, false))?;
        let mut random = Random::new(7);
        let frames: Vec<Vec<u8>> = (0..count).map(|_| frames::frame(size, &mut random, &frames::noise)).collect();
        // As packets lie that go through a lane.
        let config = ArenaConfig {
            layout: Layout::Dense,
            headroom_bytes: function.headroom_bytes().into(),
            tailroom_bytes: function.tailroom_bytes().into(),
            tailroom_saved: function.tailroom_saved(),
            align_bytes: 64,
            ..ArenaConfig::default()
        };
        let (bytes, of_packets) = packets(program.suite, program.opens, &*function, &keys, &frames, &config)?;
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
            sums: sums.collect(),
        })
    }

    /// All of them alone; and those beside the cores that feed the device, which alone does `device_mpps`, and with our form on the other
    /// cores `both_mpps`.
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
        let note = format!(
            "{all} cores alone, a process each; device and native together are {:.2} of it",
            both_mpps / alone_mpps[1]
        );
        let alone = self.row("ipsec-mb".to_owned(), alone_mpps[1], note);

        let mut prepared: Vec<(usize, usize)> = on_device.iter().map(Flow::prepared).collect();
        let mut rates = vec![device_mpps / feeding as f64; feeding];
        prepared.resize(all, (self.packets, self.packets));
        rates.resize(all, each);
        let limits = even(&prepared, &rates);
        let ([device, cpu], apart) = self.rounds(on_device, &limits, time)?;
        let note = format!(
            "together: device {device:.2} Mpps fed by {feeding} cores, ipsec-mb {cpu:.2} by {}; {:.2} of {all} cores of ipsec-mb alone; \
             the longest part of a round took {apart:.2} x the shortest, median",
            all - feeding,
            (device + cpu) / alone_mpps[1]
        );
        let id = on_device[0].device.capabilities().id.clone();
        Ok([alone, self.row(format!("{id}+ipsec-mb"), device + cpu, note)])
    }

    /// Rounds for about `time`, three at least: of the device and of the peers the median of millions of packets per second, and how much
    /// longer than the shortest part the longest took. `limits`: chunks of each flow, then packets of each peer.
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
            let beside = self.peers[feeding..].iter_mut().zip(&limits[feeding..]);
            let parts: Vec<Part<'_>> =
                on_device.chain(beside.map(|(peer, &packets)| Part::Peer { peer, packets })).collect();
            let barrier = Barrier::new(parts.len());
            let sums = &self.sums;
            // Packets per nanosecond, and nanoseconds.
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

    fn row(&self, device: String, mpps: f64, note: String) -> Row {
        Row {
            bench: "ipsec".to_owned(),
            device,
            implementation: "jobs".to_owned(),
            mode: "process",
            size: Some(self.size),
            batch: 1,
            mpps,
            gbps: mpps * self.frame_bytes * 8.0 / 1e3,
            p50_us: 0.0,
            p99_us: 0.0,
            watts: None,
            peer: true,
            note: format!("bare jobs one by one, {} packets each; {note}", self.packets),
        }
    }
}

impl Part<'_> {
    /// Its part of a round: packets per nanosecond, and how long it took.
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
                    let what = format!("data and ICVs of {packets} packets add up to {sum}, ours to {}", sums[packets]);
                    return Err(Error::Wrong { who: "ipsec_mb".to_owned(), what });
                }
                Ok((packets as f64 / time_ns, time_ns))
            }
        }
    }
}

//! `ipsec` on CPU cores and a device together, arena to arena, and each of them alone in the same
//! run.
//!
//! ```text
//! alone      | all cores: native, each with its own packets and SAs         |
//! alone      | k cores feed the device | others idle                        |
//! together   | k cores feed the device | others: native                     |
//! ```
//! Rates refer to the time in which all were busy (`run/several.rs`). `peers.rs` adds the rows of
//! the peer.

use std::sync::Arc;

use godwit_device::{Implementation, LAST_RESORT};
use godwit_function::Function;

use super::peers::{self, Peers};
use super::whole::direction;
use crate::error::Error;
use crate::load::associations::Associations;
use crate::load::frames::Random;
use crate::load::size::Size;
use crate::progress::Progress;
use crate::run::cores;
use crate::run::feed::Feed;
use crate::run::flow::Flow;
use crate::run::flow::passes::Passes;
use crate::run::lane::{self, Packets};
use crate::run::options::{Context, LaneOptions, choice};
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};
use crate::run::several::{self, Side, even, on_threads};
use crate::run::workload::Workload;

/// Smallest number of packets of a core.
const CORE_PACKETS: usize = 1 << 16;
/// Minimum number of frame bytes per core. The arenas of sixteen cores exceed the last-level cache.
const CORE_BYTES: usize = 16 << 20;
/// Packets of a core's chunks and bins, as in `run/feed.rs`.
const CORE_BATCH: usize = 256;

/// Measures all cores alone, the device alone and both at once, for each size. Also measures the
/// peer on all cores, and on the cores that do not feed the device.
pub(in crate::subject) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let options = &LaneOptions::parse(context)?;
    let choice = choice(&context.values)?;
    let associations = &Associations::of(&choice)?;
    let (cores, feeding) = cores::with_device(options)?;
    progress(&format!("ipsec: {}, {} SAs for each core and for the device", associations.name(), associations.sas));
    let links = several::links(&options.common, progress);
    let links: Vec<Option<f64>> = links.alone().collect();
    let functions = on_threads((1..=cores.len() as u64).collect(), |seed| associations.function(seed))?;
    let use_peer = options.common.peers;
    let peer = if use_peer { peers::find(associations, choice.decrypt, progress) } else { None };
    let mut rows = Vec::new();
    for &size in &options.common.sizes {
        let together = Together {
            options,
            associations,
            decrypts: choice.decrypt,
            cores: &cores,
            feeding,
            functions: &functions,
            links: &links,
            size,
        };
        let (mut on_device, verified) = together.on_device(progress)?;
        let ours = together.rows(&mut on_device, verified, progress)?;
        if let Some(peer) = &peer {
            let peers = Peers::start(peer, &cores, size, together.core_feed().packets)?;
            progress(&format!("ipsec-mb at {size}: {} processes", cores.len()));
            let [_, device_alone, both] = ours.each_ref().map(|row| row.mpps);
            let theirs = peers.rows(&mut on_device, device_alone, both, options.common.time)?;
            rows.extend(ours.into_iter().chain(theirs));
        } else {
            rows.extend(ours);
        }
    }
    Ok(rows)
}

struct Together<'a> {
    options: &'a LaneOptions,
    associations: &'a Associations,
    decrypts: bool,
    cores: &'a [usize],
    /// Number of cores that feed the device. These cores come first.
    feeding: usize,
    /// One function with separate SAs per core. The device uses the first one.
    functions: &'a [Arc<dyn Function>],
    /// Copy rate of the device's link.
    links: &'a [Option<f64>],
    size: Size,
}

impl Together<'_> {
    /// Returns chunk size and arena size of a core.
    fn core_feed(&self) -> Feed {
        let enough = CORE_PACKETS.max(CORE_BYTES / self.size.frame_bytes_max());
        let limit = if self.options.common.brief() { CORE_PACKETS / 32 } else { enough };
        let packets = self.options.packets.map_or(limit, |packets| packets.min(limit));
        let batch = CORE_BATCH.min(packets);
        Feed { batch, bin_packets: CORE_BATCH, in_flight: 1, packets }
    }

    /// Prepares packets for each of `threads` threads that feed a device. Returns the number of
    /// packets that were compared with `ref`.
    fn flows(
        &self,
        device: &str,
        feed: &Feed,
        function: &Arc<dyn Function>,
        threads: usize,
    ) -> Result<(Vec<Flow>, usize), Error> {
        let any = |random: &mut Random| self.associations.any(random);
        let workload = Workload { job: Some(&any), ..Workload::new(Arc::clone(function)) };
        let packets = Packets::of(&workload);
        let native = Implementation::Native;
        let mut flows = lane::flows(packets, self.options, device, native, feed, self.size, threads)?;
        let verified = on_threads(flows.iter_mut().collect(), Flow::verify)?;
        Ok((flows, verified.iter().map(|(verified, _)| verified).sum()))
    }

    fn device_feed(&self) -> Result<Feed, Error> {
        Feed::for_threads(self.options, self.size, self.feeding)
    }

    /// Prepares the packets for the device on the cores that feed it.
    fn on_device(&self, progress: &mut Progress<'_>) -> Result<(Vec<Flow>, usize), Error> {
        let device = self.options.device();
        let feed = self.device_feed()?;
        let make = || self.flows(device, &feed, &self.functions[0], self.feeding);
        let (flows, verified) = cores::on(&self.cores[..self.feeding], make)?;
        if let Some(reason) = flows[0].device.fallback() {
            progress(&format!("{device} runs in mode {}: {reason}", flows[0].device.mode().name()));
        }
        progress(&format!("ipsec at {} on {device}: {verified} packets compared with ref", self.size));
        Ok((flows, verified))
    }

    /// Measures all cores alone, the device alone and both at once.
    fn rows(&self, on_device: &mut [Flow], verified: usize, progress: &mut Progress<'_>) -> Result<[Row; 3], Error> {
        let &Self { options, cores, feeding, size, .. } = self;
        let (device, all, time) = (options.device(), cores.len(), options.common.time);
        let (core_feed, device_feed) = (self.core_feed(), self.device_feed()?);
        let made = on_threads(cores.iter().zip(self.functions).collect(), |(&core, function)| {
            cores::pin(&[core])?;
            self.flows(LAST_RESORT, &core_feed, function, 1)
        })?;
        let (on_cores, compared): (Vec<Vec<Flow>>, Vec<usize>) = made.into_iter().unzip();
        let mut flows: Vec<Flow> = on_cores.into_iter().flatten().collect();
        let compared: usize = compared.iter().sum();
        progress(&format!("ipsec at {size} on {all} cores: {compared} packets compared with ref"));

        let whole = vec![vec![usize::MAX]; all];
        let form = flows[0].device.choices()[0].form.clone();
        let cpu_side =
            Side { form: &form, size, devices: &[LAST_RESORT], feed: &core_feed, links: &[], cores: Some(cores) };
        let (cpu_alone, mut passes) = cpu_side.measure(&mut flows, &whole, time)?;
        let mut alone: Vec<f64> = passes.iter_mut().map(Passes::mpps).collect();

        // From now on the first cores feed the device.
        flows[..feeding].swap_with_slice(on_device);
        let form = flows[0].device.choices()[0].form.clone();
        let device_side = Side { form: &form, devices: &[device], feed: &device_feed, links: self.links, ..cpu_side };
        let (device_alone, mut passes) = device_side.measure(&mut flows[..feeding], &whole[..feeding], time)?;
        alone.iter_mut().zip(&mut passes).for_each(|(alone, passes)| *alone = passes.mpps());

        let limits = even(&flows.iter().map(Flow::prepared).collect::<Vec<_>>(), &alone);
        let limits: Vec<Vec<usize>> = limits.into_iter().map(|chunks| vec![chunks]).collect();
        let side = Side { form: "both", devices: &[device, LAST_RESORT], ..device_side };
        let (both, mut passes) = side.measure(&mut flows, &limits, time)?;
        flows[..feeding].swap_with_slice(on_device);
        let mut latencies_ns: Vec<f64> =
            passes[..feeding].iter().flat_map(|passes| passes.latencies_ns.clone()).collect();
        let (p50, p99) = median_p99(&mut latencies_ns);
        let [by_device, by_cpu] =
            [0..feeding, feeding..all].map(|range| passes[range].iter_mut().map(Passes::mpps).sum::<f64>());

        let common = || {
            let details = Details::default().with("suite", self.associations.name()).with("cores", all);
            details.with("direction", direction(self.decrypts))
        };
        let cpu_alone_mpps = cpu_alone.mpps;
        let ratio = |mpps: f64| mpps / cpu_alone_mpps;
        let cpu = common().with("arena_packets", core_feed.packets).with("verified", compared);
        let on_device = common()
            .with("feeding_cores", feeding)
            .with("in_flight", device_feed.in_flight)
            .with("verified", verified)
            .with("share_of_cpu_alone", ratio(device_alone.mpps));
        // Latencies are those of the device.
        let together = common()
            .with("feeding_cores", feeding)
            .with("device_mpps", by_device)
            .with("cpu_mpps", by_cpu)
            .with("share_of_cpu_alone", ratio(both.mpps));
        Ok([
            Row { details: cpu.and(cpu_alone.details), ..cpu_alone },
            Row { details: on_device.and(device_alone.details), ..device_alone },
            Row { details: together.and(both.details), p50_us: p50 / 1e3, p99_us: p99 / 1e3, ..both },
        ])
    }
}

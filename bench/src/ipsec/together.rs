//! `ipsec` on the CPU's cores beside a device, arena to arena, in the same run as either alone.
//!
//! ```text
//! alone      | all cores: native, each with packets and SAs of its own      |
//! alone      | k cores feed the device | others idle                        |
//! together   | k cores feed the device | others: native                     |
//! ```
//! Rates are those of the time in which all were busy (`several.rs`). The rows of the peer are of `peers.rs`.

use std::sync::Arc;

use godwit_device::{Implementation, cpu};
use godwit_function::Function;

use super::peers::{self, Peers};
use crate::flow::Flow;
use crate::frames::Random;
use crate::function::{Workload, many_sas};
use crate::passes::Passes;
use crate::several::{self, Side, even, on_threads};
use crate::suites::Associations;
use crate::throughput::{self, Feed, Packets};
use crate::{BenchOptions, Error, LITTLE, Progress, Row, Size, cores, median_p99};

/// Frame sizes, where the user names none.
const SIZES: [Size; 3] = [Size::Bytes(60), Size::Bytes(1408), Size::Imix];
/// Of a core, at least, in packets and in bytes of the longest: sixteen cores' arenas are larger than the last-level cache.
const CORE_PACKETS: usize = 1 << 16;
const CORE_BYTES: usize = 16 << 20;
/// Packets of a core's chunks and bins, as of every CPU's (`throughput.rs`).
const CORE_BATCH: usize = 256;

/// The bench `ipsec` with `--together`: at each size all cores alone, the device alone, both at once; and the peer on all cores and
/// beside the device.
pub(crate) fn run(
    associations: &Associations,
    options: &BenchOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let (cores, feeding) = cores::beside_device(options)?;
    progress(&format!("ipsec: {}, {} SAs for each core and for the device", associations.name(), associations.sas));
    let links = several::links(options, progress);
    let links: Vec<Option<f64>> = links.alone().collect();
    let functions = on_threads((1..=cores.len() as u64).collect(), |seed| many_sas(associations, seed))?;
    let peer = peers::find(associations, options, progress);
    let sizes = if options.sizes.is_empty() { &SIZES[..] } else { &options.sizes };
    let mut rows = Vec::new();
    for &size in sizes {
        let together =
            Together { options, associations, cores: &cores, feeding, functions: &functions, links: &links, size };
        let (mut on_device, verified) = together.on_device(progress)?;
        let ours = together.rows(&mut on_device, verified, progress)?;
        if let Some(peer) = &peer {
            let peers = Peers::start(peer, &cores, size, together.core_feed().packets)?;
            progress(&format!("ipsec-mb at {size}: {} processes, each with packets of its own", cores.len()));
            let [_, device_alone, both] = ours.each_ref().map(|row| row.mpps);
            let theirs = peers.rows(&mut on_device, device_alone, both, options.time)?;
            rows.extend(ours.into_iter().chain(theirs));
        } else {
            rows.extend(ours);
        }
    }
    Ok(rows)
}

struct Together<'a> {
    options: &'a BenchOptions,
    associations: &'a Associations,
    cores: &'a [usize],
    /// How many of them feed the device, from the first on.
    feeding: usize,
    /// One for each core, with SAs of its own; the device has the first's.
    functions: &'a [Arc<dyn Function>],
    /// The device's.
    links: &'a [Option<f64>],
    size: Size,
}

impl Together<'_> {
    /// What a core has when it works itself.
    fn core_feed(&self) -> Feed {
        let enough = CORE_PACKETS.max(CORE_BYTES / self.size.frame_bytes_max());
        let most = if self.options.time < LITTLE { CORE_PACKETS / 32 } else { enough };
        let packets = self.options.packets.map_or(most, |packets| packets.min(most));
        let batch = CORE_BATCH.min(packets);
        Feed { batch, bin_packets: CORE_BATCH, in_flight: 1, packets }
    }

    /// Packets for each of so many threads that feed this device, each made on the thread's core.
    fn flows(
        &self,
        device: &str,
        feed: &Feed,
        function: &Arc<dyn Function>,
        threads: usize,
    ) -> Result<(Vec<Flow>, usize), Error> {
        let any = |random: &mut Random| self.associations.any(random);
        let workload = Workload { job: Some(&any), ..Workload::new("ipsec", Arc::clone(function)) };
        let packets = Packets::of(&workload);
        let native = Implementation::Native;
        let mut flows = throughput::flows(packets, self.options, device, native, feed, self.size, threads)?;
        let verified = on_threads(flows.iter_mut().collect(), Flow::verify)?;
        Ok((flows, verified.iter().map(|(verified, _)| verified).sum()))
    }

    fn device_feed(&self) -> Result<Feed, Error> {
        Feed::for_threads(self.options, self.size, self.feeding)
    }

    /// What the cores that feed it send to the device, compared with `ref`.
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

    /// All cores alone, the device alone, both at once.
    fn rows(&self, on_device: &mut [Flow], verified: usize, progress: &mut Progress<'_>) -> Result<[Row; 3], Error> {
        let &Self { options, cores, feeding, size, .. } = self;
        let (device, all) = (options.device(), cores.len());
        let (core_feed, device_feed) = (self.core_feed(), self.device_feed()?);
        let made = on_threads(cores.iter().zip(self.functions).collect(), |(&core, function)| {
            cores::pin(&[core])?;
            self.flows(cpu::ID, &core_feed, function, 1)
        })?;
        let (on_cores, compared): (Vec<Vec<Flow>>, Vec<usize>) = made.into_iter().unzip();
        let mut flows: Vec<Flow> = on_cores.into_iter().flatten().collect();
        let compared: usize = compared.iter().sum();
        progress(&format!("ipsec at {size} on {all} cores: {compared} packets compared with ref"));

        let whole = vec![vec![usize::MAX]; all];
        let form = flows[0].device.choices()[0].form.clone();
        let cpu_side = Side {
            bench: "ipsec",
            form: &form,
            size,
            devices: &[cpu::ID],
            feed: &core_feed,
            links: &[],
            cores: Some(cores),
        };
        let (cpu_alone, mut passes) = cpu_side.measure(&mut flows, &whole, options.time)?;
        let mut alone: Vec<f64> = passes.iter_mut().map(Passes::mpps).collect();

        // The first cores feed from now on.
        flows[..feeding].swap_with_slice(on_device);
        let form = flows[0].device.choices()[0].form.clone();
        let device_side = Side { form: &form, devices: &[device], feed: &device_feed, links: self.links, ..cpu_side };
        let (device_alone, mut passes) = device_side.measure(&mut flows[..feeding], &whole[..feeding], options.time)?;
        alone.iter_mut().zip(&mut passes).for_each(|(alone, passes)| *alone = passes.mpps());

        let limits = even(&flows.iter().map(Flow::prepared).collect::<Vec<_>>(), &alone);
        let limits: Vec<Vec<usize>> = limits.into_iter().map(|chunks| vec![chunks]).collect();
        let side = Side { form: "both", devices: &[device, cpu::ID], ..device_side };
        let (both, mut passes) = side.measure(&mut flows, &limits, options.time)?;
        flows[..feeding].swap_with_slice(on_device);
        let mut latencies_ns: Vec<f64> =
            passes[..feeding].iter().flat_map(|passes| passes.latencies_ns.clone()).collect();
        let (p50, p99) = median_p99(&mut latencies_ns);
        let [by_device, by_cpu] =
            [0..feeding, feeding..all].map(|range| passes[range].iter_mut().map(Passes::mpps).sum::<f64>());

        let name = self.associations.name();
        let ratio = |mpps: f64| mpps / cpu_alone.mpps;
        let cpu_note = format!(
            "{name}; {all} cores alone, {} packets each, {compared} compared with ref{}",
            core_feed.packets, cpu_alone.note
        );
        let device_note = format!(
            "{name}; fed by {feeding} of {all} cores, the others idle, {} in flight, {verified} compared with ref; {:.2} of {all} \
             cores alone{}",
            device_feed.in_flight,
            ratio(device_alone.mpps),
            device_alone.note
        );
        let both_note = format!(
            "{name}; together: device {by_device:.2} Mpps fed by {feeding} cores, CPU {by_cpu:.2} by {}; {:.2} of {all} cores alone; \
             times are the device's{}",
            all - feeding,
            ratio(both.mpps),
            both.note
        );
        Ok([
            Row { note: cpu_note, ..cpu_alone },
            Row { note: device_note, ..device_alone },
            Row { note: both_note, p50_us: p50 / 1e3, p99_us: p99 / 1e3, ..both },
        ])
    }
}

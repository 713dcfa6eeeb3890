//! One device for two functions, or for several threads: the cost of sharing.
//!
//! | row | setup |
//! |---|---|
//! | `ipsec alone`, `dpi alone` | one function with all groups of the device |
//! | `ipsec, any group` | chunks of both functions in flight; any group processes any bin |
//! | `ipsec, split 1:1` | the same with half of the persistent groups for each function |
//! | `ipsec, 2 threads` | two threads feed the device, each with its lane and packets |
//!
//! The packets of the two functions are independent. Each function has its own limit of chunks in
//! flight, and the work of a pass takes the same time for each function alone. Rates refer to the
//! time in which both were busy. `p50` and `p99` are the times of a chunk from submission to
//! completion.

use std::sync::Arc;

use godwit_device::{Implementation, Mode};
use godwit_function::Function;

use crate::error::Error;
use crate::load::associations::Associations;
use crate::load::frames::{self, Random};
use crate::load::job::Job;
use crate::load::patterns;
use crate::load::size::Size;
use crate::progress::Progress;
use crate::run::cores;
use crate::run::devices::modes;
use crate::run::feed::Feed;
use crate::run::flow::passes::Passes;
use crate::run::flow::{Flow, FlowConfig};
use crate::run::options::{Context, LaneOptions, choice};
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};
use crate::run::several::{at_once, even, uncounted};

/// Default numbers of threads that feed a device.
const THREADS: [usize; 4] = [1, 2, 4, 8];
/// Names of the functions, by instance.
const NAMES: [&str; 2] = ["ipsec", "dpi"];

/// Measures each size in each mode of the device.
pub(super) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let options = &LaneOptions::parse(context)?;
    let associations = Associations::of(&choice(&context.values)?)?;
    let patterns = patterns::patterns();
    let functions = [associations.function(1)?, patterns::inspection(&patterns, progress)?];
    let sharing = Sharing { options, associations: &associations, patterns: &patterns, functions: &functions };
    let modes = options.mode.map_or_else(|| modes(options.device()).to_vec(), |mode| vec![mode]);
    let cores = cores::count();
    let threads: Vec<usize> = match options.workers.as_slice() {
        [] => THREADS.into_iter().filter(|threads| *threads < cores.max(2)).collect(),
        workers => workers.to_vec(),
    };
    let mut rows = Vec::new();
    for &size in &options.common.sizes {
        for &mode in &modes {
            sharing.functions(size, mode, progress, &mut rows)?;
            sharing.threads(size, mode, &threads, progress, &mut rows)?;
        }
    }
    Ok(rows)
}

struct Sharing<'a> {
    options: &'a LaneOptions,
    associations: &'a Associations,
    patterns: &'a [String],
    functions: &'a [Arc<dyn Function>],
}

/// Rate of a function, and time of its chunks.
struct Figures {
    mpps: f64,
    p50_us: f64,
    p99_us: f64,
}

impl Figures {
    fn of(passes: &mut Passes) -> Self {
        let mpps = passes.mpps();
        let (p50, p99) = median_p99(&mut passes.latencies_ns);
        Self { mpps, p50_us: p50 / 1e3, p99_us: p99 / 1e3 }
    }
}

impl Sharing<'_> {
    /// Prepares chunks of one or both functions for several threads. If the device does not support
    /// the mode or has too few groups, reports this and returns `None`.
    fn flow(
        &self,
        instances: &[u16],
        share: &[u32],
        threads: usize,
        (size, mode): (Size, Mode),
        progress: &mut Progress<'_>,
    ) -> Result<Option<Vec<Flow>>, Error> {
        let (device, feed) = (self.options.device(), Feed::for_threads(self.options, size, threads)?);
        let config = FlowConfig {
            device,
            mode,
            implementation: Implementation::Native,
            resident: false,
            layout: self.options.layout,
            transfer: self.options.transfer.unwrap_or_default(),
            functions: self.functions,
            packets: feed.packets,
            bins: feed.batch.div_ceil(feed.bin_packets) + 4,
            bin_packets: feed.bin_packets,
            in_flight: feed.in_flight,
            share,
            chain: None,
        };
        let mut turn = instances.iter().copied().cycle();
        let mut job = |random: &mut Random| match turn.next() {
            Some(1) => Job::plain(1, self.functions[1].properties().variant),
            _ => self.associations.any(random),
        };
        let frame = frames::filled(|random, payload| patterns::plant(self.patterns, random, payload));
        let mut flows = Flow::for_threads(&config, threads, size, &frame, &mut job)?;
        if flows[0].device.mode() != mode {
            let why = flows[0].device.fallback().unwrap_or("it has no other mode");
            progress(&format!("{device} does not run in mode {} here: {why}", mode.name()));
            return Ok(None);
        }
        for flow in &mut flows {
            flow.prepare_apart(feed.batch.min(feed.packets / instances.len()).max(1), feed.bin_packets);
            let verified = flow.verify()?.0;
            progress(&format!("sharing at {size} on {device}: {verified} packets compared with ref"));
        }
        Ok(Some(flows))
    }

    fn row(
        &self,
        name: String,
        (size, mode): (Size, Mode),
        figures: &Figures,
        frame_bytes: f64,
        details: Details,
    ) -> Row {
        Row {
            device: self.options.device().to_owned(),
            implementation: name,
            mode: mode.name().to_owned(),
            size: Some(size),
            batch: Feed::new(self.options, size).batch,
            mpps: figures.mpps,
            gbps: figures.mpps * frame_bytes * 8.0 / 1e3,
            p50_us: figures.p50_us,
            p99_us: figures.p99_us,
            details,
            ..Row::default()
        }
    }

    /// Measures each function alone, and both at once, with and without a split of the groups.
    fn functions(&self, size: Size, mode: Mode, progress: &mut Progress<'_>, rows: &mut Vec<Row>) -> Result<(), Error> {
        let mut alone = Vec::new();
        for instance in [0, 1] {
            let Some(mut flows) = self.flow(&[instance], &[], 1, (size, mode), progress)? else { return Ok(()) };
            let passes = at_once(&mut flows, &[vec![usize::MAX]], None, self.options.common.time)?.0;
            let [mut passes] = <[_; 1]>::try_from(passes).unwrap_or_else(|_| unreachable!("there is one flow"));
            let figures = Figures::of(&mut passes);
            let name = format!("{} alone", NAMES[usize::from(instance)]);
            rows.push(self.row(name, (size, mode), &figures, flows[0].frame_bytes(), Details::default()));
            alone.push(figures);
        }
        let splits: &[(&str, &[u32])] = match mode {
            Mode::Launch => &[("any group", &[])],
            Mode::Persistent => &[("any group", &[]), ("split 1:1", &[1, 1])],
        };
        for (name, share) in splits {
            let Some(mut flows) = self.flow(&[0, 1], share, 1, (size, mode), progress)? else { continue };
            let rates: Vec<f64> = alone.iter().map(|figures| figures.mpps).collect();
            let limits = even(&flows[0].prepared_by_stream(), &rates);
            let (passes, apart) = at_once(&mut flows, &[limits], None, self.options.common.time)?;
            let groups = flows[0].groups();
            let both: Vec<Figures> = passes.into_iter().map(|mut stream| Figures::of(&mut stream)).collect();
            let whole: f64 = both.iter().zip(&alone).map(|(both, alone)| both.mpps / alone.mpps).sum();
            for ((figures, alone), function) in both.iter().zip(&alone).zip(NAMES) {
                let details = groups
                    .clone()
                    .with("share_of_alone", figures.mpps / alone.mpps)
                    .with("sum_of_shares", whole)
                    .with("p50_ratio_to_alone", figures.p50_us / alone.p50_us)
                    .with("p99_ratio_to_alone", figures.p99_us / alone.p99_us)
                    .and(uncounted(apart));
                let name = format!("{function}, {name}");
                rows.push(self.row(name, (size, mode), figures, flows[0].frame_bytes(), details));
            }
        }
        Ok(())
    }

    /// Measures `ipsec` with several threads that feed the device.
    fn threads(
        &self,
        size: Size,
        mode: Mode,
        threads: &[usize],
        progress: &mut Progress<'_>,
        rows: &mut Vec<Row>,
    ) -> Result<(), Error> {
        let mut first = None;
        for &count in threads {
            let Some(mut flows) = self.flow(&[0], &[], count, (size, mode), progress)? else { continue };
            let (mut passes, apart) =
                at_once(&mut flows, &vec![vec![usize::MAX]; count], None, self.options.common.time)?;
            let each: Vec<Figures> = passes.iter_mut().map(Figures::of).collect();
            let longest = |of: fn(&Figures) -> f64| each.iter().map(of).fold(0.0, f64::max);
            let all = Figures {
                mpps: each.iter().map(|figures| figures.mpps).sum(),
                p50_us: longest(|figures| figures.p50_us),
                p99_us: longest(|figures| figures.p99_us),
            };
            let of_first = *first.get_or_insert(all.mpps);
            let details = Details::default()
                .with("threads", count)
                .with("ratio_to_first", all.mpps / of_first)
                .and(uncounted(apart));
            let name = format!("ipsec, {count} threads");
            let batch = Feed::for_threads(self.options, size, count)?.batch;
            rows.push(Row { batch, ..self.row(name, (size, mode), &all, flows[0].frame_bytes(), details) });
        }
        Ok(())
    }
}

//! One device for two functions and for several threads: what sharing costs each of them.
//!
//! | row | what happens |
//! |---|---|
//! | `ipsec alone`, `dpi alone` | its chunks alone, all groups of the device for them |
//! | `ipsec, any group` | chunks of both under way at once, and any group takes any bin |
//! | `ipsec, split 1:1` | the same with half of the persistent groups for each |
//! | `ipsec, 2 threads` | threads that feed the device, each with a lane and packets of its own |
//!
//! Packets of the two functions are independent of each other. Of each, as many chunks are in flight as asked for, whatever
//! the other does, and as much is done in a pass as takes the same time alone. Rates are those of the time in which both were
//! busy; `p50` and `p99` are from a chunk's submission to its completion.

use std::sync::Arc;

use godwit_device::{Implementation, Mode, cpu};
use godwit_function::Function;

use crate::flow::{Flow, Job, Site};
use crate::frames::{self, Random};
use crate::passes::Passes;
use crate::several::{apart_note, at_once, even};
use crate::suites::Associations;
use crate::throughput::Feed;
use crate::{BenchOptions, Error, Progress, Row, Size, function, median_p99};

/// Frame sizes, where the user names none.
const SIZES: [Size; 2] = [Size::Bytes(512), Size::Bytes(1408)];
/// Threads that feed a device, where the user names none.
const THREADS: [usize; 4] = [1, 2, 4, 8];
/// By instance.
const NAMES: [&str; 2] = ["ipsec", "dpi"];

/// The bench `sharing`.
pub(crate) fn run(options: &BenchOptions, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let associations = Associations::asked(options)?;
    let patterns = function::patterns();
    let functions = [function::many_sas(&associations, 1)?, function::inspection(&patterns, progress)?];
    let sharing = Sharing { options, associations: &associations, patterns: &patterns, functions: &functions };
    let sizes = if options.sizes.is_empty() { &SIZES[..] } else { &options.sizes };
    let modes = match (options.mode, options.device()) {
        (Some(mode), _) => vec![mode],
        (None, cpu::ID) => vec![Mode::Launch],
        (None, _) => vec![Mode::Launch, Mode::Persistent],
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads: Vec<usize> = match options.workers.as_slice() {
        [] => THREADS.into_iter().filter(|threads| *threads < cores.max(2)).collect(),
        workers => workers.to_vec(),
    };
    let mut rows = Vec::new();
    for &size in sizes {
        for &mode in &modes {
            sharing.functions(size, mode, progress, &mut rows)?;
            sharing.threads(size, mode, &threads, progress, &mut rows)?;
        }
    }
    Ok(rows)
}

struct Sharing<'a> {
    options: &'a BenchOptions,
    associations: &'a Associations,
    patterns: &'a [String],
    functions: &'a [Arc<dyn Function>],
}

/// How fast one of the functions was, and how long its chunks took.
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
    /// Chunks of the functions named, each chunk of one of them; `None`, and why, where the device does not run in this mode
    /// or has too few groups.
    fn flow(
        &self,
        instances: &[u16],
        share: &[u32],
        threads: usize,
        (size, mode): (Size, Mode),
        progress: &mut Progress<'_>,
    ) -> Result<Option<Vec<Flow>>, Error> {
        let (device, feed) = (self.options.device(), Feed::for_threads(self.options, size, threads)?);
        let site = Site {
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
            Some(1) => Job { instance: 1, variant: self.functions[1].variant(), parameter: 0, before: None, row: 0 },
            _ => self.associations.any(random),
        };
        let frame = frames::filled(|random, payload| function::plant(self.patterns, random, payload));
        let mut flows = Flow::for_threads(&site, threads, size, &frame, &mut job)?;
        if flows[0].device.mode() != mode {
            let why = flows[0].device.fallback().unwrap_or("it has no other mode");
            progress(&format!("{device} does not run in mode {} so: {why}", mode.name()));
            return Ok(None);
        }
        for flow in &mut flows {
            flow.prepare_apart(feed.batch.min(feed.packets / instances.len()).max(1), feed.bin_packets);
            let verified = flow.verify()?.0;
            progress(&format!("sharing at {size} on {device}: {verified} packets compared with ref"));
        }
        Ok(Some(flows))
    }

    fn row(&self, name: String, (size, mode): (Size, Mode), figures: &Figures, frame_bytes: f64, note: String) -> Row {
        Row {
            bench: "sharing".to_owned(),
            device: self.options.device().to_owned(),
            implementation: name,
            mode: mode.name(),
            size: Some(size),
            batch: Feed::new(self.options, size).batch,
            mpps: figures.mpps,
            gbps: figures.mpps * frame_bytes * 8.0 / 1e3,
            p50_us: figures.p50_us,
            p99_us: figures.p99_us,
            watts: None,
            peer: false,
            note,
        }
    }

    /// Each function alone, and both at once in each way that there is.
    fn functions(&self, size: Size, mode: Mode, progress: &mut Progress<'_>, rows: &mut Vec<Row>) -> Result<(), Error> {
        let mut alone = Vec::new();
        for instance in [0, 1] {
            let Some(mut flows) = self.flow(&[instance], &[], 1, (size, mode), progress)? else { return Ok(()) };
            let passes = at_once(&mut flows, &[vec![usize::MAX]], None, self.options.time)?.0;
            let [mut passes] = <[_; 1]>::try_from(passes).unwrap_or_else(|_| unreachable!("there is one flow"));
            let figures = Figures::of(&mut passes);
            let name = format!("{} alone", NAMES[usize::from(instance)]);
            rows.push(self.row(name, (size, mode), &figures, flows[0].frame_bytes(), String::new()));
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
            let (passes, apart) = at_once(&mut flows, &[limits], None, self.options.time)?;
            let groups = flows[0].groups_note();
            let both: Vec<Figures> = passes.into_iter().map(|mut stream| Figures::of(&mut stream)).collect();
            let whole: f64 = both.iter().zip(&alone).map(|(both, alone)| both.mpps / alone.mpps).sum();
            for ((figures, alone), function) in both.iter().zip(&alone).zip(NAMES) {
                let mut note = format!(
                    "{:.2} of the rate alone, {whole:.2} both in sum; p50 {:.2} x, p99 {:.2} x{groups}",
                    figures.mpps / alone.mpps,
                    figures.p50_us / alone.p50_us,
                    figures.p99_us / alone.p99_us,
                );
                note += &apart_note(apart);
                rows.push(self.row(format!("{function}, {name}"), (size, mode), figures, flows[0].frame_bytes(), note));
            }
        }
        Ok(())
    }

    /// Several threads, each with a lane of its own, and `ipsec` alone.
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
            let (mut passes, apart) = at_once(&mut flows, &vec![vec![usize::MAX]; count], None, self.options.time)?;
            let each: Vec<Figures> = passes.iter_mut().map(Figures::of).collect();
            let longest = |of: fn(&Figures) -> f64| each.iter().map(of).fold(0.0, f64::max);
            let all = Figures {
                mpps: each.iter().map(|figures| figures.mpps).sum(),
                p50_us: longest(|figures| figures.p50_us),
                p99_us: longest(|figures| figures.p99_us),
            };
            let of_first = *first.get_or_insert(all.mpps);
            let list: Vec<String> = each.iter().map(|figures| format!("{:.2}", figures.mpps)).collect();
            let note = format!(
                "each a lane and packets of its own: {} Mpps; {:.2} x {} of them{}",
                list.join(" and "),
                all.mpps / of_first,
                threads[0],
                apart_note(apart)
            );
            let name = format!("ipsec, {count} threads");
            let batch = Feed::for_threads(self.options, size, count)?.batch;
            rows.push(Row { batch, ..self.row(name, (size, mode), &all, flows[0].frame_bytes(), note) });
        }
        Ok(())
    }
}

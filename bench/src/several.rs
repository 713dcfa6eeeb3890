//! Several devices at once, in one process, and what each does alone in the same run.
//!
//! ```text
//! alone     | cuda:0: arena, lane, thread |  then  | cuda:1: arena, lane, thread |
//! together  | both, each with an arena, a lane and a thread of its own; passes begin at a barrier |
//! ```
//! A packet goes to one device and stays there for all of its chain. How much each device does in a pass follows from what it
//! did alone, so that all end at about the same time; a rate is that of the time in which all of them had as many chunks
//! in flight as asked for: from when the last of them had its first chunk back until the first of them had no chunk
//! left to submit.

use std::ops::RangeInclusive;
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use godwit_device::{has_own_memory, measure};

use crate::flow::Flow;
use crate::passes::Passes;
use crate::power::PowerWatch;
use crate::throughput::{COPY_BYTES, Feed, link};
use crate::{BenchOptions, Error, Progress, Row, Size, cores, median_p99};

/// Time for copies of all links at once, at most: their memory is page-locked first, which takes longer.
const COPY_TIME_MAX: Duration = Duration::from_millis(300);

/// What is measured on each device.
pub(crate) struct Load<'a> {
    pub(crate) bench: &'static str,
    /// Column `impl`; `None`: the form that runs on the device.
    pub(crate) name: Option<&'a str>,
    pub(crate) size: Size,
    /// Whether frames come back, and are compared with `ref` too.
    pub(crate) frames: bool,
    /// A flow on a device, its chunks prepared.
    pub(crate) make: &'a (dyn Fn(&str, &Feed) -> Result<Flow, Error> + Sync),
}

/// Both directions of each device's link in sum, bytes per second.
pub(crate) struct Links {
    alone: Vec<Option<f64>>,
    /// While all others are used as well.
    at_once: Vec<Option<f64>>,
}

impl Links {
    /// Of each device that has memory of its own and whose link can be measured.
    pub(crate) fn alone(&self) -> impl Iterator<Item = Option<f64>> {
        self.alone.iter().copied()
    }

    /// Of all devices, used at the same time; `None`: nothing is copied to any.
    pub(crate) fn at_once_in_sum(&self) -> Option<f64> {
        self.at_once.iter().flatten().copied().reduce(|one, next| one + next)
    }
}

/// Measures the links of all devices, alone and at once; says what there is.
pub(crate) fn links(options: &BenchOptions, progress: &mut Progress<'_>) -> Links {
    let devices = options.devices();
    let time = options.time.min(COPY_TIME_MAX);
    let alone: Vec<Option<f64>> =
        devices.iter().map(|device| has_own_memory(device).then(|| link(device, time, progress)).flatten()).collect();
    let copied: Vec<&str> =
        devices.iter().zip(&alone).filter(|(_, link)| link.is_some()).map(|(device, _)| *device).collect();
    let mut at_once = alone.clone();
    if copied.len() > 1 {
        match measure::copy_at_once(&copied, COPY_BYTES, time) {
            Ok(rates) => {
                at_once.iter_mut().flatten().zip(&rates).for_each(|(link, rates)| *link = rates.both);
                let sum = |of: fn(&measure::CopyRates) -> f64| rates.iter().map(of).sum::<f64>() / 1e9;
                progress(&format!(
                    "copies of 32 MiB, {} at once: {:.1} GB/s to them, {:.1} from them, {:.1} both ways in sum",
                    copied.join(" and "),
                    sum(|rates| rates.host_to_device),
                    sum(|rates| rates.device_to_host),
                    sum(|rates| rates.both)
                ));
            }
            Err(error) => {
                progress(&format!("copies at once are not measured: {error}"));
                at_once.iter_mut().for_each(|link| *link = None);
            }
        }
    }
    Links { alone, at_once }
}

/// One row for each device alone, one for all together, each compared with `ref` before.
pub(crate) fn rows(
    load: &Load<'_>,
    options: &BenchOptions,
    links: &Links,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let devices = options.devices();
    let feeds: Vec<Feed> = devices.iter().map(|device| Feed::of(options, device, load.size)).collect();
    let make = |(device, feed): (&&str, &Feed)| -> Result<(Flow, usize), Error> {
        let mut flow = (load.make)(device, feed)?;
        let verified = flow.verify_frames(load.frames)?.0;
        Ok((flow, verified))
    };
    let made: Vec<(Flow, usize)> = on_threads(devices.iter().zip(&feeds).collect(), make)?;
    let mut flows = Vec::new();
    for (device, (flow, verified)) in devices.iter().zip(made) {
        let form = name(load, &flow);
        if let Some(reason) = flow.device.fallback() {
            progress(&format!("{device} runs in mode {}: {reason}", flow.device.mode().name()));
        }
        progress(&format!("{} {form} at {} on {device}: {verified} packets compared with ref", load.bench, load.size));
        flows.push((flow, verified));
    }
    let (mut flows, verified): (Vec<Flow>, Vec<usize>) = flows.into_iter().unzip();
    let mut rows = Vec::new();
    let mut alone = Vec::new();
    for (at, flow) in flows.iter_mut().enumerate() {
        let form = name(load, flow);
        let side = Side { links: &links.alone[at..=at], ..Side::new(load, &form, &devices[at..=at], &feeds[at]) };
        let (row, passes) = side.measure(std::slice::from_mut(flow), &[vec![usize::MAX]], options.time)?;
        rows.push(Row {
            note: format!("alone; {} in flight, {} compared with ref{}", feeds[at].in_flight, verified[at], row.note),
            ..row
        });
        alone.push(passes.into_iter().map(|mut passes| passes.mpps()).sum::<f64>());
    }
    let limits = even(&flows.iter().map(Flow::prepared).collect::<Vec<_>>(), &alone);
    let limits: Vec<Vec<usize>> = limits.into_iter().map(|chunks| vec![chunks]).collect();
    let form = name(load, &flows[0]);
    let side = Side { links: &links.at_once, ..Side::new(load, &form, &devices, &feeds[0]) };
    let (row, passes) = side.measure(&mut flows, &limits, options.time)?;
    let each: Vec<String> =
        devices.iter().zip(passes).map(|(device, mut passes)| format!("{device} {:.2}", passes.mpps())).collect();
    let sum_alone: f64 = alone.iter().sum();
    let note = format!(
        "together: {} Mpps; {:.2} x one, {:.2} of what they do alone{}",
        each.join(" and "),
        row.mpps / (sum_alone / devices.len() as f64),
        row.mpps / sum_alone,
        row.note
    );
    rows.push(Row { note, ..row });
    Ok(rows)
}

fn name(load: &Load<'_>, flow: &Flow) -> String {
    load.name.map_or_else(|| flow.device.choices()[0].form.clone(), str::to_owned)
}

/// Chunks of each device, or stream, that take as long as all those of the one that is done first: `prepared` has packets and
/// chunks of each.
pub(crate) fn even(prepared: &[(usize, usize)], rates: &[f64]) -> Vec<usize> {
    let times: Vec<f64> = prepared.iter().zip(rates).map(|((packets, _), rate)| *packets as f64 / rate).collect();
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    prepared.iter().zip(times).map(|((_, chunks), time)| (*chunks as f64 * least / time).ceil() as usize).collect()
}

/// Devices that work at the same time.
pub(crate) struct Side<'a> {
    pub(crate) bench: &'static str,
    /// Column `impl`.
    pub(crate) form: &'a str,
    pub(crate) size: Size,
    pub(crate) devices: &'a [&'a str],
    pub(crate) feed: &'a Feed,
    pub(crate) links: &'a [Option<f64>],
    /// For each flow the core that its thread stays on; `None`: any.
    pub(crate) cores: Option<&'a [usize]>,
}

impl<'a> Side<'a> {
    fn new(load: &Load<'_>, form: &'a str, devices: &'a [&'a str], feed: &'a Feed) -> Self {
        Self { bench: load.bench, form, size: load.size, devices, feed, links: &[], cores: None }
    }

    /// A row whose note says what was moved, and the passes of each flow.
    pub(crate) fn measure(
        &self,
        flows: &mut [Flow],
        chunks_max: &[Vec<usize>],
        time: Duration,
    ) -> Result<(Row, Vec<Passes>), Error> {
        let watches: Vec<PowerWatch> = self.devices.iter().map(|device| PowerWatch::start(device)).collect();
        let measured = at_once(flows, chunks_max, self.cores, time);
        // All are stopped, also when there is an error.
        let watts: Vec<Option<f64>> = watches.into_iter().map(PowerWatch::stop).collect();
        let (mut passes, apart) = measured?;
        let rates: Vec<f64> = passes.iter_mut().map(Passes::mpps).collect();
        let gbps = rates.iter().zip(&*flows).map(|(mpps, flow)| mpps * flow.frame_bytes() * 8.0 / 1e3).sum();
        let mut latencies_ns: Vec<f64> = passes.iter().flat_map(|passes| passes.latencies_ns.clone()).collect();
        let (p50, p99) = median_p99(&mut latencies_ns);
        let mut note = self.moved(&passes, &rates);
        note += &apart_note(apart);
        let row = Row {
            bench: self.bench.to_owned(),
            device: self.devices.join("+"),
            implementation: self.form.to_owned(),
            mode: flows[0].device.mode().name(),
            size: Some(self.size),
            batch: self.feed.batch,
            mpps: rates.iter().sum(),
            gbps,
            p50_us: p50 / 1e3,
            p99_us: p99 / 1e3,
            watts: watts.into_iter().sum(),
            peer: false,
            note,
        };
        Ok((row, passes))
    }

    /// What goes over the links in the busier direction, of half of what they copied both ways.
    fn moved(&self, passes: &[Passes], rates: &[f64]) -> String {
        let each = passes
            .iter()
            .zip(rates)
            .map(|(passes, mpps)| passes.moved_per_packet().map_or(0.0, |[there, back]| there.max(back) * mpps * 1e6));
        let busier: f64 = each.sum();
        let links: f64 = self.links.iter().flatten().sum();
        match (busier > 0.0, links > 0.0) {
            (false, _) => "; nothing is copied, or it is not counted".to_owned(),
            (true, false) => format!("; {:.1} GB/s each way", busier / 1e9),
            (true, true) => format!(
                "; {:.1} GB/s in the busier direction, {:.2} of half the copy rate both ways ({:.1} GB/s)",
                busier / 1e9,
                busier / (links / 2.0),
                links / 2e9
            ),
        }
    }
}

/// Passes over all flows at the same time, for about `time`, three at least: what each stream of each flow did while all were busy,
/// and how many passes there were in which there was no such time. These do not count; if all were so, they do, and rates are
/// those of each stream's own time.
/// `chunks_max`: of each flow, by stream. `cores`: for each flow the one that its thread stays on.
pub(crate) fn at_once(
    flows: &mut [Flow],
    chunks_max: &[Vec<usize>],
    cores: Option<&[usize]>,
    time: Duration,
) -> Result<(Vec<Passes>, usize), Error> {
    let none = |flows: &[Flow]| flows.iter().map(Flow::no_passes).collect::<Vec<_>>();
    let (mut busy, mut others) = (none(flows), none(flows));
    let pin = |at: usize| cores.map_or(Ok(()), |cores| cores::pin(&cores[at..=at]));
    let (started, mut done, mut apart) = (Instant::now(), 0, 0);
    while done < 3 || started.elapsed() < time {
        // On the core that goes over the packets next.
        on_threads(flows.iter_mut().enumerate().collect(), |(at, flow)| pin(at).and_then(|()| flow.refresh()))?;
        let barrier = Barrier::new(flows.len());
        let mut pass = none(flows);
        let work: Vec<_> = flows.iter_mut().zip(&mut pass).zip(chunks_max).enumerate().collect();
        on_threads(work, |(at, ((flow, passes), chunks_max))| {
            let pinned = pin(at);
            // The others wait for it in any case.
            barrier.wait();
            pinned?;
            flow.pass(passes, None, chunks_max)
        })?;
        let into = match while_all_are_busy(&pass.iter().flatten().collect::<Vec<_>>()) {
            Some((time, rates)) => {
                pass.iter_mut().flatten().zip(rates).for_each(|(pass, rate)| pass.restrict(&time, rate));
                &mut busy
            }
            None => {
                apart += 1;
                &mut others
            }
        };
        into.iter_mut().flatten().zip(pass.into_iter().flatten()).for_each(|(passes, pass)| passes.append(pass));
        done += 1;
    }
    flows.iter().try_for_each(Flow::check_drops)?;
    let counted = if apart < done { busy } else { others };
    Ok((counted.into_iter().flatten().collect(), apart))
}

/// What a note says of passes that [`at_once`] did not count.
pub(crate) fn apart_note(apart: usize) -> String {
    if apart == 0 { String::new() } else { format!("; {apart} passes in which they were not busy at the same time") }
}

/// Of one pass of each: the time when all of them had work, and packets of each per nanosecond in it; `None` where there was no
/// such time, or not two completions of each in it.
fn while_all_are_busy(passes: &[&Passes]) -> Option<(RangeInclusive<Instant>, Vec<f64>)> {
    let since = passes.iter().filter_map(|passes| passes.full_since).max()?;
    let until = passes.iter().filter_map(|passes| passes.fed_until).min()?;
    let time = since..=until;
    let rate = |passes: &&Passes| {
        let mut within = passes.completions.iter().filter(|(at, _)| time.contains(at));
        // Its packets were done before that.
        let (first, _) = *within.next()?;
        let (last, packets) = within.fold((first, 0), |(_, sum), (at, packets)| (*at, sum + u64::from(*packets)));
        let elapsed = last.duration_since(first);
        (packets > 0 && !elapsed.is_zero()).then(|| packets as f64 / elapsed.as_nanos() as f64)
    };
    let rates: Option<Vec<f64>> = passes.iter().map(rate).collect();
    Some((time, rates?))
}

/// Does this with each, on a thread of its own.
pub(crate) fn on_threads<T: Send, R: Send>(
    each: Vec<T>,
    work: impl Fn(T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = each.into_iter().map(|one| scope.spawn(move || work(one))).collect();
        // A panic of another thread is this one's.
        let join = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        let joined: Vec<Result<R, Error>> = threads.into_iter().map(join).collect();
        joined.into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_time_in_which_all_were_busy() {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let pass = |completions: &[(u64, u32)], fed_until: u64| {
            let mut passes = Passes::default();
            passes.completions = completions.iter().map(|(us, packets)| (at(*us), *packets)).collect();
            passes.full_since = completions.first().map(|(us, _)| at(*us));
            passes.fed_until = Some(at(fed_until));
            passes
        };
        // All are busy from 20 to 50 µs. Before and after that the first is twice as fast.
        let first = pass(&[(5, 100), (10, 100), (20, 100), (30, 100), (40, 100), (45, 100), (50, 100)], 50);
        let second = pass(&[(20, 300), (35, 300), (50, 300), (200, 300)], 190);
        let (time, rates) = while_all_are_busy(&[&first, &second]).unwrap();
        assert_eq!(time, at(20)..=at(50));
        assert!((rates[0] - 400.0 / 30_000.0).abs() < 1e-9 && (rates[1] - 600.0 / 30_000.0).abs() < 1e-9, "{rates:?}");
        let (early, late) = (pass(&[(1, 1), (2, 1)], 2), pass(&[(3, 1), (4, 1)], 4));
        assert!(while_all_are_busy(&[&early, &late]).is_none());
    }

    #[test]
    fn chunks_count_that_came_back_while_all_were_busy() {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let mut all = Passes::default();
        for (pass, rate) in [(0, 3.0), (100, 5.0)] {
            let mut one = Passes::default();
            one.rates = vec![1.0];
            one.completions = [10, 20, 30, 40].map(|us| (at(pass + us), 64)).into();
            one.latencies_ns = [1.0, 2.0, 3.0, 4.0].map(|ns| pass as f64 + ns).into();
            one.restrict(&(at(pass + 20)..=at(pass + 35)), rate);
            all.append(one);
        }
        assert_eq!((all.rates, all.latencies_ns), (vec![3.0, 5.0], vec![2.0, 3.0, 102.0, 103.0]));
    }

    #[test]
    fn devices_end_together() {
        // A third of the rate: a third of the chunks.
        assert_eq!(even(&[(3000, 30), (3000, 30)], &[3.0, 1.0]), [30, 10]);
        assert_eq!(even(&[(3000, 30), (1000, 10)], &[1.0, 1.0]), [10, 10]);
    }
}

//! Several devices at once in one process, and each of them alone in the same run.
//!
//! ```text
//! alone     | cuda:0: arena, lane, thread |  then  | cuda:1: arena, lane, thread |
//! together  | both, each with its arena, lane and thread; passes begin at a barrier     |
//! ```
//! A packet stays on one device for its whole chain. The number of chunks of each device is
//! proportional to its rate alone, so that all devices end at about the same time. Only the time in
//! which all devices are busy counts: from the moment when every device has completed a chunk,
//! until a device has no chunk left to submit.

use std::ops::RangeInclusive;
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use godwit_device::has_own_memory;
use godwit_device_bench as measure;

use crate::error::Error;
use crate::load::size::Size;
use crate::progress::Progress;
use crate::run::cores;
use crate::run::feed::Feed;
use crate::run::flow::Flow;
use crate::run::flow::passes::Passes;
use crate::run::link::{COPY_BYTES, link};
use crate::run::options::{Common, LaneOptions};
use crate::run::power::PowerWatch;
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};

/// Maximum time for copies over all links at once. Page-locking their memory takes longer.
const COPY_TIME_MAX: Duration = Duration::from_millis(300);

/// The work of each device.
pub(crate) struct Load<'a> {
    /// Value of the column `impl`, or `None` for the form that the device runs.
    pub(crate) name: Option<&'a str>,
    pub(crate) size: Size,
    /// Whether frames return to the host and are compared with `ref`.
    pub(crate) frames: bool,
    /// Makes a flow with prepared chunks on a device.
    pub(crate) make: &'a (dyn Fn(&str, &Feed) -> Result<Flow, Error> + Sync),
}

/// Copy rates of all device links in bytes per second. Each rate is the total of both directions.
pub(crate) struct Links {
    /// Rate of each link while the others are idle.
    alone: Vec<Option<f64>>,
    /// Rate of each link while all links are in use.
    at_once: Vec<Option<f64>>,
}

impl Links {
    /// Returns the rate of each link while the others are idle. `None` means that nothing is
    /// copied, or that the rate is unknown.
    pub(crate) fn alone(&self) -> impl Iterator<Item = Option<f64>> {
        self.alone.iter().copied()
    }

    /// Returns the total rate while all links are in use, or `None` if nothing is copied.
    pub(crate) fn at_once_in_sum(&self) -> Option<f64> {
        self.at_once.iter().flatten().copied().reduce(|one, next| one + next)
    }
}

/// Measures the links of all devices, alone and at once.
pub(crate) fn links(common: &Common, progress: &mut Progress<'_>) -> Links {
    let devices = common.devices();
    let time = common.time.min(COPY_TIME_MAX);
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

/// Compares the packets with `ref`, and returns one row for each device alone and one for all
/// together.
pub(crate) fn rows(
    load: &Load<'_>,
    options: &LaneOptions,
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
        progress(&format!("{form} at {} on {device}: {verified} packets compared with ref", load.size));
        flows.push((flow, verified));
    }
    let (mut flows, verified): (Vec<Flow>, Vec<usize>) = flows.into_iter().unzip();
    let mut rows = Vec::new();
    let mut alone = Vec::new();
    let time = options.common.time;
    for (index, flow) in flows.iter_mut().enumerate() {
        let (form, only, feed) = (name(load, flow), index..=index, &feeds[index]);
        let side = Side { links: &links.alone[only.clone()], ..Side::new(load, &form, &devices[only], feed) };
        let (row, passes) = side.measure(std::slice::from_mut(flow), &[vec![usize::MAX]], time)?;
        let details = row.details.with("in_flight", feed.in_flight).with("verified", verified[index]);
        rows.push(Row { details, ..row });
        alone.push(passes.into_iter().map(|mut passes| passes.mpps()).sum::<f64>());
    }
    let limits = even(&flows.iter().map(Flow::prepared).collect::<Vec<_>>(), &alone);
    let limits: Vec<Vec<usize>> = limits.into_iter().map(|chunks| vec![chunks]).collect();
    let form = name(load, &flows[0]);
    let side = Side { links: &links.at_once, ..Side::new(load, &form, &devices, &feeds[0]) };
    let (row, passes) = side.measure(&mut flows, &limits, time)?;
    let sum_alone: f64 = alone.iter().sum();
    let mut details =
        row.details.with("share_of_alone", row.mpps / sum_alone).with("ratio_to_one", row.mpps / alone[0]);
    for (device, mut passes) in devices.iter().zip(passes) {
        details = details.with(&format!("mpps_{device}"), passes.mpps());
    }
    rows.push(Row { details, ..row });
    Ok(rows)
}

fn name(load: &Load<'_>, flow: &Flow) -> String {
    load.name.map_or_else(|| flow.device.choices()[0].form.clone(), str::to_owned)
}

/// Returns how many chunks each device or stream needs so that all take the same time. `prepared`
/// contains the packet and chunk count of each. `rates` contains the rate of each alone.
pub(crate) fn even(prepared: &[(usize, usize)], rates: &[f64]) -> Vec<usize> {
    let times: Vec<f64> = prepared.iter().zip(rates).map(|((packets, _), rate)| *packets as f64 / rate).collect();
    let shortest = times.iter().copied().fold(f64::INFINITY, f64::min);
    prepared.iter().zip(times).map(|((_, chunks), time)| (*chunks as f64 * shortest / time).ceil() as usize).collect()
}

/// Devices that work at the same time.
pub(crate) struct Side<'a> {
    /// Value of the column `impl`.
    pub(crate) form: &'a str,
    pub(crate) size: Size,
    pub(crate) devices: &'a [&'a str],
    pub(crate) feed: &'a Feed,
    pub(crate) links: &'a [Option<f64>],
    /// Core of each flow's thread, or `None` for any core.
    pub(crate) cores: Option<&'a [usize]>,
}

impl<'a> Side<'a> {
    fn new(load: &Load<'_>, form: &'a str, devices: &'a [&'a str], feed: &'a Feed) -> Self {
        Self { form, size: load.size, devices, feed, links: &[], cores: None }
    }

    /// Measures all flows at once. Returns a row and the passes of each flow.
    pub(crate) fn measure(
        &self,
        flows: &mut [Flow],
        chunks_max: &[Vec<usize>],
        time: Duration,
    ) -> Result<(Row, Vec<Passes>), Error> {
        let watches: Vec<PowerWatch> = self.devices.iter().map(|device| PowerWatch::start(device)).collect();
        let measured = at_once(flows, chunks_max, self.cores, time);
        // Stop all watches even after an error.
        let watts: Vec<Option<f64>> = watches.into_iter().map(PowerWatch::stop).collect();
        let (mut passes, apart) = measured?;
        let rates: Vec<f64> = passes.iter_mut().map(Passes::mpps).collect();
        let gbps = rates.iter().zip(&*flows).map(|(mpps, flow)| mpps * flow.frame_bytes() * 8.0 / 1e3).sum();
        let mut latencies_ns: Vec<f64> = passes.iter().flat_map(|passes| passes.latencies_ns.clone()).collect();
        let (p50, p99) = median_p99(&mut latencies_ns);
        let row = Row {
            device: self.devices.join("+"),
            implementation: self.form.to_owned(),
            mode: flows[0].device.mode().name().to_owned(),
            size: Some(self.size),
            batch: self.feed.batch,
            mpps: rates.iter().sum(),
            gbps,
            p50_us: p50 / 1e3,
            p99_us: p99 / 1e3,
            watts: watts.into_iter().sum(),
            details: self.moved(&passes, &rates).and(uncounted(apart)),
            ..Row::default()
        };
        Ok((row, passes))
    }

    /// Returns the load of the links in the busier direction, as a share of half the total copy
    /// rate.
    fn moved(&self, passes: &[Passes], rates: &[f64]) -> Details {
        let each = passes
            .iter()
            .zip(rates)
            .map(|(passes, mpps)| passes.moved_per_packet().map_or(0.0, |[there, back]| there.max(back) * mpps * 1e6));
        let busier: f64 = each.sum();
        let links: f64 = self.links.iter().flatten().sum();
        let details = Details::default();
        match (busier > 0.0, links > 0.0) {
            (false, _) => details,
            (true, false) => details.with("moved_gbytes_per_s", busier / 1e9),
            (true, true) => details
                .with("moved_gbytes_per_s", busier / 1e9)
                .with("link_share", busier / (links / 2.0))
                .with("link_gbytes_per_s", links / 2e9),
        }
    }
}

/// Runs passes over all flows at the same time for about `time`, but at least three passes. Returns
/// each stream's statistics while all were busy, and the number of uncounted passes. A pass does
/// not count if its streams were never busy together. If no pass counts, rates refer to the time of
/// each stream.
///
/// `chunks_max` limits the chunks of each stream of each flow. `cores` contains the core of each
/// flow's thread.
pub(crate) fn at_once(
    flows: &mut [Flow],
    chunks_max: &[Vec<usize>],
    cores: Option<&[usize]>,
    time: Duration,
) -> Result<(Vec<Passes>, usize), Error> {
    let none = |flows: &[Flow]| flows.iter().map(Flow::no_passes).collect::<Vec<_>>();
    let (mut busy, mut others) = (none(flows), none(flows));
    let pin = |index: usize| cores.map_or(Ok(()), |cores| cores::pin(&cores[index..=index]));
    let (started, mut done, mut apart) = (Instant::now(), 0, 0);
    while done < 3 || started.elapsed() < time {
        // Refresh on the core that processes the packets next.
        on_threads(flows.iter_mut().enumerate().collect(), |(index, flow)| pin(index).and_then(|()| flow.refresh()))?;
        let barrier = Barrier::new(flows.len());
        let mut pass = none(flows);
        let work: Vec<_> = flows.iter_mut().zip(&mut pass).zip(chunks_max).enumerate().collect();
        on_threads(work, |(index, ((flow, passes), chunks_max))| {
            let pinned = pin(index);
            // The other threads wait at the barrier even if pinning failed.
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

/// Returns the number of passes that [`at_once`] did not count, if any.
pub(crate) fn uncounted(passes: usize) -> Details {
    Details::default().with_option("passes_not_counted", (passes > 0).then_some(passes))
}

/// Returns the time of a pass in which all streams were busy, and each stream's packets per
/// nanosecond in it. Returns `None` if there is no such time, or if a stream has fewer than two
/// completions in it.
fn while_all_are_busy(passes: &[&Passes]) -> Option<(RangeInclusive<Instant>, Vec<f64>)> {
    let since = passes.iter().filter_map(|passes| passes.full_since).max()?;
    let until = passes.iter().filter_map(|passes| passes.fed_until).min()?;
    let time = since..=until;
    let rate = |passes: &&Passes| {
        let mut within = passes.completions.iter().filter(|(at, _)| time.contains(at));
        // The first completion only starts the interval, because its packets were processed before.
        let (first, _) = *within.next()?;
        let (last, packets) = within.fold((first, 0), |(_, sum), (at, packets)| (*at, sum + u64::from(*packets)));
        let elapsed = last.duration_since(first);
        (packets > 0 && !elapsed.is_zero()).then(|| packets as f64 / elapsed.as_nanos() as f64)
    };
    let rates: Option<Vec<f64>> = passes.iter().map(rate).collect();
    Some((time, rates?))
}

/// Calls `work` with each element on a separate thread.
pub(crate) fn on_threads<T: Send, R: Send>(
    each: Vec<T>,
    work: impl Fn(T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = each.into_iter().map(|one| scope.spawn(move || work(one))).collect();
        // A panic of a thread continues in this thread.
        let join = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        let joined: Vec<Result<R, Error>> = threads.into_iter().map(join).collect();
        joined.into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_count_only_while_all_are_busy() {
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
    fn counts_chunks_that_completed_while_all_were_busy() {
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
    fn chunks_are_proportional_to_rates() {
        assert_eq!(even(&[(3000, 30), (3000, 30)], &[3.0, 1.0]), [30, 10]);
        assert_eq!(even(&[(3000, 30), (1000, 10)], &[1.0, 1.0]), [10, 10]);
    }
}

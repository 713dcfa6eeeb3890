//! `godwit profile`

mod jobs;
mod measure;
mod power;
mod store;
mod summary;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use godwit_device::{LAST_RESORT, is_synchronous};
use godwit_engine::config::{Idle, Isolated};
use godwit_engine::synthetic::Rate;
use godwit_sched::place::{CurvePoint, Pair, Power, PowerPoint, Profile, ReceivePoint};

use crate::failure::Failure;
use crate::progress::Progress;
use crate::{events, log, output, signals};

use jobs::{Job, Plan};
use measure::{Measured, Missing, Subject, Timing};
use power::Meters;
use store::Store;

/// Number of readings of a measurement.
const WINDOWS: usize = 3;
/// Time of a power measurement. Meters report a new value about every 100 ms.
const POWER_TIME: Duration = Duration::from_secs(1);
/// Smallest rate of a measurement, in packets per second.
const PPS_MIN: f64 = 1000.0;
/// Largest relative increase of the cost of a function by another one that a profile may contain.
const GAMMA_MAX: f64 = 10.0;
/// Smallest relative increase.
const GAMMA_MIN: f64 = -0.9;
/// Characters of the progress bar.
const BAR: usize = 20;

/// Measure the costs of each function on each of its devices, alone and together, and write them to
/// a profile, from which placements are chosen. The traffic is generated, and no packet leaves the
/// machine.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Configuration file.
    config: PathBuf,
    /// Profile to write. An existing profile of this machine and configuration is continued: points
    /// that it contains are not measured again.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Time between two readings of a measurement, in seconds. A measurement has up to four
    /// readings, and fewer if they hardly differ.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, allow_negative_numbers = true, default_value = "0.15")]
    seconds: Duration,
    /// Measure about a quarter of the points, twice each.
    #[arg(long)]
    quick: bool,
}

/// Measures what the profile lacks, and prints a summary.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let subject = Subject::load(&arguments.config)?;
    let config = subject.config().map_err(Failure::user)?;
    if config.functions.is_empty() {
        let path = arguments.config.display();
        return Err(Failure::User(format!("{path}: there is no function to measure: add a [[function]]")));
    }
    if config.holds_keys() {
        crate::privileges::disable_core_dumps();
    }
    let mut here = config.identity();
    here.date = events::today();
    let plan = Plan::new(&config, arguments.quick);
    let workers = config.engine.workers;
    drop(config);
    for name in &plan.unreached {
        log::line(format_args!("godwit: warning: function `{name}` is not measured: no packet from a port reaches it"));
    }
    let store = Store::open(&arguments.output, here)?;
    let mut profiler =
        Profiler { arguments, subject, plan, store, stop, workers, skipped: BTreeSet::new(), not_measured: Vec::new() };
    let new = profiler.run()?;
    profiler.finish()?;
    let Profiler { store, not_measured, .. } = &profiler;
    let points: usize = store.profile.curves.iter().map(|curve| curve.points.len()).sum();
    let path = arguments.output.display();
    let text = summary::text(&store.profile, not_measured);
    output::print(&format!("{text}\n{path}: {points} points, {new} new measurements\n"))
}

/// Outcome of a measurement.
enum Outcome {
    /// The profile contains the result.
    Measured,
    /// The measurement is not possible on this machine, and the summary states why.
    Omitted,
    /// The measurement is not possible with this configuration. The text is one sentence.
    Impossible(String),
}

struct Profiler<'a> {
    arguments: &'a Arguments,
    subject: Subject,
    plan: Plan,
    store: Store,
    /// Flag that a signal sets.
    stop: Arc<AtomicBool>,
    workers: usize,
    /// Functions whose kernels received no packets, each with the index of its device.
    skipped: BTreeSet<(usize, usize)>,
    /// Devices without a power meter, each with the reason.
    not_measured: Vec<(String, String)>,
}

impl Profiler<'_> {
    /// Measures everything that the profile lacks. Returns the number of new measurements.
    fn run(&mut self) -> Result<usize, Failure> {
        let jobs = self.plan.jobs.clone();
        let (mut progress, mut new) = (Progress::new(), 0);
        for (number, job) in jobs.iter().enumerate() {
            if self.plan.is_measured(job, &self.store.profile) {
                continue;
            }
            let filled = BAR * number / jobs.len();
            let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR - filled));
            let what = self.plan.describe(job);
            progress.show_on_terminal(&format!("[{bar}] {} of {}: {what}", number + 1, jobs.len()));
            let outcome = self.execute(job);
            if !matches!(outcome, Ok(Outcome::Measured | Outcome::Omitted)) {
                progress.clear();
            }
            match outcome {
                Ok(Outcome::Measured) => {
                    new += 1;
                    self.store.save()?;
                }
                Ok(Outcome::Omitted) => {}
                Ok(Outcome::Impossible(sentence)) => log::line(format_args!("godwit: warning: {sentence}")),
                Err(Missing::Stopped) => {
                    return Err(Failure::User(format!(
                        "stopped after {number} of {} measurements: the same command continues",
                        jobs.len()
                    )));
                }
                Err(Missing::NoPackets(name)) => {
                    return Err(Failure::Bug(format!("{what}: no packet reached `{name}`")));
                }
                Err(Missing::Failed(failure)) => return Err(failure),
            }
        }
        progress.clear();
        Ok(new)
    }

    fn execute(&mut self, job: &Job) -> Result<Outcome, Missing> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Missing::Stopped);
        }
        match job {
            Job::Power { place } => self.measure_power(*place),
            Job::Receive { bytes } => self.measure_receive(*bytes),
            &Job::Curve { function, place, chunk, bytes, load } => {
                self.measure_point(function, place, chunk, bytes, load)
            }
            Job::Group { place, functions, bytes } => self.measure_group(*place, functions, *bytes),
        }
    }

    fn timing(&self, ends_early: bool) -> Timing {
        Timing { window: self.arguments.seconds, windows: if self.arguments.quick { 1 } else { WINDOWS }, ends_early }
    }

    /// Measures the core time of packets that no function processes.
    fn measure_receive(&mut self, bytes: u16) -> Result<Outcome, Missing> {
        let part = Isolated {
            functions: &[],
            device: LAST_RESORT,
            chunk_packets: None,
            bytes,
            rate: Rate::Max,
            idle: Idle::Spin,
        };
        let found = self.subject.measure(&part, self.timing(true), &self.stop)?;
        let (mpps, runs, cv) = (found.mpps[0].max(1e-6), found.runs, found.cv);
        self.store.profile.receives.push(ReceivePoint { bytes, mpps, host_ns: found.host_ns, runs, cv });
        Ok(Outcome::Measured)
    }

    /// Measures a point of a cost curve.
    fn measure_point(
        &mut self,
        function: usize,
        place: usize,
        chunk: u32,
        bytes: u16,
        load: f64,
    ) -> Result<Outcome, Missing> {
        if self.skipped.contains(&(function, place)) {
            return Ok(Outcome::Omitted);
        }
        let full = self.full(function, place, chunk, bytes);
        let rate = match (load < 1.0, full) {
            (false, _) => Rate::Max,
            (true, Some(full)) => Rate::PacketsPerS((full.mpps * 1e6 * load).max(PPS_MIN)),
            (true, None) => return Ok(Outcome::Omitted),
        };
        let device = self.plan.places[place].device.clone();
        let part = Isolated {
            functions: &[function],
            device: &device,
            chunk_packets: Some(chunk),
            bytes,
            rate,
            idle: Idle::Spin,
        };
        let is_full = load == 1.0;
        let found = match self.subject.measure(&part, self.timing(is_full), &self.stop) {
            Err(Missing::NoPackets(name)) => {
                self.skipped.insert((function, place));
                return Ok(Outcome::Impossible(format!(
                    "function `{name}` is not measured on {device}: none of the generated packets reaches its kernel; let \
                     a synthetic port that feeds the function generate suitable packets"
                )));
            }
            found => found?,
        };
        let point = self.point(&found, chunk, bytes, load);
        let (name, mode) = (self.plan.names[function].clone(), self.plan.places[place].mode);
        self.store.add_point(&name, &device, mode, point);
        Ok(Outcome::Measured)
    }

    fn point(&self, found: &Measured, chunk: u32, bytes: u16, load: f64) -> CurvePoint {
        // At full load, packets wait in queues of any length, so their latency has no meaning.
        let latency = found.latency.filter(|latency| load < 1.0 && latency.p50_ns > 0);
        CurvePoint {
            chunk,
            bytes,
            load,
            filled: found.filled.map(|filled| filled.max(1.0)),
            mpps: found.mpps[0].max(1e-6),
            host_ns: (found.host_ns - self.receive_ns(bytes)).max(0.0),
            device_ns: found.device_ns[0],
            p50_us: latency.map(|latency| latency.p50_ns as f64 / 1e3),
            p99_us: latency.map(|latency| latency.p99_ns.max(latency.p50_ns) as f64 / 1e3),
            watts: found.watts,
            runs: found.runs,
            cv: found.cv,
        }
    }

    /// Measures functions that run at the same time on one device.
    fn measure_group(&mut self, place: usize, functions: &[usize], bytes: u16) -> Result<Outcome, Missing> {
        let (device, chunk) = (self.plan.places[place].device.clone(), self.plan.places[place].chunks[0]);
        let solo: Option<Vec<CurvePoint>> =
            functions.iter().map(|&function| self.full(function, place, chunk, bytes)).collect();
        let Some(solo) = solo else { return Ok(Outcome::Omitted) };
        let part = Isolated {
            functions,
            device: &device,
            chunk_packets: Some(chunk),
            bytes,
            rate: Rate::Max,
            idle: Idle::Spin,
        };
        let names: Vec<String> = functions.iter().map(|&function| self.plan.names[function].clone()).collect();
        let found = match self.subject.measure(&part, self.timing(true), &self.stop) {
            Err(Missing::NoPackets(name)) => {
                let names = names.join("` and `");
                return Ok(Outcome::Impossible(format!(
                    "`{names}` are not measured together on {device}: `{name}` got no packets"
                )));
            }
            found => found?,
        };
        let of_solo: Vec<f64> =
            found.mpps.iter().zip(&solo).map(|(mpps, solo)| (mpps / solo.mpps).clamp(1e-6, 10.0)).collect();
        let gamma = gamma(&found, &solo, &of_solo, is_synchronous(&device).then_some(self.workers));
        let mpps = found.mpps.iter().map(|mpps| mpps.max(1e-6)).collect();
        self.store.profile.pairs.push(Pair { device, functions: names, chunk, bytes, mpps, of_solo, gamma });
        Ok(Outcome::Measured)
    }

    /// Measures the power of a device without packets, asleep and awake.
    fn measure_power(&mut self, place: usize) -> Result<Outcome, Missing> {
        let device = self.plan.places[place].device.clone();
        let mut meters = match Meters::of(&device) {
            Ok(meters) => meters,
            Err(reason) => {
                self.not_measured.push((device, reason));
                return Ok(Outcome::Omitted);
            }
        };
        let fail = |reason: String| Missing::Failed(Failure::User(format!("the power of {device}: {reason}")));
        let function = self.plan.places[place].functions[0];
        let timing = Timing { window: POWER_TIME, windows: 1, ends_early: false };
        let waiting = |idle: Idle| {
            let part = Isolated {
                functions: &[function],
                device: &device,
                chunk_packets: None,
                bytes: 60,
                rate: Rate::PacketsPerS(PPS_MIN),
                idle,
            };
            self.subject.measure(&part, timing, &self.stop)
        };
        let asleep = match is_synchronous(&device) {
            true => waiting(Idle::Sleep)?.watts.unwrap_or(0.0),
            // Without an engine, nothing uses the device.
            false => meters.watts(POWER_TIME).map_err(fail)?,
        };
        let found = waiting(Idle::Spin)?;
        let awake = found.watts.unwrap_or(asleep).max(asleep);
        let wake_us = found.latency.map_or(0.0, |latency| latency.max_ns as f64 / 1e3);
        let meter = meters.kind.to_owned();
        self.store.profile.powers.push(Power { device, meter, asleep, awake, wake_us, points: Vec::new() });
        Ok(Outcome::Measured)
    }

    /// Returns the point of a function at full load.
    fn full(&self, function: usize, place: usize, chunk: u32, bytes: u16) -> Option<CurvePoint> {
        let place = &self.plan.places[place];
        let curve = self.store.profile.curve(&self.plan.names[function], &place.device, place.mode)?;
        curve.points.iter().find(|point| (point.chunk, point.bytes, point.load) == (chunk, bytes, 1.0)).copied()
    }

    /// Returns the core time for receiving and sending a packet of `bytes` bytes.
    fn receive_ns(&self, bytes: u16) -> f64 {
        let nearest = self.store.profile.receives.iter().min_by_key(|point| point.bytes.abs_diff(bytes));
        nearest.map_or(0.0, |point| point.host_ns)
    }

    /// Computes what follows from all points, and writes the complete profile.
    fn finish(&mut self) -> Result<(), Failure> {
        if self.store.profile.curves.is_empty() {
            return Err(Failure::User("no function was measured: the profile would be empty".to_owned()));
        }
        let shortest = self.store.profile.receives.iter().map(|point| point.bytes).min().unwrap_or(0);
        self.store.profile.host.receive_ns = self.receive_ns(shortest);
        self.store.profile.host.stream_ns = stream_ns(&self.store.profile, self.workers);
        for power in &mut self.store.profile.powers {
            let of_device = self.store.profile.curves.iter().filter(|curve| curve.device == power.device);
            let points = of_device.flat_map(|curve| &curve.points);
            power.points =
                points.filter_map(|point| Some(PowerPoint { load: point.load, watts: point.watts? })).collect();
        }
        self.store.finish()
    }
}

/// Returns how much more each function costs while the others use the same device, relative to its
/// cost alone and to the use by the others. `workers` is the number of workers if the device is the
/// CPU.
fn gamma(found: &Measured, solo: &[CurvePoint], of_solo: &[f64], workers: Option<usize>) -> Vec<f64> {
    if !found.is_separate {
        // The uses of all functions and their mutual increase fill the device.
        let uses: Vec<f64> = found.mpps.iter().zip(solo).map(|(mpps, solo)| mpps * solo.device_ns * 1e-3).collect();
        let sum: f64 = uses.iter().sum();
        let products = sum * sum - uses.iter().map(|value| value * value).sum::<f64>();
        let gamma = if products > 0.0 { (1.0 - sum) / products } else { 0.0 };
        return vec![gamma.clamp(GAMMA_MIN, GAMMA_MAX); solo.len()];
    }
    let increase = |index: usize| {
        let more_ns = found.device_ns[index] - solo[index].device_ns;
        // A function occupies the core during its kernel, and while packets are received.
        let alone_ns = workers.map_or(solo[index].device_ns, |workers| workers as f64 * 1e3 / solo[index].mpps);
        let use_of = |other: usize| match workers {
            Some(_) => of_solo[other],
            None => found.mpps[other] * solo[other].device_ns * 1e-3,
        };
        let others: f64 = (0..solo.len()).filter(|&other| other != index).map(use_of).sum();
        let gamma = if alone_ns > 0.0 && others > 0.0 { more_ns / alone_ns / others } else { 0.0 };
        gamma.clamp(GAMMA_MIN, GAMMA_MAX)
    };
    (0..solo.len()).map(increase).collect()
}

/// Returns the core time that a packet costs in addition because another function receives packets
/// too. It is the median over all pairs on the CPU, without the mutual increase of their kernels.
fn stream_ns(profile: &Profile, workers: usize) -> f64 {
    let of_pair = |pair: &Pair| {
        let total: f64 = pair.mpps.iter().sum();
        let mut expected_ns = 0.0;
        for index in 0..pair.functions.len() {
            let alone_ns = workers as f64 * 1e3 * pair.of_solo[index] / pair.mpps[index];
            let others: f64 = pair.of_solo.iter().sum::<f64>() - pair.of_solo[index];
            expected_ns += pair.mpps[index] / total * alone_ns * (1.0 + pair.gamma[index] * others);
        }
        (workers as f64 * 1e3 / total - expected_ns).max(0.0)
    };
    let on_cpu = profile.pairs.iter().filter(|pair| is_synchronous(&pair.device) && pair.functions.len() == 2);
    let mut all: Vec<f64> = on_cpu.map(of_pair).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solo(mpps: f64, device_ns: f64) -> CurvePoint {
        CurvePoint {
            chunk: 256,
            bytes: 60,
            load: 1.0,
            filled: None,
            mpps,
            host_ns: 0.0,
            device_ns,
            p50_us: None,
            p99_us: None,
            watts: None,
            runs: 1,
            cv: 0.0,
        }
    }

    fn found(mpps: [f64; 2], device_ns: [f64; 2], is_separate: bool) -> Measured {
        Measured {
            mpps: mpps.to_vec(),
            runs: 1,
            cv: 0.0,
            device_ns: device_ns.to_vec(),
            is_separate,
            host_ns: 0.0,
            filled: None,
            latency: None,
            watts: None,
        }
    }

    #[test]
    fn interference_follows_from_separate_times() {
        // Each function uses half of the device. The second one makes the first 20 % more
        // expensive.
        let solo = [solo(10.0, 100.0), solo(5.0, 200.0)];
        let found = found([5.0, 2.5], [120.0, 200.0], true);
        assert_eq!(gamma(&found, &solo, &[0.5, 0.5], None), [0.4, 0.0]);
        // On one core, the same 20 ns are 20 % of the time per packet.
        assert_eq!(gamma(&found, &solo, &[0.5, 0.5], Some(1)), [0.4, 0.0]);
    }

    #[test]
    fn interference_follows_from_rates_if_bins_overlap() {
        // Together, the functions use 0.8 of the device without the mutual increase.
        let solo = [solo(10.0, 100.0), solo(5.0, 200.0)];
        let found = found([4.0, 2.0], [0.0, 0.0], false);
        let gamma = gamma(&found, &solo, &[0.4, 0.4], None);
        assert!((gamma[0] - 0.2 / 0.32).abs() < 1e-9 && gamma[0] == gamma[1], "{gamma:?}");
    }

    #[test]
    fn time_of_a_second_function_is_what_rates_do_not_explain() {
        let pair = |mpps: f64, of_solo: f64, gamma: f64| Pair {
            device: "cpu".to_owned(),
            functions: vec!["a".to_owned(), "b".to_owned()],
            chunk: 256,
            bytes: 60,
            mpps: vec![mpps; 2],
            of_solo: vec![of_solo; 2],
            gamma: vec![gamma; 2],
        };
        let mut profile =
            Profile::parse_partial("format = 1\n[machine]\ncpu = \"a\"\ncores = 1\nconfig = \"c\"\ngodwit = \"1\"")
                .expect("valid");
        assert_eq!(stream_ns(&profile, 1), 0.0);
        // Alone, each function needs 100 ns. Together, a packet takes 125 ns.
        profile.pairs = vec![pair(4.0, 0.4, 0.0)];
        assert!((stream_ns(&profile, 1) - 25.0).abs() < 1e-9);
        profile.pairs = vec![pair(4.0, 0.4, 0.5)];
        assert!((stream_ns(&profile, 1) - 5.0).abs() < 1e-9);
    }
}

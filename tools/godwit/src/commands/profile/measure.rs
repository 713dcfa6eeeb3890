//! Runs the engine for a short time with a part of the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use godwit_device::is_synchronous;
use godwit_engine::config::{Config, ConfigError, Isolated};
use godwit_engine::{Engine, Latency, Options, Report};
use zeroize::Zeroizing;

use crate::failure::Failure;

/// Coefficient of variation of the rates at which a measurement ends early.
const CV_ENOUGH: f64 = 0.02;

/// A configuration that is measured in parts.
pub(super) struct Subject {
    path: PathBuf,
    /// The text may contain keys, so it is overwritten after use.
    text: Zeroizing<String>,
}

/// Duration of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// Time between two readings of the counters.
    pub(super) window: Duration,
    /// Largest number of readings after the first one.
    pub(super) windows: usize,
    /// Whether the measurement ends early if the rates hardly vary.
    pub(super) ends_early: bool,
}

/// Results of a measurement.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Rate of each function in million packets per second. Without functions, the rate of all
    /// packets.
    pub(super) mpps: Vec<f64>,
    /// Number of rates that were measured, and their coefficient of variation.
    pub(super) runs: u32,
    pub(super) cv: f64,
    /// Device time of each function per packet, in nanoseconds.
    pub(super) device_ns: Vec<f64>,
    /// Whether `device_ns` is a separate measurement of each function.
    pub(super) is_separate: bool,
    /// Core time of the workers per packet in nanoseconds, without the kernels on the CPU.
    pub(super) host_ns: f64,
    /// Mean number of packets in a chunk, or `None` if there were no chunks.
    pub(super) filled: Option<f64>,
    /// Time from arrival to departure.
    pub(super) latency: Option<Latency>,
    /// Power of the device in watts, if it has a meter.
    pub(super) watts: Option<f64>,
}

/// Reason why a measurement has no result.
#[derive(Debug)]
pub(super) enum Missing {
    /// The operator stopped the program.
    Stopped,
    /// The kernel of a function received no packet. The value is the name of the function.
    NoPackets(String),
    /// The engine failed.
    Failed(Failure),
}

impl From<ConfigError> for Missing {
    fn from(error: ConfigError) -> Self {
        Self::Failed(Failure::user(error))
    }
}

impl Subject {
    /// Reads a configuration.
    pub(super) fn load(path: &Path) -> Result<Self, Failure> {
        let text =
            std::fs::read_to_string(path).map_err(|error| Failure::User(format!("{}: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), text: Zeroizing::new(text) })
    }

    /// Builds the configuration with new tables. The state of earlier measurements, such as
    /// sequence numbers, has no effect.
    pub(super) fn config(&self) -> Result<Config, ConfigError> {
        let directory = self.path.parent().unwrap_or(Path::new(""));
        Config::parse(&self.text, &self.path.display().to_string(), directory)
    }

    /// Measures a part of the configuration. The first reading of the counters is the start, so
    /// that the start of the engine does not count.
    pub(super) fn measure(&self, part: &Isolated<'_>, timing: Timing, stop: &AtomicBool) -> Result<Measured, Missing> {
        let config = self.config()?.isolate(part)?;
        let options = Options { progress_interval: Some(timing.window), ..Options::default() };
        let engine = Engine::new(config, &options).map_err(|error| Missing::Failed(error.into()))?;
        let halt = Arc::new(AtomicBool::new(false));
        let mut readings: Vec<Reading> = Vec::new();
        let report = engine.run(&halt, None, &mut |report| {
            readings.push(Reading::new(report, part));
            let enough = timing.ends_early && readings.len() > 2 && cv(&totals(&readings)) < CV_ENOUGH;
            if enough || readings.len() > timing.windows || stop.load(Ordering::Relaxed) {
                halt.store(true, Ordering::Relaxed);
            }
        });
        let report = report.map_err(|error| Missing::Failed(error.into()))?;
        if stop.load(Ordering::Relaxed) {
            return Err(Missing::Stopped);
        }
        check(&report).map_err(Missing::Failed)?;
        evaluate(&report, part, &readings)
    }
}

/// Numbers of packets at one time.
struct Reading {
    elapsed_s: f64,
    /// Packets of each function of the measurement. Without functions, the number of all packets.
    packets: Vec<u64>,
}

impl Reading {
    fn new(report: &Report, part: &Isolated<'_>) -> Self {
        let packets = match part.functions {
            [] => vec![report.conservation.sent],
            functions => functions.iter().map(|&function| report.functions[function].packets).collect(),
        };
        Self { elapsed_s: report.elapsed_s, packets }
    }
}

/// Checks that the engine lost neither packets nor devices.
fn check(report: &Report) -> Result<(), Failure> {
    if let Some(lost) = report.lost_devices.first() {
        return Err(Failure::User(format!(
            "device `{}` was lost during the measurement: {}",
            lost.device, lost.reason
        )));
    }
    match report.conservation.holds() {
        true => Ok(()),
        false => Err(Failure::Bug(report.conservation.to_string())),
    }
}

fn evaluate(report: &Report, part: &Isolated<'_>, readings: &[Reading]) -> Result<Measured, Missing> {
    let at_end = Reading::new(report, part);
    if let Some(index) = at_end.packets.iter().position(|&packets| packets == 0) {
        let name = part.functions.get(index).map(|&function| report.functions[function].name.clone());
        return Err(Missing::NoPackets(name.unwrap_or_default()));
    }
    let count = |name: &str| report.counters.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value);
    let at_start = Reading { elapsed_s: 0.0, packets: vec![0; at_end.packets.len()] };
    let (first, last) = match (readings.first(), readings.last()) {
        (Some(first), Some(last)) if readings.len() > 1 => (first, last),
        // The run ended before the second reading, so all packets count.
        _ => (&at_start, &at_end),
    };
    let seconds = (last.elapsed_s - first.elapsed_s).max(1e-9);
    let mpps: Vec<f64> =
        last.packets.iter().zip(&first.packets).map(|(last, first)| (last - first) as f64 / seconds / 1e6).collect();
    let rates = totals(readings);
    let total: u64 = at_end.packets.iter().sum();
    let busy: Vec<f64> = part.functions.iter().map(|&index| report.functions[index].busy_ns_per_packet).collect();
    let busy_ns: f64 = busy.iter().zip(&at_end.packets).map(|(each, packets)| each * *packets as f64).sum();
    let is_cpu = is_synchronous(part.device);
    // Bins on a device may overlap. The device then works for at most the duration of the run.
    let is_separate = is_cpu || busy_ns <= report.elapsed_s * 1e9;
    let device_ns = match is_separate {
        true => busy,
        false => {
            let rate: f64 = mpps.iter().sum::<f64>().max(1e-9);
            busy.iter().map(|each| each.min(1e3 / rate)).collect()
        }
    };
    let worked_ns = count("engine_busy_ns") as f64 - if is_cpu { busy_ns } else { 0.0 };
    let of_device = |counter: &str| count(&format!("device_{counter}{{device=\"{}\"}}", part.device));
    let [packets, chunks] = ["packets", "chunks"].map(of_device);
    let power = report.power.iter().find(|power| power.device == part.device);
    Ok(Measured {
        mpps,
        runs: rates.len().max(1) as u32,
        cv: cv(&rates),
        device_ns,
        is_separate,
        host_ns: (worked_ns / total as f64).max(0.0),
        filled: (chunks > 0).then(|| packets as f64 / chunks as f64),
        latency: report.latency,
        watts: power.and_then(|power| power.watts),
    })
}

/// Returns the rate of all functions between each two readings, in packets per second.
fn totals(readings: &[Reading]) -> Vec<f64> {
    let between = |pair: &[Reading]| {
        let packets = |reading: &Reading| reading.packets.iter().sum::<u64>();
        let seconds = (pair[1].elapsed_s - pair[0].elapsed_s).max(1e-9);
        (packets(&pair[1]) - packets(&pair[0])) as f64 / seconds
    };
    readings.windows(2).map(between).collect()
}

/// Returns the coefficient of variation, which is 0 for fewer than two values.
fn cv(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    if values.len() < 2 || mean <= 0.0 {
        return 0.0;
    }
    let square: f64 = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64;
    (square.sqrt() / mean).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variation_is_relative_to_the_mean() {
        assert_eq!((cv(&[]), cv(&[3.0]), cv(&[2.0, 2.0, 2.0]), cv(&[0.0, 0.0])), (0.0, 0.0, 0.0, 0.0));
        assert!((cv(&[9.0, 11.0]) - 2.0_f64.sqrt() / 10.0).abs() < 1e-12);
        assert_eq!(cv(&[0.0, 0.0, 0.0, 1e9]), 1.0);
    }

    #[test]
    fn rates_are_between_readings() {
        let reading = |elapsed_s, packets| Reading { elapsed_s, packets };
        let readings = [reading(1.0, vec![10, 5]), reading(2.0, vec![20, 5]), reading(4.0, vec![20, 25])];
        assert_eq!(totals(&readings), [10.0, 10.0]);
        assert!(totals(&readings[..1]).is_empty());
    }
}

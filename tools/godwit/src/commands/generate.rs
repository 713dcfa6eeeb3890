//! `godwit generate`
//!
//! The configuration contains a `synthetic` port and two other ports. Packets of the synthetic port
//! go to the sending port. Packets of the receiving port return to the synthetic port. The device
//! under test is between the two other ports.
//!
//! ```text
//! synthetic --chain--> port ==> device under test ==> port --chain--> synthetic
//! writes probes                                                       evaluates probes
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use godwit_engine::config::{Config, PortKind};
use godwit_engine::synthetic::{Rate, Size};
use godwit_engine::{Engine, Options};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, Json};
use crate::signals;
use crate::table::{Align, Table};

/// Send packets through a device under test and report loss and latency. With --search, find the
/// highest rate without loss (RFC 2544).
#[derive(Args)]
pub(crate) struct Arguments {
    /// Configuration with a synthetic port, a sending port and a receiving port.
    config: PathBuf,
    /// Duration of a trial, in seconds.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, default_value = "2", allow_negative_numbers = true)]
    seconds: Duration,
    /// Rate, such as 1Mpps or 5Gbps. In a search, the highest rate to try.
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Length of frames without FCS, or imix. May be repeated.
    #[arg(long = "size", value_name = "BYTES|imix", value_parser = parse_size)]
    sizes: Vec<Size>,
    /// Search for the highest rate whose loss is at most --loss, and measure the latency at
    /// --latency-at.
    #[arg(long)]
    search: bool,
    /// Fraction of packets that may be lost.
    #[arg(long, value_name = "RATIO", default_value_t = 0.0)]
    loss: f64,
    /// The search ends when the rates differ by less than this fraction.
    #[arg(long, value_name = "RATIO", default_value_t = 0.02)]
    resolution: f64,
    /// Measure the latency at this fraction of the found rate.
    #[arg(long, value_name = "RATIO", default_value_t = 0.9)]
    latency_at: f64,
    /// Hold the found rate for this time, in seconds. If more packets are lost, the search
    /// continues.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    hold: Option<Duration>,
    /// Wait before each trial for links to come up, in seconds.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, default_value = "0.3", allow_negative_numbers = true)]
    settle: Duration,
    /// Wait after each trial for packets in flight, in seconds.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, default_value = "0.5", allow_negative_numbers = true)]
    drain: Duration,
    /// Write all trials as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Result of a trial. It extends a benchmark row.
#[derive(Clone, Debug, Serialize)]
struct Trial {
    bench: &'static str,
    device: &'static str,
    /// `load`, `search`, `throughput`, `latency` or `hold`.
    #[serde(rename = "impl")]
    purpose: &'static str,
    mode: &'static str,
    size: String,
    batch: usize,
    /// Received packets per second, in millions.
    mpps: f64,
    gbps: f64,
    p50_us: f64,
    p99_us: f64,
    watts: Option<f64>,
    peer: bool,
    p90_us: f64,
    p999_us: f64,
    max_us: f64,
    seconds: f64,
    /// Requested packets per second, or 0 for as many as possible.
    offered_pps: f64,
    /// Whether the generator sent as many packets as requested.
    offered: bool,
    sent: u64,
    received: u64,
    lost: u64,
    loss_ratio: f64,
    duplicates: u64,
    reordered: u64,
    foreign: u64,
}

/// All trials.
#[derive(Serialize)]
struct Document {
    command: &'static str,
    config: String,
    rows: Vec<Trial>,
}

/// Runs one trial or one search per size.
///
/// # Errors
/// Returns an error if a search finds no rate, or if packets are not conserved.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    for (name, value) in [("--loss", arguments.loss), ("--latency-at", arguments.latency_at)] {
        if !(0.0..=1.0).contains(&value) {
            return Err(Failure::User(format!("{name} {value}: must be 0 to 1")));
        }
    }
    if !(0.0001..=0.5).contains(&arguments.resolution) {
        return Err(Failure::User(format!("--resolution {}: must be 0.0001 to 0.5", arguments.resolution)));
    }
    let json = Json::open(arguments.json.as_deref())?;
    let configured = super::load(&arguments.config)?;
    let traffic = traffic(&configured)?;
    let (size, rate) = match &configured.ports[traffic].kind {
        PortKind::Synthetic(config) => (config.size, arguments.rate.unwrap_or(config.rate)),
        _ => unreachable!("it is synthetic"),
    };
    let sizes = if arguments.sizes.is_empty() { vec![size] } else { arguments.sizes.clone() };
    let mut runner = Runner { arguments, traffic, stop: signals::stop_flag()?, rows: Vec::new() };
    let mut found_all = true;
    for size in sizes {
        if arguments.search {
            found_all &= runner.search(size, rate)?;
        } else {
            runner.trial("load", size, rate, arguments.seconds)?;
        }
        if runner.stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let rows = runner.rows;
    output::print_text(&json, &text(&rows))?;
    json.write(&Document { command: "generate", config: arguments.config.display().to_string(), rows })?;
    if found_all {
        Ok(())
    } else {
        Err(Failure::User(format!("the search found no rate with a loss of at most --loss {}", arguments.loss)))
    }
}

/// Returns the index of the synthetic port.
fn traffic(config: &Config) -> Result<usize, Failure> {
    let mut synthetic = config.ports.iter().enumerate().filter(|(_, port)| matches!(port.kind, PortKind::Synthetic(_)));
    match (synthetic.next(), synthetic.next()) {
        (Some((index, _)), None) => Ok(index),
        (None, _) => Err(Failure::User(
            "the configuration has no port with kind = \"synthetic\", which generates the packets: add one".to_owned(),
        )),
        (Some((_, one)), Some((_, other))) => Err(Failure::User(format!(
            "ports `{}` and `{}` are both synthetic: keep one, which both generates and receives the packets",
            one.name, other.name
        ))),
    }
}

struct Runner<'a> {
    arguments: &'a Arguments,
    /// Index of the synthetic port.
    traffic: usize,
    stop: Arc<AtomicBool>,
    rows: Vec<Trial>,
}

impl Runner<'_> {
    /// Runs a trial at `rate` for `time`.
    fn trial(&mut self, purpose: &'static str, size: Size, rate: Rate, time: Duration) -> Result<Trial, Failure> {
        let mut config = Config::load(&self.arguments.config).map_err(Failure::user)?;
        let PortKind::Synthetic(synthetic) = &mut config.ports[self.traffic].kind else {
            unreachable!("it is synthetic")
        };
        (synthetic.size, synthetic.rate, synthetic.probe) = (size, rate, true);
        let seconds = time.as_secs_f64();
        let mean_bits = size.mean_bytes() * 8.0;
        let offered_pps = match rate {
            Rate::Max => 0.0,
            Rate::PacketsPerS(rate) => rate,
            Rate::BitsPerS(rate) => rate / mean_bits,
        };
        let packets = (offered_pps * seconds).round();
        if packets > 0.0 {
            synthetic.packets = packets as u64;
        }
        synthetic.validate().map_err(Failure::user)?;
        let engine = Engine::new(config, &Options::default())?;
        thread::sleep(self.arguments.settle);
        // With a rate, the port ends after its packets, and the drain time follows. Without a rate,
        // only the time limit ends the run, so the last packets in flight are lost.
        let limit = if packets > 0.0 { time + self.arguments.drain } else { time };
        let report = engine.run(&self.stop, Some(limit), &mut |_| {})?;
        if !report.conservation.holds() {
            return Err(Failure::Bug(format!("packets were not conserved: {}", report.conservation)));
        }
        let traffic = &report.ports[self.traffic];
        let probes = traffic.probes.unwrap_or_default();
        let others = report.ports.iter().enumerate().filter(|(index, _)| *index != self.traffic);
        let sent: u64 = others.map(|(_, port)| port.sent_packets).sum();
        let lost = sent.saturating_sub(probes.received);
        let us = |ns: u64| ns as f64 / 1e3;
        let trial = Trial {
            bench: "generate",
            device: "dut",
            purpose,
            mode: "process",
            size: size.to_string(),
            batch: 0,
            mpps: probes.received as f64 / seconds / 1e6,
            gbps: probes.received as f64 * mean_bits / seconds / 1e9,
            p50_us: us(probes.p50_ns),
            p99_us: us(probes.p99_ns),
            watts: None,
            peer: false,
            p90_us: us(probes.p90_ns),
            p999_us: us(probes.p999_ns),
            max_us: us(probes.max_ns),
            seconds,
            offered_pps,
            offered: packets == 0.0 || sent as f64 >= packets * 0.9999,
            sent,
            received: probes.received,
            lost,
            loss_ratio: if sent > 0 { lost as f64 / sent as f64 } else { 0.0 },
            duplicates: probes.duplicates,
            reordered: probes.reordered,
            foreign: probes.foreign,
        };
        eprintln!("godwit: {purpose}, {} bytes: {}", trial.size, sentence(&trial));
        self.rows.push(trial.clone());
        Ok(trial)
    }

    /// Searches for the highest rate by bisection (RFC 2544, section 26.1), and measures the
    /// latency below it (section 26.2). Returns whether a rate was found.
    fn search(&mut self, size: Size, rate_max: Rate) -> Result<bool, Failure> {
        let rate_max = match rate_max {
            Rate::PacketsPerS(rate) => rate,
            Rate::BitsPerS(rate) => rate / (size.mean_bytes() * 8.0),
            Rate::Max => {
                return Err(Failure::User(
                    "--search needs --rate, the highest rate that is tried, such as 10Mpps or 10Gbps".to_owned(),
                ));
            }
        };
        let Arguments { loss, resolution, seconds, hold, latency_at, .. } = *self.arguments;
        let mut search = Search::new(rate_max, resolution);
        loop {
            while let Some(rate) = search.next() {
                let trial = self.trial("search", size, Rate::PacketsPerS(rate), seconds)?;
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                search.tried(trial.offered && trial.loss_ratio <= loss && trial.received > 0);
            }
            if search.found == 0.0 {
                return Ok(false);
            }
            // A rate from short trials is accepted only if a longer trial confirms it.
            let Some(hold) = hold else { break };
            let trial = self.trial("hold", size, Rate::PacketsPerS(search.found), hold)?;
            if self.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if trial.offered && trial.loss_ratio <= loss {
                break;
            }
            search.not_held();
        }
        let mut found = self.rows.iter().rev().find(|row| row.offered_pps == search.found).cloned();
        if let Some(row) = &mut found {
            row.purpose = "throughput";
        }
        self.rows.extend(found);
        if latency_at > 0.0 {
            self.trial("latency", size, Rate::PacketsPerS(search.found * latency_at), seconds)?;
        }
        Ok(true)
    }
}

/// Bisection between the highest passed rate and the lowest failed rate.
#[derive(Debug)]
struct Search {
    /// Highest rate that passed, or 0.
    found: f64,
    /// Lowest rate that failed.
    failed: Option<f64>,
    /// Rate of the next trial, or 0 at the end.
    trying: f64,
    resolution: f64,
}

impl Search {
    fn new(rate_max: f64, resolution: f64) -> Self {
        Self { found: 0.0, failed: None, trying: rate_max, resolution }
    }

    /// Returns whether the search ends if the current trial passes or fails.
    fn ends_with(&self, passed: bool) -> bool {
        let (found, failed) = if passed { (self.trying, self.failed) } else { (self.found, Some(self.trying)) };
        match failed {
            None => true,
            // Rates below one packet per second are not searched.
            Some(failed) => failed - found <= self.resolution * failed || failed < 1.0,
        }
    }

    fn next(&self) -> Option<f64> {
        (self.trying > 0.0).then_some(self.trying)
    }

    /// Rejects the found rate, because a longer trial failed. Lower rates that passed are also
    /// rejected, because they may fail in the same way.
    fn not_held(&mut self) {
        let failed = std::mem::take(&mut self.found);
        self.failed = Some(failed);
        self.trying = if failed < 1.0 { 0.0 } else { failed / 2.0 };
    }

    fn tried(&mut self, passed: bool) {
        let ends = self.ends_with(passed);
        if passed {
            self.found = self.trying
        } else {
            self.failed = Some(self.trying)
        }
        let failed = self.failed.unwrap_or(self.trying);
        self.trying = if ends { 0.0 } else { (self.found + failed) / 2.0 };
    }
}

fn parse_size(text: &str) -> Result<Size, String> {
    match text {
        "imix" => Ok(Size::Imix),
        "imix-pipsea" => Ok(Size::ImixPipsea),
        bytes => bytes
            .parse()
            .map(Size::Fixed)
            .map_err(|_| format!("invalid size \"{text}\": expected bytes without FCS, imix or imix-pipsea")),
    }
}

fn sentence(trial: &Trial) -> String {
    let shortfall = match trial {
        Trial { offered: false, .. } => " (fewer than requested)",
        _ => "",
    };
    format!(
        "{:.3} Mpps offered, {} sent{shortfall}, {} lost ({:.4} %), {} duplicates, {} reordered; p50 {:.1} µs, p99 {:.1} µs",
        trial.offered_pps / 1e6,
        trial.sent,
        trial.lost,
        trial.loss_ratio * 100.0,
        trial.duplicates,
        trial.reordered,
        trial.p50_us,
        trial.p99_us
    )
}

/// Returns a table of the results, without the trials of a search.
fn text(rows: &[Trial]) -> String {
    let shown = rows.iter().filter(|row| row.purpose != "search");
    let mut table = Table::new(&[
        ("", Align::Left),
        ("size", Align::Right),
        ("Mpps", Align::Right),
        ("Gbps", Align::Right),
        ("sent", Align::Right),
        ("lost", Align::Right),
        ("duplicates", Align::Right),
        ("reordered", Align::Right),
        ("p50 µs", Align::Right),
        ("p99 µs", Align::Right),
        ("p99.9 µs", Align::Right),
        ("max µs", Align::Right),
    ]);
    for row in shown {
        table.row(vec![
            row.purpose.to_owned(),
            row.size.clone(),
            format!("{:.3}", row.mpps),
            format!("{:.3}", row.gbps),
            row.sent.to_string(),
            row.lost.to_string(),
            row.duplicates.to_string(),
            row.reordered.to_string(),
            format!("{:.1}", row.p50_us),
            format!("{:.1}", row.p99_us),
            format!("{:.1}", row.p999_us),
            format!("{:.1}", row.max_us),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches for the rate of a device that forwards at most `capacity` packets per second.
    /// Returns the found rate and the number of trials.
    fn search(rate_max: f64, capacity: f64, resolution: f64) -> (f64, usize) {
        let mut search = Search::new(rate_max, resolution);
        let mut trials = 0;
        while let Some(rate) = search.next() {
            search.tried(rate <= capacity);
            trials += 1;
        }
        (search.found, trials)
    }

    #[test]
    fn the_search_reaches_the_resolution() {
        assert_eq!(search(1e6, 2e6, 0.01), (1e6, 1));
        for capacity in [999_999.0, 500_000.0, 123_456.0, 1_000.0] {
            let (found, trials) = search(1e6, capacity, 0.01);
            assert!(found <= capacity && found >= capacity * 0.98, "{found} of {capacity}");
            assert!(trials < 30, "{trials}");
        }
        assert_eq!(search(1e6, 0.0, 0.01).0, 0.0);
    }

    #[test]
    fn the_search_continues_below_a_rate_that_is_not_held() {
        let mut search = Search::new(1e6, 0.1);
        search.tried(true);
        assert_eq!((search.next(), search.found), (None, 1e6));
        for rate_max in [1e6, 400_000.0] {
            search.not_held();
            assert_eq!(search.found, 0.0);
            while let Some(rate) = search.next() {
                assert!(rate < rate_max);
                search.tried(rate <= 400_000.0);
            }
            assert!(search.found <= 400_000.0 && search.found < rate_max, "{}", search.found);
        }
        search.found = 0.5;
        search.not_held();
        assert_eq!(search.next(), None, "no rate is below one packet per second");
    }

    #[test]
    fn sizes_are_parsed() {
        assert_eq!(parse_size("60"), Ok(Size::Fixed(60)));
        assert_eq!(parse_size("imix"), Ok(Size::Imix));
        assert!(parse_size("small").is_err());
    }
}

//! `godwit generate`
//!
//! The configuration says what is sent and where: a `synthetic` port, the port that its chain leads to, and the port by which packets come back
//! and whose chain leads to the synthetic port again. Between the two is the device under test, whatever it is.
//!
//! ```text
//! synthetic --chain--> port ==> device under test ==> port --chain--> synthetic
//! made, marked                                                        found, timed
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

/// Send packets through a device under test and say what became of them; with --search, find what it takes (RFC 2544).
#[derive(Args)]
pub(crate) struct Arguments {
    /// The configuration: a synthetic port, the port that it sends by, and the port by which packets come back to it.
    config: PathBuf,
    /// Send for so long; of a search, each trial.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, default_value = "2", allow_negative_numbers = true)]
    seconds: Duration,
    /// How fast, as in the configuration: 1Mpps, 5Gbps; of a search, the fastest rate that is tried.
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Length of frames without FCS, or imix; may be given more than once.
    #[arg(long = "size", value_name = "BYTES|imix", value_parser = parse_size)]
    sizes: Vec<Size>,
    /// Search for the highest rate at which no more is lost than --loss, and measure the latency at a share of it.
    #[arg(long)]
    search: bool,
    /// Share of packets that may be lost.
    #[arg(long, value_name = "RATIO", default_value_t = 0.0)]
    loss: f64,
    /// The search ends when rates differ by less than this share.
    #[arg(long, value_name = "RATIO", default_value_t = 0.02)]
    resolution: f64,
    /// Share of the rate found at which latency is measured.
    #[arg(long, value_name = "RATIO", default_value_t = 0.9)]
    latency_at: f64,
    /// Hold the rate found for so long; it counts only if no more is lost meanwhile.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    hold: Option<Duration>,
    /// Wait so long before sending, for links to come up.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, default_value = "0.3", allow_negative_numbers = true)]
    settle: Duration,
    /// Wait so long after sending, for what is on its way.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, default_value = "0.5", allow_negative_numbers = true)]
    drain: Duration,
    /// Write all trials as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One trial, as a row like those of benches with what else was found.
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
    /// Millions of packets per second that came back.
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
    /// Packets per second that were to be sent; 0 for as many as possible.
    offered_pps: f64,
    /// Whether as many were sent.
    offered: bool,
    sent: u64,
    received: u64,
    lost: u64,
    loss_ratio: f64,
    duplicates: u64,
    reordered: u64,
    foreign: u64,
}

/// All that was measured.
#[derive(Serialize)]
struct Document {
    command: &'static str,
    config: String,
    rows: Vec<Trial>,
}

/// Succeeds if a search found a rate, and if packets were conserved.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    for (name, value, most) in [("--loss", arguments.loss, 1.0), ("--latency-at", arguments.latency_at, 1.0)] {
        if !(0.0..=most).contains(&value) {
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
    output::print_beside(&json, &text(&rows))?;
    json.write(&Document { command: "generate", config: arguments.config.display().to_string(), rows })?;
    if found_all {
        Ok(())
    } else {
        Err(Failure::User("no rate at which as little was lost as --loss allows".to_owned()))
    }
}

/// The port that makes the traffic.
fn traffic(config: &Config) -> Result<usize, Failure> {
    let mut synthetic = config.ports.iter().enumerate().filter(|(_, port)| matches!(port.kind, PortKind::Synthetic(_)));
    match (synthetic.next(), synthetic.next()) {
        (Some((index, _)), None) => Ok(index),
        (None, _) => Err(Failure::User(
            "there is no port of kind = \"synthetic\" in the configuration: it makes what is sent".to_owned(),
        )),
        (Some((_, one)), Some((_, other))) => Err(Failure::User(format!(
            "ports `{}` and `{}` are both synthetic: one makes what is sent and finds what comes back",
            one.name, other.name
        ))),
    }
}

struct Runner<'a> {
    arguments: &'a Arguments,
    /// Number of the synthetic port.
    traffic: usize,
    stop: Arc<AtomicBool>,
    rows: Vec<Trial>,
}

impl Runner<'_> {
    /// Sends at `rate` for `time`.
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
        // Without a rate nothing ends it but time, and then what is on its way is cut off with the rest.
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

    /// RFC 2544, section 26.1, by halving; 26.2 at a share of what was found. False where no rate was found.
    fn search(&mut self, size: Size, most: Rate) -> Result<bool, Failure> {
        let most = match most {
            Rate::PacketsPerS(rate) => rate,
            Rate::BitsPerS(rate) => rate / (size.mean_bytes() * 8.0),
            Rate::Max => {
                return Err(Failure::User(
                    "a search needs --rate, the fastest that is tried: 10Mpps, 10Gbps".to_owned(),
                ));
            }
        };
        let Arguments { loss, resolution, seconds, hold, latency_at, .. } = *self.arguments;
        let mut search = Search::new(most, resolution);
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
            // What was found in short trials counts only if it can be held.
            let Some(hold) = hold else { break };
            let held = self.trial("hold", size, Rate::PacketsPerS(search.found), hold)?;
            if self.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if held.offered && held.loss_ratio <= loss {
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

/// Halving between a rate that passed and one that did not.
#[derive(Debug)]
struct Search {
    found: f64,
    failed: Option<f64>,
    trying: f64,
    resolution: f64,
}

impl Search {
    fn new(most: f64, resolution: f64) -> Self {
        Self { found: 0.0, failed: None, trying: most, resolution }
    }

    /// Whether the search is over, had the rate being tried this outcome.
    fn ends_with(&self, passed: bool) -> bool {
        let (found, failed) = if passed { (self.trying, self.failed) } else { (self.found, Some(self.trying)) };
        match failed {
            None => true,
            // Below a packet a second there is nothing to find.
            Some(failed) => failed - found <= self.resolution * failed || failed < 1.0,
        }
    }

    fn next(&self) -> Option<f64> {
        (self.trying > 0.0).then_some(self.trying)
    }

    /// The rate found is too high after all; nothing below it counts as found, for it may be no better.
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
            .map_err(|_| format!("\"{text}\" is no size: write bytes without FCS, imix or imix-pipsea")),
    }
}

fn sentence(trial: &Trial) -> String {
    let offered = match trial {
        Trial { offered: false, .. } => ", less than was to be offered",
        _ => "",
    };
    format!(
        "{:.3} Mpps offered, {} sent{offered}, {} lost ({:.4} %), {} again, {} out of order; p50 {:.1} µs, p99 {:.1} µs",
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

/// The table at the end.
fn text(rows: &[Trial]) -> String {
    let shown = rows.iter().filter(|row| row.purpose != "search");
    let mut table = Table::new(&[
        ("", Align::Left),
        ("size", Align::Right),
        ("Mpps", Align::Right),
        ("Gbps", Align::Right),
        ("sent", Align::Right),
        ("lost", Align::Right),
        ("again", Align::Right),
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

    /// A device that takes so many packets a second.
    fn search(most: f64, takes: f64, resolution: f64) -> (f64, usize) {
        let mut search = Search::new(most, resolution);
        let mut trials = 0;
        while let Some(rate) = search.next() {
            search.tried(rate <= takes);
            trials += 1;
        }
        (search.found, trials)
    }

    #[test]
    fn the_search_comes_as_near_as_it_is_told() {
        assert_eq!(search(1e6, 2e6, 0.01), (1e6, 1));
        for takes in [999_999.0, 500_000.0, 123_456.0, 1_000.0] {
            let (found, trials) = search(1e6, takes, 0.01);
            assert!(found <= takes && found >= takes * 0.98, "{found} of {takes}");
            assert!(trials < 30, "{trials}");
        }
        assert_eq!(search(1e6, 0.0, 0.01).0, 0.0);
    }

    #[test]
    fn a_rate_that_is_not_held_is_searched_below() {
        let mut search = Search::new(1e6, 0.1);
        search.tried(true);
        assert_eq!((search.next(), search.found), (None, 1e6));
        for most in [1e6, 400_000.0] {
            search.not_held();
            assert_eq!(search.found, 0.0);
            while let Some(rate) = search.next() {
                assert!(rate < most);
                search.tried(rate <= 400_000.0);
            }
            assert!(search.found <= 400_000.0 && search.found < most, "{}", search.found);
        }
        search.found = 0.5;
        search.not_held();
        assert_eq!(search.next(), None, "nothing is below");
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_size("60"), Ok(Size::Fixed(60)));
        assert_eq!(parse_size("imix"), Ok(Size::Imix));
        assert!(parse_size("small").unwrap_err().contains("is no size"));
    }
}

//! Report of a run as tables. The last line is the conservation line.

use std::fmt::Write;

use godwit_engine::{Latency, LostDevice, PowerReport, Report};
use serde::Serialize;

use crate::failure::Failure;
use crate::table::{Align, Table, grouped, microseconds};

/// Report in JSON.
#[derive(Serialize)]
pub(crate) struct Document<'a> {
    /// Version of this program.
    pub(crate) godwit: &'static str,
    /// `run`, `replay` or `demo`.
    pub(crate) command: &'static str,
    /// Path of the configuration file from the command line.
    pub(crate) config: String,
    /// Whether every packet is accounted for and none is in flight.
    pub(crate) conserved: bool,
    #[serde(flatten)]
    pub(crate) report: &'a Report,
}

impl<'a> Document<'a> {
    pub(crate) fn new(command: &'static str, config: String, report: &'a Report) -> Self {
        let conserved = check_conserved(report).is_ok();
        Self { godwit: env!("CARGO_PKG_VERSION"), command, config, conserved, report }
    }
}

/// Checks the conservation of packets after a run.
///
/// # Errors
/// Returns an error if a packet is not accounted for, or is still in flight.
pub(crate) fn check_conserved(report: &Report) -> Result<(), Failure> {
    let conservation = &report.conservation;
    if !conservation.holds() {
        return Err(Failure::Bug(format!("packets were not conserved: {conservation}")));
    }
    if conservation.in_flight > 0 {
        return Err(Failure::Bug(format!("the run ended with packets in flight: {conservation}")));
    }
    Ok(())
}

/// Returns the report as text.
pub(crate) fn text(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let workers = if report.workers == 1 { "worker" } else { "workers" };
    let _ = writeln!(text, "{:.2} s, {} {workers}\n", report.elapsed_s, report.workers);
    text += &ports(report);
    text.push('\n');
    text += &functions(report);
    let results = results(report);
    if !results.is_empty() {
        text.push('\n');
        text += &results;
    }
    text += &power(report);
    for LostDevice { device, reason, workers, packets, moved_to } in &report.lost_devices {
        let affected =
            if report.workers == 1 { String::new() } else { format!(" for {workers} of {} workers", report.workers) };
        let packets = grouped(*packets);
        let _ = writeln!(
            text,
            "\nwarning: device {device} was lost{affected}: {reason}; its {packets} packets were dropped, and its \
             functions then ran on {moved_to}"
        );
    }
    if let Some(Latency { p50_ns, p99_ns, max_ns }) = report.latency {
        let [p50, p99, max] = [p50_ns, p99_ns, max_ns].map(microseconds);
        let _ = writeln!(text, "\nlatency from arrival to departure: p50 {p50} µs, p99 {p99} µs, max {max} µs");
    }
    let _ = writeln!(text, "{}", report.conservation);
    text
}

fn ports(report: &Report) -> String {
    let mut table = Table::new(&[
        ("port", Align::Left),
        ("kind", Align::Left),
        ("received", Align::Right),
        ("Mpps", Align::Right),
        ("Gbps", Align::Right),
        ("sent", Align::Right),
        ("Mpps", Align::Right),
        ("Gbps", Align::Right),
        ("skipped", Align::Left),
    ]);
    let seconds = report.elapsed_s.max(1e-9);
    for port in &report.ports {
        let mpps = |packets: u64| format!("{:.3}", packets as f64 / seconds / 1e6);
        let gbps = |bytes: u64| format!("{:.3}", bytes as f64 * 8.0 / seconds / 1e9);
        let skipped: Vec<String> =
            port.passed_over.iter().map(|(reason, count)| format!("{reason} {}", grouped(*count))).collect();
        table.row(vec![
            port.name.clone(),
            port.kind.to_owned(),
            grouped(port.received_packets),
            mpps(port.received_packets),
            gbps(port.received_bytes),
            grouped(port.sent_packets),
            mpps(port.sent_packets),
            gbps(port.sent_bytes),
            skipped.join(", "),
        ]);
    }
    table.text()
}

fn functions(report: &Report) -> String {
    let mut table = Table::new(&[
        ("function", Align::Left),
        ("kind", Align::Left),
        ("device", Align::Left),
        ("mode", Align::Left),
        ("form", Align::Left),
        ("packets", Align::Right),
        ("Mpps", Align::Right),
        ("Gbps", Align::Right),
        ("p50 µs", Align::Right),
        ("p99 µs", Align::Right),
        ("ns/packet", Align::Right),
        ("batch fill", Align::Right),
    ]);
    for function in &report.functions {
        let [p50, p99] = match function.latency {
            Some(latency) => [latency.p50_ns, latency.p99_ns].map(microseconds),
            None => ["-".to_owned(), "-".to_owned()],
        };
        table.row(vec![
            function.name.clone(),
            function.kind.to_owned(),
            function.device.clone(),
            function.mode.clone(),
            function.implementation.clone(),
            grouped(function.packets),
            format!("{:.3}", function.mpps),
            format!("{:.3}", function.gbps),
            p50,
            p99,
            format!("{:.0}", function.busy_ns_per_packet),
            format!("{:.0} %", function.batch_fill * 100.0),
        ]);
    }
    table.text()
}

/// Returns one line per device, with its power and energy or the reason why they are unknown.
fn power(report: &Report) -> String {
    let mut text = String::from("\n");
    for PowerReport { device, meters, not_measured, joules, watts, joules_per_packet, joules_per_chunk } in
        &report.power
    {
        let micro = |joules: Option<f64>| joules.map_or("-".to_owned(), |joules| format!("{:.2}", joules * 1e6));
        let _ = match (joules, watts) {
            (Some(joules), Some(watts)) => writeln!(
                text,
                "  {device} power: {watts:.1} W, {joules:.1} J ({}), {} µJ per packet, {} µJ per chunk",
                meters.join(", "),
                micro(*joules_per_packet),
                micro(*joules_per_chunk),
            ),
            _ => writeln!(text, "  {device} power: not measured ({})", not_measured.as_deref().unwrap_or_default()),
        };
    }
    text
}

/// Returns one line per function that processed packets, with the counts of its verdicts and drop
/// reasons. The last line counts the packets that the engine itself dropped. The total number of
/// drops equals the number in the conservation line.
fn results(report: &Report) -> String {
    let mut text = String::new();
    for function in &report.functions {
        let counted = |pairs: &[(String, u64)]| {
            let pairs = pairs.iter().filter(|(_, count)| *count > 0);
            pairs.map(|(name, count)| format!("{name} {}", grouped(*count))).collect::<Vec<_>>()
        };
        let (verdicts, drops) = (counted(&function.verdicts), counted(&function.drops));
        if verdicts.is_empty() && drops.is_empty() {
            continue;
        }
        let _ = write!(text, "  {}: {}", function.name, verdicts.join(", "));
        if !drops.is_empty() {
            let comma = if verdicts.is_empty() { "" } else { "; " };
            let _ = write!(text, "{comma}dropped: {}", drops.join(", "));
        }
        text.push('\n');
    }
    let of_engine = |(name, count): &(String, u64)| {
        let reason = name.strip_prefix("engine_dropped_")?;
        (*count > 0).then(|| format!("{reason} {}", grouped(*count)))
    };
    let drops: Vec<String> = report.counters.iter().filter_map(of_engine).collect();
    if !drops.is_empty() {
        let _ = writeln!(text, "  engine: dropped: {}", drops.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use godwit_engine::FunctionReport;

    use super::*;

    #[test]
    fn every_drop_is_shown() {
        let function = FunctionReport {
            name: "route".to_owned(),
            verdicts: vec![("forward".to_owned(), 5), ("local".to_owned(), 0)],
            drops: vec![("blackhole".to_owned(), 2)],
            ..FunctionReport::default()
        };
        let counters = [("engine_dropped", 1207), ("engine_dropped_flood", 1200), ("engine_dropped_chain", 5)]
            .map(|(name, count)| (name.to_owned(), count));
        let report = Report { functions: vec![function], counters: counters.into(), ..Report::default() };
        let expected = "  route: forward 5; dropped: blackhole 2\n  engine: dropped: flood 1 200, chain 5\n";
        assert_eq!(results(&report), expected);
    }
}

//! Converts a report to text in the OpenMetrics format, version 1.0.
//!
//! Every counter of `docs/counters.md` has a sample from the start of the run. Labels name the
//! instance and the reason, so one query shows all drops.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::observe::report::{Distribution, Report};

/// MIME type of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Type of a family of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// Samples of one metric. Each line contains a sample without the name of the metric.
struct Family {
    kind: Kind,
    unit: &'static str,
    help: &'static str,
    lines: Vec<String>,
}

/// Families by name.
#[derive(Default)]
struct Text(BTreeMap<String, Family>);

/// Labels of a sample: names and values.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Text {
    fn family(&mut self, name: &str, kind: Kind, unit: &'static str, help: &'static str) -> &mut Vec<String> {
        let new = || Family { kind, unit, help, lines: Vec::new() };
        &mut self.0.entry(format!("godwit_{name}")).or_insert_with(new).lines
    }

    fn counter(&mut self, name: &str, unit: &'static str, help: &'static str, labels: Labels<'_>, value: f64) {
        self.family(name, Kind::Counter, unit, help).push(format!("_total{} {value}", braces(labels)));
    }

    fn gauge(&mut self, name: &str, unit: &'static str, help: &'static str, labels: Labels<'_>, value: f64) {
        self.family(name, Kind::Gauge, unit, help).push(format!("{} {value}", braces(labels)));
    }

    fn info(&mut self, name: &str, help: &'static str, labels: Labels<'_>) {
        self.family(name, Kind::Info, "", help).push(format!("_info{} 1", braces(labels)));
    }

    fn histogram(&mut self, name: &str, help: &'static str, labels: Labels<'_>, distribution: &Distribution) {
        let lines = self.family(name, Kind::Histogram, "seconds", help);
        let mut bucket = |bound: &str, count: u64| {
            let labels = [labels, &[("le", bound)]].concat();
            lines.push(format!("_bucket{} {count}", braces(&labels)));
        };
        for (bound_ns, count) in &distribution.buckets {
            bucket(&format!("{}", *bound_ns as f64 / 1e9), *count);
        }
        bucket("+Inf", distribution.total);
        lines.push(format!("_count{} {}", braces(labels), distribution.total));
        lines.push(format!("_sum{} {}", braces(labels), distribution.sum_ns as f64 / 1e9));
    }

    fn finish(self) -> String {
        let mut text = String::new();
        for (name, Family { kind, unit, help, lines }) in self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# TYPE {name} {}", kind.name());
            if !unit.is_empty() {
                let _ = writeln!(text, "# UNIT {name} {unit}");
            }
            let _ = writeln!(text, "# HELP {name} {help}");
            lines.iter().for_each(|line| _ = writeln!(text, "{name}{line}"));
        }
        text + "# EOF\n"
    }
}

fn braces(labels: Labels<'_>) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let escape = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

/// Returns the report as OpenMetrics text. `config` is the name of the configuration.
pub(crate) fn text(report: &Report, config: &str) -> String {
    let mut text = Text::default();
    text.info("build", "Version of the program.", &[("version", env!("CARGO_PKG_VERSION"))]);
    text.info("config", "Name of the configuration file.", &[("file", config)]);
    text.gauge("uptime_seconds", "seconds", "Time since the start.", &[], report.elapsed_s);
    for (name, value) in &report.counters {
        let (name, label) = match name.split_once('{') {
            Some((name, label)) => (name, label.split('"').nth(1).unwrap_or_default()),
            None => (name.as_str(), ""),
        };
        match name.split_once('_') {
            Some(("engine", counter)) => engine(&mut text, counter, *value as f64),
            Some(("port", counter)) => port(&mut text, counter, label, *value as f64),
            Some(("device", counter)) => device(&mut text, counter, label, *value as f64),
            _ => function(&mut text, name, label, report, *value as f64),
        }
    }
    ports_and_functions(&mut text, report);
    for (worker, busy) in report.worker_busy.iter().enumerate() {
        let seconds = busy * report.elapsed_s;
        let worker = worker.to_string();
        let help = "Time of the loop iterations that moved a packet.";
        text.counter("worker_busy_seconds", "seconds", help, &[("worker", &worker)], seconds);
        let is_hung = report.health.hung_workers.iter().any(|hung| hung.to_string() == worker);
        let help = "1 if the worker completes no loop iteration.";
        text.gauge("worker_hung", "", help, &[("worker", &worker)], f64::from(u8::from(is_hung)));
    }
    for power in &report.power {
        let is_lost = report.lost_devices.iter().any(|lost| lost.device == power.device);
        let help = "1 if the device works, 0 if it was lost.";
        text.gauge("device_up", "", help, &[("device", &power.device)], f64::from(u8::from(!is_lost)));
    }
    let flow = &report.conservation;
    let error =
        (flow.received + flow.created) as f64 - (flow.sent + flow.dropped + flow.merged + flow.in_flight) as f64;
    let help = "Packets that are not accounted for. Counters of different workers are not read at the same time, so the \
                value is exact only without traffic.";
    text.gauge("conservation_error_packets", "packets", help, &[], error);
    text.histogram("latency_seconds", "Time from arrival to departure.", &[], &report.distribution);
    text.finish()
}

fn ports_and_functions(text: &mut Text, report: &Report) {
    for port in &report.ports {
        text.info("port", "Kind of the port.", &[("port", &port.name), ("kind", port.kind)]);
        if let Some(is_up) = port.is_up {
            let up = f64::from(u8::from(is_up));
            text.gauge("port_up", "", "1 if the link is up.", &[("port", &port.name)], up);
        }
    }
    for function in &report.functions {
        let labels: Labels<'_> = &[("function", &function.name), ("kind", function.kind), ("device", &function.device)];
        text.info("function", "Device of the function.", labels);
        for (table, entries) in &function.tables {
            let labels: Labels<'_> = &[("function", &function.name), ("kind", function.kind), ("table", table)];
            text.gauge("table_entries", "", "Entries of a table, such as routes and SAs.", labels, *entries as f64);
        }
        let help = "Time in the function, including the wait in bins.";
        text.histogram("function_latency_seconds", help, &labels[..2], &function.distribution);
    }
}

fn engine(text: &mut Text, counter: &str, value: f64) {
    match counter {
        "busy_ns" => {}
        // The sum of all reasons.
        "dropped" => {}
        "held" | "in_flight" => {
            text.gauge(&format!("{counter}_packets"), "packets", "Packets that are in the engine now.", &[], value);
        }
        "loops" | "idle_loops" => text.counter(counter, "", "Iterations of the loops of all workers.", &[], value),
        _ => match counter.strip_prefix("dropped_") {
            Some(reason) => dropped(text, &[("function", ""), ("kind", "engine"), ("reason", reason)], value),
            None => {
                text.counter(&format!("{counter}_packets"), "packets", "Packets of the whole engine.", &[], value);
            }
        },
    }
}

fn dropped(text: &mut Text, labels: Labels<'_>, value: f64) {
    text.counter("dropped_packets", "packets", "Dropped packets by function and reason.", labels, value);
}

fn port(text: &mut Text, counter: &str, port: &str, value: f64) {
    match counter {
        "received_packets" | "sent_packets" => {
            text.counter(&format!("port_{counter}"), "packets", "Packets of the port.", &[("port", port)], value);
        }
        "received_bytes" | "sent_bytes" => {
            text.counter(&format!("port_{counter}"), "bytes", "Bytes of these packets.", &[("port", port)], value);
        }
        reason => {
            let help = "Packets that the port skipped, lost or left to the kernel, by reason.";
            text.counter("port_other_packets", "packets", help, &[("port", port), ("reason", reason)], value);
        }
    }
}

fn device(text: &mut Text, counter: &str, device: &str, value: f64) {
    let labels: Labels<'_> = &[("device", device)];
    match counter {
        "packets" => text.counter("device_packets", "packets", "Packets submitted to the device.", labels, value),
        "energy" => text.counter("device_energy_joules", "joules", "Energy of the device.", labels, value / 1e6),
        "chunks" => text.counter("device_chunks", "", "Chunks submitted to the device.", labels, value),
        other => {
            let name = format!("device_{other}_bytes");
            text.counter(&name, "bytes", "Bytes copied to or from the device.", labels, value);
        }
    }
}

fn function(text: &mut Text, name: &str, function: &str, report: &Report, value: f64) {
    let Some(kind) = report.functions.iter().find(|entry| entry.name == function).map(|entry| entry.kind) else {
        return;
    };
    let Some(counter) = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('_')) else { return };
    let labels: Labels<'_> = &[("function", function), ("kind", kind)];
    let with = |label, value| [labels, &[(label, value)]].concat();
    match counter {
        "packets" => text.counter("function_packets", "packets", "Packets of the kernel.", labels, value),
        "bytes" => text.counter("function_bytes", "bytes", "Bytes of these packets.", labels, value),
        "settled" => {
            let help = "Packets that the host half completed without the kernel.";
            text.counter("function_settled_packets", "packets", help, labels, value);
        }
        "bins" => text.counter("function_bins", "", "Bins that a device finished.", labels, value),
        "busy_ns" => {
            let help = "Time that devices worked on the function.";
            text.counter("function_busy_seconds", "seconds", help, labels, value / 1e9);
        }
        _ => match (counter.strip_prefix("verdict_"), counter.strip_prefix("dropped_")) {
            (Some(verdict), _) => {
                let help = "Packets by function and verdict.";
                text.counter("verdict_packets", "packets", help, &with("verdict", verdict), value);
            }
            (None, Some(reason)) => dropped(text, &with("reason", reason), value),
            (None, None) => {
                let help = "Further counters of functions, which docs/counters.md explains.";
                text.gauge("function_value", "", help, &with("counter", counter), value);
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::report::FunctionReport;

    #[test]
    fn counters_become_families_with_labels_and_units() {
        let distribution = Distribution { buckets: vec![(1023, 2), (2047, 3)], total: 4, sum_ns: 9000 };
        let function =
            FunctionReport { name: "vpn\"\\".to_owned(), kind: "ipsec", distribution, ..FunctionReport::default() };
        let counters = [
            ("engine_received", 7),
            ("engine_dropped_chain", 1),
            ("ipsec_dropped_replayed{function=\"vpn\"}", 2),
            ("ipsec_busy_ns{function=\"vpn\"}", 1_500_000_000),
            ("port_missed{port=\"wan\"}", 3),
            ("device_energy{device=\"cpu\"}", 2_500_000),
        ];
        let plain = FunctionReport { name: "vpn".to_owned(), kind: "ipsec", ..FunctionReport::default() };
        let counters = counters.map(|(name, value)| (name.to_owned(), value)).into();
        let report = Report { functions: vec![plain, function], counters, ..Report::default() };
        let found = text(&report, "a.toml");
        for line in [
            "# TYPE godwit_received_packets counter\n# UNIT godwit_received_packets packets",
            "godwit_received_packets_total 7\n",
            "godwit_dropped_packets_total{function=\"\",kind=\"engine\",reason=\"chain\"} 1\n",
            "godwit_dropped_packets_total{function=\"vpn\",kind=\"ipsec\",reason=\"replayed\"} 2\n",
            "godwit_function_busy_seconds_total{function=\"vpn\",kind=\"ipsec\"} 1.5\n",
            "godwit_port_other_packets_total{port=\"wan\",reason=\"missed\"} 3\n",
            "godwit_device_energy_joules_total{device=\"cpu\"} 2.5\n",
            "godwit_function_latency_seconds_bucket{function=\"vpn\\\"\\\\\",kind=\"ipsec\",le=\"0.000001023\"} 2\n",
            "godwit_function_latency_seconds_count{function=\"vpn\\\"\\\\\",kind=\"ipsec\"} 4\n",
        ] {
            assert!(found.contains(line), "{line}: {found}");
        }
        assert!(found.ends_with("# EOF\n"));
    }
}

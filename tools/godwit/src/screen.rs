//! Status of a running godwit on one screen.

use std::fmt::Write as _;

use serde_json::Value;

use crate::table::{Align, Table, grouped, microseconds};

/// Counters of ports that are not losses.
const NO_LOSS: &[&str] = &["port_received_", "port_sent_", "port_left_to_kernel"];

/// Returns the status as text. `all` adds every counter to the text.
pub(crate) fn text(report: &Value, all: bool) -> String {
    let mut text = heading(report);
    let placement = placement(&report["placement"]);
    for part in [totals(report), ports(report), functions(report), devices(report), placement, drops(report)] {
        if !part.is_empty() {
            text.push('\n');
            text += &part;
        }
    }
    if all {
        let mut counters = Table::new(&[("counter", Align::Left), ("", Align::Right)]);
        for (name, value) in report["counters"].as_object().into_iter().flatten() {
            counters.row(vec![name.clone(), count(value)]);
        }
        text.push('\n');
        text += &counters.text();
    }
    text
}

fn count(value: &Value) -> String {
    grouped(value.as_u64().unwrap_or(0))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Formats a rate with a metric prefix, or a dash if it is still unknown.
fn rate(value: &Value) -> String {
    match value.as_f64() {
        None => "-".to_owned(),
        Some(rate) if rate >= 1e9 => format!("{:.2} G", rate / 1e9),
        Some(rate) if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        Some(rate) if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        Some(rate) => format!("{rate:.0}"),
    }
}

fn pps(value: &Value) -> String {
    let rate = rate(value);
    let space = if rate.ends_with(char::is_numeric) { " " } else { "" };
    format!("{rate}{space}pps")
}

fn percent(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", 100.0 * share))
}

fn latency(value: &Value, key: &str) -> String {
    value[key].as_u64().map_or_else(|| "-".to_owned(), microseconds)
}

/// Returns the report of the last second. It is null in the first second of a run.
fn last_second(report: &Value) -> &Value {
    &report["recent"][0]
}

/// Returns the version, the configuration, the run time, and the worker states.
fn heading(report: &Value) -> String {
    let seconds = report["elapsed_s"].as_f64().unwrap_or(0.0) as u64;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let days = if days > 0 { format!("{days} d ") } else { String::new() };
    let recent = list(&last_second(report)["worker_busy"]);
    let busy: Vec<String> =
        if recent.is_empty() { list(&report["worker_busy"]) } else { recent }.iter().map(percent).collect();
    let mut text = format!(
        "godwit {}  {}  up {days}{hours:02}:{minutes:02}:{:02}\n{} {} busy {}\n",
        word(&report["godwit"]),
        word(&report["config"]),
        seconds % 60,
        report["workers"],
        if report["workers"] == 1 { "worker," } else { "workers," },
        busy.join(", "),
    );
    for worker in list(&report["health"]["hung_workers"]) {
        let _ = writeln!(text, "WARNING: worker {worker} hangs, and its packets wait");
    }
    for function in list(&report["health"]["disabled_housekeeping"]) {
        let _ = writeln!(text, "WARNING: the tables of function {function} no longer change, because of a bug");
    }
    text
}

/// Returns the rates and latencies of all packets, over the last seconds and the whole run.
fn totals(report: &Value) -> String {
    let mut titles = vec![("", Align::Left)];
    let periods = list(&report["recent"]);
    let names: Vec<String> =
        periods.iter().map(|period| format!("{:.0} s", period["seconds"].as_f64().unwrap_or(0.0))).collect();
    titles.extend(names.iter().map(|name| (name.as_str(), Align::Right)));
    titles.push(("run", Align::Right));
    let mut table = Table::new(&titles);
    for name in ["received", "sent", "dropped"] {
        let rates = periods.iter().map(|period| pps(&period[format!("{name}_pps")]));
        let row = std::iter::once(name.to_owned()).chain(rates).chain([count(&report["conservation"][name])]);
        table.row(row.collect());
    }
    for (name, key) in [("p50 µs", "p50_ns"), ("p99 µs", "p99_ns"), ("max µs", "max_ns")] {
        let figures = periods.iter().chain([report]).map(|period| latency(&period["latency"], key));
        table.row(std::iter::once(name.to_owned()).chain(figures).collect());
    }
    let in_flight = count(&report["conservation"]["in_flight"]);
    let dashes = periods.iter().map(|_| String::new());
    table.row(std::iter::once("in flight".to_owned()).chain(dashes).chain([in_flight]).collect());
    table.text()
}

fn ports(report: &Value) -> String {
    let left = ["port", "kind", "link"].map(|title| (title, Align::Left));
    let right = ["in pps", "in bit/s", "out pps", "out bit/s", "received", "sent"].map(|title| (title, Align::Right));
    let mut table = Table::new(&[&left[..], &right[..]].concat());
    let recent = &last_second(report)["ports"];
    for (index, port) in list(&report["ports"]).iter().enumerate() {
        let link = match port["is_up"].as_bool() {
            Some(true) => "up",
            Some(false) => "DOWN",
            None => "-",
        };
        let rates = ["received_pps", "received_bps", "sent_pps", "sent_bps"].map(|key| rate(&recent[index][key]));
        let counts = ["received_packets", "sent_packets"].map(|key| count(&port[key]));
        let names = [word(&port["name"]), word(&port["kind"]), link.to_owned()];
        table.row(names.into_iter().chain(rates).chain(counts).collect());
    }
    table.text()
}

fn functions(report: &Value) -> String {
    let left = ["function", "kind", "device"].map(|title| (title, Align::Left));
    let right = ["pps", "settled", "dropped", "p50 µs", "p99 µs", "busy", "packets"].map(|title| (title, Align::Right));
    let mut table = Table::new(&[&left[..], &right[..], &[("tables", Align::Left)]].concat());
    let recent = &last_second(report)["functions"];
    for (index, function) in list(&report["functions"]).iter().enumerate() {
        let now = &recent[index];
        let tables = function["tables"].as_object().into_iter().flatten();
        let tables: Vec<String> =
            tables.map(|(name, size)| format!("{} {}", name.replace('_', " "), count(size))).collect();
        table.row(vec![
            word(&function["name"]),
            word(&function["kind"]),
            word(&function["device"]),
            rate(&now["pps"]),
            rate(&now["settled_pps"]),
            rate(&now["dropped_pps"]),
            latency(&now["latency"], "p50_ns"),
            latency(&now["latency"], "p99_ns"),
            percent(&now["busy"]),
            grouped(function["packets"].as_u64().unwrap_or(0) + function["settled"].as_u64().unwrap_or(0)),
            tables.join(", "),
        ]);
    }
    table.text()
}

fn devices(report: &Value) -> String {
    let mut table = Table::new(&[("device", Align::Left), ("power", Align::Left), ("health", Align::Left)]);
    let watts = &last_second(report)["watts"];
    for (index, device) in list(&report["power"]).iter().enumerate() {
        let lost = list(&report["lost_devices"]).iter().find(|lost| lost["device"] == device["device"]);
        let health = match lost {
            Some(lost) => format!("LOST: {}; {} runs its functions", word(&lost["reason"]), word(&lost["moved_to"])),
            None => "ok".to_owned(),
        };
        let power = match watts[index].as_f64().or_else(|| device["watts"].as_f64()) {
            Some(watts) => format!("{watts:.0} W"),
            None => "not measured".to_owned(),
        };
        table.row(vec![word(&device["device"]), power, health]);
    }
    table.text()
}

/// Returns the policy, the placement with its prediction and measurement, and the last decisions.
/// The text is empty without a placement.
pub(crate) fn placement(placement: &Value) -> String {
    let Some(policy) = placement["policy"].as_str() else { return String::new() };
    let under = placement["under"].as_str().map(|under| format!(" under {under}")).unwrap_or_default();
    let rule = if placement["rule"] == "thesis" { ", rule thesis" } else { "" };
    let mut text =
        format!("policy {policy}{under}{rule}\nplacement {}: {}\n", placement["number"], word(&placement["placement"]));
    let (predicted, measured) = (&placement["predicted"], &placement["measured"]);
    let figures = |of: &Value| {
        let cores = of["cores"].as_f64().map(|cores| format!("{cores:.1} cores"));
        let p99 = of["p99_ns"].as_u64().map(|ns| format!("p99 {} µs", microseconds(ns)));
        let watts = of["watts"].as_f64().map(|watts| format!("{watts:.0} W"));
        cores.into_iter().chain(p99).chain(watts).collect::<Vec<_>>().join(", ")
    };
    if !predicted.is_null() {
        let (load, limit) = (percent(&predicted["load"]), word(&predicted["limit"]));
        let _ = writeln!(text, "predicted {}, {load} of {limit}", figures(predicted));
    }
    let _ = writeln!(text, "measured  {}, {}", figures(measured), pps(&measured["pps"]));
    let _ = writeln!(text, "{}", word(&placement["latest"]));
    for decision in list(&placement["decisions"]) {
        let at = decision["at_s"].as_f64().unwrap_or(0.0);
        let _ = writeln!(text, "{at:>8.1} s  {}", word(&decision["sentence"]));
    }
    text
}

/// Returns the nonzero counters of dropped and lost packets.
fn drops(report: &Value) -> String {
    let mut table = Table::new(&[("dropped or lost, in the run", Align::Left), ("packets", Align::Right)]);
    let is_loss = |name: &str| {
        name.contains("_dropped_")
            || (name.starts_with("port_") && !NO_LOSS.iter().any(|start| name.starts_with(start)))
    };
    let mut is_empty = true;
    for (name, value) in report["counters"].as_object().into_iter().flatten() {
        if is_loss(name) && value.as_u64() > Some(0) {
            is_empty = false;
            table.row(vec![name.clone(), count(value)]);
        }
    }
    if is_empty { String::new() } else { table.text() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_screen_shows_rates_health_tables_and_losses() {
        let report = json!({
            "godwit": "1.2.3", "config": "router.toml", "elapsed_s": 90_061.0, "workers": 1, "worker_busy": [0.5],
            "conservation": { "received": 5000, "sent": 4000, "dropped": 1000, "in_flight": 0 },
            "latency": { "p50_ns": 10_000, "p99_ns": 20_000, "max_ns": 30_000 },
            "health": { "hung_workers": [0], "disabled_housekeeping": [] },
            "ports": [{ "name": "wan", "kind": "af_xdp", "is_up": false, "received_packets": 7, "sent_packets": 8 }],
            "functions": [{
                "name": "route", "kind": "ipv4", "device": "cpu", "packets": 40, "settled": 2,
                "tables": { "routes": 1234, "next_hops": 3 },
            }],
            "power": [{ "device": "cuda:0" }],
            "lost_devices": [{ "device": "cuda:0", "reason": "no answer", "moved_to": "cpu" }],
            "recent": [{
                "seconds": 1.0, "received_pps": 2_500_000.0, "sent_pps": 2000.0, "dropped_pps": 0.0, "worker_busy": [0.71],
                "latency": null, "ports": [{}], "functions": [{ "pps": 41_000.0, "busy": 0.2 }], "watts": [181.6],
            }],
            "counters": { "ipv4_dropped_no_route{function=\"route\"}": 1000, "port_missed{port=\"wan\"}": 0 },
        });
        let shown = text(&report, false);
        for part in [
            "godwit 1.2.3  router.toml  up 1 d 01:01:01",
            "busy 71 %",
            "WARNING: worker 0 hangs",
            "2.50 Mpps",
            "DOWN",
            "41.0 k",
            "next hops 3, routes 1 234",
            "182 W",
            "LOST: no answer; cpu runs its functions",
            "ipv4_dropped_no_route{function=\"route\"}    1 000",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("port_missed") && text(&report, true).contains("port_missed"), "{shown}");
    }

    #[test]
    fn a_placement_shows_prediction_measurement_and_decisions() {
        let report = json!({ "placement": {
            "policy": "latency-bound", "under": "200us", "rule": "gain", "number": 7, "placement": "inspect=opencl:0",
            "predicted": { "load": 0.62, "limit": "opencl:0", "cores": 0.43, "p99_ns": 150_000, "watts": null },
            "measured": { "pps": 2_500_000.0, "cores": 0.51, "p99_ns": 171_000 },
            "latest": "Stayed: no other placement is better.",
            "decisions": [{ "at_s": 12.34, "number": 7, "sentence": "inspect: 0 -> 100 % on opencl:0." }],
        } });
        let shown = text(&report, false);
        for part in [
            "policy latency-bound under 200us\nplacement 7: inspect=opencl:0\n",
            "predicted 0.4 cores, p99 150 µs, 62 % of opencl:0\n",
            "measured  0.5 cores, p99 171 µs, 2.50 Mpps\n",
            "Stayed: no other placement is better.\n",
            "    12.3 s  inspect: 0 -> 100 % on opencl:0.\n",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!text(&json!({}), false).contains("policy"));
    }

    #[test]
    fn the_first_second_has_no_rates() {
        let shown = text(&json!({ "workers": 2, "ports": [{ "name": "a" }], "recent": [] }), false);
        assert!(shown.contains("2 workers") && shown.contains("up 00:00:00"), "{shown}");
    }
}

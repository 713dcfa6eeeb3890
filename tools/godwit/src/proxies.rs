//! Formats the report of `godwit proxy` as tables. The report is JSON, because `godwit status` also
//! receives it as JSON.

use serde_json::Value;

use crate::table::{Align, Table, grouped};

/// Returns the lines after startup, with the address of each proxy.
pub(crate) fn started(report: &Value) -> String {
    let mut text = String::new();
    for proxy in list(&report["proxies"]) {
        text += &format!(
            "proxy {}: mode {}, listens on {}\n",
            name(proxy, "name"),
            name(proxy, "mode"),
            name(proxy, "listen")
        );
    }
    text + &format!("{}, lanes: {}\n", count(&report["workers"], "worker"), name(report, "lanes"))
}

/// Returns the report as text. The last line accounts for all signatures.
pub(crate) fn text(report: &Value) -> String {
    let mut text = format!(
        "{:.1} s, {}, configuration {}, lanes: {}\n\n",
        report["elapsed_s"].as_f64().unwrap_or(0.0),
        count(&report["workers"], "worker"),
        report["generation"],
        name(report, "lanes"),
    );
    let titles = ["proxy", "mode", "address", "connections", "handshakes", "resumed", "requests", "open"];
    let columns =
        titles.map(|title| (title, if title.len() < 8 && title != "open" { Align::Left } else { Align::Right }));
    let mut proxies = Table::new(&columns);
    let mut servers =
        Table::new(&[("server", Align::Left), ("of", Align::Left), ("healthy", Align::Left), ("active", Align::Right)]);
    let mut counters = Table::new(&[("counter", Align::Left), ("proxy", Align::Left), ("", Align::Right)]);
    for proxy in list(&report["proxies"]) {
        let count = |counter: &str| grouped(proxy["counters"][counter].as_u64().unwrap_or(0));
        let mut row = vec![name(proxy, "name"), name(proxy, "mode"), name(proxy, "listen")];
        row.extend(["accepted", "handshakes", "handshakes_resumed", "requests", "open"].map(count));
        proxies.row(row);
        for server in list(&proxy["upstreams"]) {
            let healthy = if server["healthy"] == true { "yes" } else { "no" };
            servers.row(vec![
                name(server, "address"),
                name(proxy, "name"),
                healthy.to_owned(),
                server["active"].to_string(),
            ]);
        }
        for (counter, value) in proxy["counters"].as_object().into_iter().flatten() {
            if value.as_u64() != Some(0) {
                counters.row(vec![counter.clone(), name(proxy, "name"), grouped(value.as_u64().unwrap_or(0))]);
            }
        }
    }
    for table in [proxies, servers, counters] {
        text += &table.text();
        text.push('\n');
    }
    let signer = &report["signer"];
    let count = |counter: &str| signer[counter].as_u64().unwrap_or(0);
    text + &format!(
        "signatures: received {} = signed {} ({} singly, {} in lanes, {} on devices) + refused {} + in flight {}\n",
        count("received"),
        count("signed"),
        count("signed_single"),
        count("signed_lanes"),
        count("signed_device"),
        count("refused"),
        count("in_flight"),
    )
}

/// Returns a number with a noun, such as `1 worker` or `2 workers`.
fn count(number: &Value, noun: &str) -> String {
    format!("{number} {noun}{}", if *number == 1 { "" } else { "s" })
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn name(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

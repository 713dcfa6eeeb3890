//! `godwit status`

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::control::Socket;
use crate::failure::Failure;
use crate::output::{self, Json};
use crate::table::{Align, Table, grouped};

/// Show the report and the counters of a running godwit.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    socket: Socket,
    /// Write the report as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let json = Json::open(arguments.json.as_deref())?;
    let report = arguments.socket.connect()?.send(&json!({ "command": "status" }))?;
    #[cfg(feature = "tls")]
    if report["proxies"].is_array() {
        output::print_text(&json, &crate::proxies::text(&report))?;
        return json.write(&report);
    }
    output::print_text(&json, &text(&report))?;
    json.write(&report)
}

fn text(report: &Value) -> String {
    let count = |value: &Value| grouped(value.as_u64().unwrap_or(0));
    let flow = &report["conservation"];
    let mut text = format!(
        "{:.1} s, {} {}: received {}, sent {}, dropped {}, in flight {}\n\n",
        report["elapsed_s"].as_f64().unwrap_or(0.0),
        report["workers"],
        if report["workers"] == 1 { "worker" } else { "workers" },
        count(&flow["received"]),
        count(&flow["sent"]),
        count(&flow["dropped"]),
        count(&flow["in_flight"]),
    );
    let mut functions = Table::new(&[
        ("function", Align::Left),
        ("kind", Align::Left),
        ("device", Align::Left),
        ("packets", Align::Right),
        ("Mpps", Align::Right),
        ("Gbps", Align::Right),
    ]);
    for function in report["functions"].as_array().into_iter().flatten() {
        let name = |key: &str| function[key].as_str().unwrap_or_default().to_owned();
        let rate = |key: &str| format!("{:.3}", function[key].as_f64().unwrap_or(0.0));
        let packets = count(&function["packets"]);
        functions.row(vec![name("name"), name("kind"), name("device"), packets, rate("mpps"), rate("gbps")]);
    }
    text += &functions.text();
    text.push('\n');
    let mut counters = Table::new(&[("counter", Align::Left), ("", Align::Right)]);
    for (name, value) in report["counters"].as_object().into_iter().flatten() {
        counters.row(vec![name.clone(), count(value)]);
    }
    text + &counters.text()
}

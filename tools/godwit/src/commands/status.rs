//! `godwit status`

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use crate::control::Socket;
use crate::failure::Failure;
use crate::output::{self, Json};
use crate::screen;
use crate::signals;

/// Longest sleep between two looks at the signals.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Show the rates, latencies, links, devices and drops of a running godwit.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    socket: Socket,
    /// Also show every counter, even if it is zero.
    #[arg(long)]
    all: bool,
    /// Show the status again every SECONDS (1 if no number is given), until SIGINT or the end of
    /// the run.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
        value_parser = super::parse_seconds, conflicts_with = "json")]
    watch: Option<Duration>,
    /// Write the report as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let json = Json::open(arguments.json.as_deref())?;
    let mut connection = arguments.socket.connect()?;
    let request = json!({ "command": "status" });
    let Some(interval) = arguments.watch else {
        let report = connection.send(&request)?;
        output::print_text(&json, &text(&report, arguments.all))?;
        return json.write(&report);
    };
    let stop = signals::stop_flag()?;
    let clear = if std::io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    loop {
        let due = Instant::now() + interval;
        output::print(&format!("{clear}{}\n", text(&connection.send(&request)?, arguments.all)))?;
        while Instant::now() < due {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()).min(LOOK_INTERVAL));
        }
    }
}

fn text(report: &Value, all: bool) -> String {
    #[cfg(feature = "tls")]
    if report["proxies"].is_array() {
        return crate::proxies::text(report);
    }
    screen::text(report, all)
}

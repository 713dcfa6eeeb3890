//! `godwit trace`

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::control::Socket;
use crate::failure::Failure;
use crate::signals;
use crate::trace::{Selection, Sinks};

/// How long is waited for packets before signals are looked for.
const READ_WAIT: Duration = Duration::from_millis(200);

/// Say every step of some packets that a running godwit gets: classes, bins, devices, verdicts, times, and why they are
/// dropped. Ends when there are enough, and on SIGINT.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    socket: Socket,
    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    timeout: Option<Duration>,
    /// Write what is said as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the packets as they came and as they left, with what is said of them as comments: pcapng.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let mut connection = arguments.socket.connect()?;
    let mut sinks = Sinks::open(arguments.json.as_deref(), arguments.pcap.as_ref())?;
    let mut request = arguments.selection.request(sinks.want_frames());
    (request["command"], request["action"]) = ("trace".into(), "start".into());
    connection.ask(&request)?;
    let started = Instant::now();
    loop {
        let rest = arguments.timeout.map_or(READ_WAIT, |timeout| timeout.saturating_sub(started.elapsed()));
        let action = if rest.is_zero() || stop.load(Ordering::Relaxed) { "stop" } else { "read" };
        // At least one: nobody asks without a pause.
        let wait_ms = rest.min(READ_WAIT).as_millis().max(1) as u64;
        let mut found = match connection.ask(&json!({ "command": "trace", "action": action, "wait_ms": wait_ms })) {
            Ok(found) => found,
            // It has gone: what it said before is told all the same.
            Err(failure) => return sinks.finish().and(Err(failure)),
        };
        sinks.take(&mut found)?;
        if found["over"] != false {
            return sinks.finish();
        }
    }
}

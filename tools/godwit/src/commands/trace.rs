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

/// Maximum wait for packets before signals are checked.
const READ_WAIT: Duration = Duration::from_millis(200);

/// Show every step of selected packets in a running godwit: classes, bins, devices, verdicts, times
/// and drop reasons. Ends after the requested number of packets, or on SIGINT.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    socket: Socket,
    /// Stop after this time, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    timeout: Option<Duration>,
    /// Write the packets and their steps as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the packets as pcapng, on arrival and departure, with their steps as comments.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let mut connection = arguments.socket.connect()?;
    let mut sinks = Sinks::open(arguments.json.as_deref(), arguments.pcap.as_ref())?;
    let mut request = arguments.selection.request(sinks.need_frames());
    (request["command"], request["action"]) = ("trace".into(), "start".into());
    connection.send(&request)?;
    let started = Instant::now();
    loop {
        let rest = arguments.timeout.map_or(READ_WAIT, |timeout| timeout.saturating_sub(started.elapsed()));
        let action = if rest.is_zero() || stop.load(Ordering::Relaxed) { "stop" } else { "read" };
        // Wait at least 1 ms, so that the loop does not poll without a pause.
        let wait_ms = rest.min(READ_WAIT).as_millis().max(1) as u64;
        let mut found = match connection.send(&json!({ "command": "trace", "action": action, "wait_ms": wait_ms })) {
            Ok(found) => found,
            // The running godwit ended. Write the packets that it has reported.
            Err(failure) => return sinks.finish().and(Err(failure)),
        };
        sinks.add(&mut found)?;
        if found["over"] != false {
            return sinks.finish();
        }
    }
}

//! Runs the program `godwit proxy`, and handles signals and the control socket.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::control::{Command, Control};
use crate::{Config, Error, Report, Running};

/// Interval at which the flags are read.
const POLL: Duration = Duration::from_millis(20);

/// Flags that signal handlers set.
#[derive(Clone, Copy, Debug)]
pub struct Flags<'a> {
    /// Flag that stops the program.
    pub stop: &'a AtomicBool,
    /// Flag that requests a reload of the configuration file.
    pub reload: &'a AtomicBool,
}

/// Runs the proxies of `config` until a flag stops them, and returns the final report. Calls
/// `started` once all sockets are open. A reload reads `file` again.
///
/// # Errors
/// Returns an error if the start or `started` fails. If a reload fails, the old configuration stays
/// in use, and a warning reports the reason.
pub fn run<E: From<Error>>(
    file: &Path,
    config: Config,
    flags: Flags<'_>,
    started: impl FnOnce(&Running) -> Result<(), E>,
) -> Result<Report, E> {
    let path = config.control.clone();
    let (sender, requests) = channel();
    let running = Running::start(config)?;
    let control = path.map(|path| Control::open(&path, sender.clone())).transpose()?;
    started(&running)?;
    let mut stopped = false;
    while !stopped && !flags.stop.load(Ordering::Relaxed) && !running.has_failed() {
        match requests.recv_timeout(POLL) {
            Ok(request) => {
                let result = match request.command {
                    Command::Status => {
                        serde_json::to_value(running.report()).map_err(|error| Error::Request(error.to_string()))
                    }
                    Command::Reload => reload(file, &running),
                    Command::Stop => {
                        stopped = true;
                        Ok(Value::Null)
                    }
                };
                // If the client has disconnected, the reply is discarded.
                let _ = request.reply.send(result);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        if flags.reload.swap(false, Ordering::Relaxed) {
            match reload(file, &running) {
                Ok(_) => tracing::info!(event = "reloaded", "{} was read again", file.display()),
                Err(error) => tracing::warn!(event = "reload_refused", "{error}; the old configuration stays in use"),
            }
        }
    }
    drop(control);
    Ok(running.stop(&|| false))
}

fn reload(file: &Path, running: &Running) -> Result<Value, Error> {
    let generation = running.reload(Config::load(file)?)?;
    Ok(json!({ "generation": generation }))
}

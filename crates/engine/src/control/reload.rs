//! Reloads the configuration and reopens the log files when a flag is set.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use godwit_function::Lifecycle;

use crate::control::socket::Commands;

/// Reloads the configuration when a flag is set. Each reload has a separate thread, because it
/// waits for packets in flight.
pub(crate) struct Reloader {
    requested: Arc<AtomicBool>,
    commands: Arc<Commands>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Reloader {
    pub(crate) fn new(requested: Arc<AtomicBool>, commands: Arc<Commands>) -> Self {
        Self { requested, commands, thread: None }
    }

    /// Starts a reload if the flag is set and no reload runs.
    pub(crate) fn look(&mut self) {
        let is_busy = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        if is_busy || !self.requested.swap(false, Ordering::Relaxed) {
            return;
        }
        for (name, function) in &self.commands.functions {
            if let Some(Err(error)) = function.lifecycle().map(Lifecycle::reopen) {
                tracing::warn!(event = "reopen_failed", function = name, "function `{name}`: {error}");
            }
        }
        let commands = Arc::clone(&self.commands);
        let body = move || match commands.changer.reload() {
            // The changer logs a change.
            Ok(_) => {}
            Err(sentence) => {
                tracing::warn!(event = "reload_refused", "the reload was refused, and nothing changed: {sentence}");
            }
        };
        match thread::Builder::new().name("reload".to_owned()).spawn(body) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                tracing::warn!(
                    event = "reload_refused",
                    "cannot reload the configuration: cannot start a thread: {error}"
                );
            }
        }
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

//! Helpers for runs of an engine.

use std::path::Path;
use std::time::Duration;

use godwit_engine::Report;
use godwit_engine::config::Config;

/// Maximum duration of a run. It is far more than a run takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Name of the device that fails. The machine has no such device.
pub(crate) const FAULTY: &str = "opencl:9";

/// Parses a configuration.
#[track_caller]
pub(crate) fn config(text: &str) -> Config {
    Config::parse(text, "test.toml", Path::new(".")).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns the value of a counter, or 0 if it is not in the report.
pub(crate) fn count(report: &Report, counter: &str) -> u64 {
    report.counters.iter().find(|(name, _)| name == counter).map_or(0, |(_, value)| *value)
}

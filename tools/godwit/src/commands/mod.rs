//! One module per command, and shared functions.

pub(crate) mod bench;
pub(crate) mod build;
pub(crate) mod chain;
pub(crate) mod check;
pub(crate) mod completion;
pub(crate) mod demo;
pub(crate) mod devices;
pub(crate) mod function;
pub(crate) mod generate;
pub(crate) mod mac;
pub(crate) mod man;
pub(crate) mod name;
pub(crate) mod new_function;
pub(crate) mod policy;
pub(crate) mod profile;
#[cfg(feature = "tls")]
pub(crate) mod proxy;
pub(crate) mod reload;
pub(crate) mod replay;
pub(crate) mod route;
pub(crate) mod rules;
pub(crate) mod run;
pub(crate) mod sa;
#[cfg(feature = "tls")]
pub(crate) mod signer;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod test;
pub(crate) mod trace;

use std::path::{Path, PathBuf};
use std::time::Duration;

use godwit_engine::config::Config;
use godwit_engine::trace::{Found, Trace};
use godwit_engine::{Engine, Options, Report};
use serde_json::Value;

use crate::failure::Failure;
use crate::progress::Progress;
use crate::supervisor::Supervisor;
use crate::{log, privileges, signals};

/// Reads a configuration and prints its warnings.
fn load(path: &Path) -> Result<Config, Failure> {
    let config = Config::load(path).map_err(Failure::user)?;
    for warning in &config.warnings {
        log::line(format_args!("godwit: warning: {warning}"));
    }
    Ok(config)
}

/// Returns the state folder from the command line, the configuration or systemd, in this order.
fn state_folder(argument: Option<&PathBuf>, config: &Config) -> Option<PathBuf> {
    // systemd separates several folders by colons.
    let of_systemd = || std::env::var("STATE_DIRECTORY").ok()?.split(':').next().map(PathBuf::from);
    let folder = argument.or(config.engine.state.as_ref()).cloned().or_else(of_systemd);
    folder.filter(|path| !path.as_os_str().is_empty())
}

/// Runs a configuration until its end, `limit` or a signal. Reports progress on standard error.
fn run_engine(config: Config, options: &Options, limit: Option<Duration>) -> Result<Report, Failure> {
    run_traced(config, options, limit, None).map(|(report, _)| report)
}

/// Runs a configuration like [`run_engine`], with a packet trace. The request `trace` starts the
/// trace before the first packet.
fn run_traced(
    config: Config,
    options: &Options,
    limit: Option<Duration>,
    trace: Option<&Value>,
) -> Result<(Report, Option<Found>), Failure> {
    // Register the signals before opening anything, so that a signal always stops cleanly.
    let stop = signals::stop_flag()?;
    let (user, control) = (config.engine.user.clone(), config.engine.control.clone());
    let state = options.state.clone().or_else(|| config.engine.state.clone());
    if config.holds_keys() {
        privileges::disable_core_dumps();
    }
    let engine = Engine::new(config, options)?;
    let trace = trace.map(|request| engine.trace(request)).transpose()?;
    if let Some(user) = user {
        privileges::drop_to(&user, options.control.as_deref().or(control.as_deref()), state.as_deref())?;
    }
    let supervisor = Supervisor::from_environment();
    supervisor.ready();
    let mut progress = Progress::new();
    let report = engine.run(&stop, limit, &mut |report| {
        progress.report(report);
        // A hung worker does not recover, so let the supervisor restart the process.
        if report.health.hung_workers.is_empty() {
            supervisor.is_alive();
        }
    });
    supervisor.stopping();
    progress.clear();
    Ok((report?, trace.map(Trace::stop)))
}

/// Parses a duration in seconds: above 0, fractions allowed.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let refuse = || format!("expected seconds above 0, such as 10 or 0.5, not {text}");
    let seconds: f64 = text.parse().map_err(|_| refuse())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(refuse()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_above_zero() {
        assert_eq!(parse_seconds("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["0", "-1", "inf", "NaN", "ten", "", "1e-12", "1e300"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}

//! Signals: SIGINT and SIGTERM stop cleanly, SIGHUP reloads the configuration, and SIGUSR1 selects
//! the next policy of the placement.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use crate::failure::Failure;

/// Returns a flag that the first SIGINT or SIGTERM sets. The second signal ends the process
/// immediately.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Register the shutdown first. The first signal then finds the flag unset and sets it. The
        // second signal finds it set and ends the process.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Failure::Bug(format!("cannot listen for signal {signal}: {error}")))?;
    }
    Ok(stop)
}

/// Returns a flag that every SIGHUP sets.
pub(crate) fn reload_flag() -> Result<Arc<AtomicBool>, Failure> {
    flag(SIGHUP)
}

/// Returns a flag that every SIGUSR1 sets.
pub(crate) fn policy_flag() -> Result<Arc<AtomicBool>, Failure> {
    flag(SIGUSR1)
}

fn flag(signal: i32) -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal, Arc::clone(&flag))
        .map_err(|error| Failure::Bug(format!("cannot listen for signal {signal}: {error}")))?;
    Ok(flag)
}

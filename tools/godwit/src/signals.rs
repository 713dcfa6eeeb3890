//! Clean stop on SIGINT and SIGTERM; SIGHUP has the configuration read again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::Failure;

/// A flag that the first SIGINT or SIGTERM sets. The second ends the process at once.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order counts: of two signals the first finds the flag unset and sets it, the second finds it set.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Failure::Bug(format!("cannot listen for signal {signal}: {error}")))?;
    }
    Ok(stop)
}

/// A flag that every SIGHUP sets.
pub(crate) fn reload_flag() -> Result<Arc<AtomicBool>, Failure> {
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&reload))
        .map_err(|error| Failure::Bug(format!("cannot listen for signal {SIGHUP}: {error}")))?;
    Ok(reload)
}

//! Exclusive use of the devices of this machine.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for exclusive use of the devices.
///
/// Persistent groups on the processor occupy its cores, so groups of another test might never
/// start. While groups of one test run, drops in another test would wait for them.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

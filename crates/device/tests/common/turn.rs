//! Gives one test at a time exclusive use of the devices of this machine.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until this test has exclusive use of the devices.
///
/// Persistent work-groups on the processor occupy its cores, so work-groups of another test might
/// never start. A test that frees device memory would also wait for the persistent work-groups of
/// other tests.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

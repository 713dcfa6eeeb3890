//! Coordinates the engines of this process that use the same CUDA device.
//!
//! The driver frees memory, unregisters pages and unloads modules only after all work on the device
//! has ended. Persistent work-groups end only with their engine. A second engine on the device
//! would thus block as soon as it frees something. If the first engine waits for the second, both
//! block forever. The second engine is therefore refused before it allocates anything. Engines in
//! launch mode wait only for each other's submissions. Other processes have separate contexts.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Unavailable;

/// Users of each device, indexed by device number.
static USERS: Mutex<BTreeMap<usize, Users>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Default)]
struct Users {
    devices: usize,
    groups: bool,
}

/// Records that a [`CudaDevice`](super::CudaDevice) uses a device. The record of a lost device is
/// never removed, because its persistent work-groups may still run.
#[derive(Debug)]
pub(super) struct Claim {
    number: usize,
    groups: bool,
}

impl Claim {
    /// Claims the device `number` for an engine of this process.
    ///
    /// # Errors
    /// Returns the reason, in one sentence, if persistent work-groups of another engine run on the
    /// device.
    pub(super) fn new(number: usize) -> Result<Self, Unavailable> {
        let mut users = lock();
        let users = users.entry(number).or_default();
        if users.groups {
            let reason = "persistent groups of another engine of this process run on it, and the driver would wait for \
                          them: stop that engine first, or use launch mode for both";
            return Err(Unavailable::Setup(reason.to_owned()));
        }
        users.devices += 1;
        Ok(Self { number, groups: false })
    }

    /// Reserves the device for the persistent work-groups of one engine. Other engines can then no
    /// longer use the device.
    ///
    /// # Errors
    /// Returns the reason, in one sentence, if another engine already uses the device.
    pub(super) fn begin_groups(&mut self) -> Result<(), Unavailable> {
        let mut users = lock();
        let users = users.entry(self.number).or_default();
        if users.devices > 1 {
            let reason = "another engine of this process uses it, and would wait for persistent groups to end";
            return Err(Unavailable::Setup(reason.to_owned()));
        }
        (users.groups, self.groups) = (true, true);
        Ok(())
    }

    /// Ends the reservation from [`Claim::begin_groups`], if there is one.
    pub(super) fn end_groups(&mut self) {
        if std::mem::take(&mut self.groups) {
            lock().entry(self.number).or_default().groups = false;
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.end_groups();
        lock().entry(self.number).or_default().devices -= 1;
    }
}

fn lock() -> MutexGuard<'static, BTreeMap<usize, Users>> {
    USERS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Tests run in parallel, so each test uses separate device numbers.

    #[test]
    fn engines_in_launch_mode_share_a_device() {
        let mut first = Claim::new(1001).unwrap();
        let second = Claim::new(1001).unwrap();
        assert!(first.begin_groups().unwrap_err().to_string().starts_with("another engine of this process"));
        drop(second);
        first.begin_groups().unwrap();
    }

    #[test]
    fn persistent_groups_use_a_device_exclusively_until_they_end() {
        let mut first = Claim::new(1002).unwrap();
        first.begin_groups().unwrap();
        assert!(Claim::new(1002).unwrap_err().to_string().contains("stop that engine first"));
        assert!(Claim::new(1003).is_ok(), "another device");
        first.end_groups();
        drop(Claim::new(1002).unwrap());
        first.begin_groups().unwrap();
        drop(first);
        drop(Claim::new(1002).unwrap());
    }
}

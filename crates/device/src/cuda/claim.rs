//! Who uses a device in this process.
//!
//! The driver gives memory back, unregisters pages and unloads modules only when everything on the device has ended, whoever
//! started it; persistent groups end when their engine does. So an engine beside them would hang as soon as it gives
//! anything back, and where the engine of the groups waits for it, both would for ever. It is refused before it has anything.
//! Engines that launch wait for no more than each other's chunks. Other processes have contexts of their own.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// By number of the device.
static USERS: Mutex<BTreeMap<usize, Users>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Default)]
struct Users {
    devices: usize,
    groups: bool,
}

/// One [`CudaDevice`](super::CudaDevice)'s use of a device, until it is dropped. That of a lost one stays: its groups may too.
#[derive(Debug)]
pub(super) struct Claim {
    number: usize,
    groups: bool,
}

impl Claim {
    /// # Errors
    /// Groups of another run there: a sentence.
    pub(super) fn new(number: usize) -> Result<Self, &'static str> {
        let mut users = lock();
        let users = users.entry(number).or_default();
        if users.groups {
            return Err(
                "persistent groups of another engine of this process run on it, for whose end the driver would \
                        wait: stop that engine first, or let both launch their chunks",
            );
        }
        users.devices += 1;
        Ok(Self { number, groups: false })
    }

    /// From now on no other may come: groups are to run.
    ///
    /// # Errors
    /// Another is there: a sentence.
    pub(super) fn begin_groups(&mut self) -> Result<(), &'static str> {
        let mut users = lock();
        let users = users.entry(self.number).or_default();
        if users.devices > 1 {
            return Err("another engine of this process uses it, and would have to wait for persistent groups to end");
        }
        (users.groups, self.groups) = (true, true);
        Ok(())
    }

    /// Groups run no more, or never did.
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

    // Each test has a device of its own: they run at the same time.

    #[test]
    fn those_that_launch_share_a_device() {
        let mut first = Claim::new(1001).unwrap();
        let second = Claim::new(1001).unwrap();
        assert!(first.begin_groups().unwrap_err().starts_with("another engine of this process"));
        drop(second);
        first.begin_groups().unwrap();
    }

    #[test]
    fn groups_want_a_device_for_themselves_until_they_end() {
        let mut first = Claim::new(1002).unwrap();
        first.begin_groups().unwrap();
        assert!(Claim::new(1002).unwrap_err().contains("stop that engine first"));
        assert!(Claim::new(1003).is_ok(), "another device");
        first.end_groups();
        drop(Claim::new(1002).unwrap());
        first.begin_groups().unwrap();
        drop(first);
        drop(Claim::new(1002).unwrap());
    }
}

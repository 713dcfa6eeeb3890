//! The devices of this machine.

use godwit_device::{Found, LAST_RESORT, Mode, kind_of};

/// Returns the usable devices other than the CPU, preferred kinds first.
pub(crate) fn others() -> Vec<Found> {
    godwit_device::found().into_iter().filter(|found| found.usable.is_ok()).collect()
}

/// Returns the names of the CPU and of all other usable devices.
pub(crate) fn present() -> Vec<String> {
    std::iter::once(LAST_RESORT.to_owned()).chain(others().into_iter().map(|found| found.capabilities.id)).collect()
}

/// Returns the modes that a device may support.
pub(crate) fn modes(device: &str) -> &'static [Mode] {
    kind_of(device).map_or(&[Mode::Launch], |kind| kind.modes())
}

/// Returns whether the operator can choose how launched chunks reach the device.
pub(crate) fn has_transfers(device: &str) -> bool {
    kind_of(device).is_some_and(|kind| !kind.transfers(Mode::Launch).is_empty())
}

//! The devices of this machine.

use godwit_device::{Found, LAST_RESORT, Mode, kind_of};

/// Returns the usable devices other than the CPU, of preferred kinds first.
pub(crate) fn others() -> Vec<Found> {
    godwit_device::found().into_iter().filter(|found| found.usable.is_ok()).collect()
}

/// Returns the names of the CPU and of every other usable device.
pub(crate) fn present() -> Vec<String> {
    std::iter::once(LAST_RESORT.to_owned()).chain(others().into_iter().map(|found| found.capabilities.id)).collect()
}

/// Returns the modes that a device may support.
pub(crate) fn modes(device: &str) -> &'static [Mode] {
    kind_of(device).map_or(&[Mode::Launch], |kind| kind.modes())
}

/// Returns whether the operator can choose the transfer of launched chunks.
pub(crate) fn has_transfers(device: &str) -> bool {
    kind_of(device).is_some_and(|kind| !kind.transfers(Mode::Launch).is_empty())
}

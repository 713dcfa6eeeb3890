//! The devices of this machine.

use godwit_device::{Found, cpu, cuda, opencl};

/// Returns the usable devices other than the CPU.
pub(crate) fn others() -> Vec<Found> {
    let found = [cuda::probe(), opencl::probe()].into_iter().flat_map(|probe| probe.found);
    found.filter(|found| found.usable.is_ok()).collect()
}

/// Returns the names of the CPU and of every other usable device.
pub(crate) fn present() -> Vec<String> {
    std::iter::once(cpu::ID.to_owned()).chain(others().into_iter().map(|found| found.capabilities.id)).collect()
}

/// Returns the kind of a device: `cpu`, `opencl` or `cuda`.
pub(crate) fn kind(device: &str) -> &str {
    device.split(':').next().unwrap_or_default()
}

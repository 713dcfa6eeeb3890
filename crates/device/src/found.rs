//! Results of a probe: the devices of one kind, and the reason why a device is unusable.

use serde::Serialize;

use crate::{Capabilities, Mode};

/// All devices of one kind on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// The devices. The number in a device's id is its index here.
    pub found: Vec<Found>,
    /// The reason, in one sentence, if there is no device.
    pub reason: Option<String>,
}

/// A device other than the CPU.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Properties that every device has. OpenCL devices are numbered over all platforms in the
    /// order of the loader (`opencl:0`, `opencl:1`), CUDA devices in the order of the driver
    /// (`cuda:0`, `cuda:1`). `warp_packets` is 1 if the driver does not report the number of
    /// packets that run in lockstep.
    pub capabilities: Capabilities,
    /// Name of the platform, as the driver reports it.
    pub platform: String,
    /// Driver version.
    pub driver: String,
    /// `cpu`, `gpu` or `other`.
    pub kind: &'static str,
    /// Whether the device works on the host's memory. Otherwise packets are copied to the device
    /// and back.
    pub host_memory: bool,
    /// Local memory of a work-group, in bytes.
    pub local_memory_bytes: u64,
    /// Maximum size of a buffer, in bytes.
    pub buffer_bytes_max: u64,
    /// Shared virtual memory features.
    pub svm: Svm,
    /// All modes, and whether the device supports each of them.
    pub modes: Vec<ModeFound>,
    /// Why the device cannot run chains, in one sentence; `None` if it can.
    pub chain_lacks: Option<String>,
    /// PCI address, as `domain:bus:device.function`, if the driver reports it.
    pub pci: Option<String>,
    /// Whether Godwit can use the device, or the reason, in one sentence, why it cannot.
    pub usable: Result<(), String>,
}

impl Found {
    /// Returns why the device does not support `mode`, or `None` if it does.
    pub fn lacks(&self, mode: Mode) -> Option<&str> {
        self.modes.iter().find(|found| found.mode == mode).and_then(|found| found.lacks.as_deref())
    }
}

/// Shared virtual memory features of a device. All are `false` before OpenCL 2.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Svm {
    /// Buffers that host and device share between commands.
    pub coarse: bool,
    /// Buffers that host and device share while commands run.
    pub fine: bool,
    /// All process memory, shared while commands run.
    pub system: bool,
    /// Atomic operations between host and device.
    pub atomics: bool,
}

/// A mode, and whether a device supports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModeFound {
    /// The mode.
    pub mode: Mode,
    /// The reason, in one sentence, if the device does not support the mode.
    pub lacks: Option<String>,
}

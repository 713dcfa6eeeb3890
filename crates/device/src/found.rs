//! Results of a probe: the devices of one kind, and the reason why a device is unusable.

use serde::Serialize;

use crate::error::Unavailable;
use crate::options::Mode;

/// All devices of one kind on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// The devices. The number in a device's id is its index here.
    pub found: Vec<Found>,
    /// Why there is no device; `None` if there is one.
    pub reason: Option<Unavailable>,
}

/// Properties of a device.
#[derive(Clone, Debug, Serialize)]
pub struct Capabilities {
    /// Name in configurations, such as `cpu` or `opencl:0`.
    pub id: String,
    /// Product name.
    pub name: String,
    /// Number of cores, compute units or multiprocessors.
    pub compute_units: usize,
    /// Number of packets that run in lockstep.
    pub warp_packets: usize,
    /// Usable memory, in bytes.
    pub memory_bytes: u64,
    /// Instruction set levels or features that Godwit uses.
    pub features: Vec<String>,
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
    /// Why the device cannot run chains; `None` if it can.
    pub chain_lacks: Option<Unavailable>,
    /// PCI address, as `domain:bus:device.function`, if the driver reports it.
    pub pci: Option<String>,
    /// Whether Godwit can use the device, or the reason why it cannot.
    pub usable: Result<(), Unavailable>,
}

impl Found {
    /// Returns why the device does not support `mode`, or `None` if it does.
    pub fn lacks(&self, mode: Mode) -> Option<&Unavailable> {
        self.modes.iter().find(|found| found.mode == mode).and_then(|found| found.lacks.as_ref())
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
    /// Why the device does not support the mode; `None` if it does.
    pub lacks: Option<Unavailable>,
}

//! Results of a search for devices of one kind, with a reason for each unusable device.

use serde::Serialize;

use crate::error::Unavailable;
use crate::options::Mode;

/// All devices of one kind on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// Devices, indexed by the number in their names.
    pub found: Vec<Found>,
    /// Reason why there is no device, or `None` if there is one.
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
    /// Properties of the device. The order of the devices is that of the OpenCL loader or the CUDA
    /// driver. If the driver does not report `warp_packets`, the value is 1.
    pub capabilities: Capabilities,
    /// Name of the platform, as the driver reports it.
    pub platform: String,
    /// Driver version.
    pub driver: String,
    /// Type of the device: `cpu`, `gpu` or `other`.
    pub kind: &'static str,
    /// Whether the device accesses packets in the host's memory. Otherwise, packets are copied to
    /// the device and back.
    pub host_memory: bool,
    /// Size of a work-group's local memory, in bytes.
    pub local_memory_bytes: u64,
    /// Maximum size of a buffer, in bytes.
    pub buffer_bytes_max: u64,
    /// Shared virtual memory features.
    pub svm: Svm,
    /// All modes, and whether the device supports each of them.
    pub modes: Vec<ModeFound>,
    /// Reason why the device cannot run a chain of functions, or `None` if it can.
    pub chain_lacks: Option<Unavailable>,
    /// PCI address of the device, as `domain:bus:device.function`. It is `None` if the driver does
    /// not report an address.
    pub pci: Option<String>,
    /// `Ok` if Godwit can use the device. Otherwise, the reason why it cannot.
    pub usable: Result<(), Unavailable>,
}

impl Found {
    /// Returns why the device does not support `mode`, or `None` if it does.
    pub fn lacks(&self, mode: Mode) -> Option<&Unavailable> {
        self.modes.iter().find(|found| found.mode == mode).and_then(|found| found.lacks.as_ref())
    }
}

/// Features of shared virtual memory (SVM) that a device supports. All fields are `false` before
/// OpenCL 2.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Svm {
    /// The device supports buffers that host and device share between commands.
    pub coarse: bool,
    /// The device supports buffers that host and device share while commands run.
    pub fine: bool,
    /// The device shares all process memory with the host while commands run.
    pub system: bool,
    /// The device supports atomic operations on memory that it shares with the host.
    pub atomics: bool,
}

/// A mode, and whether a device supports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModeFound {
    /// The mode.
    pub mode: Mode,
    /// Why the device does not support the mode, or `None` if it does.
    pub lacks: Option<Unavailable>,
}

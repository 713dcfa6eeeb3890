//! What probing finds: devices of any kind, and why one is not used.

use serde::Serialize;

use crate::{Capabilities, Mode};

/// All devices of one kind on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// The devices; one's number in its id is its place here.
    pub found: Vec<Found>,
    /// Where there is none: why, in one sentence.
    pub reason: Option<String>,
}

/// One device that is not the CPU.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// What every device has. Its id is `opencl:0`, `opencl:1` and so on, over all platforms in the loader's order, or
    /// `cuda:0`, `cuda:1` and so on, in the driver's.
    /// `warp_packets` is 1 where the driver tells no number of packets that run in lockstep.
    pub capabilities: Capabilities,
    /// The platform, which is the driver's name for itself.
    pub platform: String,
    /// Version of the driver.
    pub driver: String,
    /// `cpu`, `gpu` or `other`.
    pub kind: &'static str,
    /// Whether it works on the host's memory; otherwise packets are copied to it and back.
    pub host_memory: bool,
    /// Memory of a work-group, bytes.
    pub local_memory_bytes: u64,
    /// Largest buffer, bytes.
    pub buffer_bytes_max: u64,
    /// Shared virtual memory.
    pub svm: Svm,
    /// How bins can come to it, every mode there is.
    pub modes: Vec<ModeFound>,
    /// Why it cannot lead packets from function to function by itself, in one sentence; `None` where it can.
    pub chain_lacks: Option<String>,
    /// Where it is plugged in, as `domain:bus:device.function`, if the driver tells.
    pub pci: Option<String>,
    /// Whether Godwit can use it; if not, why, in one sentence.
    pub usable: Result<(), String>,
}

impl Found {
    /// Why it cannot run in a mode; `None` where it can.
    pub fn lacks(&self, mode: Mode) -> Option<&str> {
        self.modes.iter().find(|found| found.mode == mode).and_then(|found| found.lacks.as_deref())
    }
}

/// What a device can do of shared virtual memory (OpenCL 2.0 and later; all false before).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Svm {
    /// Buffers shared between commands.
    pub coarse: bool,
    /// Buffers shared while commands run.
    pub fine: bool,
    /// All of the process's memory shared while commands run.
    pub system: bool,
    /// Atomics between host and device.
    pub atomics: bool,
}

/// A mode, and whether a device can run in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModeFound {
    /// The mode.
    pub mode: Mode,
    /// Where it cannot: why, in one sentence.
    pub lacks: Option<String>,
}

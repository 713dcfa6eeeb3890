//! The table of device kinds, such as CPU, OpenCL and CUDA. Code outside this crate never tests the
//! kind of a device, but reads a property from this table.
//!
//! A new kind needs a folder with the same file names as `opencl/` and `cuda/`, and a row in this
//! table.

use std::sync::Arc;

use godwit_packet::{ArenaHandle, Memory};

use crate::device::Device;
use crate::error::Error;
use crate::found::{Found, Probe};
use crate::options::{DeviceOptions, Mode, Transfer};
use crate::program::{Implementation, Program};
use crate::{cpu, cuda, model, opencl};

/// Functions that a device runs, each with the implementation that the CPU uses for it.
pub type Programs = [(Arc<dyn Program>, Implementation)];

/// Opens the device with this number.
type Open = fn(usize, &Programs, &ArenaHandle, &DeviceOptions) -> Result<Arc<dyn Device>, Error>;
/// Allocates memory for a device. The arguments are the device number and the size in bytes.
type ArenaMemory = fn(usize, usize) -> Result<Memory, Error>;

/// One kind of device.
#[derive(Debug)]
pub struct Kind {
    /// Name of the kind. A device name consists of this name and a number, as in `cuda:0`. The CPU
    /// has no number.
    pub name: &'static str,
    /// Whether the machine may have several devices of this kind. The device names then end with a
    /// number.
    is_numbered: bool,
    /// Finds the devices of this kind. The value is `None` for kinds whose devices exist on every
    /// machine, such as the CPU.
    probe: Option<fn() -> Probe>,
    /// Whether devices of this kind exist only for tests. Error messages do not list the names of
    /// such devices.
    is_for_tests: bool,
    /// Opens a device by its number.
    open: Open,
    /// Allocates packet memory that suits a device of this kind. The value is `None` if ordinary
    /// memory suits the device.
    arena_memory: Option<ArenaMemory>,
    memory: PacketMemory,
    /// Modes that a device of this kind may support.
    modes: &'static [Mode],
    /// Packet transfers that the operator can choose in launch mode.
    transfers: &'static [Transfer],
    /// Default submission sizes in launch mode, or `None` if the worker thread runs the kernels
    /// itself.
    launch_chunks: Option<ChunkDefaults>,
    power: PowerMeter,
}

/// Memory in which a device works on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketMemory {
    /// The memory of the host.
    Host,
    /// The device's own memory.
    Own,
    /// Some devices of the kind use the host's memory and others have separate memory.
    /// [`Found::host_memory`] tells which.
    Probed,
}

/// How the energy of a device is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PowerMeter {
    /// The meters of the processors measure the device.
    Processors,
    /// The device has no separate energy meter. It runs on cores of the CPU, whose meters include
    /// its energy.
    PartOfCpu,
    /// The energy meter with the PCI address of the device.
    PciDevice,
    /// The energy meter with the PCI address of the device. If the address is unknown, the device
    /// number selects the meter, because NVML uses the same numbers.
    NvmlNumber,
}

/// Default submission sizes for an asynchronous device. A submission consists of the batches that
/// the device receives together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkDefaults {
    /// Number of submissions per worker. One submission is filled while the device processes the
    /// others.
    pub chunks: usize,
    /// Maximum number of submissions in flight, for all workers together.
    pub in_flight_max: Option<usize>,
    /// Maximum number of packets per submission. Short packets reach this limit before the limit
    /// `bytes`.
    pub packets_max: u32,
    /// Total size of the buffers in a full submission, in bytes.
    pub bytes: u32,
    /// Number of packets per batch, which equals two CUDA warps.
    pub bin_packets: u32,
    /// Maximum time that a packet waits until its submission is full, in nanoseconds. A worker
    /// fills a large submission in about this time.
    pub deadline_ns: u64,
}

/// Default submission sizes for persistent mode, and for OpenCL devices in launch mode.
const SMALL_CHUNKS: ChunkDefaults = ChunkDefaults {
    chunks: 4,
    in_flight_max: None,
    packets_max: 16_384,
    bytes: 2 << 20,
    bin_packets: 64,
    deadline_ns: 1_000_000,
};

/// Default sizes of submissions for devices to which copy engines move packets. On an H200, copies
/// of 8 MiB reach 0.95 of the bus rate. Submissions of 2 MiB also need small copies, and reach
/// 0.85. With 16 workers that have 18 MiB of buffers each, submissions of 6 MiB return sooner than
/// submissions of 8 MiB. Their throughput is up to 1.04 times as high.
///
/// 16 submissions in flight are slightly more than both directions of the bus need. On an H200 with
/// 16 workers and 1408-byte frames, 16 submissions reach 0.88 of half the duplex copy rate, and 48
/// submissions reach 0.80.
const COPIED_CHUNKS: ChunkDefaults =
    ChunkDefaults { in_flight_max: Some(16), packets_max: 32_768, bytes: 6 << 20, ..SMALL_CHUNKS };

/// All kinds of devices, with the most preferred kind first. Godwit uses this order on a machine
/// with usable devices of several kinds.
pub static KINDS: [Kind; 4] = [
    Kind {
        name: cuda::ID,
        is_numbered: true,
        probe: Some(cuda::probe),
        is_for_tests: false,
        open: |number, programs, arena, options| {
            Ok(Arc::new(cuda::CudaDevice::new(number, loaded(programs), arena, options)?))
        },
        arena_memory: None,
        memory: PacketMemory::Own,
        modes: &[Mode::Launch, Mode::Persistent],
        transfers: &Transfer::ALL,
        launch_chunks: Some(COPIED_CHUNKS),
        power: PowerMeter::NvmlNumber,
    },
    Kind {
        name: opencl::ID,
        is_numbered: true,
        probe: Some(opencl::probe),
        is_for_tests: false,
        open: |number, programs, arena, options| {
            Ok(Arc::new(opencl::OpenClDevice::new(number, loaded(programs), arena, options)?))
        },
        arena_memory: Some(opencl::arena_memory),
        memory: PacketMemory::Probed,
        modes: &[Mode::Launch, Mode::Persistent],
        transfers: &[],
        launch_chunks: Some(SMALL_CHUNKS),
        power: PowerMeter::PciDevice,
    },
    Kind {
        name: model::ID,
        is_numbered: true,
        probe: None,
        is_for_tests: true,
        open: |number, programs, _, options| Ok(Arc::new(model::ModelDevice::new(number, programs.to_vec(), options)?)),
        arena_memory: None,
        memory: PacketMemory::Host,
        modes: &[Mode::Launch, Mode::Persistent],
        transfers: &[],
        launch_chunks: Some(SMALL_CHUNKS),
        power: PowerMeter::PartOfCpu,
    },
    Kind {
        name: cpu::ID,
        is_numbered: false,
        probe: None,
        is_for_tests: false,
        open: |_, programs, _, _| Ok(Arc::new(cpu::CpuDevice::new(programs.to_vec())?)),
        arena_memory: None,
        memory: PacketMemory::Host,
        modes: &[Mode::Launch],
        transfers: &[],
        launch_chunks: None,
        power: PowerMeter::Processors,
    },
];

/// Returns the functions of a device, without the CPU implementations.
fn loaded(programs: &Programs) -> Vec<Arc<dyn Program>> {
    programs.iter().map(|(program, _)| Arc::clone(program)).collect()
}

impl Kind {
    /// Returns whether the worker thread processes submissions itself. A submission is then
    /// finished when `submit` returns. Every machine has such a device, [`LAST_RESORT`].
    pub fn is_synchronous(&self) -> bool {
        self.launch_chunks.is_none()
    }

    /// Returns whether devices of this kind are only for tests.
    pub fn is_for_tests(&self) -> bool {
        self.is_for_tests
    }

    /// Returns the modes that devices of this kind may support. If a device does not support one of
    /// the modes, [`Found::lacks`] returns the reason.
    pub fn modes(&self) -> &'static [Mode] {
        self.modes
    }

    /// Returns the packet transfers that the operator can choose in `mode`. The result is empty if
    /// there is no choice.
    pub fn transfers(&self, mode: Mode) -> &'static [Transfer] {
        if mode == Mode::Launch { self.transfers } else { &[] }
    }

    /// Returns the default submission sizes for a device that `workers` workers share. Returns
    /// `None` if the worker threads process submissions themselves.
    pub fn chunks(&self, mode: Mode, workers: usize) -> Option<ChunkDefaults> {
        let launched = self.launch_chunks?;
        let defaults = if mode == Mode::Launch { launched } else { SMALL_CHUNKS };
        let in_flight = defaults.in_flight_max.map(|max| (max / workers.max(1)).clamp(1, defaults.chunks - 1));
        Some(ChunkDefaults { chunks: in_flight.map_or(defaults.chunks, |in_flight| 1 + in_flight), ..defaults })
    }

    /// Finds the devices of this kind. Returns `None` if no search is needed, because every machine
    /// has all devices of the kind.
    pub fn probe(&self) -> Option<Probe> {
        self.probe.map(|probe| probe())
    }

    pub(crate) fn power(&self) -> PowerMeter {
        self.power
    }

    /// Returns the device number in the name `id`, such as 3 for `cuda:3` and 0 for `cpu`. Returns
    /// `None` if `id` is not the name of a device of this kind.
    pub fn number(&self, id: &str) -> Option<usize> {
        let rest = id.strip_prefix(self.name)?;
        if !self.is_numbered {
            return rest.is_empty().then_some(0);
        }
        let digits = rest.strip_prefix(':')?;
        // `parse` alone would accept a sign.
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
    }
}

/// Name of the device that every machine has. It runs on the worker threads, and takes over the
/// work of a lost device.
pub const LAST_RESORT: &str = cpu::ID;

/// Returns the kind of the device with the name `id`. The device need not exist on this machine.
/// Returns `None` if `id` is not a valid device name.
pub fn kind_of(id: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.number(id).is_some())
}

/// Returns the kind of the device `id`, and its number.
fn named(id: &str) -> Result<(&'static Kind, usize), Error> {
    let found = KINDS.iter().find_map(|kind| Some((kind, kind.number(id)?)));
    found.ok_or_else(|| Error::Absent { id: id.to_owned() })
}

/// Returns the valid forms of device names for error messages: "`cpu`, `opencl:N` and `cuda:N`".
pub fn id_forms() -> String {
    let form = |kind: &Kind| format!("`{}{}`", kind.name, if kind.is_numbered { ":N" } else { "" });
    let forms: Vec<String> = KINDS.iter().rev().filter(|kind| !kind.is_for_tests).map(form).collect();
    match forms.split_last() {
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Returns all numbered devices of this machine, including devices that Godwit cannot use. Devices
/// of preferred kinds come first.
pub fn found() -> Vec<Found> {
    KINDS.iter().filter_map(Kind::probe).flat_map(|probe| probe.found).collect()
}

/// Opens the device with the name `id`, such as `cpu`, `opencl:0` or `cuda:0`. The device runs the
/// functions in `programs`, and `Bin::instance` is an index into this list. Only the CPU uses the
/// implementations in `programs`.
///
/// # Errors
/// Returns [`Error::Absent`] if `id` is not a device name, or the error of the device.
pub fn open(
    id: &str,
    programs: &Programs,
    arena: &ArenaHandle,
    options: &DeviceOptions,
) -> Result<Arc<dyn Device>, Error> {
    let (kind, number) = named(id)?;
    (kind.open)(number, programs, arena, options)
}

/// Allocates `bytes` bytes for all packets, in memory that the devices `ids` can use. The first
/// device that provides shared virtual or page-locked memory allocates it. Without such a device,
/// the memory is ordinary process memory.
///
/// # Errors
/// Returns [`Error::Memory`] if the machine has too little memory.
pub fn arena_memory(ids: &[&str], bytes: usize) -> Result<Memory, Error> {
    let mut of_devices = ids.iter().filter_map(|id| {
        let (kind, number) = named(id).ok()?;
        // If a device fails to allocate memory, ordinary memory is used instead. The error is
        // ignored, because all devices can use ordinary memory.
        kind.arena_memory?(number, bytes).ok()
    });
    of_devices.next().map_or_else(|| Ok(Memory::new(bytes, "the packet arena")?), Ok)
}

/// Returns whether `id` is a valid device name, such as `cpu`, `opencl:0` or `cuda:12`. The device
/// need not exist on this machine.
pub fn is_id(id: &str) -> bool {
    kind_of(id).is_some()
}

/// Returns whether the worker thread itself processes the submissions of device `id`. See
/// [`Kind::is_synchronous`].
pub fn is_synchronous(id: &str) -> bool {
    kind_of(id).is_some_and(Kind::is_synchronous)
}

/// Returns whether packets must be copied to the device `id` and back. Returns `false` if this
/// machine does not have the device.
pub fn has_own_memory(id: &str) -> bool {
    let Ok((kind, number)) = named(id) else { return false };
    match kind.memory {
        PacketMemory::Host => false,
        PacketMemory::Own => true,
        PacketMemory::Probed => {
            let found = kind.probe().and_then(|probe| probe.found.into_iter().nth(number));
            found.is_some_and(|found| !found.host_memory)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_belong_to_one_kind() {
        for (id, expected) in [
            ("cpu", (cpu::ID, 0)),
            ("opencl:0", (opencl::ID, 0)),
            ("cuda:12", (cuda::ID, 12)),
            ("model:1", (model::ID, 1)),
        ] {
            let (kind, number) = named(id).unwrap();
            assert_eq!((kind.name, number), expected);
            assert_eq!(KINDS.iter().filter(|kind| kind.number(id).is_some()).count(), 1, "{id}");
        }
        let others =
            ["", "cpu:0", "cpu ", "cuda", "cuda:", "cuda:x", "cuda:+1", "cuda:-1", "opencl0", "cuda:0 ", "fpga:0"];
        for id in others {
            assert!(!is_id(id) && matches!(named(id), Err(Error::Absent { .. })), "{id}");
        }
    }

    #[test]
    fn exactly_one_kind_is_synchronous_and_always_present() {
        let synchronous: Vec<_> = KINDS.iter().filter(|kind| kind.is_synchronous()).collect();
        assert_eq!(synchronous.iter().map(|kind| kind.name).collect::<Vec<_>>(), [LAST_RESORT]);
        for kind in &KINDS {
            assert_eq!(kind.probe.is_none(), kind.is_synchronous() || kind.is_for_tests, "{}", kind.name);
            assert_eq!(kind.chunks(Mode::Launch, 1).is_none(), kind.is_synchronous(), "{}", kind.name);
            assert!(kind.modes().contains(&Mode::Launch) && kind.transfers(Mode::Persistent).is_empty());
        }
        assert!(is_synchronous(LAST_RESORT) && !has_own_memory(LAST_RESORT) && !has_own_memory("fpga:0"));
    }

    /// The names of probed devices select their kind and number.
    #[test]
    fn probed_devices_have_the_names_of_their_kind() {
        for kind in &KINDS {
            let Some(probe) = kind.probe() else { continue };
            assert_eq!(probe.reason.is_some(), probe.found.is_empty(), "{}", kind.name);
            for (number, found) in probe.found.iter().enumerate() {
                assert_eq!(kind.number(&found.capabilities.id), Some(number));
                let modes: Vec<_> = found.modes.iter().map(|found| found.mode).collect();
                assert_eq!(modes, kind.modes(), "{}", found.capabilities.id);
            }
        }
    }

    #[test]
    fn several_workers_share_the_chunks_in_flight() {
        let chunks = |id: &str, mode, workers| kind_of(id).unwrap().chunks(mode, workers).unwrap();
        assert_eq!([1, 4, 8, 16, 64].map(|workers| chunks("cuda:0", Mode::Launch, workers).chunks), [4, 4, 3, 2, 2]);
        assert_eq!(chunks("cuda:0", Mode::Persistent, 16), chunks("opencl:0", Mode::Launch, 1));
        assert!(kind_of("cpu").unwrap().chunks(Mode::Launch, 1).is_none());
    }
}

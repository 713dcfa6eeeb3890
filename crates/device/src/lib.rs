//! Runs bins of packets on the CPU, on OpenCL devices and on CUDA devices.
//!
//! The three kinds implement the same traits, [`Device`] and [`Lane`], in files of the same names:
//!
//! | concept | `cpu/` | `opencl/` | `cuda/` |
//! |---|---|---|---|
//! | `program.rs`: kernels | fastest x86-64 level | one kernel for all functions | the same, by NVRTC |
//! | table images | read in place | one buffer for all images | copied to device memory |
//! | [`Device::update_image`] | no work: read in place | writes to the buffer | copies on its own stream |
//! | packets | in the arena | in the arena or its shadow | in the shadow of the arena |
//! | `lane.rs`: [`Lane`] | runs the chunk in `submit` | command queue | copy streams |
//! | `slot.rs`: chunk in flight | none | kernel and arrays | stream and arrays |
//! | `persistent.rs`: mailboxes | none | shared virtual memory | page-locked memory |
//! | one [bin](godwit_abi::Bin) | loop over its packets | work-group | thread block |
//!
//! A fourth kind, [`model`], is for tests: it takes its times from a profile. `probe.rs` finds
//! devices. Each worker opens its own lane on each device. A lane returns every submitted
//! [`Chunk`], in any order.

mod chain;
mod check;
pub mod cpu;
pub mod cuda;
mod error;
mod found;
pub mod measure;
pub mod model;
pub mod opencl;
pub mod power;
mod share;
pub mod transfer;
mod watch;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{ArenaHandle, ImageRef, Memory, Region};
use godwit_sched::Chunk;
use serde::{Deserialize, Serialize};

pub use chain::DeviceChain;
use cpu::CpuDevice;
use cuda::CudaDevice;
pub use error::Error;
pub use found::{Found, ModeFound, Probe, Svm};
use model::{ModelDevice, ModelOptions};
use opencl::OpenClDevice;

/// A configured function, as devices need it.
pub trait Program: Send + Sync {
    /// Configured name of the function.
    fn name(&self) -> &str;

    /// Number of the function's kernel in `kernels/functions.h`.
    fn kernel(&self) -> u8;

    /// Table image of the function. Its bytes are the same on every device.
    fn image(&self) -> ImageRef<'_>;

    /// A variant that the image supports. Devices use it to measure the forms of the kernel.
    fn variant(&self) -> u8;

    /// Number of bytes that the kernel reads from the start of the frame; `u16::MAX` means the
    /// whole frame.
    fn reads_bytes(&self) -> u16;

    /// Number of bytes that the kernel may write from the start of the frame. 0 means none.
    /// `u16::MAX` means anywhere in the buffer; with any other value, the start of the frame does
    /// not move.
    fn writes_bytes(&self) -> u16;

    /// Maximum number of bytes that the kernel prepends to a frame.
    fn headroom_bytes(&self) -> u16;

    /// Maximum number of bytes that the kernel appends to a frame.
    fn tailroom_bytes(&self) -> u16;

    /// Processes one packet like the kernel, by an independent implementation that follows the
    /// standard. `buffer` is the whole buffer of the packet.
    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome;
}

/// The implementation of a function that the CPU runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Implementation {
    /// The slow reference implementation, written directly from the standard.
    Ref,
    /// The kernel as the system's compiler translates it, one packet after the other.
    Scalar,
    /// The kernel with interleaved packets, which hides memory latency when the table exceeds the
    /// cache.
    Gopt,
    /// A form for whole bins and one CPU type, if this machine has one that is faster; otherwise
    /// the same as `gopt`.
    #[default]
    Native,
}

impl Implementation {
    /// All implementations.
    pub const ALL: [Self; 4] = [Self::Native, Self::Gopt, Self::Scalar, Self::Ref];

    /// Returns the name used in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ref => "ref",
            Self::Scalar => "scalar",
            Self::Gopt => "gopt",
            Self::Native => "native",
        }
    }
}

/// How a device receives bins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One launch of the kernel for each chunk.
    #[default]
    Launch,
    /// Persistent groups stay on the device and take bins from mailboxes.
    Persistent,
}

impl Mode {
    /// Returns the name used in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Persistent => "persistent",
        }
    }
}

/// How the packets of a launched chunk reach a device with its own memory, and return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    /// The cheaper of the two transfers, chosen for each chunk.
    #[default]
    Auto,
    /// Copy engines move whole buffers, if the positions of the buffers allow this.
    Copy,
    /// The kernel reads packets and chunk arrays over the bus and writes the results back:
    /// zero-copy (APUNet, section 4.1).
    ZeroCopy,
}

impl Transfer {
    /// All transfers.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Copy, Self::ZeroCopy];

    /// Returns the name used in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Copy => "copy",
            Self::ZeroCopy => "zero_copy",
        }
    }
}

/// Options that a device needs before it allocates anything.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Requested mode. A device that does not support it uses [`Mode::Launch`] and gives the reason
    /// in [`Device::fallback`].
    pub mode: Mode,
    /// Number of lanes to open, one per worker.
    pub lanes: usize,
    /// Maximum number of bins in a chunk: entries of [`Chunk::bins`](godwit_sched::Chunk::bins).
    pub bins: usize,
    /// Maximum number of packets in a bin.
    pub bin_packets: usize,
    /// Watchdog timeout. The device is lost if no lane completes a chunk within this time. It is
    /// also lost if one lane with chunks in flight completes none within eight times this time.
    pub watchdog: Duration,
    /// Whether packets stay in the device's own memory. Benches use this to exclude the cost of the
    /// bus. Only [`Lane::copy_region`] then copies buffers. See [`Device::is_resident`].
    pub resident: bool,
    /// Transfer of packets in launch mode. Only CUDA devices with their own memory use this option.
    pub transfer: Transfer,
    /// Share of each program in the groups of a lane, for [`Mode::Persistent`]. Groups of a share
    /// serve only that program. Any group serves a program whose share is 0 or missing. A device
    /// with fewer groups than shares uses [`Mode::Launch`] and gives the reason in
    /// [`Device::fallback`].
    pub share: Vec<u32>,
    /// The device chain to run, if the device supports it (see [`Device::runs_chain`]).
    pub chain: Option<Arc<DeviceChain>>,
    /// Costs, clock and state of a [modelled device](model).
    pub model: ModelOptions,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Launch,
            lanes: 1,
            bins: 256,
            bin_packets: 256,
            watchdog: Duration::from_secs(2),
            resident: false,
            transfer: Transfer::Auto,
            share: Vec::new(),
            chain: None,
            model: ModelOptions::default(),
        }
    }
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

/// A chunk that a lane refused.
#[derive(Debug)]
pub struct Rejected {
    /// The unchanged chunk.
    pub chunk: Chunk,
    /// Reason for the refusal.
    pub error: Error,
}

/// Processing time of one bin.
#[derive(Clone, Copy, Debug)]
pub struct BinTime {
    /// Index of the bin in its chunk.
    pub bin: u32,
    /// Time on the device, in nanoseconds.
    pub elapsed_ns: u64,
}

/// One worker's connection to a device.
pub trait Lane: Send {
    /// Allocates memory and locks pages for `chunk`, which is empty now and will be submitted
    /// repeatedly. Without this call, the first `submit` does the same work while packets wait.
    ///
    /// # Errors
    /// Fails if the device has too little memory or its driver fails.
    fn reserve(&mut self, chunk: &Chunk) -> Result<(), Error> {
        let _ = chunk;
        Ok(())
    }

    /// Submits a chunk. All of its packets must lie in `region`. The device owns them until
    /// [`Lane::poll`] returns the chunk; until then, the caller must not access their buffers
    /// through copies of the descriptors.
    ///
    /// # Errors
    /// Returns [`Rejected`] with the unchanged chunk if the device cannot accept it.
    fn submit(&mut self, region: &mut Region, chunk: Chunk) -> Result<(), Box<Rejected>>;

    /// Returns a finished chunk with its outcomes and updated descriptors, or `None` if no chunk is
    /// finished.
    ///
    /// # Errors
    /// [`Error::Failed`] returns one chunk; the lane stays usable. [`Error::Lost`] returns all
    /// chunks in flight: [`Lane::in_flight`] is then 0 and [`Lane::submit`] rejects every chunk.
    /// Each lane of a lost device reports the loss once, even if it had no chunks in flight.
    fn poll(&mut self, region: &mut Region) -> Result<Option<Chunk>, Error>;

    /// Returns the number of chunks that were submitted and not yet returned.
    fn in_flight(&self) -> usize;

    /// Returns the processing times of the bins of the last returned chunk, if the device measures
    /// them.
    fn bin_times(&self) -> &[BinTime];

    /// Returns the number of bins that each group of this lane received, as `[group][program]`.
    /// Empty if the lane has no persistent groups.
    fn bins_by_group(&self) -> Vec<Vec<u64>> {
        Vec::new()
    }

    /// Returns the bytes that this lane copied to the device and back since it was opened, chunk
    /// arrays included. `[0, 0]` means that the device works on the host's memory.
    fn moved_bytes(&self) -> [u64; 2] {
        [0, 0]
    }

    /// Copies the whole region to the device or back, and waits for the copy. Does nothing unless
    /// packets stay in the device's memory ([`Device::is_resident`]). No chunk may be in flight.
    ///
    /// # Errors
    /// Fails if the device fails.
    fn copy_region(&mut self, region: &mut Region, to_device: bool) -> Result<(), Error> {
        let _ = (region, to_device);
        Ok(())
    }
}

/// A processor with loaded programs, from which each worker opens a lane.
pub trait Device: Send + Sync {
    /// Returns the properties of the device.
    fn capabilities(&self) -> &Capabilities;

    /// Returns the mode in use.
    fn mode(&self) -> Mode {
        Mode::Launch
    }

    /// Returns the reason, in one sentence, if the device does not use the requested mode.
    fn fallback(&self) -> Option<&str> {
        None
    }

    /// Returns whether packets stay in the device's own memory, as requested by
    /// [`DeviceOptions::resident`]. Devices that work on the host's memory ignore that option.
    fn is_resident(&self) -> bool {
        false
    }

    /// Returns whether the device runs the chain of [`DeviceOptions::chain`]. In chunks that it
    /// returns with [`Chunk::ran_chain`], `trails` records the path of each packet, and outcomes
    /// are those of the last function.
    fn runs_chain(&self) -> bool {
        false
    }

    /// Returns the selected form of each program, for reports.
    fn choices(&self) -> Vec<Choice>;

    /// Copies the changed bytes `range` of the image of program `program` ([`Program::image`]) to
    /// the device. Kernels that start after the call see them. Does nothing if the device reads the
    /// image in place, or is lost. Waits for the copy, but neither for lanes nor for workers.
    ///
    /// Persistent groups also see the new bytes. A group acquires a mailbox slot that was posted
    /// after the call, and with it everything that happened before. Images are read by ordinary
    /// loads.
    ///
    /// # Errors
    /// Fails if the copy failed. The device may then have any part of the bytes.
    ///
    /// # Panics
    /// Panics if there is no such program, or if its image has no such bytes.
    fn update_image(&self, program: usize, range: Range<usize>) -> Result<(), Error> {
        let _ = (program, range);
        Ok(())
    }

    /// Replaces the chain of [`DeviceOptions::chain`] in its rows of the table
    /// ([`DeviceChain::in_table`]), if the device [runs chains](Device::runs_chain). The new chain
    /// applies to bins submitted after the call; no bins with these rows may be in flight. Waits
    /// for the copy, but neither for lanes nor for workers.
    ///
    /// Returns the part of the chain that the device runs. If packets need more bytes copied than
    /// the first chain needed, they return to the host between two functions.
    ///
    /// # Errors
    /// Returns [`Error::NotCopiedBack`] if packets that the chain needs would stay on the device.
    /// Also fails if the copy failed; the device may then have any part of the chain.
    fn update_chain(&self, chain: DeviceChain) -> Result<DeviceChain, Error> {
        Ok(chain)
    }

    /// Opens a lane for one worker.
    ///
    /// # Errors
    /// Fails if the device has no room for another lane.
    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error>;
}

/// Opens the device `id`, such as `cpu`, `opencl:0` or `cuda:0`. `Bin::instance` is an index into
/// `programs`. Only the CPU uses the implementations.
///
/// # Errors
/// Returns [`Error::Absent`] if `id` is not a device name, or the error of the device.
pub fn open(
    id: &str,
    programs: &[(Arc<dyn Program>, Implementation)],
    arena: &ArenaHandle,
    options: &DeviceOptions,
) -> Result<Arc<dyn Device>, Error> {
    if id == cpu::ID {
        return Ok(Arc::new(CpuDevice::new(programs.to_vec())?));
    }
    if let Some(number) = model::number(id) {
        return Ok(Arc::new(ModelDevice::new(number, programs.to_vec(), options)?));
    }
    let programs = programs.iter().map(|(program, _)| Arc::clone(program)).collect();
    if let Some(number) = opencl::number(id) {
        return Ok(Arc::new(OpenClDevice::new(number, programs, arena, options)?));
    }
    if let Some(number) = cuda::number(id) {
        return Ok(Arc::new(CudaDevice::new(number, programs, arena, options)?));
    }
    Err(Error::Absent { id: id.to_owned() })
}

/// Allocates `bytes` bytes for an arena that the devices `ids` use. The memory comes from the first
/// OpenCL device that provides shared virtual or page-locked memory. Without such a device it is
/// ordinary process memory.
///
/// # Errors
/// Returns [`Error::Memory`] if the machine has too little memory.
pub fn arena_memory(ids: &[&str], bytes: usize) -> Result<Memory, Error> {
    let numbers = ids.iter().filter_map(|id| id.strip_prefix(opencl::ID).and_then(number));
    // Devices can also use ordinary memory, so errors are ignored here.
    let of_device = numbers.filter_map(|number| opencl::arena_memory(number, bytes).ok()).next();
    of_device.map_or_else(|| Ok(Memory::new(bytes, "the packet arena")?), Ok)
}

/// Returns whether `id` is a valid device name, on this or another machine: `cpu`, `opencl:0`,
/// `cuda:12`.
pub fn is_id(id: &str) -> bool {
    let numbered = |kind: &str| id.strip_prefix(kind).is_some_and(|rest| number(rest).is_some());
    id == cpu::ID || numbered(opencl::ID) || numbered(cuda::ID) || numbered(model::ID)
}

/// Returns whether packets are copied to device `id` and back. Returns `false` for a device that is
/// absent.
pub fn has_own_memory(id: &str) -> bool {
    match id.strip_prefix(opencl::ID).and_then(number) {
        Some(number) => opencl::probe().found.get(number).is_some_and(|found| !found.host_memory),
        None => id != cpu::ID && model::number(id).is_none(),
    }
}

/// Parses the part of a device name after its kind: 3 for `:3`, `None` for anything else.
fn number(rest: &str) -> Option<usize> {
    let digits = rest.strip_prefix(':')?;
    // `parse` alone would accept a sign.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// The form of a program that a device runs, and the reason for the choice.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// Name of the configured function.
    pub function: String,
    /// The form: `ref`, a level such as `x86-64-v3`, or a native form with the level for the
    /// remaining variants, such as `avx512, x86-64-v4`.
    pub form: String,
    /// Name and nanoseconds per packet of each measured form.
    pub measured: Vec<(String, f64)>,
    /// Number of interleaved packets and the reason for it; `None` if the form does not interleave
    /// packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<String>,
}

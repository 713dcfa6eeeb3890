//! Run bins of packets on a processor: one trait, one folder per kind of device, equal file names in each.
//!
//! | concept | here | CPU | OpenCL | CUDA |
//! |---|---|---|---|---|
//! | what is there | [`Capabilities`], [`Found`] | [`cpu::probe`] | [`opencl::probe`] | [`cuda::probe`] |
//! | a function made ready | [`Program`] in the device's list | the kernel at the x86-64 level that measured fastest (`cpu/program.rs`) | its case in one kernel for all functions (`opencl/program.rs`) | the same, compiled by NVRTC and kept on disk (`cuda/program.rs`) |
//! | its table image | [`Program::image`] | where it is | copied into one buffer for all | copied to the device's memory |
//! | changes to it | [`Device::update_image`] | seen where they are | written to the copy | copied on a stream of its own |
//! | packets | buffers of the arena | where they are | where they are, or copied to a shadow of the arena | copied to a shadow of the arena and back (`cuda/carriage.rs`) |
//! | one worker's way in | [`Lane`] | runs the chunk at once, on the worker's own thread (`cpu/lane.rs`) | a command queue; several chunks in flight (`opencl/lane.rs`) | a stream for each chunk in flight, and one each way for copies (`cuda/lane.rs`) |
//! | one chunk in flight | | | `opencl/slot.rs` | `cuda/slot.rs` |
//! | persistent groups | [`Mode::Persistent`] | | mailboxes in shared virtual memory (`opencl/persistent.rs`) | mailboxes in page-locked memory (`cuda/persistent.rs`) |
//! | the unit of work | a [`Bin`](godwit_abi::Bin) of a [`Chunk`] | a loop over its packets | a work-group | a thread block |
//!
//! A lane belongs to one worker. It takes chunks and gives every one of them back, finished, in any order.

mod chain;
mod check;
pub mod cpu;
pub mod cuda;
mod error;
mod found;
pub mod measure;
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
use opencl::OpenClDevice;

/// A configured function as a device sees it.
pub trait Program: Send + Sync {
    /// Its configured name.
    fn name(&self) -> &str;

    /// Number of its kernel in `kernels/functions.h`.
    fn kernel(&self) -> u8;

    /// Its table image, the same bytes on every device.
    fn image(&self) -> ImageRef<'_>;

    /// A variant that its image was built for: the one to measure forms of the kernel with.
    fn variant(&self) -> u8;

    /// How far into a frame the kernel may read, bytes; `u16::MAX`: to its end.
    fn reads_bytes(&self) -> u16;

    /// How far from the first byte of the frame the kernel may write, bytes: where that is less than all, the frame
    /// begins where it began. `u16::MAX`: anywhere in the buffer; 0: it writes nothing.
    fn writes_bytes(&self) -> u16;

    /// Most bytes that the kernel prepends to a frame.
    fn headroom_bytes(&self) -> u16;

    /// Most bytes that the kernel appends to a frame.
    fn tailroom_bytes(&self) -> u16;

    /// Does to one packet what the kernel does, straight from the standard; `buffer` is the packet's whole buffer.
    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome;
}

/// One way to run a function on the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Implementation {
    /// Slow, straight from the standard.
    Ref,
    /// The kernel, compiled by the system's compiler: one packet after the other.
    Scalar,
    /// The kernel with packets that take turns while memory answers, where the table is larger than the cache.
    Gopt,
    /// A form for whole bins and one kind of CPU, where there is one that is faster here; otherwise as `gopt`.
    #[default]
    Native,
}

impl Implementation {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Native, Self::Gopt, Self::Scalar, Self::Ref];

    /// Its name in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ref => "ref",
            Self::Scalar => "scalar",
            Self::Gopt => "gopt",
            Self::Native => "native",
        }
    }
}

/// How bins come to a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One launch of the kernel for each chunk.
    #[default]
    Launch,
    /// Groups that stay on the device and take bins out of mailboxes.
    Persistent,
}

impl Mode {
    /// Its name in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Persistent => "persistent",
        }
    }
}

/// How packets of a chunk that is launched come to memory of the device's own, and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    /// As is cheaper for each chunk.
    #[default]
    Auto,
    /// Copy engines bring whole buffers, where these lie so that they can.
    Copy,
    /// The kernel reaches over the bus for what its functions read, and returns what they wrote, and so with the chunk's arrays:
    /// zero-copy (APUNet, section 4.1).
    ZeroCopy,
}

impl Transfer {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Copy, Self::ZeroCopy];

    /// Its name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Copy => "copy",
            Self::ZeroCopy => "zero_copy",
        }
    }
}

/// How a device is to be used: what must be known before anything is allocated.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// How bins come to it. A device that cannot do it runs in [`Mode::Launch`] and says why in [`Device::fallback`].
    pub mode: Mode,
    /// Lanes that will be asked for: one a worker.
    pub lanes: usize,
    /// Most bins of a chunk: entries of [`Chunk::bins`](godwit_sched::Chunk::bins).
    pub bins: usize,
    /// Most packets of a bin.
    pub bin_packets: usize,
    /// A lane that has chunks in flight makes the device lost when no lane has got any back for so long, or when it has got
    /// none itself for eight times as long.
    pub watchdog: Duration,
    /// For benches: packets stay in the device's own memory, so that its link is no limit: only
    /// [`Lane::copy_region`] brings and fetches buffers. See [`Device::is_resident`].
    pub resident: bool,
    /// How packets come to a CUDA device that has memory of its own and launches, and back; others know one way only.
    pub transfer: Transfer,
    /// In [`Mode::Persistent`]: of each program its share of the groups of a lane, which then serve no others; 0, or behind the
    /// end: any group serves it. Empty: every group serves every program. A device whose groups are too few for one each runs in
    /// [`Mode::Launch`] and says so.
    pub share: Vec<u32>,
    /// What the device is to follow by itself, where [`Device::runs_chain`] says that it can.
    pub chain: Option<Arc<DeviceChain>>,
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
        }
    }
}

/// What a device is and can do.
#[derive(Clone, Debug, Serialize)]
pub struct Capabilities {
    /// Its name in configurations: `cpu`, `opencl:0`.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Cores, compute units or multiprocessors.
    pub compute_units: usize,
    /// Packets that run in lockstep.
    pub warp_packets: usize,
    /// Memory that it can use, bytes.
    pub memory_bytes: u64,
    /// Instruction set levels or features that matter here.
    pub features: Vec<String>,
}

/// A chunk that a lane could not take, handed back whole.
#[derive(Debug)]
pub struct Rejected {
    /// The chunk, untouched.
    pub chunk: Chunk,
    /// Why.
    pub error: Error,
}

/// How long one bin took.
#[derive(Clone, Copy, Debug)]
pub struct BinTime {
    /// Index of the bin in its chunk.
    pub bin: u32,
    /// Nanoseconds on the device.
    pub elapsed_ns: u64,
}

/// One worker's way to a device.
pub trait Lane: Send {
    /// Makes ready what a chunk needs that will be submitted again and again, empty as it is now: memory, page locks. Where
    /// that is not asked for it is made when the chunk is first submitted, while its packets wait.
    ///
    /// # Errors
    /// The device has no room, or its driver failed.
    fn reserve(&mut self, chunk: &Chunk) -> Result<(), Error> {
        let _ = chunk;
        Ok(())
    }

    /// Takes a chunk whose packets all lie in `region`. They belong to the device until the chunk comes back from
    /// [`Lane::poll`]: until then nobody may look at their buffers through copies of their descriptors.
    ///
    /// # Errors
    /// [`Rejected`] with the chunk when the device cannot take it; nothing was touched then.
    fn submit(&mut self, region: &mut Region, chunk: Chunk) -> Result<(), Box<Rejected>>;

    /// A finished chunk, its outcomes filled in and its descriptors moved, if there is one.
    ///
    /// # Errors
    /// The device failed. [`Error::Failed`] hands one chunk back, and the lane goes on. [`Error::Lost`] hands back all
    /// chunks in flight, and the lane takes no more: [`Lane::in_flight`] is 0, and [`Lane::submit`] rejects. Every lane of
    /// the device says so once, also one that had nothing in flight.
    fn poll(&mut self, region: &mut Region) -> Result<Option<Chunk>, Error>;

    /// Chunks submitted and not yet polled.
    fn in_flight(&self) -> usize;

    /// How long the bins of the chunk polled last took, where the device can tell.
    fn bin_times(&self) -> &[BinTime];

    /// Bins that each of this lane's groups was given so far, by program: `[group][program]`. Empty where it has no groups of its
    /// own.
    fn bins_by_group(&self) -> Vec<Vec<u64>> {
        Vec::new()
    }

    /// Bytes that this lane has copied to the device and back so far, all that chunks need included. `[0, 0]`: the device
    /// works on the host's memory.
    fn moved_bytes(&self) -> [u64; 2] {
        [0, 0]
    }

    /// Where packets stay in the device's memory ([`Device::is_resident`]): copies the whole region there, or back, and
    /// waits for it. Elsewhere does nothing. Nothing may be in flight.
    ///
    /// # Errors
    /// The device failed.
    fn copy_region(&mut self, region: &mut Region, to_device: bool) -> Result<(), Error> {
        let _ = (region, to_device);
        Ok(())
    }
}

/// A processor with programs loaded, ready to give each worker its lane.
pub trait Device: Send + Sync {
    /// What it is and can do.
    fn capabilities(&self) -> &Capabilities;

    /// The mode it runs in.
    fn mode(&self) -> Mode {
        Mode::Launch
    }

    /// Why it does not run in the mode that was asked for, in one sentence.
    fn fallback(&self) -> Option<&str> {
        None
    }

    /// Whether packets stay in its own memory, as [`DeviceOptions::resident`] asks: nothing for a device that works on
    /// the host's.
    fn is_resident(&self) -> bool {
        false
    }

    /// Whether it follows the chain of [`DeviceOptions::chain`]: packets of chunks that come back with
    /// [`Chunk::ran_chain`] have gone on by their `trails`, and outcomes are those of the last function of each.
    fn runs_chain(&self) -> bool {
        false
    }

    /// What was chosen for each program, by name: for people.
    fn choices(&self) -> Vec<Choice>;

    /// Brings bytes of the image of program `program` ([`Program::image`]) that have changed to where kernels read them:
    /// those that begin after the call see them. Nothing for a device that reads the image where it is, or that is lost.
    /// Waits for what it does, beside what lanes do; not for workers.
    ///
    /// Persistent groups see them as well: what is posted to a mailbox after the call is acquired by the group together
    /// with all that happened before, and images are read by ordinary loads.
    ///
    /// # Errors
    /// The device did not take them; it may have any part of them.
    ///
    /// # Panics
    /// When there is no such program, or its image has no such bytes.
    fn update_image(&self, program: usize, range: Range<usize>) -> Result<(), Error> {
        let _ = (program, range);
        Ok(())
    }

    /// Writes another chain than [`DeviceOptions::chain`] into its rows of the table ([`DeviceChain::in_table`]), where the device
    /// [follows](Device::runs_chain) one: bins with these rows that are submitted after the call go by it, and none is in flight.
    /// Returns what the device took of it: where packets would need more to be brought there or back than what the
    /// first chain needed, they come back in between. Waits for what it does, beside what lanes do; not for workers.
    ///
    /// # Errors
    /// [`Error::NotBrought`]; or the device did not take it, and may have any part of it.
    fn update_chain(&self, chain: DeviceChain) -> Result<DeviceChain, Error> {
        Ok(chain)
    }

    /// A lane for one worker.
    ///
    /// # Errors
    /// The device has no more room for a lane.
    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error>;
}

/// Makes the device called `id` ready: `cpu`, `opencl:0`, `cuda:0`. A bin's `instance` is an index into `programs`;
/// the implementation of each is for the CPU.
///
/// # Errors
/// [`Error::Absent`] for a name that is none; otherwise what the device of that kind says.
pub fn open(
    id: &str,
    programs: &[(Arc<dyn Program>, Implementation)],
    arena: &ArenaHandle,
    options: &DeviceOptions,
) -> Result<Arc<dyn Device>, Error> {
    if id == cpu::ID {
        return Ok(Arc::new(CpuDevice::new(programs.to_vec())?));
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

/// Memory of `bytes` bytes for an arena that the devices called `ids` work on. One of them has it as it wants it: shared with
/// the host while persistent groups run, or page-locked; where none gives any, it is the process's own.
///
/// # Errors
/// [`Error::Memory`] when the machine has too little.
pub fn arena_memory(ids: &[&str], bytes: usize) -> Result<Memory, Error> {
    let numbers = ids.iter().filter_map(|id| id.strip_prefix(opencl::ID).and_then(number));
    // A device that cannot give any can do without.
    let of_device = numbers.filter_map(|number| opencl::arena_memory(number, bytes).ok()).next();
    of_device.map_or_else(|| Ok(Memory::new(bytes, "the packet arena")?), Ok)
}

/// Whether `id` is how a device can be called, here or on another machine: `cpu`, `opencl:0`, `cuda:12`.
pub fn is_id(id: &str) -> bool {
    let numbered = |kind: &str| id.strip_prefix(kind).is_some_and(|rest| number(rest).is_some());
    id == cpu::ID || numbered(opencl::ID) || numbered(cuda::ID)
}

/// Whether packets are copied to a device and back: it does not work on the host's memory. False for one that is not here.
pub fn has_own_memory(id: &str) -> bool {
    match id.strip_prefix(opencl::ID).and_then(number) {
        Some(number) => opencl::probe().found.get(number).is_some_and(|found| !found.host_memory),
        None => id != cpu::ID,
    }
}

/// The number behind a kind of device: 3 for `:3`; `None` for anything else.
fn number(rest: &str) -> Option<usize> {
    let digits = rest.strip_prefix(':')?;
    // `parse` alone would take a sign.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// Which form of a program a device runs, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// The configured function.
    pub function: String,
    /// The form: `ref`, a level such as `x86-64-v3`, or a native form with the level for what it leaves:
    /// `avx512, x86-64-v4`.
    pub form: String,
    /// All forms that were measured: name and nanoseconds per packet.
    pub measured: Vec<(String, f64)>,
    /// How many packets take turns while memory answers, and why so many; `None` where that is no question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<String>,
}

//! OpenCL devices. One kernel contains all functions, and each bin is processed by one work-group.
//! In launch mode, a chunk is one launch (`lane.rs`). In persistent mode, the groups of one launch
//! take bins from mailboxes (`groups.rs`, `persistent.rs`).
//!
//! Some devices work on packets in place: processors (PoCL), and GPUs that share coherent memory
//! with the processor. For other devices, packets are copied to the device and back (`own.rs`). The
//! OpenCL library is loaded at the first use; if it is absent, [`probe`] reports the reason.
//!
//! ```text
//! arena     | region of worker 0 | region of worker 1 |  one buffer, an argument of every launch
//! tables    | image 0 | image 1 | ...                    one buffer for all images
//! slot      | bins | descriptors | parameters | outcomes |  one per chunk in flight
//! ```
//!
//! # Ordering without copies, maps or unmaps
//!
//! All buffers use host memory (`CL_MEM_USE_HOST_PTR`) and are never mapped. For these buffers,
//! OpenCL guarantees that host and device see each other's writes only by map and unmap of ranges
//! without other users. This does not fit packets that arrive and leave individually. Packets on
//! the device are next to packets that the host uses, and a map could write back or discard cache
//! lines of neighbors. Instead, the module relies on these facts:
//!
//! * Same memory: [`OpenClDevice::new`] refuses a device that copies buffers. To detect it, it
//!   processes packets twice in an unmapped buffer. The device has no other memory
//!   (`CL_DEVICE_HOST_UNIFIED_MEMORY`). Its caches are coherent with the processor's: it is the
//!   processor, or it has fine-grained SVM, which requires coherence.
//! * Host to device: A launch sees what the worker wrote before it enqueued the launch, because
//!   enqueueing releases to the command (OpenCL 3.0, "Memory Ordering Rules: Host-side and
//!   Device-side Commands").
//! * Device to host: Reading the status of an event is not a synchronization point (note at
//!   `clGetEventInfo`). After the status is complete, the lane therefore waits for the event, which
//!   is one and returns at once.
//! * In between, only the device accesses the slot and the buffers of the chunk. The lane holds the
//!   chunk. Buffers are whole cache lines, so host and device never write the same line.
//!
//! # Lost devices
//!
//! A waiting lane declares the device lost for all lanes if none of them gets a result within
//! [`DeviceOptions::watchdog`]. While other lanes get results it waits longer, because its chunk
//! may be queued after theirs, but not forever. A running kernel cannot be cancelled, so everything
//! that it may access is leaked: slots, tables, arena, and driver objects, whose release could wait
//! for the kernel. The process can still exit, because the threads of PoCL end with it.
//!
//! # Threads
//!
//! Each lane belongs to one worker. Lanes share only read-only data. PoCL runs kernels on its own
//! threads, one per core, which compete with the workers. On a machine with two cores, a spinning
//! worker takes half of the device. PoCL is useful only on machines with free cores.
//!
//! In persistent mode, each group spins on its own core, because OpenCL C has no wait operation.
//! There are never more groups than cores, because additional groups would not start. Normally
//! there are at most half as many. Workers without work yield, so that a group on the same core can
//! run.
//!
//! Godwit does not cache compiled kernels: the drivers of PoCL, Intel, NVIDIA and AMD do.

mod groups;
mod lane;
mod measure;
mod own;
mod persistent;
mod probe;
mod program;
mod slot;
mod svm;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use godwit_packet::{ArenaHandle, Region};
use godwit_sched::Chunk;
use opencl3::context::Context;
use opencl3::device::Device as ClDevice;
use opencl3::error_codes::ClError;

use crate::chain::AccessNeeds;
use crate::check::check;
use crate::transfer::AccessedBytes;
use crate::watch::Watch;
use crate::{Capabilities, Choice, Device, DeviceChain, DeviceOptions, Error, Found, Lane, Mode, Program};

pub use probe::probe;
pub use svm::arena_memory;

use groups::{Groups, GroupsParts};
use lane::OpenClLane;
pub(crate) use measure::OpenClMeasure;
use own::DeviceMemory;
use persistent::PersistentLane;
use program::{Kernels, Tables, check_buffer_size, check_host_memory, over};
use slot::{Packets, SlotParts};

/// Kind in device names, as in `opencl:0`.
pub const ID: &str = "opencl";

/// Parses the number of an OpenCL device name: 3 for `opencl:3`, `None` for any other name.
pub fn number(id: &str) -> Option<usize> {
    crate::number(id.strip_prefix(ID)?)
}

/// An OpenCL device with loaded programs.
// Fields are dropped in this order: buffers before their memory.
pub struct OpenClDevice {
    found: Found,
    programs: Vec<Arc<dyn Program>>,
    device: ClDevice,
    /// The persistent groups, in persistent mode.
    groups: Option<Groups>,
    /// Why the device does not use the requested mode.
    fallback: Option<String>,
    kernels: Kernels,
    tables: Arc<Tables>,
    packets: Packets,
    arena: ArenaHandle,
    context: Arc<Context>,
    watch: Watch,
    /// Whether the device runs a chain.
    runs_chain: bool,
    /// Bytes that are copied for each program.
    reserved: Vec<AccessNeeds>,
    /// Timeout for copies of table changes.
    copy_timeout: Duration,
}

impl OpenClDevice {
    /// Opens device `number` of [`probe`]: compiles the kernels, copies the table images, and gives
    /// the device access to the arena. `Bin::instance` is an index into `programs`.
    ///
    /// The first compilation by a driver takes seconds.
    ///
    /// # Errors
    /// [`Error::Absent`] if the device does not exist. [`Error::Unusable`] if Godwit cannot use it.
    /// [`Error::TooLarge`] if arena or tables exceed its limits. [`Error::Memory`] if the host has
    /// too little memory. [`Error::Build`] and [`Error::Driver`] if the driver fails.
    pub fn new(
        number: usize,
        programs: Vec<Arc<dyn Program>>,
        arena: &ArenaHandle,
        options: &DeviceOptions,
    ) -> Result<Self, Error> {
        Self::with_kernels(number, programs, arena, options, godwit_kernels::opencl_source())
    }

    /// Same as [`OpenClDevice::new`], with other kernels, for tests of faulty devices.
    #[doc(hidden)]
    pub fn with_kernels(
        number: usize,
        programs: Vec<Arc<dyn Program>>,
        arena: &ArenaHandle,
        options: &DeviceOptions,
        source: &str,
    ) -> Result<Self, Error> {
        Self::make(number, programs, arena, options, source, false)
    }

    /// Same as [`OpenClDevice::new`], but always copies packets, as if the device had its own
    /// memory. Tests use this on machines without such a device.
    #[doc(hidden)]
    pub fn with_own_memory(
        number: usize,
        programs: Vec<Arc<dyn Program>>,
        arena: &ArenaHandle,
        options: &DeviceOptions,
    ) -> Result<Self, Error> {
        Self::make(number, programs, arena, options, godwit_kernels::opencl_source(), true)
    }

    fn make(
        number: usize,
        programs: Vec<Arc<dyn Program>>,
        arena: &ArenaHandle,
        options: &DeviceOptions,
        source: &str,
        force_own: bool,
    ) -> Result<Self, Error> {
        let (found, device) = usable(number)?;
        let id = found.capabilities.id.clone();
        let context = svm::context(number, &id, device)?;
        let kernels = Kernels::build(&found, &context, device, source)?;
        let is_own = force_own || !found.host_memory;
        let chain = options.chain.as_deref().filter(|chain| chain.has_table() && kernels.runs_chain);
        let image = DeviceChain::image(chain, &programs);
        let tables = Arc::new(Tables::new(&found, &context, device, &programs, &image, is_own)?);
        // Devices that copy nothing can access all bytes.
        let mut reserved = vec![AccessNeeds::ALL; programs.len()];
        let packets = if is_own {
            check_buffer_size(&found, arena.bytes(), "the packet arena")?;
            let shadow = own::buffer(&context, arena.bytes()).map_err(failed(&id, "create a buffer for the arena"))?;
            reserved = DeviceChain::needs(chain, &programs);
            let accessed = reserved
                .iter()
                .map(|needs| AccessedBytes { reads_bytes: needs.reads_bytes, writes_bytes: needs.writes_bytes });
            let accessed = accessed.collect();
            Packets::Own(DeviceMemory { shadow, accessed, arena: arena.clone() })
        } else {
            check_host_memory(&found, &context, device, &kernels)?;
            // SAFETY: this device keeps the handle, which keeps the memory mapped. Kernels access
            // only buffers of packets that a lane holds. The module documentation explains the
            // order of accesses.
            Packets::Shared(unsafe { over(&found, &context, arena.base(), arena.bytes(), "the packet arena")? })
        };
        let watch = Watch::new(&id, options.watchdog);
        let parts = GroupsParts { found: &found, device, context: &context, tables: &tables, arena, source };
        let started = match options.mode {
            Mode::Launch => Ok(None),
            Mode::Persistent if is_own => Err("it has its own memory, to which packets are copied".to_owned()),
            Mode::Persistent => Groups::start(&parts, options).map(Some),
        };
        let (groups, fallback) = match started {
            Ok(groups) => (groups, None),
            Err(reason) => (None, Some(format!("{id} uses launch mode: {reason}"))),
        };
        let (device, arena, copy_timeout) = (*device, arena.clone(), options.watchdog);
        Ok(Self {
            programs,
            device,
            groups,
            fallback,
            kernels,
            tables,
            packets,
            arena,
            context,
            watch,
            runs_chain: chain.is_some(),
            reserved,
            copy_timeout,
            found,
        })
    }

    /// Returns the parts of the device that slots need.
    fn parts(&self) -> SlotParts<'_> {
        let Self { found, context, device, kernels, tables, packets, runs_chain, .. } = self;
        SlotParts { found, context, device, kernels, tables, packets, runs_chain: *runs_chain }
    }

    /// Checks a chunk.
    fn check(&self, region: &mut Region, chunk: &Chunk) -> Result<(), Error> {
        if region.arena_base() != self.arena.base().as_ptr() {
            return Err(Error::Chunk { reason: "its packets are not in the arena of the device".to_owned() });
        }
        check(region, chunk, |instance| self.programs.get(usize::from(instance)).map(|program| program.kernel()))
    }

    /// Returns the probe result of this device.
    pub fn found(&self) -> &Found {
        &self.found
    }
}

impl Device for OpenClDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.found.capabilities
    }

    fn mode(&self) -> Mode {
        if self.groups.is_some() { Mode::Persistent } else { Mode::Launch }
    }

    fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    fn runs_chain(&self) -> bool {
        self.runs_chain
    }

    fn choices(&self) -> Vec<Choice> {
        let choice = |program: &Arc<dyn Program>| Choice {
            function: program.name().to_owned(),
            form: ID.to_owned(),
            measured: Vec::new(),
            turns: None,
        };
        self.programs.iter().map(choice).collect()
    }

    fn update_image(&self, program: usize, range: Range<usize>) -> Result<(), Error> {
        let image = self.programs[program].image();
        match self.watch.lost() {
            Some(_) => Ok(()),
            None => self.tables.update(&self.found.capabilities.id, program, image, range, self.copy_timeout),
        }
    }

    fn update_chain(&self, chain: DeviceChain) -> Result<DeviceChain, Error> {
        let id = &self.found.capabilities.id;
        let not_brought = |instance: usize| Error::NotCopiedBack {
            id: id.clone(),
            function: self.programs[instance].name().to_owned(),
        };
        let chain = chain.within(&self.reserved, &self.programs).map_err(not_brought)?;
        if self.runs_chain && self.watch.lost().is_none() {
            self.tables.update_chain(id, &chain, self.copy_timeout)?;
        }
        Ok(chain)
    }

    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error> {
        Ok(match self.groups {
            Some(_) => Box::new(PersistentLane::new(self)?),
            None => Box::new(OpenClLane::new(self)?),
        })
    }
}

/// Returns device `number` of [`probe`], or an error if Godwit cannot use it.
fn usable(number: usize) -> Result<(Found, &'static ClDevice), Error> {
    let id = format!("{ID}:{number}");
    let devices = probe::devices().map_err(|reason| Error::Unusable { id: id.clone(), reason })?;
    let Some((platform, device)) = devices.get(number) else { return Err(Error::Absent { id }) };
    let found = probe::describe(number, platform, device);
    match &found.usable {
        Ok(()) => Ok((found, device)),
        Err(reason) => Err(Error::Unusable { id, reason: reason.clone() }),
    }
}

/// Returns a function that converts a driver error of device `id` during `action`.
fn failed(id: &str, action: &'static str) -> impl Fn(ClError) -> Error {
    move |error| Error::Driver { id: id.to_owned(), action, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn parses_device_names() {
        assert_eq!(["opencl:0", "opencl:12"].map(number), [Some(0), Some(12)]);
        let others = ["opencl", "opencl:", "opencl:x", "opencl:+1", "opencl:-1", "cpu", "cuda:0", "opencl:0 "];
        assert_eq!(others.map(number), [None; 8]);
    }
}

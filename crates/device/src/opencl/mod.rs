//! OpenCL: one kernel knows all functions, and a bin is a work-group's. A chunk is one launch of it (`lane.rs`), or the
//! groups of one launch stay and take bins out of mailboxes (`groups.rs`, `persistent.rs`).
//!
//! Devices that work on the host's memory and whose caches follow the processor's, that is processors themselves (PoCL)
//! and integrated GPUs, find packets where they are. To others they are copied, and back (`own.rs`). The library is loaded
//! when it is first asked for; where there is none, [`probe`] says so.
//!
//! ```text
//! arena     | region of worker 0 | region of worker 1 |      one buffer over it; every lane's kernel has it as argument
//! tables    | image 0 | image 1 | ...                        one buffer, written once
//! slot      | bins | descriptors | parameters | outcomes |   one per chunk in flight, of one lane
//! ```
//!
//! # Ordering, without copies, maps or unmaps
//!
//! All buffers lie on memory of the host (`CL_MEM_USE_HOST_PTR`) and are never mapped. OpenCL promises that host and
//! device see each other's writes to such a buffer only through map and unmap, of ranges that nobody else uses
//! meanwhile. Buffers of packets on their way in, on the device and on their way out lie side by side, and a map of some
//! could write back or throw away cache lines of others: with packets that come and go one by one, the promise cannot
//! be had. What stands in its place:
//!
//! * Same bytes: [`OpenClDevice::new`] refuses a device that keeps copies of its own, which it finds by running
//!   packets twice through a buffer that is never mapped. The device has no other memory
//!   (`CL_DEVICE_HOST_UNIFIED_MEMORY`), and its caches are coherent with the processor's: it is the processor, or it
//!   has fine-grained SVM, whose definition demands that.
//! * Host before device: what a worker writes before it enqueues a launch is visible to that launch, because enqueueing
//!   releases to the command (OpenCL 3.0, "Memory Ordering Rules: Host-side and Device-side Commands").
//! * Device before host: that an event's status reads as complete is no synchronisation point by itself (note at
//!   `clGetEventInfo`), so the lane then waits for that event, which is one and returns at once.
//! * In between, only the device reaches the slot and the buffers of the chunk: the lane holds the chunk, and a buffer
//!   is whole cache lines, so that no line is written from both sides.
//!
//! # A device that does not answer
//!
//! A lane that waits declares the device lost, for all its lanes, when for [`DeviceOptions::watchdog`] none of them has got
//! a chunk back; what one waits for may queue behind the others. It does not wait for ever, though they go on. Nothing
//! can take a kernel back once it runs, so whatever it may reach is leaked: slots, tables, the arena, and the driver's
//! objects, whose release may wait for the kernel. The process can end all the same: PoCL's threads end with it.
//!
//! # Threads
//!
//! A lane belongs to one worker; lanes share nothing but what is read-only. PoCL runs kernels on threads of its own, one per
//! core, which compete with the workers: on a machine of two cores a worker that spins takes half of the device away.
//! Nothing here can change that; PoCL is worth its while where cores are left over. In persistent mode it is the groups
//! that spin, for OpenCL C has no word for waiting, each on a core of its own: there are never more of them than cores, for
//! the others would never begin, and no more than half as many where the workers are content with that. Workers that find
//! nothing yield, so that a group that shares their core gets on.
//!
//! Drivers keep the kernels they have compiled on disk (PoCL, Intel's, NVIDIA's and AMD's all do), so nothing is kept here.

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

use crate::chain::Needs;
use crate::check::check;
use crate::transfer::Reach;
use crate::watch::Watch;
use crate::{Capabilities, Choice, Device, DeviceChain, DeviceOptions, Error, Found, Lane, Mode, Program};

pub use probe::probe;
pub use svm::arena_memory;

use groups::{Groups, GroupsParts};
use lane::OpenClLane;
pub(crate) use measure::OpenClMeasure;
use own::OwnMemory;
use persistent::PersistentLane;
use program::{Kernels, Tables, demand_fits, demand_host_memory, over};
use slot::{Packets, SlotParts};

/// How its devices' names in configurations start: `opencl:0`.
pub const ID: &str = "opencl";

/// The number in a device's name: 3 for `opencl:3`; `None` for any other name.
pub fn number(id: &str) -> Option<usize> {
    crate::number(id.strip_prefix(ID)?)
}

/// An OpenCL device with its programs loaded.
// Fields are dropped in this order: buffers before the memory that they lie on.
pub struct OpenClDevice {
    found: Found,
    programs: Vec<Arc<dyn Program>>,
    device: ClDevice,
    /// In persistent mode.
    groups: Option<Groups>,
    /// Why it is not in persistent mode, if it was to be.
    fallback: Option<String>,
    kernels: Kernels,
    tables: Arc<Tables>,
    packets: Packets,
    arena: ArenaHandle,
    context: Arc<Context>,
    watch: Watch,
    /// Whether it leads packets from one program to another.
    runs_chain: bool,
    /// Of each program: what is brought there and back.
    reserved: Vec<Needs>,
    /// How long a copy beside packets may take.
    patience: Duration,
}

impl OpenClDevice {
    /// Makes device `number` of [`probe`] ready: compiles the kernels, copies the table images to where it reads them,
    /// and gives it the arena. A bin's `instance` is an index into `programs`.
    ///
    /// Takes seconds when the driver has not compiled these kernels before.
    ///
    /// # Errors
    /// [`Error::Absent`] and [`Error::Unusable`] for a device that is not here or that Godwit cannot use,
    /// [`Error::TooLarge`] for an arena or tables beyond its limits, [`Error::Memory`] when the host has too little,
    /// [`Error::Build`] and [`Error::Driver`] when the driver fails.
    pub fn new(
        number: usize,
        programs: Vec<Arc<dyn Program>>,
        arena: &ArenaHandle,
        options: &DeviceOptions,
    ) -> Result<Self, Error> {
        Self::with_kernels(number, programs, arena, options, godwit_kernels::opencl_source())
    }

    /// As [`OpenClDevice::new`], with other kernels in the place of Godwit's: for tests of devices that misbehave.
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

    /// As [`OpenClDevice::new`], but packets are copied to the device and back even where it works on the host's memory:
    /// for tests on machines that have no other.
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
        let chain = options.chain.as_deref().filter(|chain| chain.has_table() && kernels.follow);
        let image = DeviceChain::image(chain, &programs);
        let tables = Arc::new(Tables::new(&found, &context, device, &programs, &image, is_own)?);
        // Where packets are not copied, all of them is there.
        let mut reserved = vec![Needs::ALL; programs.len()];
        let packets = if is_own {
            demand_fits(&found, arena.bytes(), "the packet arena")?;
            let shadow = own::buffer(&context, arena.bytes()).map_err(failed(&id, "make a buffer for the arena"))?;
            let reach = |needs: &Needs| Reach { reads_bytes: needs.reads_bytes, writes_bytes: needs.writes_bytes };
            reserved = DeviceChain::needs(chain, &programs);
            let reaches = reserved.iter().map(reach).collect();
            Packets::Own(OwnMemory { shadow, reaches, arena: arena.clone() })
        } else {
            demand_host_memory(&found, &context, device, &kernels)?;
            // SAFETY: the handle, which this device keeps, keeps the memory mapped. The device reaches it only through
            // kernels, and these only buffers of packets that a lane holds; see the module on the order of accesses.
            Packets::Shared(unsafe { over(&found, &context, arena.base(), arena.bytes(), "the packet arena")? })
        };
        let watch = Watch::new(&id, options.watchdog);
        let parts = GroupsParts { found: &found, device, context: &context, tables: &tables, arena, source };
        let started = match options.mode {
            Mode::Launch => Ok(None),
            Mode::Persistent if is_own => Err("packets are copied to memory of its own and back".to_owned()),
            Mode::Persistent => Groups::start(&parts, options).map(Some),
        };
        let (groups, fallback) = match started {
            Ok(groups) => (groups, None),
            Err(reason) => (None, Some(format!("{id} runs in launch mode: {reason}"))),
        };
        let (device, arena, patience) = (*device, arena.clone(), options.watchdog);
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
            patience,
            found,
        })
    }

    /// What its slots are made with.
    fn parts(&self) -> SlotParts<'_> {
        let Self { found, context, device, kernels, tables, packets, runs_chain, .. } = self;
        SlotParts { found, context, device, kernels, tables, packets, runs_chain: *runs_chain }
    }

    /// What is wrong with a chunk, if anything is.
    fn check(&self, region: &mut Region, chunk: &Chunk) -> Result<(), Error> {
        if region.arena_base() != self.arena.base().as_ptr() {
            return Err(Error::Chunk { reason: "its packets lie in another arena than the device's".to_owned() });
        }
        check(region, chunk, |instance| self.programs.get(usize::from(instance)).map(|program| program.kernel()))
    }

    /// What [`probe`] says of it.
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
            None => self.tables.update(&self.found.capabilities.id, program, image, range, self.patience),
        }
    }

    fn update_chain(&self, chain: DeviceChain) -> Result<DeviceChain, Error> {
        let id = &self.found.capabilities.id;
        let not_brought =
            |instance: usize| Error::NotBrought { id: id.clone(), function: self.programs[instance].name().to_owned() };
        let chain = chain.within(&self.reserved, &self.programs).map_err(not_brought)?;
        if self.runs_chain && self.watch.lost().is_none() {
            self.tables.update_chain(id, &chain, self.patience)?;
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

/// Device `number` of [`probe`], if Godwit can use it.
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

/// Makes what the driver of device `id` says of an action an error.
fn failed(id: &str, action: &'static str) -> impl Fn(ClError) -> Error {
    move |error| Error::Driver { id: id.to_owned(), action, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn a_name_has_a_number() {
        assert_eq!(["opencl:0", "opencl:12"].map(number), [Some(0), Some(12)]);
        let others = ["opencl", "opencl:", "opencl:x", "opencl:+1", "opencl:-1", "cpu", "cuda:0", "opencl:0 "];
        assert_eq!(others.map(number), [None; 8]);
    }
}

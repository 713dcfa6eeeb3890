//! CUDA: NVIDIA's GPUs, through the driver's own interface. The driver and NVRTC are loaded when they are first asked for;
//! where there is none, [`probe`] says so.
//!
//! ```text
//! arena     | region of worker 0 | region of worker 1 |      page-locked where it is
//! shadow    | the same ...                            |      of the device; kernels see only this
//! tables    | chain | image 0 | image 1 | ... | offsets | reaches    of the device; parts of images change
//! slot      | bins | parameters | descriptors | outcomes | trails |   one per chunk in flight: page-locked, and on the device
//! mailboxes | mailbox 0 | mailbox 1 | ...                    page-locked; one per persistent group
//! ```
//!
//! In launch mode a chunk is a sequence: its arrays go to the device, its buffers go to the shadow, the kernel runs, buffers
//! and arrays come back. The kernel has a stream of the chunk's own; copies have two of the lane's, one each way, so that they
//! keep the order of the chunks, and events between the three. Chunks in flight overlap each other, so both directions of the
//! bus and the multiprocessors are busy at once. How buffers travel is decided for each chunk (`carriage.rs`): by few large copies
//! where many bytes lie side by side, which is what reaches the bus's rate, else by the groups themselves, arrays and all:
//! then a chunk is one launch and no copy.
//!
//! In persistent mode groups stay on the device and take bins out of mailboxes (`persistent.rs`, with the ordering
//! argument): no driver call a chunk, which is what small urgent batches want.
//!
//! # Ordering in launch mode
//!
//! What a worker writes before it submits is visible to its copies and kernel, what is in front of an event to what waits for
//! it in another stream, and all of it to the worker once the event behind the last copy is reached: that is what the driver
//! promises for page-locked memory. Where
//! groups move everything there is no event: the last of them releases a word at system scope, which the worker acquires
//! (`gw_tell_done` in kernels/dialect/loops_cuda.h, with the argument). Between the two only the device reaches slot and
//! buffers, and no buffer shares a cache line with another.

mod carriage;
mod claim;
mod compiler;
mod driver;
mod lane;
mod measure;
mod module;
mod persistent;
mod probe;
mod program;
mod slot;

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudarc::driver::result::{self, DriverError};
use godwit_packet::ArenaHandle;

use crate::chain::Needs;
use crate::watch::Watch;
use crate::{Capabilities, Choice, Device, DeviceChain, DeviceOptions, Error, Found, Lane, Mode, Program, Transfer};

pub(crate) use measure::CudaMeasure;
pub use probe::probe;

use claim::Claim;
use driver::{Context, DeviceMemory, Registration, failed};
use lane::LaunchLane;
use persistent::{Groups, PersistentLane, Running};
use program::{DeviceArguments, Kernels, Tables};
use slot::Slot;

/// How its devices' names in configurations start: `cuda:0`.
pub const ID: &str = "cuda";

/// The number in a device's name: 3 for `cuda:3`; `None` for any other name.
pub fn number(id: &str) -> Option<usize> {
    crate::number(id.strip_prefix(ID)?)
}

/// A CUDA device with its programs loaded.
pub struct CudaDevice {
    found: Found,
    watch: Watch,
    programs: Vec<Arc<dyn Program>>,
    /// Numbers of persistent lanes that are not given out.
    lanes: Mutex<Vec<usize>>,
    /// Why it does not run in the mode that was asked for.
    fallback: Option<String>,
    /// Whether packets stay on the device.
    resident: bool,
    /// How they come there and back.
    transfer: Transfer,
    /// Of each program, with those that it leads to here.
    needs: Vec<Needs>,
    /// Whether it leads packets from one program to another.
    runs_chain: bool,
    /// How long a copy beside packets may take.
    patience: Duration,
    parts: ManuallyDrop<Parts>,
}

/// What is given back when the device is, unless it is lost.
// Fields are dropped in this order.
struct Parts {
    groups: Option<Running>,
    kernels: Kernels,
    tables: Tables,
    shadow: DeviceMemory,
    registration: Registration,
    arena: ArenaHandle,
    context: Arc<Context>,
    claim: Claim,
}

impl CudaDevice {
    /// Makes device `number` of [`probe`] ready: compiles the kernels for its architecture, copies the table images to it,
    /// page-locks the arena and gives it a shadow of the same size on the device. A bin's `instance` is an index into
    /// `programs`.
    ///
    /// Takes seconds when the kernels were not compiled before; they are kept in the user's cache folder.
    ///
    /// # Errors
    /// [`Error::Absent`] and [`Error::Unusable`] for a device that is not here or that Godwit cannot use, or on which persistent groups
    /// of this process run, [`Error::TooLarge`] for an arena or tables beyond its memory, [`Error::Build`] and [`Error::Driver`] when compiler
    /// or driver fail.
    pub fn new(
        number: usize,
        programs: Vec<Arc<dyn Program>>,
        arena: &ArenaHandle,
        options: &DeviceOptions,
    ) -> Result<Self, Error> {
        Self::with_kernels(number, programs, arena, options, godwit_kernels::cuda_source())
    }

    /// As [`CudaDevice::new`], with other kernels in the place of Godwit's: for tests that look at every byte.
    #[doc(hidden)]
    pub fn with_kernels(
        number: usize,
        programs: Vec<Arc<dyn Program>>,
        arena: &ArenaHandle,
        options: &DeviceOptions,
        source: &str,
    ) -> Result<Self, Error> {
        let id = format!("{ID}:{number}");
        let count = probe::devices().map_err(|reason| Error::Unusable { id: id.clone(), reason })?;
        if number >= count {
            return Err(Error::Absent { id });
        }
        let found = probe::describe(number).map_err(failed(&id, "describe it"))?;
        if let Err(reason) = &found.usable {
            return Err(Error::Unusable { id, reason: reason.clone() });
        }
        let claim =
            Claim::new(number).map_err(|reason| Error::Unusable { id: id.clone(), reason: reason.to_owned() })?;
        let context = Context::new(&id, result::device::get(number as i32).map_err(failed(&id, "open it"))?)?;
        let kernels = Kernels::load(&context, source)?;
        let chain = options.chain.as_deref();
        let needs = DeviceChain::needs(chain, &programs);
        let tables = Tables::new(&context, &programs, &DeviceChain::image(chain, &programs), &needs)?;
        // SAFETY: the handle, which this device keeps for longer than the registration, keeps the memory mapped.
        let registration = unsafe { Registration::new(&context, arena.base(), arena.bytes())? };
        let shadow = DeviceMemory::new(&context, arena.bytes(), "the packet arena")?;
        let arena = arena.clone();
        let mut parts = Parts { groups: None, kernels, tables, shadow, registration, arena, context, claim };
        let mut fallback = None;
        if options.mode == Mode::Persistent
            && let Err(reason) = parts.start_groups(options)
        {
            fallback = Some(format!("{id} launches its chunks: {reason}"));
        }
        let device = Self {
            found,
            watch: Watch::new(&id, options.watchdog),
            programs,
            lanes: Mutex::new((0..options.lanes.max(1)).rev().collect()),
            fallback,
            resident: options.resident && options.mode == Mode::Launch,
            transfer: options.transfer,
            needs,
            runs_chain: chain.is_some_and(DeviceChain::has_table),
            patience: options.watchdog,
            parts: ManuallyDrop::new(parts),
        };
        if device.parts.groups.is_none() {
            let mut slot = Slot::new(&device, 0, 0)?;
            let warm = slot.warm_up(&device.parts.kernels, &device.parts.arguments());
            warm.map_err(failed(&id, "run the kernels for the first time"))?;
        }
        Ok(device)
    }

    /// What [`probe`] says of it.
    pub fn found(&self) -> &Found {
        &self.found
    }

    fn free_lanes(&self) -> MutexGuard<'_, Vec<usize>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes its context the calling thread's.
    fn bind(&self) -> Result<(), Error> {
        self.parts.context.bind().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: DriverError) -> Error {
        failed(&self.found.capabilities.id, "answer")(error)
    }
}

impl Parts {
    /// # Errors
    /// Why there can be none: a sentence.
    fn start_groups(&mut self, options: &DeviceOptions) -> Result<(), String> {
        self.claim.begin_groups()?;
        match Groups::start(&self.context, &self.kernels, &self.arguments(), options) {
            Ok(groups) => self.groups = Some(Running::new(groups)),
            Err(error) => {
                self.claim.end_groups();
                return Err(error.to_string());
            }
        }
        Ok(())
    }

    /// What every launch is told.
    fn arguments(&self) -> DeviceArguments {
        self.tables.arguments(self.shadow.pointer, self.registration.pointer)
    }
}

impl Device for CudaDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.found.capabilities
    }

    fn mode(&self) -> Mode {
        if self.parts.groups.is_some() { Mode::Persistent } else { Mode::Launch }
    }

    fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    fn is_resident(&self) -> bool {
        self.resident
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
        if self.watch.lost().is_some() {
            return Ok(());
        }
        let Parts { tables, context, .. } = &*self.parts;
        let said = tables.update(context, program, self.programs[program].image(), range, self.patience);
        // One that was lost meanwhile runs nothing any more.
        said.or_else(|error| self.watch.lost().map_or(Err(error), |_| Ok(())))
    }

    fn update_chain(&self, chain: DeviceChain) -> Result<DeviceChain, Error> {
        let not_brought = |instance: usize| Error::NotBrought {
            id: self.found.capabilities.id.clone(),
            function: self.programs[instance].name().to_owned(),
        };
        let chain = chain.within(&self.needs, &self.programs).map_err(not_brought)?;
        if self.runs_chain && self.watch.lost().is_none() {
            let said = self.parts.tables.update_chain(&self.parts.context, &chain, self.patience);
            said.or_else(|error| self.watch.lost().map_or(Err(error), |_| Ok(())))?;
        }
        Ok(chain)
    }

    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error> {
        self.watch.demand_alive()?;
        let Some(groups) = &self.parts.groups else { return Ok(Box::new(LaunchLane::new(self)?)) };
        let Some(index) = self.free_lanes().pop() else {
            let reason = "it has no groups for one more lane".to_owned();
            return Err(Error::Unusable { id: self.found.capabilities.id.clone(), reason });
        };
        Ok(Box::new(PersistentLane::new(Arc::clone(&self), groups, index)))
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        let usable = self.watch.lost().is_none() && self.parts.context.bind().is_ok();
        if usable && self.parts.groups.take().is_none_or(Running::stop) {
            // SAFETY: not used after this.
            unsafe { ManuallyDrop::drop(&mut self.parts) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn a_name_has_a_number() {
        assert_eq!(["cuda:0", "cuda:12"].map(number), [Some(0), Some(12)]);
        let others = ["cuda", "cuda:", "cuda:x", "cuda:+1", "cuda:-1", "cpu", "opencl:0", "cuda:0 "];
        assert_eq!(others.map(number), [None; 8]);
    }
}

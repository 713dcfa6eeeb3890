//! CUDA devices, through the driver API. The driver and NVRTC are loaded at the first use; if they
//! are absent, [`probe`] reports the reason.
//!
//! ```text
//! arena     | region of worker 0 | region of worker 1 |
//! shadow    | same bytes at the same offsets          |
//! tables    | chain | image 0 | image 1 | ... | offsets | accessed bytes
//! slot      | bins | parameters | descriptors | outcomes | trails |
//! mailboxes | mailbox 0 | mailbox 1 | ...
//! ```
//!
//! | memory | location |
//! |---|---|
//! | arena | page-locked host memory |
//! | shadow | device memory; kernels access only this copy |
//! | tables | device memory |
//! | slot | host and device memory, one per chunk in flight |
//! | mailboxes | page-locked host memory, one mailbox per persistent group |
//!
//! In launch mode, a chunk is a sequence: copy its arrays to the device, copy its buffers to the
//! shadow, run the kernel, copy buffers and arrays back. Each chunk runs its kernel in its own
//! stream. All copies of a lane use two streams, one per direction, so that copies keep the order
//! of the chunks. Events connect the streams. Chunks in flight overlap, so both directions of the
//! bus and the multiprocessors work at the same time.
//!
//! `transfer.rs` selects the transfer of each chunk. A few large copies reach the full rate of the
//! bus, if the buffers are contiguous. Otherwise the groups transfer buffers and arrays themselves,
//! so that a chunk is one launch without copies.
//!
//! In persistent mode, groups stay on the device and take bins from mailboxes (`persistent.rs`,
//! with the ordering argument). A chunk then needs no driver call, which lowers the latency of
//! small chunks.
//!
//! # Ordering in launch mode
//!
//! For page-locked memory, the driver gives three guarantees. Copies and kernel see what a worker
//! wrote before it submits. A stream that waits for an event sees what came before the event. The
//! worker sees everything when the event after the last copy is complete.
//!
//! Zero-copy chunks have no event. The last group releases a word at system scope, which the worker
//! acquires (`gw_signal_done` in kernels/dialect/loops_cuda.h, with the argument).
//!
//! Only the device accesses slot and buffers between submission and completion. No two buffers
//! share a cache line.

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
mod transfer;

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudarc::driver::result::{self, DriverError};
use godwit_packet::ArenaHandle;

use crate::chain::AccessNeeds;
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

/// Kind in device names, as in `cuda:0`.
pub const ID: &str = "cuda";

/// Parses the number of a CUDA device name: 3 for `cuda:3`, `None` for any other name.
pub fn number(id: &str) -> Option<usize> {
    crate::number(id.strip_prefix(ID)?)
}

/// A CUDA device with loaded programs.
pub struct CudaDevice {
    found: Found,
    watch: Watch,
    programs: Vec<Arc<dyn Program>>,
    /// Numbers of the persistent lanes that are free.
    lanes: Mutex<Vec<usize>>,
    /// Why the device does not use the requested mode.
    fallback: Option<String>,
    /// Whether packets stay on the device.
    resident: bool,
    /// Transfer of packets.
    transfer: Transfer,
    /// Access needs of each program, connected programs included.
    needs: Vec<AccessNeeds>,
    /// Whether the device runs a chain.
    runs_chain: bool,
    /// Timeout for copies of table changes.
    copy_timeout: Duration,
    parts: ManuallyDrop<Parts>,
}

/// Resources that are freed with the device, unless it is lost.
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
    /// Opens device `number` of [`probe`]: compiles the kernels for its architecture, copies the
    /// table images to it, page-locks the arena and allocates the shadow. `Bin::instance` is an
    /// index into `programs`.
    ///
    /// The first compilation takes seconds. The result is cached in the user's cache folder.
    ///
    /// # Errors
    /// [`Error::Absent`] if the device does not exist. [`Error::Unusable`] if Godwit cannot use it,
    /// or if persistent groups of this process run on it. [`Error::TooLarge`] if its memory is too
    /// small for arena or tables. [`Error::Build`] and [`Error::Driver`] if the compiler or the
    /// driver fails.
    pub fn new(
        number: usize,
        programs: Vec<Arc<dyn Program>>,
        arena: &ArenaHandle,
        options: &DeviceOptions,
    ) -> Result<Self, Error> {
        Self::with_kernels(number, programs, arena, options, godwit_kernels::cuda_source())
    }

    /// Same as [`CudaDevice::new`], with other kernels, for tests that check every byte.
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
        // SAFETY: this device keeps the handle longer than the registration, and the handle keeps
        // the memory mapped.
        let registration = unsafe { Registration::new(&context, arena.base(), arena.bytes())? };
        let shadow = DeviceMemory::new(&context, arena.bytes(), "the packet arena")?;
        let arena = arena.clone();
        let mut parts = Parts { groups: None, kernels, tables, shadow, registration, arena, context, claim };
        let mut fallback = None;
        if options.mode == Mode::Persistent
            && let Err(reason) = parts.start_groups(options)
        {
            fallback = Some(format!("{id} uses launch mode: {reason}"));
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
            copy_timeout: options.watchdog,
            parts: ManuallyDrop::new(parts),
        };
        if device.parts.groups.is_none() {
            let mut slot = Slot::new(&device, 0, 0)?;
            let warm = slot.warm_up(&device.parts.kernels, &device.parts.arguments());
            warm.map_err(failed(&id, "run the kernels for the first time"))?;
        }
        Ok(device)
    }

    /// Returns the probe result of this device.
    pub fn found(&self) -> &Found {
        &self.found
    }

    fn free_lanes(&self) -> MutexGuard<'_, Vec<usize>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the device's context current for the calling thread.
    fn bind(&self) -> Result<(), Error> {
        self.parts.context.bind().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: DriverError) -> Error {
        failed(&self.found.capabilities.id, "answer")(error)
    }
}

impl Parts {
    /// Starts the persistent groups.
    ///
    /// # Errors
    /// Returns the reason, in one sentence, why the device cannot run persistent groups.
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

    /// Returns the arguments common to all launches.
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
        let updated = tables.update(context, program, self.programs[program].image(), range, self.copy_timeout);
        // A lost device runs no kernels, so its tables do not matter.
        updated.or_else(|error| self.watch.lost().map_or(Err(error), |_| Ok(())))
    }

    fn update_chain(&self, chain: DeviceChain) -> Result<DeviceChain, Error> {
        let not_copied_back = |instance: usize| Error::NotCopiedBack {
            id: self.found.capabilities.id.clone(),
            function: self.programs[instance].name().to_owned(),
        };
        let chain = chain.within(&self.needs, &self.programs).map_err(not_copied_back)?;
        if self.runs_chain && self.watch.lost().is_none() {
            let updated = self.parts.tables.update_chain(&self.parts.context, &chain, self.copy_timeout);
            updated.or_else(|error| self.watch.lost().map_or(Err(error), |_| Ok(())))?;
        }
        Ok(chain)
    }

    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error> {
        self.watch.check_alive()?;
        let Some(groups) = &self.parts.groups else { return Ok(Box::new(LaunchLane::new(self)?)) };
        let Some(index) = self.free_lanes().pop() else {
            let reason = "all of its lanes are in use".to_owned();
            return Err(Error::Unusable { id: self.found.capabilities.id.clone(), reason });
        };
        Ok(Box::new(PersistentLane::new(Arc::clone(&self), groups, index)))
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        let usable = self.watch.lost().is_none() && self.parts.context.bind().is_ok();
        if usable && self.parts.groups.take().is_none_or(Running::stop) {
            // SAFETY: `parts` is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.parts) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn parses_device_names() {
        assert_eq!(["cuda:0", "cuda:12"].map(number), [Some(0), Some(12)]);
        let others = ["cuda", "cuda:", "cuda:x", "cuda:+1", "cuda:-1", "cpu", "opencl:0", "cuda:0 "];
        assert_eq!(others.map(number), [None; 8]);
    }
}

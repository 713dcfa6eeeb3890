//! An open CUDA device with loaded packet functions. All workers that use the device share it.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::result::DriverError;
use godwit_packet::{ArenaHandle, Region};
use godwit_sched::Chunk;

use super::claim::Claim;
use super::driver::{Context, DeviceMemory, Registration, failed};
use super::launch::warm_up;
use super::persistent::{Groups, Running};
use super::probe;
use super::program::Kernels;
use super::slot::Slot;
use super::tables::{DeviceArguments, Tables};
use crate::chain::DeviceChain;
use crate::check::{check, check_arena, check_bins, check_count};
use crate::counters::Counters;
use crate::error::Error;
use crate::found::Found;
use crate::mailbox::{GroupsDevice, Mailboxes};
use crate::options::{DeviceOptions, Mode};
use crate::program::Program;
use crate::transfer::{ChunkPlan, ChunkTransfer, Planner};
use crate::watch::Watch;

/// An open CUDA device with loaded packet functions.
pub(super) struct Opened {
    pub(super) found: Found,
    pub(super) watch: Watch,
    pub(super) programs: Vec<Arc<dyn Program>>,
    pub(super) counters: Counters,
    /// Why the device does not use the requested mode.
    pub(super) fallback: Option<String>,
    /// Plans packet transfers. A plan covers the bytes that the whole function chain on the device
    /// accesses.
    pub(super) planner: Planner,
    /// Whether the device runs a chain of functions.
    pub(super) runs_chain: bool,
    /// Timeout for copies of table changes.
    pub(super) copy_timeout: Duration,
    pub(super) parts: ManuallyDrop<Parts>,
}

/// Device resources that are freed on close, unless the device is lost.
// The order of the fields matters, because Rust drops them in this order.
pub(super) struct Parts {
    pub(super) groups: Option<Running>,
    pub(super) kernels: Kernels,
    pub(super) tables: Tables,
    shadow: DeviceMemory,
    registration: Registration,
    arena: ArenaHandle,
    pub(super) context: Arc<Context>,
    claim: Claim,
}

impl Opened {
    pub(super) fn new(
        number: usize,
        programs: Vec<Arc<dyn Program>>,
        arena: &ArenaHandle,
        options: &DeviceOptions,
        source: &str,
    ) -> Result<Self, Error> {
        let found = probe::found(number)?;
        let id = found.capabilities.id.clone();
        let claim = Claim::new(number).map_err(|reason| Error::Unusable { id: id.clone(), reason })?;
        let context = probe::context(number)?;
        let kernels = Kernels::load(&context, source)?;
        let chain = options.chain.as_deref();
        let needs = DeviceChain::needs(chain, &programs);
        let tables = Tables::new(&context, &programs, &DeviceChain::image(chain, &programs), &needs)?;
        // SAFETY: this device keeps the handle longer than the registration, and the handle keeps
        // the memory mapped.
        let registration = unsafe { Registration::new(&context, arena.base(), arena.bytes())? };
        let shadow = DeviceMemory::new(&context, arena.bytes(), "the packet arena")?;
        let pitch = arena.slot_pitch_bytes();
        let arena = arena.clone();
        let mut parts = Parts { groups: None, kernels, tables, shadow, registration, arena, context, claim };
        let started = if options.mode == Mode::Persistent { parts.start_groups(options) } else { Ok(()) };
        let opened = Self {
            watch: Watch::new(&id, options.watchdog),
            counters: Counters::new(&programs),
            programs,
            fallback: started.err().map(|reason| format!("{id} uses launch mode: {reason}")),
            planner: Planner {
                needs,
                pitch,
                transfer: options.transfer,
                costs: options.costs,
                otherwise: ChunkTransfer::ZeroCopy,
            },
            runs_chain: chain.is_some_and(DeviceChain::has_table),
            copy_timeout: options.watchdog,
            parts: ManuallyDrop::new(parts),
            found,
        };
        if opened.parts.groups.is_none() {
            let mut slot = opened.slot(0, 0)?;
            let warm = warm_up(&mut slot, &opened.parts.kernels, &opened.parts.arguments());
            warm.map_err(failed(&id, "run the kernels for the first time"))?;
        }
        Ok(opened)
    }

    /// Creates the resources of one submission in flight, which may have up to `bins_max` batches
    /// and `packets_max` packets.
    pub(super) fn slot(&self, bins_max: usize, packets_max: usize) -> Result<Slot, Error> {
        let Parts { context, kernels, .. } = &*self.parts;
        Slot::new(context, &kernels.chunk, self.runs_chain, bins_max, packets_max)
    }

    /// Makes the device's context current for the calling thread.
    pub(super) fn bind(&self) -> Result<(), Error> {
        self.parts.context.bind().map_err(|error| self.failed(error))
    }

    pub(super) fn failed(&self, error: DriverError) -> Error {
        failed(&self.found.capabilities.id, "answer")(error)
    }

    /// Checks a submission and plans its transfer.
    pub(super) fn plan(&self, region: &mut Region, chunk: &Chunk) -> Result<ChunkPlan, Error> {
        self.watch.check_alive()?;
        check_arena(region, self.parts.arena.base())?;
        check_bins(chunk, |instance| self.kernel(instance))?;
        check_count(chunk)?;
        self.planner.plan(region, chunk)
    }

    fn kernel(&self, instance: u16) -> Option<u8> {
        self.programs.get(usize::from(instance)).map(|program| program.kernel())
    }
}

impl Parts {
    /// Starts the persistent work-groups.
    fn start_groups(&mut self, options: &DeviceOptions) -> Result<(), Error> {
        let id = self.context.id.clone();
        self.claim.begin_groups().map_err(|reason| Error::Unusable { id, reason })?;
        match Groups::start(&self.context, &self.kernels, &self.arguments(), options) {
            Ok(groups) => self.groups = Some(Running::new(groups)),
            Err(error) => {
                self.claim.end_groups();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the arguments common to all launches.
    pub(super) fn arguments(&self) -> DeviceArguments {
        self.tables.arguments(self.shadow.pointer, self.registration.pointer)
    }
}

impl GroupsDevice for Opened {
    fn mailboxes(&self) -> &Mailboxes {
        let Some(groups) = &self.parts.groups else { unreachable!("a lane in persistent mode has groups") };
        &groups.mailboxes
    }

    fn watch(&self) -> &Watch {
        &self.watch
    }

    fn runs_chain(&self) -> bool {
        self.runs_chain
    }

    fn shares_cores(&self) -> bool {
        false
    }

    fn check(&self, region: &mut Region, chunk: &Chunk) -> Result<(), Error> {
        self.watch.check_alive()?;
        check_arena(region, self.parts.arena.base())?;
        check_count(chunk)?;
        check(region, chunk, |instance| self.kernel(instance))
    }

    fn return_lane(&self, lane: usize) {
        if let Some(groups) = &self.parts.groups {
            groups.lanes.put(lane);
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let usable = self.watch.lost().is_none() && self.parts.context.bind().is_ok();
        if usable && self.parts.groups.take().is_none_or(Running::stop) {
            // SAFETY: `parts` is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.parts) };
        }
    }
}

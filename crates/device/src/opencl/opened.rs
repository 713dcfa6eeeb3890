//! An open OpenCL device with loaded packet functions. All workers that use the device share it.

use std::sync::Arc;
use std::time::Duration;

use godwit_packet::{ArenaHandle, Region};
use godwit_sched::Chunk;
use opencl3::context::Context;
use opencl3::device::Device as ClDevice;

use super::driver::svm;
use super::driver::{buffer, check_buffer_size, failed, over};
use super::host_memory::check_host_memory;
use super::persistent::{Groups, GroupsParts};
use super::probe::usable;
use super::program::Kernels;
use super::slot::{Packets, Shadow, SlotParts};
use super::tables::Tables;
use crate::chain::DeviceChain;
use crate::check::{check, check_arena, check_bins};
use crate::counters::Counters;
use crate::error::{Error, Unavailable};
use crate::found::Found;
use crate::mailbox::{GroupsDevice, Mailboxes};
use crate::options::{DeviceOptions, Mode, Transfer};
use crate::program::{AccessNeeds, Program};
use crate::transfer::{ChunkPlan, ChunkTransfer, Planner};
use crate::watch::Watch;

/// An open OpenCL device with loaded packet functions.
// The order of the fields matters, because each buffer must be dropped before its memory.
pub(super) struct Opened {
    pub(super) found: Found,
    pub(super) programs: Vec<Arc<dyn Program>>,
    pub(super) device: ClDevice,
    /// The persistent work-groups. It is `None` in launch mode.
    pub(super) groups: Option<Groups>,
    /// Why the device does not use the requested mode.
    pub(super) fallback: Option<String>,
    kernels: Kernels,
    pub(super) tables: Arc<Tables>,
    pub(super) counters: Counters,
    pub(super) packets: Packets,
    arena: ArenaHandle,
    pub(super) context: Arc<Context>,
    pub(super) watch: Watch,
    /// Whether the device runs a chain of functions.
    pub(super) runs_chain: bool,
    /// Plans packet transfers. If the device works in the host's memory, the plans allow access to
    /// all bytes.
    pub(super) planner: Planner,
    /// Timeout for copies of table changes.
    pub(super) copy_timeout: Duration,
}

impl Opened {
    /// Opens a device. With `force_own`, packets are copied to the device even if the device works
    /// in the host's memory.
    pub(super) fn new(
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
        let (packets, needs) = if is_own {
            check_buffer_size(&found, arena.bytes(), "the packet arena")?;
            let shadow = buffer(&context, arena.bytes()).map_err(failed(&id, "create a buffer for the arena"))?;
            let needs = DeviceChain::needs(chain, &programs);
            (Packets::Own(Shadow { buffer: shadow, arena: arena.clone() }), needs)
        } else {
            check_host_memory(&found, &context, device, &kernels)?;
            // SAFETY: this device keeps the handle, which keeps the memory mapped. Kernels access
            // only buffers of packets that a lane holds. The module documentation explains the
            // order of accesses.
            let over = unsafe { over(&found, &context, arena.base(), arena.bytes(), "the packet arena")? };
            (Packets::Shared(over), vec![AccessNeeds::ALL; programs.len()])
        };
        let parts = GroupsParts { found: &found, device, context: &context, tables: &tables, arena, source };
        let started = match options.mode {
            Mode::Launch => Ok(None),
            Mode::Persistent if is_own => {
                let reason = "it has its own memory, to which packets are copied";
                Err(Unavailable::Unsupported(reason.to_owned()).to_string())
            }
            Mode::Persistent => Groups::start(&parts, options).map(Some).map_err(|error| match error {
                Error::Unusable { reason, .. } => reason.to_string(),
                other => other.to_string(),
            }),
        };
        let (groups, fallback) = match started {
            Ok(groups) => (groups, None),
            Err(reason) => (None, Some(format!("{id} uses launch mode: {reason}"))),
        };
        let planner = Planner {
            needs,
            pitch: arena.slot_pitch_bytes(),
            transfer: Transfer::Copy,
            costs: options.costs,
            otherwise: ChunkTransfer::Pack,
        };
        Ok(Self {
            counters: Counters::new(&programs),
            programs,
            device: *device,
            groups,
            fallback,
            kernels,
            tables,
            packets,
            arena: arena.clone(),
            context,
            watch: Watch::new(&id, options.watchdog),
            runs_chain: chain.is_some(),
            planner,
            copy_timeout: options.watchdog,
            found,
        })
    }

    pub(super) fn parts(&self) -> SlotParts<'_> {
        let Self { found, context, device, kernels, tables, packets, runs_chain, planner, .. } = self;
        SlotParts { found, context, device, kernels, tables, packets, needs: &planner.needs, runs_chain: *runs_chain }
    }

    /// Checks a submission and plans its transfer.
    pub(super) fn plan(&self, region: &mut Region, chunk: &Chunk) -> Result<ChunkPlan, Error> {
        self.watch.check_alive()?;
        check_arena(region, self.arena.base())?;
        match self.packets {
            Packets::Shared(_) => check(region, chunk, |instance| self.kernel(instance)).map(|()| ChunkPlan::EMPTY),
            Packets::Own(_) => {
                check_bins(chunk, |instance| self.kernel(instance))?;
                self.planner.plan(region, chunk)
            }
        }
    }

    fn kernel(&self, instance: u16) -> Option<u8> {
        self.programs.get(usize::from(instance)).map(|program| program.kernel())
    }
}

impl GroupsDevice for Opened {
    fn mailboxes(&self) -> &Mailboxes {
        let Some(groups) = &self.groups else { unreachable!("a lane in persistent mode has groups") };
        &groups.mailboxes
    }

    fn watch(&self) -> &Watch {
        &self.watch
    }

    fn runs_chain(&self) -> bool {
        self.runs_chain
    }

    fn shares_cores(&self) -> bool {
        true
    }

    fn check(&self, region: &mut Region, chunk: &Chunk) -> Result<(), Error> {
        self.watch.check_alive()?;
        check_arena(region, self.arena.base())?;
        check(region, chunk, |instance| self.kernel(instance))
    }

    fn return_lane(&self, lane: usize) {
        if let Some(groups) = &self.groups {
            groups.lanes.put(lane);
        }
    }
}

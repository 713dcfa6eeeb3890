//! CUDA devices, through the driver API. The driver and the run-time compiler NVRTC are loaded at
//! the first use. If they are absent, [`probe`] reports the reason.
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
//! | slot | host and device memory, one per submission in flight |
//! | mailboxes | page-locked host memory, one mailbox per persistent work-group |
//!
//! In launch mode, a submission takes four steps. Its arrays are copied to the device. Its packet
//! buffers are copied to device memory. The kernel runs. Buffers and arrays are copied back. Each
//! submission runs its kernel in its own stream. All copies of a worker use two streams, one per
//! direction. Copies therefore keep the order of the submissions. Events connect the streams.
//! Submissions in flight overlap, so both directions of the bus and the multiprocessors work at the
//! same time.
//!
//! `crate::transfer` selects the transfer of each submission. A few large copies reach the full
//! rate of the bus, if the buffers are contiguous. Otherwise, the work-groups of the kernel
//! transfer buffers and arrays themselves. A submission is then one launch without copies.
//!
//! In persistent mode, work-groups stay on the device and take batches from mailboxes
//! (`persistent.rs`; `crate::mailbox` explains the memory order). A submission then needs no driver
//! call, which lowers the latency of small submissions.
//!
//! # Ordering in launch mode
//!
//! For page-locked memory, the driver gives three guarantees. Copies and kernel see what a worker
//! wrote before it submits. A stream that waits for an event sees what came before the event. The
//! worker sees everything when the event after the last copy is complete.
//!
//! Zero-copy submissions have no event. The last work-group releases a word at system scope, which
//! the worker acquires (`gw_signal_done` in kernels/dialect/loops_cuda.h).
//!
//! Only the device accesses the packet buffers between submission and completion. No two buffers
//! share a cache line.

mod claim;
mod completion;
pub mod driver;
mod lane;
mod launch;
mod locks;
mod opened;
mod persistent;
mod probe;
mod program;
mod results;
mod slot;
mod tables;

use std::ops::Range;
use std::sync::Arc;

use godwit_packet::ArenaHandle;

use crate::chain::DeviceChain;
use crate::device::{Choice, Device, Lane};
use crate::error::Error;
use crate::found::{Capabilities, Found};
use crate::mailbox::PersistentLane;
use crate::options::{DeviceOptions, Mode};
use crate::program::Program;

pub use probe::{ID, architecture_of, context, probe};

use lane::LaunchLane;
use opened::Opened;

/// A CUDA device with loaded packet functions.
pub struct CudaDevice(Arc<Opened>);

impl CudaDevice {
    /// Opens the device that [`probe`] lists under `number`. This compiles the kernels for the
    /// architecture of the device, and copies the tables of all functions to it. It also page-locks
    /// the memory of all packets, and allocates memory of the same size on the device.
    /// `Bin::instance` is an index into `programs`.
    ///
    /// The first compilation takes seconds. The result is cached in the user's cache folder.
    ///
    /// # Errors
    /// Returns [`Error::Absent`] if the device does not exist. Returns [`Error::Unusable`] if
    /// Godwit cannot use it, or if persistent work-groups of this process run on it. Returns
    /// [`Error::TooLarge`] if its memory is too small for the arena or the tables. Returns
    /// [`Error::Build`] or [`Error::Driver`] if the compiler or the driver fails.
    pub fn new(
        number: usize,
        programs: Vec<Arc<dyn Program>>,
        arena: &ArenaHandle,
        options: &DeviceOptions,
    ) -> Result<Self, Error> {
        let source = crate::program::with_custom_kernels(godwit_kernels::cuda_source(), &programs);
        Self::with_kernels(number, programs, arena, options, &source)
    }

    /// Opens a device as [`CudaDevice::new`] does, but with the kernels in `source`. Tests use this
    /// function with kernels that check every byte.
    #[doc(hidden)]
    pub fn with_kernels(
        number: usize,
        programs: Vec<Arc<dyn Program>>,
        arena: &ArenaHandle,
        options: &DeviceOptions,
        source: &str,
    ) -> Result<Self, Error> {
        Ok(Self(Arc::new(Opened::new(number, programs, arena, options, source)?)))
    }

    /// Returns the probe result of this device.
    pub fn found(&self) -> &Found {
        &self.0.found
    }
}

impl Device for CudaDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.0.found.capabilities
    }

    fn mode(&self) -> Mode {
        if self.0.parts.groups.is_some() { Mode::Persistent } else { Mode::Launch }
    }

    fn fallback(&self) -> Option<&str> {
        self.0.fallback.as_deref()
    }

    fn runs_chain(&self) -> bool {
        self.0.runs_chain
    }

    fn choices(&self) -> Vec<Choice> {
        self.0.programs.iter().map(|program| Choice::only(&**program, ID)).collect()
    }

    fn counters(&self, program: usize) -> Vec<u64> {
        let Opened { watch, programs, parts, counters, copy_timeout, .. } = &*self.0;
        counters.read((program, &*programs[program]), |range, bytes| match watch.lost() {
            Some(_) => None,
            None => parts.tables.read(&parts.context, program, range, bytes, *copy_timeout),
        })
    }

    fn update_image(&self, program: usize, range: Range<usize>) -> Result<(), Error> {
        let Opened { watch, programs, parts, copy_timeout, .. } = &*self.0;
        if watch.lost().is_some() {
            return Ok(());
        }
        let updated = parts.tables.update(&parts.context, program, programs[program].image(), range, *copy_timeout);
        // A lost device runs no kernels, so its tables do not matter.
        updated.or_else(|error| watch.lost().map_or(Err(error), |_| Ok(())))
    }

    fn update_chain(&self, chain: DeviceChain) -> Result<DeviceChain, Error> {
        let Opened { watch, programs, parts, planner, runs_chain, found, copy_timeout, .. } = &*self.0;
        let not_copied_back = |instance: usize| Error::NotCopiedBack {
            id: found.capabilities.id.clone(),
            function: programs[instance].name().to_owned(),
        };
        let chain = chain.within(&planner.needs, programs).map_err(not_copied_back)?;
        if *runs_chain && watch.lost().is_none() {
            let updated = parts.tables.update_chain(&parts.context, &chain, *copy_timeout);
            updated.or_else(|error| watch.lost().map_or(Err(error), |_| Ok(())))?;
        }
        Ok(chain)
    }

    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error> {
        let opened = Arc::clone(&self.0);
        opened.watch.check_alive()?;
        let Some(groups) = &opened.parts.groups else { return Ok(Box::new(LaunchLane::new(opened)?)) };
        let lane = groups.lanes.take(&opened.found.capabilities.id)?;
        let (own, programs, share) = (groups.of_lane(lane), opened.programs.len(), groups.share.clone());
        Ok(Box::new(PersistentLane::new(opened, lane, own, programs, &share)))
    }
}

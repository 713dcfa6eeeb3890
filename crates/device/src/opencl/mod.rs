//! OpenCL devices. One kernel contains all packet functions, and one work-group processes each
//! batch. In launch mode, a submission of batches is one launch (`lane.rs`). In persistent mode,
//! the work-groups of one launch take batches from mailboxes (`persistent.rs`).
//!
//! Some devices work on packets in place: processors (PoCL), and GPUs that share coherent memory
//! with the processor. For other devices, packets are copied to the device and back
//! (`crate::transfer`). The OpenCL library is loaded at the first use. If it is absent, [`probe`]
//! reports the reason.
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
//! Each worker has a connection to the device. A waiting worker declares the device lost if no
//! worker gets a result within [`DeviceOptions::watchdog`]. While other workers get results, it
//! waits longer, because its submission may be queued behind theirs. A running kernel cannot be
//! cancelled, so everything that the kernel may access is never freed. The process can still exit,
//! because the threads of PoCL end with it.
//!
//! # Threads
//!
//! Connections share only read-only data. PoCL runs kernels on its own threads, one per core, which
//! compete with the workers. On a machine with two cores, a spinning worker takes half of the
//! device. PoCL is useful only on machines with free cores.
//!
//! In persistent mode, each work-group spins on its own core, because OpenCL C has no wait
//! operation. There are never more work-groups than cores, because additional work-groups would not
//! start. Normally there are at most half as many. Workers without work yield, so that a work-group
//! on the same core can run.
//!
//! Godwit does not cache compiled kernels: the drivers of PoCL, Intel, NVIDIA and AMD do.

mod arena;
mod completion;
pub mod driver;
mod host_memory;
mod lane;
mod launch;
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

pub use arena::arena_memory;
pub use probe::{ID, present, probe};

use lane::LaunchLane;
use opened::Opened;

/// An OpenCL device with loaded packet functions.
pub struct OpenClDevice(Arc<Opened>);

impl OpenClDevice {
    /// Opens the device that [`probe`] lists under `number`. This compiles the kernels, copies the
    /// tables of all functions, and gives the device access to the memory of all packets.
    /// `Bin::instance` is an index into `programs`.
    ///
    /// The first compilation by a driver takes seconds.
    ///
    /// # Errors
    /// Returns [`Error::Absent`] if the device does not exist, and [`Error::Unusable`] if Godwit
    /// cannot use it. Returns [`Error::TooLarge`] if the packet memory or the tables exceed the
    /// limits of the device, and [`Error::Memory`] if the host has too little memory. Returns
    /// [`Error::Build`] or [`Error::Driver`] if the compiler or the driver fails.
    pub fn new(
        number: usize,
        programs: Vec<Arc<dyn Program>>,
        arena: &ArenaHandle,
        options: &DeviceOptions,
    ) -> Result<Self, Error> {
        let source = crate::program::with_custom_kernels(godwit_kernels::opencl_source(), &programs);
        Self::with_kernels(number, programs, arena, options, &source)
    }

    /// Opens a device as [`OpenClDevice::new`] does, but with the kernels in `source`. Tests use
    /// this function to simulate faulty devices.
    #[doc(hidden)]
    pub fn with_kernels(
        number: usize,
        programs: Vec<Arc<dyn Program>>,
        arena: &ArenaHandle,
        options: &DeviceOptions,
        source: &str,
    ) -> Result<Self, Error> {
        Ok(Self(Arc::new(Opened::new(number, programs, arena, options, source, false)?)))
    }

    /// Opens a device as [`OpenClDevice::new`] does, but always copies packets, as if the device
    /// had separate memory. Tests use this function on machines without such a device.
    #[doc(hidden)]
    pub fn with_own_memory(
        number: usize,
        programs: Vec<Arc<dyn Program>>,
        arena: &ArenaHandle,
        options: &DeviceOptions,
    ) -> Result<Self, Error> {
        let source = crate::program::with_custom_kernels(godwit_kernels::opencl_source(), &programs);
        Ok(Self(Arc::new(Opened::new(number, programs, arena, options, &source, true)?)))
    }

    /// Returns the probe result of this device.
    pub fn found(&self) -> &Found {
        &self.0.found
    }
}

impl Device for OpenClDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.0.found.capabilities
    }

    fn mode(&self) -> Mode {
        if self.0.groups.is_some() { Mode::Persistent } else { Mode::Launch }
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
        let Opened { watch, programs, tables, counters, copy_timeout, .. } = &*self.0;
        counters.read((program, &*programs[program]), |range, bytes| match watch.lost() {
            Some(_) => None,
            None => tables.read(program, range, bytes, *copy_timeout),
        })
    }

    fn update_image(&self, program: usize, range: Range<usize>) -> Result<(), Error> {
        let Opened { watch, programs, tables, found, copy_timeout, .. } = &*self.0;
        match watch.lost() {
            Some(_) => Ok(()),
            None => tables.update(&found.capabilities.id, program, programs[program].image(), range, *copy_timeout),
        }
    }

    fn update_chain(&self, chain: DeviceChain) -> Result<DeviceChain, Error> {
        let Opened { watch, programs, tables, planner, runs_chain, found, copy_timeout, .. } = &*self.0;
        let id = &found.capabilities.id;
        let not_copied_back =
            |instance: usize| Error::NotCopiedBack { id: id.clone(), function: programs[instance].name().to_owned() };
        let chain = chain.within(&planner.needs, programs).map_err(not_copied_back)?;
        if *runs_chain && watch.lost().is_none() {
            tables.update_chain(id, &chain, *copy_timeout)?;
        }
        Ok(chain)
    }

    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error> {
        let opened = Arc::clone(&self.0);
        opened.watch.check_alive()?;
        let Some(groups) = &opened.groups else { return Ok(Box::new(LaunchLane::new(opened)?)) };
        let lane = groups.lanes.take(&opened.found.capabilities.id)?;
        let (own, programs, share) = (groups.of_lane(lane), opened.programs.len(), groups.share.clone());
        Ok(Box::new(PersistentLane::new(opened, lane, own, programs, &share)))
    }
}

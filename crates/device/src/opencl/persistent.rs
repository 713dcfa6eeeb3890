//! Persistent work-groups of an OpenCL device. One kernel is launched once, and each of its
//! work-groups takes batches of packets from a separate mailbox.

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use godwit_abi::{CHAIN_SCRATCH_PACKET_BYTES, MAILBOX_ENDED, MAILBOX_POLLING};
use godwit_packet::{ArenaHandle, Memory};
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::Device as ClDevice;
use opencl3::error_codes::ClError;
use opencl3::kernel::Kernel;

use super::driver::svm::{self, SvmOwner};
use super::driver::{failed, launch, queue, set_buffer, set_shared, set_word};
use super::program::Kernels;
use super::tables::Tables;
use crate::error::{Error, Unavailable};
use crate::found::Found;
use crate::mailbox::{HostWords, LanePool, Mailboxes, groups_min};
use crate::options::{DeviceOptions, Mode};

/// Number of batches in a mailbox. The number must be a power of two, because the batch counters
/// wrap to 0.
///
/// Work-groups and workers that share cores alternate within milliseconds, and therefore need long
/// queues. In the test `no_stale_data_is_read` on two cores, mailboxes of 64 batches carry 2.4
/// times as many packets as mailboxes of 16.
const SLOTS: u32 = 64;
/// Timeout for the start of work-groups if the kernel is already compiled. The work-groups may have
/// to wait for other work on the device.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout for the first start of the work-groups, including kernel compilation.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Persistent work-groups of a device. Unless the device is lost, dropping this value stops the
/// work-groups and waits for their end.
pub(super) struct Groups {
    held: ManuallyDrop<Held>,
    pub(super) mailboxes: Mailboxes,
    pub(super) lanes: LanePool,
    per_lane: usize,
    /// Weights of the packet functions ([`DeviceOptions::share`]).
    pub(super) share: Vec<u32>,
    timeout: Duration,
}

/// Memory that the persistent kernel accesses, and the driver objects of its launch.
// The order of the fields matters, because Rust drops them in this order.
struct Held {
    queue: CommandQueue,
    kernel: Kernel,
    _mailboxes: Memory,
    _scratch: Memory,
    _tables: Arc<Tables>,
    _arena: ArenaHandle,
    _context: Arc<Context>,
}

// SAFETY: all fields except the kernel can be shared. The kernel is not used after `Groups::launch`
// returns.
unsafe impl Sync for Held {}

/// Parts of a device that its persistent work-groups need.
pub(super) struct GroupsParts<'a> {
    pub(super) found: &'a Found,
    pub(super) device: &'a ClDevice,
    pub(super) context: &'a Arc<Context>,
    pub(super) tables: &'a Arc<Tables>,
    pub(super) arena: &'a ArenaHandle,
    pub(super) source: &'a str,
}

impl Groups {
    /// Starts the persistent work-groups.
    ///
    /// # Errors
    /// Returns [`Error::Unusable`] if the device cannot run persistent work-groups, or the error of
    /// the driver.
    pub(super) fn start(parts: &GroupsParts<'_>, options: &DeviceOptions) -> Result<Self, Error> {
        let GroupsParts { found, context, arena, .. } = *parts;
        let refuse = |reason| Err(Error::Unusable { id: found.capabilities.id.clone(), reason });
        if let Some(lacks) = found.lacks(Mode::Persistent) {
            return refuse(lacks.clone());
        }
        let owner = arena.memory_owner().and_then(|owner| owner.downcast_ref::<SvmOwner>());
        if !owner.is_some_and(|owner| owner.is_of(context)) {
            let reason = "the arena is not in shared virtual memory of this device";
            return refuse(Unavailable::Setup(reason.to_owned()));
        }
        let lanes = options.lanes.max(1);
        let per_lane = match groups_per_lane(found, lanes, groups_min(&options.share)) {
            Ok(per_lane) => per_lane,
            Err(reason) => return refuse(reason),
        };
        let groups = Self::launch(parts, per_lane, lanes, options)?;
        if !groups.wait_for(MAILBOX_POLLING, START_TIMEOUT) {
            let reason = format!("not all of its {} groups run at the same time", per_lane * lanes);
            return refuse(Unavailable::Setup(reason));
        }
        Ok(groups)
    }

    fn launch(parts: &GroupsParts<'_>, per_lane: usize, lanes: usize, options: &DeviceOptions) -> Result<Self, Error> {
        let GroupsParts { found, device, context, tables, arena, source } = *parts;
        let id = &found.capabilities.id;
        let kernels = Kernels::build_persistent(found, context, device, source)?;
        let kernel = kernels.entry(id)?;
        let count = per_lane * lanes;
        let bin_packets = Mailboxes::bin_packets(options.bin_packets);
        let mailbox_bytes = Mailboxes::bytes_each(SLOTS, bin_packets);
        let memory = svm::allocate(found, context, count * mailbox_bytes, "the mailboxes of a device")?;
        // The scratch memory must be zeroed, and `allocate` returns zeroed memory.
        let scratch_bytes = count * bin_packets * CHAIN_SCRATCH_PACKET_BYTES;
        let scratch = svm::allocate(found, context, scratch_bytes, "the scratch memory of a device")?;
        // SAFETY: `held` keeps the memory as long as the mailboxes, and no group runs yet.
        let mailboxes = unsafe { Mailboxes::new(memory.base(), count, SLOTS, bin_packets, HostWords::Single) };
        let queue = queue(found, context, device)?;
        // Each argument has the type of the corresponding parameter of `gw_persistent`.
        let set = || -> Result<(), ClError> {
            set_shared(&kernel, 0, arena.base().as_ptr())?;
            set_buffer(&kernel, 1, &tables.images)?;
            set_buffer(&kernel, 2, &tables.offsets)?;
            set_shared(&kernel, 3, memory.base().as_ptr())?;
            set_word(&kernel, 4, &(mailbox_bytes as u64))?;
            set_word(&kernel, 5, &SLOTS)?;
            set_word(&kernel, 6, &(bin_packets as u32))?;
            set_shared(&kernel, 7, scratch.base().as_ptr())
        };
        set().map_err(failed(id, "set a kernel argument"))?;
        let groups = Self {
            held: ManuallyDrop::new(Held {
                queue,
                kernel,
                _mailboxes: memory,
                _scratch: scratch,
                _tables: Arc::clone(tables),
                _arena: arena.clone(),
                _context: Arc::clone(context),
            }),
            mailboxes,
            lanes: LanePool::new(lanes),
            per_lane,
            share: options.share.clone(),
            timeout: options.watchdog,
        };
        // The first launch only makes the driver compile the kernel. The work-groups end at once,
        // because `stop` is set.
        groups.mailboxes.request_stop();
        groups.enqueue(&kernels, count, id)?;
        if !groups.wait_for(MAILBOX_ENDED, COMPILE_TIMEOUT) {
            let reason = Unavailable::Failed("its persistent groups do not start".to_owned());
            return Err(Error::Unusable { id: id.clone(), reason });
        }
        groups.mailboxes.reset();
        groups.enqueue(&kernels, count, id)?;
        Ok(groups)
    }

    fn enqueue(&self, kernels: &Kernels, count: usize, id: &str) -> Result<(), Error> {
        let Held { queue, kernel, .. } = &*self.held;
        // SAFETY: all arguments are set. The groups access the mailboxes, the tables, and buffers
        // of packets that a lane has posted. `held` keeps all of them until the groups have ended.
        let launched = unsafe { launch(queue, kernel, count, kernels.group_lanes) };
        launched.map_err(failed(id, "launch a kernel"))?;
        queue.flush().map_err(failed(id, "start a kernel"))
    }

    /// Waits until all work-groups report `state`. Returns `false` if this takes longer than
    /// `timeout`.
    fn wait_for(&self, state: u32, timeout: Duration) -> bool {
        self.mailboxes.wait_for(state, timeout, || std::thread::sleep(POLL_INTERVAL))
    }

    /// Returns the work-groups that serve connection `lane`.
    pub(super) fn of_lane(&self, lane: usize) -> Range<usize> {
        lane * self.per_lane..(lane + 1) * self.per_lane
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.mailboxes.request_stop();
        // Memory that running work-groups may still access is never freed.
        if self.wait_for(MAILBOX_ENDED, self.timeout) && self.held.queue.finish().is_ok() {
            // SAFETY: `held` is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.held) };
        }
    }
}

/// Returns the number of persistent work-groups per worker, at least `minimum`, or the reason if
/// the device has too few.
fn groups_per_lane(found: &Found, lanes: usize, minimum: usize) -> Result<usize, Unavailable> {
    let units = found.capabilities.compute_units.max(1);
    if lanes > units {
        return Err(Unavailable::Unsupported(format!(
            "{lanes} workers need one group each, but only {units} groups run at the same time"
        )));
    }
    if lanes * minimum > units {
        return Err(Unavailable::Unsupported(format!(
            "{lanes} workers with {minimum} shares each need {} groups, but only {units} groups run at the same time",
            lanes * minimum
        )));
    }
    // A persistent work-group occupies a whole compute unit. The compute units of a CPU are its
    // cores, and half of the cores stay free for the workers.
    let groups = if found.kind == "cpu" { units / 2 } else { units };
    Ok((groups / lanes).max(minimum))
}

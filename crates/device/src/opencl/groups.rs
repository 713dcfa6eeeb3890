//! Persistent groups: one kernel that is launched once, and a mailbox for each of its groups.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use godwit_abi::{
    CHAIN_SCRATCH_PACKET_BYTES, MAILBOX_ENDED, MAILBOX_POLLING, MAILBOX_SLOT_PACKETS, Mailbox, MailboxSlot,
};
use godwit_packet::{ArenaHandle, Memory};
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::Device as ClDevice;
use opencl3::kernel::Kernel;
use opencl3::memory::ClMem;

use super::failed;
use super::program::{Kernels, Tables};
use super::svm::{self, SvmOwner};
use crate::watch::Watch;
use crate::{DeviceOptions, Error, Found, share};

/// Number of slots in a mailbox. A power of two, so that slot numbers continue when the counters
/// wrap. Groups and workers that share cores alternate within milliseconds. In the test
/// `no_stale_data_is_read` on two cores, 64 slots carry 2.4 times as many packets as 16.
pub(super) const SLOTS: u32 = 64;
/// Initial value of the mailbox counters. They wrap soon after the start, so that errors at the
/// wrap are found early.
const COUNTERS_START: u32 = u32::MAX - 80;
/// Timeout for the start of the groups. They wait for other work on the device; their kernel is
/// already compiled.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout for the first start of the groups, which includes the compilation by the driver.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// The persistent groups of a device. Dropping them stops the groups and waits for their end,
/// unless the device is lost.
pub(super) struct Groups {
    held: ManuallyDrop<Held>,
    /// Numbers of the lanes that are free.
    lanes_free: Mutex<Vec<usize>>,
    groups_per_lane: usize,
    count: usize,
    mailbox_bytes: usize,
    pub(super) bin_packets: usize,
    /// See [`DeviceOptions::share`].
    pub(super) share: Vec<u32>,
    timeout: Duration,
}

/// Memory that the kernel accesses, and driver objects.
// Fields are dropped in this order.
struct Held {
    queue: CommandQueue,
    _kernel: Kernel,
    mailboxes: Memory,
    _scratch: Memory,
    _tables: Arc<Tables>,
    _arena: ArenaHandle,
    _context: Arc<Context>,
}

// SAFETY: all fields except the kernel can be shared. The kernel is not used after `Groups::launch`
// returns.
unsafe impl Sync for Held {}

/// Parts of a device that its groups need.
pub(super) struct GroupsParts<'a> {
    pub(super) found: &'a Found,
    pub(super) device: &'a ClDevice,
    pub(super) context: &'a Arc<Context>,
    pub(super) tables: &'a Arc<Tables>,
    pub(super) arena: &'a ArenaHandle,
    pub(super) source: &'a str,
}

impl Groups {
    /// Starts the groups. Returns the reason, in one sentence, if they cannot start.
    pub(super) fn start(parts: &GroupsParts<'_>, options: &DeviceOptions) -> Result<Self, String> {
        let GroupsParts { found, context, arena, .. } = *parts;
        if let Some(lacks) = found.lacks(crate::Mode::Persistent) {
            return Err(lacks.to_owned());
        }
        let owner = arena.memory_owner().and_then(|owner| owner.downcast_ref::<SvmOwner>());
        if !owner.is_some_and(|owner| owner.is_of(context)) {
            return Err("the arena is not in shared virtual memory of this device".to_owned());
        }
        let lanes = options.lanes.max(1);
        let groups_per_lane = groups_per_lane(found, lanes, share::groups_min(&options.share))?;
        let groups = Self::launch(parts, groups_per_lane, lanes, options).map_err(|error| error.to_string())?;
        match groups.wait_for(MAILBOX_POLLING, START_TIMEOUT) {
            true => Ok(groups),
            false => Err(format!("not all of its {} groups run at the same time", groups.count)),
        }
    }

    fn launch(
        parts: &GroupsParts<'_>,
        groups_per_lane: usize,
        lanes: usize,
        options: &DeviceOptions,
    ) -> Result<Self, Error> {
        let GroupsParts { found, device, context, tables, arena, source } = *parts;
        let id = &found.capabilities.id;
        let kernels = Kernels::build_persistent(found, context, device, source)?;
        let kernel = kernels.entry(id)?;
        let count = groups_per_lane * lanes;
        let bin_packets = options.bin_packets.max(1).next_multiple_of(MAILBOX_SLOT_PACKETS);
        let mailbox_bytes = size_of::<Mailbox>() + SLOTS as usize * MailboxSlot::new(bin_packets).bytes;
        let mut mailboxes = svm::allocate(found, context, count * mailbox_bytes, "the mailboxes of a device")?;
        // The scratch memory must be zeroed, as `allocate` does.
        let scratch_bytes = count * bin_packets * CHAIN_SCRATCH_PACKET_BYTES;
        let scratch = svm::allocate(found, context, scratch_bytes, "the scratch memory of a device")?;
        for group in 0..count {
            for counter in [0, std::mem::offset_of!(Mailbox, finished)] {
                let offset = group * mailbox_bytes + counter;
                mailboxes[offset..offset + 4].copy_from_slice(&COUNTERS_START.to_le_bytes());
            }
        }
        // SAFETY: the device belongs to the context.
        let queue = unsafe { CommandQueue::create(context, device.id(), 0) };
        let queue = queue.map_err(failed(id, "create a command queue"))?;
        let set = failed(id, "set a kernel argument");
        // SAFETY: the arguments have the types of the parameters of `gw_persistent`. `held` keeps
        // their memory.
        unsafe {
            kernel.set_arg_svm_pointer(0, arena.base().as_ptr().cast()).map_err(&set)?;
            kernel.set_arg(1, &tables.images.get()).map_err(&set)?;
            kernel.set_arg(2, &tables.offsets.get()).map_err(&set)?;
            kernel.set_arg_svm_pointer(3, mailboxes.base().as_ptr().cast()).map_err(&set)?;
            kernel.set_arg(4, &(mailbox_bytes as u64)).map_err(&set)?;
            kernel.set_arg(5, &SLOTS).map_err(&set)?;
            kernel.set_arg(6, &(bin_packets as u32)).map_err(&set)?;
            kernel.set_arg_svm_pointer(7, scratch.base().as_ptr().cast()).map_err(&set)?;
        }
        let groups = Self {
            held: ManuallyDrop::new(Held {
                queue,
                _kernel: kernel,
                mailboxes,
                _scratch: scratch,
                _tables: Arc::clone(tables),
                _arena: arena.clone(),
                _context: Arc::clone(context),
            }),
            lanes_free: Mutex::new((0..lanes).rev().collect()),
            groups_per_lane,
            count,
            mailbox_bytes,
            bin_packets,
            share: options.share.clone(),
            timeout: options.watchdog,
        };
        let (group_lanes, all_lanes) = (kernels.group_lanes, count * kernels.group_lanes);
        let launch = || {
            // SAFETY: all arguments are set. The groups access the mailboxes, the tables, and
            // buffers of packets that a lane has posted. `held` keeps all of them until the groups
            // have ended.
            unsafe {
                let kernel = groups.held._kernel.get();
                groups.held.queue.enqueue_nd_range_kernel(kernel, 1, std::ptr::null(), &all_lanes, &group_lanes, &[])
            }
            .map_err(failed(id, "launch a kernel"))
        };
        // The first launch only makes the driver compile the kernel. With `stop` set, it ends at
        // once.
        groups.request_stop();
        launch()?;
        groups.held.queue.flush().map_err(failed(id, "start a kernel"))?;
        if !groups.wait_for(MAILBOX_ENDED, COMPILE_TIMEOUT) {
            return Err(Error::Unusable { id: id.clone(), reason: "its persistent groups do not start".to_owned() });
        }
        for group in 0..count {
            let mailbox = groups.mailbox(group);
            mailbox.word(STOP).store(0, Ordering::Relaxed);
            mailbox.word(RUNNING).store(0, Ordering::Relaxed);
        }
        launch()?;
        groups.held.queue.flush().map_err(failed(id, "start a kernel"))?;
        Ok(groups)
    }

    /// Returns whether all groups report `state` within `timeout`.
    fn wait_for(&self, state: u32, timeout: Duration) -> bool {
        let started = Instant::now();
        for group in 0..self.count {
            let mailbox = self.mailbox(group);
            while mailbox.word(RUNNING).load(Ordering::Acquire) != state {
                if started.elapsed() > timeout {
                    return false;
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        true
    }

    fn request_stop(&self) {
        for group in 0..self.count {
            self.mailbox(group).word(STOP).store(1, Ordering::Release);
        }
    }

    /// Takes a free lane. Returns its number and the numbers of its groups.
    pub(super) fn take_lane(&self, watch: &Watch, id: &str) -> Result<(usize, std::ops::Range<usize>), Error> {
        watch.check_alive()?;
        let mut free = self.lanes_free.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = free.pop().ok_or_else(|| Error::Unusable {
            id: id.to_owned(),
            reason: format!(
                "it was opened for {} lanes, and all of them are in use",
                self.count / self.groups_per_lane
            ),
        })?;
        Ok((lane, lane * self.groups_per_lane..(lane + 1) * self.groups_per_lane))
    }

    /// Returns a lane whose bins are all finished.
    pub(super) fn return_lane(&self, lane: usize) {
        self.lanes_free.lock().unwrap_or_else(PoisonError::into_inner).push(lane);
    }

    /// Returns the mailbox of a group.
    pub(super) fn mailbox(&self, group: usize) -> MailboxAt {
        assert!(group < self.count);
        // SAFETY: the mailboxes lie within the memory.
        let base = unsafe { self.held.mailboxes.base().add(group * self.mailbox_bytes) };
        MailboxAt { base, slot: MailboxSlot::new(self.bin_packets) }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.request_stop();
        // Memory that running groups may access is leaked.
        if self.wait_for(MAILBOX_ENDED, self.timeout) && self.held.queue.finish().is_ok() {
            // SAFETY: `held` is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.held) };
        }
    }
}

/// Returns the number of groups per lane, at least `minimum`, or the reason why the device has too
/// few.
fn groups_per_lane(found: &Found, lanes: usize, minimum: usize) -> Result<usize, String> {
    let units = found.capabilities.compute_units.max(1);
    if lanes > units {
        return Err(format!("{lanes} workers need one group each, but only {units} groups run at the same time"));
    }
    if lanes * minimum > units {
        return Err(format!(
            "{lanes} workers with {minimum} shares each need {} groups, but only {units} groups run at the same time",
            lanes * minimum
        ));
    }
    // A group occupies a whole compute unit. If this is a core, leave half of the cores to the
    // workers.
    let groups = if found.kind == "cpu" { units / 2 } else { units };
    Ok((groups / lanes).max(minimum))
}

/// Offset of the word `posted` in a mailbox.
pub(super) const POSTED: usize = std::mem::offset_of!(Mailbox, posted);
const STOP: usize = std::mem::offset_of!(Mailbox, stop);
/// Offset of the word `finished` in a mailbox.
pub(super) const FINISHED: usize = std::mem::offset_of!(Mailbox, finished);
const RUNNING: usize = std::mem::offset_of!(Mailbox, running);

/// Address of a mailbox. Valid as long as its [`Groups`] exist.
#[derive(Clone, Copy)]
pub(super) struct MailboxAt {
    base: NonNull<u8>,
    slot: MailboxSlot,
}

// SAFETY: it is only an address. Each method states the conditions for accesses.
unsafe impl Send for MailboxAt {}

impl MailboxAt {
    /// Returns the word at `offset`, which host and group access at the same time.
    pub(super) fn word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset < size_of::<Mailbox>() && offset.is_multiple_of(4));
        // SAFETY: the word is aligned and within the mailbox, which lives as long as the groups.
        // While the groups run, it is accessed only by atomic operations.
        unsafe { AtomicU32::from_ptr(self.base.add(offset).cast().as_ptr()) }
    }

    /// Returns the bytes of the slot with number `counter`.
    ///
    /// # Safety
    /// The group must not own the slot: it was never posted, or the host has acquired its
    /// completion. There must be no other reference to it.
    #[expect(clippy::mut_from_ref, reason = "an address; the caller guarantees that there is one reference at a time")]
    pub(super) unsafe fn slot(&self, counter: u32) -> &mut [u8] {
        let index = (counter % SLOTS) as usize;
        let offset = size_of::<Mailbox>() + index * self.slot.bytes;
        // SAFETY: the slot lies within the mailbox. The caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(offset).as_ptr(), self.slot.bytes) }
    }
}

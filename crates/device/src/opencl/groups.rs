//! The groups that stay on a device: one kernel, launched once, and a mailbox for each of its groups.

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

/// Bins that wait for one group at most. A power of two, so that the ring goes on where the counters wrap. Where groups and
/// workers share cores, they work in turns of milliseconds: 64 places carry 2.4 times the packets of 16 then
/// (`nobody_ever_reads_anything_stale` on two cores).
pub(super) const PLACES: u32 = 64;
/// Where the counters of a mailbox begin: shortly before they wrap, so that nothing comes to depend on their not doing so.
const COUNTERS_START: u32 = u32::MAX - 80;
/// How long the groups may take to begin. They wait for whatever runs on the device; everything is compiled by then.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How long the groups may take to begin for the first time, which has the driver finish its compiling.
const COMPILE_LIMIT: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_micros(50);

/// See the module. Dropped, it tells the groups to stop and waits for them, but not for a device that is lost.
pub(super) struct Groups {
    held: ManuallyDrop<Held>,
    /// Lanes that nobody has.
    lanes_free: Mutex<Vec<usize>>,
    groups_per_lane: usize,
    count: usize,
    mailbox_bytes: usize,
    pub(super) bin_packets: usize,
    /// See [`DeviceOptions::share`].
    pub(super) share: Vec<u32>,
    limit: Duration,
}

/// What the kernel reaches, and the driver's objects.
// Fields are dropped in this order.
struct Held {
    queue: CommandQueue,
    _kernel: Kernel,
    mailboxes: Memory,
    _desks: Memory,
    _tables: Arc<Tables>,
    _arena: ArenaHandle,
    _context: Arc<Context>,
}

// SAFETY: all but the kernel may be shared, and that is used by nobody once `Groups::launch` has returned.
unsafe impl Sync for Held {}

/// What groups are made with.
pub(super) struct GroupsParts<'a> {
    pub(super) found: &'a Found,
    pub(super) device: &'a ClDevice,
    pub(super) context: &'a Arc<Context>,
    pub(super) tables: &'a Arc<Tables>,
    pub(super) arena: &'a ArenaHandle,
    pub(super) source: &'a str,
}

impl Groups {
    /// Starts them, or says why not, in one sentence.
    pub(super) fn start(parts: &GroupsParts<'_>, options: &DeviceOptions) -> Result<Self, String> {
        let GroupsParts { found, context, arena, .. } = *parts;
        if let Some(lacks) = found.lacks(crate::Mode::Persistent) {
            return Err(lacks.to_owned());
        }
        let owner = arena.memory_owner().and_then(|owner| owner.downcast_ref::<SvmOwner>());
        if !owner.is_some_and(|owner| owner.is_of(context)) {
            return Err("the arena does not lie in memory that the device shares while a kernel runs".to_owned());
        }
        let lanes = options.lanes.max(1);
        let groups_per_lane = groups_per_lane(found, lanes, share::least(&options.share))?;
        let groups = Self::launch(parts, groups_per_lane, lanes, options).map_err(|error| error.to_string())?;
        match groups.wait_for(MAILBOX_POLLING, START_LIMIT) {
            true => Ok(groups),
            false => Err(format!("its {} groups do not all run at the same time", groups.count)),
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
        let mailbox_bytes = size_of::<Mailbox>() + PLACES as usize * MailboxSlot::new(bin_packets).bytes;
        let mut mailboxes = svm::allocate(found, context, count * mailbox_bytes, "the mailboxes of a device")?;
        // Zeros, all of them.
        let scratch =
            svm::allocate(found, context, count * bin_packets * CHAIN_SCRATCH_PACKET_BYTES, "the scratch of a device")?;
        for group in 0..count {
            for counter in [0, std::mem::offset_of!(Mailbox, finished)] {
                let at = group * mailbox_bytes + counter;
                mailboxes[at..at + 4].copy_from_slice(&COUNTERS_START.to_le_bytes());
            }
        }
        // SAFETY: the device is the context's.
        let queue = unsafe { CommandQueue::create(context, device.id(), 0) };
        let queue = queue.map_err(failed(id, "make a command queue"))?;
        let set = failed(id, "set a kernel's argument");
        // SAFETY: the arguments are those of `gw_persistent`, of these types, and what they point to is kept in `held`.
        unsafe {
            kernel.set_arg_svm_pointer(0, arena.base().as_ptr().cast()).map_err(&set)?;
            kernel.set_arg(1, &tables.images.get()).map_err(&set)?;
            kernel.set_arg(2, &tables.offsets.get()).map_err(&set)?;
            kernel.set_arg_svm_pointer(3, mailboxes.base().as_ptr().cast()).map_err(&set)?;
            kernel.set_arg(4, &(mailbox_bytes as u64)).map_err(&set)?;
            kernel.set_arg(5, &PLACES).map_err(&set)?;
            kernel.set_arg(6, &(bin_packets as u32)).map_err(&set)?;
            kernel.set_arg_svm_pointer(7, scratch.base().as_ptr().cast()).map_err(&set)?;
        }
        let groups = Self {
            held: ManuallyDrop::new(Held {
                queue,
                _kernel: kernel,
                mailboxes,
                _desks: scratch,
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
            limit: options.watchdog,
        };
        let (group_lanes, all_lanes) = (kernels.group_lanes, count * kernels.group_lanes);
        let launch = || {
            // SAFETY: all arguments are set; the groups reach the mailboxes, the tables, and buffers of packets that a
            // lane has posted, all of which `held` keeps until they have ended.
            unsafe {
                let kernel = groups.held._kernel.get();
                groups.held.queue.enqueue_nd_range_kernel(kernel, 1, std::ptr::null(), &all_lanes, &group_lanes, &[])
            }
            .map_err(failed(id, "launch a kernel"))
        };
        // Once for nothing: told to stop before it begins, it ends at once, with everything compiled.
        groups.tell_to_stop();
        launch()?;
        groups.held.queue.flush().map_err(failed(id, "start a kernel"))?;
        if !groups.wait_for(MAILBOX_ENDED, COMPILE_LIMIT) {
            return Err(Error::Unusable { id: id.clone(), reason: "its groups do not begin".to_owned() });
        }
        for group in 0..count {
            let boxed = groups.mailbox(group);
            boxed.word(STOP).store(0, Ordering::Relaxed);
            boxed.word(RUNNING).store(0, Ordering::Relaxed);
        }
        launch()?;
        groups.held.queue.flush().map_err(failed(id, "start a kernel"))?;
        Ok(groups)
    }

    /// Whether all groups say this of themselves in time.
    fn wait_for(&self, state: u32, limit: Duration) -> bool {
        let started = Instant::now();
        for group in 0..self.count {
            let running = self.mailbox(group);
            while running.word(RUNNING).load(Ordering::Acquire) != state {
                if started.elapsed() > limit {
                    return false;
                }
                std::thread::sleep(LOOK_INTERVAL);
            }
        }
        true
    }

    fn tell_to_stop(&self) {
        for group in 0..self.count {
            self.mailbox(group).word(STOP).store(1, Ordering::Release);
        }
    }

    /// A lane that nobody has, as the numbers of its groups.
    pub(super) fn take_lane(&self, watch: &Watch, id: &str) -> Result<(usize, std::ops::Range<usize>), Error> {
        watch.demand_alive()?;
        let mut free = self.lanes_free.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = free.pop().ok_or_else(|| Error::Unusable {
            id: id.to_owned(),
            reason: format!("it was opened for {} lanes, and all of them are taken", self.count / self.groups_per_lane),
        })?;
        Ok((lane, lane * self.groups_per_lane..(lane + 1) * self.groups_per_lane))
    }

    /// Takes a lane back whose bins are all worked off.
    pub(super) fn give_lane_back(&self, lane: usize) {
        self.lanes_free.lock().unwrap_or_else(PoisonError::into_inner).push(lane);
    }

    /// The mailbox of a group.
    pub(super) fn mailbox(&self, group: usize) -> MailboxAt {
        assert!(group < self.count);
        // SAFETY: the mailboxes lie within the memory.
        let base = unsafe { self.held.mailboxes.base().add(group * self.mailbox_bytes) };
        MailboxAt { base, place: MailboxSlot::new(self.bin_packets) }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.tell_to_stop();
        // What groups that do not end may still reach is never given back.
        if self.wait_for(MAILBOX_ENDED, self.limit) && self.held.queue.finish().is_ok() {
            // SAFETY: nothing of it is used after this.
            unsafe { ManuallyDrop::drop(&mut self.held) };
        }
    }
}

/// How many groups each lane gets, `least` at least, or why there are too few.
fn groups_per_lane(found: &Found, lanes: usize, least: usize) -> Result<usize, String> {
    let units = found.capabilities.compute_units.max(1);
    if lanes > units {
        return Err(format!("each of {lanes} workers needs a group of its own, and only {units} run at the same time"));
    }
    if lanes * least > units {
        return Err(format!(
            "{least} functions have a share of each worker's groups, which are one each at least: {} for {lanes} workers, and \
             only {units} run at the same time",
            lanes * least
        ));
    }
    // A group takes a whole compute unit for itself. Where that is a core, workers need some as well.
    let groups = if found.kind == "cpu" { units / 2 } else { units };
    Ok((groups / lanes).max(least))
}

/// Words of a mailbox, by their place.
pub(super) const POSTED: usize = std::mem::offset_of!(Mailbox, posted);
const STOP: usize = std::mem::offset_of!(Mailbox, stop);
/// See [`POSTED`].
pub(super) const FINISHED: usize = std::mem::offset_of!(Mailbox, finished);
const RUNNING: usize = std::mem::offset_of!(Mailbox, running);

/// A mailbox where it lies. Good while the [`Groups`] are.
#[derive(Clone, Copy)]
pub(super) struct MailboxAt {
    base: NonNull<u8>,
    place: MailboxSlot,
}

// SAFETY: an address; what may be done with it when is said where it is used.
unsafe impl Send for MailboxAt {}

impl MailboxAt {
    /// A word of it, which host and group reach at the same time.
    pub(super) fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at < size_of::<Mailbox>() && at.is_multiple_of(4));
        // SAFETY: aligned, within the mailbox, which lives as long as the groups, and reached by atomics alone once they run.
        unsafe { AtomicU32::from_ptr(self.base.add(at).cast().as_ptr()) }
    }

    /// The place that comes when so many were posted, as bytes.
    ///
    /// # Safety
    /// The group must not have it: it was never posted, or its being finished was seen (acquire). No other reference to
    /// it may be alive.
    #[expect(clippy::mut_from_ref, reason = "an address; the caller promises that there is one reference at a time")]
    pub(super) unsafe fn place(&self, counter: u32) -> &mut [u8] {
        let index = (counter % PLACES) as usize;
        let offset = size_of::<Mailbox>() + index * self.place.bytes;
        // SAFETY: within the mailbox's memory; the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(offset).as_ptr(), self.place.bytes) }
    }
}

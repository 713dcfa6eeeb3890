//! Persistent work-groups of a CUDA device. They take batches of packets from mailboxes, which are
//! queues in memory that host and device share.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use godwit_abi::{CHAIN_SCRATCH_PACKET_BYTES, MAILBOX_ENDED, MAILBOX_POLLING, MailboxSlot};

use super::driver::{Context, DeviceMemory, PinnedMemory, Stream, failed};
use super::program::{GROUP_LANES, Kernels};
use super::tables::DeviceArguments;
use crate::error::{Error, Unavailable};
use crate::mailbox::{HostWords, LanePool, Mailboxes, groups_min};
use crate::options::DeviceOptions;

/// Number of batches in a work-group's mailbox. One is in progress, and the others wait.
const SLOTS: u32 = 4;
/// Minimum timeout for persistent work-groups to start and to stop.
const START_STOP_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Maximum number of persistent work-groups per worker. More work-groups were not faster in
/// measurements.
const GROUPS_PER_LANE_MAX: usize = 64;

/// All persistent work-groups of a device, and their mailboxes.
pub(super) struct Groups {
    pub(super) mailboxes: Mailboxes,
    pub(super) lanes: LanePool,
    _memory: PinnedMemory,
    /// Number of persistent work-groups that serve each worker.
    per_lane: usize,
    /// Weights of the packet functions ([`DeviceOptions::share`]).
    pub(super) share: Vec<u32>,
    stream: Stream,
    _scratch: DeviceMemory,
    context: Arc<Context>,
    /// Timeout for work-groups to start and to stop.
    timeout: Duration,
}

impl Groups {
    /// Starts the persistent work-groups. The caller must first allocate all other memory that the
    /// device needs. A driver may block an allocation until the persistent kernel ends.
    pub(super) fn start(
        context: &Arc<Context>,
        kernels: &Kernels,
        arguments: &DeviceArguments,
        options: &DeviceOptions,
    ) -> Result<Self, Error> {
        let lanes = options.lanes.max(1);
        let per_lane = groups_per_lane(kernels.groups_resident, lanes, groups_min(&options.share))
            .map_err(|reason| Error::Unusable { id: context.id.clone(), reason })?;
        let groups = per_lane * lanes;
        let bin_packets = Mailboxes::bin_packets(options.bin_packets);
        let memory = PinnedMemory::new(context, groups * Mailboxes::bytes_each(SLOTS, bin_packets))?;
        // SAFETY: `Self` keeps the memory as long as the mailboxes, and no group runs yet.
        let mailboxes = unsafe { Mailboxes::new(memory.base(), groups, SLOTS, bin_packets, HostWords::Pairs) };
        let scratch_bytes = MailboxSlot::new(bin_packets).bytes + bin_packets * CHAIN_SCRATCH_PACKET_BYTES;
        let scratch = DeviceMemory::new(context, groups * scratch_bytes, "the scratch memory of persistent groups")?;
        scratch.fill(&vec![0; groups * scratch_bytes])?;
        let started = Self {
            mailboxes,
            lanes: LanePool::new(lanes),
            _memory: memory,
            per_lane,
            share: options.share.clone(),
            stream: Stream::new(context)?,
            _scratch: scratch,
            context: Arc::clone(context),
            timeout: options.watchdog.max(START_STOP_TIMEOUT_MIN),
        };
        started.launch(kernels, arguments, groups, bin_packets)?;
        if !started.mailboxes.wait_for(MAILBOX_POLLING, started.timeout, std::thread::yield_now) {
            let reason =
                format!("not all of the {groups} persistent groups run at once: another program uses the device");
            Running::new(started).stop();
            return Err(Error::Unusable { id: context.id.clone(), reason: Unavailable::Setup(reason) });
        }
        Ok(started)
    }

    fn launch(
        &self,
        kernels: &Kernels,
        arguments: &DeviceArguments,
        groups: usize,
        bin_packets: usize,
    ) -> Result<(), Error> {
        let mut by_device = *arguments;
        let mut mailboxes = self._memory.pointer;
        let (mut bytes, mut slots) = (Mailboxes::bytes_each(SLOTS, bin_packets) as u64, SLOTS);
        let mut packets = bin_packets as u32;
        let mut scratch = self._scratch.pointer;
        let mut values: [*mut c_void; 6] = [
            (&raw mut by_device).cast(),
            (&raw mut mailboxes).cast(),
            (&raw mut bytes).cast(),
            (&raw mut slots).cast(),
            (&raw mut packets).cast(),
            (&raw mut scratch).cast(),
        ];
        // SAFETY: the values match the parameters of `gw_persistent`. Their targets live until the
        // groups have ended.
        unsafe { kernels.persistent.launch(&self.stream, groups as u32, GROUP_LANES, &mut values) }
            .map_err(failed(&self.context.id, "start the persistent groups"))
    }

    /// Returns the work-groups that serve connection `lane`.
    pub(super) fn of_lane(&self, lane: usize) -> Range<usize> {
        lane * self.per_lane..(lane + 1) * self.per_lane
    }

    /// Stops all work-groups and waits until they have ended. Returns `false` if they do not end
    /// within the timeout.
    fn stop(&self) -> bool {
        self.mailboxes.request_stop();
        self.mailboxes.wait_for(MAILBOX_ENDED, self.timeout, std::thread::yield_now)
            && self.stream.synchronize().is_ok()
    }
}

/// Returns the number of persistent work-groups per worker, at least `minimum`, or the reason if
/// the device has too few. `resident` is the number of work-groups that can run at once on an idle
/// device.
fn groups_per_lane(resident: usize, lanes: usize, minimum: usize) -> Result<usize, Unavailable> {
    // Kernel launches need about half of the device, so persistent work-groups occupy at most the
    // other half. Their number is also limited, because each polling work-group uses some bus
    // bandwidth.
    let per_lane = (resident / 2 / lanes).min(GROUPS_PER_LANE_MAX).max(minimum);
    if per_lane * lanes <= resident {
        return Ok(per_lane);
    }
    let each = if minimum == 1 { "one group".to_owned() } else { format!("{minimum} groups (one per share)") };
    Err(Unavailable::Unsupported(format!(
        "{lanes} lanes need {each} each, but the device runs only {resident} groups at once"
    )))
}

/// Running persistent work-groups. If the work-groups do not stop, their memory is never freed.
pub(super) struct Running(ManuallyDrop<Groups>);

impl Running {
    pub(super) fn new(groups: Groups) -> Self {
        Self(ManuallyDrop::new(groups))
    }

    /// Stops the persistent work-groups. Returns `false` if they do not respond. The caller must
    /// then never free their memory.
    pub(super) fn stop(mut self) -> bool {
        let stopped = self.0.context.bind().is_ok() && self.0.stop();
        if stopped {
            // SAFETY: `self.0` is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
        stopped
    }
}

impl std::ops::Deref for Running {
    type Target = Groups;

    fn deref(&self) -> &Groups {
        &self.0
    }
}

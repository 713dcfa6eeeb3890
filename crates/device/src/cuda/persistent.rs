//! One worker's connection to a CUDA device in persistent mode: the mailboxes of its groups.
//!
//! # Ordering
//!
//! A mailbox lies in page-locked host memory. Each of its words has one writer. The protocol is
//! from Hummingbird (algorithms 1 and 2): it uses one atomic operation per group and bin instead of
//! one per lane.
//!
//! * Host to group: The host writes buffers and a mailbox slot, then stores `posted` with release.
//!   One lane of the group loads `posted` with acquire at system scope; the other lanes follow
//!   after the group's barrier. So all lanes see what the host wrote before. x86 processors keep
//!   the order of stores, and the release prevents the compiler from moving them.
//! * Polling: The group reads 16 bytes in one request, as two acquire loads of 8 bytes in any
//!   order. They contain `posted`, `stop` and the extent of the bin. The extent contains the lowest
//!   bits of `posted` for its slot, and is valid only if they match the slot that the group
//!   expects. The host writes the extent before `posted`, for every slot. A group that has seen one
//!   slot since cannot see the extent from 65,536 slots earlier. With a valid extent the group
//!   loads buffers and slot at the same time, because `posted` orders the buffers in any case.
//! * Group to host: All lanes write buffers, descriptors and outcomes to host memory and pass a
//!   barrier. Then one lane stores `finished` with release at system scope. The barrier orders the
//!   writes of the other lanes before that store, and release is cumulative: an acquire load that
//!   sees the new number also sees all writes. The host loads `finished` with acquire.
//! * The host accesses neither slot nor buffers between the two steps. It reuses a slot only if the
//!   number of posted slots that it has not seen as finished is below the length of the ring.
//!
//! APUNet evicted caches by additional reads, because the GPU of its APU had no operation that
//! makes writes visible while a kernel runs. Release and acquire at system scope are this
//! operation.
//!
//! Counters run modulo 2^32. A ring is much shorter.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, offset_of, size_of};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use godwit_abi::{
    Bin, CHAIN_SCRATCH_PACKET_BYTES, MAILBOX_ENDED, MAILBOX_POLLING, MAILBOX_SLOT_PACKETS, Mailbox, MailboxSlot, extent,
};
use godwit_packet::Region;
use godwit_sched::Chunk;

use super::CudaDevice;
use super::driver::{Context, DeviceMemory, PinnedMemory, Stream, failed};
use super::program::{DeviceArguments, GROUP_LANES, Kernels};
use super::slot::{get, put};
use crate::check::packets_of;
use crate::share::{self, Split};
use crate::{BinTime, DeviceOptions, Error, Lane, Rejected};

/// Number of slots in a mailbox: the bin in progress and the bins that wait for it.
const SLOTS: usize = 4;

/// All persistent groups of a device and their mailboxes.
pub(super) struct Groups {
    mailboxes: PinnedMemory,
    mailbox_bytes: usize,
    slot: MailboxSlot,
    /// Number of groups of one lane.
    per_lane: usize,
    groups: usize,
    bin_packets: usize,
    /// See [`DeviceOptions::share`].
    share: Vec<u32>,
    stream: Stream,
    _scratch: DeviceMemory,
    context: Arc<Context>,
    watchdog: Duration,
}

impl Groups {
    /// Starts the groups. All other memory must be allocated before, because the driver may wait
    /// for persistent kernels before it allocates memory.
    pub(super) fn start(
        context: &Arc<Context>,
        kernels: &Kernels,
        arguments: &DeviceArguments,
        options: &DeviceOptions,
    ) -> Result<Self, Error> {
        let lanes = options.lanes.max(1);
        // Leave half of the device to launches. Each polling group also costs some bus bandwidth.
        let minimum = share::groups_min(&options.share);
        let per_lane = (kernels.groups_resident / 2 / lanes).min(GROUPS_PER_LANE_MAX).max(minimum);
        let groups = per_lane * lanes;
        if groups > kernels.groups_resident {
            let reason = format!(
                "{lanes} lanes need {} each, but the device runs only {} groups at once",
                if minimum == 1 { "one group".to_owned() } else { format!("{minimum} groups (one per share)") },
                kernels.groups_resident
            );
            return Err(Error::Unusable { id: context.id.clone(), reason });
        }
        let bin_packets = options.bin_packets.next_multiple_of(MAILBOX_SLOT_PACKETS);
        let slot = MailboxSlot::new(bin_packets);
        let mailbox_bytes = (size_of::<Mailbox>() + SLOTS * slot.bytes).next_multiple_of(128);
        let mailboxes = PinnedMemory::new(context, groups * mailbox_bytes)?;
        let scratch_bytes = slot.bytes + bin_packets * CHAIN_SCRATCH_PACKET_BYTES;
        let scratch = DeviceMemory::new(context, groups * scratch_bytes, "the scratch memory of persistent groups")?;
        scratch.fill(&vec![0; groups * scratch_bytes])?;
        let stream = Stream::new(context)?;
        let mut by_device = *arguments;
        let mut mailboxes_at = mailboxes.pointer;
        let (mut bytes, mut slots) = (mailbox_bytes as u64, SLOTS as u32);
        let mut packets = bin_packets as u32;
        let mut scratch_at = scratch.pointer;
        let mut values: [*mut c_void; 6] = [
            (&raw mut by_device).cast(),
            (&raw mut mailboxes_at).cast(),
            (&raw mut bytes).cast(),
            (&raw mut slots).cast(),
            (&raw mut packets).cast(),
            (&raw mut scratch_at).cast(),
        ];
        // SAFETY: the values match the parameters of `gw_persistent`. Their targets live until the
        // groups have ended.
        unsafe { kernels.persistent.launch(&stream, groups as u32, GROUP_LANES, &mut values) }
            .map_err(failed(&context.id, "start the persistent groups"))?;
        let started = Self {
            mailboxes,
            mailbox_bytes,
            slot,
            per_lane,
            groups,
            bin_packets,
            share: options.share.clone(),
            stream,
            _scratch: scratch,
            context: Arc::clone(context),
            watchdog: options.watchdog,
        };
        let waiting = Instant::now();
        while !(0..groups).all(|group| started.running(group) == MAILBOX_POLLING) {
            if waiting.elapsed() > options.watchdog.max(START_STOP_TIMEOUT_MIN) {
                let reason =
                    format!("not all of the {groups} persistent groups run at once: another program uses the device");
                let error = Error::Unusable { id: context.id.clone(), reason };
                Running::new(started).stop();
                return Err(error);
            }
            std::thread::yield_now();
        }
        Ok(started)
    }

    fn word(&self, group: usize, offset: usize) -> &AtomicU32 {
        // SAFETY: the word lies within the mailbox, and device and host access it only by atomic
        // operations.
        unsafe { AtomicU32::from_ptr(self.mailboxes.base().as_ptr().add(group * self.mailbox_bytes + offset).cast()) }
    }

    fn pair(&self, group: usize, offset: usize) -> &AtomicU64 {
        // SAFETY: the pair lies within the mailbox, at a multiple of 8. Device and host access it
        // only by 8-byte atomic operations.
        unsafe { AtomicU64::from_ptr(self.mailboxes.base().as_ptr().add(group * self.mailbox_bytes + offset).cast()) }
    }

    /// Returns `posted`, with `stop` in the upper half.
    fn counters(&self, group: usize) -> &AtomicU64 {
        self.pair(group, offset_of!(Mailbox, posted))
    }

    fn extent(&self, group: usize) -> &AtomicU64 {
        self.pair(group, offset_of!(Mailbox, extent))
    }

    fn finished(&self, group: usize) -> &AtomicU32 {
        self.word(group, offset_of!(Mailbox, finished))
    }

    fn running(&self, group: usize) -> u32 {
        self.word(group, offset_of!(Mailbox, running)).load(Ordering::Acquire)
    }

    /// Returns slot `count` of a group's mailbox.
    ///
    /// # Safety
    /// The group must have finished the bin in the slot, or must not know of it. No other host
    /// thread may use the group.
    #[allow(clippy::mut_from_ref)]
    unsafe fn slot(&self, group: usize, count: u32) -> &mut [u8] {
        let offset = group * self.mailbox_bytes + size_of::<Mailbox>() + count as usize % SLOTS * self.slot.bytes;
        // SAFETY: the slot lies within the mailbox. The caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.mailboxes.base().as_ptr().add(offset), self.slot.bytes) }
    }

    /// Stops all groups and waits until they have ended. Returns `false` if they do not end.
    fn stop(&self) -> bool {
        for group in 0..self.groups {
            // No lane posts bins at this time.
            self.counters(group).fetch_or(STOP, Ordering::Release);
        }
        let waiting = Instant::now();
        while !(0..self.groups).all(|group| self.running(group) == MAILBOX_ENDED) {
            if waiting.elapsed() > self.watchdog.max(START_STOP_TIMEOUT_MIN) {
                return false;
            }
            std::thread::yield_now();
        }
        self.stream.synchronize().is_ok()
    }
}

/// `stop` in [`Groups::counters`].
const STOP: u64 = 1 << 32;

/// Minimum timeout for groups to start and to stop.
const START_STOP_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Maximum number of groups per lane. More groups were not faster.
const GROUPS_PER_LANE_MAX: usize = 64;

/// Running groups. They are leaked, with everything that they use, if they do not stop.
pub(super) struct Running(ManuallyDrop<Groups>);

impl Running {
    pub(super) fn new(groups: Groups) -> Self {
        Self(ManuallyDrop::new(groups))
    }

    /// Stops the groups. Returns `false` if they do not respond; nothing that they use may then be
    /// freed.
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

/// Lane in persistent mode. Chunks may finish out of order.
pub(super) struct PersistentLane {
    /// Chunks in flight, by number.
    in_flight: VecDeque<Flight>,
    /// Bins that wait for a mailbox slot.
    split: Split,
    groups: Range<usize>,
    /// Mailbox contents of each group.
    posted: Vec<Posted>,
    /// Number of the next chunk.
    next: u64,
    /// Number of chunks in flight whose bins are all finished.
    done: usize,
    times: Vec<BinTime>,
    last_progress: Instant,
    reported_lost: bool,
    /// Index among the lanes of the device.
    index: usize,
    device: ManuallyDrop<Arc<CudaDevice>>,
}

/// Bins in the mailbox of one group.
#[derive(Default)]
struct Posted {
    /// Number of the next slot.
    next: u32,
    /// Bins in the mailbox, oldest first.
    bins: VecDeque<Sent>,
    /// Estimated work in the mailbox, as packets times bytes.
    weight: u64,
    /// Number of bins that the group received, by program.
    received: Vec<u64>,
}

/// A bin in a mailbox.
struct Sent {
    chunk: u64,
    bin: usize,
    weight: u64,
    since: Instant,
}

/// A chunk on the device.
struct Flight {
    number: u64,
    chunk: Chunk,
    /// Number of unfinished bins.
    left: usize,
    times: Vec<BinTime>,
}

impl PersistentLane {
    /// Opens lane `index` of the device.
    pub(super) fn new(device: Arc<CudaDevice>, groups: &Groups, index: usize) -> Self {
        let range = index * groups.per_lane..(index + 1) * groups.per_lane;
        let posted = range.clone().map(|group| Posted {
            next: groups.counters(group).load(Ordering::Relaxed) as u32,
            received: vec![0; device.programs.len()],
            ..Posted::default()
        });
        Self {
            in_flight: VecDeque::new(),
            split: Split::new(range.len(), &groups.share),
            posted: posted.collect(),
            groups: range,
            next: 0,
            done: 0,
            times: Vec::new(),
            last_progress: Instant::now(),
            reported_lost: false,
            index,
            device: ManuallyDrop::new(device),
        }
    }

    /// Posts waiting bins, each to the group with the least work among those that serve its
    /// function.
    fn post(&mut self, groups: &Groups) {
        let Self { split, posted: all_posted, in_flight, groups: range, .. } = self;
        split.assign(|number, index, serving| {
            let free = serving.filter(|&group| all_posted[group].bins.len() < SLOTS);
            let own = free.min_by_key(|&group| all_posted[group].weight)?;
            let posted = &mut all_posted[own];
            let chunk = &in_flight[index_of(in_flight, number)].chunk;
            let bin = &chunk.bins[index];
            let packets = packets_of(bin);
            let group = range.start + own;
            // SAFETY: at least one slot is free, so the host owns the next one. The group belongs
            // to this lane.
            let slot = unsafe { groups.slot(group, posted.next) };
            put(slot, 0, 0, &[Bin { first: 0, ..*bin }]);
            put(slot, groups.slot.descriptors, 0, &chunk.descriptors[packets.clone()]);
            put(slot, groups.slot.parameters, 0, &chunk.parameters[packets.clone()]);
            posted.next = posted.next.wrapping_add(1);
            groups.extent(group).store(extent(&chunk.descriptors[packets], posted.next), Ordering::Relaxed);
            groups.counters(group).store(posted.next.into(), Ordering::Release);
            let weight = u64::from(bin.count) * u64::from(bin.length_bytes.max(64));
            posted.weight += weight;
            posted.bins.push_back(Sent { chunk: number, bin: index, weight, since: Instant::now() });
            posted.received[usize::from(bin.instance)] += 1;
            Some(own)
        });
    }

    /// Copies the results of finished bins into their chunks.
    fn collect(&mut self, groups: &Groups) {
        for (group, posted) in self.groups.clone().zip(&mut self.posted) {
            if posted.bins.is_empty() {
                continue;
            }
            let finished = groups.finished(group).load(Ordering::Acquire);
            // `number` is the slot of the oldest bin in the mailbox.
            while posted.next.wrapping_sub(finished) < posted.bins.len() as u32 {
                let number = posted.next.wrapping_sub(posted.bins.len() as u32);
                let Some(sent) = posted.bins.pop_front() else { break };
                posted.weight -= sent.weight;
                let index = index_of(&self.in_flight, sent.chunk);
                let Flight { chunk, left, times, .. } = &mut self.in_flight[index];
                let packets = packets_of(&chunk.bins[sent.bin]);
                // SAFETY: the group has finished the slot and belongs to this lane.
                let slot = unsafe { groups.slot(group, number) };
                get(slot, groups.slot.descriptors, 0, &mut chunk.descriptors[packets.clone()]);
                get(slot, groups.slot.outcomes, 0, &mut chunk.outcomes[packets.clone()]);
                if chunk.ran_chain {
                    get(slot, groups.slot.trails, 0, &mut chunk.trails[packets]);
                }
                *left -= 1;
                self.done += usize::from(*left == 0);
                self.last_progress = Instant::now();
                self.device.watch.record_progress();
                let elapsed = self.last_progress.duration_since(sent.since);
                times.push(BinTime { bin: sent.bin as u32, elapsed_ns: elapsed.as_nanos() as u64 });
                if let Some(next) = posted.bins.front_mut() {
                    next.since = self.last_progress;
                }
            }
        }
    }

    fn lose(&mut self) -> Error {
        self.reported_lost = true;
        self.split.clear();
        self.done = 0;
        self.device.watch.lost_with(self.in_flight.drain(..).map(|flight| flight.chunk).collect())
    }
}

impl Lane for PersistentLane {
    fn submit(&mut self, region: &mut Region, mut chunk: Chunk) -> Result<(), Box<Rejected>> {
        let device = Arc::clone(&self.device);
        let Some(groups) = &device.parts.groups else { unreachable!("a persistent lane's device has groups") };
        let fits = chunk.bins.iter().all(|bin| usize::from(bin.count) <= groups.bin_packets);
        let checked = device.check(region, &chunk).and_then(|()| match fits {
            true => Ok(()),
            false => Err(Error::Chunk { reason: format!("a bin has more than {} packets", groups.bin_packets) }),
        });
        if let Err(error) = checked {
            return Err(Box::new(Rejected { chunk, error }));
        }
        if self.in_flight.is_empty() {
            self.last_progress = Instant::now();
        }
        chunk.ran_chain = device.runs_chain;
        self.split.enqueue(self.next, &chunk.bins);
        // A chunk without bins is finished at once.
        self.done += usize::from(chunk.bins.is_empty());
        self.in_flight.push_back(Flight { number: self.next, left: chunk.bins.len(), chunk, times: Vec::new() });
        self.next += 1;
        self.post(groups);
        Ok(())
    }

    fn poll(&mut self, _region: &mut Region) -> Result<Option<Chunk>, Error> {
        if self.in_flight.is_empty() {
            // Each lane reports a lost device once.
            return if self.device.watch.lost().is_some() && !self.reported_lost { Err(self.lose()) } else { Ok(None) };
        }
        let device = Arc::clone(&self.device);
        let Some(groups) = &device.parts.groups else { unreachable!("a persistent lane's device has groups") };
        // A finished chunk is returned even if the device was lost in the meantime.
        self.collect(groups);
        if self.done == 0 {
            if device.watch.is_overdue(self.last_progress) {
                device.watch.lose_silent();
            }
            if device.watch.lost().is_some() {
                return Err(self.lose());
            }
            self.post(groups);
            return Ok(None);
        }
        if device.watch.lost().is_none() {
            self.post(groups);
        }
        let done = self.in_flight.iter().position(|flight| flight.left == 0);
        let Some(flight) = done.and_then(|index| self.in_flight.remove(index)) else { return Ok(None) };
        self.done -= 1;
        self.times = flight.times;
        Ok(Some(flight.chunk))
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn bins_by_group(&self) -> Vec<Vec<u64>> {
        self.posted.iter().map(|posted| posted.received.clone()).collect()
    }

    /// Times from the moment when a group could start a bin to the moment when the host saw it
    /// finished.
    fn bin_times(&self) -> &[BinTime] {
        &self.times
    }
}

impl Drop for PersistentLane {
    fn drop(&mut self) {
        // The buffers in flight have no owner after this, so the groups must finish with them.
        self.split.clear();
        let device = Arc::clone(&self.device);
        let busy = |lane: &Self| lane.posted.iter().any(|posted| !posted.bins.is_empty());
        while let Some(groups) = device.parts.groups.as_ref().filter(|_| busy(self)) {
            self.collect(groups);
            if device.watch.is_overdue(self.last_progress) {
                device.watch.lose_silent();
                break;
            }
            std::thread::yield_now();
        }
        // A lost device may continue to write, so everything that it uses is leaked.
        if device.watch.lost().is_none() {
            device.free_lanes().push(self.index);
            // SAFETY: `self.device` is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.device) };
        }
    }
}

/// Returns the index of chunk `number`, which must be in flight.
fn index_of(in_flight: &VecDeque<Flight>, number: u64) -> usize {
    in_flight.binary_search_by_key(&number, |flight| flight.number).expect("a chunk stays until all its bins are back")
}

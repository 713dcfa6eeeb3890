//! One worker's way to a CUDA device in persistent mode: mailboxes of the groups that are its own.
//!
//! # Ordering
//!
//! A mailbox lies in page-locked memory of the host. Each of its words has one writer. The protocol is Hummingbird's
//! (algorithms 1 and 2): one atomic a group and bin, not one a lane.
//!
//! * Host to group. The host writes buffers and a place of the mailbox, then stores `posted` with release. A lane of the
//!   group loads `posted` with acquire at system scope, and the other lanes follow behind the group's barrier. So all
//!   that the host wrote before is visible to all lanes. The x86 processor keeps its stores in order, and a release store
//!   keeps the compiler from moving them.
//! * A look of the group takes 16 bytes, `posted` with `stop` and the bin's extent, in one request: acquire loads of two
//!   words of 8 bytes, of which either may come before the other. The extent says of which place it is by the lowest bits of
//!   `posted`, and counts only if that is the place which the group takes; it is written anew for every place, before
//!   `posted`, so one of 65,536 places before cannot be seen any more by a group that has seen a place since. Where it
//!   counts the group brings buffers and place at once: the buffers are ordered by `posted` in any case.
//! * Group to host. All lanes write buffers, descriptors and outcomes to the host's memory; a barrier; then one lane
//!   stores `finished` with release at system scope. The barrier puts what the others wrote before that store, and
//!   release is cumulative: whoever sees the new number with acquire sees all of it. The host loads `finished` with
//!   acquire.
//! * Between the two the host touches neither the place nor the buffers: a place is filled anew only when the number of
//!   places that are posted and not seen as finished is below the ring's length.
//!
//! APUNet had to evict caches by reading through memory, because its APU's GPU could not be told to make writes visible
//! while a kernel runs; release and acquire at system scope are that telling.
//!
//! Counters run modulo 2^32; a ring is far shorter.

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

/// Places of a mailbox: bins that wait behind the one that the group works on.
const PLACES: usize = 4;

/// All groups with their mailboxes. Dropping stops them.
pub(super) struct Groups {
    boxes: PinnedMemory,
    box_bytes: usize,
    place: MailboxSlot,
    /// Groups of one lane.
    per_lane: usize,
    groups: usize,
    bin_packets: usize,
    /// See [`DeviceOptions::share`].
    share: Vec<u32>,
    stream: Stream,
    _desks: DeviceMemory,
    context: Arc<Context>,
    watchdog: Duration,
}

impl Groups {
    /// Starts the groups. Everything else is allocated by now: from here on the driver may wait for them to end.
    pub(super) fn start(
        context: &Arc<Context>,
        kernels: &Kernels,
        arguments: &DeviceArguments,
        options: &DeviceOptions,
    ) -> Result<Self, Error> {
        let lanes = options.lanes.max(1);
        // Launches beside them need room, too; and each group that polls costs the bus a little.
        let least = share::least(&options.share);
        let per_lane = (kernels.groups_resident / 2 / lanes).min(GROUPS_PER_LANE_MAX).max(least);
        let groups = per_lane * lanes;
        if groups > kernels.groups_resident {
            let reason = format!(
                "{lanes} lanes need {} each, and it runs {} at once",
                if least == 1 { "a group".to_owned() } else { format!("{least} groups, one for each share,") },
                kernels.groups_resident
            );
            return Err(Error::Unusable { id: context.id.clone(), reason });
        }
        let bin_packets = options.bin_packets.next_multiple_of(MAILBOX_SLOT_PACKETS);
        let place = MailboxSlot::new(bin_packets);
        let box_bytes = (size_of::<Mailbox>() + PLACES * place.bytes).next_multiple_of(128);
        let boxes = PinnedMemory::new(context, groups * box_bytes)?;
        let desk_bytes = place.bytes + bin_packets * CHAIN_SCRATCH_PACKET_BYTES;
        let scratch = DeviceMemory::new(context, groups * desk_bytes, "the scratch of persistent groups")?;
        scratch.fill(&vec![0; groups * desk_bytes])?;
        let stream = Stream::new(context)?;
        let mut by_device = *arguments;
        let mut boxes_at = boxes.pointer;
        let (mut bytes, mut places) = (box_bytes as u64, PLACES as u32);
        let mut packets = bin_packets as u32;
        let mut desks_at = scratch.pointer;
        let mut values: [*mut c_void; 6] = [
            (&raw mut by_device).cast(),
            (&raw mut boxes_at).cast(),
            (&raw mut bytes).cast(),
            (&raw mut places).cast(),
            (&raw mut packets).cast(),
            (&raw mut desks_at).cast(),
        ];
        // SAFETY: these are the parameters of `gw_persistent`; what they point to lives until the groups have ended.
        unsafe { kernels.persistent.launch(&stream, groups as u32, GROUP_LANES, &mut values) }
            .map_err(failed(&context.id, "start the persistent groups"))?;
        let started = Self {
            boxes,
            box_bytes,
            place,
            per_lane,
            groups,
            bin_packets,
            share: options.share.clone(),
            stream,
            _desks: scratch,
            context: Arc::clone(context),
            watchdog: options.watchdog,
        };
        let waiting = Instant::now();
        while !(0..groups).all(|group| started.running(group) == MAILBOX_POLLING) {
            if waiting.elapsed() > options.watchdog.max(PATIENCE_MIN) {
                let reason =
                    format!("not all of {groups} persistent groups run at once: something else uses the device");
                let error = Error::Unusable { id: context.id.clone(), reason };
                Running::new(started).stop();
                return Err(error);
            }
            std::thread::yield_now();
        }
        Ok(started)
    }

    fn word(&self, group: usize, offset: usize) -> &AtomicU32 {
        // SAFETY: within the mailbox; the device reaches the word by atomics only, and so does the host.
        unsafe { AtomicU32::from_ptr(self.boxes.base().as_ptr().add(group * self.box_bytes + offset).cast()) }
    }

    fn pair(&self, group: usize, offset: usize) -> &AtomicU64 {
        // SAFETY: within the mailbox, at a multiple of 8; the device and the host reach it by atomics of 8 bytes only.
        unsafe { AtomicU64::from_ptr(self.boxes.base().as_ptr().add(group * self.box_bytes + offset).cast()) }
    }

    /// `posted`, and `stop` in the upper half.
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

    /// MailboxSlot number `count` of a group's mailbox.
    ///
    /// # Safety
    /// The group has finished what was in the place, or was never told of it; the caller is the group's only host.
    #[allow(clippy::mut_from_ref)]
    unsafe fn place(&self, group: usize, count: u32) -> &mut [u8] {
        let at = group * self.box_bytes + size_of::<Mailbox>() + count as usize % PLACES * self.place.bytes;
        // SAFETY: within the mailbox, and the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.boxes.base().as_ptr().add(at), self.place.bytes) }
    }

    /// Tells all groups to end, and waits until they have. False: they do not.
    fn stop(&self) -> bool {
        for group in 0..self.groups {
            // Nobody posts any more.
            self.counters(group).fetch_or(STOP, Ordering::Release);
        }
        let waiting = Instant::now();
        while !(0..self.groups).all(|group| self.running(group) == MAILBOX_ENDED) {
            if waiting.elapsed() > self.watchdog.max(PATIENCE_MIN) {
                return false;
            }
            std::thread::yield_now();
        }
        self.stream.synchronize().is_ok()
    }
}

/// Of [`Groups::counters`]: the group is to end.
const STOP: u64 = 1 << 32;

/// Groups get so long at least to begin, and to end.
const PATIENCE_MIN: Duration = Duration::from_secs(1);

/// More did not make anything faster.
const GROUPS_PER_LANE_MAX: usize = 64;

/// The groups of a device, which outlive everything when they do not stop.
pub(super) struct Running(ManuallyDrop<Groups>);

impl Running {
    pub(super) fn new(groups: Groups) -> Self {
        Self(ManuallyDrop::new(groups))
    }

    /// Ends the groups. False: they do not answer, and nothing that they use may be given back.
    pub(super) fn stop(mut self) -> bool {
        let stopped = self.0.context.bind().is_ok() && self.0.stop();
        if stopped {
            // SAFETY: not used after this.
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

/// See the module. Chunks come back when they are done, later ones before earlier ones where that is so.
pub(super) struct PersistentLane {
    /// By number.
    in_flight: VecDeque<Flight>,
    /// Bins that have no place yet, by the groups that serve them.
    split: Split,
    groups: Range<usize>,
    /// What each of them has in its mailbox, oldest first.
    posted: Vec<Posted>,
    /// Number of the next chunk.
    next: u64,
    /// Chunks in flight whose bins are all back.
    done: usize,
    times: Vec<BinTime>,
    last_heard: Instant,
    said_lost: bool,
    /// Its number among the device's lanes.
    index: usize,
    device: ManuallyDrop<Arc<CudaDevice>>,
}

/// What one group has to do.
#[derive(Default)]
struct Posted {
    /// Number of the next place.
    next: u32,
    bins: VecDeque<Sent>,
    /// Work before it, in packets times bytes.
    weight: u64,
    /// Bins that the group was given, by program.
    given: Vec<u64>,
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
    /// Bins that are not back.
    left: usize,
    times: Vec<BinTime>,
}

impl PersistentLane {
    /// Lane number `index` of the device.
    pub(super) fn new(device: Arc<CudaDevice>, groups: &Groups, index: usize) -> Self {
        let range = index * groups.per_lane..(index + 1) * groups.per_lane;
        let posted = range.clone().map(|group| Posted {
            next: groups.counters(group).load(Ordering::Relaxed) as u32,
            given: vec![0; device.programs.len()],
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
            last_heard: Instant::now(),
            said_lost: false,
            index,
            device: ManuallyDrop::new(device),
        }
    }

    /// Fills mailboxes, each bin into that of the group with the least to do of those that serve its function.
    fn post(&mut self, groups: &Groups) {
        let Self { split, posted: mine, in_flight, groups: range, .. } = self;
        split.give(|number, index, serving| {
            let free = serving.filter(|&group| mine[group].bins.len() < PLACES);
            let own = free.min_by_key(|&group| mine[group].weight)?;
            let posted = &mut mine[own];
            let chunk = &in_flight[place_of(in_flight, number)].chunk;
            let bin = &chunk.bins[index];
            let packets = packets_of(bin);
            let group = range.start + own;
            // SAFETY: fewer than all places are taken, so this one is the host's; the group is this lane's.
            let place = unsafe { groups.place(group, posted.next) };
            put(place, 0, 0, &[Bin { first: 0, ..*bin }]);
            put(place, groups.place.descriptors, 0, &chunk.descriptors[packets.clone()]);
            put(place, groups.place.parameters, 0, &chunk.parameters[packets.clone()]);
            posted.next = posted.next.wrapping_add(1);
            groups.extent(group).store(extent(&chunk.descriptors[packets], posted.next), Ordering::Relaxed);
            groups.counters(group).store(posted.next.into(), Ordering::Release);
            let weight = u64::from(bin.count) * u64::from(bin.length_bytes.max(64));
            posted.weight += weight;
            posted.bins.push_back(Sent { chunk: number, bin: index, weight, since: Instant::now() });
            posted.given[usize::from(bin.instance)] += 1;
            Some(own)
        });
    }

    /// Takes back what groups have finished.
    fn collect(&mut self, groups: &Groups) {
        for (group, posted) in self.groups.clone().zip(&mut self.posted) {
            if posted.bins.is_empty() {
                continue;
            }
            let finished = groups.finished(group).load(Ordering::Acquire);
            // The oldest that is not taken back has this number.
            while posted.next.wrapping_sub(finished) < posted.bins.len() as u32 {
                let number = posted.next.wrapping_sub(posted.bins.len() as u32);
                let Some(sent) = posted.bins.pop_front() else { break };
                posted.weight -= sent.weight;
                let at = place_of(&self.in_flight, sent.chunk);
                let Flight { chunk, left, times, .. } = &mut self.in_flight[at];
                let packets = packets_of(&chunk.bins[sent.bin]);
                // SAFETY: finished, and this lane's.
                let place = unsafe { groups.place(group, number) };
                get(place, groups.place.descriptors, 0, &mut chunk.descriptors[packets.clone()]);
                get(place, groups.place.outcomes, 0, &mut chunk.outcomes[packets.clone()]);
                if chunk.ran_chain {
                    get(place, groups.place.trails, 0, &mut chunk.trails[packets]);
                }
                *left -= 1;
                self.done += usize::from(*left == 0);
                self.last_heard = Instant::now();
                self.device.watch.heard();
                let elapsed = self.last_heard.duration_since(sent.since);
                times.push(BinTime { bin: sent.bin as u32, elapsed_ns: elapsed.as_nanos() as u64 });
                if let Some(next) = posted.bins.front_mut() {
                    next.since = self.last_heard;
                }
            }
        }
    }

    fn lose(&mut self) -> Error {
        self.said_lost = true;
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
            self.last_heard = Instant::now();
        }
        chunk.ran_chain = device.runs_chain;
        self.split.wait(self.next, &chunk.bins);
        // One without bins is done.
        self.done += usize::from(chunk.bins.is_empty());
        self.in_flight.push_back(Flight { number: self.next, left: chunk.bins.len(), chunk, times: Vec::new() });
        self.next += 1;
        self.post(groups);
        Ok(())
    }

    fn poll(&mut self, _region: &mut Region) -> Result<Option<Chunk>, Error> {
        if self.in_flight.is_empty() {
            // Each lane says once that the device is lost.
            return if self.device.watch.lost().is_some() && !self.said_lost { Err(self.lose()) } else { Ok(None) };
        }
        let device = Arc::clone(&self.device);
        let Some(groups) = &device.parts.groups else { unreachable!("a persistent lane's device has groups") };
        // What is done is done, also when the device has been lost since.
        self.collect(groups);
        if self.done == 0 {
            if device.watch.is_overdue(self.last_heard) {
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
        let Some(flight) = done.and_then(|at| self.in_flight.remove(at)) else { return Ok(None) };
        self.done -= 1;
        self.times = flight.times;
        Ok(Some(flight.chunk))
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn bins_by_group(&self) -> Vec<Vec<u64>> {
        self.posted.iter().map(|posted| posted.given.clone()).collect()
    }

    /// From the moment when a group could begin with a bin to that when the host saw it finished.
    fn bin_times(&self) -> &[BinTime] {
        &self.times
    }
}

impl Drop for PersistentLane {
    fn drop(&mut self) {
        // Nobody holds the buffers of what is in flight any more: the groups must be done with them.
        self.split.clear();
        let device = Arc::clone(&self.device);
        let busy = |lane: &Self| lane.posted.iter().any(|posted| !posted.bins.is_empty());
        while let Some(groups) = device.parts.groups.as_ref().filter(|_| busy(self)) {
            self.collect(groups);
            if device.watch.is_overdue(self.last_heard) {
                device.watch.lose_silent();
                break;
            }
            std::thread::yield_now();
        }
        // A device that is lost may go on writing: what it uses is never given back.
        if device.watch.lost().is_none() {
            device.free_lanes().push(self.index);
            // SAFETY: not used after this.
            unsafe { ManuallyDrop::drop(&mut self.device) };
        }
    }
}

/// Where the chunk of this number is, which is in flight.
fn place_of(in_flight: &VecDeque<Flight>, number: u64) -> usize {
    in_flight.binary_search_by_key(&number, |flight| flight.number).expect("a chunk stays until all its bins are back")
}

//! One worker's connection to an OpenCL device in persistent mode: the mailboxes of its groups.
//!
//! This is the CPUSyncer of Hummingbird. Its GPUSyncer is `gw_persistent`
//! (`kernels/dialect/loops_opencl.h`). A worker and its groups communicate without driver calls and
//! locks.
//!
//! # Ordering
//!
//! ```text
//! mailbox    | posted, stop | finished, running | slot 0 | slot 1 | ...
//! writer       lane           group               lane, then group
//! ```
//!
//! The parts of a mailbox are at least 64 or 128 bytes apart. The lane writes a slot until `posted`
//! counts it. The group writes it until `finished` counts it.
//!
//! 1. The worker has written the buffers. The lane writes bin, descriptors and parameters to a
//!    slot. Then it stores `posted` (release).
//! 2. One work-item of the group loads `posted` (acquire, in the scope of host and devices). The
//!    load reads the value of the store, so it synchronizes with it: everything written in step 1
//!    happens before the next operations of this work-item. The following barrier extends this to
//!    the other work-items.
//! 3. The group writes buffers, descriptors and outcomes. A barrier orders these writes before the
//!    next operation of the first work-item: the store of `finished` (release, same scope). There
//!    is one store per bin, not one per packet.
//! 4. The lane loads `finished` (acquire) and reads the results of step 3, by the same argument.
//!
//! Between steps 1 and 4, only the group accesses slot and buffers; at other times, only the lane
//! does. Host and device share only the four counters, which are atomic. Counters wrap, but their
//! difference never exceeds the number of slots. `stop` is stored after the last `posted`. A group
//! that sees `stop` and no new slot has no work left.
//!
//! APUNet evicts cache lines by additional reads, because its GPU had no other way to make writes
//! visible while a kernel runs. Release and acquire in the scope of host and devices express this
//! need in the memory model. The device meets it with the instructions that it requires, or with
//! none if its caches are coherent. Devices without these operations
//! ([`Found::lacks`](crate::Found::lacks)) have no persistent groups.
//!
//! The chain was written before the kernel was launched and does not change. Parts of tables do
//! change: they are written before any bin that needs them is posted
//! ([`crate::Device::update_image`]).

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use godwit_abi::{Bin, MailboxSlot};
use godwit_packet::Region;
use godwit_sched::Chunk;

use super::OpenClDevice;
use super::groups::{FINISHED, MailboxAt, POSTED, SLOTS};
use super::slot::{bytes_of, bytes_of_mut};
use crate::check::packets_of;
use crate::share::Split;
use crate::{BinTime, Error, Lane, Rejected};

/// Number of polls without results before the worker yields its core, which the group may need.
/// With two workers and two groups on two cores, values from 1 to 64 are equally fast (test
/// `no_stale_data_is_read`).
const POLLS_BEFORE_YIELD: u32 = 16;
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Lane in persistent mode. Each bin goes to the group with the least work among those that serve
/// its function. Bins without a free slot are posted by a later [`Lane::poll`]. Chunks may finish
/// out of order.
///
/// Dropping a lane waits until its posted bins are finished, or until the watchdog declares the
/// device lost.
pub(super) struct PersistentLane {
    device: ManuallyDrop<Arc<OpenClDevice>>,
    number: usize,
    groups: Vec<GroupMailbox>,
    split: Split,
    /// Chunks in flight, by number.
    in_flight: VecDeque<Flight>,
    /// Number of the next chunk.
    next: u64,
    /// Number of chunks in flight whose bins are all finished.
    done: usize,
    times: Vec<BinTime>,
    /// Time when a group last finished a bin, or received one while all mailboxes were empty.
    since: Instant,
    idle_polls: u32,
    reported_lost: bool,
}

/// The mailbox of one group of the lane.
struct GroupMailbox {
    mailbox: MailboxAt,
    posted: u32,
    finished: u32,
    /// Bins in the mailbox, oldest first.
    bins: VecDeque<Posted>,
    /// Sum of the weights of these bins.
    weight: u64,
    /// Time when the group last finished a bin, or received one while its mailbox was empty.
    since: Instant,
    /// Number of bins that the group received, by program.
    received: Vec<u64>,
}

/// A bin in a mailbox slot.
#[derive(Clone, Copy)]
struct Posted {
    /// Number of the chunk.
    chunk: u64,
    bin: usize,
    weight: u64,
}

struct Flight {
    number: u64,
    chunk: Chunk,
    /// Number of finished bins.
    finished: usize,
    times: Vec<BinTime>,
}

impl Flight {
    fn is_done(&self) -> bool {
        self.finished == self.chunk.bins.len()
    }
}

impl PersistentLane {
    pub(super) fn new(device: Arc<OpenClDevice>) -> Result<Self, Error> {
        let id = &device.found.capabilities.id;
        let Some(groups) = &device.groups else { unreachable!("the device is in persistent mode") };
        let (number, range) = groups.take_lane(&device.watch, id)?;
        let now = Instant::now();
        let programs = device.programs.len();
        let mailboxes = range.map(|group| {
            let mailbox = groups.mailbox(group);
            // The previous lane has finished all of its bins.
            let posted = mailbox.word(POSTED).load(Ordering::Relaxed);
            GroupMailbox {
                mailbox,
                posted,
                finished: posted,
                bins: VecDeque::new(),
                weight: 0,
                since: now,
                received: vec![0; programs],
            }
        });
        let mailboxes: Vec<GroupMailbox> = mailboxes.collect();
        let split = Split::new(mailboxes.len(), &groups.share);
        Ok(Self {
            device: ManuallyDrop::new(device),
            number,
            groups: mailboxes,
            split,
            in_flight: VecDeque::new(),
            next: 0,
            done: 0,
            times: Vec::new(),
            since: now,
            idle_polls: 0,
            reported_lost: false,
        })
    }

    fn bin_packets(&self) -> usize {
        self.device.groups.as_ref().map_or(0, |groups| groups.bin_packets)
    }

    fn check(&self, region: &mut Region, chunk: &Chunk) -> Result<(), Error> {
        self.device.watch.check_alive()?;
        self.device.check(region, chunk)?;
        let bin_packets = self.bin_packets();
        match chunk.bins.iter().find(|bin| usize::from(bin.count) > bin_packets) {
            Some(bin) => Err(Error::Chunk { reason: format!("{bin:?} exceeds the limit of {bin_packets} packets") }),
            None => Ok(()),
        }
    }

    /// Posts waiting bins while there are free slots, those of the oldest chunk first in each
    /// queue.
    fn post(&mut self) {
        let is_idle = self.groups.iter().all(|group| group.bins.is_empty());
        let slot = MailboxSlot::new(self.bin_packets());
        let Self { split, groups, in_flight, .. } = self;
        split.assign(|number, index, serving| {
            let free = serving.filter(|&group| groups[group].bins.len() < SLOTS as usize);
            let selected = free.min_by_key(|&group| groups[group].weight)?;
            let group = &mut groups[selected];
            let chunk = &in_flight[index_of(in_flight, number)].chunk;
            let bin = &chunk.bins[index];
            let weight = weight(bin);
            group.write(slot, chunk, bin);
            group.bins.push_back(Posted { chunk: number, bin: index, weight });
            group.weight += weight;
            group.received[usize::from(bin.instance)] += 1;
            Some(selected)
        });
        if is_idle {
            self.since = Instant::now();
        }
    }

    /// Copies the results of finished bins into their chunks. Returns whether there were any.
    fn collect(&mut self) -> bool {
        let slot = MailboxSlot::new(self.bin_packets());
        let mut any = false;
        for group in &mut self.groups {
            let finished = group.mailbox.word(FINISHED).load(Ordering::Acquire);
            let count = finished.wrapping_sub(group.finished) as usize;
            if count == 0 {
                continue;
            }
            any = true;
            assert!(count <= group.bins.len(), "a group finished {count} bins of {}", group.bins.len());
            let now = Instant::now();
            let elapsed_ns = now.duration_since(group.since).as_nanos();
            group.since = now;
            let total = group.bins.iter().take(count).map(|posted| u128::from(posted.weight)).sum::<u128>().max(1);
            for posted in group.bins.drain(..count) {
                // The chunk is in flight until all of its bins are finished.
                let index = index_of(&self.in_flight, posted.chunk);
                let flight = &mut self.in_flight[index];
                // SAFETY: the group has finished the slot, as seen above. There is no other
                // reference.
                let bytes = unsafe { group.mailbox.slot(group.finished) };
                group.finished = group.finished.wrapping_add(1);
                group.weight -= posted.weight;
                let bin = flight.chunk.bins[posted.bin];
                let packets = packets_of(&bin);
                let descriptors = bytes_of_mut(&mut flight.chunk.descriptors[packets.clone()]);
                descriptors.copy_from_slice(&bytes[slot.descriptors..][..descriptors.len()]);
                let outcomes = bytes_of_mut(&mut flight.chunk.outcomes[packets.clone()]);
                outcomes.copy_from_slice(&bytes[slot.outcomes..][..outcomes.len()]);
                if flight.chunk.ran_chain {
                    let trails = bytes_of_mut(&mut flight.chunk.trails[packets]);
                    trails.copy_from_slice(&bytes[slot.trails..][..trails.len()]);
                }
                flight.finished += 1;
                self.done += usize::from(flight.is_done());
                // The result fits: no bin takes more than the whole time.
                let elapsed_ns = (elapsed_ns * u128::from(posted.weight) / total) as u64;
                flight.times.push(BinTime { bin: posted.bin as u32, elapsed_ns });
            }
        }
        any
    }

    /// Returns the oldest finished chunk, if any.
    fn take_done(&mut self) -> Option<Chunk> {
        if self.done == 0 {
            return None;
        }
        let index = self.in_flight.iter().position(Flight::is_done)?;
        let flight = self.in_flight.remove(index)?;
        self.done -= 1;
        self.times = flight.times;
        self.times.sort_unstable_by_key(|time| time.bin);
        Some(flight.chunk)
    }

    /// Returns the error for a lost device, with all chunks in flight.
    fn lose(&mut self) -> Error {
        self.reported_lost = true;
        self.groups.iter_mut().for_each(|group| group.bins.clear());
        self.split.clear();
        self.done = 0;
        let chunks = self.in_flight.drain(..).map(|flight| flight.chunk).collect();
        self.device.watch.lost_with(chunks)
    }

    /// Returns whether the device is lost. Declares it lost if posted bins are overdue.
    fn is_lost(&self) -> bool {
        let watch = &self.device.watch;
        if self.groups.iter().any(|group| !group.bins.is_empty()) && watch.is_overdue(self.since) {
            watch.lose_silent();
        }
        watch.lost().is_some()
    }
}

impl GroupMailbox {
    /// Writes a bin of a checked chunk to the next slot, and posts it.
    fn write(&mut self, slot: MailboxSlot, chunk: &Chunk, bin: &Bin) {
        if self.bins.is_empty() {
            self.since = Instant::now();
        }
        // SAFETY: at least one slot is free: the group never owned the next slot, or `collect` has
        // seen its completion. There is no other reference.
        let bytes = unsafe { self.mailbox.slot(self.posted) };
        let packets = packets_of(bin);
        // The packets of a bin start at index 0 of its slot.
        bytes[..size_of::<Bin>()].copy_from_slice(bytes_of(&[Bin { first: 0, ..*bin }]));
        let descriptors = bytes_of(&chunk.descriptors[packets.clone()]);
        bytes[slot.descriptors..][..descriptors.len()].copy_from_slice(descriptors);
        let parameters = bytes_of(&chunk.parameters[packets]);
        bytes[slot.parameters..][..parameters.len()].copy_from_slice(parameters);
        self.posted = self.posted.wrapping_add(1);
        self.mailbox.word(POSTED).store(self.posted, Ordering::Release);
    }
}

impl Lane for PersistentLane {
    fn submit(&mut self, region: &mut Region, mut chunk: Chunk) -> Result<(), Box<Rejected>> {
        chunk.ran_chain = self.device.runs_chain;
        if let Err(error) = self.check(region, &chunk) {
            return Err(Box::new(Rejected { chunk, error }));
        }
        let times = Vec::with_capacity(chunk.bins.len());
        self.split.enqueue(self.next, &chunk.bins);
        let flight = Flight { number: self.next, chunk, finished: 0, times };
        // A chunk without bins is finished at once.
        self.done += usize::from(flight.is_done());
        self.in_flight.push_back(flight);
        self.next += 1;
        self.post();
        Ok(())
    }

    fn poll(&mut self, _region: &mut Region) -> Result<Option<Chunk>, Error> {
        if !self.reported_lost && self.collect() {
            self.since = self.device.watch.record_progress();
            self.post();
        }
        if let Some(chunk) = self.take_done() {
            self.idle_polls = 0;
            return Ok(Some(chunk));
        }
        if self.is_lost() && !self.reported_lost {
            return Err(self.lose());
        }
        if !self.in_flight.is_empty() {
            self.idle_polls += 1;
            if self.idle_polls.is_multiple_of(POLLS_BEFORE_YIELD) {
                std::thread::yield_now();
            }
        }
        Ok(None)
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn bins_by_group(&self) -> Vec<Vec<u64>> {
        self.groups.iter().map(|group| group.received.clone()).collect()
    }

    /// Times from the moment when a group received a bin, or finished the previous one, to the
    /// moment when the lane saw it finished. Bins that finish between two polls divide the time by
    /// packets and bytes.
    fn bin_times(&self) -> &[BinTime] {
        &self.times
    }
}

impl Drop for PersistentLane {
    fn drop(&mut self) {
        while self.groups.iter().any(|group| !group.bins.is_empty()) && !self.is_lost() {
            if self.collect() {
                self.since = self.device.watch.record_progress();
            } else {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        // A lost device is leaked, with everything that its groups may access.
        if !self.is_lost() {
            if let Some(groups) = &self.device.groups {
                groups.return_lane(self.number);
            }
            // SAFETY: `self.device` is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.device) };
        }
    }
}

/// Returns the index of chunk `number`, which must be in flight.
fn index_of(in_flight: &VecDeque<Flight>, number: u64) -> usize {
    in_flight.binary_search_by_key(&number, |flight| flight.number).expect("a chunk stays until all its bins are back")
}

/// Returns the estimated work of a bin, in arbitrary units: packets times the longest frame, plus a
/// cost per packet.
fn weight(bin: &Bin) -> u64 {
    u64::from(bin.count) * (u64::from(bin.length_bytes) + 64) + 1
}

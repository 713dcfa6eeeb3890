//! One worker's way to the groups that stay on a device: the mailboxes of some of them, and nobody else's.
//!
//! This is Hummingbird's CPUSyncer; its GPUSyncer is `gw_persistent` (`kernels/dialect/loops_opencl.h`). No call of the
//! driver and no lock is between a worker and its groups.
//!
//! # Who writes what, and why nobody reads anything stale
//!
//! ```text
//! mailbox    | posted, stop | finished, running | place 0 | place 1 | ...     64 or 128 bytes apart at least
//! written by   lane            group              lane, until posted counts it; group, until finished counts it
//! ```
//!
//! 1. The lane writes bin, descriptors and parameters into a place, and the worker has written the buffers before. Then
//!    the lane stores `posted` (release).
//! 2. One work-item of the group loads `posted` (acquire, in the scope that holds host and device). It reads from the
//!    store, so the store synchronises with it: all that was written in 1 happens before whatever it does next. The
//!    barrier that follows makes it happen before what the other work-items do.
//! 3. The group writes buffers, descriptors and outcomes. A barrier orders all that before what its first work-item does
//!    next, which is the store of `finished` (release, same scope): one store a bin, not one a packet.
//! 4. The lane loads `finished` (acquire) and reads what was written in 3, by the same argument.
//!
//! Between 1 and 4 only the group reaches the place and the buffers, before and after only the lane: no byte is reached
//! from both sides at once but the four counters, which are atomics. Counters wrap; how far one is ahead of the other
//! never exceeds the places. `stop` is stored after the last `posted`, so a group that sees it and then nothing posted has
//! nothing left to do.
//!
//! APUNet evicts cache lines by reading others on purpose, for on its GPU there was no other way to have the host see
//! what was written while the kernel runs. Release and acquire at the scope of host and devices are the same demand in the
//! words of the memory model, made at the place where it is needed and met by whatever the device needs for it: an
//! instruction that writes the cache back, or nothing where caches are coherent. Where a device does not offer them
//! ([`Found::lacks`](crate::Found::lacks)) there are no groups.
//!
//! The chain was written before the kernel was launched and does not change; parts of tables do, and who changes them writes before
//! anything that refers to them is posted ([`crate::Device::update_image`]).

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use godwit_abi::{Bin, MailboxSlot};
use godwit_packet::Region;
use godwit_sched::Chunk;

use super::OpenClDevice;
use super::groups::{FINISHED, MailboxAt, PLACES, POSTED};
use super::slot::{bytes_of, bytes_of_mut};
use crate::check::packets_of;
use crate::share::Split;
use crate::{BinTime, Error, Lane, Rejected};

/// Polls that find nothing before the worker lets others have its core, one of which may be the group it waits for: two
/// workers and two groups on two cores (`nobody_ever_reads_anything_stale`) do as well with 1 as with 64.
const POLLS_BEFORE_YIELD: u32 = 16;
const LOOK_INTERVAL: Duration = Duration::from_micros(50);

/// See the module. Bins go to whichever group has least to do, of those of the lane that serve their function, longest
/// first within a chunk; what finds no place is posted from [`Lane::poll`]. Chunks come back when they are done, later ones before
/// earlier ones where that is so.
///
/// Dropping a lane waits for what is posted, or until the watchdog gives the device up.
pub(super) struct PersistentLane {
    device: ManuallyDrop<Arc<OpenClDevice>>,
    number: usize,
    boxes: Vec<Mine>,
    split: Split,
    /// By number.
    in_flight: VecDeque<Flight>,
    /// Number of the next chunk.
    next: u64,
    /// Chunks in flight whose bins are all back.
    done: usize,
    times: Vec<BinTime>,
    /// When a group was last seen to finish a bin, or was given one having had none.
    since: Instant,
    idle_polls: u32,
    said_lost: bool,
}

/// A mailbox of the lane's.
struct Mine {
    mailbox: MailboxAt,
    posted: u32,
    finished: u32,
    /// What is in its places, oldest first.
    bins: VecDeque<Posted>,
    /// Weight of what is in its places.
    waiting: u64,
    /// When the group was last seen to finish a bin, or was given one having had none.
    since: Instant,
    /// Bins that the group was given, by program.
    given: Vec<u64>,
}

/// A bin in a place.
#[derive(Clone, Copy)]
struct Posted {
    /// Number of its chunk.
    chunk: u64,
    bin: usize,
    weight: u64,
}

struct Flight {
    number: u64,
    chunk: Chunk,
    /// Bins that are finished.
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
        let (number, mine) = groups.take_lane(&device.watch, id)?;
        let now = Instant::now();
        let programs = device.programs.len();
        let boxes = mine.map(|group| {
            let mailbox = groups.mailbox(group);
            // The lane before this one left with nothing posted.
            let posted = mailbox.word(POSTED).load(Ordering::Relaxed);
            Mine {
                mailbox,
                posted,
                finished: posted,
                bins: VecDeque::new(),
                waiting: 0,
                since: now,
                given: vec![0; programs],
            }
        });
        let boxes: Vec<Mine> = boxes.collect();
        let split = Split::new(boxes.len(), &groups.share);
        Ok(Self {
            device: ManuallyDrop::new(device),
            number,
            boxes,
            split,
            in_flight: VecDeque::new(),
            next: 0,
            done: 0,
            times: Vec::new(),
            since: now,
            idle_polls: 0,
            said_lost: false,
        })
    }

    fn bin_packets(&self) -> usize {
        self.device.groups.as_ref().map_or(0, |groups| groups.bin_packets)
    }

    fn check(&self, region: &mut Region, chunk: &Chunk) -> Result<(), Error> {
        self.device.watch.demand_alive()?;
        self.device.check(region, chunk)?;
        let bin_packets = self.bin_packets();
        match chunk.bins.iter().find(|bin| usize::from(bin.count) > bin_packets) {
            Some(bin) => Err(Error::Chunk { reason: format!("{bin:?} is larger than the {bin_packets} announced") }),
            None => Ok(()),
        }
    }

    /// Posts as many bins as there are places for, those of the oldest chunk first among those that the same groups serve.
    fn post(&mut self) {
        let nothing_posted = self.boxes.iter().all(|mine| mine.bins.is_empty());
        let place = MailboxSlot::new(self.bin_packets());
        let Self { split, boxes, in_flight, .. } = self;
        split.give(|number, index, groups| {
            let free = groups.filter(|&group| boxes[group].bins.len() < PLACES as usize);
            let group = free.min_by_key(|&group| boxes[group].waiting)?;
            let mine = &mut boxes[group];
            let chunk = &in_flight[place_of(in_flight, number)].chunk;
            let bin = &chunk.bins[index];
            let weight = weight(bin);
            mine.write(place, chunk, bin);
            mine.bins.push_back(Posted { chunk: number, bin: index, weight });
            mine.waiting += weight;
            mine.given[usize::from(bin.instance)] += 1;
            Some(group)
        });
        if nothing_posted {
            self.since = Instant::now();
        }
    }

    /// Reads back what the groups have finished. Whether there was anything.
    fn collect(&mut self) -> bool {
        let place = MailboxSlot::new(self.bin_packets());
        let mut any = false;
        for mine in &mut self.boxes {
            let finished = mine.mailbox.word(FINISHED).load(Ordering::Acquire);
            let count = finished.wrapping_sub(mine.finished) as usize;
            if count == 0 {
                continue;
            }
            any = true;
            assert!(count <= mine.bins.len(), "a group finished {count} bins of {}", mine.bins.len());
            let now = Instant::now();
            let elapsed_ns = now.duration_since(mine.since).as_nanos();
            mine.since = now;
            let whole = mine.bins.iter().take(count).map(|posted| u128::from(posted.weight)).sum::<u128>().max(1);
            for posted in mine.bins.drain(..count) {
                // A chunk stays until all its bins are back.
                let at = place_of(&self.in_flight, posted.chunk);
                let flight = &mut self.in_flight[at];
                // SAFETY: that it is finished was seen above; there is no other reference.
                let bytes = unsafe { mine.mailbox.place(mine.finished) };
                mine.finished = mine.finished.wrapping_add(1);
                mine.waiting -= posted.weight;
                let bin = flight.chunk.bins[posted.bin];
                let packets = packets_of(&bin);
                let descriptors = bytes_of_mut(&mut flight.chunk.descriptors[packets.clone()]);
                descriptors.copy_from_slice(&bytes[place.descriptors..][..descriptors.len()]);
                let outcomes = bytes_of_mut(&mut flight.chunk.outcomes[packets.clone()]);
                outcomes.copy_from_slice(&bytes[place.outcomes..][..outcomes.len()]);
                if flight.chunk.ran_chain {
                    let trails = bytes_of_mut(&mut flight.chunk.trails[packets]);
                    trails.copy_from_slice(&bytes[place.trails..][..trails.len()]);
                }
                flight.finished += 1;
                self.done += usize::from(flight.is_done());
                // A share is at most the whole time.
                let elapsed_ns = (elapsed_ns * u128::from(posted.weight) / whole) as u64;
                flight.times.push(BinTime { bin: posted.bin as u32, elapsed_ns });
            }
        }
        any
    }

    /// The oldest chunk that is done, if there is one.
    fn take_done(&mut self) -> Option<Chunk> {
        if self.done == 0 {
            return None;
        }
        let at = self.in_flight.iter().position(Flight::is_done)?;
        let flight = self.in_flight.remove(at)?;
        self.done -= 1;
        self.times = flight.times;
        self.times.sort_unstable_by_key(|time| time.bin);
        Some(flight.chunk)
    }

    /// All chunks in flight, as the error that says why the device is lost.
    fn hand_back(&mut self) -> Error {
        self.said_lost = true;
        self.boxes.iter_mut().for_each(|mine| mine.bins.clear());
        self.split.clear();
        self.done = 0;
        let chunks = self.in_flight.drain(..).map(|flight| flight.chunk).collect();
        self.device.watch.lost_with(chunks)
    }

    /// Whether bins are posted and none of them has come back for too long, or the device is lost otherwise.
    fn is_lost(&self) -> bool {
        let watch = &self.device.watch;
        if self.boxes.iter().any(|mine| !mine.bins.is_empty()) && watch.is_overdue(self.since) {
            watch.lose_silent();
        }
        watch.lost().is_some()
    }
}

impl Mine {
    /// Fills the next place with a bin of a chunk that was checked, and tells the group.
    fn write(&mut self, place: MailboxSlot, chunk: &Chunk, bin: &Bin) {
        if self.bins.is_empty() {
            self.since = Instant::now();
        }
        // SAFETY: fewer bins are posted than there are places, so the group is done with this one or never had it, which
        // `collect` has seen; there is no other reference.
        let bytes = unsafe { self.mailbox.place(self.posted) };
        let packets = packets_of(bin);
        // In its place a bin begins with the first packet.
        bytes[..size_of::<Bin>()].copy_from_slice(bytes_of(&[Bin { first: 0, ..*bin }]));
        let descriptors = bytes_of(&chunk.descriptors[packets.clone()]);
        bytes[place.descriptors..][..descriptors.len()].copy_from_slice(descriptors);
        let parameters = bytes_of(&chunk.parameters[packets]);
        bytes[place.parameters..][..parameters.len()].copy_from_slice(parameters);
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
        self.split.wait(self.next, &chunk.bins);
        let flight = Flight { number: self.next, chunk, finished: 0, times };
        // One without bins is done.
        self.done += usize::from(flight.is_done());
        self.in_flight.push_back(flight);
        self.next += 1;
        self.post();
        Ok(())
    }

    fn poll(&mut self, _region: &mut Region) -> Result<Option<Chunk>, Error> {
        if !self.said_lost && self.collect() {
            self.since = self.device.watch.heard();
            self.post();
        }
        if let Some(chunk) = self.take_done() {
            self.idle_polls = 0;
            return Ok(Some(chunk));
        }
        if self.is_lost() && !self.said_lost {
            return Err(self.hand_back());
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
        self.boxes.iter().map(|mine| mine.given.clone()).collect()
    }

    /// From when a group was given a bin, or had finished the one before, to when this lane saw it finished. What was
    /// finished between two polls shares the time by packets and bytes.
    fn bin_times(&self) -> &[BinTime] {
        &self.times
    }
}

impl Drop for PersistentLane {
    fn drop(&mut self) {
        while self.boxes.iter().any(|mine| !mine.bins.is_empty()) && !self.is_lost() {
            if self.collect() {
                self.since = self.device.watch.heard();
            } else {
                std::thread::sleep(LOOK_INTERVAL);
            }
        }
        // A lost device is leaked, with all that its groups may still reach.
        if !self.is_lost() {
            if let Some(groups) = &self.device.groups {
                groups.give_lane_back(self.number);
            }
            // SAFETY: not used after this.
            unsafe { ManuallyDrop::drop(&mut self.device) };
        }
    }
}

/// Where the chunk of this number is, which is in flight.
fn place_of(in_flight: &VecDeque<Flight>, number: u64) -> usize {
    in_flight.binary_search_by_key(&number, |flight| flight.number).expect("a chunk stays until all its bins are back")
}

/// What a bin weighs in time, in arbitrary units: packets times the longest frame, and something for each packet.
fn weight(bin: &Bin) -> u64 {
    u64::from(bin.count) * (u64::from(bin.length_bytes) + 64) + 1
}

//! Connection of one worker to a device in persistent mode. In this mode, work-groups stay on the
//! device and take batches of packets from mailboxes.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_abi::Bin;
use godwit_packet::Region;
use godwit_sched::Chunk;

use super::memory::Mailboxes;
use super::split::Split;
use crate::device::{BinTime, Lane, Rejected};
use crate::error::Error;
use crate::watch::Watch;

/// Number of unsuccessful polls after which the worker yields its core, which a work-group may
/// need. With two workers and two work-groups on two cores, values from 1 to 64 are equally fast.
const POLLS_BEFORE_YIELD: u32 = 16;
/// Time between two polls while a dropped connection waits for its last batches.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// A device whose persistent work-groups process the batches of all workers.
pub(crate) trait GroupsDevice: Send + Sync {
    fn mailboxes(&self) -> &Mailboxes;

    fn watch(&self) -> &Watch;

    fn runs_chain(&self) -> bool;

    /// Returns whether work-groups may run on the same cores as workers.
    fn shares_cores(&self) -> bool;

    fn check(&self, region: &mut Region, chunk: &Chunk) -> Result<(), Error>;

    /// Releases the number of a closed connection. The connection must have no unfinished batches.
    fn return_lane(&self, lane: usize);
}

/// Connection of one worker to a device in persistent mode. Each batch of packets goes to the
/// work-group with the least work among those that serve the function of the batch. If no mailbox
/// has room, a later [`Lane::poll`] posts the batch. Submissions may finish out of order.
///
/// Dropping the connection waits until all posted batches are finished, or until the watchdog
/// declares the device lost.
pub(crate) struct PersistentLane {
    device: ManuallyDrop<Arc<dyn GroupsDevice>>,
    number: usize,
    groups: Vec<GroupState>,
    split: Split,
    /// Submissions on the device, in the order of their numbers.
    in_flight: VecDeque<Flight>,
    /// Number of the next submission.
    next: u64,
    /// Number of submissions in flight whose batches are all finished.
    done: usize,
    times: Vec<BinTime>,
    /// Time when a batch of this worker last finished, or when the worker's work-groups became busy
    /// again.
    since: Instant,
    idle_polls: u32,
    reported_lost: bool,
}

/// State of one persistent work-group of the connection.
struct GroupState {
    /// Number of the work-group.
    group: usize,
    posted: u32,
    finished: u32,
    /// Batches that the work-group has received and not finished, oldest first.
    bins: VecDeque<Posted>,
    /// Estimated work of all batches in `bins`.
    weight: u64,
    /// Time when the work-group last finished a batch or became busy again.
    since: Instant,
    /// Number of received batches per packet function.
    received: Vec<u64>,
}

/// A batch of packets that occupies a slot of a mailbox.
#[derive(Clone, Copy)]
struct Posted {
    /// Number of the submission.
    chunk: u64,
    bin: usize,
    weight: u64,
}

/// A submission on the device.
struct Flight {
    number: u64,
    chunk: Chunk,
    /// Number of finished batches.
    finished: usize,
    times: Vec<BinTime>,
}

impl Flight {
    fn is_done(&self) -> bool {
        self.finished == self.chunk.bins.len()
    }
}

impl PersistentLane {
    /// Opens the worker's connection number `number`, which uses the persistent work-groups
    /// `groups`. `programs` is the number of packet functions. `share` divides the work-groups
    /// between these functions ([`DeviceOptions::share`](crate::DeviceOptions::share)).
    pub(crate) fn new(
        device: Arc<dyn GroupsDevice>,
        number: usize,
        groups: Range<usize>,
        programs: usize,
        share: &[u32],
    ) -> Self {
        let now = Instant::now();
        let split = Split::new(groups.len(), share);
        let group = |group| {
            // The previous connection with this number has no unfinished batches.
            let posted = device.mailboxes().posted(group);
            let received = vec![0; programs];
            GroupState { group, posted, finished: posted, bins: VecDeque::new(), weight: 0, since: now, received }
        };
        let groups = groups.map(group).collect();
        Self {
            device: ManuallyDrop::new(device),
            number,
            groups,
            split,
            in_flight: VecDeque::new(),
            next: 0,
            done: 0,
            times: Vec::new(),
            since: now,
            idle_polls: 0,
            reported_lost: false,
        }
    }

    fn check(&self, region: &mut Region, chunk: &Chunk) -> Result<(), Error> {
        self.device.check(region, chunk)?;
        let limit = self.device.mailboxes().bin_packets_max();
        match chunk.bins.iter().find(|bin| usize::from(bin.count) > limit) {
            Some(bin) => Err(Error::Chunk { reason: format!("{bin:?} exceeds the limit of {limit} packets") }),
            None => Ok(()),
        }
    }

    /// Gives waiting batches to work-groups until their mailboxes are full. In each queue, the
    /// batches of the oldest submission come first.
    fn post(&mut self) {
        let Self { device, split, groups, in_flight, .. } = self;
        let mailboxes = device.mailboxes();
        let is_idle = groups.iter().all(|group| group.bins.is_empty());
        split.assign(|number, index, serving| {
            let free = serving.filter(|&group| groups[group].bins.len() < mailboxes.slots());
            let selected = free.min_by_key(|&group| groups[group].weight)?;
            let group = &mut groups[selected];
            let chunk = &in_flight[index_of(in_flight, number)].chunk;
            let bin = &chunk.bins[index];
            if group.bins.is_empty() {
                group.since = Instant::now();
            }
            // SAFETY: at least one slot is free: the group never owned the next slot, or `collect`
            // has acquired its completion. The group belongs to this lane.
            unsafe { mailboxes.post(group.group, group.posted, chunk, bin) };
            group.posted = group.posted.wrapping_add(1);
            let weight = weight(bin);
            group.bins.push_back(Posted { chunk: number, bin: index, weight });
            group.weight += weight;
            group.received[usize::from(bin.instance)] += 1;
            Some(selected)
        });
        if is_idle {
            self.since = Instant::now();
        }
    }

    /// Copies the results of finished batches from the mailboxes to their submissions. Returns
    /// whether any batch was finished.
    fn collect(&mut self) -> bool {
        let mailboxes = self.device.mailboxes();
        let mut any = false;
        for group in self.groups.iter_mut().filter(|group| !group.bins.is_empty()) {
            let count = mailboxes.finished(group.group).wrapping_sub(group.finished) as usize;
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
                // The submission is in flight until all of its batches are finished.
                let index = index_of(&self.in_flight, posted.chunk);
                let flight = &mut self.in_flight[index];
                // SAFETY: the group has finished the slot, as acquired above.
                unsafe { mailboxes.read(group.group, group.finished, &mut flight.chunk, posted.bin) };
                group.finished = group.finished.wrapping_add(1);
                group.weight -= posted.weight;
                flight.finished += 1;
                self.done += usize::from(flight.is_done());
                // `weight` is at most `total`, so the result is at most the elapsed time and fits
                // in 64 bits.
                let elapsed_ns = (elapsed_ns * u128::from(posted.weight) / total) as u64;
                flight.times.push(BinTime { bin: posted.bin as u32, elapsed_ns });
            }
        }
        any
    }

    /// Returns the oldest finished submission, if any.
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

    /// Returns the error for a lost device, with all submissions in flight.
    fn lose(&mut self) -> Error {
        self.reported_lost = true;
        self.groups.iter_mut().for_each(|group| group.bins.clear());
        self.split.clear();
        self.done = 0;
        let chunks = self.in_flight.drain(..).map(|flight| flight.chunk).collect();
        self.device.watch().lost_with(chunks)
    }

    /// Returns whether the device is lost. Declares the device lost if it has not finished posted
    /// batches in time.
    fn is_lost(&self) -> bool {
        let watch = self.device.watch();
        if self.groups.iter().any(|group| !group.bins.is_empty()) && watch.is_overdue(self.since) {
            watch.lose_silent();
        }
        watch.lost().is_some()
    }
}

impl Lane for PersistentLane {
    fn submit(&mut self, region: &mut Region, mut chunk: Chunk) -> Result<(), Box<Rejected>> {
        if let Err(error) = self.check(region, &chunk) {
            return Err(Box::new(Rejected { chunk, error }));
        }
        chunk.ran_chain = self.device.runs_chain();
        let times = Vec::with_capacity(chunk.bins.len());
        self.split.enqueue(self.next, &chunk.bins);
        let flight = Flight { number: self.next, chunk, finished: 0, times };
        // A submission without batches is finished at once.
        self.done += usize::from(flight.is_done());
        self.in_flight.push_back(flight);
        self.next += 1;
        self.post();
        Ok(())
    }

    fn poll(&mut self, _region: &mut Region) -> Result<Option<Chunk>, Error> {
        // A finished submission is returned to the caller even if the device was lost in the
        // meantime.
        if !self.reported_lost && self.collect() {
            self.since = self.device.watch().record_progress();
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
            if self.device.shares_cores() && self.idle_polls.is_multiple_of(POLLS_BEFORE_YIELD) {
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

    /// Returns the processing time of each batch of the last submission. The time begins when the
    /// work-group received the batch or finished the previous one. It ends when the worker notices
    /// that the batch is finished. If a work-group finishes several batches between two polls,
    /// their common time is divided in proportion to packets and bytes.
    fn bin_times(&self) -> &[BinTime] {
        &self.times
    }
}

impl Drop for PersistentLane {
    fn drop(&mut self) {
        while self.groups.iter().any(|group| !group.bins.is_empty()) && !self.is_lost() {
            if self.collect() {
                self.since = self.device.watch().record_progress();
            } else {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        // Memory that the work-groups of a lost device may access is never freed.
        if !self.is_lost() {
            self.device.return_lane(self.number);
            // SAFETY: `self.device` is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.device) };
        }
    }
}

fn index_of(in_flight: &VecDeque<Flight>, number: u64) -> usize {
    in_flight.binary_search_by_key(&number, |flight| flight.number).expect("a chunk stays until all its bins are back")
}

/// Returns the estimated work of a batch, in arbitrary units. The estimate is the number of packets
/// times the sum of the longest frame and a constant.
fn weight(bin: &Bin) -> u64 {
    u64::from(bin.count) * (u64::from(bin.length_bytes) + 64) + 1
}

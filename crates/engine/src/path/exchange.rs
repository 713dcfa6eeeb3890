//! Passes packets to the workers that own their state, and takes the packets of other workers.
//!
//! A NIC spreads flows over the receive queues. Functions such as `ipsec` keep one state for many
//! flows, and one worker owns each state. The worker that receives a packet computes its steering
//! key. It keeps its own packets, and puts the others into rings ([`godwit_packet::exchange`]).
//!
//! ```text
//! queue of worker 0 -> packets of worker 0 ---------------------------> order ring of worker 0
//!                   -> packets of worker 1 -> ring from 0 to 1 -> copy -> order ring of worker 1
//! ```
//! The packets of a flow arrive at one queue and pass one ring, so their order is kept.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use godwit_packet::{ANY_WORKER, Batch, ExchangeReceiver, ExchangeSender, Region, SteerKey, Steering, exchange};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::error::Error;
use crate::observe::counters::{Counts, DROPPED, DROPPED_EXCHANGE, EXCHANGED};
use crate::path::core::Core;

/// Number of packets in the rings of a worker to all others, if a ring is within its limits.
const RINGS_PACKETS: usize = 8192;
const RING_PACKETS_MIN: usize = 128;
const RING_PACKETS_MAX: usize = 1024;
/// Number of frames whose steering keys are computed together.
const BLOCK_PACKETS: usize = 64;
/// Number of loop iterations after which a worker updates rings without new packets. Each update
/// moves a cache line to another core.
const QUIET_ITERATIONS: u32 = 16;

/// Returns the number of packets in the ring from one worker to another.
pub(crate) fn ring_packets(workers: usize) -> usize {
    (RINGS_PACKETS / workers.max(2)).next_power_of_two().clamp(RING_PACKETS_MIN, RING_PACKETS_MAX)
}

/// Wakes a worker that sleeps.
struct Waker {
    is_asleep: AtomicBool,
    event: EventFd,
}

impl Waker {
    fn new() -> Result<Self, Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_value_and_flags(0, flags);
        let event = event.map_err(|error| Error::Setup(format!("cannot create an event for a worker: {error}")))?;
        Ok(Self { is_asleep: AtomicBool::new(false), event })
    }

    /// Wakes the worker if it sleeps. The caller has published packets before.
    fn wake(&self) {
        // Either this thread sees that the worker sleeps, or the worker sees the packets before it
        // sleeps.
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::Relaxed) {
            // A full counter also wakes the worker.
            let _ = self.event.write(1);
        }
    }
}

/// Rings of one worker to and from all other workers.
pub(crate) struct Exchange {
    worker: usize,
    steering: Arc<Steering>,
    /// Ring to each worker, or `None` for this worker.
    senders: Vec<Option<ExchangeSender>>,
    /// Rings from the other workers.
    receivers: Vec<ExchangeReceiver>,
    /// Index of the ring from which this worker takes packets first. It changes with each call, so
    /// that no ring has an advantage.
    first: usize,
    is_closed: bool,
    iterations: u32,
    /// Waker of each worker, or `None` if workers do not sleep.
    wakers: Option<Arc<[Waker]>>,
    buckets: Vec<u8>,
    arrivals_ns: Vec<u64>,
}

impl Exchange {
    /// Creates the rings between all workers. `sleeps` states whether idle workers sleep. Returns
    /// the rings of each worker.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub(crate) fn between(
        regions: &[Region],
        steering: &Arc<Steering>,
        packets: usize,
        sleeps: bool,
    ) -> Result<Vec<Self>, Error> {
        let workers = regions.len();
        let wakers = sleeps.then(|| (0..workers).map(|_| Waker::new()).collect::<Result<Arc<[_]>, _>>()).transpose()?;
        let mut exchanges: Vec<Self> = (0..workers)
            .map(|worker| Self {
                worker,
                steering: Arc::clone(steering),
                senders: Vec::new(),
                receivers: Vec::new(),
                first: 0,
                is_closed: false,
                iterations: 0,
                wakers: wakers.clone(),
                buckets: Vec::new(),
                arrivals_ns: Vec::new(),
            })
            .collect();
        for (from, region) in regions.iter().enumerate() {
            for to in 0..workers {
                let ring = (from != to).then(|| exchange(region, packets));
                let (sender, receiver) = ring.unzip();
                exchanges[from].senders.push(sender);
                exchanges[to].receivers.extend(receiver);
            }
        }
        Ok(exchanges)
    }

    /// Passes the packets of a burst that belong to other workers to these workers. The other
    /// packets remain in the batch. A packet is dropped if the ring to its worker is full.
    pub(crate) fn pass(&mut self, region: &mut Region, counts: &mut Counts, batch: &mut Batch, now_ns: u64) {
        let Some(key) = self.steering.key() else { return };
        let Self { buckets, senders, worker, .. } = self;
        buckets.clear();
        buckets.resize(batch.len(), ANY_WORKER);
        fill_buckets(key, region, batch, buckets);
        let mut kept = 0;
        let (mut exchanged, mut dropped) = (0, 0);
        for (packet, &bucket) in buckets.iter().enumerate() {
            let (descriptor, stamp) = (batch.descriptors[packet], batch.stamps[packet]);
            let owner = if bucket == ANY_WORKER { *worker } else { self.steering.worker_of(bucket.into()) };
            let Some(ring) = &mut senders[owner] else {
                batch.descriptors[kept] = descriptor;
                batch.stamps[kept] = stamp;
                kept += 1;
                continue;
            };
            if ring.put(region, &descriptor, stamp, now_ns) {
                exchanged += 1;
            } else {
                region.release(&descriptor);
                dropped += 1;
            }
        }
        batch.descriptors.truncate(kept);
        batch.stamps.truncate(kept);
        counts.add(EXCHANGED, exchanged);
        count_dropped(counts, dropped);
    }

    /// Returns the number of packets for which every ring has room.
    pub(crate) fn room(&self) -> usize {
        self.senders.iter().flatten().map(ExchangeSender::room).min().unwrap_or(usize::MAX)
    }

    /// Makes the packets visible to their workers, and frees the buffers of packets that the other
    /// workers have copied. `sequence_next` is a lower bound of the sequence numbers of packets
    /// that arrive later. `has_no_more` states that none arrive.
    pub(crate) fn publish(&mut self, region: &mut Region, counts: &mut Counts, sequence_next: u64, has_no_more: bool) {
        let closes = has_no_more && !self.is_closed;
        self.is_closed |= has_no_more;
        self.iterations = self.iterations.wrapping_add(1);
        let updates_all = self.is_closed || self.iterations.is_multiple_of(QUIET_ITERATIONS);
        let mut lost = 0;
        for (worker, ring) in self.senders.iter_mut().enumerate() {
            let Some(ring) = ring else { continue };
            if !updates_all && !ring.has_new() {
                continue;
            }
            let mut wakes = ring.publish(sequence_next);
            if closes {
                ring.close();
                wakes = true;
            }
            if let Some(wakers) = self.wakers.as_ref().filter(|_| wakes) {
                wakers[worker].wake();
            }
            if updates_all || ring.is_filling() {
                lost += ring.reclaim(region);
            }
        }
        count_dropped(counts, lost as u64);
    }

    /// Takes up to `packets_max` packets from other workers, and records their arrival.
    pub(crate) fn take(&mut self, core: &mut Core, batch: &mut Batch, packets_max: usize) {
        let Self { receivers, arrivals_ns, first, .. } = self;
        arrivals_ns.clear();
        let (later, earlier) = receivers.split_at_mut(*first);
        for ring in earlier.iter_mut().chain(later) {
            // A ring without new packets still updates its bound of sequence numbers.
            let room = packets_max.saturating_sub(batch.len());
            ring.take(&mut core.region, batch, arrivals_ns, room);
        }
        *first = (*first + 1) % receivers.len();
        core.order.arrive_at(&mut batch.descriptors, &batch.stamps, arrivals_ns);
    }

    /// Returns a lower bound of the sequence numbers of packets that [`take`](Self::take) returns
    /// later.
    pub(crate) fn sequence_next(&self) -> u64 {
        self.receivers.iter().map(ExchangeReceiver::sequence_next).min().unwrap_or(u64::MAX)
    }

    /// Returns whether no more packets come from other workers.
    pub(crate) fn has_ended(&self) -> bool {
        self.receivers.iter().all(ExchangeReceiver::has_ended)
    }

    /// Returns whether the other workers have taken all packets of this worker, and no more follow.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_closed && self.senders.iter().flatten().all(ExchangeSender::is_empty)
    }

    /// Announces that this worker sleeps. Returns the event that wakes it, or `None` if it must not
    /// sleep, because packets wait.
    pub(crate) fn begin_sleep(&self) -> Option<BorrowedFd<'_>> {
        let waker = &self.wakers.as_ref()?[self.worker];
        waker.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_needed = self.receivers.iter().any(|ring| ring.waiting() > 0);
        if is_needed {
            waker.is_asleep.store(false, Ordering::Relaxed);
            return None;
        }
        Some(waker.event.as_fd())
    }

    /// Ends the sleep that [`begin_sleep`](Self::begin_sleep) has announced.
    pub(crate) fn end_sleep(&self) {
        let Some(wakers) = &self.wakers else { return };
        let waker = &wakers[self.worker];
        if !waker.is_asleep.swap(false, Ordering::Relaxed) {
            // The event is not set yet if the other worker is just writing it. The next sleep then
            // ends at once.
            let _ = waker.event.read();
        }
    }
}

fn count_dropped(counts: &mut Counts, packets: u64) {
    if packets > 0 {
        counts.add(DROPPED, packets);
        counts.add(DROPPED_EXCHANGE, packets);
    }
}

fn fill_buckets(key: &dyn SteerKey, region: &Region, batch: &Batch, buckets: &mut [u8]) {
    for (packets, buckets) in batch.descriptors.chunks(BLOCK_PACKETS).zip(buckets.chunks_mut(BLOCK_PACKETS)) {
        let mut frames: [&[u8]; BLOCK_PACKETS] = [&[]; BLOCK_PACKETS];
        for (slot, frame) in frames.iter_mut().zip(region.frames(packets)) {
            *slot = frame;
        }
        key.buckets(&frames[..packets.len()], buckets);
    }
}

#[cfg(test)]
mod tests {
    use godwit_packet::{Arena, ArenaConfig, Stamp};
    use godwit_wire::Parsed;
    use nix::poll::{PollFd, PollFlags, poll};

    use super::*;
    use crate::observe::counters::WORKER_COUNTERS;
    use crate::path::testing::{Surroundings, TWO_FUNCTIONS};

    /// The first byte of a frame is its steering key. A frame with 0 belongs to any worker.
    struct FirstByte;

    impl SteerKey for FirstByte {
        fn steer_key(&self, frame: &[u8], _parsed: &Parsed, flow_hash: u32) -> u32 {
            if frame[0] == 0 { flow_hash } else { frame[0].into() }
        }
    }

    fn exchanges(ring_packets: usize, sleeps: bool) -> ([Exchange; 2], Region) {
        let mut regions = Arena::new(ArenaConfig { packets: 64, ..ArenaConfig::default() }, 2).unwrap().split();
        let steering = Arc::new(Steering::new(2, Some(Arc::new(FirstByte))));
        let exchanges = Exchange::between(&regions, &steering, ring_packets, sleeps).unwrap();
        (exchanges.try_into().ok().unwrap(), regions.remove(0))
    }

    /// Returns one packet for each key. The stamps are the positions of the keys.
    fn batch(region: &mut Region, keys: &[u8]) -> Batch {
        let mut batch = Batch::default();
        for (sequence, &key) in (0..).zip(keys) {
            let packet = region.allocate(60).unwrap();
            region.frame_mut(&packet).fill(key);
            batch.push(packet, Stamp { sequence, time_ns: 3 });
        }
        batch
    }

    fn sequences(batch: &Batch) -> Vec<u64> {
        batch.stamps.iter().map(|stamp| stamp.sequence).collect()
    }

    #[test]
    fn a_full_ring_drops_packets_with_its_own_reason() {
        let ([mut first, mut second], mut region) = exchanges(4, false);
        let mut counts = Counts::new(WORKER_COUNTERS.len());
        let mut packets = batch(&mut region, &[0, 1, 2, 3, 4, 5, 7, 9, 11, 0]);
        first.pass(&mut region, &mut counts, &mut packets, 5);
        // Odd keys belong to worker 1. The ring has room for four of them.
        assert_eq!(sequences(&packets), [0, 2, 4, 9]);
        let values = [EXCHANGED, DROPPED, DROPPED_EXCHANGE].map(|counter| counts.value(counter));
        assert_eq!((values, region.allocated(), first.room()), ([4, 2, 2], 8, 0));

        let mut core = Surroundings::new(TWO_FUNCTIONS).core;
        let mut taken = Batch::default();
        second.take(&mut core, &mut taken, 32);
        assert!(taken.is_empty(), "packets are visible before they are published");
        first.publish(&mut region, &mut counts, 10, false);
        second.take(&mut core, &mut taken, 32);
        assert_eq!((sequences(&taken), second.sequence_next()), (vec![1, 3, 5, 6], 10));
        for (packet, key) in taken.descriptors.iter().zip([1, 3, 5, 7]) {
            assert_eq!(core.region.frame(packet), [key; 60]);
            assert_eq!(core.order.stamp_and_arrival(packet).1, 5);
        }
        first.publish(&mut region, &mut counts, 10, true);
        second.publish(&mut core.region, &mut core.counts, 10, true);
        assert_eq!((region.allocated(), first.room()), (4, 4));
        assert!(first.is_settled() && second.has_ended() && first.has_ended());
    }

    #[test]
    fn packets_for_a_worker_that_failed_are_dropped() {
        let ([mut first, second], mut region) = exchanges(4, false);
        let mut counts = Counts::new(WORKER_COUNTERS.len());
        let mut packets = batch(&mut region, &[1, 1, 1]);
        first.pass(&mut region, &mut counts, &mut packets, 0);
        drop(second);
        first.publish(&mut region, &mut counts, 3, true);
        assert_eq!((counts.value(DROPPED_EXCHANGE), region.allocated()), (3, 0));
        assert!(first.is_settled() && first.has_ended());
    }

    #[test]
    fn a_packet_wakes_its_worker() {
        let ([mut first, mut second], mut region) = exchanges(4, true);
        let mut counts = Counts::new(WORKER_COUNTERS.len());
        let is_set = |event: BorrowedFd<'_>| poll(&mut [PollFd::new(event, PollFlags::POLLIN)], 0_u8).unwrap() == 1;
        assert!(!is_set(second.begin_sleep().unwrap()));
        let mut packets = batch(&mut region, &[1]);
        first.pass(&mut region, &mut counts, &mut packets, 0);
        first.publish(&mut region, &mut counts, 1, false);
        assert!(is_set(second.wakers.as_ref().unwrap()[1].event.as_fd()));
        second.end_sleep();
        assert!(second.begin_sleep().is_none(), "a packet waits");
        let mut core = Surroundings::new(TWO_FUNCTIONS).core;
        second.take(&mut core, &mut Batch::default(), 32);
        assert!(!is_set(second.begin_sleep().unwrap()), "the first event has ended");
        first.publish(&mut region, &mut counts, 1, true);
        assert!(is_set(second.wakers.as_ref().unwrap()[1].event.as_fd()), "a closed ring wakes its worker");
    }
}

//! Rings through which a worker passes packets to the worker that owns their state.
//!
//! ```text
//! sender's Region --put--> slot of the ring --take--> copy in the receiver's Region
//! sender's Region <------------reclaim------------- slot, after the copy
//! ```
//! One ring connects one worker to one other worker. Each ring has one writer and one reader, and
//! no locks. The receiver copies the frame into its own region, because every later access to the
//! packet checks that region. The sender's buffer is lent from [`ExchangeSender::put`] until
//! [`ExchangeSender::reclaim`], so it returns to its own region without a second ring.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::{Batch, Descriptor, Memory, Region, Stamp};

/// Number of packets by which the receiver prefetches frames before it copies them.
const FETCHED_AHEAD_PACKETS: usize = 4;
/// Size of a cache line, in bytes.
const LINE_BYTES: usize = 64;

/// A packet in a ring.
#[derive(Clone, Copy)]
struct Exchanged {
    descriptor: Descriptor,
    stamp: Stamp,
    arrival_ns: u64,
}

/// Value in its own pair of cache lines, which the processor prefetches together.
#[derive(Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// Values that the sender writes and the receiver reads. They share one cache line.
#[derive(Default)]
struct Published {
    /// Number of packets that the sender has put into the ring.
    tail: AtomicUsize,
    /// Lower bound of the sequence numbers of packets that the sender puts into the ring later.
    sequence_next: AtomicU64,
}

/// State that the two sides share. Positions count all packets since the start.
struct Ring {
    memory: Arc<Memory>,
    /// The number of slots is a power of two. The sender owns the slots from `tail` to `head` plus
    /// the number of slots. The receiver owns the others.
    slots: Box<[UnsafeCell<MaybeUninit<Exchanged>>]>,
    published: Apart<Published>,
    /// Number of packets that the receiver has copied.
    head: Apart<AtomicUsize>,
    /// Whether the sender puts no more packets into the ring.
    is_closed: AtomicBool,
    /// Whether the receiver takes no more packets from the ring.
    is_abandoned: AtomicBool,
}

// SAFETY: the slots contain plain values. The positions assign each slot to one side at a time, and
// a side publishes its position with release order after its last access to a slot.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    #[inline(always)]
    fn slot(&self, position: usize) -> *mut Exchanged {
        self.slots[position & (self.slots.len() - 1)].get().cast()
    }
}

/// Creates the ring from the worker of `region` to another worker. The ring holds at most `packets`
/// packets, which must be a power of two.
///
/// ```
/// use godwit_packet::{Arena, ArenaConfig, Batch, Stamp, exchange};
///
/// let mut regions = Arena::new(ArenaConfig::default(), 2)?.split();
/// let (mut sender, mut receiver) = exchange(&regions[0], 64);
/// let packet = regions[0].allocate(60).expect("the region is empty");
/// regions[0].frame_mut(&packet).fill(7);
///
/// assert!(sender.put(&mut regions[0], &packet, Stamp::default(), 0));
/// sender.publish(1);
/// assert!(!regions[0].contains(&packet));
///
/// let (mut batch, mut arrivals_ns) = (Batch::default(), Vec::new());
/// receiver.take(&mut regions[1], &mut batch, &mut arrivals_ns, 32);
/// assert_eq!(regions[1].frame(&batch.descriptors[0]), [7; 60]);
/// assert_eq!(sender.reclaim(&mut regions[0]), 0);
/// assert_eq!(regions[0].allocated(), 0);
/// # Ok::<(), godwit_packet::Error>(())
/// ```
///
/// # Panics
/// Panics if `packets` is not a power of two.
pub fn exchange(region: &Region, packets: usize) -> (ExchangeSender, ExchangeReceiver) {
    assert!(packets.is_power_of_two(), "a ring of {packets} packets");
    let ring = Arc::new(Ring {
        memory: region.memory(),
        slots: (0..packets).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        published: Apart::default(),
        head: Apart::default(),
        is_closed: AtomicBool::new(false),
        is_abandoned: AtomicBool::new(false),
    });
    let sender = ExchangeSender { ring: Arc::clone(&ring), region: region.id(), tail: 0, published: 0, reclaimed: 0 };
    (sender, ExchangeReceiver { ring, head: 0, sequence_next: 0 })
}

/// Side of a ring that puts packets into it.
pub struct ExchangeSender {
    ring: Arc<Ring>,
    /// Identifier of the region whose packets the ring accepts.
    region: u64,
    /// Number of packets in the ring since the start, including unpublished packets.
    tail: usize,
    published: usize,
    /// Number of packets whose buffers have returned to the region.
    reclaimed: usize,
}

impl ExchangeSender {
    /// Puts a packet into the ring and lends its buffer to the receiver. Returns false if the ring
    /// is full. The packet then remains with the caller.
    ///
    /// The receiver sees the packet after [`publish`](Self::publish).
    ///
    /// # Panics
    /// Panics if the packet does not belong to the region of the ring, or if its buffer is lent.
    #[inline]
    pub fn put(&mut self, region: &mut Region, descriptor: &Descriptor, stamp: Stamp, arrival_ns: u64) -> bool {
        if self.tail - self.reclaimed == self.ring.slots.len() {
            self.return_copied(region);
            if self.tail - self.reclaimed == self.ring.slots.len() {
                return false;
            }
        }
        assert_eq!(self.region, region.id(), "a packet of another region");
        region.lend_one(descriptor);
        let exchanged = Exchanged { descriptor: *descriptor, stamp, arrival_ns };
        // SAFETY: the slot is not between head and tail, so the receiver does not access it.
        unsafe { self.ring.slot(self.tail).write(exchanged) };
        self.tail += 1;
        true
    }

    /// Makes all packets in the ring visible to the receiver. `sequence_next` is a lower bound of
    /// the sequence numbers of later packets. Returns whether there are new packets.
    #[inline]
    pub fn publish(&mut self, sequence_next: u64) -> bool {
        let has_new = self.has_new();
        if has_new {
            self.published = self.tail;
            self.ring.published.0.tail.store(self.tail, Ordering::Release);
        }
        self.ring.published.0.sequence_next.store(sequence_next, Ordering::Release);
        has_new
    }

    /// Frees the buffers of all packets that the receiver has copied. If the receiver has ended,
    /// also frees the buffers of the other packets. Returns the number of packets that were lost
    /// in this way.
    #[inline]
    pub fn reclaim(&mut self, region: &mut Region) -> usize {
        if self.reclaimed == self.tail {
            return 0;
        }
        let is_abandoned = self.ring.is_abandoned.load(Ordering::Acquire);
        self.return_copied(region);
        if is_abandoned { self.return_until(self.tail, region) } else { 0 }
    }

    /// Returns the number of packets for which the ring has room, after the last call of
    /// [`reclaim`](Self::reclaim).
    #[inline]
    pub fn room(&self) -> usize {
        self.ring.slots.len() - (self.tail - self.reclaimed)
    }

    /// Returns whether there are packets that [`publish`](Self::publish) has not made visible yet.
    #[inline]
    pub fn has_new(&self) -> bool {
        self.tail != self.published
    }

    /// Returns whether at least an eighth of the ring is in use, as far as this side knows.
    #[inline]
    pub fn is_filling(&self) -> bool {
        self.tail - self.reclaimed >= self.ring.slots.len() / 8
    }

    /// Returns whether the receiver has copied all packets, and their buffers are free again.
    pub fn is_empty(&self) -> bool {
        self.reclaimed == self.tail
    }

    /// Tells the receiver that no more packets follow.
    pub fn close(&mut self) {
        self.publish(u64::MAX);
        self.ring.is_closed.store(true, Ordering::Release);
    }

    fn return_copied(&mut self, region: &mut Region) {
        let head = self.ring.head.0.load(Ordering::Acquire);
        self.return_until(head, region);
    }

    fn return_until(&mut self, position: usize, region: &mut Region) -> usize {
        let returned = position - self.reclaimed;
        while self.reclaimed < position {
            // SAFETY: the sender has written the slot. The receiver only reads it, and has done so
            // or has ended.
            let exchanged = unsafe { self.ring.slot(self.reclaimed).read() };
            region.take_back_one(&exchanged.descriptor);
            self.reclaimed += 1;
        }
        returned
    }
}

impl Drop for ExchangeSender {
    fn drop(&mut self) {
        self.close();
    }
}

/// Side of a ring that takes packets from it.
pub struct ExchangeReceiver {
    ring: Arc<Ring>,
    /// Number of packets that this side has copied.
    head: usize,
    sequence_next: u64,
}

impl ExchangeReceiver {
    /// Copies up to `packets_max` packets into `region`, in the order in which they were put into
    /// the ring. Appends them to `batch`, and their arrival times on the worker's clock to
    /// `arrivals_ns`. Stops if the region has no free buffer. Returns the number of packets.
    pub fn take(
        &mut self,
        region: &mut Region,
        batch: &mut Batch,
        arrivals_ns: &mut Vec<u64>,
        packets_max: usize,
    ) -> usize {
        let sequence_next = self.ring.published.0.sequence_next.load(Ordering::Acquire);
        let tail = self.ring.published.0.tail.load(Ordering::Acquire);
        let end = tail.min(self.head.saturating_add(packets_max));
        let (ring, first) = (&self.ring, self.head);
        // SAFETY: the sender has written the slots up to the tail before it published the tail.
        let at = |position: usize| unsafe { &*ring.slot(position) };
        (first..end.min(first + FETCHED_AHEAD_PACKETS)).for_each(|position| self.prefetch(&at(position).descriptor));
        let mut position = first;
        while position < end {
            let ahead = position + FETCHED_AHEAD_PACKETS;
            if ahead < end {
                self.prefetch(&at(ahead).descriptor);
            }
            let Exchanged { descriptor, stamp, arrival_ns } = at(position);
            // SAFETY: `put` has checked that the frame lies within the arena, and has marked the
            // buffer as lent. The sender's region therefore creates no reference to it until the
            // head has passed the packet, and no device or port holds it.
            let frame = unsafe {
                let frame = ring.memory.base().as_ptr().add(descriptor.frame_offset());
                std::slice::from_raw_parts(frame, usize::from(descriptor.length))
            };
            let Some(copy) = region.copy_in(descriptor, frame) else { break };
            batch.push(copy, *stamp);
            arrivals_ns.push(*arrival_ns);
            position += 1;
        }
        self.head = position;
        if position > first {
            self.ring.head.0.store(position, Ordering::Release);
        }
        if position == tail {
            self.sequence_next = sequence_next;
        }
        position - first
    }

    /// Returns a lower bound of the sequence numbers of all packets that [`take`](Self::take)
    /// returns later.
    pub fn sequence_next(&self) -> u64 {
        self.sequence_next
    }

    /// Returns the number of packets in the ring.
    pub fn waiting(&self) -> usize {
        self.ring.published.0.tail.load(Ordering::Acquire) - self.head
    }

    /// Returns whether the sender has closed the ring, and the ring is empty.
    pub fn has_ended(&self) -> bool {
        self.ring.is_closed.load(Ordering::Acquire) && self.waiting() == 0
    }

    #[inline(always)]
    fn prefetch(&self, descriptor: &Descriptor) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let frame = self.ring.memory.base().as_ptr().wrapping_add(descriptor.frame_offset());
            // SAFETY: a prefetch has no effect that the program can observe, for any address.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(frame.cast());
                _mm_prefetch::<_MM_HINT_T0>(frame.wrapping_add(LINE_BYTES).cast());
            }
        }
    }
}

impl Drop for ExchangeReceiver {
    fn drop(&mut self) {
        self.ring.is_abandoned.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::{Arena, ArenaConfig, Layout};

    const RING_PACKETS: usize = 16;

    fn regions(layout: Layout, packets: usize) -> [Region; 2] {
        let config = ArenaConfig { layout, packets, ..ArenaConfig::default() };
        Arena::new(config, 2).unwrap().split().try_into().unwrap()
    }

    fn stamp(sequence: u64) -> Stamp {
        Stamp { sequence, time_ns: sequence * 3 }
    }

    /// Returns a new packet whose frame depends on `number`.
    fn packet(region: &mut Region, number: u64) -> Option<Descriptor> {
        let length = 60 + (number * 37 % 1400) as usize;
        let mut packet = region.allocate(length)?;
        packet.port = 3;
        packet.flow_hash = number as u32;
        region.frame_mut(&packet).fill(number as u8);
        Some(packet)
    }

    fn check(region: &Region, packet: &Descriptor, stamp: Stamp, number: u64) {
        assert_eq!((stamp.sequence, stamp.time_ns), (number, number * 3));
        assert_eq!((packet.port, packet.flow_hash), (3, number as u32));
        assert_eq!(usize::from(packet.head), region.headroom_bytes());
        let frame = region.frame(packet);
        assert_eq!(frame.len(), 60 + (number * 37 % 1400) as usize);
        assert!(frame.iter().all(|&byte| byte == number as u8), "packet {number} has changed");
    }

    #[test]
    fn a_full_ring_refuses_packets_and_a_copied_packet_frees_its_buffer() {
        for layout in [Layout::Slots, Layout::Dense] {
            let [mut from, mut to] = regions(layout, 64);
            let (mut sender, mut receiver) = exchange(&from, RING_PACKETS);
            let packets: Vec<_> = (0..20).map(|number| packet(&mut from, number).unwrap()).collect();
            let put: Vec<bool> =
                (0..).zip(&packets).map(|(number, packet)| sender.put(&mut from, packet, stamp(number), 9)).collect();
            assert_eq!(put, [vec![true; RING_PACKETS], vec![false; 4]].concat());
            packets[RING_PACKETS..].iter().for_each(|packet| from.release(packet));
            assert_eq!(receiver.waiting(), 0, "packets are visible before they are published");
            assert!(sender.publish(20) && !sender.publish(20));
            assert!(packets[..RING_PACKETS].iter().all(|packet| !from.contains(packet)));

            let (mut batch, mut arrivals_ns) = (Batch::default(), Vec::new());
            assert_eq!(receiver.take(&mut to, &mut batch, &mut arrivals_ns, 10), 10);
            assert_eq!(receiver.sequence_next(), 0, "packets below the bound still wait");
            assert_eq!(sender.reclaim(&mut from), 0);
            assert_eq!((from.allocated(), to.allocated(), receiver.waiting()), (6, 10, 6));
            assert_eq!(receiver.take(&mut to, &mut batch, &mut arrivals_ns, 10), 6);
            assert_eq!((receiver.sequence_next(), arrivals_ns), (20, vec![9; RING_PACKETS]));
            for (number, (packet, stamp)) in (0..).zip(batch.descriptors.iter().zip(&batch.stamps)) {
                check(&to, packet, *stamp, number);
            }
            sender.reclaim(&mut from);
            assert!(sender.is_empty() && from.allocated() == 0 && !receiver.has_ended());
            sender.close();
            assert!(receiver.has_ended());
        }
    }

    #[test]
    fn packets_wait_while_the_receiver_has_no_buffer() {
        let [mut from, mut to] = regions(Layout::Slots, 8);
        let (mut sender, mut receiver) = exchange(&from, RING_PACKETS);
        let used: Vec<_> = (0..6).map(|number| packet(&mut to, number).unwrap()).collect();
        for number in 0..4 {
            let packet = packet(&mut from, number).unwrap();
            assert!(sender.put(&mut from, &packet, stamp(number), 0));
        }
        sender.close();
        let (mut batch, mut arrivals_ns) = (Batch::default(), Vec::new());
        assert_eq!(receiver.take(&mut to, &mut batch, &mut arrivals_ns, 32), 2);
        assert!(!receiver.has_ended());
        to.release_all(&used);
        assert_eq!(receiver.take(&mut to, &mut batch, &mut arrivals_ns, 32), 2);
        assert!(receiver.has_ended() && receiver.sequence_next() == u64::MAX);
    }

    #[test]
    fn packets_for_a_receiver_that_has_ended_are_counted() {
        let [mut from, mut to] = regions(Layout::Slots, 32);
        let (mut sender, mut receiver) = exchange(&from, RING_PACKETS);
        for number in 0..5 {
            let packet = packet(&mut from, number).unwrap();
            assert!(sender.put(&mut from, &packet, stamp(number), 0));
        }
        sender.publish(5);
        receiver.take(&mut to, &mut Batch::default(), &mut Vec::new(), 2);
        drop(receiver);
        assert_eq!((sender.reclaim(&mut from), from.allocated()), (3, 0));
    }

    #[test]
    #[should_panic(expected = "a packet of another region")]
    fn a_packet_of_another_region_is_refused() {
        let [from, mut to] = regions(Layout::Slots, 8);
        let (mut sender, _receiver) = exchange(&from, RING_PACKETS);
        let packet = packet(&mut to, 0).unwrap();
        sender.put(&mut to, &packet, stamp(0), 0);
    }

    /// Passes many packets between two threads through a small ring and small regions, so that the
    /// ring is often full, and each buffer is used often.
    #[test]
    fn two_threads_exchange_all_packets_in_order() {
        const PACKETS: u64 = 50_000;
        for layout in [Layout::Slots, Layout::Dense] {
            let [mut from, mut to] = regions(layout, 24);
            let (mut sender, mut receiver) = exchange(&from, RING_PACKETS);
            let sending = thread::spawn(move || {
                let mut number = 0;
                while number < PACKETS {
                    let before = number;
                    while number < PACKETS
                        && let Some(packet) = packet(&mut from, number)
                    {
                        if !sender.put(&mut from, &packet, stamp(number), number) {
                            from.release(&packet);
                            break;
                        }
                        number += 1;
                    }
                    sender.publish(number);
                    sender.reclaim(&mut from);
                    if number == before {
                        thread::yield_now();
                    }
                }
                sender.close();
                while !sender.is_empty() {
                    assert_eq!(sender.reclaim(&mut from), 0);
                    thread::yield_now();
                }
                from.allocated()
            });
            let (mut batch, mut arrivals_ns, mut next) = (Batch::default(), Vec::new(), 0);
            while !receiver.has_ended() {
                let bound = receiver.sequence_next();
                receiver.take(&mut to, &mut batch, &mut arrivals_ns, 5);
                for (index, packet) in batch.descriptors.iter().enumerate() {
                    assert!(batch.stamps[index].sequence >= bound && arrivals_ns[index] == next);
                    check(&to, packet, batch.stamps[index], next);
                    next += 1;
                }
                if batch.is_empty() {
                    thread::yield_now();
                }
                to.release_all(&batch.descriptors);
                batch.clear();
                arrivals_ns.clear();
            }
            assert_eq!((next, sending.join().unwrap(), to.allocated()), (PACKETS, 0, 0));
        }
    }
}

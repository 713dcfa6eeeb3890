//! One worker's part of the arena: allocate, reach and return buffers. No locks, no atomics.

mod dense;
mod each;
mod ports;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::dense::Dense;
use crate::loan::Units;
use crate::scan::side_by_side;
use crate::{ArenaConfig, BUFFER_UNIT_BYTES, Borrower, Descriptor, Layout, Loan, Memory, Reuse, scan};

/// One worker's part of the arena.
///
/// Every access checks the descriptor against the region, so a descriptor that is wrong panics
/// instead of reaching another worker's packets: it is a bug, never bad input.
#[derive(Debug)]
pub struct Region {
    memory: Arc<Memory>,
    start: usize,
    bytes: usize,
    headroom_bytes: usize,
    /// By length modulo 16.
    tailroom_bytes: [usize; 16],
    frame_bytes_max: usize,
    buffers: Buffers,
    allocated: usize,
    quarantined: usize,
    /// Names this region among all of the process.
    id: u64,
    /// What buffers in others' hands take up. Where there are slots, one bit stands for a whole buffer, that of its first unit, and all
    /// other units count as lent: a descriptor that begins there names no buffer.
    lent: Units,
    /// Buffers that ports have: posted to be written, or handed over to be sent.
    /// Below zero while a borrower has handed some over, is about to tell, and they have arrived again.
    in_ports: isize,
    /// Distance from one slot to the next; 0 where there are none.
    slot_bytes: usize,
    /// 2^64 divided by the units of a slot, rounded up (0 for a slot of one unit): multiplying by it tells how far behind the beginning
    /// of a slot something lies. A division would take as long as all the rest.
    slot_inverse: u64,
    /// Units of the longest buffer.
    room_max: u8,
    /// Bytes in front of each slot's buffer that are none of its.
    prefix_bytes: usize,
    /// Vectors to be used again.
    spare: Vec<Descriptor>,
    spare_reclaimed: Vec<u32>,
}

#[derive(Debug)]
enum Buffers {
    Slots(Slots),
    SlotQueue(SlotQueue),
    Dense(Dense),
}

/// A stack of free slots: the slot freed last is still in the cache.
#[derive(Debug)]
struct Slots {
    free: Vec<u32>,
    room: u8,
}

/// A queue of free slots: the slot freed first comes first.
#[derive(Debug)]
struct SlotQueue {
    free: VecDeque<u32>,
    room: u8,
}

impl Region {
    pub(crate) fn new(memory: Arc<Memory>, start: usize, bytes: usize, config: &ArenaConfig) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let slots = (0..config.packets)
            .map(|slot| ((start + slot * config.slot_stride_bytes() + config.prefix_bytes) / BUFFER_UNIT_BYTES) as u32);
        let room = (config.buffer_bytes() / BUFFER_UNIT_BYTES) as u8;
        let buffers = match (config.layout, config.reuse) {
            (Layout::Slots, Reuse::Last) => Buffers::Slots(Slots { free: slots.rev().collect(), room }),
            (Layout::Slots, Reuse::Oldest) => Buffers::SlotQueue(SlotQueue { free: slots.collect(), room }),
            (Layout::Dense, _) => Buffers::Dense(Dense {
                returned: vec![0; bytes / BUFFER_UNIT_BYTES],
                align_units: config.align_bytes / BUFFER_UNIT_BYTES,
                head: 0,
                tail: 0,
                used: 0,
                quarantined: Vec::new(),
            }),
        };
        let slot_bytes = if config.layout == Layout::Slots { config.slot_stride_bytes() } else { 0 };
        Self {
            memory,
            start,
            bytes,
            headroom_bytes: config.headroom_bytes,
            tailroom_bytes: config.tailroom_saved.map(|saved| config.tailroom_bytes - usize::from(saved)),
            frame_bytes_max: config.frame_bytes_max,
            buffers,
            allocated: 0,
            quarantined: 0,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            lent: Units::default(),
            in_ports: 0,
            prefix_bytes: config.prefix_bytes,
            slot_bytes,
            slot_inverse: (u64::MAX / (slot_bytes / BUFFER_UNIT_BYTES).max(1) as u64).wrapping_add(1),
            room_max: if slot_bytes > 0 { room } else { u8::MAX },
            spare: Vec::new(),
            spare_reclaimed: Vec::new(),
        }
    }

    /// A buffer for a frame of `length` bytes, its head set behind the headroom.
    /// The content is whatever was there before. `None` when the region is full or the frame is longer than `frame_bytes_max`.
    #[inline(always)]
    pub fn allocate(&mut self, length: usize) -> Option<Descriptor> {
        if length > self.frame_bytes_max {
            return None;
        }
        let (buffer, room) = match &mut self.buffers {
            Buffers::Slots(slots) => (slots.free.pop()?, slots.room),
            Buffers::SlotQueue(slots) => (slots.free.pop_front()?, slots.room),
            Buffers::Dense(dense) => {
                let bytes = self.headroom_bytes + length + self.tailroom_bytes[length % 16];
                let (unit, units) = dense.allocate(bytes.div_ceil(BUFFER_UNIT_BYTES))?;
                ((self.start / BUFFER_UNIT_BYTES + unit) as u32, units)
            }
        };
        self.allocated += 1;
        let (head, length) = (self.headroom_bytes as u16, length as u16);
        Some(Descriptor { buffer, head, length, room, ..Descriptor::default() })
    }

    /// A packet with the same frame, in a buffer of its own: the head behind the headroom, or where the original has it. `None`
    /// when the region is full.
    ///
    /// # Panics
    /// When the descriptor is not of this region, or lent.
    pub fn duplicate(&mut self, packet: &Descriptor) -> Option<Descriptor> {
        if !self.contains(packet) {
            outside(*packet);
        }
        let length = usize::from(packet.length);
        // A function may have made it longer than frames arrive.
        let copy = self.allocate(length.min(self.frame_bytes_max))?;
        let fits = |head: u16| usize::from(head) + length <= copy.room_bytes();
        let head = [copy.head, packet.head].into_iter().find(|head| fits(*head));
        let Some(head) = head else {
            self.release(&copy);
            return None;
        };
        let copy = Descriptor { buffer: copy.buffer, room: copy.room, head, ..*packet };
        debug_assert!(self.contains(&copy));
        let base = self.memory.base().as_ptr();
        // SAFETY: both frames lie within buffers of this region, the original's checked above and not lent, the copy's just
        // allocated, so that they do not overlap; `&mut self` makes sure that nobody else reaches either.
        unsafe {
            std::ptr::copy_nonoverlapping(base.add(packet.frame_offset()), base.add(copy.frame_offset()), length);
        }
        Some(copy)
    }

    /// Returns a buffer. Each allocated buffer is returned exactly once.
    #[inline]
    pub fn release(&mut self, descriptor: &Descriptor) {
        debug_assert!(self.contains(descriptor));
        debug_assert!(self.allocated > 0, "a buffer was returned twice");
        self.allocated -= 1;
        match &mut self.buffers {
            Buffers::Slots(slots) => slots.free.push(descriptor.buffer),
            Buffers::SlotQueue(slots) => slots.free.push_back(descriptor.buffer),
            Buffers::Dense(dense) => {
                let unit = descriptor.buffer as usize - self.start / BUFFER_UNIT_BYTES;
                dense.release(unit, u32::from(descriptor.room));
            }
        }
    }

    /// Returns buffers, cheapest where they were allocated in this order.
    #[inline]
    pub fn release_all(&mut self, packets: &[impl AsRef<Descriptor>]) {
        debug_assert!(self.allocated >= packets.len(), "a buffer was returned twice");
        let buffers = packets.iter().map(|packet| packet.as_ref().buffer);
        match &mut self.buffers {
            Buffers::Dense(dense) => {
                let start = self.start / BUFFER_UNIT_BYTES;
                let unit = |buffer: u32| buffer as usize - start;
                match side_by_side(packets) {
                    // One large buffer, as it were.
                    Some((buffer, units)) if !dense.begins_within(unit(buffer), units) => {
                        dense.release(unit(buffer), units);
                    }
                    _ => dense.release_all(packets.iter().map(|packet| {
                        let packet = packet.as_ref();
                        (unit(packet.buffer), u32::from(packet.room))
                    })),
                }
            }
            Buffers::Slots(slots) => slots.free.extend(buffers),
            Buffers::SlotQueue(slots) => slots.free.extend(buffers),
        }
        self.allocated -= packets.len();
    }

    /// Gives up a buffer for good: it counts as returned, and no packet gets it again. For a buffer that a lost device
    /// may still write to. Instead of [`Region::release`], once for a buffer.
    #[cold]
    pub fn quarantine(&mut self, descriptor: &Descriptor) {
        debug_assert!(self.contains(descriptor));
        debug_assert!(self.allocated > 0, "a buffer was returned twice");
        self.allocated -= 1;
        self.quarantined += 1;
        // A slot that is not among the free ones is never found again.
        if let Buffers::Dense(dense) = &mut self.buffers {
            let unit = descriptor.buffer as usize - self.start / BUFFER_UNIT_BYTES;
            dense.quarantine(unit, u32::from(descriptor.room));
        }
    }

    /// Buffers given up for good.
    pub fn quarantined(&self) -> usize {
        self.quarantined
    }

    /// Whether a frame of full size can ever get a buffer again: not when nearly all are quarantined.
    pub fn is_usable(&self) -> bool {
        match &self.buffers {
            Buffers::Slots(slots) => slots.free.len() + self.allocated + self.in_ports() > 0,
            Buffers::SlotQueue(slots) => slots.free.len() + self.allocated + self.in_ports() > 0,
            Buffers::Dense(dense) => {
                let tailroom_bytes = self.tailroom_bytes.iter().max().copied().unwrap_or(0);
                let bytes = self.headroom_bytes + self.frame_bytes_max + tailroom_bytes;
                let units = bytes.div_ceil(BUFFER_UNIT_BYTES).next_multiple_of(dense.align_units);
                dense.longest_run() >= units
            }
        }
    }

    /// Buffers allocated and not yet returned.
    pub fn allocated(&self) -> usize {
        self.allocated
    }

    /// Longest frame that [`Region::allocate`] accepts, in bytes.
    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    /// One to lend buffers to.
    pub fn borrower(&self) -> Borrower {
        Borrower::new(Arc::clone(&self.memory), self.id, self.start, self.bytes)
    }

    /// Gives buffers out of hand; they stay allocated, and the region refuses to reach them until they are back.
    ///
    /// # Panics
    /// When one is not of this region, or lent already.
    pub fn lend<'a>(&mut self, descriptors: impl IntoIterator<Item = &'a Descriptor>) -> Loan {
        self.begin_lending();
        let mut buffers = std::mem::take(&mut self.spare);
        for descriptor in descriptors {
            if !self.contains(descriptor) {
                outside(*descriptor);
            }
            let unit = (descriptor.buffer_offset() - self.start) / BUFFER_UNIT_BYTES;
            self.lent.insert(unit, self.marks(descriptor.room));
            buffers.push(*descriptor);
        }
        Loan { region: self.id, buffers, handed_over: 0, reclaimed: std::mem::take(&mut self.spare_reclaimed) }
    }

    /// Whether buffers are ever out of hand: only then is it not enough for a packet to lie in the region.
    pub fn is_lending(&self) -> bool {
        !self.lent.is_unused()
    }

    /// Returns buffers that were lent: they are free.
    ///
    /// # Panics
    /// When they are another region's.
    pub fn take_back(&mut self, mut loan: Loan) {
        assert_eq!(loan.region, self.id, "a loan of another region");
        for descriptor in loan.buffers.drain(..) {
            let unit = (descriptor.buffer_offset() - self.start) / BUFFER_UNIT_BYTES;
            self.lent.remove(unit, self.marks(descriptor.room));
            self.release(&descriptor);
        }
        self.spare = loan.buffers;
        debug_assert!(self.allocated >= loan.handed_over, "a buffer was returned twice");
        self.allocated -= loan.handed_over;
        self.in_ports += loan.handed_over as isize;
        loan.reclaimed.drain(..).for_each(|buffer| self.reclaim(buffer));
        self.spare_reclaimed = loan.reclaimed;
    }

    /// From now on what is lent is marked.
    #[inline]
    fn begin_lending(&mut self) {
        if self.lent.is_unused() {
            self.mark_slots();
        }
    }

    #[cold]
    fn mark_slots(&mut self) {
        let units = self.bytes.div_ceil(BUFFER_UNIT_BYTES);
        self.lent.reserve(units);
        if self.slot_bytes > 0 {
            self.lent.insert(0, units);
            let buffers = (self.prefix_bytes / BUFFER_UNIT_BYTES..units).step_by(self.slot_bytes / BUFFER_UNIT_BYTES);
            buffers.for_each(|unit| self.lent.remove(unit, 1));
        }
    }

    #[inline(always)]
    fn is_lent(&self, unit: usize, room: u8) -> bool {
        if self.slot_bytes > 0 { self.lent.has(unit) } else { self.lent.any(unit, usize::from(room)) }
    }

    /// How many units stand for a buffer in [`Region::lent`].
    #[inline(always)]
    fn marks(&self, room: u8) -> usize {
        if self.slot_bytes > 0 { 1 } else { usize::from(room) }
    }

    /// Bytes in front of an arriving frame.
    pub fn headroom_bytes(&self) -> usize {
        self.headroom_bytes
    }

    /// Whether the descriptor names a buffer of this region that is not lent, and its frame lies within the buffer.
    #[inline]
    pub fn contains(&self, descriptor: &Descriptor) -> bool {
        self.is_buffer(descriptor) && !self.is_lent(self.unit(descriptor), descriptor.room)
    }

    /// The same, lent or not.
    #[inline(always)]
    fn is_buffer(&self, descriptor: &Descriptor) -> bool {
        let offset = descriptor.buffer_offset().wrapping_sub(self.start);
        offset < self.bytes
            && descriptor.room_bytes() <= self.bytes - offset
            && descriptor.room <= self.room_max
            && usize::from(descriptor.head) + usize::from(descriptor.length) <= descriptor.room_bytes()
    }

    /// Where a buffer begins, in units from the region's start.
    #[inline(always)]
    fn unit(&self, descriptor: &Descriptor) -> usize {
        (descriptor.buffer as usize).wrapping_sub(self.start / BUFFER_UNIT_BYTES)
    }

    /// Whether [`Region::contains`] says yes of all of these.
    #[inline]
    pub fn contains_all(&self, descriptors: &[Descriptor]) -> bool {
        if self.is_lending() && self.slot_bytes == 0 {
            return descriptors.iter().all(|descriptor| self.contains(descriptor));
        }
        let (start, units) = (self.start / BUFFER_UNIT_BYTES, self.bytes / BUFFER_UNIT_BYTES);
        let found = scan(descriptors, 0);
        let is_inside = !found.beyond
            && found.first as usize >= start
            && (found.last as usize) < start + units
            && found.end <= (start + units) as u64
            && found.room <= self.room_max.into();
        let is_lent = |any, descriptor: &Descriptor| any | self.lent.has(self.unit(descriptor));
        is_inside && !(self.is_lending() && descriptors.iter().fold(false, is_lent))
    }

    /// The frame.
    ///
    /// # Panics
    /// When the descriptor is not of this region, or lent.
    #[inline]
    pub fn frame(&self, descriptor: &Descriptor) -> &[u8] {
        if !self.contains(descriptor) {
            outside(*descriptor);
        }
        // SAFETY: checked just before.
        unsafe { self.frame_unchecked(descriptor) }
    }

    /// The frames of all of these, which are checked together.
    ///
    /// # Panics
    /// When one of the descriptors is not of this region, or lent.
    #[inline]
    pub fn frames<'a>(&'a self, descriptors: &'a [Descriptor]) -> impl ExactSizeIterator<Item = &'a [u8]> {
        if !self.contains_all(descriptors)
            && let Some(other) = descriptors.iter().find(|descriptor| !self.contains(descriptor))
        {
            outside(*other);
        }
        // SAFETY: as in `frame`; `&self` lives as long as the iterator, so nothing is lent or written meanwhile.
        descriptors.iter().map(|descriptor| unsafe { self.frame_unchecked(descriptor) })
    }

    /// The frame.
    ///
    /// # Safety
    /// [`Region::contains`] says yes of the descriptor.
    #[inline]
    unsafe fn frame_unchecked(&self, descriptor: &Descriptor) -> &[u8] {
        // SAFETY: the caller has checked that it lies inside this region and is not lent: only this Region reaches it, and `&self` forbids
        // writers. A device reaches only packets that were submitted to it; a worker does not look at those until it has them back.
        unsafe {
            let frame = self.memory.base().as_ptr().add(descriptor.frame_offset());
            std::slice::from_raw_parts(frame, usize::from(descriptor.length))
        }
    }

    /// The frame, to be written.
    ///
    /// # Panics
    /// When the descriptor is not of this region, or lent.
    #[inline]
    pub fn frame_mut(&mut self, descriptor: &Descriptor) -> &mut [u8] {
        let (head, length) = (usize::from(descriptor.head), usize::from(descriptor.length));
        &mut self.buffer_mut(descriptor)[head..head + length]
    }

    /// The whole buffer: headroom, frame and tailroom.
    ///
    /// # Panics
    /// When the descriptor is not of this region, or lent.
    #[inline]
    pub fn buffer_mut(&mut self, descriptor: &Descriptor) -> &mut [u8] {
        if !self.contains(descriptor) {
            outside(*descriptor);
        }
        // SAFETY: checked to lie inside this region and not to be lent: only this Region reaches it, and `&mut self` makes this the
        // only reference.
        unsafe {
            let buffer = self.memory.base().as_ptr().add(descriptor.buffer_offset());
            std::slice::from_raw_parts_mut(buffer, descriptor.room_bytes())
        }
    }

    /// The arena's base address, which descriptors count from. A device may touch only buffers that this region contains,
    /// and only while it has `&mut Region` or the packets are in its hands.
    pub fn arena_base(&mut self) -> *mut u8 {
        self.memory.base().as_ptr()
    }

    /// This region's place in the arena: offset and size in bytes.
    pub fn extent(&self) -> (usize, usize) {
        (self.start, self.bytes)
    }
}

/// Out of line and by value: a reference would force every descriptor into memory before it is read back whole,
/// which costs a stalled load a packet.
#[cold]
#[inline(never)]
pub(crate) fn outside(descriptor: Descriptor) -> ! {
    panic!("descriptor outside its region, or in other hands: {descriptor:?}");
}

#[cfg(test)]
mod tests;

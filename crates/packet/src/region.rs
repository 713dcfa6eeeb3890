//! A region is the packet memory of one worker. Workers do not share regions, so a region needs no
//! locks and no atomic operations.

mod bulk;
mod dense;
mod ports;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::dense::Dense;
use crate::loan::Units;
use crate::scan::adjacent;
use crate::{ArenaConfig, BUFFER_UNIT_BYTES, Borrower, Descriptor, Layout, Loan, Memory, Reuse, scan};

/// The part of the packet memory that one worker owns.
///
/// Every access checks the packet descriptor, and panics if it is invalid. It therefore cannot
/// reach packets of another worker. An invalid descriptor is a bug, not bad input.
///
/// ```
/// use godwit_packet::{Arena, ArenaConfig};
///
/// let mut region = Arena::new(ArenaConfig::default(), 1)?.split().remove(0);
/// let mut packet = region.allocate(60).expect("the region is empty");
/// region.frame_mut(&packet).fill(0xff);
///
/// // Prepend a header of 4 bytes.
/// packet.head -= 4;
/// packet.length += 4;
/// region.frame_mut(&packet)[..4].copy_from_slice(&[1, 2, 3, 4]);
/// assert_eq!(region.frame(&packet)[..6], [1, 2, 3, 4, 0xff, 0xff]);
///
/// region.release(&packet);
/// assert_eq!(region.allocated(), 0);
/// # Ok::<(), godwit_packet::Error>(())
/// ```
#[derive(Debug)]
pub struct Region {
    memory: Arc<Memory>,
    start: usize,
    bytes: usize,
    headroom_bytes: usize,
    /// Tailroom in bytes for each frame length modulo 16.
    tailroom_bytes: [usize; 16],
    frame_bytes_max: usize,
    buffers: Buffers,
    allocated: usize,
    quarantined: usize,
    /// Number of buffers that ports cannot use for received frames.
    reserve: usize,
    /// Identifier of the region, which is unique in the process.
    id: u64,
    /// Set of the 64-byte units in buffers that other threads or ports hold.
    ///
    /// If the distance between buffers is fixed, the set contains only the first unit of each such
    /// buffer. It also contains all units at which no buffer starts, because descriptors must not
    /// start there.
    lent: Units,
    /// Number of buffers that ports hold to receive or send frames.
    ///
    /// The number can be negative for a short time. A port may return a buffer before the sending
    /// thread has reported the transfer to the port.
    in_ports: isize,
    /// Distance in bytes between the starts of adjacent buffers, or 0 if the buffers have different
    /// sizes.
    slot_bytes: usize,
    /// Reciprocal of the number of 64-byte units per buffer, which avoids a slow division. It is
    /// 2^64 divided by this number, rounded up. It is 0 for one unit per buffer.
    slot_inverse: u64,
    /// Size of the largest buffer, in units of 64 bytes.
    room_max: u8,
    /// Number of bytes before each buffer that are reserved for a port's driver.
    prefix_bytes: usize,
    /// Empty vector, whose memory the next loan reuses.
    spare: Vec<Descriptor>,
    /// Empty vector, whose memory the next loan reuses.
    spare_reclaimed: Vec<u32>,
}

#[derive(Debug)]
enum Buffers {
    Slots(Slots),
    SlotQueue(SlotQueue),
    Dense(Dense),
}

/// Stack of free buffers. The buffer that was freed last is used first, because it is still in the
/// core's cache.
#[derive(Debug)]
struct Slots {
    free: Vec<u32>,
    room: u8,
}

/// Queue of free buffers. The buffer that was freed first is used first.
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
            reserve: 0,
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

    /// Allocates a buffer for a frame of `length` bytes. The frame starts after the headroom.
    ///
    /// The buffer still contains the bytes of an earlier packet. Returns `None` if no buffer is
    /// free, or if the frame is longer than `frame_bytes_max`.
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

    /// Copies a packet into a new buffer.
    ///
    /// The copied frame starts after the headroom if it fits there. Otherwise, it starts at the
    /// same offset as in the original buffer. Returns `None` if no buffer is free.
    ///
    /// # Panics
    /// Panics if the descriptor does not name a buffer of this region, or if the buffer is lent.
    pub fn duplicate(&mut self, packet: &Descriptor) -> Option<Descriptor> {
        if !self.contains(packet) {
            outside(*packet);
        }
        let length = usize::from(packet.length);
        // Functions can add headers and trailers, so the frame may be longer than any received
        // frame.
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
        // SAFETY: both frames lie within buffers of this region. The original was checked above and
        // is not lent. The copy was just allocated, so the two do not overlap. `&mut self` excludes
        // every other access.
        unsafe {
            std::ptr::copy_nonoverlapping(base.add(packet.frame_offset()), base.add(copy.frame_offset()), length);
        }
        Some(copy)
    }

    /// Frees a buffer. The caller must free each allocated buffer exactly once.
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

    /// Frees several buffers. This is fastest if they are in allocation order.
    #[inline]
    pub fn release_all(&mut self, packets: &[impl AsRef<Descriptor>]) {
        debug_assert!(self.allocated >= packets.len(), "a buffer was returned twice");
        let buffers = packets.iter().map(|packet| packet.as_ref().buffer);
        match &mut self.buffers {
            Buffers::Dense(dense) => {
                let start = self.start / BUFFER_UNIT_BYTES;
                let unit = |buffer: u32| buffer as usize - start;
                match adjacent(packets) {
                    // Adjacent buffers are freed together, like one large buffer.
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

    /// Removes a buffer from use. The buffer counts as freed, but no later packet uses it.
    ///
    /// A worker calls this method instead of [`Region::release`] if the device that uses the buffer
    /// no longer responds. Such a device may still write to the buffer.
    #[cold]
    pub fn quarantine(&mut self, descriptor: &Descriptor) {
        debug_assert!(self.contains(descriptor));
        debug_assert!(self.allocated > 0, "a buffer was returned twice");
        self.allocated -= 1;
        self.quarantined += 1;
        // Buffers at fixed distances need no action, because only buffers in the free list are
        // allocated.
        if let Buffers::Dense(dense) = &mut self.buffers {
            let unit = descriptor.buffer as usize - self.start / BUFFER_UNIT_BYTES;
            dense.quarantine(unit, u32::from(descriptor.room));
        }
    }

    /// Returns the number of buffers that [`Region::quarantine`] has excluded from further use.
    pub fn quarantined(&self) -> usize {
        self.quarantined
    }

    /// Returns whether this region can still provide a buffer for a frame of maximum length. It
    /// cannot if [`Region::quarantine`] has excluded nearly all of its memory from use.
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

    /// Keeps `packets` buffers free for copies and fragments. [`Region::post`] gives none of these
    /// buffers to ports. [`Region::free_for_arrivals`] does not count them.
    pub fn set_reserve(&mut self, packets: usize) {
        self.reserve = packets;
    }

    /// Returns the number of free buffers for frames of maximum length. In layout
    /// [`Layout::Dense`], the number is an upper bound, because free memory may be split.
    pub fn free_packets(&self) -> usize {
        match &self.buffers {
            Buffers::Slots(slots) => slots.free.len(),
            Buffers::SlotQueue(slots) => slots.free.len(),
            Buffers::Dense(dense) => {
                let tailroom_bytes = self.tailroom_bytes.iter().max().copied().unwrap_or(0);
                let bytes = self.headroom_bytes + self.frame_bytes_max + tailroom_bytes;
                let units = bytes.div_ceil(BUFFER_UNIT_BYTES).next_multiple_of(dense.align_units);
                (dense.returned.len() - dense.used) / units
            }
        }
    }

    /// Returns how many packets a worker may receive without using the reserved buffers.
    #[inline]
    pub fn free_for_arrivals(&self) -> usize {
        if self.reserve == 0 { usize::MAX } else { self.free_packets().saturating_sub(self.reserve) }
    }

    /// Returns the number of buffers that were allocated and have not been freed yet.
    pub fn allocated(&self) -> usize {
        self.allocated
    }

    /// Returns the maximum length in bytes of a frame for which [`Region::allocate`] provides a
    /// buffer.
    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    /// Creates a borrower, through which another thread accesses lent buffers.
    pub fn borrower(&self) -> Borrower {
        Borrower::new(Arc::clone(&self.memory), self.id, self.start, self.bytes)
    }

    /// Lends buffers to another thread. The buffers stay allocated, and this region refuses access
    /// to them until they are returned.
    ///
    /// # Panics
    /// Panics if a descriptor does not name a buffer of this region, or if its buffer is already
    /// lent.
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

    /// Returns whether this region has ever lent a buffer to a thread or a port. If not, all its
    /// buffers are accessible.
    pub fn is_lending(&self) -> bool {
        !self.lent.is_unused()
    }

    /// Takes back buffers that were lent to another thread, and frees them.
    ///
    /// # Panics
    /// Panics if the buffers belong to the region of another worker.
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

    /// Lends the buffer of a packet that waits for another worker.
    ///
    /// # Panics
    /// Panics if the descriptor does not name a buffer of this region, or if the buffer is lent.
    #[inline]
    pub(crate) fn lend_one(&mut self, descriptor: &Descriptor) {
        self.begin_lending();
        if !self.contains(descriptor) {
            outside(*descriptor);
        }
        self.lent.insert(self.unit(descriptor), self.marks(descriptor.room));
    }

    /// Takes back and frees a buffer that [`Region::lend_one`] has lent.
    #[inline]
    pub(crate) fn take_back_one(&mut self, descriptor: &Descriptor) {
        self.lent.remove(self.unit(descriptor), self.marks(descriptor.room));
        self.release(descriptor);
    }

    /// Copies a packet of another region into a new buffer, after the headroom. `frame` contains
    /// the bytes of the packet. Returns `None` if no buffer is free.
    #[inline]
    pub(crate) fn copy_in(&mut self, packet: &Descriptor, frame: &[u8]) -> Option<Descriptor> {
        let copy = self.allocate(frame.len())?;
        self.frame_mut(&copy).copy_from_slice(frame);
        Some(Descriptor { buffer: copy.buffer, room: copy.room, head: copy.head, ..*packet })
    }

    /// Returns the packet memory of all regions.
    pub(crate) fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }

    /// Returns the identifier of the region, which is unique in the process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Prepares the set of lent buffers, if no buffer was lent before.
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

    #[inline(always)]
    fn marks(&self, room: u8) -> usize {
        if self.slot_bytes > 0 { 1 } else { usize::from(room) }
    }

    /// Returns the number of free bytes in front of a received frame.
    pub fn headroom_bytes(&self) -> usize {
        self.headroom_bytes
    }

    /// Returns whether the descriptor names a buffer of this region that is not lent. The frame
    /// must lie within the buffer.
    #[inline]
    pub fn contains(&self, descriptor: &Descriptor) -> bool {
        self.is_buffer(descriptor) && !self.is_lent(self.unit(descriptor), descriptor.room)
    }

    /// Returns whether the descriptor names a buffer of this region, lent or not. The frame must
    /// lie within the buffer.
    #[inline(always)]
    fn is_buffer(&self, descriptor: &Descriptor) -> bool {
        let offset = descriptor.buffer_offset().wrapping_sub(self.start);
        offset < self.bytes
            && descriptor.room_bytes() <= self.bytes - offset
            && descriptor.room <= self.room_max
            && usize::from(descriptor.head) + usize::from(descriptor.length) <= descriptor.room_bytes()
    }

    /// Returns the index of a buffer's first 64-byte unit, counted from the start of the region.
    #[inline(always)]
    fn unit(&self, descriptor: &Descriptor) -> usize {
        (descriptor.buffer as usize).wrapping_sub(self.start / BUFFER_UNIT_BYTES)
    }

    /// Returns whether [`Region::contains`] is true for every descriptor.
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

    /// Returns the frame of a packet for reading.
    ///
    /// # Panics
    /// Panics if the descriptor does not name a buffer of this region, or if the buffer is lent.
    #[inline]
    pub fn frame(&self, descriptor: &Descriptor) -> &[u8] {
        if !self.contains(descriptor) {
            outside(*descriptor);
        }
        // SAFETY: `contains` was checked above.
        unsafe { self.frame_unchecked(descriptor) }
    }

    /// Returns the frames of several packets for reading. One check of all descriptors is faster
    /// than separate checks.
    ///
    /// # Panics
    /// Panics if a descriptor does not name a buffer of this region, or if its buffer is lent.
    #[inline]
    pub fn frames<'a>(&'a self, descriptors: &'a [Descriptor]) -> impl ExactSizeIterator<Item = &'a [u8]> {
        if !self.contains_all(descriptors)
            && let Some(other) = descriptors.iter().find(|descriptor| !self.contains(descriptor))
        {
            outside(*other);
        }
        // SAFETY: as in `frame`. `&self` lives as long as the iterator, so no buffer is lent or
        // written during the iteration.
        descriptors.iter().map(|descriptor| unsafe { self.frame_unchecked(descriptor) })
    }

    /// Returns the frame of a packet, without a check.
    ///
    /// # Safety
    /// [`Region::contains`] must be true for the descriptor.
    #[inline]
    unsafe fn frame_unchecked(&self, descriptor: &Descriptor) -> &[u8] {
        // SAFETY: the caller has checked that the buffer lies inside this region and is not lent.
        // Only this Region accesses it, and `&self` excludes writers. A device accesses only
        // submitted packets, and a worker does not access those until they return.
        unsafe {
            let frame = self.memory.base().as_ptr().add(descriptor.frame_offset());
            std::slice::from_raw_parts(frame, usize::from(descriptor.length))
        }
    }

    /// Returns the frame of a packet for writing.
    ///
    /// # Panics
    /// Panics if the descriptor does not name a buffer of this region, or if the buffer is lent.
    #[inline]
    pub fn frame_mut(&mut self, descriptor: &Descriptor) -> &mut [u8] {
        let (head, length) = (usize::from(descriptor.head), usize::from(descriptor.length));
        &mut self.buffer_mut(descriptor)[head..head + length]
    }

    /// Returns the whole buffer of a packet: headroom, frame and tailroom.
    ///
    /// ```
    /// # use godwit_packet::{Arena, ArenaConfig};
    /// # let mut region = Arena::new(ArenaConfig::default(), 1)?.split().remove(0);
    /// let packet = region.allocate(60).expect("the region is empty");
    /// let headroom_bytes = usize::from(packet.head);
    /// region.buffer_mut(&packet)[headroom_bytes..].fill(7);
    /// assert_eq!(region.frame(&packet), [7; 60]);
    /// # Ok::<(), godwit_packet::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the descriptor does not name a buffer of this region, or if the buffer is lent.
    #[inline]
    pub fn buffer_mut(&mut self, descriptor: &Descriptor) -> &mut [u8] {
        if !self.contains(descriptor) {
            outside(*descriptor);
        }
        // SAFETY: the buffer lies inside this region and is not lent, as checked above. Only this
        // Region accesses it, and `&mut self` makes this the only reference.
        unsafe {
            let buffer = self.memory.base().as_ptr().add(descriptor.buffer_offset());
            std::slice::from_raw_parts_mut(buffer, descriptor.room_bytes())
        }
    }

    /// Returns the base address of the arena. Packet descriptors contain offsets from this address.
    ///
    /// A device may access only buffers of this region that are not lent. The worker must have
    /// submitted the packets to the device, or the device's code must hold `&mut Region`.
    pub fn arena_base(&mut self) -> *mut u8 {
        self.memory.base().as_ptr()
    }

    /// Returns the offset of the region in the arena and the size of the region, in bytes.
    pub fn extent(&self) -> (usize, usize) {
        (self.start, self.bytes)
    }
}

/// Panics with a message that contains the descriptor.
///
/// The descriptor is passed by value, because a reference would force the compiler to keep every
/// descriptor in memory. Each packet would then wait for a load.
#[cold]
#[inline(never)]
pub(crate) fn outside(descriptor: Descriptor) -> ! {
    panic!("descriptor outside its region, or its buffer is lent: {descriptor:?}");
}

#[cfg(test)]
mod tests;

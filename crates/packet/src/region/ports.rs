//! Buffers in the hands of ports: posted to be written, handed over to be sent.
//!
//! ```text
//! free --post--> port writes --arrived--> packet --hand_over--> port reads --reclaim--> free
//! ```
//! Each is marked while a port has it, so that the program makes no reference to it and what a port brings back can be checked.

use super::{Buffers, Region, outside};
use crate::{BUFFER_UNIT_BYTES, Descriptor};

impl Region {
    /// Gives a free buffer out of hand, for a port to write a frame into. It is no packet, and not in flight, until it
    /// [arrived](Region::arrived). Returns its first unit of 64 bytes from the arena's base; `None` where no buffer is free, or the
    /// layout is [`Layout::Dense`](crate::Layout::Dense), whose buffers are as long as their frames.
    #[inline]
    pub fn post(&mut self) -> Option<u32> {
        let buffer = match &mut self.buffers {
            Buffers::Slots(slots) => slots.free.pop()?,
            Buffers::SlotQueue(slots) => slots.free.pop_front()?,
            Buffers::Dense(_) => return None,
        };
        self.begin_lending();
        self.lent.insert(buffer as usize - self.start / BUFFER_UNIT_BYTES, 1);
        self.in_ports += 1;
        Some(buffer)
    }

    /// A frame of `length` bytes, `offset` bytes from the arena's base, has been written into a buffer that was posted: it is a packet now.
    /// `None` where that is no buffer in a port's hands, or the frame does not lie in it: such a port is not to be trusted.
    #[inline]
    pub fn arrived(&mut self, offset: usize, length: usize) -> Option<Descriptor> {
        let buffer = self.buffer_at(offset)?;
        let (room, head) = (self.room_max, offset - buffer as usize * BUFFER_UNIT_BYTES);
        if head + length > usize::from(room) * BUFFER_UNIT_BYTES || !self.take_from_port(buffer) {
            return None;
        }
        self.in_ports -= 1;
        self.allocated += 1;
        Some(Descriptor { buffer, head: head as u16, length: length as u16, room, ..Descriptor::default() })
    }

    /// [`Region::arrived`] of frames that arrived together: `place` says of each in which buffer it lies, as [`Region::post`] named it, its head
    /// and its length. `note` is told of each packet, with its frame, in order. Stops at the first that is none; returns how many are.
    #[inline(always)]
    pub fn arrived_each<T>(
        &mut self,
        frames: &[T],
        place: impl Fn(&T) -> (u32, u16, u16),
        mut note: impl FnMut(&T, Descriptor, &[u8]),
    ) -> usize {
        let (base, room) = (self.memory.base().as_ptr(), self.room_max);
        let mut arrived = 0;
        for frame in frames {
            let (buffer, head, length) = place(frame);
            let bytes = usize::from(head) + usize::from(length);
            if bytes > usize::from(room) * BUFFER_UNIT_BYTES || !self.take_from_port(buffer) {
                break;
            }
            arrived += 1;
            let descriptor = Descriptor { buffer, head, length, room, ..Descriptor::default() };
            debug_assert!(self.contains(&descriptor));
            // SAFETY: a buffer of this region that a port has just given back, so that nobody else has it; the frame lies within it. `&mut
            // self` forbids that it is handed over, lent or released while the frame is looked at.
            let bytes = unsafe { std::slice::from_raw_parts(base.add(descriptor.frame_offset()), usize::from(length)) };
            note(frame, descriptor, bytes);
        }
        self.in_ports -= arrived as isize;
        self.allocated += arrived;
        arrived
    }

    /// Gives a packet that is to be sent out of hand, to a port that reads it later: it is no longer in flight, but its buffer is not free
    /// before it is [reclaimed](Region::reclaim).
    ///
    /// # Panics
    /// When the packet is not of this region, or lent, or the layout has no slots.
    #[inline]
    pub fn hand_over(&mut self, descriptor: &Descriptor) {
        self.hand_over_all(std::iter::once(descriptor));
    }

    /// [`Region::hand_over`] of several packets.
    ///
    /// # Panics
    /// As there, for any of them.
    #[inline]
    pub fn hand_over_all<'a>(&mut self, descriptors: impl Iterator<Item = &'a Descriptor>) {
        assert!(self.slot_bytes > 0, "a dense ring hands over no buffers");
        self.begin_lending();
        let mut handed_over = 0;
        for descriptor in descriptors {
            if !self.is_buffer(descriptor) || !self.lent.add(self.unit(descriptor)) {
                outside(*descriptor);
            }
            handed_over += 1;
        }
        debug_assert!(self.allocated >= handed_over, "a buffer was returned twice");
        self.allocated -= handed_over;
        self.in_ports += handed_over as isize;
    }

    /// A buffer that a port had is back, and free.
    ///
    /// # Panics
    /// When no port had it.
    #[inline]
    pub fn reclaim(&mut self, buffer: u32) {
        assert!(self.take_from_port(buffer), "buffer {buffer} is in no port's hands");
        self.in_ports -= 1;
        match &mut self.buffers {
            Buffers::Slots(slots) => slots.free.push(buffer),
            Buffers::SlotQueue(slots) => slots.free.push_back(buffer),
            Buffers::Dense(_) => unreachable!("a dense ring hands over no buffers"),
        }
    }

    /// The buffer that a byte lies in, `offset` bytes from the arena's base.
    #[inline]
    pub fn buffer_at(&self, offset: usize) -> Option<u32> {
        let inside = offset.wrapping_sub(self.start);
        if inside >= self.bytes || self.slot_bytes == 0 {
            return None;
        }
        // Units modulo those of a slot (Lemire, Kaser, Kurz, "Faster remainder by direct computation", 2019): exact below 2^32 units,
        // and an arena has no more.
        let fraction = ((inside / BUFFER_UNIT_BYTES) as u64).wrapping_mul(self.slot_inverse);
        let in_slot = (u128::from(fraction) * (self.slot_bytes / BUFFER_UNIT_BYTES) as u128) >> 64;
        let behind = (in_slot as usize).checked_sub(self.prefix_bytes / BUFFER_UNIT_BYTES)?;
        Some((offset / BUFFER_UNIT_BYTES - behind) as u32)
    }

    /// Buffers that ports have, to be written or to be read.
    pub fn in_ports(&self) -> usize {
        self.in_ports.max(0) as usize
    }

    /// The buffer is no port's any more; false where no port had it. The caller counts.
    #[inline(always)]
    fn take_from_port(&mut self, buffer: u32) -> bool {
        let unit = (buffer as usize).wrapping_sub(self.start / BUFFER_UNIT_BYTES);
        let in_slots = unit.wrapping_sub(self.prefix_bytes / BUFFER_UNIT_BYTES) as u64;
        // A multiple of a slot's units has no fraction to speak of (see `buffer_at`).
        let is_buffer = self.slot_bytes > 0
            && unit < self.bytes / BUFFER_UNIT_BYTES
            && in_slots < self.bytes as u64
            && in_slots.wrapping_mul(self.slot_inverse) <= self.slot_inverse.wrapping_sub(1);
        is_buffer && self.lent.take(unit)
    }
}

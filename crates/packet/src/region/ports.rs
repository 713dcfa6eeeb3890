//! Buffers that ports hold. A port holds a buffer to receive a frame or to send a frame. The
//! methods of this file move a buffer through these states:
//!
//! ```text
//! free --post--> port writes --arrived--> packet --hand_over--> port reads --reclaim--> free
//! ```
//!
//! A buffer is marked while a port holds it. The region creates no reference to a marked buffer. If
//! a port returns a buffer, the region checks the mark.

use super::{Buffers, Region, outside};
use crate::{BUFFER_UNIT_BYTES, Descriptor};

impl Region {
    /// Gives a free buffer to a port, which will write a received frame into it.
    ///
    /// The buffer counts as a packet in flight only after its frame has [arrived](Region::arrived).
    /// Returns the offset of the buffer from the base of the arena, in units of 64 bytes.
    ///
    /// Returns `None` if no buffer is free except for the [reserve](Region::set_reserve). Also
    /// returns `None` in [`Layout::Dense`](crate::Layout::Dense), where the size of a buffer
    /// depends on its frame.
    #[inline]
    pub fn post(&mut self) -> Option<u32> {
        if self.reserve > 0 && self.free_packets() <= self.reserve {
            return None;
        }
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

    /// Converts a buffer into a packet after a port has written a received frame into it.
    ///
    /// The frame of `length` bytes starts at `offset` in the arena. Returns `None` if no port holds
    /// the buffer, or if the frame does not lie within it. Both cases are errors of the port.
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

    /// Converts several buffers into packets, as [`Region::arrived`] does for one buffer.
    ///
    /// `locate` returns three values for a frame: the number of its buffer from [`Region::post`],
    /// its offset in the buffer, and its length. The method calls `note` for each packet. It stops
    /// at the first invalid frame, and returns the number of packets.
    #[inline(always)]
    pub fn arrived_each<T>(
        &mut self,
        frames: &[T],
        locate: impl Fn(&T) -> (u32, u16, u16),
        mut note: impl FnMut(&T, Descriptor, &[u8]),
    ) -> usize {
        let (base, room) = (self.memory.base().as_ptr(), self.room_max);
        let mut arrived = 0;
        for frame in frames {
            let (buffer, head, length) = locate(frame);
            let bytes = usize::from(head) + usize::from(length);
            if bytes > usize::from(room) * BUFFER_UNIT_BYTES || !self.take_from_port(buffer) {
                break;
            }
            arrived += 1;
            let descriptor = Descriptor { buffer, head, length, room, ..Descriptor::default() };
            debug_assert!(self.contains(&descriptor));
            // SAFETY: a port has just returned this buffer of the region, so it has no other user,
            // and the frame lies within it. `&mut self` prevents that the buffer is handed over,
            // lent or released while `bytes` lives.
            let bytes = unsafe { std::slice::from_raw_parts(base.add(descriptor.frame_offset()), usize::from(length)) };
            note(frame, descriptor, bytes);
        }
        self.in_ports -= arrived as isize;
        self.allocated += arrived;
        arrived
    }

    /// Passes a packet to a port, which sends it later.
    ///
    /// The packet no longer counts as in flight. Its buffer is not free until
    /// [`reclaim`](Region::reclaim) is called.
    ///
    /// # Panics
    /// Panics if the packet does not belong to this region, or if another thread or a port holds
    /// its buffer. Also panics if the buffers have different sizes.
    #[inline]
    pub fn hand_over(&mut self, descriptor: &Descriptor) {
        self.hand_over_all(std::iter::once(descriptor));
    }

    /// Passes several packets to a port, as [`Region::hand_over`] does for one packet.
    ///
    /// # Panics
    /// Panics for any of the packets in the same cases as [`Region::hand_over`].
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

    /// Takes a buffer back from a port, and frees the buffer.
    ///
    /// # Panics
    /// Panics if no port holds the buffer.
    #[inline]
    pub fn reclaim(&mut self, buffer: u32) {
        assert!(self.take_from_port(buffer), "no port holds buffer {buffer}");
        self.in_ports -= 1;
        match &mut self.buffers {
            Buffers::Slots(slots) => slots.free.push(buffer),
            Buffers::SlotQueue(slots) => slots.free.push_back(buffer),
            Buffers::Dense(_) => unreachable!("a dense ring hands over no buffers"),
        }
    }

    /// Returns the buffer that contains the byte at `offset` in the arena. Returns `None` if no
    /// buffer contains this byte.
    #[inline]
    pub fn buffer_at(&self, offset: usize) -> Option<u32> {
        let inside = offset.wrapping_sub(self.start);
        if inside >= self.bytes || self.slot_bytes == 0 {
            return None;
        }
        // The remainder of the division by the number of units per buffer is computed with
        // multiplications (Lemire, Kaser, Kurz, "Faster remainder by direct computation", 2019). It
        // is exact for positions below 2^32.
        let fraction = ((inside / BUFFER_UNIT_BYTES) as u64).wrapping_mul(self.slot_inverse);
        let in_slot = (u128::from(fraction) * (self.slot_bytes / BUFFER_UNIT_BYTES) as u128) >> 64;
        let in_buffer = (in_slot as usize).checked_sub(self.prefix_bytes / BUFFER_UNIT_BYTES)?;
        Some((offset / BUFFER_UNIT_BYTES - in_buffer) as u32)
    }

    /// Returns the number of buffers that ports hold, for received frames and for frames to send.
    pub fn in_ports(&self) -> usize {
        self.in_ports.max(0) as usize
    }

    /// Removes the mark of a buffer that a port holds. Returns false if the buffer is not marked.
    #[inline(always)]
    fn take_from_port(&mut self, buffer: u32) -> bool {
        let unit = (buffer as usize).wrapping_sub(self.start / BUFFER_UNIT_BYTES);
        let in_slots = unit.wrapping_sub(self.prefix_bytes / BUFFER_UNIT_BYTES) as u64;
        // The position is a multiple of the buffer distance if its product with `inverse`, modulo
        // 2^64, is below `inverse` (Lemire, Kaser, Kurz, 2019).
        let is_buffer = self.slot_bytes > 0
            && unit < self.bytes / BUFFER_UNIT_BYTES
            && in_slots < self.bytes as u64
            && in_slots.wrapping_mul(self.slot_inverse) <= self.slot_inverse.wrapping_sub(1);
        is_buffer && self.lent.take(unit)
    }
}

//! Buffers for many packets at once, each written at once.

use super::dense::aligned;
use super::{Buffers, Region};
use crate::{BUFFER_UNIT_BYTES, Descriptor};

/// Buffers of up to so many units are fetched whole.
const FETCHED_UNITS_MAX: u8 = 4;
/// How far ahead those are fetched.
const FETCHED_AHEAD_BYTES: usize = 2048;

impl Region {
    /// How many packets ahead lines are fetched that headers go to: what a core writes in the time that memory takes (with 8,
    /// `worker_cost imix` takes 1.5 ns a packet more, with 28 as many).
    pub const FETCHED_AHEAD_PACKETS: usize = 16;

    /// Buffers for frames of these lengths, until there is none, appended to `packets`; returns how many. Each frame is written at
    /// once: `write` gets the number of its length, the packet, of which it may set port and flow hash, and its buffer from the frame's
    /// first byte on. For one packet as [`Region::allocate`] and [`Region::buffer_mut`], without what packets have in common.
    ///
    /// `next`: up to [`Region::FETCHED_AHEAD_PACKETS`] lengths that will probably be asked for next. Lines of their buffers are fetched already.
    #[inline(always)]
    pub fn allocate_each(
        &mut self,
        lengths: &[u16],
        next: &[u16],
        packets: &mut Vec<Descriptor>,
        mut write: impl FnMut(usize, &mut Descriptor, &mut [u8]),
    ) -> usize {
        let Some((&first, rest)) = lengths.split_first() else { return 0 };
        // Whether all have one length is found out without a branch for each.
        if rest.iter().fold(0, |differs, other| differs | (other ^ first)) == 0 {
            return self.allocate_alike(first, lengths.len(), packets, write);
        }
        let start = packets.len();
        if let Some(align_units) = self.place_together(lengths, packets) {
            self.write_placed(&mut packets[start..], lengths.iter().chain(next), align_units, write);
            return lengths.len();
        }
        let mut made = 0;
        for run in lengths.chunk_by(|one, next| one == next) {
            let write = |packet, descriptor: &mut _, frame: &mut _| write(made + packet, descriptor, frame);
            let found = self.allocate_alike(run[0], run.len(), packets, write);
            made += found;
            if found < run.len() {
                break;
            }
        }
        made
    }

    /// The same for `count` frames of one length.
    #[inline(always)]
    fn allocate_alike(
        &mut self,
        length: u16,
        count: usize,
        packets: &mut Vec<Descriptor>,
        mut write: impl FnMut(usize, &mut Descriptor, &mut [u8]),
    ) -> usize {
        let base = self.memory.base().as_ptr();
        let mut made = 0;
        while made < count {
            let Some((first, run)) = self.allocate_run(length.into(), count - made) else { break };
            let (head, room) = (usize::from(first.head), first.room_bytes());
            let is_dense = matches!(self.buffers, Buffers::Dense(_));
            let fetched_units = if is_dense && first.room <= FETCHED_UNITS_MAX { first.room } else { 0 };
            let start = packets.len();
            let buffer = |packet: u32| first.buffer + packet * u32::from(first.room);
            packets.extend((0..run as u32).map(|packet| Descriptor { buffer: buffer(packet), ..first }));
            debug_assert!(self.contains_all(&packets[start..]));
            let mut at = base.wrapping_add(first.buffer_offset());
            for (index, packet) in packets[start..].iter_mut().enumerate() {
                let ahead = at.wrapping_add(FETCHED_AHEAD_BYTES);
                if fetched_units == 2 {
                    // Short frames, of which there are most in a second.
                    fetch_to_write(ahead);
                    fetch_to_write(ahead.wrapping_add(BUFFER_UNIT_BYTES));
                } else if fetched_units > 0 {
                    (0..usize::from(fetched_units))
                        .for_each(|unit| fetch_to_write(ahead.wrapping_add(unit * BUFFER_UNIT_BYTES)));
                } else if is_dense {
                    fetch_headers(at.wrapping_add(Self::FETCHED_AHEAD_PACKETS * room + head));
                }
                // SAFETY: a buffer of this region that was free until now, so that nobody has it, a borrower neither; `&mut self`
                // makes this the only reference. The headroom is part of it.
                write(made + index, packet, unsafe { std::slice::from_raw_parts_mut(at.add(head), room - head) });
                at = at.wrapping_add(room);
            }
            made += run;
        }
        made
    }

    /// Buffers side by side for frames of one length: the first one's, and for how many of the `packets` they are, at least one.
    #[inline(always)]
    fn allocate_run(&mut self, length: usize, packets: usize) -> Option<(Descriptor, usize)> {
        if let Buffers::Dense(dense) = &mut self.buffers
            && length <= self.frame_bytes_max
        {
            let units = units(self.headroom_bytes, length, &self.tailroom_bytes, dense.align_units);
            // Nearly always all fit in front of the ring's end.
            if dense.fits_at_head(packets * units) {
                let unit = dense.place(packets * units).0;
                self.allocated += packets;
                let buffer = (self.start / BUFFER_UNIT_BYTES + unit) as u32;
                let (head, length, room) = (self.headroom_bytes as u16, length as u16, units as u8);
                return Some((Descriptor { buffer, head, length, room, ..Descriptor::default() }, packets));
            }
        }
        Some((self.allocate(length)?, 1))
    }

    /// Buffers side by side for frames of any lengths, appended to `packets`: nothing branches on a length, for nobody can predict
    /// those of mixed traffic. Returns what buffers are aligned to, in units. `None`, and nothing has changed: not all fit in front
    /// of the ring's end, there is no ring, or a frame is too long.
    #[inline(always)]
    fn place_together(&mut self, lengths: &[u16], packets: &mut Vec<Descriptor>) -> Option<usize> {
        let Buffers::Dense(dense) = &mut self.buffers else { return None };
        let (start, first) = (packets.len(), self.start / BUFFER_UNIT_BYTES + dense.head);
        let (mut sum, mut longest) = (0, 0);
        // Written in place: what a closure in `extend` adds up stays in memory, where each packet waits for the one before.
        packets.resize(start + lengths.len(), Descriptor::default());
        for (packet, &length) in packets[start..].iter_mut().zip(lengths) {
            let room = units(self.headroom_bytes, length.into(), &self.tailroom_bytes, dense.align_units);
            let (buffer, head) = ((first + sum) as u32, self.headroom_bytes as u16);
            *packet = Descriptor { buffer, head, length, room: room as u8, ..Descriptor::default() };
            sum += room;
            longest = length.max(longest);
        }
        if usize::from(longest) > self.frame_bytes_max || !dense.fits_at_head(sum) {
            packets.truncate(start);
            return None;
        }
        dense.place(sum);
        self.allocated += lengths.len();
        Some(dense.align_units)
    }

    /// Writes the frames of packets that [`Region::place_together`] has just placed. `lengths`: theirs, and of those that come next.
    #[inline(always)]
    fn write_placed<'a>(
        &mut self,
        packets: &mut [Descriptor],
        mut lengths: impl Iterator<Item = &'a u16>,
        align_units: usize,
        mut write: impl FnMut(usize, &mut Descriptor, &mut [u8]),
    ) {
        debug_assert!(self.contains_all(packets));
        let base = self.memory.base().as_ptr();
        // Where buffers of packets to come are, or would be if the ring did not end.
        let mut ahead = packets.first().map_or(base, |first| base.wrapping_add(first.frame_offset()));
        let mut fetch_next = || {
            let Some(&length) = lengths.next() else { return };
            fetch_headers(ahead);
            let room = units(self.headroom_bytes, length.into(), &self.tailroom_bytes, align_units);
            ahead = ahead.wrapping_add(room * BUFFER_UNIT_BYTES);
        };
        (0..Self::FETCHED_AHEAD_PACKETS).for_each(|_| fetch_next());
        for (index, packet) in packets.iter_mut().enumerate() {
            fetch_next();
            let (at, room) = (packet.frame_offset(), packet.room_bytes() - usize::from(packet.head));
            // SAFETY: as in `allocate_alike`: placed just before, and no two buffers overlap.
            write(index, packet, unsafe { std::slice::from_raw_parts_mut(base.add(at), room) });
        }
    }
}

/// Units of a buffer for a frame of `length` bytes.
#[inline(always)]
fn units(headroom_bytes: usize, length: usize, tailroom_bytes: &[usize; 16], align_units: usize) -> usize {
    let bytes = headroom_bytes + length + tailroom_bytes[length % 16];
    aligned(bytes.div_ceil(BUFFER_UNIT_BYTES), align_units)
}

/// Brings the lines here that the headers of a frame go to. What else is written of a long frame the processor sees coming.
#[inline(always)]
fn fetch_headers(frame: *mut u8) {
    fetch_to_write(frame);
    fetch_to_write(frame.wrapping_add(BUFFER_UNIT_BYTES));
}

/// Brings a cache line here that is going to be written. A ring of buffers is cold: each of them was last in the hands of a
/// device, or long ago, and stores that wait for their lines hold up all stores behind them.
#[inline(always)]
fn fetch_to_write(line: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing that the program could see, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

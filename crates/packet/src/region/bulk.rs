//! Allocates buffers for many packets at once, and calls a closure that writes each frame.

use super::dense::aligned;
use super::{Buffers, Region};
use crate::{BUFFER_UNIT_BYTES, Descriptor};

/// Maximum size of completely prefetched buffers, in units of 64 bytes. For larger buffers, only
/// the header cache lines are prefetched.
const FETCHED_UNITS_MAX: u8 = 4;
/// Prefetch distance in bytes for buffers of up to [`FETCHED_UNITS_MAX`] units.
const FETCHED_AHEAD_BYTES: usize = 2048;

impl Region {
    /// Prefetch distance in packets for the header cache lines of new packets. A core writes about
    /// this many packets during one memory access.
    ///
    /// In the benchmark `worker_cost imix`, a distance of 8 packets was slower, and a distance of
    /// 28 packets was not faster.
    pub const FETCHED_AHEAD_PACKETS: usize = 16;

    /// Allocates buffers for frames of the given lengths, and appends the packets to `packets`.
    ///
    /// `write` fills each frame. Its arguments are the index of the length, the packet, and the
    /// buffer from the frame's first byte on. It may set the packet's port and flow hash.
    /// Allocation stops when no buffer is free. Returns the number of allocated packets.
    ///
    /// The result equals that of [`Region::allocate`] and [`Region::buffer_mut`] for each packet.
    /// This method is faster, because it does some work only once.
    ///
    /// `next` holds up to [`Region::FETCHED_AHEAD_PACKETS`] lengths that the caller will probably
    /// request next. Cache lines of the buffers for these lengths are prefetched.
    #[inline(always)]
    pub fn allocate_each(
        &mut self,
        lengths: &[u16],
        next: &[u16],
        packets: &mut Vec<Descriptor>,
        mut write: impl FnMut(usize, &mut Descriptor, &mut [u8]),
    ) -> usize {
        let Some((&first, rest)) = lengths.split_first() else { return 0 };
        // This comparison of all lengths has no branch per packet.
        if rest.iter().fold(0, |differs, other| differs | (other ^ first)) == 0 {
            return self.allocate_alike(first, lengths.len(), packets, write);
        }
        let start = packets.len();
        if let Some(align_units) = self.allocate_adjacent(lengths, packets) {
            self.write_adjacent(&mut packets[start..], lengths.iter().chain(next), align_units, write);
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

    /// Allocates buffers for `count` frames of the same length, and calls `write` for each frame.
    /// The result equals that of [`Region::allocate_each`] with equal lengths.
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
                    // Short frames arrive at the highest rate, so they have a separate case.
                    fetch_to_write(ahead);
                    fetch_to_write(ahead.wrapping_add(BUFFER_UNIT_BYTES));
                } else if fetched_units > 0 {
                    (0..usize::from(fetched_units))
                        .for_each(|unit| fetch_to_write(ahead.wrapping_add(unit * BUFFER_UNIT_BYTES)));
                } else if is_dense {
                    fetch_headers(at.wrapping_add(Self::FETCHED_AHEAD_PACKETS * room + head));
                }
                // SAFETY: the buffer is in this region and was free until now, so no packet and no
                // borrower uses it. `&mut self` makes this the only reference. The headroom is part
                // of the buffer.
                write(made + index, packet, unsafe { std::slice::from_raw_parts_mut(at.add(head), room - head) });
                at = at.wrapping_add(room);
            }
            made += run;
        }
        made
    }

    /// Allocates adjacent buffers for frames of the same length. Returns the first packet and the
    /// number of allocated buffers, which is between 1 and `packets`.
    #[inline(always)]
    fn allocate_run(&mut self, length: usize, packets: usize) -> Option<(Descriptor, usize)> {
        if let Buffers::Dense(dense) = &mut self.buffers
            && length <= self.frame_bytes_max
        {
            let units = units(self.headroom_bytes, length, &self.tailroom_bytes, dense.align_units);
            // All buffers usually fit before the end of the ring.
            if dense.fits_at_head(packets * units) {
                let unit = dense.take_at_head(packets * units).0;
                self.allocated += packets;
                let buffer = (self.start / BUFFER_UNIT_BYTES + unit) as u32;
                let (head, length, room) = (self.headroom_bytes as u16, length as u16, units as u8);
                return Some((Descriptor { buffer, head, length, room, ..Descriptor::default() }, packets));
            }
        }
        Some((self.allocate(length)?, 1))
    }

    /// Allocates adjacent buffers for frames of different lengths, and appends the packets to
    /// `packets`.
    ///
    /// The code has no branch that depends on a length, because the processor cannot predict the
    /// lengths of mixed traffic. Returns the alignment of buffers, in units of 64 bytes.
    ///
    /// Returns `None` and changes nothing if the layout is not `dense`, if a frame is too long, or
    /// if the buffers do not all fit before the end of the ring.
    #[inline(always)]
    fn allocate_adjacent(&mut self, lengths: &[u16], packets: &mut Vec<Descriptor>) -> Option<usize> {
        let Buffers::Dense(dense) = &mut self.buffers else { return None };
        let (start, first) = (packets.len(), self.start / BUFFER_UNIT_BYTES + dense.head);
        let (mut sum, mut longest) = (0, 0);
        // Write the descriptors in place. With `extend`, the compiler would keep the sum of the
        // buffer sizes in memory. Each packet would then wait for the store of the previous sum.
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
        dense.take_at_head(sum);
        self.allocated += lengths.len();
        Some(dense.align_units)
    }

    /// Writes the frames of packets from [`Region::allocate_adjacent`]. `lengths` yields the
    /// lengths of these packets, and then the expected lengths of later packets. The buffers of the
    /// later packets are prefetched.
    #[inline(always)]
    fn write_adjacent<'a>(
        &mut self,
        packets: &mut [Descriptor],
        mut lengths: impl Iterator<Item = &'a u16>,
        align_units: usize,
        mut write: impl FnMut(usize, &mut Descriptor, &mut [u8]),
    ) {
        debug_assert!(self.contains_all(packets));
        let base = self.memory.base().as_ptr();
        // Address of the next buffer to prefetch. It may be wrong beyond the end of the ring, which
        // is harmless.
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
            // SAFETY: as in `allocate_alike`. The buffers were just allocated and do not overlap.
            write(index, packet, unsafe { std::slice::from_raw_parts_mut(base.add(at), room) });
        }
    }
}

/// Returns the size of the buffer for a frame of `length` bytes, in units of 64 bytes.
#[inline(always)]
fn units(headroom_bytes: usize, length: usize, tailroom_bytes: &[usize; 16], align_units: usize) -> usize {
    let bytes = headroom_bytes + length + tailroom_bytes[length % 16];
    aligned(bytes.div_ceil(BUFFER_UNIT_BYTES), align_units)
}

/// Prefetches the header cache lines of a frame. The hardware prefetcher loads the rest of a long
/// frame.
#[inline(always)]
fn fetch_headers(frame: *mut u8) {
    fetch_to_write(frame);
    fetch_to_write(frame.wrapping_add(BUFFER_UNIT_BYTES));
}

/// Prefetches a cache line for writing. The cache lines of packet buffers are usually not in the
/// core's cache. Without the prefetch, a store that misses the cache would delay all later stores.
#[inline(always)]
fn fetch_to_write(line: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect that the program can observe, for any address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

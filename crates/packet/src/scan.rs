//! One pass over descriptors: all that must be known of them before anybody reaches their packets. A core that feeds
//! a GPU has three nanoseconds for a packet, so two go through at once where the core can do that.

use godwit_abi::{Descriptor, WINDOW_UNIT_BYTES};

mod together;

pub(crate) use together::side_by_side;
pub use together::{Extents, are_in_order, extents, verdict_of_all};

/// What descriptors have in common. Windows and rooms are in units of windows, heads and lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Where the first window begins.
    pub first: u32,
    /// Where the last begins.
    pub last: u32,
    /// Where the last ends; wide enough for any descriptor, however wrong.
    pub end: u64,
    /// All rooms.
    pub units: u64,
    /// The largest.
    pub room: u32,
    /// The least head.
    pub head: u32,
    /// Where the frame ends that reaches furthest into its window.
    pub frame_end: u32,
    /// All lengths, none counted beyond what is read.
    pub read_bytes: u64,
    /// Whether a frame reaches beyond its window.
    pub beyond: bool,
}

impl Scan {
    const NONE: Self = Self {
        first: u32::MAX,
        last: 0,
        end: 0,
        units: 0,
        room: 0,
        head: u32::MAX,
        frame_end: 0,
        read_bytes: 0,
        beyond: false,
    };

    #[inline(always)]
    fn add(&mut self, descriptor: &Descriptor, reads_bytes: u16) {
        let (head, length) = (u32::from(descriptor.head), u32::from(descriptor.length));
        self.first = self.first.min(descriptor.window);
        self.last = self.last.max(descriptor.window);
        self.end = self.end.max(u64::from(descriptor.window) + u64::from(descriptor.room));
        self.units += u64::from(descriptor.room);
        self.room = self.room.max(descriptor.room.into());
        self.head = self.head.min(head);
        self.frame_end = self.frame_end.max(head + length);
        self.read_bytes += u64::from(descriptor.length.min(reads_bytes));
        self.beyond |= head + length > u32::from(descriptor.room) * WINDOW_UNIT_BYTES as u32;
    }
}

/// Scans descriptors of a function that reads so many bytes of a frame.
#[inline]
pub fn scan(descriptors: &[Descriptor], reads_bytes: u16) -> Scan {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { scan_avx2(descriptors, reads_bytes) };
    }
    scan_each(descriptors, reads_bytes)
}

fn scan_each(descriptors: &[Descriptor], reads_bytes: u16) -> Scan {
    let mut scan = Scan::NONE;
    descriptors.iter().for_each(|descriptor| scan.add(descriptor, reads_bytes));
    scan
}

/// Bins have at most so many packets, so no sum of 32 bits wraps.
#[cfg(target_arch = "x86_64")]
const PACKETS_MAX: usize = 1 << 16;

/// So far ahead descriptors are asked for, those of the next bins mostly.
#[cfg(target_arch = "x86_64")]
const AHEAD_BYTES: usize = 4096;

/// A descriptor is four words: window; head and length; room, port and order; flow hash. Two of them make a vector, whose
/// lanes of the same word are looked at together; what the other lanes then hold means nothing.
///
/// # Safety
/// The processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn scan_avx2(descriptors: &[Descriptor], reads_bytes: u16) -> Scan {
    use std::arch::x86_64::*;

    const { assert!(std::mem::offset_of!(Descriptor, head) == 4 && std::mem::offset_of!(Descriptor, room) == 8) };
    let (pairs, rest) = descriptors.as_chunks::<2>();
    if descriptors.len() > PACKETS_MAX || pairs.is_empty() {
        return scan_each(descriptors, reads_bytes);
    }
    let (low8, low16) = (_mm256_set1_epi32(0xff), _mm256_set1_epi32(0xffff));
    let reach = _mm256_set1_epi32(i32::from(reads_bytes));
    let (mut first, mut last, mut end) = (_mm256_set1_epi32(-1), _mm256_setzero_si256(), _mm256_setzero_si256());
    let (mut units, mut largest, mut read_bytes) =
        (_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256());
    let (mut head, mut frame_end, mut beyond) = (low16, _mm256_setzero_si256(), _mm256_setzero_si256());
    for pair in pairs {
        // The processor looks ahead within a page of 4 KiB only, and whoever wrote these may have been a device.
        _mm_prefetch::<_MM_HINT_T0>(pair.as_ptr().cast::<i8>().wrapping_add(AHEAD_BYTES));
        // SAFETY: two descriptors are 32 bytes.
        let words = unsafe { _mm256_loadu_si256(pair.as_ptr().cast()) };
        // Room, beside the window and beside head and length.
        let room = _mm256_and_si256(_mm256_shuffle_epi32::<0b10_10_10_10>(words), low8);
        first = _mm256_min_epu32(first, words);
        last = _mm256_max_epu32(last, words);
        end = _mm256_max_epu32(end, _mm256_add_epi32(words, room));
        units = _mm256_add_epi32(units, room);
        largest = _mm256_max_epu32(largest, room);
        let length = _mm256_srli_epi32::<16>(words);
        let start = _mm256_and_si256(words, low16);
        let stop = _mm256_add_epi32(start, length);
        head = _mm256_min_epu32(head, start);
        frame_end = _mm256_max_epu32(frame_end, stop);
        read_bytes = _mm256_add_epi32(read_bytes, _mm256_min_epu32(length, reach));
        beyond = _mm256_or_si256(beyond, _mm256_cmpgt_epi32(stop, _mm256_slli_epi32::<6>(room)));
    }
    let lanes = |vector: __m256i| {
        let mut lanes = [0_u32; 8];
        // SAFETY: eight words are 32 bytes.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), vector) };
        lanes
    };
    let (first, last, end, units, largest) = (lanes(first), lanes(last), lanes(end), lanes(units), lanes(largest));
    let (head, frame_end, read_bytes, beyond) = (lanes(head), lanes(frame_end), lanes(read_bytes), lanes(beyond));
    let last = last[0].max(last[4]);
    let mut scan = Scan {
        first: first[0].min(first[4]),
        last,
        // A sum wrapped where a window is so far out that no arena reaches there.
        end: if last > u32::MAX - 0xff { u64::from(u32::MAX) + 0xff } else { end[0].max(end[4]).into() },
        units: u64::from(units[0]) + u64::from(units[4]),
        room: largest[0].max(largest[4]),
        head: head[1].min(head[5]),
        frame_end: frame_end[1].max(frame_end[5]),
        read_bytes: u64::from(read_bytes[1]) + u64::from(read_bytes[5]),
        beyond: beyond[1] | beyond[5] != 0,
    };
    rest.iter().for_each(|descriptor| scan.add(descriptor, reads_bytes));
    scan
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn descriptor() -> impl Strategy<Value = Descriptor> {
        let window = prop_oneof![0..1_u32 << 20, Just(u32::MAX - 300), any::<u32>()];
        (window, any::<[u16; 2]>(), any::<u8>(), any::<u8>(), any::<u32>()).prop_map(
            |(window, [head, length], room, port, flow_hash)| Descriptor {
                window,
                head: head % 300,
                length: if port < 250 { length % 2000 } else { length },
                room,
                port,
                order: length,
                flow_hash,
            },
        )
    }

    proptest! {
        #[test]
        fn several_at_once_are_as_one_by_one(
            descriptors in prop::collection::vec(descriptor(), 0..70),
            reads_bytes in prop_oneof![Just(u16::MAX), 0..200_u16],
        ) {
            let slow = scan_each(&descriptors, reads_bytes);
            // Far out, it is only known that it is.
            let known = |scan: Scan| if scan.last > u32::MAX - 0xff { Scan { end: 0, ..scan } } else { scan };
            let mut forms = vec![scan(&descriptors, reads_bytes)];
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2.
                forms.push(unsafe { scan_avx2(&descriptors, reads_bytes) });
            }
            for fast in forms {
                prop_assert_eq!(known(fast), known(slow));
                prop_assert!(fast.end >= slow.end);
            }
        }
    }
}

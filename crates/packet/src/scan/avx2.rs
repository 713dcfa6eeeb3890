//! Summarizes packet descriptors with AVX2, eight descriptors at a time. A descriptor consists of
//! four 32-bit words. The first three words of eight descriptors are rearranged into three vectors:
//!
//! ```text
//! descriptor:        buffer | head, length | room, port, order | flow hash      words of 32 bits
//! eight at a time:   8 buffers    8 heads and lengths    8 rooms                one vector each
//! ```
//!
//! The eight SIMD lanes of a vector contain the descriptors in the order 0 2 4 6 1 3 5 7.

use std::arch::x86_64::*;

use godwit_abi::Descriptor;

use super::Scan;

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Descriptor, buffer) == 0 && offset_of!(Descriptor, head) == 4);
    assert!(offset_of!(Descriptor, room) == 8 && size_of::<Descriptor>() == 16);
};

/// Maximum number of packets per scan step. The 32-bit sums cover at most twice this number of
/// packets, so they cannot overflow.
const PACKETS_MAX: usize = 1 << 15;

/// Distance in bytes from the scanned to the prefetched descriptors.
const AHEAD_BYTES: usize = 4096;

/// Load masks for fewer than eight descriptors of four words each. The masks for `n` descriptors
/// are the 32 masks from index `32 - 4 * n` on.
static MASKS: [i32; 64] = {
    let mut masks = [0; 64];
    let mut word = 0;
    while word < 32 {
        masks[word] = -1;
        word += 1;
    }
    masks
};

/// Reduces each of four vectors to one 32-bit word. The operation combines all SIMD lanes.
macro_rules! reduce_lanes {
    ($of_eight:ident, $of_four:ident, $vectors:expr) => {{
        let [a, b, c, d] = $vectors;
        let front = $of_eight(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let back = $of_eight(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        let both = $of_eight(_mm256_unpacklo_epi64(front, back), _mm256_unpackhi_epi64(front, back));
        let four = $of_four(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both));
        let mut words = [0_u32; 4];
        // SAFETY: four words are 16 bytes.
        unsafe { _mm_storeu_si128(words.as_mut_ptr().cast(), four) };
        words
    }};
}

/// Minima, maxima and sums over the scanned descriptors, with separate values for each of eight
/// SIMD lanes.
struct Eights {
    first: __m256i,
    last: __m256i,
    end: __m256i,
    units: __m256i,
    room: __m256i,
    head: __m256i,
    frame_end: __m256i,
    read_bytes: __m256i,
    beyond: __m256i,
}

impl Eights {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn none() -> Self {
        let (ones, zeros) = (_mm256_set1_epi32(-1), _mm256_setzero_si256());
        let (units, read_bytes) = (zeros, zeros);
        Self {
            first: ones,
            last: zeros,
            end: zeros,
            units,
            room: zeros,
            head: ones,
            frame_end: zeros,
            read_bytes,
            beyond: zeros,
        }
    }

    /// Adds eight descriptors to the minima, maxima and sums. Each vector in `pairs` contains two
    /// descriptors. The words of an absent descriptor are 0, and its SIMD lane in `missing` is all
    /// ones.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(&mut self, pairs: [__m256i; 4], reach: __m256i, missing: __m256i) {
        let (low8, low16) = (_mm256_set1_epi32(0xff), _mm256_set1_epi32(0xffff));
        let (front, back) = (_mm256_unpacklo_epi32(pairs[0], pairs[1]), _mm256_unpacklo_epi32(pairs[2], pairs[3]));
        let (buffer, frame) = (_mm256_unpacklo_epi64(front, back), _mm256_unpackhi_epi64(front, back));
        let (front, back) = (_mm256_unpackhi_epi32(pairs[0], pairs[1]), _mm256_unpackhi_epi32(pairs[2], pairs[3]));
        let room = _mm256_and_si256(_mm256_unpacklo_epi64(front, back), low8);
        let (start, length) = (_mm256_and_si256(frame, low16), _mm256_srli_epi32::<16>(frame));
        let stop = _mm256_add_epi32(start, length);
        self.first = _mm256_min_epu32(self.first, _mm256_or_si256(buffer, missing));
        self.last = _mm256_max_epu32(self.last, buffer);
        self.end = _mm256_max_epu32(self.end, _mm256_add_epi32(buffer, room));
        self.units = _mm256_add_epi32(self.units, room);
        self.room = _mm256_max_epu32(self.room, room);
        self.head = _mm256_min_epu32(self.head, _mm256_or_si256(start, missing));
        self.frame_end = _mm256_max_epu32(self.frame_end, stop);
        self.read_bytes = _mm256_add_epi32(self.read_bytes, _mm256_min_epu32(length, reach));
        self.beyond = _mm256_or_si256(self.beyond, _mm256_cmpgt_epi32(stop, _mm256_slli_epi32::<6>(room)));
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn scan(&self) -> Scan {
        let [last, end, room, frame_end] =
            reduce_lanes!(_mm256_max_epu32, _mm_max_epu32, [self.last, self.end, self.room, self.frame_end]);
        let [first, head, ..] =
            reduce_lanes!(_mm256_min_epu32, _mm_min_epu32, [self.first, self.head, self.first, self.head]);
        let sums = [self.units, self.read_bytes, self.units, self.read_bytes];
        let [units, read_bytes, ..] = reduce_lanes!(_mm256_add_epi32, _mm_add_epi32, sums);
        Scan {
            first,
            last,
            // The end of a buffer near 2^32 overflows. Such a buffer lies outside all packet
            // memory, and so does the returned end.
            end: if last > u32::MAX - 0xff { u64::from(u32::MAX) + 0xff } else { end.into() },
            units: units.into(),
            room,
            head,
            frame_end,
            read_bytes: read_bytes.into(),
            beyond: _mm256_testz_si256(self.beyond, self.beyond) == 0,
        }
    }
}

/// Summarizes the packet descriptors in several slices.
#[target_feature(enable = "avx2")]
pub(super) fn scan<'a>(slices: impl Iterator<Item = &'a [Descriptor]>, reads_bytes: u16) -> Scan {
    let mut all = Scan::NONE;
    let mut eights = Eights::none();
    let mut counted = 0;
    let (reach, none) = (_mm256_set1_epi32(reads_bytes.into()), _mm256_setzero_si256());
    let descriptor_of_lane = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    for slice in slices {
        for slice in slice.chunks(PACKETS_MAX) {
            counted += slice.len();
            if counted > 2 * PACKETS_MAX {
                all.join(&eights.scan());
                (eights, counted) = (Eights::none(), slice.len());
            }
            let (whole, rest) = slice.as_chunks::<8>();
            for eight in whole {
                let at = eight.as_ptr().cast::<__m256i>();
                // The hardware prefetcher stops at each 4 KiB page. A device may have written the
                // descriptors, so they may not be in the cache.
                _mm_prefetch::<_MM_HINT_T0>(at.cast::<i8>().wrapping_add(AHEAD_BYTES));
                _mm_prefetch::<_MM_HINT_T0>(at.cast::<i8>().wrapping_add(AHEAD_BYTES + 64));
                // SAFETY: eight descriptors are 4 times 32 bytes.
                let pairs = unsafe {
                    let pair = |pair: usize| _mm256_loadu_si256(at.add(pair));
                    [pair(0), pair(1), pair(2), pair(3)]
                };
                eights.add(pairs, reach, none);
            }
            if !rest.is_empty() {
                let (at, masks) = (rest.as_ptr().cast::<i32>(), MASKS[32 - 4 * rest.len()..].as_ptr());
                // SAFETY: the masks select only words of `rest`. The masks start at index 28 or
                // lower, and 32 of them are read.
                let pairs = unsafe {
                    let pair = |pair: usize| {
                        let mask = _mm256_loadu_si256(masks.add(8 * pair).cast());
                        _mm256_maskload_epi32(at.wrapping_add(8 * pair), mask)
                    };
                    [pair(0), pair(1), pair(2), pair(3)]
                };
                let missing = _mm256_cmpgt_epi32(descriptor_of_lane, _mm256_set1_epi32(rest.len() as i32 - 1));
                eights.add(pairs, reach, missing);
            }
        }
    }
    all.join(&eights.scan());
    all
}

//! Computes properties of many packets in one pass. The code uses AVX2 if the processor supports
//! it.

use godwit_abi::{Descriptor, Outcome};

/// Frame lengths and buffer sizes of several packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Length of the shortest frame in bytes. It is `u16::MAX` without packets.
    pub shortest: u16,
    /// Length of the longest frame, in bytes.
    pub longest: u16,
    /// Total size of all buffers, in units of 64 bytes.
    pub units: u64,
}

impl Extents {
    /// Value for an empty list of packets.
    pub const NONE: Self = Self { shortest: u16::MAX, longest: 0, units: 0 };

    #[inline(always)]
    fn and(self, descriptor: &Descriptor) -> Self {
        Self {
            shortest: self.shortest.min(descriptor.length),
            longest: self.longest.max(descriptor.length),
            units: self.units + u64::from(descriptor.room),
        }
    }
}

/// Maximum number of packets for the AVX2 versions, which keeps 32-bit sums from overflowing.
const PACKETS_MAX: usize = 1 << 16;

/// Returns the shortest and longest frame length, and the total buffer size, of several packets.
#[inline]
pub fn extents(descriptors: &[Descriptor]) -> Extents {
    #[cfg(target_arch = "x86_64")]
    if descriptors.len() >= 4 && descriptors.len() <= PACKETS_MAX && std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { extents_avx2(descriptors) };
    }
    extents_each(descriptors)
}

fn extents_each(descriptors: &[Descriptor]) -> Extents {
    descriptors.iter().fold(Extents::NONE, Extents::and)
}

/// Returns whether the 16-bit arrival numbers of the packets are consecutive.
#[inline]
pub fn are_in_order(descriptors: &[Descriptor]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if descriptors.len() >= 4 && std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { are_in_order_avx2(descriptors) };
    }
    are_in_order_each(descriptors)
}

fn are_in_order_each(descriptors: &[Descriptor]) -> bool {
    descriptors.windows(2).all(|two| two[1].order == two[0].order.wrapping_add(1))
}

/// Returns the verdict of all packets. Returns `None` if the verdicts differ or there are no
/// packets.
#[inline]
pub fn verdict_of_all(outcomes: &[Outcome]) -> Option<u8> {
    let verdict = outcomes.first()?.verdict;
    #[cfg(target_arch = "x86_64")]
    if outcomes.len() >= 4 && std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { have_verdict_avx2(outcomes, verdict) }.then_some(verdict);
    }
    have_verdict_each(outcomes, verdict).then_some(verdict)
}

fn have_verdict_each(outcomes: &[Outcome], verdict: u8) -> bool {
    outcomes.iter().fold(0, |differs, outcome| differs | (outcome.verdict ^ verdict)) == 0
}

/// Returns the memory range of the packets' buffers, as the first 64-byte unit and the number of
/// units. The buffers must not overlap.
///
/// Returns `None` if there are no packets, or if the range has a gap. Also returns `None` if the
/// last packet's buffer is not the last buffer in the range.
#[inline]
pub(crate) fn adjacent<T: AsRef<Descriptor>>(packets: &[T]) -> Option<(u32, u32)> {
    #[cfg(target_arch = "x86_64")]
    if packets.len() >= 2 && packets.len() <= PACKETS_MAX && std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        let span = unsafe { span_avx2(packets) };
        return span.adjacent(packets);
    }
    if packets.len() > PACKETS_MAX {
        return None;
    }
    span_each(packets).adjacent(packets)
}

/// Memory range that contains several buffers, and the total size of these buffers.
struct Span {
    first: u32,
    last: u32,
    units: u32,
}

impl Span {
    #[inline(always)]
    fn and(self, descriptor: &Descriptor) -> Self {
        Self {
            first: self.first.min(descriptor.buffer),
            last: self.last.max(descriptor.buffer),
            units: self.units + u32::from(descriptor.room),
        }
    }

    /// Returns the range that the buffers cover, or `None` if it has a gap.
    ///
    /// All buffers start between the first and the last buffer, and no two buffers overlap. If the
    /// sizes of all buffers add up to the size of the range, there is no gap.
    #[inline(always)]
    fn adjacent<T: AsRef<Descriptor>>(self, packets: &[T]) -> Option<(u32, u32)> {
        let last = packets.last()?.as_ref();
        let is_last = last.buffer == self.last;
        (is_last && self.last - self.first + u32::from(last.room) == self.units).then_some((self.first, self.units))
    }
}

fn span_each<T: AsRef<Descriptor>>(packets: &[T]) -> Span {
    let none = Span { first: u32::MAX, last: 0, units: 0 };
    packets.iter().fold(none, |span, packet| span.and(packet.as_ref()))
}

// A packet descriptor consists of four 32-bit words. Word 0 contains `buffer`. Word 1 contains
// `head` and `length`. Word 2 contains `room`, the port and the arrival number. Word 3 contains the
// flow hash. Each function reads only the words that it needs.
#[cfg(target_arch = "x86_64")]
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Descriptor, buffer) == 0 && offset_of!(Descriptor, length) == 6);
    assert!(offset_of!(Descriptor, room) == 8 && offset_of!(Descriptor, order) == 10 && size_of::<Descriptor>() == 16);
};

/// # Safety
/// The processor must have AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn extents_avx2(descriptors: &[Descriptor]) -> Extents {
    use std::arch::x86_64::*;
    let (pairs, rest) = descriptors.as_chunks::<2>();
    let low8 = _mm256_set1_epi32(0xff);
    let (mut shortest, mut longest, mut units) =
        (_mm256_set1_epi32(-1), _mm256_setzero_si256(), _mm256_setzero_si256());
    for pair in pairs {
        // SAFETY: two descriptors are 32 bytes.
        let words = unsafe { _mm256_loadu_si256(pair.as_ptr().cast()) };
        let length = _mm256_srli_epi32::<16>(words);
        shortest = _mm256_min_epu32(shortest, length);
        longest = _mm256_max_epu32(longest, length);
        units = _mm256_add_epi32(units, _mm256_and_si256(words, low8));
    }
    let (shortest, longest, units) = (lanes(shortest), lanes(longest), lanes(units));
    let pairs_result = Extents {
        // Without pairs of descriptors, the vector still contains `u32::MAX`.
        shortest: shortest[1].min(shortest[5]).min(u16::MAX.into()) as u16,
        longest: longest[1].max(longest[5]) as u16,
        units: u64::from(units[2]) + u64::from(units[6]),
    };
    rest.iter().fold(pairs_result, Extents::and)
}

/// # Safety
/// The processor must have AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn are_in_order_avx2(descriptors: &[Descriptor]) -> bool {
    use std::arch::x86_64::*;
    let Some(first) = descriptors.first() else { return true };
    let (pairs, rest) = descriptors.as_chunks::<2>();
    // The arrival number is the upper half of a 32-bit word, so its overflow changes no other
    // field.
    let [one, other] = [0, 1].map(|index: u16| i32::from(first.order.wrapping_add(index) as i16) << 16);
    let mut expected = _mm256_setr_epi32(0, 0, one, 0, 0, 0, other, 0);
    let step = _mm256_set1_epi32(2 << 16);
    let mut differs = _mm256_setzero_si256();
    for pair in pairs {
        // SAFETY: two descriptors are 32 bytes.
        let words = unsafe { _mm256_loadu_si256(pair.as_ptr().cast()) };
        differs = _mm256_or_si256(differs, _mm256_xor_si256(words, expected));
        expected = _mm256_add_epi32(expected, step);
    }
    let differs = lanes(differs);
    let end = first.order.wrapping_add(2 * pairs.len() as u16);
    (differs[2] | differs[6]) >> 16 == 0 && rest.first().is_none_or(|last| last.order == end)
}

/// # Safety
/// The processor must have AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn have_verdict_avx2(outcomes: &[Outcome], verdict: u8) -> bool {
    use std::arch::x86_64::*;
    const { assert!(std::mem::offset_of!(Outcome, verdict) == 0 && size_of::<Outcome>() == 8) };
    let (fours, rest) = outcomes.as_chunks::<4>();
    let expected = _mm256_set1_epi64x(verdict.into());
    let mut differs = _mm256_setzero_si256();
    for four in fours {
        // SAFETY: four outcomes are 32 bytes.
        let words = unsafe { _mm256_loadu_si256(four.as_ptr().cast()) };
        differs = _mm256_or_si256(differs, _mm256_xor_si256(words, expected));
    }
    _mm256_testz_si256(differs, _mm256_set1_epi64x(0xff)) == 1 && have_verdict_each(rest, verdict)
}

/// # Safety
/// The processor must have AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn span_avx2<T: AsRef<Descriptor>>(packets: &[T]) -> Span {
    use std::arch::x86_64::*;
    let (pairs, rest) = packets.as_chunks::<2>();
    let low8 = _mm256_set1_epi32(0xff);
    let (mut first, mut last, mut units) = (_mm256_set1_epi32(-1), _mm256_setzero_si256(), _mm256_setzero_si256());
    for [one, other] in pairs {
        let [one, other]: [*const Descriptor; 2] = [one.as_ref(), other.as_ref()];
        // SAFETY: a descriptor is 16 bytes.
        let words = unsafe { _mm256_loadu2_m128i(other.cast(), one.cast()) };
        first = _mm256_min_epu32(first, words);
        last = _mm256_max_epu32(last, words);
        units = _mm256_add_epi32(units, _mm256_and_si256(words, low8));
    }
    let (first, last, units) = (lanes(first), lanes(last), lanes(units));
    let pairs_result = Span { first: first[0].min(first[4]), last: last[0].max(last[4]), units: units[2] + units[6] };
    rest.iter().fold(pairs_result, |span, packet| span.and(packet.as_ref()))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn lanes(vector: std::arch::x86_64::__m256i) -> [u32; 8] {
    let mut lanes = [0_u32; 8];
    // SAFETY: eight words are 32 bytes.
    unsafe { std::arch::x86_64::_mm256_storeu_si256(lanes.as_mut_ptr().cast(), vector) };
    lanes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::descriptor;
    use super::*;

    proptest! {
        #[test]
        fn extents_match_the_scalar_version(descriptors in prop::collection::vec(descriptor(), 0..70)) {
            let expected = extents_each(&descriptors);
            prop_assert_eq!(extents(&descriptors), expected);
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2.
                prop_assert_eq!(unsafe { extents_avx2(&descriptors) }, expected);
            }
        }

        #[test]
        fn finds_a_different_verdict(
            verdict: u8,
            count in 0..40_usize,
            wrong: prop::sample::Index,
            other: u8,
            is_wrong: bool,
            rest: (u8, u16, u32),
        ) {
            let (reason, port, value) = rest;
            let other_fields = |at: usize| Outcome { verdict, reason, port, value: value ^ at as u32 };
            let mut outcomes: Vec<Outcome> = (0..count).map(other_fields).collect();
            if is_wrong && count > 0 {
                outcomes[wrong.index(count)].verdict = other;
            }
            let first = outcomes.first().map(|first| first.verdict);
            let expected = first.filter(|&first| outcomes.iter().all(|outcome| outcome.verdict == first));
            prop_assert_eq!(verdict_of_all(&outcomes), expected);
            prop_assert_eq!(first.filter(|&first| have_verdict_each(&outcomes, first)), expected);
        }

        #[test]
        fn finds_a_packet_out_of_order(first: u16, count in 0..70_usize, wrong: prop::sample::Index, other: u16, is_wrong: bool) {
            let order = |at: usize| first.wrapping_add(at as u16);
            let mut descriptors: Vec<Descriptor> = (0..count)
                .map(|at| Descriptor { order: order(at), room: at as u8, port: 7, flow_hash: at as u32, ..Descriptor::default() })
                .collect();
            if is_wrong && count > 0 {
                descriptors[wrong.index(count)].order = other;
            }
            let expected = are_in_order_each(&descriptors);
            prop_assert_eq!(are_in_order(&descriptors), expected);
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2.
                prop_assert_eq!(unsafe { are_in_order_avx2(&descriptors) }, expected);
            }
        }

        #[test]
        fn finds_adjacent_buffers(
            start in 0..1_u32 << 24,
            rooms in prop::collection::vec(1..=255_u8, 1..70),
            missing: prop::sample::Index,
            swapped: [prop::sample::Index; 2],
            change in 0..3_u8,
        ) {
            let mut buffer = start;
            let mut descriptors: Vec<Descriptor> = rooms.iter().map(|&room| {
                buffer += u32::from(room);
                Descriptor { buffer: buffer - u32::from(room), room, order: 9, length: 60, ..Descriptor::default() }
            }).collect();
            match change {
                1 => drop(descriptors.remove(missing.index(rooms.len()))),
                2 => descriptors.swap(swapped[0].index(rooms.len()), swapped[1].index(rooms.len())),
                _ => {}
            }
            let found = adjacent(&descriptors);
            let scalar = span_each(&descriptors).adjacent(&descriptors);
            prop_assert_eq!(found, scalar);
            let mut sorted = descriptors.clone();
            sorted.sort_unstable_by_key(|descriptor| descriptor.buffer);
            let is_adjacent = |two: &[Descriptor]| two[0].buffer + u32::from(two[0].room) == two[1].buffer;
            let is_last = descriptors.last().map(|last| last.buffer) == sorted.last().map(|last| last.buffer);
            let units = descriptors.iter().map(|descriptor| u32::from(descriptor.room)).sum();
            let expected = sorted.first().filter(|_| is_last && sorted.windows(2).all(is_adjacent));
            prop_assert_eq!(found, expected.map(|first| (first.buffer, units)));
        }
    }
}

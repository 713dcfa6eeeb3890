//! Copies the packets of a batch that have a certain key. The code uses AVX2 if the processor
//! supports it.

use godwit_abi::Descriptor;

/// Copies the packets whose key is `key` to the start of `out`, in order, and returns their number.
/// `keys` has one entry per packet. The other entries of `out` may be overwritten with any packets.
///
/// The code does not branch on the keys, because they are usually unpredictable.
///
/// # Panics
/// Panics if the number of keys differs from the number of packets, or if `out` is shorter.
#[inline]
pub fn select(keys: &[u16], key: u16, packets: &[Descriptor], out: &mut [Descriptor]) -> usize {
    assert!(keys.len() == packets.len() && packets.len() <= out.len(), "a packet lacks a key or room");
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, and the lengths were checked.
        return unsafe { select_avx2(keys, key, packets, out) };
    }
    select_each(keys, key, packets, out)
}

fn select_each(keys: &[u16], key: u16, packets: &[Descriptor], out: &mut [Descriptor]) -> usize {
    let mut count = 0;
    for (other, packet) in keys.iter().zip(packets) {
        out[count] = *packet;
        count += usize::from(*other == key);
    }
    count
}

/// Orders of the 32-bit words of two packets that put a selected packet first. The index has one
/// bit per packet, which states whether the packet is selected.
#[cfg(target_arch = "x86_64")]
const SELECTED_FIRST: [[i32; 8]; 4] =
    [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7], [4, 5, 6, 7, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6, 7]];

/// # Safety
/// The processor must have AVX2. `keys` must have one entry per packet, and `out` at least as many.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn select_avx2(keys: &[u16], key: u16, packets: &[Descriptor], out: &mut [Descriptor]) -> usize {
    use std::arch::x86_64::*;
    let wanted = _mm_set1_epi16(key.cast_signed());
    let mut count = 0;
    let (eights, _) = keys.as_chunks::<8>();
    for (eight, keys) in eights.iter().enumerate() {
        // SAFETY: eight keys have 16 bytes.
        let equal = _mm_cmpeq_epi16(unsafe { _mm_loadu_si128(keys.as_ptr().cast()) }, wanted);
        let selected = _mm_movemask_epi8(_mm_packs_epi16(equal, equal)) as usize;
        for pair in 0..4 {
            let two = selected >> (2 * pair) & 3;
            let (read, order) = (8 * eight + 2 * pair, &SELECTED_FIRST[two]);
            // SAFETY: two packets have 32 bytes, and so has an order. `packets` has an entry for
            // each of the eight keys. `count` is at most `read`, so two packets fit at `count`.
            unsafe {
                let packets = _mm256_loadu_si256(packets.as_ptr().add(read).cast());
                let packets = _mm256_permutevar8x32_epi32(packets, _mm256_loadu_si256(order.as_ptr().cast()));
                _mm256_storeu_si256(out.as_mut_ptr().add(count).cast(), packets);
            }
            count += (two & 1) + (two >> 1);
        }
    }
    let done = 8 * eights.len();
    count + select_each(&keys[done..], key, &packets[done..], &mut out[count..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::descriptor;
    use super::*;

    type Form = fn(&[u16], u16, &[Descriptor], &mut [Descriptor]) -> usize;

    proptest! {
        #[test]
        fn the_packets_with_a_key_are_copied_in_order(
            rows in prop::collection::vec((0..3_u16, descriptor()), 0..70),
            key in 0..3_u16,
            room in 0..3_usize,
        ) {
            let (keys, packets): (Vec<u16>, Vec<Descriptor>) = rows.into_iter().unzip();
            let with_key = keys.iter().zip(&packets).filter(|(other, _)| **other == key);
            let expected: Vec<Descriptor> = with_key.map(|(_, packet)| *packet).collect();
            for form in [select as Form, select_each] {
                let mut out = vec![Descriptor::default(); packets.len() + room];
                let count = form(&keys, key, &packets, &mut out);
                prop_assert_eq!(&out[..count], &expected[..]);
                prop_assert!(out[packets.len()..].iter().all(|packet| *packet == Descriptor::default()));
            }
        }
    }

    #[test]
    #[should_panic(expected = "a packet lacks a key or room")]
    fn a_short_output_is_refused() {
        select(&[1; 9], 1, &[Descriptor::default(); 9], &mut [Descriptor::default(); 8]);
    }
}

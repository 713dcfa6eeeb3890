//! Internet checksum with a full computation (RFC 1071) and incremental updates (RFC 1624).

use crate::IpAddress;

/// Computes the checksum of `bytes` (RFC 1071, section 1). The checksum is the complement of the
/// one's complement sum of 16-bit words. An odd last byte is padded with a zero byte.
///
/// The result is 0 for data that contains its own correct checksum.
///
/// ```
/// use godwit_wire::checksum::checksum;
///
/// let mut data = [0x00, 0x01, 0xf2, 0x03, 0, 0];
/// let sum = checksum(&data);
/// data[4..].copy_from_slice(&sum.to_be_bytes());
/// assert_eq!(checksum(&data), 0);
/// ```
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// Checksum over several byte slices, whose lengths may be odd. The result is the checksum of their
/// concatenation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum {
    /// One's complement sum of the pieces so far, in big-endian words, not yet folded to 16 bits.
    sum: u64,
    /// Whether the pieces so far have an odd number of bytes.
    odd: bool,
}

impl Checksum {
    /// Creates a checksum to which no data was added yet.
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// Creates the checksum of a TCP, UDP or ICMPv6 pseudo header (RFC 9293 section 3.1, RFC 768,
    /// RFC 8200 section 8.1).
    ///
    /// `length_bytes` counts the upper-layer header and the payload. Both addresses must have the
    /// same IP version.
    #[inline]
    pub fn pseudo_header(source: IpAddress, destination: IpAddress, protocol: u8, length_bytes: u32) -> Self {
        // The pseudo headers of IPv4 and IPv6 have the same sum. They differ only in the width of
        // the length and the protocol.
        let mut checksum = Self::new();
        checksum.add(source.as_bytes());
        checksum.add(destination.as_bytes());
        checksum.sum += u64::from(length_bytes >> 16) + u64::from(length_bytes & 0xffff) + u64::from(protocol);
        checksum
    }

    /// Appends a piece of data to the checksum.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        let piece = fold(sum(bytes));
        // A piece at an odd offset has its bytes in the opposite halves of the 16-bit words (RFC
        // 1071, section 2 B).
        self.sum += u64::from(if self.odd { piece.swap_bytes() } else { piece });
        self.odd ^= bytes.len() % 2 == 1;
    }

    /// Returns the checksum, which is the complement of the one's complement sum.
    #[inline]
    pub fn finish(self) -> u16 {
        !fold(self.sum)
    }
}

/// Updates a checksum after the 16-bit word `old` was replaced by `new` (RFC 1624, equation 3: HC'
/// = ~(~HC + ~m + m')).
///
/// The result equals the full checksum of the new data, unless the data is all zeros. No IPv4
/// header and no pseudo header is all zeros. One's complement has two zeros, so a `checksum` of
/// 0xffff is treated as 0 (RFC 1624, section 3).
///
/// This function is not for UDP, where a checksum of 0 means that there is no checksum. See
/// [`update_udp`].
#[inline]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u64::from(!checksum) + u64::from(!old) + u64::from(new);
    // The sum is 0 only if the checksum was 0xffff and the word changed from 0xffff to 0. The new
    // checksum is then 0.
    if sum == 0 { 0 } else { !fold(sum) }
}

/// Updates a checksum after several bytes, such as an address, were replaced.
///
/// Both slices must start at an even offset of the data. If their lengths differ, the additional
/// bytes count as added or removed data.
#[inline]
pub fn update_bytes(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    update(checksum, fold(sum(old)), fold(sum(new)))
}

/// Updates a UDP checksum (RFC 768) after the 16-bit word `old` was replaced by `new`. A checksum
/// of 0 means no checksum, and stays 0. A computed checksum of 0 becomes 0xffff.
#[inline]
pub fn update_udp(checksum: u16, old: u16, new: u16) -> u16 {
    match checksum {
        0 => 0,
        _ => nonzero(update(checksum, old, new)),
    }
}

/// Replaces a computed UDP checksum of 0 with 0xffff (RFC 768).
#[inline]
pub(crate) fn nonzero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Returns the one's complement sum of `bytes`, read as big-endian 16-bit words.
#[inline]
fn sum(bytes: &[u8]) -> u64 {
    // Words are summed in the byte order of the machine. Another byte order would only swap the
    // bytes of the result (RFC 1071, section 2 B). Words wider than 16 bits can be summed first and
    // folded later (section 2 C). The carries of the 64-bit words collect in the upper half of a
    // 128-bit sum.
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut wide = if blocks.is_empty() { 0 } else { sum_blocks(blocks) };
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        wide += u128::from(u64::from_ne_bytes(*word));
    }
    // Loads of fixed sizes read the remaining bytes. Copying them into one word would take longer
    // than summing an IPv4 header.
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        wide += u128::from(u32::from_ne_bytes(*word));
    }
    let (words, rest) = rest.as_chunks::<2>();
    for word in words {
        wide += u128::from(u16::from_ne_bytes(*word));
    }
    if let [last] = *rest {
        wide += u128::from(u16::from_ne_bytes([last, 0]));
    }

    // The upper half counts carries. A slice has too few words for 2^61 carries, so no addition
    // overflows.
    let wide = (wide & u128::from(u64::MAX)) + (wide >> 64);
    let wide = (wide as u64 as u128) + (wide >> 64);
    let wide = wide as u64;
    u64::from(u16::from_be(fold(wide)))
}

/// Sums 32-byte blocks. Four independent sums avoid waiting for carries.
#[inline]
fn sum_blocks(blocks: &[[u8; 32]]) -> u128 {
    let mut sums = [0u128; 4];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum += u128::from(u64::from_ne_bytes(*word));
        }
    }
    sums.iter().sum()
}

/// Folds a one's complement sum to 16 bits. The result is 0 only if the sum is 0.
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Computes the checksum word by word, like the code in RFC 1071, section 4.1.
    fn slow(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn rfc_1071_section_3_example() {
        // The sum of the words 0001 f203 f4f5 f6f7 is ddf2.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    #[test]
    fn rfc_1624_section_4_example() {
        // The checksum HC is 0xdd2f, and a word changes from 0x5555 to 0x3285. Equation 3 of RFC
        // 1624 gives 0x0000. The older equation 2 gives 0xffff.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn handles_both_zeros_of_ones_complement() {
        assert_eq!(checksum(&[]), 0xffff);
        assert_eq!(checksum(&[0; 40]), 0xffff);
        assert_eq!(checksum(&[0xff; 4096]), 0);
        assert_eq!(update(0xffff, 0x1234, 0x1234), 0, "-0 is normalised");
        assert_eq!(update(0xffff, 0xffff, 0x0000), 0);
        assert_eq!(update(0x0000, 0xffff, 0x0000), 0);
        assert_eq!(update(0x0000, 0x0000, 0xffff), 0);
        assert_eq!(update_udp(0, 1, 2), 0, "a missing checksum stays missing");
        assert_eq!(update_udp(0xdd2f, 0x5555, 0x3285), 0xffff);
    }

    proptest! {
        #[test]
        fn full_equals_word_by_word(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(checksum(&bytes), slow(&bytes));
        }

        #[test]
        fn pieces_equal_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            cuts in prop::collection::vec(0usize..200, 0..5),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut pieces = Checksum::new();
            for pair in cuts.windows(2) {
                pieces.add(&bytes[pair[0]..pair[1]]);
            }
            prop_assert_eq!(pieces.finish(), slow(&bytes));
        }

        #[test]
        fn incremental_equals_full(
            mut words in prop::collection::vec(prop_oneof![Just(0u16), Just(0xffff), any::<u16>()], 1..12),
            at in any::<prop::sample::Index>(),
            new in prop_oneof![Just(0u16), Just(0xffff), any::<u16>()],
        ) {
            let bytes = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
            let before = checksum(&bytes(&words));
            let at = at.index(words.len());
            let old = std::mem::replace(&mut words[at], new);
            prop_assume!(words.iter().any(|&word| word != 0));
            prop_assert_eq!(update(before, old, new), checksum(&bytes(&words)));
            prop_assert_eq!(update_bytes(before, &old.to_be_bytes(), &new.to_be_bytes()), checksum(&bytes(&words)));
        }

        #[test]
        fn incremental_over_bytes_equals_full(
            mut data in prop::collection::vec(any::<u8>(), 40..80),
            new in prop::array::uniform16(any::<u8>()),
            at in 0usize..12,
        ) {
            data[0] = 0x60;
            let before = checksum(&data);
            let range = 2 * at + 2..2 * at + 18;
            let old = data[range.clone()].to_vec();
            data[range].copy_from_slice(&new);
            prop_assert_eq!(update_bytes(before, &old, &new), checksum(&data));
        }
    }
}

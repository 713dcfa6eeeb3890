//! The Internet checksum: full (RFC 1071) and incremental (RFC 1624).

use crate::IpAddress;

/// The checksum of `bytes` (RFC 1071, section 1): the complement of their one's complement sum.
/// An odd last byte is padded with a zero byte.
///
/// Over data that carries its own correct checksum the result is 0.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// A checksum collected from several pieces of any length.
///
/// The pieces count as if they lay back to back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum {
    /// One's complement sum of what came so far, big-endian words, not folded.
    sum: u64,
    /// Whether an odd number of bytes came so far.
    odd: bool,
}

impl Checksum {
    /// Of nothing yet.
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// Of a TCP, UDP or ICMPv6 pseudo header (RFC 9293 section 3.1, RFC 768, RFC 8200 section 8.1).
    ///
    /// `length_bytes`: upper-layer header and payload. Both addresses are of one family.
    #[inline]
    pub fn pseudo_header(source: IpAddress, destination: IpAddress, protocol: u8, length_bytes: u32) -> Self {
        // Both forms sum the same words: IPv4 has length and protocol in 16 bits each, IPv6 in 32.
        let mut checksum = Self::new();
        checksum.add(source.as_bytes());
        checksum.add(destination.as_bytes());
        checksum.sum += u64::from(length_bytes >> 16) + u64::from(length_bytes & 0xffff) + u64::from(protocol);
        checksum
    }

    /// Appends a piece.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        let piece = fold(sum(bytes));
        // A piece that begins at an odd place has its bytes in the other halves of the words (RFC 1071, section 2 B).
        self.sum += u64::from(if self.odd { piece.swap_bytes() } else { piece });
        self.odd ^= bytes.len() % 2 == 1;
    }

    /// The checksum: the complement of the sum.
    #[inline]
    pub fn finish(self) -> u16 {
        !fold(self.sum)
    }
}

/// The checksum after the 16-bit word `old` became `new` (RFC 1624, equation 3: HC' = ~(~HC + ~m + m')).
///
/// Equals the full checksum of the new data unless that is all zeros, which no IPv4 header and no pseudo header
/// is. A `checksum` of 0xffff, the other one's complement zero, counts as 0 (RFC 1624, section 3).
///
/// Not for UDP, where 0 means "none": see [`update_udp`].
#[inline]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u64::from(!checksum) + u64::from(!old) + u64::from(new);
    // All three zero: HC was -0 and the word went from -0 to +0. What is left sums to -0, so HC' is +0.
    if sum == 0 { 0 } else { !fold(sum) }
}

/// [`update`] for a change of several bytes, such as an address. Both pieces start at an even place of the data
/// and have one length; where one is longer, its rest counts as added or removed.
#[inline]
pub fn update_bytes(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    update(checksum, fold(sum(old)), fold(sum(new)))
}

/// [`update`] for a UDP checksum (RFC 768): 0 stays 0, "none", and a checksum of 0 is written as 0xffff.
#[inline]
pub fn update_udp(checksum: u16, old: u16, new: u16) -> u16 {
    match checksum {
        0 => 0,
        _ => nonzero(update(checksum, old, new)),
    }
}

/// UDP writes a computed 0 as 0xffff (RFC 768).
#[inline]
pub(crate) fn nonzero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// One's complement sum of big-endian 16-bit words, not folded.
#[inline]
fn sum(bytes: &[u8]) -> u64 {
    // Sums of words of any byte order differ only in byte order (RFC 1071, section 2 B), and wider words may be
    // summed and folded later (section 2 C). So: native 64-bit words, carries counted in the upper half.
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut wide = if blocks.is_empty() { 0 } else { sum_blocks(blocks) };
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        wide += u128::from(u64::from_ne_bytes(*word));
    }
    // Loads of fixed sizes: copying the rest into a word costs more than all of an IPv4 header.
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

    // The lengths of slices keep each step far from overflow: upper half < 2^61.
    let wide = (wide & u128::from(u64::MAX)) + (wide >> 64);
    let wide = (wide as u64 as u128) + (wide >> 64);
    let wide = wide as u64;
    u64::from(u16::from_be(fold(wide)))
}

/// Four sums at a time, so that one carry need not wait for the other.
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

/// Folds the carries back in: 0 only for 0.
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

    /// RFC 1071, section 4.1, word by word.
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
        // The words 0001 f203 f4f5 f6f7 sum to ddf2.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    #[test]
    fn rfc_1624_section_4_example() {
        // HC 0xdd2f, a word changes from 0x5555 to 0x3285: 0x0000 by equation 3, 0xffff by the older equation 2.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn zeros_of_one_s_complement() {
        assert_eq!(checksum(&[]), 0xffff);
        assert_eq!(checksum(&[0; 40]), 0xffff);
        assert_eq!(checksum(&[0xff; 4096]), 0);
        assert_eq!(update(0xffff, 0x1234, 0x1234), 0, "-0 is normalised");
        assert_eq!(update(0xffff, 0xffff, 0x0000), 0);
        assert_eq!(update(0x0000, 0xffff, 0x0000), 0);
        assert_eq!(update(0x0000, 0x0000, 0xffff), 0);
        assert_eq!(update_udp(0, 1, 2), 0, "no checksum stays none");
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

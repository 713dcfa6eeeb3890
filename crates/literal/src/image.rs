//! Layout of the search image, a byte array with the compiled patterns. Numbers are little-endian
//! on every processor. Offsets are in bytes from the start of the image.

/// Number of groups of patterns, by length.
pub(crate) const GROUPS: usize = 4;
/// Number of `u32` words in the header of a group of patterns.
pub(crate) const GROUP_WORDS: usize = 12;
/// Length of the image header in `u32` words. The group headers follow it.
pub(crate) const HEAD_WORDS: usize = 16;
/// Length of the header, in bytes.
pub(crate) const HEADER_BYTES: usize = (HEAD_WORDS + GROUPS * GROUP_WORDS) * 4;

/// Positions of the `u32` words in the header of the image.
pub(crate) mod head {
    /// Length of the image, in bytes.
    pub(crate) const BYTES: usize = 0;
    /// First hash multiplier, an odd number.
    pub(crate) const K1: usize = 1;
    /// Second hash multiplier, an odd number.
    pub(crate) const K2: usize = 2;
    /// Number of patterns.
    pub(crate) const PATTERNS: usize = 3;
    /// Offset of the pattern records.
    pub(crate) const PATTERNS_AT: usize = 4;
    /// Offset of the first bit table.
    pub(crate) const FIRST_AT: usize = 5;
    /// Binary logarithm of the number of bits of the first table.
    pub(crate) const FIRST_BITS: usize = 6;
    /// Offset of the three tables for patterns of one to three bytes. Each table maps a byte value
    /// to the buckets that may match.
    pub(crate) const SHORT_AT: usize = 7;
    /// Length of the longest pattern, in bytes.
    pub(crate) const LONGEST: usize = 8;
}

/// Positions of the `u32` words in the header of a pattern group.
pub(crate) mod group {
    /// Number of patterns in the group.
    pub(crate) const PATTERNS: usize = 0;
    /// Offset of the bit table of the group.
    pub(crate) const TABLE_AT: usize = 1;
    /// Binary logarithm of the number of bits.
    pub(crate) const TABLE_BITS: usize = 2;
    /// Offset of an array with the start index of each bucket. The last element is the end of the
    /// last bucket.
    pub(crate) const STARTS_AT: usize = 3;
    /// Binary logarithm of the number of buckets.
    pub(crate) const STARTS_BITS: usize = 4;
    /// Offset of the 8-byte values of the entries.
    pub(crate) const VALUES_AT: usize = 5;
    /// Offset of the 8-byte masks of the entries.
    pub(crate) const MASKS_AT: usize = 6;
    /// Offset of the pattern numbers of the entries.
    pub(crate) const IDS_AT: usize = 7;
    /// Offset of an array with one byte per entry, the position of the entry's window in its
    /// pattern.
    pub(crate) const POSITIONS_AT: usize = 8;
    /// Number of entries.
    pub(crate) const ENTRIES: usize = 9;
    /// Number of bytes before each window that the search compares together with the window.
    pub(crate) const BACK: usize = 10;
}

/// Size of a pattern record in bytes. The record holds the offset of the pattern's bytes, and their
/// number. The masks follow the bytes. Both are padded to a multiple of eight bytes.
pub(crate) const PATTERN_BYTES: usize = 8;

/// Image of a set of patterns.
#[derive(Debug, Clone)]
pub struct Image {
    words: Vec<u64>,
    bytes: usize,
}

impl Image {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut words = vec![0u64; bytes.len().div_ceil(8) + 8];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut eight = [0; 8];
            eight[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(eight);
        }
        Self { words, bytes: bytes.len() }
    }

    /// Returns the length of the image, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of patterns.
    pub fn patterns(&self) -> u32 {
        self.head(head::PATTERNS)
    }

    /// Returns the length of the longest pattern, in bytes.
    pub fn longest_bytes(&self) -> usize {
        self.head(head::LONGEST) as usize
    }

    /// Returns the image as aligned 64-bit words.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    pub(crate) fn head(&self, word: usize) -> u32 {
        self.u32(word * 4)
    }

    pub(crate) fn group(&self, group: usize, word: usize) -> usize {
        self.u32((HEAD_WORDS + group * GROUP_WORDS + word) * 4) as usize
    }

    /// Returns a `u32` at an offset that is a multiple of four.
    #[inline]
    pub(crate) fn u32(&self, at: usize) -> u32 {
        (self.words[at / 8] >> (at % 8 * 8)) as u32
    }

    /// Returns a `u64` at an offset that is a multiple of eight.
    #[inline]
    pub(crate) fn u64(&self, at: usize) -> u64 {
        self.words[at / 8]
    }

    #[inline]
    pub(crate) fn u8(&self, at: usize) -> u8 {
        (self.words[at / 8] >> (at % 8 * 8)) as u8
    }

    /// Returns a bit of a table.
    #[inline]
    pub(crate) fn bit(&self, table_at: usize, index: u32) -> bool {
        self.words[table_at / 8 + (index / 64) as usize] >> (index % 64) & 1 == 1
    }
}

/// ASCII case bit in each of eight bytes.
pub(crate) const FOLD: u64 = 0x2020_2020_2020_2020;

/// Converts the letters in four bytes to lower case. The conversion also changes some other bytes,
/// which only makes the filter less selective.
pub(crate) fn fold4(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) | FOLD as u32
}

/// Converts the letters among eight bytes to lower case.
pub(crate) fn fold8(bytes: &[u8]) -> u64 {
    u64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]) | FOLD
}

/// Hashes a short byte string. Callers use the high bits.
#[inline]
pub(crate) fn mix(low: u32, high: u32, k1: u32, k2: u32) -> u32 {
    low.wrapping_mul(k1).wrapping_add(high.wrapping_mul(k2))
}

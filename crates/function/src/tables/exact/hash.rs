//! Keyed hash functions of exact-match tables. Short lookup keys are permuted, and can be recovered
//! from the result. Long keys are hashed. `kernels/tables/exact.h` computes the same functions.

use crate::Error;

/// Secret parameters of a permutation of `2 * half_bits` bits.
#[derive(Clone, Copy)]
pub(crate) struct Permutation {
    pub(crate) multipliers: [u64; 4],
    pub(crate) addends: [u64; 4],
    half_bits: u32,
}

impl Permutation {
    pub(crate) fn of(words: [u64; 8], half_bits: u32) -> Self {
        let [a, b, c, d, e, f, g, h] = words;
        Self { multipliers: [a, b, c, d].map(|word| word | 1), addends: [e, f, g, h], half_bits }
    }

    fn round(&self, round: usize, half: u64) -> u64 {
        half.wrapping_mul(self.multipliers[round]).wrapping_add(self.addends[round]) >> (64 - self.half_bits)
    }

    fn halves(&self, key: u64) -> (u64, u64) {
        (key >> self.half_bits, key & ((1 << self.half_bits) - 1))
    }

    /// Permutes a key.
    pub(crate) fn mix(&self, key: u64) -> u64 {
        let (mut left, mut right) = self.halves(key);
        for round in (0..4).step_by(2) {
            left ^= self.round(round, right);
            right ^= self.round(round + 1, left);
        }
        left << self.half_bits | right
    }

    /// Inverts [`Permutation::mix`].
    pub(crate) fn unmix(&self, mixed: u64) -> u64 {
        let (mut left, mut right) = self.halves(mixed);
        for round in (0..4).step_by(2).rev() {
            right ^= self.round(round + 1, left);
            left ^= self.round(round, right);
        }
        left << self.half_bits | right
    }
}

/// Number of bits of a long key's hash that an entry stores.
pub(crate) const TAG_BITS: u32 = 30;

/// Secret parameters of the hash of long keys.
#[derive(Clone, Copy)]
pub(crate) struct LongHash {
    pub(crate) words: [u64; 11],
    pub(crate) second: u64,
    pub(crate) bucket_bits: u32,
}

impl LongHash {
    /// Returns the hash of a lookup key. The bucket number and the table entry together determine
    /// all bits of the hash.
    pub(crate) fn mix(&self, key: &[u64]) -> u64 {
        let mut mixed = self.words[10];
        for (index, word) in key.iter().enumerate() {
            let (low, high) = (word & 0xffff_ffff, word >> 32);
            mixed = mixed
                .wrapping_add(low.wrapping_mul(self.words[2 * index]))
                .wrapping_add(high.wrapping_mul(self.words[2 * index + 1]));
        }
        mixed = (mixed ^ mixed >> 32).wrapping_mul(self.second);
        (mixed ^ mixed >> 29) & ((1 << (self.bucket_bits + TAG_BITS)) - 1)
    }
}

/// Returns random words from the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u64; N], Error> {
    let mut words = [0u64; N];
    for word in &mut words {
        *word = getrandom::u64().map_err(|error| Error::Value {
            span: None,
            message: format!("the operating system returned no random numbers for a table: {error}"),
        })?;
    }
    Ok(words)
}

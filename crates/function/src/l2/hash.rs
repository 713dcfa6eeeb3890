//! Keyed hash of the address table: the permutation of `kernels/l2/l2.h`, and its inverse.

use godwit_kernels::image::L2Image;

use crate::Error;

/// Length of each half of a key, in bits.
const HALF_BITS: u32 = 30;
const HALF: u64 = (1 << HALF_BITS) - 1;

/// Secret parameters of the hash, and the size of the table.
#[derive(Clone, Copy)]
pub(super) struct Hash {
    multipliers: [u64; 4],
    addends: [u64; 4],
    second: u64,
    bucket_bits: u32,
}

impl Hash {
    /// Creates a hash with random parameters from the operating system.
    pub(super) fn random(bucket_bits: u32) -> Result<Self, Error> {
        let mut words = [0u64; 9];
        for word in &mut words {
            *word = getrandom::u64().map_err(|error| Error::Value {
                span: None,
                message: format!("the operating system returned no random numbers for the address table: {error}"),
            })?;
        }
        Ok(Self::of(words, bucket_bits))
    }

    /// Creates a hash from nine words.
    pub(super) fn of(words: [u64; 9], bucket_bits: u32) -> Self {
        let [a, b, c, d, e, f, g, h, second] = words;
        Self { multipliers: [a, b, c, d].map(|word| word | 1), addends: [e, f, g, h], second: second | 1, bucket_bits }
    }

    /// Stores the parameters in the header of the image.
    pub(super) fn write(&self, header: &mut L2Image) {
        header.bucket_bits = self.bucket_bits;
        (header.multipliers, header.addends, header.second) = (self.multipliers, self.addends, self.second);
    }

    pub(super) fn bucket_bits(&self) -> u32 {
        self.bucket_bits
    }

    fn round(&self, round: usize, half: u64) -> u64 {
        half.wrapping_mul(self.multipliers[round]).wrapping_add(self.addends[round]) >> (64 - HALF_BITS)
    }

    /// Permutes the keys of 60 bits.
    pub(super) fn mix(&self, key: u64) -> u64 {
        let (mut left, mut right) = (key >> HALF_BITS, key & HALF);
        for round in (0..4).step_by(2) {
            left ^= self.round(round, right);
            right ^= self.round(round + 1, left);
        }
        left << HALF_BITS | right
    }

    /// Inverts [`Hash::mix`].
    pub(super) fn unmix(&self, mixed: u64) -> u64 {
        let (mut left, mut right) = (mixed >> HALF_BITS, mixed & HALF);
        for round in (0..4).step_by(2).rev() {
            right ^= self.round(round + 1, left);
            left ^= self.round(round, right);
        }
        left << HALF_BITS | right
    }

    /// Returns the first bucket of a mixed key.
    pub(super) fn first(&self, mixed: u64) -> u32 {
        (mixed & ((1 << self.bucket_bits) - 1)) as u32
    }

    /// Returns the bits of a mixed key that identify it within its buckets.
    pub(super) fn rest(&self, mixed: u64) -> u64 {
        mixed >> self.bucket_bits
    }

    /// Returns the bits in which the numbers of the two buckets differ. The result is never 0.
    pub(super) fn flip(&self, rest: u64) -> u32 {
        (rest.wrapping_mul(self.second) >> (64 - self.bucket_bits)) as u32 | 2
    }

    /// Returns the key whose first bucket is `first` and whose remaining bits are `rest`.
    pub(super) fn key(&self, first: u32, rest: u64) -> u64 {
        self.unmix(rest << self.bucket_bits | u64::from(first))
    }
}

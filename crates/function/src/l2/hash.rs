//! Where an address lies: the keyed permutation of `kernels/l2/l2.h`, and its inverse.

use godwit_kernels::image::L2Image;

use crate::Error;

/// Bits of each half of a key.
const HALF_BITS: u32 = 30;
const HALF: u64 = (1 << HALF_BITS) - 1;

/// The secrets of a table.
#[derive(Clone, Copy)]
pub(super) struct Hash {
    multipliers: [u64; 4],
    addends: [u64; 4],
    second: u64,
    bucket_bits: u32,
}

impl Hash {
    /// Random ones, of the operating system.
    pub(super) fn random(bucket_bits: u32) -> Result<Self, Error> {
        let mut words = [0u64; 9];
        for word in &mut words {
            *word = getrandom::u64().map_err(|error| Error::Value {
                span: None,
                message: format!("this machine gives no random numbers for the key of the table: {error}"),
            })?;
        }
        Ok(Self::of(words, bucket_bits))
    }

    /// Those made of these words.
    pub(super) fn of(words: [u64; 9], bucket_bits: u32) -> Self {
        let [a, b, c, d, e, f, g, h, second] = words;
        Self { multipliers: [a, b, c, d].map(|word| word | 1), addends: [e, f, g, h], second: second | 1, bucket_bits }
    }

    /// Puts them into the image's header.
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

    /// A number of 60 bits in the place of a key of 60 bits.
    pub(super) fn mix(&self, key: u64) -> u64 {
        let (mut left, mut right) = (key >> HALF_BITS, key & HALF);
        for round in (0..4).step_by(2) {
            left ^= self.round(round, right);
            right ^= self.round(round + 1, left);
        }
        left << HALF_BITS | right
    }

    /// The key that [`Hash::mix`] made this of.
    pub(super) fn unmix(&self, mixed: u64) -> u64 {
        let (mut left, mut right) = (mixed >> HALF_BITS, mixed & HALF);
        for round in (0..4).step_by(2).rev() {
            right ^= self.round(round + 1, left);
            left ^= self.round(round, right);
        }
        left << HALF_BITS | right
    }

    /// The first bucket of a mixed key.
    pub(super) fn first(&self, mixed: u64) -> u32 {
        (mixed & ((1 << self.bucket_bits) - 1)) as u32
    }

    /// What identifies a mixed key in its buckets.
    pub(super) fn rest(&self, mixed: u64) -> u64 {
        mixed >> self.bucket_bits
    }

    /// Which bits of a bucket's number are others in the number of the other bucket.
    pub(super) fn flip(&self, rest: u64) -> u32 {
        (rest.wrapping_mul(self.second) >> (64 - self.bucket_bits)) as u32 | 2
    }

    /// The key of what lies in its first bucket `first` under `rest`.
    pub(super) fn key(&self, first: u32, rest: u64) -> u64 {
        self.unmix(rest << self.bucket_bits | u64::from(first))
    }
}

//! Seeded random number generator.

/// Random number generator of all tests (splitmix64: Steele, Lea, Flood, OOPSLA 2014, figure 16).
///
/// The same seed gives the same numbers on every machine. Every seed is good, including 0.
///
/// ```
/// use godwit_test_support::Random;
///
/// let mut random = Random::new(7);
/// assert!(random.below(6) < 6);
/// assert_eq!(random.bytes(20).len(), 20);
/// assert_eq!(Random::new(7).next_u64(), Random::new(7).next_u64());
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// Returns 16 random bits.
    pub fn next_u16(&mut self) -> u16 {
        (self.next_u64() >> 48) as u16
    }

    /// Returns 8 random bits.
    pub fn next_u8(&mut self) -> u8 {
        (self.next_u64() >> 56) as u8
    }

    /// Returns a number in `0..limit`.
    ///
    /// # Panics
    ///
    /// Panics if `limit` is not positive.
    pub fn below<T: Limit>(&mut self, limit: T) -> T {
        // The high bits of the product are uniform up to `limit` / 2^64 (Lemire, ACM TOMACS 2019).
        let product = u128::from(self.next_u64()) * u128::from(limit.to_u64());
        T::from_u64((product >> 64) as u64)
    }

    /// Returns true with a probability of 1 in `count`.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Returns one of `values`.
    ///
    /// # Panics
    ///
    /// Panics if `values` is empty.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// Returns `count` random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next_u8()).collect()
    }

    /// Returns an array of random bytes, such as an address.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next_u8())
    }

    /// Changes up to `changes_max` bytes of `bytes`, or shortens it. Most changes are in the first
    /// 60 bytes, where the headers are. Never shortens `bytes` below 12 bytes.
    pub fn damage(&mut self, bytes: &mut Vec<u8>, changes_max: usize) {
        for _ in 0..1 + self.below(changes_max) {
            if bytes.is_empty() {
                return;
            }
            let range = if self.one_in(4) { bytes.len() } else { bytes.len().min(60) };
            let index = self.below(range);
            match self.below(3) {
                0 => bytes[index] ^= 1 << self.below(8),
                1 => bytes[index] = self.next_u8(),
                _ => bytes.truncate(index.max(12)),
            }
        }
    }
}

/// Integer type that [`Random::below`] accepts.
pub trait Limit: Copy {
    /// Converts a limit. Panics if it is not positive.
    fn to_u64(self) -> u64;

    /// Converts a number that is less than a limit of this type.
    fn from_u64(number: u64) -> Self;
}

macro_rules! limits {
    ($($type:ty)*) => {$(
        impl Limit for $type {
            fn to_u64(self) -> u64 {
                assert!(self > 0, "there is no number below {self}");
                self as u64
            }

            fn from_u64(number: u64) -> Self {
                number as $type
            }
        }
    )*};
}

limits!(u8 u16 u32 u64 usize i32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        // The first numbers of the reference implementation for seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_reaches_every_number_and_no_other() {
        let mut random = Random::new(0);
        let mut counts = [0; 7];
        (0..7000).for_each(|_| counts[random.below(7)] += 1);
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }
}

//! Loops over packets that are compiled twice, once for AVX2 and once for any processor.
//!
//! Each loop is written once. It has no branches, because the compiler can vectorise only such
//! loops. The function [`run`] selects the version that the processor supports, once per burst of
//! packets. A version for AVX-512 was not faster than AVX2. [`Isa`] provides operations that the
//! compiler does not vectorise.
//!
//! ```
//! use godwit_packet::simd::{self, Isa, Vectorized};
//!
//! struct Sum<'a>(&'a [u16]);
//!
//! impl Vectorized for Sum<'_> {
//!     type Output = u32;
//!
//!     #[inline(always)]
//!     fn run(self, _isa: impl Isa) -> u32 {
//!         self.0.iter().map(|&length| u32::from(length)).sum()
//!     }
//! }
//!
//! assert_eq!(simd::run(Sum(&[60, 1500])), 1560);
//! assert_eq!(simd::run_scalar(Sum(&[60, 1500])), 1560);
//! ```

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Four integers in half a cache line. One AVX2 instruction compares all of them with a number.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct Four(pub [AtomicU64; 4]);

/// Instruction set for which a loop is compiled.
pub trait Isa: Copy {
    /// Compares four integers with `number`. Bit `i` of the result is set if integer `i` is equal.
    /// Each integer is read by a relaxed atomic load, in any order.
    fn equal(self, four: &Four, number: u64) -> u32;
}

/// A loop that is compiled once for each instruction set ([`Isa`]). The method `run`, like all
/// functions that it calls for each packet, must be `#[inline(always)]`.
pub trait Vectorized {
    /// Result of the loop.
    type Output;

    /// Runs the loop.
    fn run(self, isa: impl Isa) -> Self::Output;
}

/// Runs the AVX2 version of a loop if the processor supports AVX2. Otherwise, runs the scalar
/// version.
#[inline]
pub fn run<W: Vectorized>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    if x86::has_avx2() {
        // SAFETY: `has_avx2` was checked above.
        return unsafe { x86::run_avx2(work) };
    }
    work.run(Scalar)
}

/// Runs the scalar version of a loop, which every processor supports.
pub fn run_scalar<W: Vectorized>(work: W) -> W::Output {
    work.run(Scalar)
}

#[derive(Clone, Copy)]
struct Scalar;

impl Isa for Scalar {
    #[inline(always)]
    fn equal(self, four: &Four, number: u64) -> u32 {
        // The comparison has no branch, because the processor could not predict it.
        let same = |index: usize| u32::from(four.0[index].load(Relaxed) == number) << index;
        same(0) | same(1) | same(2) | same(3)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Four, Isa, Vectorized};

    #[inline(always)]
    pub(super) fn has_avx2() -> bool {
        std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("movbe")
    }

    /// Proves that the processor has AVX2. Only the function `run_avx2` creates a value of this
    /// type.
    #[derive(Clone, Copy)]
    struct Avx2(());

    impl Isa for Avx2 {
        #[inline(always)]
        fn equal(self, four: &Four, number: u64) -> u32 {
            // SAFETY: a value of type `Avx2` exists only if the processor has AVX2.
            unsafe { equal(four, number) }
        }
    }

    /// # Safety
    /// The processor must have AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn equal(four: &Four, number: u64) -> u32 {
        // SAFETY: the address holds four integers of 8 bytes, aligned to 32. Another thread may
        // write one of them, so the load is volatile. The processor loads each aligned 8-byte
        // integer atomically.
        let numbers = unsafe { std::ptr::from_ref(four).cast::<__m256i>().read_volatile() };
        let same = _mm256_cmpeq_epi64(numbers, _mm256_set1_epi64x(number as i64));
        _mm256_movemask_pd(_mm256_castsi256_pd(same)) as u32
    }

    /// # Safety
    /// [`has_avx2`] must be true.
    #[target_feature(enable = "avx2,bmi1,bmi2,movbe")]
    pub(super) unsafe fn run_avx2<W: Vectorized>(work: W) -> W::Output {
        work.run(Avx2(()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Compare<'a>(&'a [Four], &'a [u64]);

    impl Vectorized for Compare<'_> {
        type Output = Vec<u32>;

        #[inline(always)]
        fn run(self, isa: impl Isa) -> Vec<u32> {
            self.0.iter().zip(self.1).map(|(four, &number)| isa.equal(four, number)).collect()
        }
    }

    proptest! {
        #[test]
        fn all_versions_return_the_same(numbers in prop::collection::vec((any::<[u64; 4]>(), 0..5_usize), 0..40)) {
            let fours: Vec<Four> = numbers.iter().map(|(four, _)| Four(four.map(AtomicU64::new))).collect();
            // Each test searches for one of the four integers, or for a number that is probably
            // missing.
            let keys: Vec<u64> = numbers.iter().map(|(four, index)| four.get(*index).copied().unwrap_or(7)).collect();
            let expected = run_scalar(Compare(&fours, &keys));
            prop_assert_eq!(&run(Compare(&fours, &keys)), &expected);
            for (((four, _), &key), found) in numbers.iter().zip(&keys).zip(expected) {
                prop_assert!((0..4).all(|index| (found >> index & 1 == 1) == (four[index] == key)));
            }
        }
    }
}

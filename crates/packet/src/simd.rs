//! Loops over many packets, compiled for the vectors that the processor has.
//!
//! A loop that is written once, over arrays and without branches, is compiled for AVX2 and for any processor; which of
//! them runs is asked once a burst. (For AVX-512 too it was no faster.) What the compiler does not find by itself is a primitive of [`Isa`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Four numbers in half a cache line, which are compared together.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct Four(pub [AtomicU64; 4]);

/// What a loop is compiled for.
pub trait Isa: Copy {
    /// Bit `i`: the `i`th of these numbers is `number`. As if each was loaded by itself (relaxed), in any order.
    fn equal(self, four: &Four, number: u64) -> u32;
}

/// A loop. `run` is to be `#[inline(always)]`, and all that it calls for each packet too.
pub trait Vectorized {
    /// What comes out.
    type Output;

    /// The loop, compiled once for each form.
    fn run(self, form: impl Isa) -> Self::Output;
}

/// Runs a loop in the widest form that the processor has.
#[inline]
pub fn run<W: Vectorized>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    if x86::has_avx2() {
        // SAFETY: asked just before.
        return unsafe { x86::run_avx2(work) };
    }
    work.run(Scalar)
}

/// Runs a loop as every processor can.
pub fn run_scalar<W: Vectorized>(work: W) -> W::Output {
    work.run(Scalar)
}

#[derive(Clone, Copy)]
struct Scalar;

impl Isa for Scalar {
    #[inline(always)]
    fn equal(self, four: &Four, number: u64) -> u32 {
        // All are compared, without a branch: which of them it is cannot be predicted.
        let same = |place: usize| u32::from(four.0[place].load(Relaxed) == number) << place;
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

    /// There is only one where the processor has AVX2.
    #[derive(Clone, Copy)]
    struct Avx2(());

    impl Isa for Avx2 {
        #[inline(always)]
        fn equal(self, four: &Four, number: u64) -> u32 {
            // SAFETY: the processor has AVX2, or this would not be here.
            unsafe { equal(four, number) }
        }
    }

    /// # Safety
    /// The processor has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn equal(four: &Four, number: u64) -> u32 {
        // SAFETY: four numbers of 8 bytes, aligned to 32. Somebody may be writing one of them: hence volatile. The processor
        // loads each aligned number of 8 bytes as it was at some time.
        let numbers = unsafe { std::ptr::from_ref(four).cast::<__m256i>().read_volatile() };
        let same = _mm256_cmpeq_epi64(numbers, _mm256_set1_epi64x(number as i64));
        _mm256_movemask_pd(_mm256_castsi256_pd(same)) as u32
    }

    /// # Safety
    /// [`has_avx2`].
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
        fn run(self, form: impl Isa) -> Vec<u32> {
            self.0.iter().zip(self.1).map(|(four, &number)| form.equal(four, number)).collect()
        }
    }

    proptest! {
        #[test]
        fn every_form_says_the_same(numbers in prop::collection::vec((any::<[u64; 4]>(), 0..5_usize), 0..40)) {
            let fours: Vec<Four> = numbers.iter().map(|(four, _)| Four(four.map(AtomicU64::new))).collect();
            // One of them, or another.
            let asked: Vec<u64> = numbers.iter().map(|(four, place)| four.get(*place).copied().unwrap_or(7)).collect();
            let expected = run_scalar(Compare(&fours, &asked));
            prop_assert_eq!(&run(Compare(&fours, &asked)), &expected);
            for (((four, _), &asked), found) in numbers.iter().zip(&asked).zip(expected) {
                prop_assert!((0..4).all(|place| (found >> place & 1 == 1) == (four[place] == asked)));
            }
        }
    }
}

//! The anti-replay window: a ring of blocks of bits that never shifts (RFC 6479), and extended sequence numbers inferred.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers of one block.
const BLOCK: u64 = u64::BITS as u64;
/// Numbers of one cache line.
const LINE: u64 = 8 * BLOCK;
/// Blocks of a ring. It remembers more numbers than the largest window has: packets that were within the window when
/// they came may be overtaken by as many as are in flight before they are known to be authentic.
const BLOCKS: u64 = 128;

/// The largest window (RFC 4303, section 3.4.3, asks for 32 at least).
pub(super) const WINDOW_MAX: u32 = 4096;
/// The smallest window but none.
pub(super) const WINDOW_MIN: u32 = 32;

/// Which of the last numbers were authentic. One thread writes.
#[repr(align(64))]
pub(super) struct Ring([AtomicU64; BLOCKS as usize]);

impl Default for Ring {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BLOCKS as usize])
    }
}

/// A ring that begins some lines further on than others.
#[derive(Clone, Copy)]
pub(super) struct Turned<'a> {
    pub(super) ring: &'a Ring,
    pub(super) lines: usize,
}

impl Turned<'_> {
    /// [`Ring::has`].
    #[inline(always)]
    pub(super) fn has(self, sequence: u64) -> bool {
        self.ring.has(self.turned(sequence))
    }

    /// [`Ring::commit`].
    #[inline(always)]
    pub(super) fn commit(self, largest: u64, sequence: u64) -> bool {
        self.ring.commit(self.turned(largest), self.turned(sequence))
    }

    /// Numbers are of at most 44 bits, so all of them can be larger.
    #[inline(always)]
    fn turned(self, sequence: u64) -> u64 {
        sequence + self.lines as u64 * LINE
    }
}

impl Ring {
    /// Lines of 64 bytes.
    pub(super) const LINES: usize = (BLOCKS * BLOCK / LINE) as usize;

    /// So many rings, of no numbers.
    #[cold]
    pub(super) fn several<const COUNT: usize>() -> Box<[Self; COUNT]> {
        let rings: Box<[Self]> = (0..COUNT).map(|_| Self::default()).collect();
        match rings.try_into() {
            Ok(rings) => rings,
            Err(_) => unreachable!("they were counted"),
        }
    }

    pub(super) fn clear(&self) {
        self.0.iter().for_each(|block| block.store(0, Relaxed));
    }

    fn block(&self, sequence: u64) -> &AtomicU64 {
        &self.0[(sequence / BLOCK % BLOCKS) as usize]
    }

    fn bit(sequence: u64) -> u64 {
        1 << (sequence % BLOCK)
    }

    /// Whether a number that is not larger than the largest, and within the window, was authentic before.
    #[inline]
    pub(super) fn has(&self, sequence: u64) -> bool {
        self.block(sequence).load(Relaxed) & Self::bit(sequence) != 0
    }

    /// Remembers a number, which may be larger than the largest so far; false where it was there, or is forgotten.
    #[inline]
    pub(super) fn commit(&self, largest: u64, sequence: u64) -> bool {
        let (last, of) = (largest / BLOCK, sequence / BLOCK);
        if of > last {
            // What these blocks said is of numbers that are a whole ring older.
            for block in last + 1..=of.min(last + BLOCKS) {
                self.0[(block % BLOCKS) as usize].store(0, Relaxed);
            }
        } else if last - of >= BLOCKS {
            return false;
        }
        let (block, bit) = (self.block(sequence), Self::bit(sequence));
        let bits = block.load(Relaxed);
        block.store(bits | bit, Relaxed);
        bits & bit == 0
    }
}

/// The number whose lower half a packet shows, given the largest authentic one so far (RFC 4304, appendix A2.2). `None`:
/// it would be a negative one.
#[inline]
pub(super) fn infer(largest: u64, low: u32, window: u64) -> Option<u64> {
    let (largest_high, largest_low) = (largest >> 32, largest & 0xffff_ffff);
    let low = u64::from(low);
    let high = if largest_low >= window - 1 {
        // The window lies within one half-space.
        if low >= largest_low - (window - 1) { largest_high } else { largest_high + 1 }
    } else if low >= (1 << 32) + largest_low - (window - 1) {
        largest_high.checked_sub(1)?
    } else {
        largest_high
    };
    Some(high << 32 | low)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// The smallest number with these lower bits that is not behind the window.
    fn nearest(largest: u64, low: u32, window: u64) -> Option<u64> {
        let behind = largest as i128 - window as i128;
        let first = i128::from(low) + (((behind >> 32) - 1) << 32);
        let found = (0..).map(|turn| first + (turn << 32)).find(|candidate| *candidate > behind)?;
        u64::try_from(found).ok()
    }

    proptest! {
        #[test]
        fn the_nearest_number_is_inferred(
            high in 0..5u64,
            low in prop_oneof![any::<u32>(), 0..5000u32, (0..5000u32).prop_map(|low| u32::MAX - low)],
            shown in prop_oneof![any::<u32>(), 0..5000u32, (0..5000u32).prop_map(|low| u32::MAX - low)],
            window in prop_oneof![Just(32u64), Just(64), Just(4096), 32..=4096u64],
        ) {
            let largest = high << 32 | u64::from(low);
            prop_assert_eq!(infer(largest, shown, window), nearest(largest, shown, window));
        }

        /// Numbers in any order, far ahead and far behind: what a set says that forgets what is old.
        #[test]
        fn the_same_as_a_set(steps in prop::collection::vec(
            prop_oneof![8 => -300..300i64, 2 => -9000..9000i64, 1 => -100_000..100_000i64], 1..400,
        )) {
            let (ring, mut set, mut largest) = (Ring::default(), HashSet::new(), 0u64);
            for step in steps {
                let sequence = largest.saturating_add_signed(step).max(1);
                let forgotten = sequence / BLOCK + BLOCKS <= largest / BLOCK;
                let is_new = !forgotten && !set.contains(&sequence);
                if sequence <= largest && !forgotten {
                    prop_assert_eq!(ring.has(sequence), !is_new);
                }
                prop_assert_eq!(ring.commit(largest, sequence), is_new, "{} behind {}", sequence, largest);
                set.insert(sequence);
                largest = largest.max(sequence);
            }
        }
    }
}

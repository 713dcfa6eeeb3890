//! Anti-replay window of an SA, as a ring of bit blocks (RFC 6479). This module also infers the
//! upper half of extended sequence numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of sequence numbers in a block.
const BLOCK: u64 = u64::BITS as u64;
/// Number of sequence numbers in a cache line.
const LINE: u64 = 8 * BLOCK;
/// Number of blocks in a ring. The ring is larger than the largest window, because the window may
/// advance while a packet waits for authentication. The packet's sequence number must still fit.
const BLOCKS: u64 = 128;

/// Maximum window size, in packets.
pub(super) const WINDOW_MAX: u32 = 4096;
/// Minimum window size, in packets (RFC 4303, section 3.4.3).
pub(super) const WINDOW_MIN: u32 = 32;

/// Set of recent authentic sequence numbers. Only one thread changes the set.
#[repr(align(64))]
pub(super) struct Ring([AtomicU64; BLOCKS as usize]);

impl Default for Ring {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BLOCKS as usize])
    }
}

/// Ring of bit blocks that is rotated by `lines` cache lines.
#[derive(Clone, Copy)]
pub(super) struct RotatedRing<'a> {
    pub(super) ring: &'a Ring,
    pub(super) lines: usize,
}

impl RotatedRing<'_> {
    /// See [`Ring::has`].
    #[inline(always)]
    pub(super) fn has(self, sequence: u64) -> bool {
        self.ring.has(self.rotated(sequence))
    }

    /// See [`Ring::fill`].
    pub(super) fn fill(self, largest: u64) {
        self.ring.fill(self.rotated(largest));
    }

    /// See [`Ring::commit`].
    #[inline(always)]
    pub(super) fn commit(self, largest: u64, sequence: u64) -> bool {
        self.ring.commit(self.rotated(largest), self.rotated(sequence))
    }

    /// Adds the rotation to a sequence number. The sum cannot overflow, because sequence numbers
    /// have at most 44 bits.
    #[inline(always)]
    fn rotated(self, sequence: u64) -> u64 {
        sequence + self.lines as u64 * LINE
    }
}

impl Ring {
    /// Number of cache lines in a ring.
    pub(super) const LINES: usize = (BLOCKS * BLOCK / LINE) as usize;

    /// Creates `COUNT` empty rings.
    #[cold]
    pub(super) fn array<const COUNT: usize>() -> Box<[Self; COUNT]> {
        let rings: Box<[Self]> = (0..COUNT).map(|_| Self::default()).collect();
        match rings.try_into() {
            Ok(rings) => rings,
            Err(_) => unreachable!("the slice has COUNT rings"),
        }
    }

    pub(super) fn clear(&self) {
        self.0.iter().for_each(|block| block.store(0, Relaxed));
    }

    /// Marks all sequence numbers up to `largest` as received, so that the SA continues after
    /// `largest`.
    pub(super) fn fill(&self, largest: u64) {
        self.0.iter().for_each(|block| block.store(u64::MAX, Relaxed));
        // Higher sequence numbers in this block stay unmarked. Later blocks are cleared when they
        // are first used.
        self.block(largest).store(Self::bit(largest) | (Self::bit(largest) - 1), Relaxed);
    }

    fn block(&self, sequence: u64) -> &AtomicU64 {
        &self.0[(sequence / BLOCK % BLOCKS) as usize]
    }

    fn bit(sequence: u64) -> u64 {
        1 << (sequence % BLOCK)
    }

    /// Returns whether a sequence number within the window was recorded.
    #[inline]
    pub(super) fn has(&self, sequence: u64) -> bool {
        self.block(sequence).load(Relaxed) & Self::bit(sequence) != 0
    }

    /// Records a sequence number. `largest` is the largest number so far. Returns false if
    /// `sequence` was already recorded or is too old for the ring.
    #[inline]
    pub(super) fn commit(&self, largest: u64, sequence: u64) -> bool {
        let (last, current) = (largest / BLOCK, sequence / BLOCK);
        if current > last {
            // These blocks still contain marks for numbers that are one ring length lower.
            for block in last + 1..=current.min(last + BLOCKS) {
                self.0[(block % BLOCKS) as usize].store(0, Relaxed);
            }
        } else if last - current >= BLOCKS {
            return false;
        }
        let (block, bit) = (self.block(sequence), Self::bit(sequence));
        let bits = block.load(Relaxed);
        block.store(bits | bit, Relaxed);
        bits & bit == 0
    }
}

/// Returns the extended sequence number whose lower half is `low` (RFC 4304, appendix A2.2).
/// `largest` is the largest authentic sequence number. Returns `None` if the result would be
/// negative.
#[inline]
pub(super) fn infer(largest: u64, low: u32, window: u64) -> Option<u64> {
    let (largest_high, largest_low) = (largest >> 32, largest & 0xffff_ffff);
    let low = u64::from(low);
    let high = if largest_low >= window - 1 {
        // The upper half is the same for all sequence numbers in the window.
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

    /// Returns the smallest sequence number that has the lower half `low` and is not older than the
    /// window.
    fn nearest(largest: u64, low: u32, window: u64) -> Option<u64> {
        let before_window = largest as i128 - window as i128;
        let first = i128::from(low) + (((before_window >> 32) - 1) << 32);
        let found = (0..).map(|turn| first + (turn << 32)).find(|candidate| *candidate > before_window)?;
        u64::try_from(found).ok()
    }

    proptest! {
        #[test]
        fn infers_the_nearest_number(
            high in 0..5u64,
            low in prop_oneof![any::<u32>(), 0..5000u32, (0..5000u32).prop_map(|low| u32::MAX - low)],
            received in prop_oneof![any::<u32>(), 0..5000u32, (0..5000u32).prop_map(|low| u32::MAX - low)],
            window in prop_oneof![Just(32u64), Just(64), Just(4096), 32..=4096u64],
        ) {
            let largest = high << 32 | u64::from(low);
            prop_assert_eq!(infer(largest, received, window), nearest(largest, received, window));
        }

        /// Compares the ring with a simple set of sequence numbers. Some of the numbers jump far
        /// forward or back.
        #[test]
        fn behaves_as_a_set(first in prop_oneof![Just(0), 1..100_000u64], steps in prop::collection::vec(
            prop_oneof![8 => -300..300i64, 2 => -9000..9000i64, 1 => -100_000..100_000i64], 1..400,
        )) {
            let (ring, mut set, mut largest) = (Ring::default(), HashSet::new(), first);
            if first > 0 {
                ring.fill(first);
                set.extend(first.saturating_sub(BLOCK * BLOCKS)..=first);
            }
            for step in steps {
                let sequence = largest.saturating_add_signed(step).max(1);
                let forgotten = sequence / BLOCK + BLOCKS <= largest / BLOCK;
                let is_new = !forgotten && !set.contains(&sequence);
                if sequence <= largest && !forgotten {
                    prop_assert_eq!(ring.has(sequence), !is_new);
                }
                prop_assert_eq!(ring.commit(largest, sequence), is_new, "{} with largest {}", sequence, largest);
                set.insert(sequence);
                largest = largest.max(sequence);
            }
        }
    }
}

//! Cuckoo hash table on the host. It stores the word of each slot and inserts new entries.
//!
//! A key has two buckets of four slots. If all eight slots are taken, a breadth-first search finds
//! the shortest path to a free slot. The entries on this path move to their other buckets, and one
//! of the eight slots becomes free. The search follows Li et al., "Algorithmic Improvements for
//! Fast Concurrent Cuckoo Hashing", EuroSys 2014, section 4.3.2.
//!
//! ```text
//! 63                rest_shift        2       1       0
//! | rest             | value          | second | valid |
//! ```
//!
//! The hash of a key consists of the number of the first bucket and of `rest`. Both together
//! determine the number of the second bucket.

use super::waves::Waves;

/// Number of slots per bucket.
pub(crate) const BUCKET_SLOTS: u32 = 4;
/// Maximum number of buckets that an insertion searches for a free slot.
const SEARCH_BUCKETS_MAX: usize = 2048;
/// Maximum number of entries in a table, per thousand slots. Up to 976 entries are possible with
/// four slots per bucket (Fountoulakis, Khosla, Panagiotou, SODA 2011). With this lower limit, an
/// insertion moves only few other entries.
const FILLED_PER_MILLE: u64 = 955;

const VALID: u64 = 1;
const SECOND: u64 = 2;

/// Parameters that determine the layout of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Binary logarithm of the number of buckets.
    pub(crate) bucket_bits: u32,
    /// Multiplier of the hash function that determines the second bucket of a key. The number is
    /// odd and secret.
    pub(crate) second: u64,
    /// Lowest bit of the field `rest`, which identifies the lookup key of an entry.
    pub(crate) rest_shift: u32,
}

impl Geometry {
    /// Returns the first bucket of a key with the hash `mixed`.
    pub(crate) fn first(&self, mixed: u64) -> u32 {
        (mixed & ((1 << self.bucket_bits) - 1)) as u32
    }

    /// Returns the hash bits that an entry stores to identify its lookup key. The bucket number
    /// determines the remaining hash bits.
    pub(crate) fn rest(&self, mixed: u64) -> u64 {
        mixed >> self.bucket_bits
    }

    /// Returns the bits in which the two bucket numbers of a lookup key differ. The result is never
    /// 0, so the two buckets are different.
    pub(crate) fn flip(&self, rest: u64) -> u32 {
        (rest.wrapping_mul(self.second) >> (64 - self.bucket_bits)) as u32 | 2
    }

    /// Returns a mask of the entry bits that may change while the entry is in the table.
    fn value_mask(&self) -> u64 {
        ((1 << self.rest_shift) - 1) & !(VALID | SECOND)
    }
}

/// Returns the number of entries that a table holds.
pub(crate) fn capacity_of(bucket_bits: u32) -> u64 {
    (4 << bucket_bits) * FILLED_PER_MILLE / 1000
}

/// Cuckoo hash table on the host, from which the kernel's table is written.
pub(crate) struct Cuckoo {
    geometry: Geometry,
    words: Vec<u64>,
}

/// Step of the search for a free slot.
struct Step {
    bucket: u32,
    /// Search step and slot from which an entry moves to this bucket. `None` for the first bucket
    /// of a path.
    from: Option<(usize, u32)>,
}

impl Cuckoo {
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self { geometry, words: vec![0; (BUCKET_SLOTS as usize) << geometry.bucket_bits] }
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> u32 {
        self.words.len() as u32
    }

    fn buckets(&self, mixed: u64) -> [u32; 2] {
        let first = self.geometry.first(mixed);
        [first, first ^ self.geometry.flip(self.geometry.rest(mixed))]
    }

    /// Returns the first slot with the hash `mixed` whose value satisfies `accepts`.
    pub(crate) fn find(&self, mixed: u64, accepts: impl Fn(u64) -> bool) -> Option<u32> {
        let expected = self.geometry.rest(mixed) << self.geometry.rest_shift | VALID;
        let mask = self.geometry.value_mask();
        let in_bucket = |(bucket, expected): (u32, u64)| {
            let mut slots = bucket * BUCKET_SLOTS..(bucket + 1) * BUCKET_SLOTS;
            slots.find(|slot| {
                let word = self.words[*slot as usize];
                word & !mask == expected && accepts(word & mask)
            })
        };
        self.buckets(mixed).into_iter().zip([expected, expected | SECOND]).find_map(in_bucket)
    }

    /// Returns the number of entries with the hash `mixed`.
    pub(crate) fn count(&self, mixed: u64) -> usize {
        let count = std::cell::Cell::new(0);
        self.find(mixed, |_| {
            count.set(count.get() + 1);
            false
        });
        count.get()
    }

    /// Returns the hash of the key in a slot.
    pub(crate) fn mixed(&self, slot: u32) -> Option<u64> {
        let word = self.words[slot as usize];
        let rest = word >> self.geometry.rest_shift;
        let flip = if word & SECOND != 0 { self.geometry.flip(rest) } else { 0 };
        let first = u64::from((slot / BUCKET_SLOTS) ^ flip);
        (word != 0).then_some(rest << self.geometry.bucket_bits | first)
    }

    #[cfg(test)]
    pub(crate) fn value(&self, slot: u32) -> Option<u64> {
        let word = self.words[slot as usize];
        (word != 0).then_some(word & self.geometry.value_mask())
    }

    /// Inserts an entry for the lookup key with the hash `mixed`. `value` is already shifted to its
    /// position in the entry. Returns the number of entries that were moved to make room. Returns
    /// `None` and leaves the table unchanged if there is no room.
    pub(crate) fn insert(&mut self, mixed: u64, value: u64, waves: &mut Waves) -> Option<usize> {
        debug_assert_eq!(value & !self.geometry.value_mask(), 0);
        let path = self.path(self.buckets(mixed))?;
        for pair in path.windows(2).rev() {
            // The entry moves to its other bucket.
            self.words[pair[1] as usize] = self.words[pair[0] as usize] ^ SECOND;
        }
        let slot = path[0];
        let second = if slot / BUCKET_SLOTS == self.geometry.first(mixed) { 0 } else { SECOND };
        self.words[slot as usize] = self.geometry.rest(mixed) << self.geometry.rest_shift | value | second | VALID;
        waves.write_path(&path, |slot| self.words[slot as usize]);
        Some(path.len() - 1)
    }

    /// Returns a path of slots from one of `buckets` to a free slot. The entry in each slot can
    /// move to the next slot of the path.
    fn path(&self, buckets: [u32; 2]) -> Option<Vec<u32>> {
        let mut steps: Vec<Step> = buckets.map(|bucket| Step { bucket, from: None }).into();
        let mut at = 0;
        while let Some(&Step { bucket, .. }) = steps.get(at) {
            for slot in bucket * BUCKET_SLOTS..(bucket + 1) * BUCKET_SLOTS {
                let word = self.words[slot as usize];
                if word == 0 {
                    let mut path = vec![slot];
                    let mut step = &steps[at];
                    while let Some((before, slot)) = step.from {
                        path.push(slot);
                        step = &steps[before];
                    }
                    path.reverse();
                    return Some(path);
                }
                let other = bucket ^ self.geometry.flip(word >> self.geometry.rest_shift);
                if steps.len() < SEARCH_BUCKETS_MAX && !passes(&steps, at, other) {
                    steps.push(Step { bucket: other, from: Some((at, slot)) });
                }
            }
            at += 1;
        }
        None
    }

    /// Changes the value of an entry.
    pub(crate) fn set(&mut self, slot: u32, value: u64, waves: &mut Waves) {
        let word = &mut self.words[slot as usize];
        *word = *word & !self.geometry.value_mask() | value;
        waves.write(slot, *word);
    }

    /// Frees a slot.
    pub(crate) fn remove(&mut self, slot: u32, waves: &mut Waves) {
        self.words[slot as usize] = 0;
        waves.write(slot, 0);
    }
}

/// Returns whether the path that ends at the step `at` already contains a bucket. A path must not
/// visit a bucket twice, because an entry could then move twice.
fn passes(steps: &[Step], at: usize, bucket: u32) -> bool {
    let mut step = Some(&steps[at]);
    while let Some(Step { bucket: passed, from }) = step {
        if *passed == bucket {
            return true;
        }
        step = from.map(|(before, _)| &steps[before]);
    }
    false
}

#[cfg(test)]
impl Cuckoo {
    pub(crate) fn of_words(geometry: Geometry, words: Vec<u64>) -> Self {
        Self { geometry, words }
    }
}

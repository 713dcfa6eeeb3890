//! Address table of the control side: the word in each slot, and the insertion of new entries.
//!
//! An address has two buckets of four slots. If all eight are taken, a breadth-first search finds
//! the shortest path on which entries can move to their other buckets, up to a free slot (Li et
//! al., "Algorithmic Improvements for Fast Concurrent Cuckoo Hashing", EuroSys 2014, section
//! 4.3.2).

use super::hash::Hash;
use super::waves::Waves;

/// Number of slots per bucket.
const BUCKET_SLOTS: u32 = 4;
/// Maximum number of buckets that the search for a free slot visits.
const SEARCH_BUCKETS_MAX: usize = 2048;

const VALID: u64 = 1;
const SECOND: u64 = 2;
const FRESH: u64 = 4;
const STATIC: u64 = 8;
const PORT_SHIFT: u32 = 4;
const REST_SHIFT: u32 = 12;
/// Bits of an entry that can change while it is in the table.
const VALUE: u64 = 0xff << PORT_SHIFT | STATIC | FRESH;

/// Changeable contents of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) port: u8,
    pub(super) is_static: bool,
    /// A frame from the address arrived recently.
    pub(super) is_fresh: bool,
}

impl Value {
    fn bits(self) -> u64 {
        let flag = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        u64::from(self.port) << PORT_SHIFT | flag(self.is_static, STATIC) | flag(self.is_fresh, FRESH)
    }
}

/// Cuckoo hash table. See the module documentation.
pub(super) struct Cuckoo {
    hash: Hash,
    words: Vec<u64>,
}

/// Bucket that the search has visited.
struct Step {
    bucket: u32,
    /// Index of the previous step, and the slot of the entry that would move from there to this
    /// bucket.
    from: Option<(usize, u32)>,
}

impl Cuckoo {
    pub(super) fn new(hash: Hash) -> Self {
        Self { hash, words: vec![0; (BUCKET_SLOTS as usize) << hash.bucket_bits()] }
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> u32 {
        self.words.len() as u32
    }

    fn buckets(&self, mixed: u64) -> [u32; 2] {
        let first = self.hash.first(mixed);
        [first, first ^ self.hash.flip(self.hash.rest(mixed))]
    }

    /// Returns the slot of a key.
    pub(super) fn find(&self, key: u64) -> Option<u32> {
        let mixed = self.hash.mix(key);
        let expected = self.hash.rest(mixed) << REST_SHIFT | VALID;
        let words = [expected, expected | SECOND];
        let in_bucket = |(bucket, expected): (u32, u64)| {
            let mut slots = bucket * BUCKET_SLOTS..(bucket + 1) * BUCKET_SLOTS;
            slots.find(|slot| self.words[*slot as usize] & !VALUE == expected)
        };
        self.buckets(mixed).into_iter().zip(words).find_map(in_bucket)
    }

    /// Returns the key in a slot.
    pub(super) fn key(&self, slot: u32) -> Option<u64> {
        let word = self.words[slot as usize];
        let rest = word >> REST_SHIFT;
        let flip = if word & SECOND != 0 { self.hash.flip(rest) } else { 0 };
        (word != 0).then(|| self.hash.key((slot / BUCKET_SLOTS) ^ flip, rest))
    }

    /// Inserts a key that is not in the table. Returns the number of entries that were moved, or
    /// `None` if there is no room. The table is unchanged in this case.
    pub(super) fn insert(&mut self, key: u64, value: Value, waves: &mut Waves) -> Option<usize> {
        debug_assert!(self.find(key).is_none());
        let mixed = self.hash.mix(key);
        let path = self.path(self.buckets(mixed))?;
        for pair in path.windows(2).rev() {
            // The entry moves to its other bucket.
            self.words[pair[1] as usize] = self.words[pair[0] as usize] ^ SECOND;
        }
        let slot = path[0];
        let second = if slot / BUCKET_SLOTS == self.hash.first(mixed) { 0 } else { SECOND };
        self.words[slot as usize] = self.hash.rest(mixed) << REST_SHIFT | value.bits() | second | VALID;
        waves.write_path(&path, |slot| self.words[slot as usize]);
        Some(path.len() - 1)
    }

    /// Returns the slots from one of `buckets` to a free slot. Each slot is in the other bucket of
    /// the entry before.
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
                let other = bucket ^ self.hash.flip(word >> REST_SHIFT);
                if steps.len() < SEARCH_BUCKETS_MAX && !passes(&steps, at, other) {
                    steps.push(Step { bucket: other, from: Some((at, slot)) });
                }
            }
            at += 1;
        }
        None
    }

    /// Changes the contents of an entry.
    pub(super) fn set(&mut self, slot: u32, value: Value, waves: &mut Waves) {
        let word = &mut self.words[slot as usize];
        *word = *word & !VALUE | value.bits();
        waves.write(slot, *word);
    }

    /// Frees a slot.
    pub(super) fn remove(&mut self, slot: u32, waves: &mut Waves) {
        self.words[slot as usize] = 0;
        waves.write(slot, 0);
    }
}

/// Returns whether the path to a step visits a bucket. An entry of that bucket could otherwise move
/// twice.
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
    /// Creates a table from its words.
    pub(super) fn of_words(hash: Hash, words: Vec<u64>) -> Self {
        Self { hash, words }
    }

    /// Returns the contents of the entry in a slot.
    pub(super) fn value(&self, slot: u32) -> Option<Value> {
        let word = self.words[slot as usize];
        let (is_static, is_fresh) = (word & STATIC != 0, word & FRESH != 0);
        (word != 0).then_some(Value { port: (word >> PORT_SHIFT) as u8, is_static, is_fresh })
    }
}

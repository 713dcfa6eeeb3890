//! The table of addresses, as the control side has it: which word is at which place, and how a new entry gets in.
//!
//! An address has two buckets of four places. Where all eight are taken, the shortest way is looked for on which entries can
//! move to their other buckets until one finds a free place (breadth first: Li et al., "Algorithmic Improvements
//! for Fast Concurrent Cuckoo Hashing", EuroSys 2014, section 4.3.2).

use super::hash::Hash;
use super::waves::Waves;

/// Entries of a bucket.
const WAYS: u32 = 4;
/// Buckets that are looked at for a way to a free place.
const LOOKED_AT: usize = 2048;

const VALID: u64 = 1;
const SECOND: u64 = 2;
const FRESH: u64 = 4;
const STATIC: u64 = 8;
const PORT_SHIFT: u32 = 4;
const REST_SHIFT: u32 = 12;
/// What may change of an entry.
const VALUE: u64 = 0xff << PORT_SHIFT | STATIC | FRESH;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) port: u8,
    pub(super) is_static: bool,
    /// Heard of not long ago.
    pub(super) is_fresh: bool,
}

impl Value {
    fn bits(self) -> u64 {
        let flag = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        u64::from(self.port) << PORT_SHIFT | flag(self.is_static, STATIC) | flag(self.is_fresh, FRESH)
    }
}

/// See the module.
pub(super) struct Cuckoo {
    hash: Hash,
    words: Vec<u64>,
}

/// A bucket that was come to from another.
struct Step {
    bucket: u32,
    /// Index of the step before, and the place of the entry that would come from there.
    from: Option<(usize, u32)>,
}

impl Cuckoo {
    pub(super) fn new(hash: Hash) -> Self {
        Self { hash, words: vec![0; (WAYS as usize) << hash.bucket_bits()] }
    }

    /// How many places there are.
    pub(super) fn places(&self) -> u32 {
        self.words.len() as u32
    }

    fn buckets(&self, mixed: u64) -> [u32; 2] {
        let first = self.hash.first(mixed);
        [first, first ^ self.hash.flip(self.hash.rest(mixed))]
    }

    /// Where a key lies.
    pub(super) fn find(&self, key: u64) -> Option<u32> {
        let mixed = self.hash.mix(key);
        let wanted = self.hash.rest(mixed) << REST_SHIFT | VALID;
        let words = [wanted, wanted | SECOND];
        let in_bucket = |(bucket, wanted): (u32, u64)| {
            let mut places = bucket * WAYS..(bucket + 1) * WAYS;
            places.find(|place| self.words[*place as usize] & !VALUE == wanted)
        };
        self.buckets(mixed).into_iter().zip(words).find_map(in_bucket)
    }

    /// The key that lies at a place.
    pub(super) fn key(&self, place: u32) -> Option<u64> {
        let word = self.words[place as usize];
        let rest = word >> REST_SHIFT;
        let flip = if word & SECOND != 0 { self.hash.flip(rest) } else { 0 };
        (word != 0).then(|| self.hash.key((place / WAYS) ^ flip, rest))
    }

    /// Puts a key in that is not there. How many entries were moved for it; `None`: no way to make room was found, and nothing
    /// has changed.
    pub(super) fn insert(&mut self, key: u64, value: Value, waves: &mut Waves) -> Option<usize> {
        debug_assert!(self.find(key).is_none());
        let mixed = self.hash.mix(key);
        let path = self.path(self.buckets(mixed))?;
        for pair in path.windows(2).rev() {
            // Its other bucket.
            self.words[pair[1] as usize] = self.words[pair[0] as usize] ^ SECOND;
        }
        let place = path[0];
        let second = if place / WAYS == self.hash.first(mixed) { 0 } else { SECOND };
        self.words[place as usize] = self.hash.rest(mixed) << REST_SHIFT | value.bits() | second | VALID;
        waves.write_path(&path, |place| self.words[place as usize]);
        Some(path.len() - 1)
    }

    /// Places from one in these buckets to a free one, each in the other bucket of the entry before.
    fn path(&self, buckets: [u32; 2]) -> Option<Vec<u32>> {
        let mut steps: Vec<Step> = buckets.map(|bucket| Step { bucket, from: None }).into();
        let mut at = 0;
        while let Some(&Step { bucket, .. }) = steps.get(at) {
            for place in bucket * WAYS..(bucket + 1) * WAYS {
                let word = self.words[place as usize];
                if word == 0 {
                    let mut path = vec![place];
                    let mut step = &steps[at];
                    while let Some((before, place)) = step.from {
                        path.push(place);
                        step = &steps[before];
                    }
                    path.reverse();
                    return Some(path);
                }
                let other = bucket ^ self.hash.flip(word >> REST_SHIFT);
                if steps.len() < LOOKED_AT && !passes(&steps, at, other) {
                    steps.push(Step { bucket: other, from: Some((at, place)) });
                }
            }
            at += 1;
        }
        None
    }

    /// Changes what is said at a place.
    pub(super) fn set(&mut self, place: u32, value: Value, waves: &mut Waves) {
        let word = &mut self.words[place as usize];
        *word = *word & !VALUE | value.bits();
        waves.write(place, *word);
    }

    /// Frees a place.
    pub(super) fn remove(&mut self, place: u32, waves: &mut Waves) {
        self.words[place as usize] = 0;
        waves.write(place, 0);
    }
}

/// Whether the way to a step passes a bucket: its entries would move twice.
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
    /// A table with these words.
    pub(super) fn of_words(hash: Hash, words: Vec<u64>) -> Self {
        Self { hash, words }
    }

    /// What is said at a place.
    pub(super) fn value(&self, place: u32) -> Option<Value> {
        let word = self.words[place as usize];
        let (is_static, is_fresh) = (word & STATIC != 0, word & FRESH != 0);
        (word != 0).then_some(Value { port: (word >> PORT_SHIFT) as u8, is_static, is_fresh })
    }
}

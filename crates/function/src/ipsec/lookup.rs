//! A hash table that one thread changes while others ask.
//!
//! ```text
//!          +--------+--------+--------+--------+---------+---------+---------+---------+
//! bucket   | key 0  | key 1  | key 2  | key 3  | value 0 | value 1 | value 2 | value 3 |   64 bytes: a cache line
//!          +--------+--------+--------+--------+---------+---------+---------+---------+
//! ```
//!
//! A key lies in the first of its two buckets, or in the second where the first was full: most look-ups read one cache
//! line and none reads more than two. Those who send packets choose only what is asked, never what is in the table, so
//! this bound is theirs too, and the hash needs no secret.
//!
//! Nobody locks. A value is written after its key (release) and read between two looks at the key (acquire), so what is
//! found is never another key's; a key that is taken out must not come back before all who asked meanwhile are done, which
//! grace periods see to. A key that makes room is in its second bucket before it leaves the first, so it is found all the
//! while.

use std::sync::atomic::{AtomicU64, Ordering};

use godwit_packet::simd::{Four, Isa};

const WAYS: usize = 4;

/// Exact keys to values.
pub(super) struct Lookup {
    /// A power of two of them; at least one.
    buckets: Box<[Bucket]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Bucket {
    keys: Four,
    /// One more than the value; 0 where there is no key. In the last one also [`OVERFLOWED`].
    values: [AtomicU64; WAYS],
}

/// Some key has this bucket for its first and lies in its second.
const OVERFLOWED: u64 = 1 << 63;

impl Bucket {
    fn key(&self, way: usize) -> u64 {
        self.keys.0[way].load(Ordering::Relaxed)
    }

    /// The value, [`Lookup::ABSENT`] where there is none.
    #[inline]
    fn value(&self, way: usize) -> u64 {
        (self.values[way].load(Ordering::Acquire) & !OVERFLOWED).wrapping_sub(1)
    }

    #[inline]
    fn get(&self, key: u64) -> u64 {
        // All are compared, without a branch: where the key lies cannot be predicted. A place that is not used may look
        // as if it had the key; a used one comes first, because a key goes to the first free place.
        let same = |way: usize| u32::from(self.key(way) == key) << way;
        self.get_among(key, same(0) | same(1) | same(2) | same(3))
    }

    /// The same, where `ways` says which of the keys it looks like.
    #[inline(always)]
    fn get_among(&self, key: u64, ways: u32) -> u64 {
        let way = ways.trailing_zeros() as usize % WAYS;
        let value = self.value(way);
        // Before and after: a key that came in between does not have this value.
        if ways != 0 && self.key(way) == key { value } else { Lookup::ABSENT }
    }

    /// Where the key lies.
    fn way(&self, key: u64) -> Option<usize> {
        (0..WAYS).find(|&way| self.key(way) == key && self.value(way) != Lookup::ABSENT)
    }

    #[inline]
    fn has_overflowed(&self) -> bool {
        self.values[WAYS - 1].load(Ordering::Acquire) & OVERFLOWED != 0
    }

    fn set_overflowed(&self) {
        self.values[WAYS - 1].fetch_or(OVERFLOWED, Ordering::AcqRel);
    }

    /// Whether there was room.
    fn insert(&self, key: u64, value: u64) -> bool {
        let free = (0..WAYS).find(|&way| self.value(way) == Lookup::ABSENT);
        if let Some(way) = free {
            self.keys.0[way].store(key, Ordering::Release);
            self.set(way, value + 1);
        }
        free.is_some()
    }

    /// Writes what is stored of a value, and leaves the mark of the bucket as it is.
    fn set(&self, way: usize, stored: u64) {
        let mark = self.values[way].load(Ordering::Relaxed) & OVERFLOWED;
        self.values[way].store(stored | mark, Ordering::Release);
    }
}

impl Lookup {
    /// Says that there is no such key. Values are smaller than 2^63 - 1.
    pub(super) const ABSENT: u64 = u64::MAX;

    /// An empty table for so many keys.
    pub(super) fn with_capacity(keys: usize) -> Self {
        // One key per bucket on average.
        Self { buckets: (0..keys.next_power_of_two()).map(|_| Bucket::default()).collect() }
    }

    /// A table of these keys, each of which comes once.
    pub(super) fn new(entries: &[(u64, u64)]) -> Self {
        let mut capacity = entries.len();
        loop {
            let table = Self::with_capacity(capacity);
            if entries.iter().all(|&(key, value)| table.insert(key, value)) {
                return table;
            }
            capacity = 2 * table.buckets.len();
        }
    }

    /// Puts a key in that is not there. False where there is no room, which is as good as impossible as long as there are
    /// no more keys than the table is for. One thread at a time.
    pub(super) fn insert(&self, key: u64, value: u64) -> bool {
        debug_assert!(value < OVERFLOWED - 1);
        let (first, second) = self.places(key);
        if self.insert_at(key, value, first, second) {
            return true;
        }
        [first, second].into_iter().any(|full| self.make_room(full)) && self.insert_at(key, value, first, second)
    }

    fn insert_at(&self, key: u64, value: u64, first: usize, second: usize) -> bool {
        if self.buckets[first].insert(key, value) {
            return true;
        }
        let inserted = self.buckets[second].insert(key, value);
        if inserted {
            self.buckets[first].set_overflowed();
        }
        inserted
    }

    /// Moves a key out of its first bucket, which is full, to its second.
    fn make_room(&self, full: usize) -> bool {
        let bucket = &self.buckets[full];
        (0..WAYS).any(|way| {
            let key = bucket.key(way);
            let (first, second) = self.places(key);
            let moves = first == full && second != full && self.buckets[second].insert(key, bucket.value(way));
            if moves {
                bucket.set_overflowed();
                bucket.set(way, 0);
            }
            moves
        })
    }

    /// Gives a key that is there another value. One thread at a time.
    pub(super) fn replace(&self, key: u64, value: u64) -> bool {
        self.change(key, value + 1)
    }

    /// Takes a key out; false where there is none. One thread at a time.
    pub(super) fn remove(&self, key: u64) -> bool {
        self.change(key, 0)
    }

    fn change(&self, key: u64, stored: u64) -> bool {
        let (first, second) = self.places(key);
        let found = [first, second].into_iter().find_map(|place| Some((place, self.buckets[place].way(key)?)));
        if let Some((place, way)) = found {
            self.buckets[place].set(way, stored);
        }
        found.is_some()
    }

    /// The value of a key, or [`Lookup::ABSENT`].
    #[inline(always)]
    pub(super) fn get(&self, key: u64) -> u64 {
        let (first, second) = self.places(key);
        let bucket = &self.buckets[first];
        match bucket.get(key) {
            Self::ABSENT if bucket.has_overflowed() => self.buckets[second].get(key),
            value => value,
        }
    }

    /// The same, where the key lies in its first bucket; else [`Lookup::ABSENT`].
    #[inline(always)]
    pub(super) fn first_look(&self, key: u64, form: impl Isa) -> u64 {
        let bucket = &self.buckets[self.places(key).0];
        bucket.get_among(key, form.equal(&bucket.keys, key))
    }

    #[inline(always)]
    fn places(&self, key: u64) -> (usize, usize) {
        let hash = spread(key);
        let mask = self.buckets.len() - 1;
        ((hash as usize) & mask, (hash >> 32) as usize & mask)
    }
}

/// Where a key lies, in both halves. Both halves of the key reach all of the upper bits of the product, and those the lower half
/// of the hash; different keys stay different. One multiplication less than [`mix`]: tables grow where it was too little.
#[inline(always)]
fn spread(key: u64) -> u64 {
    let product = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

/// The finalizer of MurmurHash3 (A. Appleby, public domain): every bit of the input reaches every other, and different
/// inputs stay different.
#[inline]
pub(super) fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use godwit_packet::simd::{self, Vectorized};
    use proptest::prelude::*;

    use super::*;

    struct FirstLook<'a>(&'a Lookup, u64);

    impl Vectorized for FirstLook<'_> {
        type Output = u64;

        #[inline(always)]
        fn run(self, form: impl Isa) -> u64 {
            self.0.first_look(self.1, form)
        }
    }

    #[test]
    fn what_was_put_in_is_found_and_nothing_else() {
        // Close together, far apart, and the key of an empty place.
        for (count, step) in
            [(0, 1), (1, 1), (5, 1), (4096, 1), (4096, 0x100), (5000, 0x1_0000_0001), (70_000, 3 << 40)]
        {
            let entries: Vec<_> = (0..count).map(|index: u64| (index.wrapping_mul(step), index)).collect();
            let table = Lookup::new(&entries);
            for &(key, value) in &entries {
                assert_eq!(table.get(key), value, "{count} keys, {step:#x} apart");
                assert!([value, Lookup::ABSENT].contains(&simd::run(FirstLook(&table, key))));
                assert_eq!(simd::run(FirstLook(&table, key)), simd::run_scalar(FirstLook(&table, key)));
            }
            for absent in (0..count + 10).map(|index| index.wrapping_mul(step).wrapping_add(step / 2 + 1)) {
                let expected = entries.iter().find(|_| step == 1).and_then(|_| (absent < count).then_some(absent));
                assert_eq!(table.get(absent), expected.unwrap_or(Lookup::ABSENT), "{count} keys, {step:#x} apart");
            }
        }
    }

    #[test]
    fn the_second_bucket_is_used_and_found() {
        let entries: Vec<_> = (0..100_000).map(|index| (mix(index), index)).collect();
        let table = Lookup::new(&entries);
        let second = entries.iter().filter(|(key, _)| {
            let (first, second) = table.places(*key);
            first != second && table.buckets[first].get(*key) == Lookup::ABSENT
        });
        assert!(second.count() > 0);
        assert!(entries.iter().all(|&(key, value)| table.get(key) == value));
        assert!((100_000..110_000).all(|index| table.get(mix(index)) == Lookup::ABSENT));
    }

    #[test]
    fn a_full_bucket_makes_room() {
        let table = Lookup::with_capacity(64);
        let (first, second) = table.places(0);
        // Keys whose first bucket is one of key 0's fill both.
        let keys: Vec<u64> = (1..).filter(|&key| [first, second].contains(&table.places(key).0)).take(9).collect();
        assert!(keys.iter().all(|&key| table.insert(key, key)) && table.insert(0, 77));
        assert_eq!(table.get(0), 77);
        assert!(keys.iter().all(|&key| table.get(key) == key));
    }

    proptest! {
        #[test]
        fn the_same_as_a_map(changes in prop::collection::vec((0..3u8, 0..60u64, 0..1000u64), 0..400)) {
            let table = Lookup::with_capacity(32);
            let mut map = std::collections::HashMap::new();
            for (what, key, value) in changes {
                match what {
                    0 if map.contains_key(&key) => prop_assert!(table.replace(key, value)),
                    0 => prop_assert!(table.insert(key, value)),
                    1 => prop_assert_eq!(table.remove(key), map.contains_key(&key)),
                    _ => prop_assert_eq!(table.get(key), map.get(&key).copied().unwrap_or(Lookup::ABSENT)),
                }
                match what {
                    0 => drop(map.insert(key, value)),
                    1 => drop(map.remove(&key)),
                    _ => {}
                }
            }
            for key in 0..60 {
                prop_assert_eq!(table.get(key), map.get(&key).copied().unwrap_or(Lookup::ABSENT));
            }
        }
    }

    #[test]
    fn who_asks_meanwhile_never_gets_what_is_another_keys() {
        use std::sync::atomic::AtomicBool;
        let (table, done) = (Lookup::with_capacity(16), AtomicBool::new(false));
        // These stay; all others come and go around them.
        let stays = |key: u64| key.is_multiple_of(4);
        (0..16).filter(|&key| stays(key)).for_each(|key| assert!(table.insert(key, key * 1000)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for key in 0..16 {
                        let value = table.get(key);
                        assert!(value / 1000 == key || value == Lookup::ABSENT && !stays(key), "{key}: {value}");
                    }
                }
            });
            for turn in 0..20_000 {
                for key in (0..16).filter(|&key| !stays(key)) {
                    assert!(table.insert(key, key * 1000 + turn % 1000));
                }
                for key in (0..16).filter(|&key| !stays(key)) {
                    assert!(table.remove(key));
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

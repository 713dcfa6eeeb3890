//! Hash table that one thread changes while other threads read it.
//!
//! ```text
//!         +-------+-------+-------+-------+---------+---------+---------+---------+
//! bucket  | key 0 | key 1 | key 2 | key 3 | value 0 | value 1 | value 2 | value 3 |  1 cache line
//!         +-------+-------+-------+-------+---------+---------+---------+---------+
//! ```
//!
//! Every key has two buckets. It is stored in the second one only if the first one was full at
//! insertion. A lookup therefore usually reads one cache line, and at most two.
//!
//! Remote senders cannot choose which keys are stored, so they cannot make lookups slower. The hash
//! function therefore needs no secret.
//!
//! Readers take no lock. The writer stores a key before its value (release). A reader compares the
//! key before and after it loads the value (acquire), so it never returns the value of another key.
//!
//! A removed key must not be inserted again before all concurrent readers are done. The callers
//! ensure this with grace periods. A key that moves to its second bucket is stored there before it
//! is removed from the first, so readers always find it.

use std::sync::atomic::{AtomicU64, Ordering};

use godwit_packet::simd::{Four, Isa};

const WAYS: usize = 4;

/// Hash table from exact 64-bit keys to values.
pub(super) struct Lookup {
    /// Buckets. Their number is a power of two and at least one.
    buckets: Box<[Bucket]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Bucket {
    keys: Four,
    /// Values of the keys, each increased by 1. The value 0 marks a free slot. The last value also
    /// contains the flag [`OVERFLOWED`].
    values: [AtomicU64; WAYS],
}

/// Flag of a bucket that was full when a key was inserted. The key was then stored in its second
/// bucket, so lookups must search both buckets.
const OVERFLOWED: u64 = 1 << 63;

impl Bucket {
    fn key(&self, way: usize) -> u64 {
        self.keys.0[way].load(Ordering::Relaxed)
    }

    #[inline]
    fn value(&self, way: usize) -> u64 {
        (self.values[way].load(Ordering::Acquire) & !OVERFLOWED).wrapping_sub(1)
    }

    #[inline]
    fn get(&self, key: u64) -> u64 {
        // All keys are compared without a branch, because the matching slot is unpredictable. A
        // free slot may still contain an old copy of the key. The used slot always precedes this
        // copy.
        let same = |way: usize| u32::from(self.key(way) == key) << way;
        self.get_among(key, same(0) | same(1) | same(2) | same(3))
    }

    /// Returns the value of `key`. Bit `n` of `ways` is set if slot `n` contained `key` at the
    /// comparison.
    #[inline(always)]
    fn get_among(&self, key: u64, ways: u32) -> u64 {
        let way = ways.trailing_zeros() as usize % WAYS;
        let value = self.value(way);
        // Another thread may have changed the slot since the comparison, so the key is compared
        // again.
        if ways != 0 && self.key(way) == key { value } else { Lookup::ABSENT }
    }

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

    /// Inserts a key. Returns false if the bucket is full.
    fn insert(&self, key: u64, value: u64) -> bool {
        let free = (0..WAYS).find(|&way| self.value(way) == Lookup::ABSENT);
        if let Some(way) = free {
            self.keys.0[way].store(key, Ordering::Release);
            self.set(way, value + 1);
        }
        free.is_some()
    }

    /// Stores the encoded value of slot `way`, and keeps the [`OVERFLOWED`] flag of the bucket.
    fn set(&self, way: usize, stored: u64) {
        let mark = self.values[way].load(Ordering::Relaxed) & OVERFLOWED;
        self.values[way].store(stored | mark, Ordering::Release);
    }
}

impl Lookup {
    /// Result of a lookup for a key that is not in the table. All stored values are smaller than
    /// 2^63 - 1.
    pub(super) const ABSENT: u64 = u64::MAX;

    pub(super) fn with_capacity(keys: usize) -> Self {
        // A full table has at most one key per bucket on average.
        Self { buckets: (0..keys.next_power_of_two()).map(|_| Bucket::default()).collect() }
    }

    /// Creates a table with these entries. The keys must be distinct.
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

    /// Inserts a key that is not in the table. Returns false if both buckets of the key are full,
    /// which is very unlikely. Only one thread may change the table at a time.
    pub(super) fn insert(&self, key: u64, value: u64) -> bool {
        debug_assert!(value < OVERFLOWED - 1);
        let (first, second) = self.buckets_of(key);
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

    /// Makes room in a full bucket by moving one key to the key's second bucket. Returns false if
    /// no key can move.
    fn make_room(&self, full: usize) -> bool {
        let bucket = &self.buckets[full];
        (0..WAYS).any(|way| {
            let key = bucket.key(way);
            let (first, second) = self.buckets_of(key);
            let moves = first == full && second != full && self.buckets[second].insert(key, bucket.value(way));
            if moves {
                bucket.set_overflowed();
                bucket.set(way, 0);
            }
            moves
        })
    }

    /// Changes the value of a key. Returns false if the key is absent. Only one thread may change
    /// the table at a time.
    pub(super) fn replace(&self, key: u64, value: u64) -> bool {
        self.change(key, value + 1)
    }

    /// Removes a key. Returns false if the key is absent. Only one thread may change the table at a
    /// time.
    pub(super) fn remove(&self, key: u64) -> bool {
        self.change(key, 0)
    }

    fn change(&self, key: u64, stored: u64) -> bool {
        let (first, second) = self.buckets_of(key);
        let found = [first, second].into_iter().find_map(|index| Some((index, self.buckets[index].way(key)?)));
        if let Some((index, way)) = found {
            self.buckets[index].set(way, stored);
        }
        found.is_some()
    }

    /// Returns the value of a key, or [`Lookup::ABSENT`].
    #[inline(always)]
    pub(super) fn get(&self, key: u64) -> u64 {
        let (first, second) = self.buckets_of(key);
        let bucket = &self.buckets[first];
        match bucket.get(key) {
            Self::ABSENT if bucket.has_overflowed() => self.buckets[second].get(key),
            value => value,
        }
    }

    /// Returns the value of a key if the first bucket contains the key, and [`Lookup::ABSENT`]
    /// otherwise.
    #[inline(always)]
    pub(super) fn get_in_first_bucket(&self, key: u64, isa: impl Isa) -> u64 {
        let bucket = &self.buckets[self.buckets_of(key).0];
        bucket.get_among(key, isa.equal(&bucket.keys, key))
    }

    #[inline(always)]
    fn buckets_of(&self, key: u64) -> (usize, usize) {
        let hash = spread(key);
        let mask = self.buckets.len() - 1;
        ((hash as usize) & mask, (hash >> 32) as usize & mask)
    }
}

/// Returns a hash of a key. The two halves of the hash select the key's two buckets. Different keys
/// have different hashes.
#[inline(always)]
fn spread(key: u64) -> u64 {
    let product = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

/// Returns the hash of a 64-bit number by the finalizer of MurmurHash3 (A. Appleby, public domain).
/// Every input bit affects every output bit, and different inputs have different hashes.
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

    struct GetInFirstBucket<'a>(&'a Lookup, u64);

    impl Vectorized for GetInFirstBucket<'_> {
        type Output = u64;

        #[inline(always)]
        fn run(self, isa: impl Isa) -> u64 {
            self.0.get_in_first_bucket(self.1, isa)
        }
    }

    #[test]
    fn finds_exactly_the_inserted_keys() {
        // The keys include 0, which is also the value of an empty slot.
        for (count, step) in
            [(0, 1), (1, 1), (5, 1), (4096, 1), (4096, 0x100), (5000, 0x1_0000_0001), (70_000, 3 << 40)]
        {
            let entries: Vec<_> = (0..count).map(|index: u64| (index.wrapping_mul(step), index)).collect();
            let table = Lookup::new(&entries);
            for &(key, value) in &entries {
                assert_eq!(table.get(key), value, "{count} keys, {step:#x} apart");
                assert!([value, Lookup::ABSENT].contains(&simd::run(GetInFirstBucket(&table, key))));
                assert_eq!(simd::run(GetInFirstBucket(&table, key)), simd::run_scalar(GetInFirstBucket(&table, key)));
            }
            for absent in (0..count + 10).map(|index| index.wrapping_mul(step).wrapping_add(step / 2 + 1)) {
                let expected = entries.iter().find(|_| step == 1).and_then(|_| (absent < count).then_some(absent));
                assert_eq!(table.get(absent), expected.unwrap_or(Lookup::ABSENT), "{count} keys, {step:#x} apart");
            }
        }
    }

    #[test]
    fn finds_keys_in_their_second_bucket() {
        let entries: Vec<_> = (0..100_000).map(|index| (mix(index), index)).collect();
        let table = Lookup::new(&entries);
        let second = entries.iter().filter(|(key, _)| {
            let (first, second) = table.buckets_of(*key);
            first != second && table.buckets[first].get(*key) == Lookup::ABSENT
        });
        assert!(second.count() > 0);
        assert!(entries.iter().all(|&(key, value)| table.get(key) == value));
        assert!((100_000..110_000).all(|index| table.get(mix(index)) == Lookup::ABSENT));
    }

    #[test]
    fn moves_a_key_out_of_a_full_bucket() {
        let table = Lookup::with_capacity(64);
        let (first, second) = table.buckets_of(0);
        // The first choice of each of these keys is one of the two buckets of key 0. Together, the
        // keys fill both buckets.
        let keys: Vec<u64> = (1..).filter(|&key| [first, second].contains(&table.buckets_of(key).0)).take(9).collect();
        assert!(keys.iter().all(|&key| table.insert(key, key)) && table.insert(0, 77));
        assert_eq!(table.get(0), 77);
        assert!(keys.iter().all(|&key| table.get(key) == key));
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(changes in prop::collection::vec((0..3u8, 0..60u64, 0..1000u64), 0..400)) {
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
    fn concurrent_readers_never_get_the_value_of_another_key() {
        use std::sync::atomic::AtomicBool;
        let (table, done) = (Lookup::with_capacity(16), AtomicBool::new(false));
        // These keys stay in the table. All other keys are inserted and removed repeatedly.
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

//! A hash table that is written once and then only asked.
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

const WAYS: usize = 4;
/// Seeds tried before the table grows.
const SEEDS: u64 = 4;

/// Exact keys to values.
pub(super) struct Lookup {
    /// A power of two of them; at least one.
    buckets: Vec<Bucket>,
    seed: u64,
}

#[derive(Clone)]
#[repr(align(64))]
struct Bucket {
    keys: [u64; WAYS],
    /// [`Lookup::ABSENT`] where there is no key; filled from the front.
    values: [u64; WAYS],
}

impl Bucket {
    const EMPTY: Self = Self { keys: [0; WAYS], values: [Lookup::ABSENT; WAYS] };

    #[inline]
    fn get(&self, key: u64) -> u64 {
        // All are compared, without a branch: where the key lies cannot be predicted. A place that is not used may look
        // as if it had the key; a used one comes first.
        let same = |way: usize| u32::from(self.keys[way] == key) << way;
        let way = (same(0) | same(1) | same(2) | same(3)).trailing_zeros() as usize % WAYS;
        if self.keys[way] == key { self.values[way] } else { Lookup::ABSENT }
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.values[WAYS - 1] != Lookup::ABSENT
    }

    /// Whether there was room.
    fn insert(&mut self, key: u64, value: u64) -> bool {
        let free = self.values.iter().position(|value| *value == Lookup::ABSENT);
        if let Some(way) = free {
            (self.keys[way], self.values[way]) = (key, value);
        }
        free.is_some()
    }
}

impl Lookup {
    /// Says that there is no such key; no value may be this.
    pub(super) const ABSENT: u64 = u64::MAX;

    /// A table of these keys, each of which comes once.
    pub(super) fn new(entries: &[(u64, u64)]) -> Self {
        debug_assert!(entries.iter().all(|entry| entry.1 != Self::ABSENT));
        // One key per bucket on average; with more room sooner or later every key finds a place.
        let mut count = entries.len().next_power_of_two();
        loop {
            if let Some(table) = (0..SEEDS).find_map(|seed| Self::filled(count, count as u64 + seed, entries)) {
                return table;
            }
            count *= 2;
        }
    }

    /// `None` where a key finds both of its buckets full.
    fn filled(count: usize, seed: u64, entries: &[(u64, u64)]) -> Option<Self> {
        let mut table = Self { buckets: vec![Bucket::EMPTY; count], seed: mix(seed) };
        entries.iter().all(|&(key, value)| table.insert(key, value)).then_some(table)
    }

    fn insert(&mut self, key: u64, value: u64) -> bool {
        let (first, second) = self.places(key);
        self.buckets[first].insert(key, value) || self.buckets[second].insert(key, value)
    }

    /// The value of a key, or [`Lookup::ABSENT`].
    #[inline]
    pub(super) fn get(&self, key: u64) -> u64 {
        let (first, second) = self.places(key);
        let bucket = &self.buckets[first];
        match bucket.get(key) {
            Self::ABSENT if bucket.is_full() => self.buckets[second].get(key),
            value => value,
        }
    }

    #[inline]
    fn places(&self, key: u64) -> (usize, usize) {
        let hash = mix(key ^ self.seed);
        let mask = self.buckets.len() - 1;
        ((hash as usize) & mask, (hash >> 32) as usize & mask)
    }
}

/// The finalizer of MurmurHash3 (A. Appleby, public domain): every bit of the input reaches every other, and different
/// inputs stay different.
#[inline]
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(table.buckets.iter().any(Bucket::is_full));
        let second = entries.iter().filter(|(key, _)| {
            let (first, second) = table.places(*key);
            first != second && table.buckets[first].get(*key) == Lookup::ABSENT
        });
        assert!(second.count() > 0);
        assert!(entries.iter().all(|&(key, value)| table.get(key) == value));
        assert!((100_000..110_000).all(|index| table.get(mix(index)) == Lookup::ABSENT));
    }
}

//! Tests of the address table alone.

use std::collections::{BTreeMap, HashSet};

use godwit_kernels::image::L2Image;
use proptest::prelude::*;

use super::{PORTS, TestSwitch, mac};
use crate::Function as _;
use crate::l2::table::{Hash, Table, Value as TableValue};
use crate::l2::{key, tables};
use crate::tables::exact::{Waves, capacity_of};

/// Returns a table of minimum size with the given hash.
fn table(words: [u64; 9]) -> Table {
    Table::new(Hash::of(words, tables::BUCKET_BITS.start))
}

fn value(port: u8) -> TableValue {
    TableValue { port, is_static: port.is_multiple_of(3), is_fresh: port.is_multiple_of(2) }
}

/// Addresses that collide in one bucket under a known hash function must not collide under another
/// hash function.
#[test]
fn hash_secrets_prevent_chosen_collisions() {
    const CROWD: usize = 64;
    const BUCKET_BITS: u32 = 12;
    let known =
        Hash::of([1, 2, 3, 4, 5, 6, 7, 8, 9].map(|word: u64| word.wrapping_mul(0x9e37_79b9_7f4a_7c15)), BUCKET_BITS);
    let crowd: Vec<u64> = (0..)
        .map(|number| key(1, mac(number)))
        .filter(|key| known.geometry.first(known.permutation.mix(*key)) == 7)
        .take(CROWD)
        .collect();
    let other = Hash::random(BUCKET_BITS).unwrap();
    let buckets: HashSet<u32> = crowd.iter().map(|key| other.geometry.first(other.permutation.mix(*key))).collect();
    // At random, few of 64 addresses share one of 4096 buckets.
    assert!(buckets.len() > CROWD * 2 / 3, "{} buckets for {CROWD} addresses", buckets.len());
    let [one, two] = [(); 2].map(|()| TestSwitch::new("", &PORTS).function.image().to_vec());
    assert_ne!(one[..size_of::<L2Image>()], two[..size_of::<L2Image>()], "both switches have the same secrets");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn mixing_is_invertible_and_the_two_buckets_differ(words: [u64; 9], key in 0u64..1 << 60, bits in tables::BUCKET_BITS) {
        let Hash { permutation, geometry } = Hash::of(words, bits);
        let mixed = permutation.mix(key);
        prop_assert!(mixed < 1 << 60);
        prop_assert_eq!(permutation.unmix(mixed), key);
        prop_assert_eq!(geometry.rest(mixed) << bits | u64::from(geometry.first(mixed)), mixed);
        let other = geometry.first(mixed) ^ geometry.flip(geometry.rest(mixed));
        prop_assert!(other < 1 << bits && other / 2 != geometry.first(mixed) / 2);
    }

    /// The table must agree with a map. The writes of a group may occur in any order. Meanwhile, an
    /// address that stays in the table must always be in some slot.
    #[test]
    fn table_agrees_with_a_map_and_no_wave_loses_an_address(
        words: [u64; 9],
        batches in prop::collection::vec(
            prop::collection::vec((0u8..8, 0u64..1400, any::<u8>(), any::<prop::sample::Index>()), 1..300),
            1..12,
        ),
    ) {
        let mut table = table(words);
        let mut model: BTreeMap<u64, TableValue> = BTreeMap::new();
        // Words of the table as kernels see them.
        let mut image = vec![0u64; table.slots() as usize];
        let capacity = capacity_of(tables::BUCKET_BITS.start) as usize;
        let shadow = |image: &[u64], words: [u64; 9]| {
            let mut seen: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
            let decode = Table::of_words(Hash::of(words, tables::BUCKET_BITS.start), image.to_vec());
            for slot in 0..image.len() as u32 {
                if let Some(key) = decode.key(slot) {
                    seen.entry(key).or_default().push(slot);
                }
            }
            seen
        };
        for batch in batches {
            let mut waves = Waves::default();
            let before: HashSet<u64> = model.keys().copied().collect();
            let mut removed = HashSet::new();
            for (kind, number, port, index) in batch {
                let key = number * 0x0001_0001_0001;
                match (kind, table.find(key)) {
                    (0..=5, None) if model.len() < capacity => {
                        prop_assert!(table.insert(key, value(port), &mut waves).is_some(), "full at {}", model.len());
                        model.insert(key, value(port));
                    }
                    (0..=5, Some(slot)) => {
                        table.set(slot, value(port), &mut waves);
                        model.insert(key, value(port));
                    }
                    _ if !model.is_empty() => {
                        let key = *model.keys().nth(index.index(model.len())).unwrap();
                        table.remove(table.find(key).unwrap(), &mut waves);
                        model.remove(&key);
                        removed.insert(key);
                    }
                    _ => {}
                }
            }
            let stays: Vec<u64> = before.iter().copied().filter(|key| !removed.contains(key)).collect();
            let mut seen = shadow(&image, words);
            while let Some(wave) = waves.front() {
                let mut slots = HashSet::new();
                for &(slot, word) in wave {
                    prop_assert!(slots.insert(slot), "a wave writes a slot twice");
                    image[slot as usize] = word;
                }
                waves.pop();
                let after = shadow(&image, words);
                for key in &stays {
                    let slots = &after[key];
                    prop_assert!(seen[key].iter().any(|slot| slots.contains(slot)));
                }
                seen = after;
            }
            let after = shadow(&image, words);
            prop_assert_eq!(after.len(), model.len());
            for (key, value) in &model {
                prop_assert_eq!(after[key].len(), 1);
                prop_assert_eq!(table.find(*key), Some(after[key][0]));
                prop_assert_eq!(table.value(after[key][0]), Some(*value));
            }
        }
    }
}

//! Table shapes `acl` and `lpm6`, which match patterns by tuple space search
//! (`kernels/tables/acl.h`). An IPv6 prefix is a pattern whose priority increases with its length.
//! Each change rebuilds all patterns.

use std::collections::BTreeMap;
use std::sync::Arc;

use godwit_declare::{Shape, Table};
use godwit_packet::Image;

use super::{Content, Place, Plan, refusal};
use crate::declared::entry::{Change, Format, Key, Masked, Row};
use crate::declared::rows::Rows;
use crate::{Error, Running};

const WORDS: usize = 5;
const LINE_BYTES: usize = 64;
const TUPLES_MAX: usize = 64;
/// Maximum number of slots that a lookup reads in the hash table of one mask. The kernel calls this
/// constant `GW_ACL_PROBES`.
const PROBES: u32 = 32;
/// Value that marks a slot without a pattern.
const NONE: u32 = u32::MAX;
/// Assumed average number of simple patterns per pattern with ranges. The table itself stores only
/// patterns without ranges.
const EXPANSION: usize = 8;

type Words = [u64; WORDS];

struct Acl {
    format: Format,
    rows: Rows,
    patterns: BTreeMap<Key, u32>,
    offset: usize,
    block_bytes: usize,
    header: usize,
    /// Index of the table copy that lookups read, which is 0 or 1.
    copy: usize,
}

pub(super) fn plan(table: &Table, format: &Format, entries: &[(Key, Row)]) -> Result<Plan, Error> {
    let row_bytes = format.row_bytes();
    let capacity = table.capacity as usize;
    let rows_bytes = (2 * capacity * row_bytes).next_multiple_of(LINE_BYTES);
    let expansion = if table.shape == Shape::Lpm6 { 1 } else { EXPANSION };
    let slots = (4 * capacity * expansion).next_power_of_two() + 16 * TUPLES_MAX;
    let block_bytes = LINE_BYTES * (1 + TUPLES_MAX + slots);
    let changes: Vec<Change> = entries.iter().map(|(key, row)| (key.clone(), Some(row.clone()))).collect();
    let format = format.clone();
    let write = move |image: &Arc<Image>, place: Place| -> Result<Box<dyn Content>, Error> {
        image.write(place.header + 8, &(place.offset as u64).to_le_bytes());
        let mut acl = Acl {
            rows: Rows::new(place.offset, format.row_bytes(), 2 * capacity),
            format,
            patterns: BTreeMap::new(),
            offset: place.offset + rows_bytes,
            block_bytes,
            header: place.header,
            copy: 1,
        };
        acl.change(image, &changes, &super::Idle).map_err(|(_, error)| error)?;
        Ok(Box::new(acl))
    };
    Ok(Plan { bytes: rows_bytes + 2 * block_bytes, write: Box::new(write) })
}

/// Returns the hash of a masked key (`gw_acl_hash`).
fn hash(words: &Words, seed: u64) -> u64 {
    let mixed = words.iter().fold(seed, |mixed, word| {
        let mixed = (mixed ^ word).wrapping_mul(seed);
        mixed ^ mixed >> 32
    });
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Hash table of all patterns with the same mask. A used slot holds the masked values, a priority
/// and a row index.
type Slots = Vec<Option<(Words, u32, u32)>>;

/// Places all patterns with the same mask in slots. Returns `None` if a pattern has no free slot
/// among the [`PROBES`] slots that a lookup reads.
fn place(keys: &BTreeMap<Words, (u32, u32)>, bits: u32, seed: u64) -> Option<Slots> {
    let mut slots: Slots = vec![None; 1 << bits];
    for (words, (priority, row)) in keys {
        let mut at = (hash(words, seed) >> 32 >> (32 - bits)) as usize;
        let mut probes = 0;
        while slots[at].is_some() {
            at = (at + 1) & ((1 << bits) - 1);
            probes += 1;
            if probes + 1 >= PROBES {
                return None;
            }
        }
        slots[at] = Some((*words, *priority, *row));
    }
    Some(slots)
}

impl Acl {
    /// Divides a pattern into parts without ranges, and returns them with its priority.
    fn masked(&self, key: &Key) -> Result<(u32, Vec<Masked>), Error> {
        match key {
            Key::Pattern(priority, texts) => Ok((*priority, self.format.masked(texts).map_err(Error::in_command)?)),
            Key::Prefix6(prefix, length) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(*length)).unwrap_or(0);
                let words = |number: u128| vec![(number >> 64) as u64, number as u64];
                Ok((128 - u32::from(*length), vec![(words(*prefix), words(mask))]))
            }
            _ => unreachable!("the key of an acl or an lpm6 table"),
        }
    }

    /// Encodes all patterns in the format that the kernel reads.
    fn block(&self, patterns: &BTreeMap<Key, u32>) -> Result<Vec<u8>, Error> {
        let mut tuples: BTreeMap<Words, BTreeMap<Words, (u32, u32)>> = BTreeMap::new();
        let wide = |words: &[u64]| -> Words { std::array::from_fn(|index| words.get(index).copied().unwrap_or(0)) };
        for (key, row) in patterns {
            let (priority, masked) = self.masked(key)?;
            for (words, masks) in masked {
                let keys = tuples.entry(wide(&masks)).or_default();
                // If several patterns have the same value and mask, the first one has the best
                // priority, because the patterns are sorted by priority.
                keys.entry(wide(&words)).or_insert((priority, *row));
            }
        }
        if tuples.len() > TUPLES_MAX {
            let message = format!(
                "the patterns have {} different masks or prefix lengths, and at most {TUPLES_MAX} are possible",
                tuples.len()
            );
            return Err(refusal(message));
        }
        let best =
            |keys: &BTreeMap<Words, (u32, u32)>| keys.values().map(|(priority, _)| *priority).min().unwrap_or(NONE);
        let mut sorted: Vec<_> = tuples.iter().collect();
        sorted.sort_by_key(|(_, keys)| best(keys));
        let mut block = vec![0; LINE_BYTES * (1 + sorted.len())];
        block[..4].copy_from_slice(&(sorted.len() as u32).to_le_bytes());
        for (index, (masks, keys)) in sorted.into_iter().enumerate() {
            // There are at least two slots per pattern. The loop tries hash seeds until a lookup
            // can find each pattern within a few slots.
            let mut bits = (2 * keys.len()).next_power_of_two().trailing_zeros().max(1);
            let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
            let slots = loop {
                match place(keys, bits, seed | 1) {
                    Some(slots) => break slots,
                    None if seed.count_ones().is_multiple_of(8) => bits += 1,
                    None => {}
                }
                seed = seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
            };
            let tuple = LINE_BYTES * (1 + index);
            let slots_offset = block.len();
            let mut line: Vec<u8> = masks.iter().flat_map(|mask| mask.to_le_bytes()).collect();
            line.extend((seed | 1).to_le_bytes());
            line.extend((slots_offset as u64).to_le_bytes());
            line.extend(bits.to_le_bytes());
            line.extend(best(keys).to_le_bytes());
            block[tuple..tuple + LINE_BYTES].copy_from_slice(&line);
            for slot in slots {
                let (words, priority, row) = slot.unwrap_or(([0; WORDS], NONE, NONE));
                let mut line: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                line.extend(priority.to_le_bytes());
                line.extend(row.to_le_bytes());
                line.resize(LINE_BYTES, 0);
                block.extend(line);
            }
        }
        match block.len() <= self.block_bytes {
            true => Ok(block),
            false => Err(refusal("the patterns do not fit: raise the `capacity` of the table, or use fewer ranges")),
        }
    }

    fn apply(&mut self, image: &Image, changes: &[Change], running: &dyn Running) -> Result<(), Error> {
        let mut patterns = self.patterns.clone();
        let (mut given, mut new) = (Vec::new(), Vec::new());
        for (key, row) in changes {
            let before = match row {
                None => patterns.remove(key),
                Some(row) => {
                    let mut taken = self.rows.take(row);
                    if taken.is_none() {
                        let retired = self.rows.retired();
                        running.quiesce()?;
                        self.rows.reuse(retired);
                        taken = self.rows.take(row);
                    }
                    let Some((index, _)) = taken else {
                        return Err(refusal("the table is full: raise its `capacity`"));
                    };
                    new.push(index);
                    patterns.insert(key.clone(), index)
                }
            };
            given.extend(before);
        }
        let block = match self.block(&patterns) {
            Ok(block) => block,
            Err(error) => {
                new.into_iter().for_each(|row| self.rows.give(row));
                return Err(error);
            }
        };
        // The table has two copies of the patterns, and a change writes the unused copy. Earlier
        // lookups may still read that copy, so the change first waits for them.
        running.quiesce()?;
        for row in new {
            running.image_changed(self.rows.write(image, row))?;
        }
        let copy = 1 - self.copy;
        let at = self.offset + copy * self.block_bytes;
        image.write(at, &block);
        running.image_changed(at..at + block.len())?;
        image.store_u64(self.header, at as u64);
        running.image_changed(self.header..self.header + 8)?;
        (self.patterns, self.copy) = (patterns, copy);
        given.into_iter().for_each(|row| self.rows.give(row));
        Ok(())
    }
}

impl Content for Acl {
    fn change(&mut self, image: &Arc<Image>, changes: &[Change], running: &dyn Running) -> Result<(), (usize, Error)> {
        self.apply(image, changes, running).map_err(|error| (0, error))
    }
}

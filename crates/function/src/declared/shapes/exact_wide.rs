//! Table shape `exact` for long keys. An entry of the hash table refers to a record that contains
//! the key and the row (`kernels/tables/exact.h`).

use std::collections::VecDeque;
use std::sync::Arc;

use godwit_declare::Table;
use godwit_packet::Image;

use super::exact::Index;
use super::{BATCH, Content, Place, Plan, refusal};
use crate::declared::entry::{Change, Format, Key, Row};
use crate::tables::exact::{BUCKET_SLOTS, Cuckoo, Geometry, LongHash, TAG_BITS, Waves, capacity_of, random};
use crate::tables::ranges;
use crate::{Error, Running};

const BUCKET_BITS_MIN: u32 = 8;
const BUCKET_BITS_MAX: u32 = 28;
/// Lowest tag bit in a hash table entry. The tag is a part of the key's hash.
const TAG_SHIFT: u32 = 64 - TAG_BITS;
/// Lowest bit of the record index in a hash table entry.
const RECORD_SHIFT: u32 = 2;
/// Maximum number of table entries with the same tag, which is a part of the key's hash. The kernel
/// calls this constant `GW_EXACT_PROBES`.
const ALIKE_MAX: usize = 8;
/// Number of spare records for changes. Packets in flight may still read replaced records.
const SPARE_RECORDS: usize = 2 * BATCH;

struct ExactWide {
    hash: LongHash,
    cuckoo: Cuckoo,
    waves: Waves,
    /// Index of the record of each key.
    index: Index,
    records: Records,
    offset: usize,
    records_offset: usize,
}

/// Records that entries refer to.
struct Records {
    shift: u32,
    capacity: usize,
    used: usize,
    free: VecDeque<u32>,
    retired: Vec<u32>,
}

impl Records {
    /// Takes a free record. Returns its index, and whether the record was in use before.
    fn take(&mut self) -> Option<(u32, bool)> {
        if self.used < self.capacity {
            self.used += 1;
            return Some((self.used as u32 - 1, false));
        }
        self.free.pop_front().map(|index| (index, true))
    }
}

/// Plans a table for the declared capacity and these entries.
pub(super) fn plan(table: &Table, format: &Format, entries: &[(Key, Row)]) -> Result<Plan, Error> {
    let capacity = u64::from(table.capacity).max(entries.len() as u64);
    let bits = (BUCKET_BITS_MIN..=BUCKET_BITS_MAX).find(|bits| capacity <= capacity_of(*bits));
    let Some(bucket_bits) = bits else { return Err(super::invalid(table, "the capacity is too large")) };
    let key_words = godwit_declare::words::KeyWords::of(&table.key).len();
    let record_bytes = (8 * key_words + format.row_bytes()).next_power_of_two();
    let shift = record_bytes.trailing_zeros();
    let records = capacity as usize + SPARE_RECORDS;
    let words = random::<12>()?;
    let hash = LongHash { words: std::array::from_fn(|index| words[index] | 1), second: words[11] | 1, bucket_bits };
    let geometry = Geometry { bucket_bits, second: hash.second, rest_shift: TAG_SHIFT };
    let bucket_bytes = (BUCKET_SLOTS as usize * 8) << bucket_bits;
    let changes: Vec<Change> = entries.iter().map(|(key, row)| (key.clone(), Some(row.clone()))).collect();
    let write = move |image: &Arc<Image>, place: Place| -> Result<Box<dyn Content>, Error> {
        let records_offset = place.offset + bucket_bytes;
        let mut header = Vec::with_capacity(128);
        header.extend(bucket_bits.to_le_bytes());
        header.extend(shift.to_le_bytes());
        hash.words.iter().for_each(|word| header.extend(word.to_le_bytes()));
        header.extend(hash.second.to_le_bytes());
        header.extend((place.offset as u64).to_le_bytes());
        header.extend((records_offset as u64).to_le_bytes());
        image.write(place.header, &header);
        let mut wide = ExactWide {
            hash,
            cuckoo: Cuckoo::new(geometry),
            waves: Waves::default(),
            index: Index::new(),
            records: Records { shift, capacity: records, used: 0, free: VecDeque::new(), retired: Vec::new() },
            offset: place.offset,
            records_offset,
        };
        wide.change(image, &changes, &super::Idle).map_err(|(_, error)| error)?;
        Ok(Box::new(wide))
    };
    Ok(Plan { bytes: bucket_bytes + (records << shift), write: Box::new(write) })
}

impl ExactWide {
    /// Writes a record for each entry that a batch of changes adds or replaces. Returns the record
    /// index for each change, or `None` for a change that removes an entry.
    fn write_records(
        &mut self,
        image: &Image,
        changes: &[Change],
        running: &dyn Running,
    ) -> Result<Vec<Option<u32>>, Error> {
        if changes.len() > self.records.free.len() + self.records.capacity - self.records.used {
            let retired = self.records.retired.len();
            running.quiesce()?;
            self.records.free.extend(self.records.retired.drain(..retired));
        }
        let (mut taken, mut again) = (Vec::new(), false);
        let mut offsets = Vec::new();
        for (key, row) in changes {
            let (Key::Words(words), Some(row)) = (key, row) else {
                taken.push(None);
                continue;
            };
            let Some((record, was_used)) = self.records.take() else {
                return Err(refusal("the table is full: raise its `capacity`"));
            };
            again |= was_used;
            let offset = self.records_offset + ((record as usize) << self.records.shift);
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.extend(row.iter());
            image.write(offset, &bytes);
            offsets.push(offset);
            taken.push(Some(record));
        }
        offsets.sort_unstable();
        for range in ranges(offsets.into_iter(), 1 << self.records.shift) {
            running.image_changed(range)?;
        }
        if again {
            // A device cache may contain the old contents of a record.
            running.quiesce()?;
        }
        Ok(taken)
    }

    /// Applies a change to the host's table, and records the writes to the kernel's table.
    fn enter(&mut self, (key, _): &Change, record: Option<u32>) -> Result<(), Error> {
        let Key::Words(words) = key else { unreachable!("the key of an exact table") };
        let mixed = self.hash.mix(words);
        let value = |record: u32| u64::from(record) << RECORD_SHIFT;
        let before = self.index.get(words).copied();
        let slot = before.and_then(|before| self.cuckoo.find(mixed, |found| found == value(before)));
        match (slot, record) {
            (Some(slot), Some(record)) => self.cuckoo.set(slot, value(record), &mut self.waves),
            (Some(slot), None) => self.cuckoo.remove(slot, &mut self.waves),
            (None, Some(record)) => {
                if self.cuckoo.count(mixed) >= ALIKE_MAX {
                    return Err(refusal("too many keys have the same hash: start godwit again"));
                }
                let inserted = self.cuckoo.insert(mixed, value(record), &mut self.waves);
                inserted.ok_or_else(|| refusal("the table is full: raise its `capacity`"))?;
            }
            (None, None) => return Ok(()),
        }
        if let Some(before) = before {
            self.records.retired.push(before);
        }
        match record {
            Some(record) => self.index.insert(words.clone(), record),
            None => self.index.remove(words),
        };
        Ok(())
    }
}

impl Content for ExactWide {
    fn change(&mut self, image: &Arc<Image>, changes: &[Change], running: &dyn Running) -> Result<(), (usize, Error)> {
        self.waves.publish(image, self.offset, Some(running)).map_err(|error| (0, error))?;
        for (batch, part) in changes.chunks(BATCH).enumerate() {
            let done = batch * BATCH;
            let records = self.write_records(image, part, running).map_err(|error| (done, error))?;
            let mut failed = None;
            for (index, (change, record)) in part.iter().zip(records).enumerate() {
                match &failed {
                    // This change failed or followed a failed change. Nothing refers to its new
                    // record, so the record can be reused.
                    Some(_) => self.records.retired.extend(record),
                    None => {
                        if let Err(error) = self.enter(change, record) {
                            failed = Some((done + index, error));
                            self.records.retired.extend(record);
                        }
                    }
                }
            }
            self.waves.publish(image, self.offset, Some(running)).map_err(|error| (done, error))?;
            failed.map_or(Ok(()), Err)?;
        }
        Ok(())
    }
}

//! Table shape `exact` for short keys, in which one 64-bit word holds both the key and the row
//! (`kernels/tables/exact.h`).

use std::collections::HashMap;
use std::sync::Arc;

use godwit_declare::{FieldType, Packing, Table};
use godwit_packet::Image;

use super::{BATCH, Content, Place, Plan, refusal};
use crate::declared::entry::{Change, Key, Row};
use crate::tables::exact::{BUCKET_SLOTS, Cuckoo, Geometry, Permutation, Waves, capacity_of, random};
use crate::{Error, Running};

/// Binary logarithm of the maximum number of buckets.
const BUCKET_BITS_MAX: u32 = 28;

struct Exact {
    permutation: Permutation,
    cuckoo: Cuckoo,
    waves: Waves,
    /// Location of each field: its first bit and number of bits in a table entry, its offset in the
    /// row, and its size.
    fields: Vec<(u32, u32, usize, usize)>,
    offset: usize,
    bucket_bits: u32,
    count: u64,
}

/// Plans a table for the declared capacity and these entries.
pub(super) fn plan(table: &Table, packing: Packing, entries: &[(Key, Row)]) -> Result<Plan, Error> {
    let capacity = u64::from(table.capacity).max(entries.len() as u64);
    let bits = (packing.bucket_bits_min..=BUCKET_BITS_MAX).find(|bits| capacity <= capacity_of(*bits));
    let Some(bucket_bits) = bits else { return Err(super::invalid(table, "the capacity is too large")) };
    let words = random::<9>()?;
    let [a, b, c, d, e, f, g, h, second] = words;
    let permutation = Permutation::of([a, b, c, d, e, f, g, h], packing.half_bits);
    let geometry = Geometry { bucket_bits, second: second | 1, rest_shift: packing.rest_shift() };
    let layout = godwit_declare::RecordLayout::padded(&table.row);
    let mut shift = Packing::FLAG_BITS;
    let fields = table.row.iter().zip(&layout.offsets).map(|(field, offset)| {
        let FieldType::Scalar(scalar) = field.kind else { unreachable!("rows have no arrays") };
        let part = (shift, scalar.bits(), *offset, scalar.word_bytes());
        shift += scalar.bits();
        part
    });
    let exact = Exact {
        permutation,
        cuckoo: Cuckoo::new(geometry),
        waves: Waves::default(),
        fields: fields.collect(),
        offset: 0,
        bucket_bits,
        count: 0,
    };
    let changes: Vec<Change> = entries.iter().map(|(key, row)| (key.clone(), Some(row.clone()))).collect();
    let write = move |image: &Arc<Image>, place: Place| -> Result<Box<dyn Content>, Error> {
        let mut exact = Exact { offset: place.offset, ..exact };
        let mut header = Vec::with_capacity(128);
        header.extend(bucket_bits.to_le_bytes());
        header.extend(0u32.to_le_bytes());
        for word in permutation.multipliers.iter().chain(&permutation.addends).chain(&[0; 3]) {
            header.extend(word.to_le_bytes());
        }
        header.extend(geometry.second.to_le_bytes());
        header.extend((place.offset as u64).to_le_bytes());
        image.write(place.header, &header);
        exact.change(image, &changes, &super::Idle).map_err(|(_, error)| error)?;
        Ok(Box::new(exact))
    };
    Ok(Plan { bytes: (BUCKET_SLOTS as usize * 8) << bucket_bits, write: Box::new(write) })
}

impl Exact {
    fn value(&self, row: &[u8]) -> u64 {
        self.fields.iter().fold(0, |value, &(shift, _, offset, size)| {
            let word = row[offset..offset + size].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            value | word << shift
        })
    }

    /// Applies a change to the host's table, and records the writes to the kernel's table.
    fn enter(&mut self, (key, row): &Change) -> Result<(), Error> {
        let Key::Words(words) = key else { unreachable!("the key of an exact table") };
        let mixed = self.permutation.mix(words.first().copied().unwrap_or(0));
        let slot = self.cuckoo.find(mixed, |_| true);
        match (slot, row) {
            (Some(slot), Some(row)) => self.cuckoo.set(slot, self.value(row), &mut self.waves),
            (Some(slot), None) => {
                self.cuckoo.remove(slot, &mut self.waves);
                self.count -= 1;
            }
            (None, Some(row)) => {
                let full = || refusal("the table is full: raise its `capacity`");
                if self.count >= capacity_of(self.bucket_bits) {
                    return Err(full());
                }
                self.cuckoo.insert(mixed, self.value(row), &mut self.waves).ok_or_else(full)?;
                self.count += 1;
            }
            (None, None) => {}
        }
        Ok(())
    }
}

impl Content for Exact {
    fn change(&mut self, image: &Arc<Image>, changes: &[Change], running: &dyn Running) -> Result<(), (usize, Error)> {
        // An earlier call may have left changes unwritten, so they are written first.
        self.waves.publish(image, self.offset, Some(running)).map_err(|error| (0, error))?;
        for (batch, part) in changes.chunks(BATCH).enumerate() {
            let mut failed = None;
            for (index, change) in part.iter().enumerate() {
                if let Err(error) = self.enter(change) {
                    failed = Some((batch * BATCH + index, error));
                    break;
                }
            }
            self.waves.publish(image, self.offset, Some(running)).map_err(|error| (batch * BATCH, error))?;
            failed.map_or(Ok(()), Err)?;
        }
        Ok(())
    }
}

/// Record index for each lookup key, if table entries refer to records.
pub(super) type Index = HashMap<Vec<u64>, u32>;

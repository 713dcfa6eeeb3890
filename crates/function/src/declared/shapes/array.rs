//! Table shape `array`, which maps numbers to rows (`kernels/tables/array.h`).

use std::collections::HashMap;
use std::sync::Arc;

use godwit_declare::Table;
use godwit_packet::Image;

use super::{BATCH, Content, Place, Plan, refusal};
use crate::declared::entry::{Change, Format, Key, Row};
use crate::declared::rows::{Rows, Written};
use crate::tables::ranges;
use crate::{Error, Running};

/// Marker for an entry without a row. The kernel calls this constant `GW_TABLE_NONE`.
const NONE: u32 = u32::MAX;

struct Array {
    rows: Rows,
    entries: HashMap<u32, u32>,
    count: u32,
    offset: usize,
}

/// Plans a table of `capacity` entries.
pub(super) fn plan(table: &Table, format: &Format, entries: &[(Key, Row)]) -> Result<Plan, Error> {
    let count = table.capacity;
    if let Some((Key::Index(index), _)) =
        entries.iter().find(|(key, _)| matches!(key, Key::Index(index) if *index >= count))
    {
        return Err(super::invalid(table, format!("index {index} is not below the capacity {count}")));
    }
    let row_bytes = format.row_bytes();
    let rows = Rows::new(0, row_bytes, 2 * count as usize);
    let rows_bytes = (rows.capacity() * row_bytes).next_multiple_of(64);
    let changes: Vec<Change> = entries.iter().map(|(key, row)| (key.clone(), Some(row.clone()))).collect();
    let write = move |image: &Arc<Image>, place: Place| -> Result<Box<dyn Content>, Error> {
        let offset = place.offset + rows_bytes;
        image.fill_u32(offset, count as usize, NONE);
        let mut header = Vec::with_capacity(128);
        header.extend(count.to_le_bytes());
        header.extend((row_bytes as u32).to_le_bytes());
        header.extend((offset as u64).to_le_bytes());
        header.extend((place.offset as u64).to_le_bytes());
        image.write(place.header, &header);
        let mut array = Array { rows: rows.at(place.offset), entries: HashMap::new(), count, offset };
        array.change(image, &changes, &super::Idle).map_err(|(_, error)| error)?;
        Ok(Box::new(array))
    };
    Ok(Plan { bytes: rows_bytes + 4 * count as usize, write: Box::new(write) })
}

impl Array {
    fn change_batch(&mut self, image: &Image, changes: &[Change], running: &dyn Running) -> Result<(), Error> {
        let (mut made, mut again, mut offsets) = (Vec::new(), false, Vec::new());
        for (key, row) in changes {
            let Key::Index(index) = key else { unreachable!("the key of an array") };
            if *index >= self.count {
                return Err(refusal(format!("index {index} is not below the capacity {}", self.count)));
            }
            let Some(row) = row else {
                made.push((*index, None));
                continue;
            };
            let mut taken = self.rows.take(row);
            if taken.is_none() {
                let retired = self.rows.retired();
                running.quiesce()?;
                self.rows.reuse(retired);
                taken = self.rows.take(row);
            }
            let Some((slot, written)) = taken else { return Err(refusal("the table has no room for another row")) };
            if written != Written::Already {
                again |= written == Written::Again;
                offsets.push(self.rows.write(image, slot).start);
            }
            made.push((*index, Some(slot)));
        }
        offsets.sort_unstable();
        for range in ranges(offsets.into_iter(), self.rows.row_bytes()) {
            running.image_changed(range)?;
        }
        if again {
            running.quiesce()?;
        }
        let mut changed: Vec<usize> = Vec::new();
        for (index, slot) in &made {
            let at = self.offset + 4 * *index as usize;
            image.fill_u32(at, 1, slot.unwrap_or(NONE));
            changed.push(at);
            let before = match slot {
                Some(slot) => self.entries.insert(*index, *slot),
                None => self.entries.remove(index),
            };
            before.into_iter().for_each(|before| self.rows.give(before));
        }
        changed.sort_unstable();
        ranges(changed.into_iter(), 4).into_iter().try_for_each(|range| running.image_changed(range))
    }
}

impl Content for Array {
    fn change(&mut self, image: &Arc<Image>, changes: &[Change], running: &dyn Running) -> Result<(), (usize, Error)> {
        for (batch, part) in changes.chunks(BATCH).enumerate() {
            self.change_batch(image, part, running).map_err(|error| (batch * BATCH, error))?;
        }
        Ok(())
    }
}

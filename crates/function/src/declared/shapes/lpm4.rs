//! Table shape `lpm4`, a DIR-24-8 table that maps IPv4 prefixes to rows (`kernels/tables/lpm4.h`).

use std::collections::HashMap;
use std::sync::Arc;

use godwit_declare::Table as Declared;
use godwit_packet::Image;

use super::{BATCH, Content, Place, Plan, refusal};
use crate::declared::entry::{Change, Format, Key, Row};
use crate::declared::rows::{Rows, Written};
use crate::routing::Unchanged;
use crate::tables::lpm4::{Built, Layout, NARROW, Route, TBL24_ENTRIES, Table, WIDE, check_count};
use crate::tables::ranges;
use crate::{Error, Running};

/// Number of spare groups for changes. A group holds the 256 entries of a /24 block.
const SPARE_GROUPS: usize = 4096;
/// Number of spare rows for changes. Packets in flight may still read replaced rows.
const SPARE_ROWS: usize = 1024;

struct Lpm4 {
    table: Table,
    rows: Rows,
    /// Row of each prefix.
    prefixes: HashMap<(u32, u8), u32>,
}

/// Plans a table for the declared capacity and the given entries. Table entries take 2 bytes if the
/// number of different rows permits it.
pub(super) fn plan(table: &Declared, format: &Format, entries: &[(Key, Row)]) -> Result<Plan, Error> {
    check_count(entries.len())?;
    let most = table.rows as usize + SPARE_ROWS;
    let mut rows = Rows::new(0, format.row_bytes(), most.min(WIDE.0));
    let mut prefixes = HashMap::new();
    let mut routes = Vec::with_capacity(entries.len());
    for (key, row) in entries {
        let Key::Prefix4(prefix, length) = key else { unreachable!("the key of an lpm4 table") };
        let Some((index, _)) = rows.take(row) else {
            return Err(super::invalid(table, format!("more than {} different rows: raise `rows`", rows.capacity())));
        };
        prefixes.insert((*prefix, *length), index);
        routes.push(Route { prefix: *prefix, length: *length, next_hop: index });
    }
    let built = Built::new(&routes);
    let groups = built.groups() + SPARE_GROUPS;
    let narrow = rows.capacity() <= NARROW.0 && groups <= NARROW.1;
    let entry_bytes = if narrow { 2 } else { 4 };
    let groups = groups.min(if narrow { NARROW.1 } else { WIDE.1 }).min(TBL24_ENTRIES);
    let row_bytes = format.row_bytes();
    let rows_bytes = (rows.capacity() * row_bytes).next_multiple_of(64);
    let bytes = rows_bytes + Layout::new(0, entry_bytes, groups).end;
    let write = move |image: &Arc<Image>, place: Place| -> Result<Box<dyn Content>, Error> {
        let layout = Layout::new(place.offset + rows_bytes, entry_bytes, groups);
        let rows = rows.at(place.offset);
        rows.write_all(image);
        let mut tables = vec![0; layout.end - layout.tbl24_offset];
        let local = Layout::new(0, entry_bytes, groups);
        let made = built.write(&local, &mut tables);
        image.write(layout.tbl24_offset, &tables);
        let mut header = Vec::with_capacity(128);
        header.extend((entry_bytes as u32).to_le_bytes());
        header.extend((row_bytes as u32).to_le_bytes());
        for offset in [layout.tbl24_offset, layout.tbl8_offset, place.offset] {
            header.extend((offset as u64).to_le_bytes());
        }
        image.write(place.header, &header);
        Ok(Box::new(Lpm4 { table: Table::new(Arc::clone(image), layout, &routes, &made), rows, prefixes }))
    };
    Ok(Plan { bytes, write: Box::new(write) })
}

impl Lpm4 {
    /// Writes the rows for a batch of changes to the table. Returns the changes with row indices
    /// instead of rows.
    fn write_rows(
        &mut self,
        image: &Image,
        changes: &[Change],
        running: &dyn Running,
    ) -> Result<Vec<(u32, u8, Option<u32>)>, Error> {
        let (mut made, mut again, mut offsets) = (Vec::with_capacity(changes.len()), false, Vec::new());
        for (key, row) in changes {
            let Key::Prefix4(prefix, length) = key else { unreachable!("the key of an lpm4 table") };
            let Some(row) = row else {
                made.push((*prefix, *length, None));
                continue;
            };
            let mut taken = self.rows.take(row);
            if taken.is_none() && self.rows.retired() > 0 {
                let retired = self.rows.retired();
                running.quiesce()?;
                self.rows.reuse(retired);
                taken = self.rows.take(row);
            }
            let Some((index, written)) = taken else {
                let capacity = self.rows.capacity();
                made.iter().for_each(|(_, _, row)| row.iter().for_each(|row| self.rows.give(*row)));
                return Err(refusal(format!("all {capacity} different rows are in use: raise `rows` of the table")));
            };
            if written != Written::Already {
                again |= written == Written::Again;
                offsets.push(self.rows.write(image, index).start);
            }
            made.push((*prefix, *length, Some(index)));
        }
        offsets.sort_unstable();
        for range in ranges(offsets.into_iter(), self.rows.row_bytes()) {
            running.image_changed(range)?;
        }
        if again {
            running.quiesce()?;
        }
        Ok(made)
    }
}

impl Content for Lpm4 {
    fn change(&mut self, image: &Arc<Image>, changes: &[Change], running: &dyn Running) -> Result<(), (usize, Error)> {
        for (batch, part) in changes.chunks(BATCH).enumerate() {
            let done = batch * BATCH;
            let made = self.write_rows(image, part, running).map_err(|error| (done, error))?;
            let rows = &self.rows;
            let result = self.table.change(&made, |row| rows.is_known(row), running, &mut |_| {});
            let (count, result) = match result {
                Ok(()) => (made.len(), Ok(())),
                Err(Unchanged { made, error }) => (made, Err((done + made, error))),
            };
            for (prefix, length, row) in &made[..count] {
                let before = match row {
                    Some(row) => self.prefixes.insert((*prefix, *length), *row),
                    None => self.prefixes.remove(&(*prefix, *length)),
                };
                before.into_iter().for_each(|before| self.rows.give(before));
            }
            made[count..].iter().for_each(|(_, _, row)| row.iter().for_each(|row| self.rows.give(*row)));
            result?;
        }
        Ok(())
    }
}

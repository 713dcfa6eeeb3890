//! Table shape `maglev`, which distributes hash values over rows by consistent hashing. It follows
//! section 3.4 of Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer",
//! NSDI 2016.

use std::collections::BTreeMap;
use std::sync::Arc;

use godwit_declare::Table;
use godwit_packet::Image;

use super::{Content, Place, Plan, refusal};
use crate::declared::entry::{Change, Format, Key, Row};
use crate::declared::rows::{Rows, Written};
use crate::{Error, Running};

/// Number of table entries, which is prime. The kernel calls this constant `GW_MAGLEV_ENTRIES`.
const ENTRIES: usize = 65_537;
/// Value of all entries in a table without rows.
const NONE: u16 = u16::MAX;
/// Size of one copy of the table entries, in bytes.
const COPY_BYTES: usize = (ENTRIES * 2).next_multiple_of(64);

struct Maglev {
    rows: Rows,
    /// Row index for each name. The names are sorted, so the table does not depend on the order of
    /// changes.
    names: BTreeMap<String, u32>,
    offset: usize,
    header: usize,
    /// Index of the table copy that lookups read, which is 0 or 1.
    copy: usize,
}

pub(super) fn plan(table: &Table, format: &Format, entries: &[(Key, Row)]) -> Result<Plan, Error> {
    let row_bytes = format.row_bytes();
    let most = (2 * table.capacity as usize).min(usize::from(NONE));
    let rows = Rows::new(0, row_bytes, most);
    let rows_bytes = (most * row_bytes).next_multiple_of(64);
    let changes: Vec<Change> = entries.iter().map(|(key, row)| (key.clone(), Some(row.clone()))).collect();
    let write = move |image: &Arc<Image>, place: Place| -> Result<Box<dyn Content>, Error> {
        let offset = place.offset + rows_bytes;
        image.write(place.header + 8, &(place.offset as u64).to_le_bytes());
        let rows = rows.at(place.offset);
        let mut maglev = Maglev { rows, names: BTreeMap::new(), offset, header: place.header, copy: 1 };
        maglev.change(image, &changes, &super::Idle).map_err(|(_, error)| error)?;
        Ok(Box::new(maglev))
    };
    Ok(Plan { bytes: rows_bytes + 2 * COPY_BYTES, write: Box::new(write) })
}

/// Returns two different FNV-1a hashes of a name.
fn hashes(name: &str) -> (u64, u64) {
    let hash = |start: u64| {
        let hash = name.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        let hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash ^ hash >> 32
    };
    (hash(0xcbf2_9ce4_8422_2325), hash(0x9ae1_6a3b_2f90_404f))
}

/// Returns the row index for each table entry. The names choose entries one after another. Each
/// name chooses the first free entry in its pseudo-random order.
fn populate(names: &BTreeMap<String, u32>) -> Vec<u16> {
    let mut entries = vec![NONE; ENTRIES];
    let mut permutations: Vec<(usize, usize, u32)> = names
        .iter()
        .map(|(name, row)| {
            let (offset, skip) = hashes(name);
            ((offset % ENTRIES as u64) as usize, (skip % (ENTRIES as u64 - 1)) as usize + 1, *row)
        })
        .collect();
    let mut filled = 0;
    while filled < ENTRIES && !permutations.is_empty() {
        for (next, skip, row) in &mut permutations {
            while entries[*next] != NONE {
                *next = (*next + *skip) % ENTRIES;
            }
            entries[*next] = *row as u16;
            filled += 1;
            if filled == ENTRIES {
                break;
            }
        }
    }
    entries
}

impl Maglev {
    fn apply(&mut self, image: &Image, changes: &[Change], running: &dyn Running) -> Result<(), Error> {
        let mut names = self.names.clone();
        let mut given = Vec::new();
        for (key, row) in changes {
            let Key::Name(name) = key else { unreachable!("the key of a maglev table") };
            let before = match row {
                None => names.remove(name),
                Some(row) => {
                    let mut taken = self.rows.take(row);
                    if taken.is_none() {
                        let retired = self.rows.retired();
                        running.quiesce()?;
                        self.rows.reuse(retired);
                        taken = self.rows.take(row);
                    }
                    let Some((index, written)) = taken else {
                        return Err(refusal("the table is full: raise its `capacity`"));
                    };
                    if written != Written::Already {
                        running.image_changed(self.rows.write(image, index))?;
                    }
                    names.insert(name.clone(), index)
                }
            };
            given.extend(before);
        }
        let copy = 1 - self.copy;
        let at = self.offset + copy * COPY_BYTES;
        // There are two copies of the table, and a change writes the unused copy. Earlier lookups
        // may still read that copy, so the change first waits for them.
        running.quiesce()?;
        for (index, entry) in populate(&names).into_iter().enumerate() {
            image.fill_u16(at + 2 * index, 1, entry);
        }
        running.image_changed(at..at + COPY_BYTES)?;
        image.store_u64(self.header, at as u64);
        running.image_changed(self.header..self.header + 8)?;
        (self.names, self.copy) = (names, copy);
        given.into_iter().for_each(|row| self.rows.give(row));
        Ok(())
    }
}

impl Content for Maglev {
    fn change(&mut self, image: &Arc<Image>, changes: &[Change], running: &dyn Running) -> Result<(), (usize, Error)> {
        self.apply(image, changes, running).map_err(|error| (0, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: u32) -> BTreeMap<String, u32> {
        (0..count).map(|index| (format!("backend-{index}"), index)).collect()
    }

    #[test]
    fn entries_are_spread_evenly() {
        let entries = populate(&names(10));
        let mut counts = [0; 10];
        entries.iter().for_each(|row| counts[usize::from(*row)] += 1);
        assert!(counts.iter().all(|count| (6500..6600).contains(count)), "{counts:?}");
        assert!(populate(&BTreeMap::new()).iter().all(|row| *row == NONE));
    }

    /// The removal of a backend changes few entries of the remaining backends (figure 12 of the
    /// Maglev paper).
    #[test]
    fn few_entries_move_when_a_backend_leaves() {
        let (before, mut left) = (names(20), names(20));
        left.remove("backend-7");
        let pairs = populate(&before).into_iter().zip(populate(&left));
        let moved = pairs.filter(|(before, after)| before != after && *before != 7).count();
        assert!(moved < ENTRIES / 20, "{moved} of {ENTRIES}");
    }
}

//! Rows of a table in the kernel's format. Table entries with equal contents refer to the same row.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use godwit_packet::Image;

use super::entry::Row;

/// Rows of a table. Each row is in use, never used, free or retired. A retired row is no longer in
/// use, but packets in flight may still read it.
pub(super) struct Rows {
    offset: usize,
    row_bytes: usize,
    capacity: usize,
    by_row: HashMap<Row, u32>,
    taken: Vec<(Option<Row>, u32)>,
    free: VecDeque<u32>,
    retired: Vec<u32>,
}

impl Rows {
    pub(super) fn new(offset: usize, row_bytes: usize, capacity: usize) -> Self {
        Self {
            offset,
            row_bytes,
            capacity,
            by_row: HashMap::new(),
            taken: Vec::new(),
            free: VecDeque::new(),
            retired: Vec::new(),
        }
    }

    /// Returns these rows with another offset in memory.
    pub(super) fn at(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// Returns the size of a row in bytes.
    pub(super) fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Writes all rows to memory.
    pub(super) fn write_all(&self, image: &Image) {
        for index in 0..self.taken.len() as u32 {
            self.write(image, index);
        }
    }

    /// Returns whether a row exists.
    pub(super) fn is_known(&self, index: u32) -> bool {
        self.taken.get(index as usize).is_some_and(|(row, _)| row.is_some())
    }

    /// Returns the byte range of a row.
    pub(super) fn range(&self, index: u32) -> Range<usize> {
        let start = self.offset + index as usize * self.row_bytes;
        start..start + self.row_bytes
    }

    /// Adds a reference to a row, and stores the row if no entry refers to it yet. Returns the
    /// index of the row, and whether its bytes must be written. Returns `None` if there is no room.
    pub(super) fn take(&mut self, row: &Row) -> Option<(u32, Written)> {
        if let Some(&index) = self.by_row.get(row) {
            self.taken[index as usize].1 += 1;
            return Some((index, Written::Already));
        }
        // Unused rows are taken first, because no device cache contains old contents for them.
        let (index, written) = if self.taken.len() < self.capacity {
            self.taken.push((None, 0));
            (self.taken.len() as u32 - 1, Written::First)
        } else {
            (self.free.pop_front()?, Written::Again)
        };
        self.taken[index as usize] = (Some(row.clone()), 1);
        self.by_row.insert(row.clone(), index);
        Some((index, written))
    }

    /// Removes a reference to a row. The row is retired after its last reference is removed.
    pub(super) fn give(&mut self, index: u32) {
        let (row, uses) = &mut self.taken[index as usize];
        *uses -= 1;
        if *uses == 0
            && let Some(row) = row.take()
        {
            self.by_row.remove(&row);
            self.retired.push(index);
        }
    }

    /// Returns the number of retired rows.
    pub(super) fn retired(&self) -> usize {
        self.retired.len()
    }

    /// Frees the first `count` retired rows. No packet in flight may refer to them.
    pub(super) fn reuse(&mut self, count: usize) {
        self.free.extend(self.retired.drain(..count));
    }

    /// Returns the maximum number of different rows in the table.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Writes a row to memory that kernels may read.
    pub(super) fn write(&self, image: &Image, index: u32) -> Range<usize> {
        let range = self.range(index);
        if let Some((Some(row), _)) = self.taken.get(index as usize) {
            image.write(range.start, row);
        }
        range
    }
}

/// Whether the contents of a row must be written to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Another entry refers to the same row, so the row is already written.
    Already,
    /// The row takes memory that was never used.
    First,
    /// The row reuses memory, so a device cache may contain the old contents.
    Again,
}

//! Journal of reserved sequence numbers.

use std::collections::HashMap;

use crate::disk::Disk;
use crate::error::Error;
use crate::record::{self, Contents, Entry, KeyName};

/// Minimum number of records for which the journal is rewritten when most of them are outdated.
const RECORDS_MIN: usize = 4096;

/// Journal of reserved sequence numbers. A number counts as reserved only when it is durable.
pub struct Journal {
    disk: Box<dyn Disk>,
    numbers: HashMap<KeyName, u64>,
    /// Number of the last batch in the file.
    batch: u64,
    /// Number of records in the file.
    records: usize,
    /// Whether a file operation has failed. The next write then creates a new file, because the
    /// content of the current file is unknown.
    is_broken: bool,
}

impl Journal {
    /// Reads the journal and rewrites it without outdated records.
    ///
    /// # Errors
    /// Returns an error if the journal is damaged, or if the disk reports an error.
    pub fn open(mut disk: Box<dyn Disk>) -> Result<Self, Error> {
        let bytes = disk.read().map_err(Error::io("read the journal"))?;
        let Contents { numbers, batch } = bytes.map_or(Ok(Contents::default()), |bytes| record::read(&bytes))?;
        let mut journal = Self { disk, numbers, batch, records: 0, is_broken: false };
        journal.rewrite(&[])?;
        Ok(journal)
    }

    /// Returns the last reserved sequence number of a key, or `None` if the key was never used.
    pub fn number(&self, name: &KeyName) -> Option<u64> {
        self.numbers.get(name).copied()
    }

    /// Writes reservations of sequence numbers. The reservations are durable when this function
    /// returns, and must not be used before.
    ///
    /// # Errors
    /// Returns an error if the disk reports an error. None of the numbers may be used then.
    pub fn write(&mut self, entries: &[Entry]) -> Result<(), Error> {
        if entries.is_empty() {
            return Ok(());
        }
        let records = self.records + entries.len();
        if self.is_broken || records > RECORDS_MIN.max(4 * self.numbers.len()) {
            self.rewrite(entries)?;
        } else {
            self.is_broken = true;
            self.batch += 1;
            let bytes = record::batch_bytes(self.batch, entries);
            self.disk.append(&bytes).map_err(Error::io("write to the journal"))?;
            self.disk.sync().map_err(Error::io("make the journal durable"))?;
            self.is_broken = false;
            self.records = records;
        }
        self.numbers.extend(entries.iter().map(|entry| (entry.name, entry.number)));
        Ok(())
    }

    /// Writes all reserved sequence numbers to a new file, which then replaces the journal. `more`
    /// contains additional reservations.
    fn rewrite(&mut self, more: &[Entry]) -> Result<(), Error> {
        self.is_broken = true;
        let mut numbers = self.numbers.clone();
        numbers.extend(more.iter().map(|entry| (entry.name, entry.number)));
        let entries: Vec<Entry> = numbers.into_iter().map(|(name, number)| Entry { name, number }).collect();
        self.batch += 1;
        self.disk.create_next().map_err(Error::io("create the next journal"))?;
        let bytes = record::journal_bytes(self.batch, &entries);
        self.disk.append(&bytes).map_err(Error::io("write the next journal"))?;
        self.disk.sync().map_err(Error::io("make the next journal durable"))?;
        self.disk.rename_next().map_err(Error::io("replace the journal"))?;
        self.disk.sync_folder().map_err(Error::io("make the new journal durable"))?;
        self.records = entries.len();
        self.is_broken = false;
        Ok(())
    }
}

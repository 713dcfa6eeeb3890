//! Stored results.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::run::manifest::Manifest;
use crate::run::row::Row;

/// The rows of one run, and the machine that produced them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The machine and the build.
    pub manifest: Manifest,
    /// All rows.
    pub rows: Vec<RecordedRow>,
}

/// A row, and the definition that it belongs to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedRow {
    /// Name of the definition.
    pub definition: String,
    /// The row.
    #[serde(flatten)]
    pub row: Row,
}

impl Record {
    /// Returns the record of these rows.
    pub fn new(manifest: Manifest, rows: &[Row]) -> Self {
        let rows = rows.iter().map(|row| RecordedRow { definition: row.bench.clone(), row: row.clone() });
        Self { manifest, rows: rows.collect() }
    }

    /// Returns the path of the file below `folder`: machine, then date and commit.
    pub fn path(&self, folder: &Path) -> PathBuf {
        let Manifest { machine, date, commit, .. } = &self.manifest;
        folder.join(machine).join(format!("{date}-{commit}.json"))
    }

    /// Adds the rows of an older record, except for definitions that this record contains.
    #[must_use]
    pub fn merged_with(mut self, older: Self) -> Self {
        let known: BTreeSet<String> = self.rows.iter().map(|row| row.definition.clone()).collect();
        let kept = older.rows.into_iter().filter(|row| !known.contains(&row.definition));
        self.rows.splice(0..0, kept);
        for (name, seconds) in older.manifest.seconds {
            self.manifest.seconds.entry(name).or_insert(seconds);
        }
        self
    }
}

//! Kinds of declared tables, which are called shapes. Each kind can change its table while kernels
//! look up entries.
//!
//! A change first writes its new rows and copies them to the devices. It then changes each entry
//! with a single store and copies the entries. The old rows are not reused until all packets in
//! flight have left.

mod acl;
mod array;
mod exact;
mod exact_wide;
mod lpm4;
mod maglev;
mod strings;

use std::sync::Arc;

use godwit_declare::{Packing, Shape, Table};
use godwit_packet::Image;

use super::entry::{Change, Format, Key, Row};
use super::meter::{self, Meter};
use crate::{Error, Running};

/// Table of a running function.
pub(super) trait Content: Send {
    /// Applies changes to the table. Each lookup key must be valid. While no lookup can run,
    /// `running` is `Idle`, which never waits.
    ///
    /// # Errors
    /// Returns the number of changes that took effect, and the reason why the next one failed.
    fn change(&mut self, image: &Arc<Image>, changes: &[Change], running: &dyn Running) -> Result<(), (usize, Error)>;

    /// Returns the meter, if the table is one.
    fn meter(&self) -> Option<&Arc<Meter>> {
        None
    }
}

/// Plan for a table of known size whose contents are not written yet.
pub(super) struct Plan {
    /// Number of bytes that the table takes.
    pub(super) bytes: usize,
    /// Writes the table and its header to memory. Returns an object that applies later changes.
    #[allow(clippy::type_complexity)]
    pub(super) write: Box<dyn FnOnce(&Arc<Image>, Place) -> Result<Box<dyn Content>, Error>>,
}

/// Place of a table in the memory of all tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Offset of the table's header in the memory of all tables.
    pub(super) header: usize,
    /// Offset of the table in the memory of all tables. It is a multiple of 64.
    pub(super) offset: usize,
}

/// Plans a table with these entries.
pub(super) fn plan(table: &Table, format: &Format, entries: &[(Key, Row)]) -> Result<Plan, Error> {
    match table.shape {
        Shape::Exact => match Packing::of(&table.key, &table.row) {
            Some(packing) => exact::plan(table, packing, entries),
            None => exact_wide::plan(table, format, entries),
        },
        Shape::Lpm4 => lpm4::plan(table, format, entries),
        Shape::Array => array::plan(table, format, entries),
        Shape::Acl | Shape::Lpm6 => acl::plan(table, format, entries),
        Shape::Maglev => maglev::plan(table, format, entries),
        Shape::Meter => Ok(meter::plan(table, entries)),
        Shape::Strings => strings::plan(entries),
    }
}

/// Returns the error that refuses a change with this message.
pub(super) fn refusal(message: impl Into<String>) -> Error {
    Error::Command { message: message.into() }
}

pub(super) fn invalid(table: &Table, message: impl std::fmt::Display) -> Error {
    Error::Value { span: None, message: format!("table `{}`: {message}", table.name) }
}

/// Replaces the engine while no lookup can run. It copies nothing to devices and never waits.
pub(super) struct Idle;

impl Running for Idle {
    fn image_changed(&self, _range: std::ops::Range<usize>) -> Result<(), Error> {
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Number of changes that are applied together.
const BATCH: usize = 4096;

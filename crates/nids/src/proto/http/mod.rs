//! Parses HTTP/1 with the library `suricata-htp`.
//!
//! | file | contents |
//! |---|---|
//! | `htp.rs` | thin safe layer over the C interface of the parser |
//! | `transaction.rs` | headers and bodies of a transaction |
//! | `fields.rs` | fields that rules test |
//! | `multipart.rs` | files in request bodies |

mod fields;
mod htp;
mod multipart;
mod transaction;

pub use htp::{Config, Options};

use super::file::FileRecord;
use super::{Parser, ParserOptions, Status, View};
use crate::app::Direction;
use crate::eve::Json;
use crate::rules::Field;
use htp::{Connection, Tx};
use std::ops::Range;

/// Parser of one connection.
#[derive(Debug)]
pub(super) struct Http {
    connection: Connection,
    first: u64,
    trigger: [bool; 2],
    /// Number of complete transactions in each direction.
    completed: [u64; 2],
    /// Names of irregularities.
    events: Vec<(u64, &'static str)>,
}

impl Http {
    /// Returns a parser.
    pub(super) fn new(options: &ParserOptions, client_port: u16, server_port: u16) -> Self {
        Self {
            connection: Connection::new(options.http.clone(), client_port, server_port, options.hash_files),
            first: 0,
            trigger: [false; 2],
            completed: [0; 2],
            events: Vec::new(),
        }
    }

    fn tx(&self, id: u64) -> Option<Tx<'_>> {
        self.connection.tx(usize::try_from(id).ok()?)
    }

    /// Records complete messages and irregularities.
    fn after(&mut self, direction: Direction) {
        let size = self.connection.size() as u64;
        for side in Direction::BOTH {
            let mut next = self.completed[side as usize].max(self.first);
            while next < size && self.tx(next).is_some_and(|tx| tx.progress(side) >= 5) {
                next += 1;
            }
            self.trigger[side as usize] |= next > self.completed[side as usize];
            self.completed[side as usize] = next;
        }
        while let Some(code) = self.connection.next_log() {
            if let Some(name) = fields::event_name(code) {
                let id = self.completed[direction as usize].saturating_sub(1).max(self.first);
                self.events.push((id, name));
            }
        }
    }
}

impl Parser for Http {
    fn data(&mut self, direction: Direction, data: &[u8], end: bool) -> Status {
        let status = self.connection.data(direction, Some(data), 0);
        if end {
            self.connection.close(direction);
        }
        self.after(direction);
        match status {
            htp::Status::Ok => Status::Ok,
            htp::Status::Stop => Status::Stop,
        }
    }

    fn gap(&mut self, direction: Direction, bytes: usize) -> Status {
        let status = self.connection.data(direction, None, bytes);
        let id = self.completed[direction as usize];
        if let Some(data) = usize::try_from(id).ok().and_then(|id| self.connection.tx_data(id)) {
            data.gap(direction);
        }
        self.after(direction);
        match status {
            htp::Status::Ok => Status::Ok,
            htp::Status::Stop => Status::Stop,
        }
    }

    fn transactions(&self) -> Range<u64> {
        self.first..self.connection.size() as u64
    }

    fn progress(&self, id: u64, direction: Direction) -> u8 {
        self.tx(id).map_or(0, |tx| tx.progress(direction))
    }

    fn complete(&self) -> u8 {
        5
    }

    fn field<'a>(
        &'a self,
        id: u64,
        field: Field,
        view: View,
        index: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        if field == Field::AppEvent {
            let mut events = self.events.iter().filter(|event| event.0 == id);
            return events.nth(index).map(|event| event.1.as_bytes());
        }
        fields::field(&self.tx(id)?, field, view, index, scratch)
    }

    fn inspected(&mut self, id: u64, direction: Direction) {
        if let Some(data) = usize::try_from(id).ok().and_then(|id| self.connection.tx_data(id)) {
            data.inspected(direction);
        }
    }

    fn release(&mut self, id: u64) {
        if let Ok(id) = usize::try_from(id) {
            self.connection.remove(id);
        }
        self.first = self.first.max(id + 1);
        self.events.retain(|event| event.0 > id);
    }

    fn take_files(&mut self, end: bool) -> Vec<FileRecord> {
        let mut files = Vec::new();
        for id in self.transactions() {
            if let Some(data) = usize::try_from(id).ok().and_then(|id| self.connection.tx_data(id)) {
                files.extend(data.take_files(id, end));
            }
        }
        files
    }

    fn take_trigger(&mut self, direction: Direction) -> bool {
        std::mem::take(&mut self.trigger[direction as usize])
    }

    fn describe(&self, id: u64, json: &mut Json) {
        if let Some(tx) = self.tx(id) {
            fields::describe(&tx, json);
        }
    }
}

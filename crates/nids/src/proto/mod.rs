//! Parsers of application protocols.
//!
//! | file | contents |
//! |---|---|
//! | `layer.rs` | state of a flow: detected protocol, parser, and inspection of transactions |
//! | `identify.rs` | identifies the protocol from the first bytes of a flow |
//! | `file.rs` | files |
//! | `body.rs` | bodies and files, with the window that rules inspect |
//! | `http/`, `dns.rs`, ... | parser of one protocol each |
//!
//! A parser turns bytes into transactions, such as a request with its response. It reports its
//! progress in each transaction as a number. Rules inspect a field as soon as this progress makes
//! the field available.

pub mod body;
mod dns;
pub mod file;
mod http;
mod identify;
mod layer;
mod ssh;
mod tls;

pub use http::{Config as HttpConfig, Options as HttpOptions};
pub use identify::{Identified, identify, identify_udp};
pub use layer::{AppLayer, Inspection, RuleState};

use crate::app::{App, Direction};
use crate::flow::Key;
use crate::rules::Field;
use std::ops::Range;

/// Result of passing new data to a parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The parser accepts more data.
    Ok,
    /// The remaining data of the flow is not parsed.
    Stop,
    /// The flow continues with another protocol.
    Become(App),
}

/// Conditions under which fields are read.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// Direction of the inspection.
    pub direction: Direction,
    /// Whether no more data follows in this direction.
    pub end: bool,
    /// Whether packets wait for their verdict (inline mode).
    pub inline: bool,
}

/// Parser of one flow.
pub trait Parser: Send + std::fmt::Debug {
    /// Passes data to the parser. `end` marks the last data of this direction.
    fn data(&mut self, direction: Direction, data: &[u8], end: bool) -> Status;

    /// Reports that the next `bytes` bytes of this direction are missing.
    fn gap(&mut self, direction: Direction, bytes: usize) -> Status {
        let _ = (direction, bytes);
        Status::Stop
    }

    /// Returns the numbers of the stored transactions.
    fn transactions(&self) -> Range<u64>;

    /// Returns the progress of a transaction in one direction.
    fn progress(&self, id: u64, direction: Direction) -> u8;

    /// Returns the progress value of a complete direction.
    fn complete(&self) -> u8;

    /// Returns the bytes of a field in the transaction `id`. `index` counts the occurrences of a
    /// repeated field from 0. The bytes may be written to `scratch`.
    fn field<'a>(
        &'a self,
        id: u64,
        field: Field,
        view: View,
        index: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]>;

    /// Returns whether rules inspect the transaction in this direction.
    fn inspects(&self, id: u64, direction: Direction) -> bool {
        let _ = (id, direction);
        true
    }

    /// Returns whether the data of this direction is encrypted. Rules do not inspect encrypted
    /// payloads.
    fn is_encrypted(&self, direction: Direction) -> bool {
        let _ = direction;
        false
    }

    /// Tells the parser that rules have inspected the transaction. The parser may then release body
    /// bytes.
    fn inspected(&mut self, id: u64, direction: Direction) {
        let _ = (id, direction);
    }

    /// Releases a transaction that is complete and inspected.
    fn release(&mut self, id: u64);

    /// Returns the files that have completed since the last call. If `end` is true, also returns
    /// incomplete files.
    fn take_files(&mut self, end: bool) -> Vec<file::FileRecord> {
        let _ = end;
        Vec::new()
    }

    /// Returns whether a transaction has just completed, so that rules must inspect this direction
    /// immediately.
    fn take_trigger(&mut self, direction: Direction) -> bool {
        let _ = direction;
        false
    }

    /// Returns whether the transaction gets a log record.
    fn is_recorded(&self, id: u64) -> bool {
        let _ = id;
        true
    }

    /// Returns the direction whose sender is the source in the transaction's log record.
    fn record_direction(&self, id: u64) -> Direction {
        let _ = id;
        Direction::ToServer
    }

    /// Writes the protocol's part of an EVE record.
    fn describe(&self, id: u64, json: &mut crate::eve::Json) {
        let _ = (id, json);
    }
}

/// Options of parsers.
#[derive(Clone)]
pub struct ParserOptions {
    /// Settings of the HTTP parser.
    pub http: HttpConfig,
    /// Whether digests of files are computed.
    pub hash_files: bool,
}

/// Returns whether this protocol has a parser. Without one, rules see only the payload.
pub fn has_parser(app: App) -> bool {
    matches!(app, App::Http | App::Dns | App::Tls | App::Ssh)
}

/// Returns a new parser for `app`, or `None` if there is no such parser.
pub fn new_parser(app: App, key: &Key, options: &ParserOptions) -> Option<Box<dyn Parser>> {
    match app {
        App::Http => Some(Box::new(http::Http::new(options, key.client_port, key.server_port))),
        App::Dns => Some(Box::new(dns::Dns::new(key.protocol == 6))),
        App::Tls => Some(Box::new(tls::Tls::new())),
        App::Ssh => Some(Box::new(ssh::Ssh::default())),
        _ => None,
    }
}

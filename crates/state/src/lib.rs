//! Sequence numbers that survive a restart, and claims on keys.
//!
//! A counter-mode cipher uses the sequence number of an SA as nonce, and a nonce must never repeat
//! under one key. This crate records in a state folder, for each key, a number that no packet has
//! passed yet. A function may use numbers up to the recorded one, and a restart continues after it.
//!
//! | file | contents |
//! |---|---|
//! | `record.rs` | record of 64 bytes, and recovery of a journal after a power loss |
//! | `journal.rs` | journal: records are durable before a caller may use them |
//! | `disk.rs` | file operations of the journal, so that tests can replace the disk |
//! | `folder.rs` | checks and lock of the state folder |
//! | `claims.rs` | claims on keys, across functions and processes |
//! | `keeper.rs` | thread that writes reservations, off the packet path |
//!
//! `docs/decisions/0022-durable-sequence-numbers.md` gives the reasons.
#![forbid(unsafe_code)]

mod claims;
pub mod disk;
mod error;
mod folder;
mod journal;
mod keeper;
mod record;

pub use error::Error;
pub use journal::Journal;
pub use keeper::{Keeper, Source, State};
pub use record::{Entry, KeyName};

//! Keeps sequence numbers across restarts, and ensures that each key has only one user.
//!
//! A counter-mode cipher uses the sequence number of a security association (SA) as its nonce, and
//! a nonce must never repeat under one key. For each key, this crate records an upper bound for the
//! sequence numbers in a state folder. A function uses only numbers up to this bound. After a
//! restart, it continues with the numbers above the bound.
//!
//! | file | contents |
//! |---|---|
//! | `record.rs` | record of 64 bytes, and recovery of a journal after a power loss |
//! | `journal.rs` | journal whose records are durable before a caller may use them |
//! | `disk.rs` | file operations of the journal, which tests can replace |
//! | `folder.rs` | checks and lock of the state folder |
//! | `claims.rs` | claims on keys, across functions and processes |
//! | `keeper.rs` | thread that writes reservations outside the packet path |
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

//! Intrusion detection with the rule languages of Snort and Suricata. The crate reassembles TCP
//! streams, parses application protocols, evaluates rules, and reports alerts. It has no threads
//! and does no I/O on the packet path.
//!
//! | module | contents |
//! |---|---|
//! | [`rules`] | parser of the rule language |
//! | [`flow`] | table of flows and their state |
//! | [`proto`] | parsers of application protocols |
//! | [`inspector`] | turns frames into verdicts and records |
//! | [`settings`] | settings with the names of `suricata.yaml` |
//! | [`stats`] | counters |
//! | [`detect`] | evaluation of rules |
//! | [`eve`] | log records |
//! | [`packet`] | decoded packets |
//! | [`stream`] | TCP connections |
//! | [`regex`] | regular expressions of rules |
//! | [`app`] | names of protocols and directions |
//! | [`event`] | names of events |
#![deny(unsafe_code)]

pub mod app;
pub mod detect;
mod error;
pub mod eve;
pub mod event;
pub mod flow;
#[doc(hidden)]
pub mod fuzz;
pub mod inspector;
pub mod packet;
pub mod proto;
pub mod regex;
pub mod rules;
pub mod settings;
pub mod stats;
pub mod stream;

pub use app::{App, AppSet, Direction};
pub use error::Error;
pub use godwit_literal as literal;
pub use inspector::{DropReason, FrameResult, FrameVerdict, Inspector};
pub use settings::Settings;

//! Intrusion detection: rules in the language of Snort and Suricata, matching, TCP streams,
//! protocol parsers, and alerts. The crate has no threads and does no I/O on the packet path.
//!
//! | module | contents |
//! |---|---|
//! | [`rules`] | the rule language |
//! | [`flow`] | flows |
//! | [`proto`] | parsers of application protocols |
//! | [`inspector`] | from frames to verdicts and records |
//! | [`settings`] | settings by the names of `suricata.yaml` |
//! | [`stats`] | counters |
//! | [`detect`] | evaluation of rules |
//! | [`eve`] | records |
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

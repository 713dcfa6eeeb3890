//! Intrusion detection: rules in the language of Snort and Suricata, matching, TCP streams,
//! protocol parsers, and alerts. The crate has no threads and does no I/O on the packet path.
//!
//! | module | contents |
//! |---|---|
//! | [`rules`] | the rule language |
//! | [`literal`] | search for many byte strings |
//! | [`packet`] | decoded packets |
//! | [`stream`] | TCP connections |
//! | [`regex`] | regular expressions of rules |
//! | [`app`] | names of protocols and directions |
//! | [`event`] | names of events |
#![deny(unsafe_code)]

pub mod app;
mod error;
pub mod event;
pub mod literal;
pub mod packet;
pub mod regex;
pub mod rules;
pub mod stream;

pub use app::{App, AppSet, Direction};
pub use error::Error;

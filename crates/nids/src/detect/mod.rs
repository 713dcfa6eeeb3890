//! Finds the rules that match a packet and the transactions of its flow.
//!
//! | file | contents |
//! |---|---|
//! | `compile.rs` | compiles rules into an [`Engine`] |
//! | `search.rs` | searches fields for the prefilter patterns of rules |
//! | `detector.rs` | evaluation of rules for one packet |
//! | `transaction.rs` | evaluation of rules for the transactions of a flow |
//! | `header.rs` | tests of packet headers |
//! | `chain.rs`, `numbers.rs`, `transform.rs`, `digest.rs` | tests of fields |
//! | `state.rs`, `names.rs` | named bits and numbers |
//! | `alert.rs`, `thresholds.rs` | order and limits of alerts, and the verdict |

mod alert;
mod chain;
mod compile;
mod detector;
pub mod digest;
mod header;
mod input;
mod names;
mod numbers;
mod search;
mod state;
mod thresholds;
mod transaction;
mod transform;

pub use alert::{Alert, Result, Verdict};
pub use compile::{Compiled, Engine, Kind};
pub use detector::{Counters, Detector};
pub use input::Input;

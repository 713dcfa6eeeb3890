//! Writes EVE records, the log format of Suricata. Each record is a JSON object on its own line, as
//! in the file `eve.json`.
//!
//! | file | contents |
//! |---|---|
//! | `kinds.rs` | selects the kinds of records to write |
//! | `json.rs` | writes JSON objects |
//! | `record.rs` | writes the records of alerts, flows, HTTP transactions and others |
//! | `payload.rs` | encodes packet payloads for records |
//! | `stats.rs` | writes the record of counters |

mod json;
mod kinds;
mod payload;
pub(crate) mod record;
mod stats;

pub use json::Json;
pub use kinds::{Kind, Kinds};
pub use stats::stats_record;

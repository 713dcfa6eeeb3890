//! EVE records: one JSON object per line, in the format of Suricata's `eve.json`.
//!
//! | file | contents |
//! |---|---|
//! | `kinds.rs` | kinds of records |
//! | `json.rs` | writer of JSON |
//! | `record.rs` | records: alert, flow, http, ... |
//! | `payload.rs` | payloads in records |
//! | `stats.rs` | the record of counters |

mod json;
mod kinds;
mod payload;
pub(crate) mod record;
mod stats;

pub use json::Json;
pub use kinds::{Kind, Kinds};
pub use stats::stats_record;

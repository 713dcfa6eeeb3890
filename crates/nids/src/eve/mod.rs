//! EVE records: one JSON object per line, in the format of Suricata's `eve.json`.
//!
//! | file | contents |
//! |---|---|
//! | `json.rs` | writer of JSON |
//! | `record.rs` | records: alert, flow, http, ... |
//! | `payload.rs` | payloads in records |
//! | `stats.rs` | the record of counters |

mod json;
mod payload;
pub(crate) mod record;
pub(crate) mod stats;

pub use json::Json;

//! EVE records: one JSON object per line, in the format of Suricata's `eve.json`.
//!
//! | file | contents |
//! |---|---|
//! | `json.rs` | writer of JSON |
//! | `record.rs` | records: alert, flow, http, ... |

mod json;
pub(crate) mod record;

pub use json::Json;

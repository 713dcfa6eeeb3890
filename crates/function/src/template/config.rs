//! Configuration of `template`, which has no keys.

use serde::Deserialize;

/// Keys of the stanza.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {}

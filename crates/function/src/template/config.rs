//! What the operator writes: nothing yet.

use serde::Deserialize;

/// The keys of the stanza.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {}

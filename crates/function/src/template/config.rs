//! Configuration of `template`, which has no keys.

use serde::Deserialize;

/// Settings of the function.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {}

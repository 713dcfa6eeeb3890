//! Configuration of `hash`.

use std::path::PathBuf;

use serde::Deserialize;

use super::{Algorithm, Hash, Over, digests};
use crate::{BuildContext, Error};

/// Configuration keys of a function of kind `hash`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Hash function.
    algorithm: Algorithm,
    /// Bytes that the digest covers.
    #[serde(default)]
    over: Over,
    /// Path of the file with the list of digests.
    digests: Option<PathBuf>,
}

impl Config {
    /// Reads the list of digests, and creates the function.
    pub(super) fn resolve(&self, context: &BuildContext<'_>) -> Result<Hash, Error> {
        let mut listed = Vec::new();
        if let Some(name) = &self.digests {
            let (path, text) = crate::config::read_file(context.directory, name)?;
            listed = digests::parse(&text, self.algorithm).map_err(|(line, message)| Error::Line {
                path: path.clone(),
                line,
                message,
            })?;
            if listed.is_empty() {
                return Err(Error::Line { path, line: 1, message: "the file contains no digest".to_owned() });
            }
        }
        Hash::new(self.algorithm, self.over, listed)
    }
}

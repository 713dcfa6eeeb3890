//! What the operator writes.

use std::path::PathBuf;

use serde::Deserialize;

use super::{Case, patterns};
use crate::{BuildContext, Error};

/// The keys of the stanza.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The pattern file, see `patterns.rs`.
    patterns: PathBuf,
    /// Whether upper and lower case letters differ.
    #[serde(default)]
    case: Case,
}

impl Config {
    /// Reads the patterns.
    pub(super) fn resolve(&self, site: &BuildContext<'_>) -> Result<(Vec<Vec<u8>>, Case), Error> {
        let (path, text) = crate::config::read_file(site.directory, &self.patterns)?;
        match patterns::parse(&text) {
            Ok(patterns) if patterns.is_empty() => {
                Err(Error::Line { path, line: 1, message: "there is no pattern in the file".to_owned() })
            }
            Ok(patterns) => Ok((patterns, self.case)),
            Err((line, message)) => Err(Error::Line { path, line, message }),
        }
    }
}

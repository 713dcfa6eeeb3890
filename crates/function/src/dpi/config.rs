//! Configuration of `dpi`.

use std::path::PathBuf;

use serde::Deserialize;

use super::{Case, patterns};
use crate::{BuildContext, Error};

/// Configuration keys of a function of kind `dpi`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Path of the pattern file.
    patterns: PathBuf,
    /// Whether upper and lower case letters are different.
    #[serde(default)]
    case: Case,
}

impl Config {
    /// Reads the patterns from the file.
    pub(super) fn resolve(&self, context: &BuildContext<'_>) -> Result<(Vec<Vec<u8>>, Case), Error> {
        let (path, text) = crate::config::read_file(context.directory, &self.patterns)?;
        match patterns::parse(&text) {
            Ok(patterns) if patterns.is_empty() => {
                Err(Error::Line { path, line: 1, message: "the file contains no pattern".to_owned() })
            }
            Ok(patterns) => Ok((patterns, self.case)),
            Err((line, message)) => Err(Error::Line { path, line, message }),
        }
    }
}

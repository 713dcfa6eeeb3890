//! Errors of a configuration.

use std::path::{Path, PathBuf};

/// Configuration error, which the operator can fix. The message is one sentence.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A line is wrong in the configuration file, or in a file that it names.
    #[error("{origin}:{line}: {message}")]
    Line {
        /// Name of the file that contains the line.
        origin: String,
        /// Line number, counted from 1.
        line: usize,
        /// Message that states the problem and the remedy.
        message: String,
    },
}

impl ConfigError {
    pub(super) fn at(origin: &str, line: usize, message: impl ToString) -> Self {
        Self::Line { origin: origin.to_owned(), line, message: one_line(&message.to_string()) }
    }

    pub(super) fn of_file(path: &Path, line: usize, message: &str) -> Self {
        Self::at(&path.display().to_string(), line, message)
    }
}

/// Replaces control characters with spaces, because an error message must fit on one line. Quoted
/// names and values may contain control characters.
fn one_line(message: &str) -> String {
    message.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

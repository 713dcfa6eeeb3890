//! Errors of a configuration.

use std::path::{Path, PathBuf};

/// Error of a configuration, with a message of one sentence. The operator can fix every such error.
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
    /// A line of the configuration, or of a file that it names, is wrong.
    #[error("{origin}:{line}: {message}")]
    Line {
        /// Name of the file that contains the line.
        origin: String,
        /// Line number, from 1.
        line: usize,
        /// Message with the problem and the remedy.
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

/// Replaces control characters, which quoted names and values may contain, so that the message has
/// one line.
fn one_line(message: &str) -> String {
    message.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

//! Errors of a configuration.

use std::path::PathBuf;

/// Configuration error that the operator can fix.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A line of the configuration is wrong.
    #[error("{origin}:{line}: {message}")]
    Line {
        /// Name of the file.
        origin: String,
        /// Line number, from 1.
        line: usize,
        /// Problem and remedy.
        message: String,
    },
}

impl ConfigError {
    pub(super) fn at(origin: &str, line: usize, message: impl ToString) -> Self {
        let message = message.to_string();
        // Keep the message on one line, even if it quotes control characters.
        let message = message.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Self::Line { origin: origin.to_owned(), line, message }
    }
}

//! What is wrong with a configuration, in one sentence.

use std::path::{Path, PathBuf};

/// What is wrong with a configuration. All of it is the operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A line is at fault: of the configuration, or of a file that it names.
    #[error("{origin}:{line}: {message}")]
    Line {
        /// The file.
        origin: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what would be right.
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

/// A sentence has one line, whatever names and values it quotes.
fn one_line(message: &str) -> String {
    message.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

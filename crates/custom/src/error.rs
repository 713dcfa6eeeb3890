//! Errors of functions of users, worded for their authors.

use std::path::PathBuf;

/// Error of a user's function.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A line of the source is wrong.
    #[error("{}:{line}: {message}", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Line number, counted from 1.
        line: usize,
        /// Problem and remedy, in one sentence.
        message: String,
    },
    /// The function or its library is refused.
    #[error("{}: {message}", path.display())]
    Refused {
        /// Path of the file.
        path: PathBuf,
        /// Problem and remedy, in one sentence.
        message: String,
    },
}

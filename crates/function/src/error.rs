//! What can be wrong with a function's configuration, worded for the operator.

use std::ops::Range;
use std::path::PathBuf;

/// What is wrong with a function's stanza, or with a file that it names.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stanza is not what the function understands. Carries the place in the document.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// A value is understood but cannot work.
    #[error("{message}")]
    Value {
        /// Place in the document, in bytes, where it is known.
        span: Option<Range<usize>>,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A line of a file is wrong.
    #[error("{}:{line}: {message}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// A command to a running function cannot be done.
    #[error("{message}")]
    Command {
        /// What is wrong, and what would be right.
        message: String,
    },
    /// The tables do not fit into memory.
    #[error(transparent)]
    Memory(#[from] godwit_packet::Error),
}

//! Errors in the configuration of a function, worded for the operator.

use std::ops::Range;
use std::path::PathBuf;

/// Error in the stanza of a function or in a file that it names, or a failed command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stanza does not match the keys of the function. The error contains the position in the
    /// document.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// A value is well-formed but invalid.
    #[error("{message}")]
    Value {
        /// Position of the value in the document in bytes, if known.
        span: Option<Range<usize>>,
        /// Problem and valid values, in one sentence.
        message: String,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A line of a file is invalid.
    #[error("{}:{line}: {message}", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Line number, counted from 1.
        line: usize,
        /// Problem and valid values, in one sentence.
        message: String,
    },
    /// A command to a running function failed.
    #[error("{message}")]
    Command {
        /// Problem and remedy, in one sentence.
        message: String,
    },
    /// A function of the user is invalid.
    #[error(transparent)]
    Custom(#[from] godwit_custom::Error),
    /// The tables do not fit in memory.
    #[error(transparent)]
    Memory(#[from] godwit_packet::Error),
}

impl Error {
    /// Returns the error of a value. The caller adds the place with [`Error::at`], or the kind of
    /// error with [`Error::in_command`].
    pub(crate) fn value(message: impl Into<String>) -> Self {
        Self::Value { span: None, message: message.into() }
    }

    /// Returns this error as one of a value at `span` in the document.
    pub(crate) fn at(self, span: Range<usize>) -> Self {
        Self::Value { span: Some(span), message: self.to_string() }
    }

    /// Returns this error as one of a command.
    pub(crate) fn in_command(self) -> Self {
        Self::Command { message: self.to_string() }
    }
}

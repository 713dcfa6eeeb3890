//! Why a text is not transformed.

use std::fmt;

/// A place in the input and the reason why gopt does not transform it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The file, as named by the caller or by a `#line` directive.
    pub file: String,
    /// The line in it, from 1.
    pub line: usize,
    /// One sentence for who wrote the C.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file, self.line, self.reason)
    }
}

impl std::error::Error for Refusal {}

/// What passes return: a byte offset of the input and the reason; [`crate::source::Source::refusal`] names the line.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) reason: String,
}

pub(crate) type Pass<T> = Result<T, Fault>;

/// A refusal at a byte offset.
pub(crate) fn refuse<T>(at: usize, reason: impl Into<String>) -> Pass<T> {
    Err(Fault { at, reason: reason.into() })
}

//! Refusals: reasons why a text cannot be transformed.

use std::fmt;

/// Reason why gopt cannot transform a text, with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the file, from the caller or from a `#line` directive.
    pub file: String,
    /// Line in the file, from 1.
    pub line: usize,
    /// Reason in one sentence.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file, self.line, self.reason)
    }
}

impl std::error::Error for Refusal {}

/// Refusal within a pass, with a byte offset in the input.
/// [`Source::refusal`](crate::source::Source::refusal) converts it to a file and line.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) reason: String,
}

/// Result of a pass.
pub(crate) type Pass<T> = Result<T, Fault>;

/// Returns a refusal at a byte offset.
pub(crate) fn refuse<T>(at: usize, reason: impl Into<String>) -> Pass<T> {
    Err(Fault { at, reason: reason.into() })
}

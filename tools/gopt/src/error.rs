//! Errors, grouped by who must act.

use std::fmt;

/// Reason why a text was not transformed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The text contains C that gopt does not transform. Its author must change it.
    Refusal(Refusal),
    /// The text contains no marker, so there is nothing to transform.
    WithoutMarker(Refusal),
    /// The C compiler is missing, or does not preprocess the text. The caller must fix this.
    Compiler(String),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refusal(refusal) | Self::WithoutMarker(refusal) => refusal.fmt(formatter),
            Self::Compiler(message) => formatter.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

/// Reason why gopt cannot transform a text, with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// File name, from the caller or from a `#line` directive.
    pub file: String,
    /// Line in the file, from 1.
    pub line: usize,
    /// Macro whose expansion contains the refused C.
    pub expansion: Option<String>,
    /// Reason and remedy.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file, self.line, self.reason)?;
        match &self.expansion {
            Some(name) => write!(formatter, " (in the expansion of the macro {name})"),
            None => Ok(()),
        }
    }
}

/// Refusal within a pass, at a token of the expanded text.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// Index of a token, or `None` for the file as a whole.
    pub(crate) at: Option<usize>,
    /// Variable that the refusal is about.
    pub(crate) about: Option<crate::syntax::ast::DeclId>,
    /// Whether the file has no marker.
    pub(crate) is_without_marker: bool,
    /// Whether the fault is in the form of the loop, so that an outer loop may be legal.
    pub(crate) is_form: bool,
    pub(crate) reason: String,
}

/// Result of a pass.
pub(crate) type Pass<T> = Result<T, Fault>;

/// Returns a refusal at a token.
pub(crate) fn refuse<T>(at: usize, reason: impl Into<String>) -> Pass<T> {
    Err(Fault { at: Some(at), ..Fault::new(reason) })
}

impl Fault {
    /// Returns a fault of the file as a whole.
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { at: None, about: None, is_without_marker: false, is_form: false, reason: reason.into() }
    }
}

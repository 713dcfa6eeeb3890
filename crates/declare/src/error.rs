//! Errors in function declarations and in the text of values.

use crate::head::NAME_BYTES_MAX;

/// Problem in a function declaration, described for the author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Line of the C file, counted from 1.
    pub line: usize,
    /// Problem and remedy, in one sentence.
    pub message: String,
}

impl Error {
    /// Returns the error `error` with its line.
    pub(crate) fn at(line: usize, error: impl std::fmt::Display) -> Self {
        Self { line, message: error.to_string() }
    }
}

/// Name that is not allowed in a declaration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameError {
    /// The name is no identifier.
    #[error("`{}` is not a valid name of a {what}: use at most {NAME_BYTES_MAX} letters a-z, digits and `_`, beginning with a letter", name.escape_debug())]
    Invalid { name: String, what: String },
    /// The name has a meaning in the language of a kernel.
    #[error("`{name}` is a reserved word of C, C++ or OpenCL: choose another name for this {what}")]
    Reserved { name: String, what: String },
}

/// Type of a field that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TypeError {
    /// The length of an array is missing or zero.
    #[error("`{0}`: the length of an array is a number above 0")]
    Length(String),
    /// No type has this name.
    #[error("unknown type `{}`: {remedy}", name.escape_debug())]
    Unknown { name: String, remedy: String },
}

/// Struct that needs padding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PaddingError {
    /// The padding is before a field.
    #[error("structs.{record}: {bytes} bytes before `{field}` are unused: add a field for them")]
    Before { record: String, bytes: usize, field: String },
    /// The padding is at the end.
    #[error("structs.{record}: the last {bytes} bytes are unused: add a field")]
    AtEnd { record: String, bytes: usize },
}

/// Error in the text of a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The text does not have the form of its type.
    #[error("`{}` is not {form}", text.escape_debug())]
    Form {
        /// Text of the value.
        text: String,
        /// Description of the valid form.
        form: String,
    },
    /// The address of a prefix has bits beyond the length.
    #[error("`{}` has bits beyond the length of its prefix", .0.escape_debug())]
    BeyondLength(String),
    /// A number is outside of the declared range.
    #[error("{text} is not between {smallest} and {largest}")]
    Range {
        /// Text of the value.
        text: String,
        /// Smallest valid number.
        smallest: u64,
        /// Largest valid number.
        largest: u64,
    },
    /// A list has too many values.
    #[error("the list has {length} values, and at most {max} are possible")]
    TooMany {
        /// Number of values.
        length: usize,
        /// Largest possible number of values.
        max: u32,
    },
}

/// Returns a hint for an error about an unknown name. It suggests the most similar of the `known`
/// names, or lists all of them.
pub(crate) fn suggest(unknown: &str, known: &[&str]) -> String {
    let similar = known.iter().map(|name| (strsim::damerau_levenshtein(unknown, name), name)).min();
    match similar {
        Some((distance, name)) if distance <= 1 + unknown.len() / 4 => format!("did you mean `{name}`?"),
        Some(_) => format!("known are `{}`", known.join("`, `")),
        None => "there are none".to_owned(),
    }
}

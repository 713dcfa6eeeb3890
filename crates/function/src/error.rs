//! Errors in the configuration and commands of a function. The messages address the operator.

use std::borrow::Cow;
use std::ops::Range;
use std::path::PathBuf;

/// Error in the stanza of a function, in a file that the stanza names, or in a command to the
/// function.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key or its value has the wrong form. The error contains its position.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// A value is well-formed but invalid.
    #[error("{message}")]
    Value {
        /// Position of the value in the configuration in bytes, if it is known.
        span: Option<Range<usize>>,
        /// One sentence with the problem and the valid values.
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
        /// One sentence with the problem and the valid values.
        message: String,
    },
    /// A command to a running function failed.
    #[error("{}", single_line(message))]
    Command {
        /// One sentence with the problem and the remedy.
        message: String,
    },
    /// A function that a user wrote is invalid.
    #[error(transparent)]
    Custom(#[from] godwit_custom::Error),
    /// The tables of the function do not fit in memory.
    #[error(transparent)]
    Memory(#[from] godwit_packet::Error),
}

impl Error {
    /// Creates an error for an invalid value. The caller adds the position with [`Error::at`], or
    /// converts the error with [`Error::in_command`].
    pub(crate) fn value(message: impl Into<String>) -> Self {
        Self::Value { span: None, message: message.into() }
    }

    /// Adds a position in the configuration to this error.
    pub(crate) fn at(self, span: Range<usize>) -> Self {
        Self::Value { span: Some(span), message: self.to_string() }
    }

    /// Returns the error of a command to a function that takes no commands.
    pub fn no_commands() -> Self {
        Self::Command { message: "this function takes no commands".to_owned() }
    }

    /// Converts this error to the error of a command.
    pub(crate) fn in_command(self) -> Self {
        Self::Command { message: self.to_string() }
    }
}

/// Escapes the control characters in a message, such as a line break in a name from a command.
fn single_line(message: &str) -> Cow<'_, str> {
    if !message.chars().any(char::is_control) {
        return message.into();
    }
    let escape = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
    message.chars().map(escape).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn an_error_of_a_command_is_one_line() {
        let error = Error::value("no SA is called \"first\nsecond\"").in_command();
        assert_eq!(error.to_string(), r#"no SA is called "first\nsecond""#);
    }
}

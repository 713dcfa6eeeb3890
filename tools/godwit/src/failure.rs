//! Failures of commands: errors that the user can fix, and bugs.

use std::fmt::Display;
use std::process::ExitCode;

use crate::log;

/// Failure of a command. Standard error shows its sentence after `godwit: `.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An error that the user can fix: exit code 2.
    #[error("{0}")]
    User(String),
    /// A bug, or packets that were not conserved: exit code 1.
    #[error("{0}")]
    Bug(String),
    /// The reader closed standard output, as `head` does. The exit code is 0, without a message.
    #[error("standard output was closed")]
    OutputClosed,
}

impl Failure {
    /// Creates a failure that the user can fix.
    pub(crate) fn user(error: impl Display) -> Self {
        Self::User(error.to_string())
    }

    /// Creates a failure from an error. `is_users` is true if the user can fix it.
    pub(crate) fn of(is_users: bool, error: impl Display) -> Self {
        if is_users { Self::User(error.to_string()) } else { Self::Bug(error.to_string()) }
    }

    /// Prints the sentence and returns the process exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::User(_) => {
                log::line(format_args!("godwit: {self}"));
                ExitCode::from(2)
            }
            Self::Bug(_) => {
                log::line(format_args!("godwit: {self}"));
                ExitCode::FAILURE
            }
            Self::OutputClosed => ExitCode::SUCCESS,
        }
    }
}

impl From<godwit_engine::Error> for Failure {
    fn from(error: godwit_engine::Error) -> Self {
        Self::of(error.is_users(), error)
    }
}

impl From<godwit_bench::Error> for Failure {
    fn from(error: godwit_bench::Error) -> Self {
        Self::of(error.is_users(), error)
    }
}

#[cfg(feature = "tls")]
impl From<godwit_proxy::Error> for Failure {
    fn from(error: godwit_proxy::Error) -> Self {
        Self::user(error)
    }
}

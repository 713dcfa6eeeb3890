//! Why a command ends without success: for the user to mend, or a bug.

use std::fmt::Display;
use std::process::ExitCode;

/// What ends a command early. The sentence follows `godwit: ` on standard error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Something that the user must mend: exit code 2.
    #[error("{0}")]
    User(String),
    /// A bug, or packets that were not conserved: exit code 1.
    #[error("{0}")]
    Bug(String),
    /// Whoever reads standard output has left, as `head` does. Nobody is there to be told.
    #[error("standard output was closed")]
    ReaderLeft,
}

impl Failure {
    /// For the user to mend.
    pub(crate) fn user(error: impl Display) -> Self {
        Self::User(error.to_string())
    }

    /// From an error that knows whose it is.
    pub(crate) fn of(is_users: bool, error: impl Display) -> Self {
        if is_users { Self::User(error.to_string()) } else { Self::Bug(error.to_string()) }
    }

    /// Tells the user, and says what the process exits with.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::User(_) => {
                eprintln!("godwit: {self}");
                ExitCode::from(2)
            }
            Self::Bug(_) => {
                eprintln!("godwit: {self}");
                ExitCode::FAILURE
            }
            Self::ReaderLeft => ExitCode::SUCCESS,
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

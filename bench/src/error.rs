//! Errors of benches.

/// An error of a bench, grouped by who must act.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request names something that does not exist.
    #[error("unknown {what} `{name}`; expected one of {}", known.join(", "))]
    Unknown {
        /// Kind of the name: `bench`, `implementation`, `suite`.
        what: &'static str,
        /// Name in the request.
        name: String,
        /// Names that exist.
        known: Vec<String>,
    },
    /// The bench does not accept an option of the request.
    #[error("the bench `{bench}` does not accept --{option}; its options are --{}", accepted.join(", --"))]
    Option {
        /// Name of the bench.
        bench: String,
        /// Name of the option, without dashes.
        option: String,
        /// Names of the options that the bench accepts.
        accepted: Vec<String>,
    },
    /// The workload cannot be set up on this machine.
    #[error("{0}")]
    Setup(String),
    /// A competitor returned a wrong result, because of a bug in the competitor or in the bench.
    #[error("{who} returned a wrong result: {what}")]
    Wrong {
        /// Name of the competitor.
        who: String,
        /// Expected and actual result.
        what: String,
    },
}

impl Error {
    /// Wraps an error of the setup.
    pub(crate) fn setup(error: impl std::fmt::Display) -> Self {
        Self::Setup(error.to_string())
    }

    /// Returns whether the user can fix the error.
    pub fn is_users(&self) -> bool {
        !matches!(self, Self::Wrong { .. })
    }
}

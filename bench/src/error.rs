//! What can go wrong with a bench.

/// What can go wrong with a bench, grouped by who must act.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user named something that is not there.
    #[error("no {what} is called `{name}`; there is {}", known.join(", "))]
    Unknown {
        /// `bench`, `implementation`.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The workload cannot be set up on this machine.
    #[error("{0}")]
    Setup(String),
    /// A competitor gave a wrong answer: a bug in it or in the bench.
    #[error("{who} gave a wrong answer: {what}")]
    Wrong {
        /// The competitor.
        who: String,
        /// Expected and got.
        what: String,
    },
}

impl Error {
    /// From any error of setting up.
    pub(crate) fn setup(error: impl std::fmt::Display) -> Self {
        Self::Setup(error.to_string())
    }

    /// Whether the one who runs the bench can mend it.
    pub fn is_users(&self) -> bool {
        !matches!(self, Self::Wrong { .. })
    }
}

//! Errors in the configuration of a function chain.

use crate::names;

/// Reason why an edge is invalid. Every variant contains the index of the edge ([`Error::edge`]).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An edge contains an unknown name.
    #[error("{}", names::unknown(what, name, &candidates.iter().map(String::as_str).collect::<Vec<_>>()))]
    Unknown {
        /// Index of the edge.
        edge: usize,
        /// Key of the edge that contains the unknown name.
        key: &'static str,
        /// Kind of name that the key requires.
        what: &'static str,
        /// Unknown name.
        name: String,
        /// Valid names.
        candidates: Vec<String>,
    },
    /// Two edges apply to the same packets.
    #[error("the next stage of {what} is already set by the edge to `{first}`")]
    Duplicate {
        /// Index of the later edge.
        edge: usize,
        /// Description of the packets to which both edges apply.
        what: String,
        /// Name of the port or function to which the earlier edge leads.
        first: String,
    },
    /// An edge from a port has a verdict.
    #[error("`{port}` is a port and returns no verdict, so an edge from it cannot have `verdict`")]
    VerdictOfPort {
        /// Index of the edge.
        edge: usize,
        /// Name of the port.
        port: String,
    },
    /// An edge starts at a port that does not receive.
    #[error("port `{port}` does not receive, so no edge can start there")]
    FromSendOnly {
        /// Index of the edge.
        edge: usize,
        /// Name of the port.
        port: String,
    },
    /// An edge ends at a port that does not send.
    #[error("port `{port}` only receives, so no edge can lead there")]
    ToReceiveOnly {
        /// Index of the edge.
        edge: usize,
        /// Name of the port.
        port: String,
    },
    /// An edge leads to `egress`, which means the port that a function chooses. However, the
    /// function chooses no port for these packets.
    #[error("`{from}` chooses no port{}, so this edge cannot lead to `egress`", verdict.as_ref().map(|verdict| format!(" with verdict `{verdict}`")).unwrap_or_default())]
    NoPortChosen {
        /// Index of the edge.
        edge: usize,
        /// Name of the port or function where the edge starts.
        from: String,
        /// Verdict for which the function chooses no port.
        verdict: Option<String>,
    },
    /// A packet could visit a function twice.
    #[error("the chain has a cycle: {}", path.join(" → "))]
    Cycle {
        /// Index of the edge that closes the cycle.
        edge: usize,
        /// Names of the functions in the cycle. The last name equals the first.
        path: Vec<String>,
    },
}

impl Error {
    /// Returns the index of the invalid edge.
    pub fn edge(&self) -> usize {
        match self {
            Self::Unknown { edge, .. }
            | Self::Duplicate { edge, .. }
            | Self::VerdictOfPort { edge, .. }
            | Self::FromSendOnly { edge, .. }
            | Self::ToReceiveOnly { edge, .. }
            | Self::NoPortChosen { edge, .. }
            | Self::Cycle { edge, .. } => *edge,
        }
    }

    /// Returns the invalid key of the edge, or `None` if the edge as a whole is invalid.
    pub fn key(&self) -> Option<&'static str> {
        match self {
            Self::Unknown { key, .. } => Some(key),
            Self::VerdictOfPort { .. } => Some("verdict"),
            Self::FromSendOnly { .. } => Some("from"),
            Self::ToReceiveOnly { .. } | Self::NoPortChosen { .. } | Self::Cycle { .. } => Some("to"),
            Self::Duplicate { .. } => None,
        }
    }
}

//! What can be wrong with a chain, worded for the operator.

use crate::names;

/// Why edges do not make a chain. Every variant carries the edge at fault (its index), see [`Error::edge`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A key of an edge names what is not there.
    #[error("{}", names::unknown(what, name, &candidates.iter().map(String::as_str).collect::<Vec<_>>()))]
    Unknown {
        /// The edge.
        edge: usize,
        /// The key of the edge that holds the name.
        key: &'static str,
        /// What it should have been the name of.
        what: &'static str,
        /// The name.
        name: String,
        /// What would have been right.
        candidates: Vec<String>,
    },
    /// Two edges say what follows the same packets.
    #[error("this edge says again what follows {what}: the edge to `{first}` already does")]
    Duplicate {
        /// The later edge.
        edge: usize,
        /// What follows what, in words.
        what: String,
        /// Where the earlier edge leads.
        first: String,
    },
    /// A port says nothing of a packet.
    #[error("`{port}` is a port and says no verdict, so an edge from it cannot have `verdict`")]
    VerdictOfPort {
        /// The edge.
        edge: usize,
        /// The port.
        port: String,
    },
    /// The port never brings a packet.
    #[error("port `{port}` does not receive, so no edge can start there")]
    FromSendOnly {
        /// The edge.
        edge: usize,
        /// The port.
        port: String,
    },
    /// The port cannot take a packet.
    #[error("port `{port}` only receives, so no edge can lead there")]
    ToReceiveOnly {
        /// The edge.
        edge: usize,
        /// The port.
        port: String,
    },
    /// Nobody chose the port that the packet should leave by.
    #[error("`{from}` chooses no port{}, so this edge cannot lead to `egress`", verdict.as_ref().map(|verdict| format!(" with verdict `{verdict}`")).unwrap_or_default())]
    NoPortChosen {
        /// The edge.
        edge: usize,
        /// The port or function that it starts from.
        from: String,
        /// The verdict that chooses no port.
        verdict: Option<String>,
    },
    /// A packet could come back to a function.
    #[error("the chain has a cycle: {}", path.join(" → "))]
    Cycle {
        /// An edge of the cycle: the one that closes it.
        edge: usize,
        /// The functions in it; the first is also the last.
        path: Vec<String>,
    },
}

impl Error {
    /// Index of the edge at fault.
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

    /// The key of that edge which is at fault; `None` where it is the whole edge.
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

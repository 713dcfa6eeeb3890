//! Errors of a run. They are grouped by the person who can fix them.

/// Error of a run. The description of each variant first names the person who can fix the error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// For the operator: the configuration does not work on this machine or with these options.
    #[error("{0}")]
    Setup(String),
    /// For the operator: a request to the running engine is refused. The text is one sentence.
    #[error("{0}")]
    Request(String),
    /// For the operator: a port cannot be opened, or it failed to receive or transmit.
    #[error("port `{port}`: {source}")]
    Port {
        /// Configured name of the port.
        port: String,
        /// Error of the port.
        source: godwit_io::Error,
    },
    /// For the operator: a replay was stopped early. Its output would look complete, so no output
    /// is written.
    #[error("stopped before the end of the captures: no output was written")]
    Interrupted,
    /// For the operator: the machine has not enough memory for packets.
    #[error(transparent)]
    Memory(#[from] godwit_packet::Error),
    /// For the operator: a number in the stanza `[packing]` is out of range.
    #[error("packing: {0}")]
    Packing(#[from] godwit_sched::Error),
    /// For the operator: a device cannot be used. An invalid submission, however, is a bug that the
    /// developers must fix.
    #[error(transparent)]
    Device(#[from] godwit_device::Error),
    /// For the operator: a lost device holds most packet buffers of a worker, so no packet can
    /// arrive any more.
    #[error(
        "device `{device}` is lost and holds {buffers} buffers, so no packet of maximum length fits into the rest of the \
         arena: increase packets in [arena] above in_flight_packets"
    )]
    ArenaLost {
        /// Configured name of the device.
        device: String,
        /// Number of buffers that are lost with the device.
        buffers: usize,
    },
    /// For the developers: a worker panicked.
    #[error("worker {worker} stopped by a bug: {message}")]
    Worker {
        /// Number of the worker.
        worker: usize,
        /// Panic message.
        message: String,
    },
    /// For the developers: a worker completed no loop iteration for several seconds, and the run
    /// had to end.
    #[error("worker {worker} hangs: the run ended without it, and captures may be incomplete")]
    Hung {
        /// Number of the worker.
        worker: usize,
    },
}

impl Error {
    /// Creates the error for a request that is refused. `sentence` states the problem and the
    /// remedy.
    pub(crate) fn request(sentence: impl std::fmt::Display) -> Self {
        Self::Request(sentence.to_string())
    }

    /// Returns whether the operator can fix this error. All other errors are bugs of Godwit.
    pub fn is_users(&self) -> bool {
        match self {
            Self::Setup(_)
            | Self::Request(_)
            | Self::Port { .. }
            | Self::Interrupted
            | Self::Memory(_)
            | Self::Packing(_)
            | Self::ArenaLost { .. } => true,
            Self::Device(error) => !matches!(error, godwit_device::Error::Chunk { .. }),
            Self::Worker { .. } | Self::Hung { .. } => false,
        }
    }
}

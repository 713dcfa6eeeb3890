//! Errors of a run, grouped by who must act.

/// Error of a run. The description of each variant starts with the party who must act.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Operator: the configuration does not work on this machine or with these options.
    #[error("{0}")]
    Setup(String),
    /// Operator: a request to the running engine is refused. The text is one sentence.
    #[error("{0}")]
    Request(String),
    /// Operator: a port cannot be opened, or its source or sink failed.
    #[error("port `{port}`: {source}")]
    Port {
        /// Configured name of the port.
        port: String,
        /// Error of the port.
        source: godwit_io::Error,
    },
    /// Operator: a replay was stopped early. Its output would look complete, so nothing is written.
    #[error("stopped before the end of the captures: no output was written")]
    Interrupted,
    /// Operator: the machine has not enough memory for packets.
    #[error(transparent)]
    Memory(#[from] godwit_packet::Error),
    /// Operator: a number in `[packing]` is out of range.
    #[error("packing: {0}")]
    Packing(#[from] godwit_sched::Error),
    /// Operator: a device cannot be used. An invalid chunk is a bug of Godwit.
    #[error(transparent)]
    Device(#[from] godwit_device::Error),
    /// Operator: a lost device holds most buffers of a worker, and no packet can arrive any more.
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
    /// Bug: a worker panicked.
    #[error("worker {worker} stopped by a bug: {message}")]
    Worker {
        /// Number of the worker.
        worker: usize,
        /// Panic message.
        message: String,
    },
    /// Bug: a worker completed no loop iteration for several seconds, and the run had to end.
    #[error("worker {worker} hangs: the run ended without it, and captures may be incomplete")]
    Hung {
        /// Number of the worker.
        worker: usize,
    },
}

impl Error {
    /// Returns the refusal of a request. `sentence` gives the problem and the remedy.
    pub(crate) fn request(sentence: impl std::fmt::Display) -> Self {
        Self::Request(sentence.to_string())
    }

    /// Returns whether the operator can fix this error. Any other error is a bug of Godwit.
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

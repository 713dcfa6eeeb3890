//! Errors that end or prevent a run of the engine.

/// Error that ends or prevents a run of the engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration does not work on this machine or with these options.
    #[error("{0}")]
    Setup(String),
    /// The engine refused a request. The text is one sentence.
    #[error("{0}")]
    Request(String),
    /// A port could not be opened, or failed to receive or transmit.
    #[error("port `{port}`: {source}")]
    Port {
        /// Configured name of the port.
        port: String,
        /// Error of the port.
        source: godwit_io::Error,
    },
    /// A replay was stopped early. No output is written, because it would look complete.
    #[error("stopped before the end of the captures: no output was written")]
    Interrupted,
    /// The machine does not have enough memory for packets.
    #[error(transparent)]
    Memory(#[from] godwit_packet::Error),
    /// A number in the configuration stanza `[packing]` is out of range.
    #[error("packing: {0}")]
    Packing(#[from] godwit_sched::Error),
    /// A device cannot be used. If the reason is an invalid submission, Godwit has a bug.
    #[error(transparent)]
    Device(#[from] godwit_device::Error),
    /// A lost device holds most packet buffers of a worker. The worker can therefore receive no
    /// more packets.
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
    /// A bug: a worker panicked.
    #[error("worker {worker} stopped by a bug: {message}")]
    Worker {
        /// Number of the worker.
        worker: usize,
        /// Panic message.
        message: String,
    },
    /// A bug: a worker completed no loop iteration for several seconds, and the run had to end.
    #[error("worker {worker} hangs: the run ended without it, and captures may be incomplete")]
    Hung {
        /// Number of the worker.
        worker: usize,
    },
}

impl Error {
    /// Creates the error for a refused request. `sentence` states the problem and the remedy.
    pub(crate) fn request(sentence: impl std::fmt::Display) -> Self {
        Self::Request(sentence.to_string())
    }

    /// Returns whether the operator can fix this error. All other errors are bugs in Godwit.
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

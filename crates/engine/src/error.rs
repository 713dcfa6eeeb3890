//! What can go wrong with a run, grouped by who must act.

/// What can go wrong with a run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator: the configuration cannot work on this machine or with these options.
    #[error("{0}")]
    Setup(String),
    /// The operator: a port cannot be opened, or its source or sink failed.
    #[error("port `{port}`: {source}")]
    Port {
        /// Configured name of the port.
        port: String,
        /// What happened.
        source: godwit_io::Error,
    },
    /// The operator: a replay was stopped, and half a replay looks like a whole one.
    #[error("stopped before the captures were read to their end: nothing was written")]
    Interrupted,
    /// The machine: no memory for packets.
    #[error(transparent)]
    Memory(#[from] godwit_packet::Error),
    /// The operator: a number in `[packing]` is out of range.
    #[error("packing: {0}")]
    Packing(#[from] godwit_sched::Error),
    /// The device.
    #[error(transparent)]
    Device(#[from] godwit_device::Error),
    /// A device is lost with nearly the whole arena of a worker in its hands: no packet can come in any more.
    #[error(
        "device `{device}` is lost with {buffers} buffers of the arena in its hands, and no packet of full size fits into \
         what is left: more [arena] packets than in_flight_packets leave room to go on"
    )]
    ArenaLost {
        /// The device.
        device: String,
        /// Buffers that can never be used again.
        buffers: usize,
    },
    /// A bug: a worker panicked.
    #[error("worker {worker} stopped by a bug: {message}")]
    Worker {
        /// Its number.
        worker: usize,
        /// What it said.
        message: String,
    },
}

impl Error {
    /// Whether the one who runs Godwit can mend it; everything else is a bug.
    pub fn is_users(&self) -> bool {
        match self {
            Self::Setup(_)
            | Self::Port { .. }
            | Self::Interrupted
            | Self::Memory(_)
            | Self::Packing(_)
            | Self::ArenaLost { .. } => true,
            Self::Device(error) => !matches!(error, godwit_device::Error::Chunk { .. }),
            Self::Worker { .. } => false,
        }
    }
}

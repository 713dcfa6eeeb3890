//! What can go wrong with a device.

/// What can go wrong with a device, grouped by who must act.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator named a device that is not here.
    #[error("there is no device `{id}` here; `godwit devices` lists what is")]
    Absent {
        /// The name.
        id: String,
    },
    /// The device needs more memory than the machine has.
    #[error(transparent)]
    Memory(#[from] godwit_packet::Error),
    /// A chunk names a program, a packet or a place that is not there: a bug.
    #[error("chunk refused: {reason}")]
    Chunk {
        /// What is wrong with it.
        reason: String,
    },
}

//! Errors of devices, grouped by who must act.

use godwit_sched::Chunk;
use serde::{Serialize, Serializer};

/// Errors of devices.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    // The operator changes the configuration.
    /// The operator named a device that this machine does not have.
    #[error("device `{id}` does not exist on this machine; `godwit devices` lists the available devices")]
    Absent {
        /// Name of the device.
        id: String,
    },
    /// The device needs more memory than the machine has.
    #[error(transparent)]
    Memory(#[from] godwit_packet::Error),
    /// The operator named a device that Godwit cannot use.
    #[error("device `{id}` cannot be used: {reason}")]
    Unusable {
        /// Name of the device.
        id: String,
        /// Why the device cannot be used.
        reason: Unavailable,
    },
    /// The configuration needs more memory than one buffer of the device can hold.
    #[error("{what} needs {bytes} bytes, but a buffer of device `{id}` holds at most {bytes_max}: reduce its size")]
    TooLarge {
        /// Name of the device.
        id: String,
        /// The object that does not fit.
        what: &'static str,
        /// Size of the object.
        bytes: u64,
        /// Maximum size of a buffer.
        bytes_max: u64,
    },
    /// A new chain needs packets that stay on the device because the chain at startup did not need
    /// them.
    #[error(
        "device `{id}` does not copy packets of `{function}` back: no function needed them when Godwit started; restart \
         Godwit with this chain"
    )]
    NotCopiedBack {
        /// Name of the device.
        id: String,
        /// Name of the function.
        function: String,
    },
    // The driver failed.
    /// The device's compiler rejects the kernels. Either the driver or the kernels are at fault.
    #[error("the kernels do not compile for device `{id}` (driver {driver}); try another driver version: {log}")]
    Build {
        /// Name of the device.
        id: String,
        /// Driver version.
        driver: String,
        /// Log of the compiler.
        log: String,
    },
    /// A driver call failed.
    #[error("device `{id}`: the driver failed to {action}: {reason}")]
    Driver {
        /// Name of the device.
        id: String,
        /// The action that failed, as an infinitive.
        action: &'static str,
        /// The driver's error.
        reason: String,
    },
    // The caller handles the packets in flight.
    /// The device accepted a chunk and failed to finish it. [`Lane::poll`](crate::Lane::poll) still
    /// returns the other chunks in flight, finished or as this error.
    #[error("device `{id}` failed with {} packets in flight: {reason}", .chunk.packets)]
    Failed {
        /// Name of the device.
        id: String,
        /// The driver's error.
        reason: String,
        /// The chunk as it was submitted, except that the device may have changed heads and lengths
        /// of packets. The worker owns its buffers again. Their content is undefined.
        chunk: Box<Chunk>,
    },
    /// The device does not respond, or its driver gave it up. It may still write to the buffers of
    /// packets in flight. These buffers must never be used again.
    #[error("device `{id}` is lost with {} packets in flight: {reason}", .chunks.iter().map(|chunk| chunk.packets).sum::<u32>())]
    Lost {
        /// Name of the device.
        id: String,
        /// Why the device is considered lost.
        reason: String,
        /// All chunks in flight as they were submitted, except that the device may have changed
        /// heads and lengths of packets. They name the same buffers.
        chunks: Vec<Chunk>,
    },
    // The author of the caller fixes a bug.
    /// A chunk names a program, packet or array index that does not exist.
    #[error("chunk refused: {reason}")]
    Chunk {
        /// Defect of the chunk.
        reason: String,
    },
}

/// Why a device, a mode or a meter cannot be used, grouped by who can remove the reason. The text
/// is one clause or sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The operator: software is missing or too old, a permission is missing, or another program
    /// uses the device.
    #[error("{0}")]
    Setup(String),
    /// No party: the hardware or its driver lacks a feature.
    #[error("{0}")]
    Unsupported(String),
    /// The vendor: the driver or the hardware failed.
    #[error("{0}")]
    Failed(String),
    /// No party: the device was lost during this run.
    #[error("it is lost: {0}")]
    Lost(String),
}

impl Serialize for Unavailable {
    /// Writes the text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

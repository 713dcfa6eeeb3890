//! Errors of devices.

use godwit_sched::Chunk;
use serde::{Serialize, Serializer};

/// Errors of devices.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration names a device that this machine does not have.
    #[error("device `{id}` does not exist on this machine; `godwit devices` lists the available devices")]
    Absent {
        /// Name of the device.
        id: String,
    },
    /// The device needs more memory than the machine has.
    #[error(transparent)]
    Memory(#[from] godwit_packet::Error),
    /// The configuration names a device that Godwit cannot use.
    #[error("device `{id}` cannot be used: {reason}")]
    Unusable {
        /// Name of the device.
        id: String,
        /// Why the device cannot be used.
        reason: Unavailable,
    },
    /// The configuration needs an object larger than the device's maximum buffer size.
    #[error("{what} needs {bytes} bytes, but a buffer of device `{id}` holds at most {bytes_max}: reduce its size")]
    TooLarge {
        /// Name of the device.
        id: String,
        /// The object that does not fit.
        what: &'static str,
        /// Size of the object, in bytes.
        bytes: u64,
        /// Maximum size of a buffer, in bytes.
        bytes_max: u64,
    },
    /// The new function chain needs packets on the host, but the device does not copy them back.
    /// The function chain at startup did not need them.
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
    /// The compiler of the device rejects the kernels. The cause is either the driver or the
    /// kernels.
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
    /// The device accepted a submission and failed to finish it. All other submissions in flight
    /// still return from [`Lane::poll`](crate::Lane::poll), either finished or with this error.
    #[error("device `{id}` failed with {} packets in flight: {reason}", .chunk.packets)]
    Failed {
        /// Name of the device.
        id: String,
        /// The driver's error.
        reason: String,
        /// The unchanged submission, except that the device may have changed the start and the
        /// length of frames. The worker owns the packet buffers again, but their content is
        /// undefined.
        chunk: Box<Chunk>,
    },
    /// The device does not respond, or its driver has failed. The device may still write to the
    /// buffers of packets in flight, so these buffers must never be used again.
    #[error("device `{id}` is lost with {} packets in flight: {reason}", .chunks.iter().map(|chunk| chunk.packets).sum::<u32>())]
    Lost {
        /// Name of the device.
        id: String,
        /// Why the device is considered lost.
        reason: String,
        /// All submissions in flight, unchanged except that the device may have changed the start
        /// and the length of frames. The descriptors still refer to the same buffers.
        chunks: Vec<Chunk>,
    },
    /// A submission refers to a function, a packet or an array element that does not exist.
    #[error("chunk refused: {reason}")]
    Chunk {
        /// Defect of the submission.
        reason: String,
    },
}

/// Reason why a device, a mode or an energy meter is unavailable. The variants tell whether the
/// operator can solve the problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The operator can solve the problem. For example, software or a permission is missing, or
    /// another program uses the device.
    #[error("{0}")]
    Setup(String),
    /// The problem is permanent, because the hardware or the driver lacks a feature.
    #[error("{0}")]
    Unsupported(String),
    /// The driver or the hardware failed, so only its vendor can solve the problem.
    #[error("{0}")]
    Failed(String),
    /// The device was lost, and stays unusable until the end of the run.
    #[error("it is lost: {0}")]
    Lost(String),
}

impl Serialize for Unavailable {
    /// Writes the text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

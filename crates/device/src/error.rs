//! Errors of devices, grouped by who must act.

use godwit_sched::Chunk;
use serde::{Serialize, Serializer};

/// Errors of devices.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    // A change of the configuration resolves the following errors.
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
    /// The configuration needs an object that is larger than the maximum size of a buffer on the
    /// device.
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
    /// A changed function chain needs packets back from a device that does not copy them back. At
    /// startup, no function on the host needed them.
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
    // The driver causes the following errors.
    /// The compiler of the device rejects the kernels. Either the driver or the kernels are at
    /// fault.
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
    // The caller must handle the packets that the following errors return.
    /// The device accepted a chunk (the bins of one launch) and failed to finish it. All other
    /// chunks in flight still return from [`Lane::poll`](crate::Lane::poll), either finished or
    /// with this error.
    #[error("device `{id}` failed with {} packets in flight: {reason}", .chunk.packets)]
    Failed {
        /// Name of the device.
        id: String,
        /// The driver's error.
        reason: String,
        /// The chunk as it was submitted, except that the device may have changed heads and lengths
        /// of its packets. The worker owns the buffers of these packets again, but their content is
        /// undefined.
        chunk: Box<Chunk>,
    },
    /// The device does not respond, or its driver can no longer tell what the device does. The
    /// device may still write to the buffers of packets in flight, so these buffers must never be
    /// used again.
    #[error("device `{id}` is lost with {} packets in flight: {reason}", .chunks.iter().map(|chunk| chunk.packets).sum::<u32>())]
    Lost {
        /// Name of the device.
        id: String,
        /// Why the device is considered lost.
        reason: String,
        /// All chunks in flight as they were submitted, except that the device may have changed
        /// heads and lengths of packets. The descriptors still name the same buffers.
        chunks: Vec<Chunk>,
    },
    // A bug in the calling code causes the following error.
    /// A chunk refers to a program, a packet or an array element that does not exist.
    #[error("chunk refused: {reason}")]
    Chunk {
        /// Defect of the chunk.
        reason: String,
    },
}

/// Why a device, a mode or an energy meter cannot be used. Each variant states which party can
/// remove the reason, if any can. The text of a reason is one clause or sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The operator can remove the reason: software is missing or too old, a permission is missing,
    /// or another program uses the device.
    #[error("{0}")]
    Setup(String),
    /// No party can remove the reason: the hardware or its driver lacks a feature.
    #[error("{0}")]
    Unsupported(String),
    /// The vendor can remove the reason: the driver or the hardware failed.
    #[error("{0}")]
    Failed(String),
    /// No party can remove the reason during this run: the device was lost.
    #[error("it is lost: {0}")]
    Lost(String),
}

impl Serialize for Unavailable {
    /// Writes the text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

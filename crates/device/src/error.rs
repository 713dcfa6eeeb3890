//! What can go wrong with a device.

use godwit_sched::Chunk;

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
    /// The operator named a device that Godwit cannot use.
    #[error("device `{id}` cannot be used: {reason}")]
    Unusable {
        /// The name.
        id: String,
        /// Why.
        reason: String,
    },
    /// The operator configured more than fits into one buffer of the device.
    #[error("{what} takes {bytes} bytes, but a buffer of device `{id}` holds at most {bytes_max}: make it smaller")]
    TooLarge {
        /// The device.
        id: String,
        /// What does not fit.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The device's limit.
        bytes_max: u64,
    },
    /// The device's compiler does not take the kernels: the driver is at fault, or the kernels are.
    #[error("the kernels do not compile for device `{id}` (driver {driver}); another driver may do: {log}")]
    Build {
        /// The device.
        id: String,
        /// Its driver's version.
        driver: String,
        /// What the compiler said.
        log: String,
    },
    /// The driver refused a call.
    #[error("device `{id}`: its driver failed to {action}: {reason}")]
    Driver {
        /// The device.
        id: String,
        /// What it was asked to do.
        action: &'static str,
        /// What it said.
        reason: String,
    },
    /// Packets of a function stay on the device since nobody needed them when it was made ready, and a new chain does.
    #[error(
        "device `{id}` does not bring back what `{function}` makes of packets: nothing needed it when Godwit was started; \
         start it again with this chain"
    )]
    NotBrought {
        /// The device.
        id: String,
        /// The function.
        function: String,
    },
    /// The device took a chunk and failed to finish it. Other chunks in flight are not lost: each comes back from
    /// [`Lane::poll`](crate::Lane::poll), finished or as this error.
    #[error("device `{id}` failed with {} packets in its hands: {reason}", .chunk.packets)]
    Failed {
        /// The device.
        id: String,
        /// What its driver said.
        reason: String,
        /// The chunk as it was submitted, but for heads and lengths of its packets: the device may have changed some already.
        /// Its buffers are the worker's again; what is in them is anybody's guess.
        chunk: Box<Chunk>,
    },
    /// The device does not answer any more, or its driver gave it up. It may still write to the buffers of the packets
    /// in its hands: they must never be used again.
    #[error("device `{id}` is lost with {} packets in its hands: {reason}", .chunks.iter().map(|chunk| chunk.packets).sum::<u32>())]
    Lost {
        /// The device.
        id: String,
        /// What shows that it is lost.
        reason: String,
        /// All chunks that were in flight, as they were submitted, but for heads and lengths of their packets: the device
        /// may have changed some already. The buffers that they name are the same.
        chunks: Vec<Chunk>,
    },
}

//! Packet input and output. Each kind of port is a module with the same parts:
//!
//! | part | role |
//! |---|---|
//! | `Config` | configuration of the port |
//! | `receiver(config, context)` | creates the receive queue ([`Receive`]) of one worker |
//! | `transmitter(config, ...)` | creates the transmit queue ([`Transmit`]) of one worker |
//!
//! Each queue belongs to one worker. If several workers write to a software port, the port merges
//! the packets of their queues. A port outside the program, such as a NIC, is opened once over the
//! arena and then creates the queues of all workers. See [`live`].

#[cfg(target_os = "linux")]
pub mod af_xdp;
mod clock;
mod counters;
#[cfg(feature = "dpdk")]
pub mod dpdk;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod histogram;
pub mod live;
#[cfg(feature = "dpdk")]
mod numa;
pub mod pcap;
pub mod synthetic;
#[cfg(target_os = "linux")]
pub mod tap;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use godwit_abi::Descriptor;
use godwit_packet::{Batch, Outgoing, Region, Stamp, Steering};

pub use clock::Clock;
pub use counters::{CounterKind, CounterSpec, PortCounters, RECEIVE_COUNTERS, TRANSMIT_COUNTERS};
pub use error::Error;
pub use histogram::{Histogram, Recorder, Window, window};

/// Parameters of a receive queue: its port, its worker, and the packets that belong to this worker.
#[derive(Clone)]
pub struct QueueContext {
    /// Number of the port, which the queue writes to [`Descriptor::port`].
    pub port: u8,
    /// Index of the worker that owns the queue.
    pub worker: usize,
    /// Selects the worker of a packet. A software port has one sequence of packets for all workers.
    /// The queue of each worker returns the packets that belong to this worker.
    pub steering: Arc<Steering>,
}

/// State of a receive queue after a call of [`Receive::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// More packets may arrive.
    Open,
    /// No more packets will arrive.
    Ended,
}

/// Receive queue of one worker on one port.
pub trait Receive: Send {
    /// Appends up to `packets_max` packets to `batch`, in order, and sets their flow hash and port.
    ///
    /// A packet that cannot be received, because it is truncated or longer than a buffer, is
    /// counted and skipped. If the region has no free buffer, the packet stays in the source until
    /// the next call. A source that cannot hold it counts it as missed.
    ///
    /// A call that returns [`Received::Ended`] may also append the last packets.
    ///
    /// # Errors
    /// Returns an error if the source failed, such as a capture file that ends in the middle of a
    /// record. A bad packet is not an error. A call that fails appends nothing, and the queue has
    /// then ended. Earlier calls have returned all packets before the failure.
    fn receive(&mut self, region: &mut Region, batch: &mut Batch, packets_max: usize) -> Result<Received, Error>;

    /// Returns a lower bound of the sequence numbers of all later packets. It is `u64::MAX` after
    /// the queue has ended.
    fn sequence_next(&self) -> u64;

    /// Returns the counters of the queue.
    fn counters(&self) -> PortCounters;

    /// Returns whether the queue belongs to a live port, which ends only after
    /// [`LivePort::stop`](live::LivePort::stop).
    ///
    /// When the run stops, the worker still receives all packets that a live queue holds. It
    /// receives no more packets from other queues.
    fn is_live(&self) -> bool {
        false
    }

    /// Returns a file descriptor that becomes readable when packets arrive, or `None` if the port
    /// has no such descriptor. A sleeping worker waits for it.
    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A packet on its way to a transmit queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Departure {
    /// The packet.
    pub descriptor: Descriptor,
    /// Sequence number and time of the packet's arrival.
    pub stamp: Stamp,
}

impl AsRef<Descriptor> for Departure {
    fn as_ref(&self) -> &Descriptor {
        &self.descriptor
    }
}

/// Transmit queue of one worker on one port. The worker, or a thread that sends for the worker,
/// makes all calls.
pub trait Transmit: Send {
    /// Takes all `packets`, which are in the arrival order of their worker. The queue releases each
    /// buffer after the packet was sent, or hands the buffer over to the port.
    ///
    /// Returns the number of packets that the port accepted. The others are lost and counted as
    /// refused.
    ///
    /// # Errors
    /// Returns an error if the sink failed, such as a full disk. The buffers are released in this
    /// case too.
    fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, Error>;

    /// Handles the buffers that the port still holds. The worker calls it in each iteration of its
    /// loop, even without packets to send.
    ///
    /// # Errors
    /// Returns an error if the sink failed.
    fn service(&mut self, _buffers: &mut Outgoing<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Reports that all packets of this worker with a sequence number below `sequence` were sent or
    /// dropped.
    ///
    /// A port that merges packets of several workers can then write packets up to this number. The
    /// worker calls this method often, so it is cheap if nothing changed. The last call has
    /// `u64::MAX`.
    ///
    /// # Errors
    /// Returns an error if the sink failed.
    fn settled(&mut self, sequence: u64) -> Result<(), Error>;

    /// Returns the counters of the queue.
    fn counters(&self) -> PortCounters;
}

//! Packet input and output through ports. Each kind of port is a module with the same parts:
//!
//! | part | role |
//! |---|---|
//! | `Config` | configuration of the port |
//! | `receiver(config, context)` | creates the receive queue ([`Receive`]) of one worker |
//! | `transmitter(config, ...)` | creates the transmit queue ([`Transmit`]) of one worker |
//!
//! Each queue belongs to one worker. If several workers write to a port that is implemented in this
//! program, the port merges the packets of their queues.
//!
//! A port for a NIC or an interface of the kernel is called a live port. The program opens it once,
//! and the port then creates the queues of all workers. See [`live`].

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
use godwit_wire::MacAddress;

pub use clock::Clock;
pub use counters::{CounterKind, CounterSpec, PortCounters, RECEIVE_COUNTERS, TRANSMIT_COUNTERS};
pub use error::Error;
pub use histogram::{Histogram, SharedHistogram};

/// Parameters of a receive queue, which delivers packets of one port to one worker.
#[derive(Clone)]
pub struct QueueContext {
    /// Index of the port. The receive queue stores it in [`Descriptor::port`] of each packet.
    pub port: u8,
    /// Index of the worker that owns the queue.
    pub worker: usize,
    /// Selects the worker that processes a packet. Each queue of a packet generator produces all
    /// packets and returns only the packets for its worker.
    pub steering: Arc<Steering>,
}

/// Tells whether a receive queue may return more packets after a call to [`Receive::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// More packets may arrive.
    Open,
    /// No more packets will arrive.
    Ended,
}

/// Queue that receives the packets of one worker from one port.
pub trait Receive: Send {
    /// Appends up to `packets_max` packets to `batch`, in the order of their arrival. Sets the flow
    /// hash and the port of each packet.
    ///
    /// A packet that is truncated or longer than a buffer is counted and skipped. If no buffer is
    /// free, the packet stays in its source until the next call. If the source cannot keep the
    /// packet, it counts the packet as missed.
    ///
    /// A call that returns [`Received::Ended`] may also append the last packets.
    ///
    /// # Errors
    /// Returns an error if the source failed, such as a capture file that ends in the middle of a
    /// record. A malformed packet is not an error. A call that fails appends nothing, and the queue
    /// has then ended. Earlier calls have returned all packets before the failure.
    fn receive(&mut self, region: &mut Region, batch: &mut Batch, packets_max: usize) -> Result<Received, Error>;

    /// Returns a lower bound for the sequence numbers of the packets that follow. After the last
    /// packet, the bound is `u64::MAX`.
    fn sequence_next(&self) -> u64;

    /// Returns the counters of the queue.
    fn counters(&self) -> PortCounters;

    /// Returns whether the queue belongs to a live port, such as a NIC. Such a queue ends only
    /// after [`LivePort::stop`](live::LivePort::stop).
    ///
    /// When the program stops, workers still receive the packets that wait in live queues, but no
    /// packets from files and generators.
    fn is_live(&self) -> bool {
        false
    }

    /// Returns whether each packet already arrives at the worker that [`QueueContext::steering`]
    /// selects. A NIC cannot do that for state of several flows.
    fn is_steered(&self) -> bool {
        !self.is_live()
    }

    /// Returns the MAC address of the port's network interface, or `None` if the port is not an
    /// interface, as with a capture file.
    fn station(&self) -> Option<MacAddress> {
        None
    }

    /// Returns a file descriptor that becomes readable when packets arrive, or `None` if there is
    /// none. An idle worker sleeps until the descriptor becomes readable.
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

/// Queue that sends the packets of one worker to one port. Only one thread uses the queue.
pub trait Transmit: Send {
    /// Sends `packets`, which are in the order of their arrival at the worker. The queue takes over
    /// all buffers. It frees the buffer of each sent packet, or hands the buffer over to the port.
    ///
    /// Returns the number of packets that the port accepted. The remaining packets are lost and are
    /// counted as refused.
    ///
    /// # Errors
    /// Returns an error if the destination failed, for example because the disk is full. The
    /// buffers are freed in this case too.
    fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, Error>;

    /// Continues to send accepted packets, and frees the buffers of sent packets. The worker calls
    /// this method in each iteration of its loop.
    ///
    /// # Errors
    /// Returns an error if the destination of the packets failed.
    fn service(&mut self, _buffers: &mut Outgoing<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Reports that this worker has sent or dropped all of its packets with a sequence number below
    /// `sequence`.
    ///
    /// A port that merges packets of several workers in order needs this report. The worker calls
    /// this method often, so the method must be fast. In the last call, `sequence` is `u64::MAX`.
    ///
    /// # Errors
    /// Returns an error if the destination of the packets failed.
    fn settled(&mut self, sequence: u64) -> Result<(), Error>;

    /// Returns the counters of the queue.
    fn counters(&self) -> PortCounters;
}

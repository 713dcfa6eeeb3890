//! In and out: each port kind is a file or folder of the same shape.
//!
//! | part | does |
//! |---|---|
//! | `Config` | what the operator writes |
//! | `receiver(config, context)` | one worker's receive queue ([`Receive`]) |
//! | `transmitter(config, ...)` | one worker's transmit queue ([`Transmit`]) |
//!
//! A queue belongs to one worker; a port that several workers write to joins them behind its queues. A port that lives outside of the program
//! is opened once, over the arena, and then gives each worker its queues: [`live`].

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
pub use histogram::Histogram;

/// Which worker a receive queue is for, and which packets are that worker's.
#[derive(Clone)]
pub struct QueueContext {
    /// Number of the port; goes into [`Descriptor::port`].
    pub port: u8,
    /// The worker.
    pub worker: usize,
    /// Says which worker a packet belongs to. A software port has one sequence for all workers, of which each worker's queue gives what
    /// is that worker's.
    pub steering: Arc<Steering>,
}

/// What a call of [`Receive::receive`] says besides the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// There may be more.
    Open,
    /// There will never be more.
    Ended,
}

/// One worker's receive queue of a port.
pub trait Receive: Send {
    /// Appends up to `packets_max` packets to `batch`, in order, with flow hash and port filled in.
    ///
    /// A packet that cannot be taken (truncated, longer than a buffer) is counted and passed over. When the region is full the
    /// packet stays where it is until the next call, where the source can wait; else it is counted as missed.
    ///
    /// With [`Received::Ended`] the batch may have got the last packets.
    ///
    /// # Errors
    /// The source failed (a file cut off in the middle of a record is an error; a bad packet is not). A call that fails appends
    /// nothing. The packets before the failure came with earlier calls, and the queue has ended.
    fn receive(&mut self, region: &mut Region, batch: &mut Batch, packets_max: usize) -> Result<Received, Error>;

    /// Every packet of this queue from now on has at least this sequence number; `u64::MAX` once ended.
    fn sequence_next(&self) -> u64;

    /// What was counted so far.
    fn counters(&self) -> PortCounters;

    /// Whether it never ends by itself, and is asked for what it still holds once its port was told to [stop](live::LivePort::stop). Others are
    /// asked for nothing more when the run is to stop.
    fn is_live(&self) -> bool {
        false
    }

    /// What becomes readable when packets arrive, for a worker that sleeps until then; `None` where nobody says.
    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// One packet on its way out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Departure {
    /// The packet.
    pub descriptor: Descriptor,
    /// What the host remembered of it.
    pub stamp: Stamp,
}

impl AsRef<Descriptor> for Departure {
    fn as_ref(&self) -> &Descriptor {
        &self.descriptor
    }
}

/// One worker's transmit queue of a port. The worker calls it, or a thread that sends for the worker; always the same one.
pub trait Transmit: Send {
    /// Takes all `packets`, in their worker's order of arrival, and releases each buffer once it is out, or hands it over to the port.
    /// Returns how many the port accepted; the rest is lost and counted as refused.
    ///
    /// # Errors
    /// The sink failed (disk full). The buffers are released all the same.
    fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, Error>;

    /// Called each turn, also where nothing is to be sent: for ports that have buffers in their hands.
    ///
    /// # Errors
    /// The sink failed.
    fn service(&mut self, _buffers: &mut Outgoing<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// All packets of this worker with a sequence number below `sequence` have left or were dropped.
    /// A port that merges workers may now emit up to there. Called often; cheap when nothing changed. `u64::MAX` at the end.
    ///
    /// # Errors
    /// The sink failed.
    fn settled(&mut self, sequence: u64) -> Result<(), Error>;

    /// What was counted so far.
    fn counters(&self) -> PortCounters;
}

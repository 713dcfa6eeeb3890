//! Ports outside the program, such as the queues of a NIC or an interface of the kernel.
//!
//! ```text
//! Live (configuration) --open--> LivePort --receiver, transmitter--> a pair of queues per worker
//!   needs(): of the arena          attend(), counters(), stop(): called by the control thread
//! ```
//!
//! Such a port has hardware queues or kernel queues, and worker `i` owns queue `i`. The device or
//! the kernel distributes packets over the workers. [`Steering`](godwit_packet::Steering) computes
//! only the flow hash.
//!
//! The port ends only after [`LivePort::stop`]. It then takes no more packets, and each receive
//! queue ends when it is empty.
//!
//! A port that reads and writes the arena directly takes its buffers from the region and accesses
//! no others. It uses [`Region::post`], [`Region::arrived`],
//! [`Outgoing::hand_over`](godwit_packet::Outgoing::hand_over) and
//! [`Outgoing::reclaim`](godwit_packet::Outgoing::reclaim). `docs/decisions/0007-live-ports.md`
//! gives the reasons.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use godwit_packet::{ArenaHandle, Batch, Descriptor, Region, Stamp};

use crate::{Clock, Error, PortCounters, QueueContext, Receive, Transmit};

/// Requirements of a live port on the arena. The arena is created after all ports have stated them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArenaNeeds {
    /// Minimum headroom of a received frame, in bytes.
    pub headroom_bytes: usize,
    /// Minimum and maximum distance between two slots, in bytes, both powers of two. The layout is
    /// then `slots`. `None` if the port copies frames or accepts any buffer.
    pub slot_bytes: Option<(usize, usize)>,
    /// Bytes in front of each buffer that the driver of the port uses, a multiple of 128. If it is
    /// not 0, the layout is `slots`.
    pub prefix_bytes: usize,
    /// Bytes that the driver of the port may leave in front of a frame, in addition to the
    /// headroom.
    pub driver_bytes: usize,
    /// Number of buffers per worker that the port holds, in addition to those of packets in flight.
    pub buffers: usize,
}

/// Parameters for opening a live port.
#[derive(Debug)]
pub struct LiveContext<'a> {
    /// Name of the port in the configuration.
    pub name: &'a str,
    /// Number of the port, which its queues write to [`Descriptor::port`].
    pub port: u8,
    /// Number of workers, which is also the number of queues that the port must have.
    pub workers: usize,
    /// Whether the chain receives packets from the port.
    pub receives: bool,
    /// Memory of all packets. The port may register it with a driver as a whole. It stays mapped
    /// while a clone of this handle exists.
    pub arena: &'a ArenaHandle,
    /// Region of each worker, as a range of bytes in the arena.
    pub regions: &'a [Range<usize>],
    /// Distance between two slots, in bytes. `None` if the layout is dense.
    pub slot_bytes: Option<usize>,
    /// Size of a buffer for a frame of maximum length, in bytes.
    pub buffer_bytes: usize,
    /// Headroom of a received frame, in bytes.
    pub headroom_bytes: usize,
    /// Maximum length of a received frame, in bytes.
    pub frame_bytes_max: usize,
}

/// Configuration of a live port.
pub trait Live: Debug + Send + Sync {
    /// Returns the requirements of the port on the arena.
    fn needs(&self) -> ArenaNeeds;

    /// Checks the values of the configuration, independent of the machine.
    ///
    /// # Errors
    /// Returns an error that names the wrong key.
    fn validate(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Checks, without opening anything, that this machine has the configured device or interface.
    ///
    /// # Errors
    /// Returns an error if the port cannot work, for example because the interface does not exist.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Opens the port. Packets may arrive from then on.
    ///
    /// # Errors
    /// Returns an error if the port cannot be opened: a permission is missing, the interface does
    /// not exist, or it has too few queues.
    fn open(&self, context: &LiveContext<'_>) -> Result<Arc<dyn LivePort>, Error>;
}

/// An open live port. After the port and its queues are dropped, its programs are detached and its
/// devices are released.
pub trait LivePort: Send + Sync {
    /// Gives the region of a worker to the port, before the queues of the worker are created.
    ///
    /// It is called once per worker, even if the chain receives no packets from the port. Some
    /// drivers must fill their receive rings before any other step.
    ///
    /// # Errors
    /// Returns an error if the region has too few buffers, or if the device does not start.
    fn attach(&self, _worker: usize, _region: &mut Region) -> Result<(), Error> {
        Ok(())
    }

    /// Creates the receive queue of worker `context.worker`. It is called once per worker, and only
    /// if the chain receives packets from the port.
    ///
    /// # Errors
    /// Returns an error if the queue cannot be set up.
    fn receiver(&self, context: QueueContext, region: &mut Region) -> Result<Box<dyn Receive>, Error>;

    /// Creates the transmit queue of a worker. It is called once per worker.
    ///
    /// # Errors
    /// Returns an error if the queue cannot be set up.
    fn transmitter(&self, worker: usize) -> Result<Box<dyn Transmit>, Error>;

    /// Stops the reception of packets, which then stay in the kernel or on the wire. Each receive
    /// queue ends when it is empty.
    fn stop(&self);

    /// Checks links and addresses. The control thread calls it about ten times a second.
    ///
    /// Returns messages for the operator, one sentence each.
    fn attend(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the sum of the counters of all queues.
    fn counters(&self) -> PortCounters;
}

/// Turns received frames into packets, in the same way for all live ports.
///
/// Sequence numbers are clock times in nanoseconds, made unique within a worker. The packets of
/// several workers can therefore be merged into one order.
#[derive(Clone)]
pub struct Arrivals {
    context: QueueContext,
    clock: Clock,
    now_ns: u64,
    sequence: u64,
}

impl Arrivals {
    /// Creates the state of a queue before its first packet.
    pub fn new(context: QueueContext) -> Self {
        let mut arrivals = Self { context, clock: Clock::Machine, now_ns: 0, sequence: 0 };
        arrivals.read_clock();
        arrivals
    }

    /// Reads the clock. A queue does this once per call of [`Receive::receive`].
    pub fn read_clock(&mut self) {
        self.now_ns = self.clock.now_ns();
        self.sequence = self.sequence.max(self.now_ns);
    }

    /// Appends a packet whose frame is in the region, and sets its flow hash, port and stamp.
    #[inline]
    pub fn push(&mut self, region: &Region, mut descriptor: Descriptor, batch: &mut Batch) {
        descriptor.flow_hash = self.context.steering.flow_hash(&godwit_wire::parse(region.frame(&descriptor)));
        self.push_hashed(descriptor, batch);
    }

    /// Appends a packet whose flow hash is already set. See [`push`](Arrivals::push).
    #[inline]
    pub fn push_hashed(&mut self, mut descriptor: Descriptor, batch: &mut Batch) {
        descriptor.port = self.context.port;
        batch.push(descriptor, Stamp { sequence: self.sequence, time_ns: self.now_ns });
        self.sequence += 1;
    }

    /// Appends packets for frames in buffers that the port holds ([`Region::arrived_each`]).
    ///
    /// Returns the number of packets. It is less than the number of frames if a frame is not in a
    /// buffer of the port. The function stops before this frame.
    #[inline(always)]
    pub fn push_arrived<T>(
        &mut self,
        region: &mut Region,
        frames: &[T],
        arrived: impl Fn(&T) -> Arrived,
        batch: &mut Batch,
    ) -> usize {
        let Batch { descriptors, stamps } = batch;
        descriptors.reserve(frames.len());
        let (port, steering) = (self.context.port, &*self.context.steering);
        let location = |frame: &T| {
            let Arrived { buffer, head, length, .. } = arrived(frame);
            (buffer, head, length)
        };
        let count = region.arrived_each(frames, location, |frame, descriptor, bytes| {
            let flow_hash = match arrived(frame).flow_hash {
                Some(flow_hash) => flow_hash,
                None => steering.flow_hash(&godwit_wire::parse(bytes)),
            };
            descriptors.push(Descriptor { port, flow_hash, ..descriptor });
        });
        let (first, time_ns) = (self.sequence, self.now_ns);
        self.sequence += count as u64;
        stamps.extend((first..self.sequence).map(|sequence| Stamp { sequence, time_ns }));
        count
    }

    /// Returns the value for [`Receive::sequence_next`].
    pub fn sequence_next(&self) -> u64 {
        self.sequence
    }
}

/// A received frame in a buffer that the port holds.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Number of the buffer, as [`Region::post`] returned it.
    pub buffer: u32,
    /// Offset of the frame from the start of the buffer, in bytes.
    pub head: u16,
    /// Length of the frame in bytes.
    pub length: u16,
    /// Symmetric Toeplitz hash of the 5-tuple, if the device computes it.
    pub flow_hash: Option<u32>,
}

/// Counters of a queue that other threads can read at any time.
#[derive(Debug, Default)]
pub struct SharedCounters {
    values: [AtomicU64; PortCounters::COUNT],
}

impl SharedCounters {
    /// Publishes new values. Only the thread of the queue calls it.
    #[inline]
    pub fn publish(&self, counters: &PortCounters) {
        for (value, (_, counted)) in self.values.iter().zip(counters.iter()) {
            value.store(counted, Ordering::Relaxed);
        }
    }

    /// Returns the published values.
    pub fn read(&self) -> PortCounters {
        PortCounters::from_values(std::array::from_fn(|counter| self.values[counter].load(Ordering::Relaxed)))
    }
}

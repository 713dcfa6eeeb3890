//! Ports for devices outside the program, such as the queues of a NIC or an interface of the
//! kernel. They are called live ports.
//!
//! ```text
//! Live (configuration) --open--> LivePort --receiver, transmitter--> a pair of queues per worker
//!   needs(): of the arena          attend(), counters(), stop(): called by the control thread
//! ```
//!
//! A live port has hardware queues or kernel queues, and worker `i` owns queue `i`. The device or
//! the kernel distributes packets over the queues. [`Steering`](godwit_packet::Steering) only
//! computes the flow hash of each packet, and does not select the worker.
//!
//! The port ends only after [`LivePort::stop`]. It then takes no more packets, and each receive
//! queue ends when it is empty.
//!
//! Some ports read and write packet buffers directly. Such a port accesses only buffers that it
//! received from the worker's [`Region`]. It uses [`Region::post`], [`Region::arrived`],
//! [`Outgoing::hand_over`](godwit_packet::Outgoing::hand_over) and
//! [`Outgoing::reclaim`](godwit_packet::Outgoing::reclaim). `docs/decisions/0007-live-ports.md`
//! gives the reasons.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use godwit_packet::{ArenaHandle, Batch, Descriptor, Region, Stamp};

use crate::{Clock, Error, PortCounters, QueueContext, Receive, Transmit};

/// Event at a port: its name in `docs/monitoring.md`, and a sentence for the operator.
pub type Notice = (&'static str, String);

/// Requirements of a live port, such as a NIC, for the memory that holds all packets. The program
/// collects the requirements of all ports before it allocates this memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArenaNeeds {
    /// Minimum headroom of a received frame, in bytes.
    pub headroom_bytes: usize,
    /// Minimum and maximum distance in bytes between the starts of two adjacent buffers. Both are
    /// powers of two. If this field is set, all buffers have the same size. With `None`, the port
    /// accepts any distance.
    pub slot_bytes: Option<(usize, usize)>,
    /// Number of bytes before each buffer that are reserved for the port's driver. The number is a
    /// multiple of 128. If it is not 0, all buffers have the same size.
    pub prefix_bytes: usize,
    /// Number of unused bytes that the port's driver may leave in front of a frame, in addition to
    /// the headroom.
    pub driver_bytes: usize,
    /// Number of buffers that the port itself holds for each worker.
    pub buffers: usize,
}

/// Parameters for opening a port that uses a NIC or a kernel network interface.
#[derive(Debug)]
pub struct LiveContext<'a> {
    /// Name of the port in the configuration.
    pub name: &'a str,
    /// Index of the port. The port's queues store it in [`Descriptor::port`] of each packet.
    pub port: u8,
    /// Number of workers. The port must have one queue for each worker.
    pub workers: usize,
    /// Whether the port receives packets. Otherwise, the port only sends packets.
    pub receives: bool,
    /// Memory of all packets. The port may register it with a driver. The memory stays mapped until
    /// the last clone of this handle is dropped.
    pub arena: &'a ArenaHandle,
    /// Byte range of each worker in the packet memory.
    pub regions: &'a [Range<usize>],
    /// Distance in bytes between the starts of two adjacent buffers. The value is `None` if buffers
    /// have different sizes.
    pub slot_bytes: Option<usize>,
    /// Size of a buffer for a frame of maximum length, in bytes.
    pub buffer_bytes: usize,
    /// Number of free bytes in front of a received frame.
    pub headroom_bytes: usize,
    /// Maximum length of a received frame, in bytes.
    pub frame_bytes_max: usize,
}

/// Configuration of a port that uses a NIC or a kernel network interface.
pub trait Live: Debug + Send + Sync {
    /// Returns the requirements of the port for the memory that holds all packets.
    fn needs(&self) -> ArenaNeeds;

    /// Checks the values of the configuration without accessing the machine.
    ///
    /// # Errors
    /// Returns an error with the name of the first key that has an invalid value.
    fn validate(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the part of the machine that the port needs, such as `interface eth1`. Returns
    /// `None` if the port creates what it needs.
    fn hardware(&self) -> Option<String> {
        None
    }

    /// Checks that this machine has the configured device or interface. The check does not open the
    /// device.
    ///
    /// # Errors
    /// Returns an error if the port cannot work, for example because the interface does not exist.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns whether the port also accepts frames to other stations. With `None`, the function
    /// chain decides. A router then accepts only frames to itself.
    fn promiscuous(&self) -> Option<bool> {
        Some(true)
    }

    /// Opens the port. After this call, packets may arrive at any time.
    ///
    /// # Errors
    /// Returns an error if the port cannot be opened. The causes are a missing permission, a
    /// missing interface, or an interface with too few queues.
    fn open(&self, context: &LiveContext<'_>) -> Result<Arc<dyn LivePort>, Error>;
}

/// An open port that uses a NIC or a kernel network interface. It releases the device when the port
/// and all queues are dropped.
pub trait LivePort: Send + Sync {
    /// Gives the buffers of a worker to the port.
    ///
    /// The program calls this method once per worker before it creates the worker's queues. It does
    /// so even if the port only sends packets, because some drivers must fill their receive rings
    /// first.
    ///
    /// # Errors
    /// Returns an error if the worker has too few buffers, or if the device does not start.
    fn attach(&self, _worker: usize, _region: &mut Region) -> Result<(), Error> {
        Ok(())
    }

    /// Creates the receive queue of worker `context.worker`. The program calls this method once per
    /// worker if the port receives packets.
    ///
    /// # Errors
    /// Returns an error if the queue cannot be set up.
    fn receiver(&self, context: QueueContext, region: &mut Region) -> Result<Box<dyn Receive>, Error>;

    /// Creates the transmit queue of a worker. The program calls this method once per worker.
    ///
    /// # Errors
    /// Returns an error if the queue cannot be set up.
    fn transmitter(&self, worker: usize) -> Result<Box<dyn Transmit>, Error>;

    /// Stops the reception of packets. The port takes no more packets. Each receive queue ends when
    /// it is empty.
    fn stop(&self);

    /// Checks the link and the addresses of the network interface. The control thread calls this
    /// method about ten times a second.
    ///
    /// Returns the events since the last call.
    fn attend(&self) -> Vec<Notice> {
        Vec::new()
    }

    /// Returns whether the link is up, or `None` if the port does not know.
    fn is_up(&self) -> Option<bool> {
        None
    }

    /// Returns the sums of the counters of all queues.
    fn counters(&self) -> PortCounters;
}

/// Converts received frames into packets. All live ports use this code.
///
/// The sequence number of a packet is its arrival time in nanoseconds, made unique within the
/// worker. Packets of several workers can therefore be merged in arrival order.
#[derive(Clone)]
pub struct Arrivals {
    context: QueueContext,
    clock: Clock,
    now_ns: u64,
    sequence: u64,
}

impl Arrivals {
    /// Creates the state of a receive queue that has received no packet yet.
    pub fn new(context: QueueContext) -> Self {
        let mut arrivals = Self { context, clock: Clock::Machine, now_ns: 0, sequence: 0 };
        arrivals.read_clock();
        arrivals
    }

    /// Reads the clock. A receive queue calls this method once per batch, and all packets of the
    /// batch get the same arrival time.
    pub fn read_clock(&mut self) {
        self.now_ns = self.clock.now_ns();
        self.sequence = self.sequence.max(self.now_ns);
    }

    /// Appends a packet to the batch. Sets the packet's flow hash, port, sequence number and
    /// arrival time.
    #[inline]
    pub fn push(&mut self, region: &Region, mut descriptor: Descriptor, batch: &mut Batch) {
        descriptor.flow_hash = self.context.steering.flow_hash(&godwit_wire::parse(region.frame(&descriptor)));
        self.push_hashed(descriptor, batch);
    }

    /// Appends a packet to the batch like [`push`](Arrivals::push), but keeps the flow hash that
    /// the caller has set.
    #[inline]
    pub fn push_hashed(&mut self, mut descriptor: Descriptor, batch: &mut Batch) {
        descriptor.port = self.context.port;
        batch.push(descriptor, Stamp { sequence: self.sequence, time_ns: self.now_ns });
        self.sequence += 1;
    }

    /// Appends packets whose frames a device has written into the port's buffers
    /// ([`Region::arrived_each`]).
    ///
    /// Returns the number of appended packets. Stops at the first frame that is not in a buffer of
    /// the port.
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

    /// Returns a lower bound for the sequence numbers of the packets that follow, for
    /// [`Receive::sequence_next`].
    pub fn sequence_next(&self) -> u64 {
        self.sequence
    }
}

/// A received frame. It lies in a buffer that the port holds.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Number of the buffer, as [`Region::post`] returned it.
    pub buffer: u32,
    /// Offset of the frame from the start of the buffer, in bytes.
    pub head: u16,
    /// Length of the frame in bytes.
    pub length: u16,
    /// Symmetric Toeplitz hash of the packet's IP addresses and transport ports, or `None` if the
    /// device does not compute it.
    pub flow_hash: Option<u32>,
}

/// Counters of a queue. The thread that uses the queue writes them, and any thread can read them.
#[derive(Debug, Default)]
pub struct SharedCounters {
    values: [AtomicU64; PortCounters::COUNT],
}

impl SharedCounters {
    /// Publishes new values of the counters to other threads. Only the thread that uses the queue
    /// calls this method.
    #[inline]
    pub fn publish(&self, counters: &PortCounters) {
        for (value, (_, counted)) in self.values.iter().zip(counters.iter()) {
            value.store(counted, Ordering::Relaxed);
        }
    }

    /// Returns the values that were last published.
    pub fn read(&self) -> PortCounters {
        PortCounters::from_values(std::array::from_fn(|counter| self.values[counter].load(Ordering::Relaxed)))
    }
}

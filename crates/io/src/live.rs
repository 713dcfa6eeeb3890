//! Ports that live outside of the program: a NIC's queues, an interface of the kernel.
//!
//! ```text
//! Live (configuration) --open--> LivePort --receiver, transmitter--> a pair of queues for each worker
//!   needs(): of the arena          attend(), counters(), stop(): the control thread
//! ```
//! Such a port has hardware queues, or what the kernel has in their place, and worker `i` owns queue `i`: the port itself spreads packets over
//! workers, and [`Steering`](godwit_packet::Steering) only gives the flow hash. It never ends by itself: told to [stop](LivePort::stop), it takes nothing more,
//! and its receive queues end when what they hold has been received.
//!
//! A port that reads and writes the arena itself gets buffers from the region ([`Region::post`], [`Region::arrived`],
//! [`Outgoing::hand_over`](godwit_packet::Outgoing::hand_over), [`Outgoing::reclaim`](godwit_packet::Outgoing::reclaim)) and touches no others.
//! `docs/decisions/0007-live-ports.md` says why.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use godwit_packet::{ArenaHandle, Batch, Descriptor, Region, Stamp};

use crate::{Clock, Error, PortCounters, QueueContext, Receive, Transmit};

/// What a port outside the program asks of the arena, which is made after all ports were asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArenaNeeds {
    /// Least bytes in front of an arriving frame.
    pub headroom_bytes: usize,
    /// Least and greatest distance from one slot to the next, both powers of two, where the port prescribes it. Then the layout is
    /// `slots`. `None` where the port copies, or takes any buffer.
    pub slot_bytes: Option<(usize, usize)>,
    /// Bytes in front of each buffer that the port's driver uses itself; a multiple of 128. Then the layout is `slots`.
    pub prefix_bytes: usize,
    /// Bytes that the port's driver may leave in front of a frame beside the headroom.
    pub driver_bytes: usize,
    /// Buffers of each worker that the port has in its hands, beside those of packets in flight.
    pub buffers: usize,
}

/// What a port outside the program is given when it is opened.
#[derive(Debug)]
pub struct LiveContext<'a> {
    /// Its configured name.
    pub name: &'a str,
    /// Its number; goes into [`Descriptor::port`].
    pub port: u8,
    /// Number of workers: the queues that it has to have.
    pub workers: usize,
    /// Whether packets come in by it.
    pub receives: bool,
    /// The memory of all packets. May be registered with a driver as a whole; stays mapped while a clone of the handle lives.
    pub arena: &'a ArenaHandle,
    /// For each worker the part of it that is its region, in bytes.
    pub regions: &'a [Range<usize>],
    /// Distance from one slot to the next; `None` where the layout is dense.
    pub slot_bytes: Option<usize>,
    /// Size of a buffer of a full-size frame.
    pub buffer_bytes: usize,
    /// Bytes in front of an arriving frame.
    pub headroom_bytes: usize,
    /// Longest frame that may come in.
    pub frame_bytes_max: usize,
}

/// The configuration of a port outside the program.
pub trait Live: Debug + Send + Sync {
    /// What it asks of the arena.
    fn needs(&self) -> ArenaNeeds;

    /// Whether the values can work, whatever the machine.
    ///
    /// # Errors
    /// The key at fault.
    fn validate(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Looks, without opening anything, whether this machine has what it names.
    ///
    /// # Errors
    /// It cannot work: no such interface.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Opens the port; packets may arrive from then on.
    ///
    /// # Errors
    /// It cannot be opened: a right is missing, the interface is not there or has too few queues.
    fn open(&self, context: &LiveContext<'_>) -> Result<Arc<dyn LivePort>, Error>;
}

/// An open port outside the program. What it took (programs attached, devices bound) it gives back when it and its queues are dropped.
pub trait LivePort: Send + Sync {
    /// A worker's region, before the worker's queues are asked for: once a worker, also where no packets come in by the port. For drivers that fill
    /// their receive rings before anything else.
    ///
    /// # Errors
    /// The region has too few buffers, or the device does not start.
    fn attach(&self, _worker: usize, _region: &mut Region) -> Result<(), Error> {
        Ok(())
    }

    /// Worker `context.worker`'s receive queue; asked for once a worker, and only where packets come in by the port.
    ///
    /// # Errors
    /// The queue cannot be made ready.
    fn receiver(&self, context: QueueContext, region: &mut Region) -> Result<Box<dyn Receive>, Error>;

    /// A worker's transmit queue; asked for once a worker.
    ///
    /// # Errors
    /// The queue cannot be made ready.
    fn transmitter(&self, worker: usize) -> Result<Box<dyn Transmit>, Error>;

    /// Takes no packet any more: leaves them to the kernel or the wire. Receive queues end when what they hold has been received.
    fn stop(&self);

    /// Called by the control thread about ten times a second: looks after links and addresses. Returns what the operator should
    /// hear, one sentence each.
    fn attend(&self) -> Vec<String> {
        Vec::new()
    }

    /// What all queues counted so far.
    fn counters(&self) -> PortCounters;
}

/// What makes a packet of an arrived frame, the same for all ports outside the program.
///
/// Sequence numbers are nanoseconds of the clock, made unique within a worker, so that what several workers received can be put into one
/// order.
#[derive(Clone)]
pub struct Arrivals {
    context: QueueContext,
    clock: Clock,
    now_ns: u64,
    sequence: u64,
}

impl Arrivals {
    /// None has arrived yet.
    pub fn new(context: QueueContext) -> Self {
        let mut arrivals = Self { context, clock: Clock::Machine, now_ns: 0, sequence: 0 };
        arrivals.turn();
        arrivals
    }

    /// Reads the clock; once for all packets of a call of [`Receive::receive`].
    pub fn turn(&mut self) {
        self.now_ns = self.clock.now_ns();
        self.sequence = self.sequence.max(self.now_ns);
    }

    /// Appends a packet that lies in the region: flow hash, port and stamp filled in.
    #[inline]
    pub fn push(&mut self, region: &Region, mut descriptor: Descriptor, batch: &mut Batch) {
        descriptor.flow_hash = self.context.steering.flow_hash(&godwit_wire::parse(region.frame(&descriptor)));
        self.push_hashed(descriptor, batch);
    }

    /// As [`push`](Arrivals::push), with the flow hash there already.
    #[inline]
    pub fn push_hashed(&mut self, mut descriptor: Descriptor, batch: &mut Batch) {
        descriptor.port = self.context.port;
        batch.push(descriptor, Stamp { sequence: self.sequence, time_ns: self.now_ns });
        self.sequence += 1;
    }

    /// As [`push`](Arrivals::push), for frames that lie in buffers in the port's hands ([`Region::arrived_each`]): all of them, or those in front
    /// of the first that does not. Returns how many.
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
        let place = |frame: &T| {
            let Arrived { buffer, head, length, .. } = arrived(frame);
            (buffer, head, length)
        };
        let count = region.arrived_each(frames, place, |frame, descriptor, bytes| {
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

    /// See [`Receive::sequence_next`].
    pub fn sequence_next(&self) -> u64 {
        self.sequence
    }
}

/// A frame that has been written into a buffer in a port's hands.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// The buffer, as [`Region::post`] named it.
    pub buffer: u32,
    /// Bytes from the buffer's start to the frame.
    pub head: u16,
    /// Bytes of the frame.
    pub length: u16,
    /// The symmetric Toeplitz hash of its five-tuple, where the device says it.
    pub flow_hash: Option<u32>,
}

/// The counters of a queue, which others read while it counts.
#[derive(Debug, Default)]
pub struct SharedCounters {
    values: [AtomicU64; PortCounters::COUNT],
}

impl SharedCounters {
    /// Says what has been counted so far. Only the queue's thread does.
    #[inline]
    pub fn publish(&self, counters: &PortCounters) {
        for (value, (_, counted)) in self.values.iter().zip(counters.iter()) {
            value.store(counted, Ordering::Relaxed);
        }
    }

    /// What has been counted so far.
    pub fn read(&self) -> PortCounters {
        PortCounters::of_values(std::array::from_fn(|counter| self.values[counter].load(Ordering::Relaxed)))
    }
}

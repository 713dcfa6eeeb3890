//! Lets a function split, hold, join and create packets on the CPU, before its kernel runs.

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{Region, Stamp};

use crate::{Contract, Work};

/// Input and output of [`Arrange::arrange`](crate::Arrange::arrange). The input consists of the
/// packets that have arrived at a function. The output is a list of steps for the engine, such as
/// to hold or to drop a packet.
pub struct Arrangement<'a> {
    /// Packet buffers of the worker. The function may rewrite the frames of the packets. It may
    /// allocate buffers for [`Step::Split`], [`Step::Join`], [`Step::Resume`] and [`Step::Create`].
    ///
    /// The function must release any buffer that it allocates but does not use in a step. The
    /// engine releases all other buffers.
    pub region: &'a mut Region,
    /// Current time in nanoseconds, from a monotonic clock. In a replay, it is the timestamp of the
    /// packets.
    pub now_ns: u64,
    /// Whether the traffic is live. In a replay, a function must not create packets on a timer,
    /// because the result must not depend on a clock.
    pub live: bool,
    /// Whether the run is ending and no more packets arrive. The function then drops its held
    /// packets with [`Step::Expire`].
    pub ending: bool,
    /// Packets that have arrived at the function, in their arrival order. The list may be empty.
    pub arrived: &'a [Descriptor],
    /// Outcome of the previous function for each arrived packet. The list is empty unless
    /// the contract sets [`reads_previous`](crate::HostUse::reads_previous).
    pub previous: &'a [PreviousOutcome],
    /// Sequence number of each arrived packet, and its arrival time at the ingress port. The list
    /// is empty unless the contract sets [`reads_times`](crate::HostUse::reads_times).
    pub stamps: &'a [Stamp],
    /// Steps that the engine takes. For each arrived packet, the function appends one
    /// [`Step::Keep`], [`Step::Hold`], [`Step::Join`] or [`Step::Drop`], in the order of the
    /// packets. It may append other steps between them.
    pub steps: &'a mut Vec<Step>,
}

/// Outcome of the previous function for a packet.
#[derive(Clone, Copy, Debug)]
pub struct PreviousOutcome {
    /// Contract of the previous function, or `None` if the packet comes directly from a port.
    pub contract: Option<&'static Contract>,
    /// Index of the previous function in the configuration. It has no meaning if the packet comes
    /// directly from a port.
    pub function: usize,
    /// Outcome that the previous function returned for the packet.
    pub outcome: Outcome,
}

impl PreviousOutcome {
    /// Returns the name of the previous function's verdict. Returns `None` if the packet comes
    /// directly from a port.
    pub fn verdict(&self) -> Option<&'static str> {
        Some(self.contract?.verdicts.get(usize::from(self.outcome.verdict))?.name)
    }
}

/// Step that the engine takes with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The packet continues. The function may have changed the frame in the packet's buffer.
    Keep {
        /// Current descriptor of the packet.
        packet: Descriptor,
        /// Work that the kernel has to do for the packet.
        work: Work,
    },
    /// The function created a packet from the one in the last [`Step::Keep`] or [`Step::Join`]. The
    /// new packet follows it in arrival order.
    Split {
        /// Descriptor of the new packet, in a new buffer.
        packet: Descriptor,
        /// Work that the kernel has to do for the packet.
        work: Work,
    },
    /// The function holds a copy of the packet. Later packets do not wait for the held packet.
    Hold {
        /// Descriptor of the packet as it arrived.
        packet: Descriptor,
    },
    /// The function joins the packet with held packets. The joined packet takes this packet's place
    /// in arrival order.
    Join {
        /// Arrival descriptor of the packet that completed the join.
        packet: Descriptor,
        /// Descriptor of the joined packet, in a new buffer or in the buffer of `packet`. The
        /// engine copies the port, the flow hash and the position in arrival order from `packet`.
        whole: Descriptor,
        /// Number of previously held packets in the joined packet.
        held: u32,
        /// Work that the kernel has to do for the joined packet.
        work: Work,
    },
    /// A held packet continues as if it had just arrived. The engine drops it if the worker has too
    /// many packets in flight.
    Resume {
        /// Descriptor of the packet in a newly allocated buffer. The ingress port and flow hash are
        /// those from the packet's arrival.
        packet: Descriptor,
        /// Work that the kernel has to do for the packet.
        work: Work,
        /// Drop reason to count if the engine drops the packet.
        reason: u8,
    },
    /// The function created a packet that does not derive from another packet. The engine discards
    /// it if the worker has too many packets in flight.
    Create {
        /// Descriptor of the new packet in a newly allocated buffer. The function sets the port and
        /// the flow hash of the packet's flow.
        packet: Descriptor,
        /// Work that the kernel has to do for the packet.
        work: Work,
    },
    /// The function drops the packet.
    Drop {
        /// Descriptor of the packet as it arrived.
        packet: Descriptor,
        /// Drop reason, as a number in the contract of the function.
        reason: u8,
    },
    /// The function drops packets that it held.
    Expire {
        /// Number of held packets to drop.
        held: u32,
        /// Drop reason, as a number in the contract of the function.
        reason: u8,
    },
}

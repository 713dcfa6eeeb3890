//! Arrangement of packets by a host half: it can split, hold, join and create packets.

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{Region, Stamp};

use crate::{Contract, Work};

/// Packets that have arrived at a host half, and the steps to take with them.
pub struct Arrangement<'a> {
    /// Region of the worker. Frames may be rewritten. Buffers may be allocated for [`Step::Split`],
    /// [`Step::Join`], [`Step::Resume`] and [`Step::Create`]. The host half releases a buffer that
    /// it allocated for no step. The engine releases all others.
    pub region: &'a mut Region,
    /// Current time in nanoseconds, on a clock that never decreases. In a replay, it is the time of
    /// the packets.
    pub now_ns: u64,
    /// Whether the run is live. In a replay, whose result must not depend on a clock, the host half
    /// creates no packets because of elapsed time.
    pub live: bool,
    /// Whether the run is ending and no more packets will arrive. Held packets are then given up
    /// with [`Step::Expire`].
    pub ending: bool,
    /// Arrived packets, in their arrival order. May be empty.
    pub arrived: &'a [Descriptor],
    /// For each arrived packet: the outcome of the function that processed it before. Empty unless
    /// the host half [reads](crate::HostHalf::reads_previous) it.
    pub previous: &'a [PreviousOutcome],
    /// For each arrived packet: its number and its time at its port. Empty unless the host half
    /// [reads](crate::HostHalf::reads_stamps) them.
    pub stamps: &'a [Stamp],
    /// Steps to take. For each arrived packet, the host half appends [`Step::Keep`],
    /// [`Step::Hold`], [`Step::Join`] or [`Step::Drop`], in the same order. It may append other
    /// steps between them.
    pub steps: &'a mut Vec<Step>,
}

/// Outcome of the function that processed a packet before.
#[derive(Clone, Copy, Debug)]
pub struct PreviousOutcome {
    /// Contract of the function, or `None` if the packet comes from a port.
    pub contract: Option<&'static Contract>,
    /// Index of the function in the configuration. Valid if `contract` is present.
    pub function: usize,
    /// Outcome of the function.
    pub outcome: Outcome,
}

impl PreviousOutcome {
    /// Returns the name of the verdict.
    pub fn verdict(&self) -> Option<&'static str> {
        Some(self.contract?.verdicts.get(usize::from(self.outcome.verdict))?.name)
    }
}

/// Step that the engine takes with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The packet continues. Its frame may have changed within its buffer.
    Keep {
        /// Current descriptor of the packet.
        packet: Descriptor,
        /// Work for the packet.
        work: Work,
    },
    /// A new packet, created from the packet of the last `Keep` or `Join`. It follows that packet
    /// in arrival order.
    Split {
        /// Descriptor of the new packet, in a buffer allocated for it.
        packet: Descriptor,
        /// Work for the packet.
        work: Work,
    },
    /// The packet is held. The host half has copied it outside the arena, and no other packet waits
    /// for it.
    Hold {
        /// Descriptor of the packet as it arrived.
        packet: Descriptor,
    },
    /// Held packets and this packet are joined into one packet, which takes the arrival order of
    /// this packet.
    Join {
        /// Descriptor of the last missing packet as it arrived.
        packet: Descriptor,
        /// Descriptor of the joined packet, in a buffer allocated for it or in the buffer of
        /// `packet`. The engine sets its remaining fields from `packet`.
        whole: Descriptor,
        /// Number of held packets in the joined packet.
        held: u32,
        /// Work for the joined packet.
        work: Work,
    },
    /// A held packet continues as if it had just arrived. It is dropped if the worker has no
    /// capacity for another packet in flight.
    Resume {
        /// Descriptor of the packet, in a buffer allocated for it, with its original port and flow
        /// hash.
        packet: Descriptor,
        /// Work for the packet.
        work: Work,
        /// Drop reason of the contract for a packet that is dropped.
        reason: u8,
    },
    /// A packet that the host half has created. It is omitted if the worker has no capacity for
    /// another packet in flight.
    Create {
        /// Descriptor of the packet, in a buffer allocated for it, with the port and flow hash of
        /// its flow.
        packet: Descriptor,
        /// Work for the packet.
        work: Work,
    },
    /// The packet is dropped.
    Drop {
        /// Descriptor of the packet as it arrived.
        packet: Descriptor,
        /// Drop reason of the contract.
        reason: u8,
    },
    /// Held packets are dropped.
    Expire {
        /// Number of held packets to drop.
        held: u32,
        /// Drop reason of the contract.
        reason: u8,
    },
}

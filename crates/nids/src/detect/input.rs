//! A packet with everything that rules can test.

use crate::app::Direction;
use crate::flow::Flow;
use crate::packet::Packet;

/// Packet, its flow and its reassembled data.
pub struct Input<'i, 'p> {
    /// Packet.
    pub packet: &'i Packet<'p>,
    /// Flow, if packets of this kind form flows.
    pub flow: Option<&'i mut Flow>,
    /// Direction within the flow.
    pub direction: Option<Direction>,
    /// Whether the flow is established.
    pub established: bool,
    /// Reassembled data for the rules. In passive mode, it is the data that rules have not
    /// inspected yet. In inline mode, it is the part of the stream around the packet. Each entry is
    /// one contiguous part of the data.
    pub streams: &'i [&'i [u8]],
    /// Whether the payload of the packet is part of the stream.
    pub in_stream: bool,
    /// Whether the reassembled data contains exactly the payload bytes of the packet.
    pub same_bytes: bool,
    /// Events of the stream.
    pub events: &'i [&'static str],
    /// Whether the inspector created the packet to mark the end of the flow.
    pub is_end: bool,
    /// Whether packets wait for their verdict (inline mode).
    pub inline: bool,
}

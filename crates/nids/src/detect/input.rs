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
    /// Contiguous parts of reassembled data. In passive mode, rules have not inspected this data
    /// yet. In inline mode, it is the stream data around the packet.
    pub streams: &'i [&'i [u8]],
    /// Whether the payload of the packet is part of the stream.
    pub in_stream: bool,
    /// Whether the reassembled data equals the packet payload.
    pub same_bytes: bool,
    /// Events of the stream.
    pub events: &'i [&'static str],
    /// Whether this is an artificial packet that marks the end of the flow.
    pub is_end: bool,
    /// Whether packets wait for their verdict (inline mode).
    pub inline: bool,
}

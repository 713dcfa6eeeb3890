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
    /// The flow is established.
    pub established: bool,
    /// Reassembled data that rules have not seen yet, without its gaps, or a window around the
    /// packet.
    pub streams: &'i [&'i [u8]],
    /// The payload of the packet is part of the stream.
    pub in_stream: bool,
    /// The reassembled data contains the payload of the packet as it is.
    pub same_bytes: bool,
    /// Events of the stream.
    pub events: &'i [&'static str],
    /// The packet marks the end of the flow, and was not on the wire.
    pub is_end: bool,
    /// Packets wait for their verdict.
    pub inline: bool,
}

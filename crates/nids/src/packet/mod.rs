//! Decoded packets. Their headers refer to the borrowed bytes of the frame.
//!
//! | file | contents |
//! |---|---|
//! | `decode.rs` | link layer, VLAN, MPLS and NSH |
//! | `network.rs` | IPv4, IPv6, and the tunnels in them |
//! | `transport.rs` | TCP, UDP, ICMP, SCTP, and the tunnels in UDP |
//! | `fragments.rs` | reassembly of fragmented datagrams |

mod decode;
mod fragments;
mod network;
mod transport;

pub use decode::{Decoder, LinkType};
pub use fragments::{FragmentCounters, Fragments};

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

/// Time of a packet, in microseconds since the Unix epoch.
pub type Micros = u64;

/// Origin of a packet: a received frame, the decoder, or the stream reassembly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The packet was received from the wire.
    Wire,
    /// Inner packet of GRE.
    Gre,
    /// Inner packet of an IPv4 tunnel.
    Ipv4Tunnel,
    /// Inner packet of an IPv6 tunnel.
    Ipv6Tunnel,
    /// Inner packet of Teredo.
    Teredo,
    /// Inner packet of VXLAN.
    Vxlan,
    /// Inner packet of Geneve.
    Geneve,
    /// Inner packet of ERSPAN.
    Erspan,
    /// Reassembled datagram.
    Fragments,
    /// The packet marks the end of a flow and was not received.
    FlowTimeout,
}

impl Origin {
    /// Returns the name in EVE records (`pkt_src`).
    pub fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire/pcap",
            Self::Gre => "gre tunnel",
            Self::Ipv4Tunnel => "ipv4 tunnel",
            Self::Ipv6Tunnel => "ipv6 tunnel",
            Self::Teredo => "teredo tunnel",
            Self::Vxlan => "vxlan encapsulation",
            Self::Geneve => "geneve encapsulation",
            Self::Erspan => "erspan tunnel",
            Self::Fragments => "defrag",
            Self::FlowTimeout => "stream (flow timeout)",
        }
    }
}

/// Header of a TCP segment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Flags, as in byte 13 of the header.
    pub flags: u8,
    /// Window field of the header, without the scale factor.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Maximum segment size option.
    pub mss: Option<u16>,
    /// Window scale option.
    pub scale: Option<u8>,
    /// Timestamp option, as its value and its echoed value.
    pub timestamp: Option<(u32, u32)>,
    /// Whether the TCP option SACK-permitted is present.
    pub sack_permitted: bool,
    /// Whether the fast open option is present (RFC 7413).
    pub fast_open: bool,
}

/// Bits of the TCP flags.
pub mod tcp {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronises sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Resets the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment number is valid.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer is valid.
    pub const URG: u8 = 0x20;
}

/// Header of an ICMP message.
#[derive(Debug, Clone, Copy, Default)]
pub struct Icmp {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Identifier and sequence number of an echo.
    pub echo: Option<(u16, u16)>,
}

/// Header of a transport protocol.
#[derive(Debug, Clone, Copy)]
pub enum Transport {
    /// The transport header is missing or not decoded.
    Other,
    /// TCP.
    Tcp(Tcp),
    /// UDP.
    Udp,
    /// ICMP for IPv4 or IPv6.
    Icmp(Icmp),
    /// SCTP with its verification tag.
    Sctp(u32),
}

/// Addresses of the packet that carries a tunnelled packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol name of the outer packet, as in EVE log records.
    pub protocol: &'static str,
    /// Nesting depth of the tunnel, counted from 1.
    pub depth: u8,
}

/// Decoded packet.
#[derive(Debug, Clone)]
pub struct Packet<'a> {
    /// Bytes from the first decoded header on.
    pub data: &'a [u8],
    /// Frame number, counted from 1, or 0 for packets that were not received in a frame.
    pub number: u64,
    /// Time of the frame.
    pub time: Micros,
    /// Origin of the packet.
    pub origin: Origin,
    /// Outer packet, if this packet was tunnelled.
    pub outer: Option<Outer>,
    /// Range of the Ethernet header in `data`, which is empty without such a header.
    pub ethernet: Range<usize>,
    /// EtherType of the payload of the link layer.
    pub ethertype: u16,
    /// VLAN identifiers, outermost first.
    pub vlans: [u16; 3],
    /// Number of VLAN tags, at most 3.
    pub vlan_count: u8,
    /// IP version: 4, 6, or 0 for other packets.
    pub version: u8,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP protocol number of the last header.
    pub protocol: u8,
    /// Position of the IP header in `data`, with its extensions.
    pub network: Range<usize>,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Whether the packet is an IP fragment, whose transport header is not decoded.
    pub fragment: bool,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Transport header.
    pub transport: Transport,
    /// Position of the transport header in `data`.
    pub transport_at: Range<usize>,
    /// Position of the payload in `data`.
    pub payload: Range<usize>,
    /// Whether the transport checksum is correct or was not checked.
    pub checksum_ok: bool,
    /// Decoder events.
    pub events: Vec<&'static str>,
}

impl<'a> Packet<'a> {
    /// Returns a packet without headers.
    pub fn empty(data: &'a [u8], number: u64, time: Micros) -> Self {
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Self {
            data,
            number,
            time,
            origin: Origin::Wire,
            outer: None,
            ethernet: 0..0,
            ethertype: 0,
            vlans: [0; 3],
            vlan_count: 0,
            version: 0,
            source: unspecified,
            destination: unspecified,
            protocol: 0,
            network: 0..0,
            ttl: 0,
            fragment: false,
            source_port: 0,
            destination_port: 0,
            transport: Transport::Other,
            transport_at: 0..0,
            payload: 0..0,
            checksum_ok: true,
            events: Vec::new(),
        }
    }

    /// Returns the payload.
    pub fn payload(&self) -> &'a [u8] {
        &self.data[self.payload.clone()]
    }

    /// Returns the TCP header.
    pub fn tcp(&self) -> Option<&Tcp> {
        match &self.transport {
            Transport::Tcp(tcp) => Some(tcp),
            _ => None,
        }
    }

    /// Returns the bytes of the IP header, with its extensions.
    pub fn network_header(&self) -> &'a [u8] {
        &self.data[self.network.clone()]
    }
}

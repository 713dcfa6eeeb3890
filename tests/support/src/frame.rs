//! Frames, built with the header types of `godwit-wire`.

use godwit_wire::{
    Checksum, EspHeader, EthernetHeader, IpAddress, Ipv4Header, Ipv6Header, MacAddress, Tcp, TcpHeader, Udp, UdpHeader,
    VlanHeader, ethertype, protocol,
};

/// Destination of a frame, if a test does not care.
pub const DESTINATION_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
/// Source of a frame, if a test does not care.
pub const SOURCE_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

/// Builder for a valid Ethernet frame.
///
/// The first methods describe the headers. The last one ([`udp`](Self::udp), [`tcp`](Self::tcp),
/// [`esp`](Self::esp) or [`payload`](Self::payload)) returns the frame. Without addresses, the
/// packet is IPv4 from 10.0.0.1 to 10.0.0.2.
///
/// ```
/// use godwit_test_support::FrameBuilder;
///
/// let frame = FrameBuilder::new().vlan(7).ipv4([10, 1, 0, 1], [10, 2, 0, 1]).ttl(9);
/// let frame = frame.udp([4000, 53], b"query");
/// assert_eq!(frame.len(), 14 + 4 + 20 + 8 + 5);
/// ```
#[derive(Clone, Debug)]
pub struct FrameBuilder {
    destination_mac: MacAddress,
    source_mac: MacAddress,
    tags: Vec<(u16, u16)>,
    packet: Packet,
}

#[derive(Clone, Debug)]
enum Packet {
    V4(Ipv4Header<'static>),
    V6(Ipv6Header),
}

impl Default for FrameBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameBuilder {
    /// Creates a builder with default addresses.
    pub fn new() -> Self {
        let packet = Packet::V4(ipv4_header([10, 0, 0, 1], [10, 0, 0, 2], 0));
        Self { destination_mac: DESTINATION_MAC, source_mac: SOURCE_MAC, tags: Vec::new(), packet }
    }

    /// Sets the Ethernet addresses.
    pub fn macs(mut self, destination: [u8; 6], source: [u8; 6]) -> Self {
        (self.destination_mac, self.source_mac) = (MacAddress(destination), MacAddress(source));
        self
    }

    /// Appends an IEEE 802.1Q tag with priority 3.
    pub fn vlan(self, id: u16) -> Self {
        self.tag(ethertype::VLAN, id)
    }

    /// Appends a tag with EtherType `ethertype` and priority 3.
    pub fn tag(mut self, ethertype: u16, id: u16) -> Self {
        self.tags.push((ethertype, id));
        self
    }

    /// Makes the packet IPv4.
    pub fn ipv4(mut self, source: [u8; 4], destination: [u8; 4]) -> Self {
        self.packet = Packet::V4(ipv4_header(source, destination, 0));
        self
    }

    /// Makes the packet IPv4 with a given header. Its protocol and length are set later.
    pub fn ipv4_header(mut self, header: Ipv4Header<'static>) -> Self {
        self.packet = Packet::V4(header);
        self
    }

    /// Makes the packet IPv6.
    pub fn ipv6(mut self, source: [u8; 16], destination: [u8; 16]) -> Self {
        self.packet = Packet::V6(ipv6_header(source, destination, 0));
        self
    }

    /// Sets the TTL or hop limit.
    pub fn ttl(mut self, ttl: u8) -> Self {
        match &mut self.packet {
            Packet::V4(header) => header.ttl = ttl,
            Packet::V6(header) => header.hop_limit = ttl,
        }
        self
    }

    /// Returns a frame with a UDP datagram, checksum included. The ports are source and
    /// destination.
    pub fn udp(self, ports: [u16; 2], data: &[u8]) -> Vec<u8> {
        let mut datagram = udp(ports, data);
        let pseudo_header = self.pseudo_header(protocol::UDP, datagram.len());
        Udp::new_checked(&mut datagram[..]).expect("a whole datagram").fill_checksum(pseudo_header);
        self.payload(protocol::UDP, &datagram)
    }

    /// Returns a frame with a TCP segment, checksum included. The ports are source and destination.
    pub fn tcp(self, ports: [u16; 2], data: &[u8]) -> Vec<u8> {
        let mut segment = tcp(&tcp_header(ports), data);
        let pseudo_header = self.pseudo_header(protocol::TCP, segment.len());
        Tcp::new_checked(&mut segment[..]).expect("a whole segment").fill_checksum(pseudo_header);
        self.payload(protocol::TCP, &segment)
    }

    /// Returns a frame with an ESP header and the bytes after it.
    pub fn esp(self, spi: u32, sequence: u32, data: &[u8]) -> Vec<u8> {
        self.payload(protocol::ESP, &esp(spi, sequence, data))
    }

    /// Returns a frame with an IP packet of any protocol.
    pub fn payload(self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let (ethertype, packet) = match &self.packet {
            Packet::V4(header) => (ethertype::IPV4, ipv4(&Ipv4Header { protocol, ..*header }, payload)),
            Packet::V6(header) => (ethertype::IPV6, ipv6(&Ipv6Header { next_header: protocol, ..*header }, payload)),
        };
        self.ethernet(ethertype, &packet)
    }

    /// Returns a frame with an Ethernet payload of any type. IP addresses are unused.
    pub fn ethernet(self, ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let types: Vec<u16> = self.tags.iter().map(|tag| tag.0).chain([ethertype]).collect();
        let mut frame = vec![0; 14 + 4 * self.tags.len()];
        let (destination, source) = (self.destination_mac, self.source_mac);
        emit(&mut frame, |buffer| EthernetHeader { destination, source, ethertype: types[0] }.emit(buffer));
        for (index, (_, id)) in self.tags.iter().enumerate() {
            let tag = VlanHeader { priority: 3, drop_eligible: false, id: *id, ethertype: types[index + 1] };
            emit(&mut frame[14 + 4 * index..], |buffer| tag.emit(buffer));
        }
        frame.extend(payload);
        frame
    }

    fn pseudo_header(&self, protocol: u8, length: usize) -> Checksum {
        let (source, destination) = match &self.packet {
            Packet::V4(header) => (IpAddress::V4(header.source), IpAddress::V4(header.destination)),
            Packet::V6(header) => (IpAddress::V6(header.source), IpAddress::V6(header.destination)),
        };
        Checksum::pseudo_header(source, destination, protocol, length as u32)
    }
}

/// Returns an IPv4 header without options: not a fragment, TTL 64. [`ipv4`] sets its length.
pub fn ipv4_header(source: [u8; 4], destination: [u8; 4], protocol: u8) -> Ipv4Header<'static> {
    Ipv4Header {
        traffic_class: 0,
        identification: 1,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset_bytes: 0,
        ttl: 64,
        protocol,
        source,
        destination,
        options: &[],
        payload_bytes: 0,
    }
}

/// Returns an IPv6 header with hop limit 64. [`ipv6`] sets its length.
pub fn ipv6_header(source: [u8; 16], destination: [u8; 16], next_header: u8) -> Ipv6Header {
    Ipv6Header { traffic_class: 0, flow_label: 0, payload_bytes: 0, next_header, hop_limit: 64, source, destination }
}

/// Returns a TCP header without options, with the flags PSH and ACK.
pub fn tcp_header([source_port, destination_port]: [u16; 2]) -> TcpHeader<'static> {
    TcpHeader {
        source_port,
        destination_port,
        sequence: 1,
        acknowledgment: 0,
        flags: 0x18,
        window: 1000,
        urgent: 0,
        options: &[],
    }
}

/// Returns an IPv4 packet. The length and the checksum of the header are set.
pub fn ipv4(header: &Ipv4Header<'_>, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4Header { payload_bytes: payload.len(), ..*header };
    let mut packet = vec![0; header.header_bytes()];
    emit(&mut packet, |buffer| header.emit(buffer));
    packet.extend(payload);
    packet
}

/// Returns an IPv6 packet. The length in the header is set.
pub fn ipv6(header: &Ipv6Header, payload: &[u8]) -> Vec<u8> {
    let header = Ipv6Header { payload_bytes: payload.len() as u16, ..*header };
    let mut packet = vec![0; 40];
    emit(&mut packet, |buffer| header.emit(buffer));
    packet.extend(payload);
    packet
}

/// Returns a UDP datagram with checksum 0, which means none (RFC 768).
pub fn udp([source_port, destination_port]: [u16; 2], data: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; 8];
    let header = UdpHeader { source_port, destination_port, payload_bytes: data.len() };
    emit(&mut datagram, |buffer| header.emit(buffer));
    datagram.extend(data);
    datagram
}

/// Returns a TCP segment with checksum 0.
pub fn tcp(header: &TcpHeader<'_>, data: &[u8]) -> Vec<u8> {
    let mut segment = vec![0; header.header_bytes()];
    emit(&mut segment, |buffer| header.emit(buffer));
    segment.extend(data);
    segment
}

/// Returns an ESP header and the bytes after it.
pub fn esp(spi: u32, sequence: u32, data: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 8];
    emit(&mut packet, |buffer| EspHeader { spi, sequence }.emit(buffer));
    packet.extend(data);
    packet
}

/// Sets the checksum of the IPv4 header at the start of `packet`. The header may be truncated, but
/// not before its checksum.
pub fn set_ipv4_checksum(packet: &mut [u8]) {
    let header_bytes = (usize::from(packet[0] & 15) * 4).min(packet.len());
    packet[10..12].fill(0);
    let checksum = godwit_wire::checksum::checksum(&packet[..header_bytes]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn emit(buffer: &mut [u8], header: impl FnOnce(&mut [u8]) -> Result<usize, godwit_wire::Error>) {
    header(buffer).expect("the buffer has the length of the header");
}

#[cfg(test)]
mod tests {
    use godwit_wire::{Ethernet, Ipv4, Ipv6};

    use super::*;

    #[test]
    fn a_built_frame_has_valid_headers_and_checksums() {
        let frame = FrameBuilder::new().ipv4([10, 1, 0, 1], [10, 2, 0, 1]).udp([1, 2], b"data");
        let ethernet = Ethernet::new_checked(&frame[..]).unwrap();
        let packet = Ipv4::new_checked(ethernet.payload()).unwrap();
        packet.verify_checksum().unwrap();
        let datagram = Udp::new_checked(packet.payload()).unwrap();
        datagram.verify_checksum(packet.pseudo_header()).unwrap();
        assert_eq!(datagram.payload(), b"data");

        let frame = FrameBuilder::new().vlan(7).ipv6([1; 16], [2; 16]).tcp([1, 2], b"data");
        let packet = Ipv6::new_checked(&frame[18..]).unwrap();
        let segment = Tcp::new_checked(packet.payload()).unwrap();
        segment.verify_checksum(packet.pseudo_header(protocol::TCP, packet.payload().len() as u32)).unwrap();
        assert_eq!(segment.payload(), b"data");
    }
}

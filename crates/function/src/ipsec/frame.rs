//! Parses the IP packet in an Ethernet frame with at most one VLAN tag. The kernel parses frames in
//! the same way.

use godwit_wire::{Extensions, ethertype, protocol};

use super::selector::{PacketFields, has_ports};
use super::{DROP_MALFORMED, DROP_TRUNCATED};

pub(super) const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const ETHERNET_BYTES: usize = 14;
const VLAN_BYTES: usize = 4;

/// Contents of a frame.
pub(super) enum Frame<'a> {
    Ipv4(Ipv4Frame<'a>),
    Ipv6(Ipv6Frame<'a>),
    /// Not an IP packet.
    Other,
}

impl<'a> Frame<'a> {
    /// Parses a frame. Returns the drop reason if the packet is truncated or malformed.
    #[inline]
    pub(super) fn parse(frame: &'a [u8]) -> Result<Self, u8> {
        let mut offset = ETHERNET_BYTES;
        let mut ether_type = be16(frame, offset - 2).ok_or(DROP_TRUNCATED)?;
        if ether_type == ethertype::VLAN {
            offset += VLAN_BYTES;
            ether_type = be16(frame, offset - 2).ok_or(DROP_TRUNCATED)?;
        }
        let packet = &frame[offset..];
        match ether_type {
            ethertype::IPV4 => Ipv4Frame::parse(packet).map(Self::Ipv4),
            ethertype::IPV6 => Ipv6Frame::parse(packet).map(Self::Ipv6),
            _ => Ok(Self::Other),
        }
    }
}

/// IP packet of either family.
pub(super) trait Packet {
    type Address;

    fn source(&self) -> Self::Address;

    fn destination(&self) -> Self::Address;

    /// Returns the protocol number after the IP header and any IPv6 extension headers.
    fn protocol(&self) -> u8;

    /// Returns the payload of the IP packet, after any IPv6 extension headers. In a fragment, the
    /// payload is incomplete.
    fn payload(&self) -> &[u8];

    fn is_fragment(&self) -> bool;

    fn is_later_fragment(&self) -> bool;

    /// Returns the fields that selectors compare.
    fn fields(&self) -> PacketFields<Self::Address> {
        let payload = self.payload();
        // Only the first fragment of a packet contains the ports (RFC 4301, section 7).
        let ports = match (be16(payload, 0), be16(payload, 2)) {
            (Some(source), Some(destination)) if !self.is_later_fragment() && has_ports(self.protocol()) => {
                Some((source, destination))
            }
            _ => None,
        };
        PacketFields { source: self.source(), destination: self.destination(), protocol: self.protocol(), ports }
    }
}

/// IPv4 packet with checked lengths (RFC 791, section 3.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Ipv4Frame<'a> {
    /// IP packet without any padding at the end of the frame. It contains at least the IP header.
    packet: &'a [u8],
    header_bytes: usize,
}

impl<'a> Ipv4Frame<'a> {
    #[inline]
    fn parse(bytes: &'a [u8]) -> Result<Self, u8> {
        let header = bytes.first_chunk::<IPV4_BYTES>().ok_or(DROP_TRUNCATED)?;
        let header_bytes = usize::from(header[0] & 0x0f) * 4;
        let total_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header[0] >> 4 != 4 || header_bytes < IPV4_BYTES || total_bytes < header_bytes {
            return Err(DROP_MALFORMED);
        }
        let packet = bytes.get(..total_bytes).ok_or(DROP_TRUNCATED)?;
        Ok(Self { packet, header_bytes })
    }
}

impl Packet for Ipv4Frame<'_> {
    type Address = u32;

    #[inline]
    fn source(&self) -> u32 {
        be32(self.packet, 12)
    }

    #[inline]
    fn destination(&self) -> u32 {
        be32(self.packet, 16)
    }

    #[inline]
    fn protocol(&self) -> u8 {
        self.packet[9]
    }

    #[inline]
    fn payload(&self) -> &[u8] {
        &self.packet[self.header_bytes..]
    }

    #[inline]
    fn is_fragment(&self) -> bool {
        be16(self.packet, 6).is_some_and(|word| word & 0x3fff != 0)
    }

    #[inline]
    fn is_later_fragment(&self) -> bool {
        be16(self.packet, 6).is_some_and(|word| word & 0x1fff != 0)
    }
}

/// Fields of a plain packet: a valid IPv4 packet without VLAN tag and IP options. Most packets are
/// plain.
pub(super) struct Plain {
    pub(super) source: u32,
    pub(super) destination: u32,
    pub(super) protocol: u8,
    /// SPI and sequence number (RFC 4303, section 2), or `None` if the packet is a fragment or not
    /// an ESP packet.
    pub(super) esp: Option<(u32, u32)>,
}

impl Plain {
    /// Size of the Ethernet header and the IPv4 header, in bytes.
    pub(super) const BYTES: usize = ETHERNET_BYTES + IPV4_BYTES;

    /// Parses a plain packet. Returns `None` for all other frames.
    #[inline(always)]
    pub(super) fn parse(frame: &[u8]) -> Option<Self> {
        let header = frame.first_chunk::<{ Self::BYTES }>()?;
        let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        // Bytes 12 to 14 contain the EtherType and one byte with the IP version and the header
        // length.
        let is_plain = word(12) >> 8 == (u32::from(ethertype::IPV4) << 8 | 0x45);
        let total_bytes = (word(ETHERNET_BYTES) & 0xffff) as usize;
        // The subtraction wraps to a very large length if the total length is less than the header
        // length.
        let payload_bytes = total_bytes.wrapping_sub(IPV4_BYTES);
        if !is_plain || payload_bytes > frame.len() - Self::BYTES {
            return None;
        }
        let protocol = header[23];
        let esp = || {
            let [a, b, c, d, e, f, g, h] = *frame.get(Self::BYTES..)?.first_chunk()?;
            let is_whole = total_bytes >= IPV4_BYTES + 8 && word(20) >> 16 & 0x3fff == 0;
            is_whole.then_some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
        };
        let esp = if protocol == protocol::ESP { esp() } else { None };
        Some(Self { source: word(26), destination: word(30), protocol, esp })
    }

    /// Returns the source and destination address as one number.
    #[inline(always)]
    pub(super) fn pair(&self) -> u64 {
        u64::from(self.source) << 32 | u64::from(self.destination)
    }

    /// Returns the fields of a plain frame that selectors compare.
    #[cold]
    #[inline(never)]
    pub(super) fn fields(frame: &[u8]) -> PacketFields<u32> {
        let bytes = &frame[ETHERNET_BYTES..];
        let total_bytes = be16(bytes, 2).map_or(0, usize::from);
        Ipv4Frame { packet: &bytes[..total_bytes], header_bytes: IPV4_BYTES }.fields()
    }
}

/// Fields of a plain ESP packet.
#[derive(Clone, Copy)]
pub(super) struct PlainEsp {
    /// Destination address and SPI, which together identify an inbound SA.
    pub(super) key: u64,
    pub(super) sequence: u32,
}

impl PlainEsp {
    /// Parses an ESP packet over IPv4 without VLAN tag and options. It accepts the same ESP packets
    /// as [`Plain::parse`], but takes fewer instructions.
    #[inline(always)]
    pub(super) fn parse(frame: &[u8]) -> Option<Self> {
        const BYTES: usize = Plain::BYTES + 8;
        let header = frame.first_chunk::<BYTES>()?;
        let eight = |at: usize| u64::from_be_bytes(*header[at..].first_chunk().unwrap_or(&[0; 8]));
        // Bytes 12 to 19 contain the EtherType and the first six bytes of the IPv4 header.
        let start = eight(12);
        // The subtraction wraps to a very large length if the packet is too short for the ESP
        // header.
        let payload_bytes = (start >> 16 & 0xffff).wrapping_sub((IPV4_BYTES + 8) as u64);
        let is_plain = start >> 40 == (u64::from(ethertype::IPV4) << 8 | 0x45);
        let is_whole = payload_bytes <= (frame.len() - BYTES) as u64;
        // The mask selects the fragment fields and the protocol in frame bytes 16 to 23.
        let is_esp = eight(16) & 0x3fff_00ff == u64::from(protocol::ESP);
        let sequence = u32::from_be_bytes(*header[38..].first_chunk().unwrap_or(&[0; 4]));
        (is_plain && is_whole && is_esp).then_some(Self { key: eight(30), sequence })
    }
}

/// IPv6 packet whose lengths and extension headers are correct (RFC 8200, sections 3 and 4).
#[derive(Clone, Copy, Debug)]
pub(super) struct Ipv6Frame<'a> {
    /// Fixed part of the IPv6 header.
    header: &'a [u8; IPV6_BYTES],
    protocol: u8,
    payload: &'a [u8],
    is_fragment: bool,
    is_later_fragment: bool,
}

impl<'a> Ipv6Frame<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, u8> {
        let (header, rest) = bytes.split_first_chunk::<IPV6_BYTES>().ok_or(DROP_TRUNCATED)?;
        if header[0] >> 4 != 6 {
            return Err(DROP_MALFORMED);
        }
        let payload = rest.get(..usize::from(u16::from_be_bytes([header[4], header[5]]))).ok_or(DROP_TRUNCATED)?;
        let mut walk = Extensions::new(header[6], payload);
        let (mut is_fragment, mut is_later_fragment) = (false, false);
        // The parser stops at AH, which would otherwise count as an extension header.
        while walk.protocol() != protocol::AH
            && let Some(step) = walk.next()
        {
            let fragment = step.map_err(|_| DROP_MALFORMED)?.fragment();
            is_fragment |= fragment.is_some_and(|fragment| fragment.is_fragment());
            is_later_fragment |= fragment.is_some_and(|fragment| fragment.offset_bytes != 0);
            if is_later_fragment {
                break;
            }
        }
        Ok(Self { header, protocol: walk.protocol(), payload: walk.rest(), is_fragment, is_later_fragment })
    }
}

impl Packet for Ipv6Frame<'_> {
    type Address = u128;

    fn source(&self) -> u128 {
        be128(self.header, 8)
    }

    fn destination(&self) -> u128 {
        be128(self.header, 24)
    }

    fn protocol(&self) -> u8 {
        self.protocol
    }

    fn payload(&self) -> &[u8] {
        self.payload
    }

    fn is_fragment(&self) -> bool {
        self.is_fragment
    }

    fn is_later_fragment(&self) -> bool {
        self.is_later_fragment
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u16::from_be_bytes(*word))
}

/// Reads a field of a header whose length was checked.
fn be32(packet: &[u8], at: usize) -> u32 {
    packet.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word))
}

fn be128(packet: &[u8], at: usize) -> u128 {
    packet.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u128::from_be_bytes(*word))
}

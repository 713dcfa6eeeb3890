//! The IPv4 packet of a frame, as the kernel sees it too: behind Ethernet and at most one VLAN tag.

use godwit_wire::ethertype;

use super::selector::{Shown, has_ports};
use super::{DROP_MALFORMED, DROP_TRUNCATED};

pub(super) const PROTOCOL_ESP: u8 = 50;
pub(super) const IPV4_BYTES: usize = 20;

const ETHERNET_BYTES: usize = 14;
const VLAN_BYTES: usize = 4;

/// An IPv4 packet whose lengths are right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ipv4Frame<'a> {
    /// The packet without what follows it in the frame; at least a header long.
    packet: &'a [u8],
    header_bytes: usize,
}

impl<'a> Ipv4Frame<'a> {
    /// The packet of the frame, `None` where it carries none; the drop reason where it is cut short or contradicts itself.
    pub(super) fn parse(frame: &'a [u8]) -> Result<Option<Self>, u8> {
        let Some(l2_bytes) = l3_offset(frame)? else { return Ok(None) };
        let (packet, header_bytes) = parse_packet(&frame[l2_bytes..])?;
        Ok(Some(Self { packet, header_bytes }))
    }

    pub(super) fn protocol(&self) -> u8 {
        self.packet[9]
    }

    pub(super) fn source(&self) -> u32 {
        be32(self.packet, 12)
    }

    pub(super) fn destination(&self) -> u32 {
        be32(self.packet, 16)
    }

    /// Whether more fragments follow or an offset is set (RFC 791, section 3.1).
    pub(super) fn is_fragment(&self) -> bool {
        be16(self.packet, 6).is_some_and(|word| word & 0x3fff != 0)
    }

    pub(super) fn payload(&self) -> &'a [u8] {
        &self.packet[self.header_bytes..]
    }

    pub(super) fn shown(&self) -> Shown {
        shown(self.packet, self.header_bytes)
    }
}

/// Where the frame's IPv4 packet begins, at most at its end; `None` where it carries none; the drop reason where it
/// is too short to say.
pub(super) fn l3_offset(frame: &[u8]) -> Result<Option<usize>, u8> {
    let mut offset = ETHERNET_BYTES;
    let mut ether_type = be16(frame, offset - 2).ok_or(DROP_TRUNCATED)?;
    if ether_type == ethertype::VLAN {
        offset += VLAN_BYTES;
        ether_type = be16(frame, offset - 2).ok_or(DROP_TRUNCATED)?;
    }
    Ok((ether_type == ethertype::IPV4).then_some(offset))
}

/// The packet at the front of `bytes`, and its header's length; or the drop reason (RFC 791, section 3.1).
pub(super) fn parse_packet(bytes: &[u8]) -> Result<(&[u8], usize), u8> {
    let header = bytes.first_chunk::<IPV4_BYTES>().ok_or(DROP_TRUNCATED)?;
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    let total_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[0] >> 4 != 4 || header_bytes < IPV4_BYTES || total_bytes < header_bytes {
        return Err(DROP_MALFORMED);
    }
    let packet = bytes.get(..total_bytes).ok_or(DROP_TRUNCATED)?;
    Ok((packet, header_bytes))
}

/// What a packet that [`parse_packet`] accepted shows to selectors.
pub(super) fn shown(packet: &[u8], header_bytes: usize) -> Shown {
    let protocol = packet[9];
    // Only the first fragment has the ports (RFC 4301, section 7).
    let first = be16(packet, 6).is_some_and(|word| word & 0x1fff == 0);
    let ports = match (be16(packet, header_bytes), be16(packet, header_bytes + 2)) {
        (Some(source), Some(destination)) if first && has_ports(protocol) => Some((source, destination)),
        _ => None,
    };
    Shown { source: be32(packet, 12), destination: be32(packet, 16), protocol, ports }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u16::from_be_bytes(*word))
}

/// A field of a header whose length was checked.
fn be32(packet: &[u8], at: usize) -> u32 {
    packet.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word))
}

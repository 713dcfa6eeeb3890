//! Reference implementation of `dpi`, which shares no code with the kernel. It compares each
//! pattern at every position where the payload contains the pattern's last byte.

use godwit_wire::{Error, Ethernet, Ipv4, Ipv6, Tcp, Vlan, ethertype, protocol, udp};

use super::Case;

/// Matches in a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Matches {
    /// Number of the pattern whose match ends first in the payload. If several matches end at the
    /// same byte, the lowest number counts.
    pub(super) first: u32,
    /// Number of matches, including overlaps and equal patterns.
    pub(super) count: usize,
}

/// Searches the payload for all patterns.
pub(super) fn search(payload: &[u8], patterns: &[Vec<u8>], case: Case) -> Matches {
    let equal = |(a, b): (&u8, &u8)| case.fold(*a) == case.fold(*b);
    // The patterns are grouped by their last byte, so that the search tries few patterns at each
    // position. Otherwise, ten thousand patterns would take 20 ms per packet.
    let mut ending: [Vec<(u32, &[u8])>; 256] = std::array::from_fn(|_| Vec::new());
    for (pattern, number) in patterns.iter().zip(0..) {
        if let Some(last) = pattern.last() {
            ending[usize::from(case.fold(*last))].push((number, pattern));
        }
    }
    let mut matches = Matches::default();
    for end in 1..=payload.len() {
        for &(number, pattern) in &ending[usize::from(case.fold(payload[end - 1]))] {
            let Some(start) = end.checked_sub(pattern.len()) else {
                continue;
            };
            if payload[start..end].iter().zip(pattern).all(equal) {
                if matches.count == 0 {
                    matches.first = number;
                }
                matches.count += 1;
            }
        }
    }
    matches
}

/// Returns the application payload of a frame, which begins after the headers of known protocols.
/// Returns `None` if the frame is shorter than its headers state.
///
/// The rules are the same as in `kernels/common/payload.h`.
pub(crate) fn payload(frame: &[u8]) -> Option<&[u8]> {
    let ethernet = Ethernet::new_checked(frame).ok()?;
    let (kind, packet) = match ethernet.ethertype() {
        ethertype::VLAN => {
            let tag = Vlan::new_checked(&frame[godwit_wire::ethernet::HEADER_BYTES..]).ok()?;
            (tag.ethertype(), &frame[godwit_wire::ethernet::HEADER_BYTES + godwit_wire::vlan::HEADER_BYTES..])
        }
        other => (other, &frame[godwit_wire::ethernet::HEADER_BYTES..]),
    };
    match kind {
        // The EtherType announces IPv4, but the header may be invalid (RFC 791, section 3.1). In
        // this case, all bytes of the packet are searched.
        ethertype::IPV4 => match Ipv4::new_checked(packet) {
            Ok(header) => {
                let data = &packet[header.header_bytes()..usize::from(header.total_bytes())];
                if header.is_fragment() { Some(data) } else { upper_layer(header.protocol(), data) }
            }
            Err(Error::Truncated) => None,
            Err(_) => Some(packet),
        },
        // The search begins after the fixed IPv6 header, so it includes any extension headers (RFC
        // 8200, section 3).
        ethertype::IPV6 => match Ipv6::new_checked(packet) {
            Ok(header) => {
                let data = &packet[godwit_wire::ipv6::HEADER_BYTES..][..usize::from(header.payload_bytes())];
                upper_layer(header.next_header(), data)
            }
            Err(Error::Truncated) => None,
            Err(_) => Some(packet),
        },
        _ => Some(packet),
    }
}

/// Returns the data after a TCP header (RFC 9293, section 3.1) or a UDP header (RFC 768). For other
/// protocols, returns all of `data`.
fn upper_layer(number: u8, data: &[u8]) -> Option<&[u8]> {
    match number {
        protocol::TCP => match Tcp::new_checked(data) {
            Ok(header) => data.get(header.header_bytes()..),
            Err(Error::Truncated) => None,
            Err(_) => Some(data),
        },
        protocol::UDP => data.get(udp::HEADER_BYTES..),
        _ => Some(data),
    }
}

//! What the kernel does, straight from its description: every pattern is compared at every place of the payload where its
//! last byte is.

use godwit_wire::{Error, Ethernet, Ipv4, Ipv6, Tcp, Vlan, ethertype, protocol, udp};

use super::Case;

/// What was found in a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The pattern that ends first; of several that end there, the one with the lowest number.
    pub(super) first: u32,
    /// Places where a pattern ends, overlaps and equal patterns included.
    pub(super) count: usize,
}

/// Looks for all patterns.
pub(super) fn search(payload: &[u8], patterns: &[Vec<u8>], case: Case) -> Found {
    let equal = |(a, b): (&u8, &u8)| case.fold(*a) == case.fold(*b);
    // By last byte, those of each in order; ten thousand patterns at every place would take 20 ms a packet.
    let mut ending: [Vec<(u32, &[u8])>; 256] = std::array::from_fn(|_| Vec::new());
    for (pattern, number) in patterns.iter().zip(0..) {
        if let Some(last) = pattern.last() {
            ending[usize::from(case.fold(*last))].push((number, pattern));
        }
    }
    let mut found = Found::default();
    for end in 1..=payload.len() {
        for &(number, pattern) in &ending[usize::from(case.fold(payload[end - 1]))] {
            let Some(start) = end.checked_sub(pattern.len()) else {
                continue;
            };
            if payload[start..end].iter().zip(pattern).all(equal) {
                if found.count == 0 {
                    found.first = number;
                }
                found.count += 1;
            }
        }
    }
    found
}

/// What an application wrote into the frame, as far as headers tell; `None` where they say more than there is.
///
/// The rules are those of `kernels/common/payload.h`, one by one.
pub(super) fn payload(frame: &[u8]) -> Option<&[u8]> {
    let ethernet = Ethernet::new_checked(frame).ok()?;
    let (kind, packet) = match ethernet.ethertype() {
        ethertype::VLAN => {
            let tag = Vlan::new_checked(&frame[godwit_wire::ethernet::HEADER_BYTES..]).ok()?;
            (tag.ethertype(), &frame[godwit_wire::ethernet::HEADER_BYTES + godwit_wire::vlan::HEADER_BYTES..])
        }
        other => (other, &frame[godwit_wire::ethernet::HEADER_BYTES..]),
    };
    match kind {
        // RFC 791, section 3.1. What only claims to be IP is data like any other.
        ethertype::IPV4 => match Ipv4::new_checked(packet) {
            Ok(header) => {
                let data = &packet[header.header_bytes()..usize::from(header.total_bytes())];
                if header.is_fragment() { Some(data) } else { upper_layer(header.protocol(), data) }
            }
            Err(Error::Truncated) => None,
            Err(_) => Some(packet),
        },
        // RFC 8200, section 3. Extension headers are not walked: they are data too.
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

/// What is behind a TCP header (RFC 9293, section 3.1) or a UDP header (RFC 768); all of any other protocol.
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

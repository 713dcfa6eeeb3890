//! Reference implementation of IPv4 forwarding, written from RFC 1812. It searches maps for the
//! longest prefix, while the kernel uses a DIR-24-8 table.
//!
//! It parses headers with `godwit-wire` instead of fixed offsets.

use std::collections::BTreeMap;

use godwit_abi::{Descriptor, Outcome};
use godwit_wire::{Error, Ethernet, Ipv4, Vlan, ethernet, ethertype, vlan};

use super::{
    DROP_BLACKHOLE, DROP_CHECKSUM, DROP_GROUP_FRAME, DROP_MALFORMED, DROP_MARTIAN, DROP_TRUNCATED, VERDICT_FORWARD,
    VERDICT_FRAGMENT, VERDICT_LOCAL, VERDICT_NO_ROUTE, VERDICT_NOT_IPV4, VERDICT_TOO_BIG, VERDICT_TTL_EXCEEDED,
    VERDICT_UNRESOLVED,
};
use crate::routes::Address;
use crate::routing::NextHop;

/// Next hop of each prefix, in one map per prefix length.
#[derive(Debug)]
pub(super) struct Prefixes([BTreeMap<u32, u32>; 33]);

impl Prefixes {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| BTreeMap::new()))
    }

    /// Sets the next hop of a prefix, or removes the route if `next_hop` is `None`.
    pub(super) fn set(&mut self, prefix: u32, length: u8, next_hop: Option<u32>) {
        let routes = &mut self.0[usize::from(length)];
        match next_hop {
            Some(next_hop) => routes.insert(prefix, next_hop),
            None => routes.remove(&prefix),
        };
    }

    /// Returns the next hop index for the longest prefix that covers the address (RFC 1812, section
    /// 5.2.4.3, rule 2).
    pub(super) fn lookup(&self, address: u32) -> Option<u32> {
        (0u8..=32).rev().find_map(|length| self.0[usize::from(length)].get(&address.masked(length)).copied())
    }
}

/// Forwards one packet.
pub(super) fn run_ref(
    buffer: &mut [u8],
    descriptor: &Descriptor,
    prefixes: &Prefixes,
    next_hops: &[NextHop],
) -> Outcome {
    let frame = crate::frame_mut(buffer, descriptor);
    let is_group_frame = Ethernet::new_checked(&*frame).is_ok_and(|frame| frame.destination().is_multicast());
    let header = match network_header(frame) {
        Ok(Some(header)) => header,
        Ok(None) => return Outcome::verdict(VERDICT_NOT_IPV4),
        Err(()) => return Outcome::drop(DROP_TRUNCATED),
    };
    let packet = match Ipv4::new_checked(&mut frame[header..]) {
        Ok(packet) => packet,
        Err(Error::Truncated) => return Outcome::drop(DROP_TRUNCATED),
        Err(_) => return Outcome::drop(DROP_MALFORMED),
    };
    if packet.verify_checksum().is_err() {
        return Outcome::drop(DROP_CHECKSUM);
    }
    if is_martian_source(packet.source()) || is_martian_destination(packet.destination()) {
        return Outcome::drop(DROP_MARTIAN);
    }
    // Only frames to the router itself are forwarded or delivered (RFC 1812, section 5.3.4).
    if is_group_frame {
        return Outcome::drop(DROP_GROUP_FRAME);
    }
    let Some(next_hop) = prefixes.lookup(u32::from_be_bytes(packet.destination())) else {
        return Outcome::verdict(VERDICT_NO_ROUTE);
    };
    let (adjacency, is_resolved) = match next_hops[next_hop as usize] {
        NextHop::Unreachable => return Outcome::verdict(VERDICT_NO_ROUTE),
        NextHop::Blackhole => return Outcome::drop(DROP_BLACKHOLE),
        // A packet for the router itself is delivered even if its TTL is too low to forward it (RFC
        // 1812, section 5.3.1).
        NextHop::Local => return Outcome { value: next_hop, ..Outcome::verdict(VERDICT_LOCAL) },
        NextHop::Forward(adjacency) => (adjacency, true),
        NextHop::Unresolved(adjacency) => (adjacency, false),
    };
    let port = adjacency.port;
    if packet.ttl() <= 1 {
        return Outcome::verdict(VERDICT_TTL_EXCEEDED);
    }
    if !is_resolved {
        return Outcome { port, value: next_hop, ..Outcome::verdict(VERDICT_UNRESOLVED) };
    }
    let is_too_long = packet.total_bytes() > adjacency.mtu;
    let mtu = u32::from(adjacency.mtu);
    if is_too_long && packet.dont_fragment() {
        return Outcome { port, value: mtu, ..Outcome::verdict(VERDICT_TOO_BIG) };
    }
    { packet }.decrement_ttl();
    if let Ok(mut ethernet) = Ethernet::new_checked(frame) {
        ethernet.set_destination(adjacency.destination);
        ethernet.set_source(adjacency.source);
    }
    if is_too_long {
        return Outcome { port, value: mtu, ..Outcome::verdict(VERDICT_FRAGMENT) };
    }
    Outcome { port, value: next_hop, ..Outcome::verdict(VERDICT_FORWARD) }
}

/// Returns the offset of the IPv4 header in a frame with at most one 802.1Q tag. Returns `None` if
/// the frame carries no IPv4 packet.
fn network_header(frame: &[u8]) -> Result<Option<usize>, ()> {
    let ethernet = Ethernet::new_checked(frame).map_err(|_| ())?;
    let (inner, header) = match ethernet.ethertype() {
        ethertype::VLAN => {
            let tag = Vlan::new_checked(ethernet.payload()).map_err(|_| ())?;
            (tag.ethertype(), ethernet::HEADER_BYTES + vlan::HEADER_BYTES)
        }
        other => (other, ethernet::HEADER_BYTES),
    };
    Ok((inner == ethertype::IPV4).then_some(header))
}

/// Returns whether a packet must not have this source address (RFC 1812, sections 4.2.2.11 and
/// 5.3.7). The function rejects "this network" (0/8), loopback (127/8), multicast (224/4) and class
/// E (240/4), which includes the limited broadcast address.
fn is_martian_source(address: [u8; 4]) -> bool {
    matches!(address[0], 0 | 127 | 224..=255)
}

/// Returns whether the router does not forward packets to this address.
///
/// The function rejects 0/8 and 127/8 (RFC 1812, section 5.3.7). It rejects class E, which includes
/// the limited broadcast address (sections 5.3.7 and 5.3.5.1). It also rejects multicast (224/4),
/// because the table holds only unicast routes.
fn is_martian_destination(address: [u8; 4]) -> bool {
    matches!(address[0], 0 | 127 | 224..=255)
}

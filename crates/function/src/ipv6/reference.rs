//! Reference implementation of IPv6 forwarding, written from RFC 8200, RFC 4291 and RFC 4007.
//!
//! It searches maps for the longest prefix. It parses headers with `godwit-wire` and the standard
//! library instead of offsets and masks.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use godwit_abi::{Descriptor, Outcome};
use godwit_wire::{Error, Ethernet, Ipv6, Vlan, ethernet, ethertype, protocol, vlan};

use super::{
    DROP_BLACKHOLE, DROP_GROUP_FRAME, DROP_MALFORMED, DROP_MARTIAN, DROP_OPTION, DROP_TRUNCATED, VERDICT_BEYOND_SCOPE,
    VERDICT_FORWARD, VERDICT_HOP_LIMIT_EXCEEDED, VERDICT_LINK_LOCAL, VERDICT_LOCAL, VERDICT_NO_ROUTE, VERDICT_NOT_IPV6,
    VERDICT_PARAMETER_PROBLEM, VERDICT_TOO_BIG, VERDICT_UNRESOLVED,
};
use crate::routes::Address;
use crate::routing::NextHop;

/// Number of bytes of a hop-by-hop options header that the router processes. It ignores later
/// options.
const OPTION_BYTES: usize = 64;

/// Next hop of each prefix, in one map per prefix length.
#[derive(Debug)]
pub(super) struct Prefixes(Vec<BTreeMap<u128, u32>>);

impl Prefixes {
    pub(super) fn new() -> Self {
        Self(vec![BTreeMap::new(); 129])
    }

    /// Sets the next hop of a prefix, or removes the route if `next_hop` is `None`.
    pub(super) fn set(&mut self, prefix: u128, length: u8, next_hop: Option<u32>) {
        let routes = &mut self.0[usize::from(length)];
        match next_hop {
            Some(next_hop) => routes.insert(prefix, next_hop),
            None => routes.remove(&prefix),
        };
    }

    /// Returns the next hop index for the longest prefix that covers the address.
    pub(super) fn lookup(&self, address: u128) -> Option<u32> {
        (0u8..=128).rev().find_map(|length| self.0[usize::from(length)].get(&address.masked(length)).copied())
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
        Ok(None) => return Outcome::verdict(VERDICT_NOT_IPV6),
        Err(()) => return Outcome::drop(DROP_TRUNCATED),
    };
    let packet = match Ipv6::new_checked(&mut frame[header..]) {
        Ok(packet) => packet,
        Err(Error::Truncated) => return Outcome::drop(DROP_TRUNCATED),
        Err(_) => return Outcome::drop(DROP_MALFORMED),
    };
    let (source, destination) = (Ipv6Addr::from(packet.source()), Ipv6Addr::from(packet.destination()));
    if is_martian(source, destination) {
        return Outcome::drop(DROP_MARTIAN);
    }
    // Packets to link-local addresses do not leave the link, and neither do packets to multicast
    // addresses of link scope (RFC 4291, sections 2.5.6 and 2.7).
    if destination.is_unicast_link_local() || destination.is_multicast() {
        return Outcome::verdict(VERDICT_LINK_LOCAL);
    }
    // Only frames to the router itself are forwarded or delivered.
    if is_group_frame {
        return Outcome::drop(DROP_GROUP_FRAME);
    }
    if packet.next_header() == protocol::HOP_BY_HOP
        && let Some(outcome) = hop_by_hop(packet.payload())
    {
        return outcome;
    }
    let Some(next_hop) = prefixes.lookup(destination.to_bits()) else {
        return Outcome::verdict(VERDICT_NO_ROUTE);
    };
    let (adjacency, is_resolved) = match next_hops[next_hop as usize] {
        NextHop::Unreachable => return Outcome::verdict(VERDICT_NO_ROUTE),
        NextHop::Blackhole => return Outcome::drop(DROP_BLACKHOLE),
        // A packet for this machine is delivered even if its hop limit is 0 (RFC 8200, section 3).
        // Its source may also be a link-local address.
        NextHop::Local => return Outcome { value: next_hop, ..Outcome::verdict(VERDICT_LOCAL) },
        NextHop::Forward(adjacency) => (adjacency, true),
        NextHop::Unresolved(adjacency) => (adjacency, false),
    };
    // A packet with a link-local source address does not leave the link (RFC 4007, section 9, rule
    // 2).
    if source.is_unicast_link_local() {
        return Outcome::verdict(VERDICT_BEYOND_SCOPE);
    }
    if packet.hop_limit() <= 1 {
        return Outcome::verdict(VERDICT_HOP_LIMIT_EXCEEDED);
    }
    let port = adjacency.port;
    if !is_resolved {
        return Outcome { port, value: next_hop, ..Outcome::verdict(VERDICT_UNRESOLVED) };
    }
    let bytes = godwit_wire::ipv6::HEADER_BYTES + usize::from(packet.payload_bytes());
    // Routers do not fragment IPv6 packets (RFC 8200, section 5).
    if adjacency.mtu != crate::routing::Adjacency::MTU_MAX && bytes > usize::from(adjacency.mtu) {
        return Outcome { port, value: adjacency.mtu.into(), ..Outcome::verdict(VERDICT_TOO_BIG) };
    }
    { packet }.decrement_hop_limit();
    if let Ok(mut ethernet) = Ethernet::new_checked(frame) {
        ethernet.set_destination(adjacency.destination);
        ethernet.set_source(adjacency.source);
    }
    Outcome { port, value: next_hop, ..Outcome::verdict(VERDICT_FORWARD) }
}

/// Returns the offset of the IPv6 header in a frame with at most one 802.1Q tag. Returns `None` if
/// the frame carries no IPv6 packet.
fn network_header(frame: &[u8]) -> Result<Option<usize>, ()> {
    let ethernet = Ethernet::new_checked(frame).map_err(|_| ())?;
    let (inner, header) = match ethernet.ethertype() {
        ethertype::VLAN => {
            let tag = Vlan::new_checked(ethernet.payload()).map_err(|_| ())?;
            (tag.ethertype(), ethernet::HEADER_BYTES + vlan::HEADER_BYTES)
        }
        other => (other, ethernet::HEADER_BYTES),
    };
    Ok((inner == ethertype::IPV6).then_some(header))
}

/// Returns whether no valid packet has this pair of addresses.
fn is_martian(source: Ipv6Addr, destination: Ipv6Addr) -> bool {
    // A multicast address must not be a source (RFC 4291, section 2.7). Packets with a loopback
    // address must not leave the node (section 2.5.3).
    if source.is_multicast() || source.is_loopback() || destination.is_loopback() {
        return true;
    }
    // The unspecified address is never a destination. Routers do not forward packets with this
    // source address (RFC 4291, section 2.5.2).
    if destination.is_unspecified() || source.is_unspecified() && !destination.is_multicast() {
        return true;
    }
    // The multicast scope 0 is reserved, scope 1 is the interface and scope 2 is the link (RFC
    // 4291, section 2.7). Wider scopes need multicast routes, which this function does not have.
    destination.is_multicast() && destination.octets()[1] & 0xf != 2
}

/// Processes the hop-by-hop options (RFC 8200, sections 4.2 and 4.3). Returns the outcome if an
/// option ends the processing of the packet, or `None` otherwise.
///
/// The only supported option is padding, and all other options count as unknown. Options beyond
/// `OPTION_BYTES` are ignored (RFC 9673, section 5.2).
fn hop_by_hop(payload: &[u8]) -> Option<Outcome> {
    let Some(&[_, length, ..]) = payload.first_chunk::<8>() else { return Some(Outcome::drop(DROP_MALFORMED)) };
    let Some(header) = payload.get(..8 * (usize::from(length) + 1)) else {
        return Some(Outcome::drop(DROP_MALFORMED));
    };
    let mut at = 2;
    while at < header.len() && at + 1 < OPTION_BYTES {
        let kind = header[at];
        if kind == 0 {
            at += 1;
            continue;
        }
        let end = header.get(at + 1).map(|&bytes| at + 2 + usize::from(bytes));
        let Some(end) = end.filter(|&end| end <= header.len()) else { return Some(Outcome::drop(DROP_MALFORMED)) };
        match kind >> 6 {
            0b00 => {}
            0b01 => return Some(Outcome::drop(DROP_OPTION)),
            // If both action bits of an option are 1, the router sends an ICMP error unless the
            // destination is multicast. No multicast packet reaches this point.
            _ => {
                let value = (godwit_wire::ipv6::HEADER_BYTES + at) as u32;
                return Some(Outcome { value, ..Outcome::verdict(VERDICT_PARAMETER_PROBLEM) });
            }
        }
        at = end;
    }
    None
}

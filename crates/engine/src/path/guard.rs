//! Drops frames that the ports of a router must not accept. Such a frame is addressed to another
//! station, or contains a packet with a source address of the router. The check is cheap, because
//! the computation of the flow hash has just loaded the headers into the cache.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use godwit_function::Function;
use godwit_function::routing::OwnAddresses;
use godwit_packet::{Batch, Region};
use godwit_wire::{MacAddress, ethertype};

use crate::observe::counters::{Counts, DROPPED, DROPPED_OWN_SOURCE, DROPPED_STATION};
use crate::plan::stations::PortStations;

/// Binary logarithm of the number of bits in the address filter.
const FILTER_BITS: u32 = 12;

/// Checks of arriving frames.
#[derive(Default)]
pub(crate) struct Guard {
    own: OwnSources,
}

impl Guard {
    pub(crate) fn new<'a>(functions: impl Iterator<Item = &'a Arc<dyn Function>>) -> Self {
        let addresses = functions.filter_map(|function| Some(Arc::clone(function.station()?.own_addresses())));
        Self { own: OwnSources::new(addresses) }
    }

    /// Drops packets of a burst that the port must not accept. `interface` is the MAC address of
    /// the interface.
    #[inline]
    pub(crate) fn check(
        &mut self,
        port: &PortStations,
        interface: MacAddress,
        region: &mut Region,
        counts: &mut Counts,
        batch: &mut Batch,
    ) {
        self.own.refresh();
        let mut kept = 0;
        for packet in 0..batch.len() {
            let descriptor = batch.descriptors[packet];
            if let Some(reason) = self.fault(port, interface, region.frame(&descriptor)) {
                region.release(&descriptor);
                counts.add(DROPPED, 1);
                counts.add(reason, 1);
                continue;
            }
            if kept != packet {
                batch.descriptors[kept] = descriptor;
                batch.stamps[kept] = batch.stamps[packet];
            }
            kept += 1;
        }
        batch.descriptors.truncate(kept);
        batch.stamps.truncate(kept);
    }

    /// Returns the drop counter of a frame that the port must not accept.
    #[inline]
    fn fault(&self, port: &PortStations, interface: MacAddress, frame: &[u8]) -> Option<usize> {
        let destination = MacAddress(*frame.first_chunk()?);
        if destination != interface
            && !port.is_promiscuous
            && !destination.is_multicast()
            && !port.own.contains(&destination)
        {
            return Some(DROPPED_STATION);
        }
        self.own.has_source(frame).then_some(DROPPED_OWN_SOURCE)
    }
}

/// IP addresses of the router, copied from its functions.
#[derive(Default)]
struct OwnSources {
    parts: Vec<(Arc<OwnAddresses>, Option<u64>)>,
    addresses: HashSet<IpAddr>,
    /// Bit set with the hashes of all addresses. It makes nearly all searches unnecessary.
    filter: Box<[u64]>,
}

impl OwnSources {
    fn new(parts: impl Iterator<Item = Arc<OwnAddresses>>) -> Self {
        let parts = parts.map(|part| (part, None)).collect();
        Self { parts, addresses: HashSet::new(), filter: vec![0; 1 << (FILTER_BITS - 6)].into() }
    }

    /// Copies the addresses again if they have changed.
    #[inline]
    fn refresh(&mut self) {
        if self.parts.iter().any(|(part, version)| *version != Some(part.version())) {
            self.copy();
        }
    }

    #[cold]
    fn copy(&mut self) {
        self.addresses.clear();
        for (part, version) in &mut self.parts {
            // The version is read before the addresses, so a change between both reads is noticed
            // later.
            *version = Some(part.version());
            self.addresses.extend(part.all());
        }
        self.set_filter();
    }

    fn set_filter(&mut self) {
        self.filter.fill(0);
        for address in &self.addresses {
            let bit = match address {
                IpAddr::V4(address) => hash(address.to_bits()),
                IpAddr::V6(address) => hash_of_ipv6(&address.octets()),
            };
            self.filter[bit / 64] |= 1 << (bit % 64);
        }
    }

    #[inline]
    fn has_source(&self, frame: &[u8]) -> bool {
        let Some(header) = network_header(frame) else { return false };
        match header {
            NetworkHeader::V4(packet) => packet.get(12..).and_then(<[u8]>::first_chunk::<4>).is_some_and(|source| {
                self.may_hold(hash(u32::from_be_bytes(*source))) && self.addresses.contains(&IpAddr::from(*source))
            }),
            NetworkHeader::V6(packet) => packet.get(8..).and_then(<[u8]>::first_chunk::<16>).is_some_and(|source| {
                self.may_hold(hash_of_ipv6(source)) && self.addresses.contains(&IpAddr::from(*source))
            }),
        }
    }

    #[inline]
    fn may_hold(&self, bit: usize) -> bool {
        self.filter.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }
}

/// Packet in a frame, from its IP header on.
enum NetworkHeader<'a> {
    V4(&'a [u8]),
    V6(&'a [u8]),
}

/// Returns the IP packet in a frame with at most one 802.1Q tag.
#[inline]
fn network_header(frame: &[u8]) -> Option<NetworkHeader<'_>> {
    let mut at = 12;
    if frame.get(at..)?.first_chunk() == Some(&ethertype::VLAN.to_be_bytes()) {
        at += 4;
    }
    let packet = frame.get(at + 2..)?;
    match u16::from_be_bytes(*frame.get(at..)?.first_chunk()?) {
        ethertype::IPV4 => Some(NetworkHeader::V4(packet)),
        ethertype::IPV6 => Some(NetworkHeader::V6(packet)),
        _ => None,
    }
}

#[inline]
fn hash(address: u32) -> usize {
    (address.wrapping_mul(0x9e37_79b1) >> (32 - FILTER_BITS)) as usize
}

#[inline]
fn hash_of_ipv6(address: &[u8; 16]) -> usize {
    let words = address.as_chunks::<4>().0;
    hash(words.iter().fold(0, |folded: u32, word| folded.rotate_left(5) ^ u32::from_be_bytes(*word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERFACE: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const RESPONDER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

    fn port(is_promiscuous: bool) -> PortStations {
        PortStations { is_promiscuous, own: vec![RESPONDER] }
    }

    fn guard(addresses: &[&str]) -> Guard {
        let mut own = OwnSources::new(std::iter::empty());
        own.addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        own.set_filter();
        Guard { own }
    }

    fn frame(destination: [u8; 6], ether_type: u16, packet: &[u8]) -> Vec<u8> {
        [&destination[..], &[2, 9, 9, 9, 9, 9], &ether_type.to_be_bytes(), packet].concat()
    }

    #[test]
    fn only_frames_to_the_router_and_to_groups_are_accepted() {
        let guard = guard(&[]);
        let fault = |is_promiscuous, mac| guard.fault(&port(is_promiscuous), INTERFACE, &frame(mac, 0x0806, &[0; 46]));
        for accepted in [INTERFACE.0, RESPONDER.0, [0xff; 6], [0x33, 0x33, 0, 0, 0, 1]] {
            assert_eq!(fault(false, accepted), None, "{accepted:?}");
        }
        for other in [[2, 0, 0, 0, 0, 3], [0; 6]] {
            assert_eq!(fault(false, other), Some(DROPPED_STATION), "{other:?}");
            assert_eq!(fault(true, other), None, "{other:?}");
        }
        assert_eq!(guard.fault(&port(false), INTERFACE, &[2, 0, 0]), None, "functions count truncated frames");
    }

    #[test]
    fn packets_from_own_addresses_are_found_with_and_without_a_tag() {
        let guard = guard(&["192.0.2.1", "2001:db8::1"]);
        let mut v4 = vec![0; 20];
        v4[12..16].copy_from_slice(&[192, 0, 2, 1]);
        let mut v6 = vec![0; 40];
        v6[8..24].copy_from_slice(&"2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        for (ether_type, packet, at) in [(0x0800, v4, 15), (0x86dd, v6, 23)] {
            let mut others = packet.clone();
            others[at] ^= 2;
            let tagged = |packet: &[u8]| [&[0, 7], &u16::to_be_bytes(ether_type)[..], packet].concat();
            for (packet, expected) in [(&packet, Some(DROPPED_OWN_SOURCE)), (&others, None)] {
                let fault = |frame: &[u8]| guard.fault(&port(false), INTERFACE, frame);
                assert_eq!(fault(&frame(INTERFACE.0, ether_type, packet)), expected);
                assert_eq!(fault(&frame(INTERFACE.0, 0x8100, &tagged(packet))), expected);
                assert_eq!(fault(&frame(INTERFACE.0, ether_type, &packet[..at])), None);
            }
        }
    }
}

//! Replies to requests for the addresses of this machine. The functions in this module take and
//! return frame bytes.

use std::net::IpAddr;

use godwit_wire::checksum::checksum;
use godwit_wire::{Checksum, IpAddress, MacAddress, ethertype, protocol};

use super::config::Settings;

const ETHERNET_BYTES: usize = 14;
const ARP_BYTES: usize = 28;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const HOP_LIMIT: u8 = 64;
/// Hop limit of neighbour discovery packets, which shows that no router forwarded them (RFC 4861,
/// section 7.1.1).
const NEVER_FORWARDED: u8 = 255;
/// Length of a neighbour solicitation up to the end of its target address, in bytes (RFC 4861,
/// section 4.3).
const SOLICITATION_BYTES: usize = 24;
/// Length of a neighbour advertisement with a link-layer address option, in bytes (RFC 4861,
/// sections 4.4 and 4.6.1).
const ADVERTISEMENT_BYTES: usize = SOLICITATION_BYTES + 8;

/// Returns the reply to a frame that arrived on `port`. Returns `None` if the frame is not a
/// request for this machine.
pub(super) fn answer(settings: &Settings, port: u16, frame: &[u8]) -> Option<Vec<u8>> {
    let ether_type = |at: usize| frame.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    let at = if ether_type(12)? == ethertype::VLAN { ETHERNET_BYTES + 4 } else { ETHERNET_BYTES };
    match ether_type(at - 2)? {
        ethertype::ARP => arp(settings, port, frame, at),
        ethertype::IPV4 => echo4(settings, port, frame, at),
        ethertype::IPV6 => icmp6(settings, port, frame, at),
        _ => None,
    }
}

fn mac(bytes: &[u8]) -> Option<MacAddress> {
    bytes.first_chunk().map(|bytes| MacAddress(*bytes))
}

/// Returns the source MAC address for the answer to a frame. It is usually the destination address
/// of the frame. If that is a group address, which must not be a source address (IEEE 802.3,
/// section 3.2.3), it is the address of the interface.
fn own_mac(settings: &Settings, port: u16, frame: &[u8]) -> Option<MacAddress> {
    let destination = mac(frame)?;
    if destination.is_multicast() { Some(settings.interface(port)?.mac) } else { Some(destination) }
}

/// Returns a copy of the frame, addressed to its sender, with the source address `ours`.
fn addressed_to_sender(frame: &[u8], ours: MacAddress) -> Vec<u8> {
    let mut answer = frame.to_vec();
    answer.copy_within(6..12, 0);
    answer[6..12].copy_from_slice(&ours.0);
    answer
}

/// Answers an ARP request for an address that this machine has on the port (RFC 826).
fn arp(settings: &Settings, port: u16, frame: &[u8], at: usize) -> Option<Vec<u8>> {
    let packet = frame.get(at..at + ARP_BYTES)?;
    let interface = settings.interface(port)?;
    // These bytes identify an ARP request for IPv4 over Ethernet.
    if packet[..8] != [0, 1, 8, 0, 6, 4, 0, 1] {
        return None;
    }
    let target: [u8; 4] = *packet[24..].first_chunk()?;
    if !interface.addresses.contains(&IpAddr::from(target)) || mac(&packet[8..])?.is_multicast() {
        return None;
    }
    let mut answer = addressed_to_sender(frame, interface.mac);
    let reply = &mut answer[at..at + ARP_BYTES];
    reply[7] = 2;
    reply.copy_within(8..18, 18);
    reply[8..14].copy_from_slice(&interface.mac.0);
    reply[14..18].copy_from_slice(&target);
    Some(answer)
}

/// Answers an ICMP echo request for an address of this machine (RFC 792; RFC 1122, section
/// 3.2.2.6).
fn echo4(settings: &Settings, port: u16, frame: &[u8], at: usize) -> Option<Vec<u8>> {
    let packet = godwit_wire::Ipv4::new_checked(&frame[at..]).ok()?;
    let header_bytes = packet.header_bytes();
    let total = usize::from(packet.total_bytes());
    let icmp = packet.payload();
    let is_ours = settings.has(packet.destination().into());
    // Packets with IP options are not answered. The reply would have to reverse a recorded route or
    // a source route.
    let is_plain = header_bytes == IPV4_BYTES && !packet.is_fragment() && packet.protocol() == protocol::ICMP;
    if !is_ours || !is_plain || icmp.len() < 8 || icmp[..2] != [8, 0] || packet.verify_checksum().is_err() {
        return None;
    }
    if !is_host(packet.source()) || checksum(icmp) != 0 {
        return None;
    }
    let mut answer = addressed_to_sender(frame, own_mac(settings, port, frame)?);
    let (header, icmp) = answer[at..at + total].split_at_mut(IPV4_BYTES);
    header[8] = HOP_LIMIT;
    let source: [u8; 4] = *header[12..].first_chunk()?;
    header.copy_within(16..20, 12);
    header[16..20].copy_from_slice(&source);
    header[10..12].fill(0);
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    icmp[..4].fill(0);
    let sum = checksum(icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    Some(answer)
}

/// Returns whether `address` can belong to a single host.
fn is_host(address: [u8; 4]) -> bool {
    !matches!(address[0], 0 | 127 | 224..)
}

/// Answers an ICMPv6 echo request or a neighbour solicitation.
fn icmp6(settings: &Settings, port: u16, frame: &[u8], at: usize) -> Option<Vec<u8>> {
    let packet = godwit_wire::Ipv6::new_checked(&frame[at..]).ok()?;
    let icmp = packet.payload();
    if packet.next_header() != protocol::ICMPV6 || icmp.len() < 8 {
        return None;
    }
    let mut sum = packet.pseudo_header(protocol::ICMPV6, icmp.len() as u32);
    sum.add(icmp);
    if sum.finish() != 0 || packet.source()[0] == 0xff {
        return None;
    }
    let (source, destination) = (packet.source(), packet.destination());
    match icmp[..2] {
        [128, 0] => {
            if !settings.has(destination.into()) || source == [0; 16] {
                return None;
            }
            let mut answer = addressed_to_sender(frame, own_mac(settings, port, frame)?);
            let bytes = icmp.len();
            finish6(&mut answer[at..], destination, source, HOP_LIMIT, bytes, |icmp| icmp[0] = 129);
            Some(answer)
        }
        [135, 0] if packet.hop_limit() == NEVER_FORWARDED => solicited(settings, port, frame, at, icmp, source),
        _ => None,
    }
}

/// Answers a neighbour solicitation for an address that this machine has on the port (RFC 4861,
/// section 7.2.4).
fn solicited(
    settings: &Settings,
    port: u16,
    frame: &[u8],
    at: usize,
    icmp: &[u8],
    source: [u8; 16],
) -> Option<Vec<u8>> {
    let interface = settings.interface(port)?;
    let target: [u8; 16] = *icmp.get(8..)?.first_chunk()?;
    if !interface.addresses.contains(&IpAddr::from(target)) {
        return None;
    }
    // A station that checks for duplicate addresses (RFC 4862) has no address yet. The
    // advertisement is therefore sent to all nodes of the link.
    let is_duplicate_check = source == [0; 16];
    let to = if is_duplicate_check { [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1] } else { source };
    let mut answer = addressed_to_sender(frame, interface.mac);
    if is_duplicate_check {
        answer[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    }
    answer.resize(at + IPV6_BYTES + ADVERTISEMENT_BYTES, 0);
    // The flags "router" and "override" are set. The flag "solicited" is set too, except in the
    // answer to a duplicate address check.
    let flags = if is_duplicate_check { 0xa0 } else { 0xe0 };
    finish6(&mut answer[at..], target, to, NEVER_FORWARDED, ADVERTISEMENT_BYTES, |icmp| {
        icmp[..2].copy_from_slice(&[136, 0]);
        icmp[4..8].copy_from_slice(&[flags, 0, 0, 0]);
        icmp[8..24].copy_from_slice(&target);
        icmp[24..26].copy_from_slice(&[2, 1]);
        icmp[26..32].copy_from_slice(&interface.mac.0);
    });
    Some(answer)
}

fn finish6(
    packet: &mut [u8],
    source: [u8; 16],
    destination: [u8; 16],
    hop_limit: u8,
    bytes: usize,
    write: impl FnOnce(&mut [u8]),
) {
    packet[4..6].copy_from_slice(&(bytes as u16).to_be_bytes());
    packet[7] = hop_limit;
    packet[8..24].copy_from_slice(&source);
    packet[24..40].copy_from_slice(&destination);
    let icmp = &mut packet[IPV6_BYTES..IPV6_BYTES + bytes];
    write(icmp);
    icmp[2..4].fill(0);
    let (source, destination) = (IpAddress::V6(source), IpAddress::V6(destination));
    let mut sum = Checksum::pseudo_header(source, destination, protocol::ICMPV6, bytes as u32);
    sum.add(icmp);
    let sum = sum.finish();
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
}

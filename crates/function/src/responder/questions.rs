//! Creates requests for the Ethernet addresses of stations, and reads these addresses from received
//! frames. The functions in this module take and return frame bytes.

use std::net::IpAddr;

use godwit_wire::{Arp, ArpHeader, Checksum, IpAddress, MacAddress, arp, ethertype, protocol};

use super::config::{Interface, Settings};
use crate::neighbours::Station;

const ETHERNET_BYTES: usize = 14;
/// Minimum frame length, in bytes. Shorter frames are padded.
const FRAME_BYTES_MIN: usize = 60;
const IPV6_BYTES: usize = 40;
/// Hop limit of neighbour discovery packets, which shows that no router forwarded them (RFC 4861,
/// section 7.1).
const NEVER_FORWARDED: u8 = 255;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Length of a neighbour solicitation or advertisement up to the end of its target address, in
/// bytes.
const TARGET_BYTES: usize = 24;
const OPTION_SOURCE: u8 = 1;
const OPTION_TARGET: u8 = 2;

/// Returns an ARP request or a neighbour solicitation for `station`. The request is sent to the
/// address `to`, or to all stations if `to` is `None`.
///
/// Returns `None` if the interface has no address of the station's family.
pub(super) fn request(interface: &Interface, station: IpAddr, to: Option<MacAddress>) -> Option<Vec<u8>> {
    match (interface.nearest(station)?, station) {
        (IpAddr::V4(own), IpAddr::V4(station)) => {
            let mut frame = vec![0; FRAME_BYTES_MIN];
            ethernet(&mut frame, to.unwrap_or(MacAddress::BROADCAST), interface.mac, ethertype::ARP);
            let header = ArpHeader {
                operation: arp::REQUEST,
                sender_hardware: interface.mac,
                sender_protocol: own.octets(),
                target_hardware: MacAddress::default(),
                target_protocol: station.octets(),
            };
            header.emit(&mut frame[ETHERNET_BYTES..]).ok()?;
            Some(frame)
        }
        (IpAddr::V6(own), IpAddr::V6(station)) => {
            let station = station.octets();
            // IPv6 uses the solicited-node multicast address of the station (RFC 4291, section
            // 2.7.1; RFC 2464, section 7).
            let mut group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0];
            group[13..].copy_from_slice(&station[13..]);
            let group_mac = MacAddress([0x33, 0x33, group[12], group[13], group[14], group[15]]);
            let (ip, mac) = to.map_or((group, group_mac), |mac| (station, mac));
            let mut frame = vec![0; ETHERNET_BYTES + IPV6_BYTES + TARGET_BYTES + 8];
            ethernet(&mut frame, mac, interface.mac, ethertype::IPV6);
            let packet = &mut frame[ETHERNET_BYTES..];
            let bytes = TARGET_BYTES + 8;
            packet[0] = 0x60;
            packet[4..6].copy_from_slice(&(bytes as u16).to_be_bytes());
            packet[6..8].copy_from_slice(&[protocol::ICMPV6, NEVER_FORWARDED]);
            packet[8..24].copy_from_slice(&own.octets());
            packet[24..40].copy_from_slice(&ip);
            let icmp = &mut packet[IPV6_BYTES..];
            icmp[0] = SOLICITATION;
            icmp[8..24].copy_from_slice(&station);
            icmp[24..26].copy_from_slice(&[OPTION_SOURCE, 1]);
            icmp[26..].copy_from_slice(&interface.mac.0);
            let (own, ip) = (IpAddress::V6(own.octets()), IpAddress::V6(ip));
            let mut sum = Checksum::pseudo_header(own, ip, protocol::ICMPV6, bytes as u32);
            sum.add(icmp);
            icmp[2..4].copy_from_slice(&sum.finish().to_be_bytes());
            Some(frame)
        }
        _ => None,
    }
}

fn ethernet(frame: &mut [u8], to: MacAddress, from: MacAddress, ether_type: u16) {
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&from.0);
    frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
}

/// Returns the station that sent a frame, and the station's Ethernet address. The frame must be an
/// ARP packet, a neighbour solicitation or a neighbour advertisement. Returns `None` for all other
/// frames, for tagged frames, and for frames to other machines.
pub(super) fn announced(settings: &Settings, port: u16, frame: &[u8]) -> Option<(Station, MacAddress)> {
    let interface = settings.interface(port)?;
    let rest = frame.get(ETHERNET_BYTES..)?;
    match u16::from_be_bytes([frame[12], frame[13]]) {
        ethertype::ARP => {
            let header = ArpHeader::parse(&Arp::new_checked(rest).ok()?).ok()?;
            let (sender, target) = (IpAddr::from(header.sender_protocol), IpAddr::from(header.target_protocol));
            // In an ARP announcement, the sender address equals the target address (RFC 5227,
            // section 3). An announcement concerns every machine.
            let is_for_us = interface.addresses.contains(&target) || sender == target;
            let is_ours = interface.addresses.contains(&sender);
            let is_known = matches!(header.operation, arp::REQUEST | arp::REPLY);
            (is_for_us && is_known && !is_ours).then_some(((port, sender), header.sender_hardware))
        }
        ethertype::IPV6 => {
            let packet = godwit_wire::Ipv6::new_checked(rest).ok()?;
            let icmp = packet.payload();
            let is_discovery = packet.next_header() == protocol::ICMPV6 && packet.hop_limit() == NEVER_FORWARDED;
            if !is_discovery || icmp.len() < TARGET_BYTES {
                return None;
            }
            let mut sum = packet.pseudo_header(protocol::ICMPV6, icmp.len() as u32);
            sum.add(icmp);
            if sum.finish() != 0 {
                return None;
            }
            let (station, option) = match icmp[..2] {
                [SOLICITATION, 0] => (packet.source(), OPTION_SOURCE),
                [ADVERTISEMENT, 0] => (*icmp[8..].first_chunk()?, OPTION_TARGET),
                _ => return None,
            };
            let station = IpAddr::from(station);
            if station.is_unspecified() || interface.addresses.contains(&station) {
                return None;
            }
            Some(((port, station), link_address(&icmp[TARGET_BYTES..], option)?))
        }
        _ => None,
    }
}

/// Returns the link-layer address in the neighbour discovery option of type `kind` (RFC 4861,
/// section 4.6.1).
fn link_address(mut options: &[u8], kind: u8) -> Option<MacAddress> {
    while let [option_kind, units, ..] = options {
        let option = options.get(..usize::from(*units) * 8).filter(|option| !option.is_empty())?;
        if *option_kind == kind {
            return option[2..].first_chunk().map(|address| MacAddress(*address));
        }
        options = &options[option.len()..];
    }
    None
}

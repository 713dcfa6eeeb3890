//! ICMP errors about packets that cannot be forwarded.
//!
//! IPv4 errors follow RFC 792, RFC 1191 and RFC 1812. IPv6 errors follow RFC 4443 and RFC 8201.

use std::net::IpAddr;

use godwit_wire::checksum::checksum;
use godwit_wire::{Checksum, IpAddress, protocol};

/// Maximum length of an ICMP error in bytes, for IPv4 and for IPv6. An error quotes as much of the
/// packet as fits (RFC 1812, section 4.3.2.3; RFC 4443, section 3.2).
const MESSAGE_BYTES_MAX: [usize; 2] = [576, 1280];
const HOP_LIMIT: u8 = 64;
const ICMP_BYTES: usize = 8;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

/// Reason why a packet cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The packet exceeds the MTU of the link, given in bytes.
    TooBig(usize),
    /// The TTL or the hop limit of the packet is used up.
    HopLimit,
    /// No route covers the destination.
    NoRoute,
    /// The address of the next station could not be resolved.
    NoHost,
}

/// Returns the ICMP error that tells the sender of `packet` that the packet exceeds the MTU of a
/// link. See [`message`] for the arguments.
pub fn too_big(packet: &[u8], mtu: usize, from: IpAddr) -> Option<Vec<u8>> {
    message(packet, Fault::TooBig(mtu), from)
}

/// Returns an ICMP error for the sender of `packet`, which is an IP packet without its Ethernet
/// header.
///
/// `from` is an address of this machine. Returns `None` if an error about this packet is forbidden
/// (RFC 1122, section 3.2.2; RFC 4443, section 2.4). Also returns `None` if `from` and the packet
/// belong to different address families.
pub fn message(packet: &[u8], fault: Fault, from: IpAddr) -> Option<Vec<u8>> {
    match (packet.first()? >> 4, from) {
        (4, IpAddr::V4(from)) => ipv4(packet, fault, from.octets()),
        (6, IpAddr::V6(from)) => ipv6(packet, fault, from.octets()),
        _ => None,
    }
}

fn ipv4(packet: &[u8], fault: Fault, from: [u8; 4]) -> Option<Vec<u8>> {
    let header_bytes = usize::from(packet[0] & 0x0f) * 4;
    if header_bytes < IPV4_BYTES || packet.len() < header_bytes {
        return None;
    }
    let later_fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0;
    // ICMP types above 18 are treated as errors, and no error may be sent about an error.
    let icmp_error = packet[9] == protocol::ICMP && !matches!(packet.get(header_bytes), Some(0 | 8 | 9 | 10 | 13..=18));
    let host = |address: &[u8]| !matches!(address[0], 0 | 127 | 224..);
    if later_fragment || icmp_error || !host(&packet[12..16]) || packet[16] >= 224 {
        return None;
    }
    let quoted = packet.len().min(MESSAGE_BYTES_MAX[0] - IPV4_BYTES - ICMP_BYTES);
    let mut message = vec![0; IPV4_BYTES + ICMP_BYTES];
    message.extend(&packet[..quoted]);
    let total = message.len() as u16;
    let (header, icmp) = message.split_at_mut(IPV4_BYTES);
    // ICMP errors have the precedence "internetwork control", which is the TOS value 0xc0 (RFC
    // 1812, section 4.3.2.5).
    header[..4].copy_from_slice(&[0x45, 0xc0, (total >> 8) as u8, total as u8]);
    header[8..10].copy_from_slice(&[HOP_LIMIT, protocol::ICMP]);
    header[12..16].copy_from_slice(&from);
    header[16..20].copy_from_slice(&packet[12..16]);
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    // The message begins with its type and code (RFC 792). Bytes 6 and 7 hold the MTU (RFC 1191,
    // section 4).
    icmp[..2].copy_from_slice(&match fault {
        Fault::TooBig(_) => [3, 4],
        Fault::HopLimit => [11, 0],
        Fault::NoRoute => [3, 0],
        Fault::NoHost => [3, 1],
    });
    if let Fault::TooBig(mtu) = fault {
        icmp[6..8].copy_from_slice(&u16::try_from(mtu).unwrap_or(u16::MAX).to_be_bytes());
    }
    let sum = checksum(icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    Some(message)
}

fn ipv6(packet: &[u8], fault: Fault, from: [u8; 16]) -> Option<Vec<u8>> {
    let payload = packet.get(IPV6_BYTES..)?;
    let mut walk = godwit_wire::Extensions::new(packet[6], payload);
    let mut later_fragment = false;
    for step in walk.by_ref() {
        later_fragment |= step.ok()?.fragment().is_some_and(|fragment| fragment.offset_bytes != 0);
        if later_fragment {
            break;
        }
    }
    // ICMPv6 types below 128 are errors. No error may be sent about an error or about a redirect
    // (type 137).
    let icmp_error = walk.protocol() == protocol::ICMPV6 && !matches!(walk.rest().first(), Some(128..=136 | 138..=255));
    let source: [u8; 16] = *packet[8..].first_chunk()?;
    // An error about a multicast packet is forbidden, unless it is "packet too big" (RFC 4443,
    // section 2.4, e.3).
    let to_group = packet[24] == 0xff && !matches!(fault, Fault::TooBig(_));
    if to_group
        || (later_fragment && walk.protocol() == protocol::ICMPV6)
        || icmp_error
        || source[0] == 0xff
        || source[..15] == [0; 15]
    {
        return None;
    }
    let quoted = packet.len().min(MESSAGE_BYTES_MAX[1] - IPV6_BYTES - ICMP_BYTES);
    let mut message = vec![0; IPV6_BYTES + ICMP_BYTES];
    message.extend(&packet[..quoted]);
    let (header, icmp) = message.split_at_mut(IPV6_BYTES);
    header[0] = 0x60;
    header[4..6].copy_from_slice(&(icmp.len() as u16).to_be_bytes());
    header[6..8].copy_from_slice(&[protocol::ICMPV6, HOP_LIMIT]);
    header[8..24].copy_from_slice(&from);
    header[24..40].copy_from_slice(&source);
    icmp[..2].copy_from_slice(&match fault {
        Fault::TooBig(_) => [2, 0],
        Fault::HopLimit => [3, 0],
        Fault::NoRoute => [1, 0],
        Fault::NoHost => [1, 3],
    });
    if let Fault::TooBig(mtu) = fault {
        icmp[4..8].copy_from_slice(&(mtu as u32).to_be_bytes());
    }
    let (source, destination) = (IpAddress::V6(from), IpAddress::V6(source));
    let mut sum = Checksum::pseudo_header(source, destination, protocol::ICMPV6, icmp.len() as u32);
    sum.add(icmp);
    let sum = sum.finish();
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    Some(message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn udp4(source: [u8; 4], word: u16) -> Vec<u8> {
        let mut packet = vec![7; 1400];
        packet[..2].copy_from_slice(&[0x45, 0]);
        packet[2..4].copy_from_slice(&1400_u16.to_be_bytes());
        packet[6..8].copy_from_slice(&word.to_be_bytes());
        packet[9] = protocol::UDP;
        packet[12..16].copy_from_slice(&source);
        packet[16..20].copy_from_slice(&[10, 0, 0, 9]);
        packet
    }

    fn udp6(source: [u8; 16]) -> Vec<u8> {
        let mut packet = vec![7; 1400];
        packet[0] = 0x60;
        packet[4..7].copy_from_slice(&[5, 80, protocol::UDP]);
        packet[8..24].copy_from_slice(&source);
        packet[24..40].fill(0x20);
        packet
    }

    const FROM4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const FROM6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

    #[test]
    fn reports_the_mtu_to_the_sender() {
        let packet = udp4([10, 0, 0, 5], 0x4000);
        let message = too_big(&packet, 1300, FROM4).unwrap();
        let ip = godwit_wire::Ipv4::new_checked(&message[..]).unwrap();
        ip.verify_checksum().unwrap();
        assert_eq!((message.len(), ip.source(), ip.destination()), (576, [192, 0, 2, 1], [10, 0, 0, 5]));
        let icmp = godwit_wire::Icmpv4::new_checked(ip.payload()).unwrap();
        icmp.verify_checksum().unwrap();
        assert_eq!((&ip.payload()[..2], &ip.payload()[4..8]), (&[3, 4][..], &[0, 0, 5, 20][..]));
        assert_eq!(icmp.payload(), &packet[..548]);

        let source = [0x20, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
        let packet = udp6(source);
        let message = too_big(&packet, 1300, FROM6).unwrap();
        let ip = godwit_wire::Ipv6::new_checked(&message[..]).unwrap();
        assert_eq!((message.len(), &message[24..40]), (1280, &source[..]));
        let icmp = godwit_wire::Icmpv6::new_checked(ip.payload()).unwrap();
        icmp.verify_checksum(ip.pseudo_header(protocol::ICMPV6, ip.payload().len() as u32)).unwrap();
        assert_eq!((ip.payload()[0], &ip.payload()[4..8]), (2, &[0, 0, 5, 20][..]));
        assert_eq!(icmp.payload(), &packet[..1232]);
    }

    #[test]
    fn sends_no_error_where_the_rfcs_forbid_one() {
        for source in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
            assert_eq!(too_big(&udp4(source, 0x4000), 1300, FROM4), None, "{source:?}");
        }
        assert_eq!(too_big(&udp4([10, 0, 0, 5], 5), 1300, FROM4), None, "error about a later fragment");
        let mut error = udp4([10, 0, 0, 5], 0x4000);
        error[9] = protocol::ICMP;
        error[20] = 3;
        assert_eq!(too_big(&error, 1300, FROM4), None);
        error[20] = 8;
        assert!(too_big(&error, 1300, FROM4).is_some(), "no error about an echo request");
        let mut error = udp6([0x20; 16]);
        error[6] = protocol::ICMPV6;
        error[40] = 1;
        assert_eq!(too_big(&error, 1300, FROM6), None);
        error[40] = 128;
        assert!(too_big(&error, 1300, FROM6).is_some());
        assert_eq!(too_big(&udp6([0; 16]), 1300, FROM6), None);
        assert_eq!(too_big(&udp6([0xff; 16]), 1300, FROM6), None);
        assert_eq!(too_big(&udp6([0x20; 16]), 1300, FROM4), None, "IPv4 source for an IPv6 error");
    }

    #[test]
    fn each_fault_has_its_icmp_type_and_code() {
        let (packet4, packet6) = (udp4([10, 0, 0, 5], 0x4000), udp6([0x20; 16]));
        for (fault, four, six) in
            [(Fault::HopLimit, [11, 0], [3, 0]), (Fault::NoRoute, [3, 0], [1, 0]), (Fault::NoHost, [3, 1], [1, 3])]
        {
            let error = message(&packet4, fault, FROM4).unwrap();
            assert_eq!((&error[20..22], &error[24..28]), (&four[..], &[0; 4][..]));
            godwit_wire::Icmpv4::new_checked(&error[20..]).unwrap().verify_checksum().unwrap();
            let error = message(&packet6, fault, FROM6).unwrap();
            assert_eq!((&error[40..42], &error[44..48]), (&six[..], &[0; 4][..]));
            let mut to_group = packet6.clone();
            to_group[24] = 0xff;
            assert_eq!(message(&to_group, fault, FROM6), None);
        }
    }

    proptest! {
        #[test]
        fn accepts_arbitrary_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..1500), six: bool, mtu: usize) {
            if let Some(first) = bytes.first_mut() {
                *first = if six { 0x60 } else { 0x45 };
            }
            let message = too_big(&bytes, mtu, if six { FROM6 } else { FROM4 });
            prop_assert!(message.is_none_or(|message| message.len() <= 1280));
        }
    }
}

//! Decapsulates ESP in UDP in transport mode behind a NAT (RFC 3948, section 3.1.2). The checksums
//! of the decapsulated packets must match the translated addresses.

use godwit_test_cases::ipsec::batch::{Sa, build, forms, name, process, protect_all};
use godwit_wire::checksum::checksum;

use super::esp::ethernet;

const UDP: u8 = 17;
const TCP: u8 = 6;

/// Returns the stanzas for the outbound and the inbound SA in transport mode.
fn ends(is_ipv6: bool) -> (String, String) {
    let more = "mode = \"transport\"\nudp_encapsulation = {}\n".to_owned();
    let out = Sa { more, ..Sa::new("host", 0x3001, "out", 9) };
    let inbound = Sa { direction: "in", ..out.clone() };
    let ends = [out.stanza() + &protect_all("host"), inbound.stanza()];
    let [out, inbound] = ends.map(|stanza| match is_ipv6 {
        true => stanza.replace("192.0.2.1", "2001:db8::1").replace("192.0.2.2", "2001:db8::2"),
        false => stanza,
    });
    (out, inbound)
}

/// Returns the offset and the size of the source address.
fn source(is_ipv6: bool) -> (usize, usize) {
    if is_ipv6 { (8, 16) } else { (12, 4) }
}

/// Returns the bytes that the TCP or UDP checksum covers, for a packet without options and
/// extension headers.
fn covered(packet: &[u8], protocol: u8) -> Vec<u8> {
    let is_ipv6 = packet[0] >> 4 == 6;
    let (at, address_bytes) = source(is_ipv6);
    let transport = &packet[at + 2 * address_bytes..];
    let length = (transport.len() as u32).to_be_bytes();
    [&packet[at..at + 2 * address_bytes], &length, &[0, 0, 0, protocol], transport].concat()
}

/// Returns a packet with correct checksums.
fn packet(is_ipv6: bool, protocol: u8, payload_bytes: usize) -> Vec<u8> {
    let header_bytes = if protocol == TCP { 20 } else { 8 };
    let transport_bytes = header_bytes + payload_bytes;
    let mut packet = match is_ipv6 {
        true => [&[0x60, 0, 0, 0, 0, transport_bytes as u8, protocol, 64][..], &[0; 32]].concat(),
        false => {
            let total = 20 + transport_bytes as u8;
            vec![0x45, 0, 0, total, 0, 1, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]
        }
    };
    if is_ipv6 {
        for (at, last) in [(8, 1), (24, 2)] {
            packet[at..at + 4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
            packet[at + 15] = last;
        }
    } else {
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let at = packet.len();
    packet.extend([0x12, 0x34, 0, 53]);
    packet.extend(if protocol == TCP { vec![7; 16] } else { vec![0, transport_bytes as u8, 0, 0] });
    packet.extend((0..payload_bytes).map(|i| (i * 37 + 11) as u8));
    let checksum_at = at + if protocol == TCP { 16 } else { 6 };
    packet[checksum_at..checksum_at + 2].fill(0);
    let sum = checksum(&covered(&packet, protocol));
    packet[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Changes the source address and the source port of a frame, as a NAT does.
fn translate(frame: &mut [u8], is_ipv6: bool) {
    let packet = &mut frame[14..];
    let (at, address_bytes) = source(is_ipv6);
    packet[at + address_bytes - 3..at + address_bytes].copy_from_slice(&[51, 100, 7]);
    packet[at + 2 * address_bytes] ^= 0x55;
    if !is_ipv6 {
        packet[10..12].fill(0);
        let sum = checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

#[test]
fn checksums_are_correct_after_a_nat() {
    for (is_ipv6, protocol) in [(false, UDP), (false, TCP), (true, UDP), (true, TCP)] {
        let (out, inbound) = ends(is_ipv6);
        let plain: Vec<Vec<u8>> = (0..60).map(|payload_bytes| packet(is_ipv6, protocol, payload_bytes)).collect();
        let frames: Vec<Vec<u8>> = plain
            .iter()
            .map(|packet| {
                let mut frame = ethernet(packet, false);
                frame[12..14].copy_from_slice(if is_ipv6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
                frame
            })
            .collect();
        for form in forms() {
            let sent = process(&*build(&out), form, &frames);
            let mut sent: Vec<Vec<u8>> = sent.into_iter().map(|packet| packet.frame).collect();
            sent.iter_mut().for_each(|frame| translate(frame, is_ipv6));
            let function = build(&inbound);
            for (received, plain) in process(&*function, form, &sent).iter().zip(&plain) {
                assert_eq!(name(&*function, received.outcome), "decrypted", "{form}");
                let packet = &received.frame[14..];
                let (at, address_bytes) = source(is_ipv6);
                assert_ne!(packet[at..at + address_bytes], plain[at..at + address_bytes], "{form}");
                assert_eq!(checksum(&covered(packet, protocol)), 0, "{form}: {protocol}, {} bytes", plain.len());
            }
        }
    }
}

/// A UDP checksum of 0 means that there is no checksum (RFC 768).
#[test]
fn packets_without_udp_checksum_stay_without() {
    let (out, inbound) = ends(false);
    let mut plain = packet(false, UDP, 33);
    plain[26..28].fill(0);
    for form in forms() {
        let mut sent = process(&*build(&out), form, &[ethernet(&plain, false)]).remove(0).frame;
        translate(&mut sent, false);
        let received = process(&*build(&inbound), form, &[sent]).remove(0);
        assert_eq!(received.frame[14 + 20..], plain[20..], "{form}");
    }
}

//! Packets of SAs, and mutations of them that an attacker might send.

use std::sync::Arc;

use godwit_function::Function;
use godwit_test_support::frame::set_ipv4_checksum;
use godwit_test_support::{FrameBuilder, Random};
use godwit_wire::ethertype;

use super::association::{Association, Headers};
use super::batch::{Form, build, name, process};

/// SA with its inner packets and the encapsulated frames.
#[derive(Clone)]
pub struct Link {
    /// SA of the packets.
    pub association: Association,
    /// Inner packets.
    pub plain: Vec<Vec<u8>>,
    /// Frames with the encapsulated packets, in the same order.
    pub encapsulated: Vec<Vec<u8>>,
}

/// Returns an untagged frame with an IP packet.
pub fn ethernet(packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 6 { ethertype::IPV6 } else { ethertype::IPV4 };
    FrameBuilder::new().ethernet(ethertype, packet)
}

/// Returns packets of these lengths for each SA, encapsulated by `ref`.
pub fn links(associations: Vec<Association>, random: &mut Random, lengths: &[usize]) -> Vec<Link> {
    let sender = sender(&associations);
    let link = |association: Association| {
        let plain = lengths.iter().map(|&length| association.plain(random, length, Headers::Plain)).collect();
        Link { plain, encapsulated: Vec::new(), association }
    };
    let mut links: Vec<Link> = associations.into_iter().map(link).collect();
    encapsulate(&*sender, Form::Ref, &mut links);
    links
}

/// Returns the function with the outbound SAs.
pub fn sender(associations: &[Association]) -> Arc<dyn Function> {
    build(&associations.iter().map(Association::outbound).collect::<String>())
}

/// Encapsulates all packets with the next sequence numbers of their SAs.
pub fn encapsulate(sender: &dyn Function, form: Form, links: &mut [Link]) {
    for Link { association, plain, encapsulated } in links {
        let frames: Vec<Vec<u8>> = plain.iter().map(|packet| ethernet(packet)).collect();
        let packets = process(sender, form, &frames).into_iter().map(|packet| {
            assert_eq!(name(sender, packet.outcome), "encrypted", "{association}");
            packet.frame
        });
        *encapsulated = packets.collect();
    }
}

/// Returns the offset of ESP or AH in a frame of a [`Link`], whose packets have no extension
/// headers.
pub fn header_at(association: &Association) -> usize {
    14 + if association.source.is_ipv6() { 40 } else { 20 } + if association.udp { 8 } else { 0 }
}

/// Sets the lengths in the IP and UDP headers to match the frame.
pub fn with_lengths(association: &Association, mut frame: Vec<u8>) -> Vec<u8> {
    let bytes = frame.len() - 14;
    let udp_at = header_at(association) - 8;
    if association.udp {
        let length = ((frame.len() - udp_at) as u16).to_be_bytes();
        frame[udp_at + 4..udp_at + 6].copy_from_slice(&length);
    }
    if association.source.is_ipv6() {
        frame[18..20].copy_from_slice(&((bytes - 40) as u16).to_be_bytes());
    } else {
        frame[16..18].copy_from_slice(&(bytes as u16).to_be_bytes());
        if bytes >= usize::from(frame[14] & 15) * 4 && bytes >= 20 {
            set_ipv4_checksum(&mut frame[14..]);
        }
    }
    frame
}

/// Returns whether a frame is an acceptable result for a modified packet: its authenticated part
/// equals the original.
pub fn is_acceptable(link: &Link, index: usize, frame: &[u8]) -> bool {
    let Some(packet) = frame.get(14..) else { return false };
    let plain = &link.plain[index];
    let association = &link.association;
    if association.tunnel {
        // The outer header may add a congestion mark, which also changes the checksum.
        let mut expected = plain.clone();
        let mut found = packet.to_vec();
        for packet in [&mut expected, &mut found] {
            if association.inner_ipv6() {
                packet[1] &= 0xcf;
            } else {
                packet[1] &= 0xfc;
                packet[10..12].fill(0);
            }
        }
        return expected == found;
    }
    // ESP does not authenticate the header before it. AH does not authenticate mutable fields.
    let header_bytes = if association.inner_ipv6() { 40 } else { 20 };
    let found_bytes = if packet[0] >> 4 == 6 { 40 } else { usize::from(packet[0] & 15) * 4 };
    plain[header_bytes..] == packet[found_bytes..] && packet[0] >> 4 == plain[0] >> 4
}

/// Mutates a frame: bits, bytes or its length. Some frames then get matching lengths and checksums.
pub fn mutate(random: &mut Random, association: &Association, frame: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..1 + random.below(3) {
        if frame.len() < 15 {
            return;
        }
        let range = if random.below(3) == 0 { frame.len() } else { frame.len().min(90) };
        let at = if random.below(50) == 0 { random.below(14) } else { 14 + random.below(range - 14) };
        match random.below(8) {
            0..3 => frame[at] ^= 1 << random.below(8),
            3 => frame[at] = random.next_u8(),
            4 => frame[at] = random.pick(&[0, 1, 4, 6, 17, 41, 43, 44, 50, 51, 59, 60, 0x7f, 0x80, 0xff]),
            5 => frame.truncate(at.max(14)),
            6 => {
                // Copy a part of another packet.
                let bytes = random.below(32).min(frame.len() - at).min(other.len().saturating_sub(at));
                frame[at..at + bytes].copy_from_slice(&other[at.min(other.len())..][..bytes]);
            }
            _ => frame.insert(at, random.next_u8()),
        }
    }
    let front = header_at(association);
    if random.below(2) == 0 && frame.len() >= front {
        *frame = with_lengths(association, std::mem::take(frame));
    }
}

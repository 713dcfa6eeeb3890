//! Random frames: valid ones, damaged ones, and random bytes.

use godwit_test_support::Random;
use godwit_test_support::frame::set_ipv4_checksum;

/// Returns the ones' complement sum of big-endian words (RFC 1071). Zero pads an odd last byte.
pub(crate) fn ones_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns a frame of any kind. Most are valid IPv4, to one of `destinations` or to a random
/// address, and some of `words` are in the payload. Others are IPv6, random bytes, truncated, or
/// have one bit changed.
pub(crate) fn random_frame(random: &mut Random, destinations: &[u32], words: &[&[u8]]) -> Vec<u8> {
    let mut frame = random.bytes(12);
    if random.below(4) == 0 {
        frame.extend([0x81, 0x00]);
        frame.extend(random.bytes(2));
    }
    match random.below(8) {
        0 => {
            let count = random.below(80);
            frame.extend(random.bytes(count));
        }
        1 => append_ipv6(random, words, &mut frame),
        _ => append_ipv4(random, destinations, words, &mut frame),
    }
    match random.below(8) {
        0 => frame.truncate(random.below(frame.len() + 1)),
        1 => {
            let at = random.below(frame.len().min(60));
            frame[at] ^= 1 << random.below(8);
        }
        2 => frame.resize(frame.len() + random.below(20), 0),
        _ => {}
    }
    frame
}

fn append_ipv4(random: &mut Random, destinations: &[u32], words: &[&[u8]], frame: &mut Vec<u8>) {
    let protocol = random.pick(&[6, 17, 17, 17, 1]);
    let l4 = l4(random, protocol, words);
    let header_words = random.pick(&[5, 5, 5, 6, 15]);
    let mut ip = vec![0x40 | header_words as u8, 0];
    ip.extend(((header_words * 4 + l4.len()) as u16).to_be_bytes());
    ip.extend(random.bytes(2));
    ip.extend(random.pick(&[0_u16, 0, 0, 0x4000, 0x2000, 0x00b9]).to_be_bytes());
    ip.extend([random.pick(&[64, 64, 255, 2, 1, 0]), protocol, 0, 0]);
    ip.extend(random.pick(&[[10, 1, 2, 3], [192, 0, 2, 9], [198, 51, 100, 77], [127, 0, 0, 1], [224, 0, 0, 5]]));
    let anywhere = random.next_u32();
    let destination = random.pick(destinations);
    ip.extend(random.pick(&[destination, destination, destination, anywhere]).to_be_bytes());
    ip.extend(random.bytes(header_words * 4 - 20));
    set_ipv4_checksum(&mut ip);
    frame.extend([0x08, 0x00]);
    frame.extend(ip);
    frame.extend(l4);
}

fn append_ipv6(random: &mut Random, words: &[&[u8]], frame: &mut Vec<u8>) {
    let protocol = random.pick(&[6, 17, 58, 0, 44]);
    let l4 = l4(random, protocol, words);
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((l4.len() as u16).to_be_bytes());
    frame.extend([protocol, 64]);
    frame.extend(random.bytes(32));
    frame.extend(l4);
}

fn l4(random: &mut Random, protocol: u8, words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = random.bytes(8);
    if protocol == 6 {
        let data_offset = random.pick(&[5_u8, 5, 8, 4, 15]);
        bytes = random.bytes(usize::from(data_offset) * 4);
        if let Some(byte) = bytes.get_mut(12) {
            *byte = data_offset << 4;
        }
    }
    for _ in 0..random.below(6) {
        let count = random.below(30);
        bytes.extend(random.bytes(count));
        let word = random.pick(words);
        bytes.extend(word);
    }
    bytes
}

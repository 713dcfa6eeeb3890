//! SAs of every IPsec suite, in both directions and all modes, and packets for them.
//!
//! Round keys and hash states are random words that are not derived from a key, because the kernel
//! cannot detect that. The powers of the GHASH key are real powers of a random key, because the
//! forms use different ones.

use godwit_kernels::{IPSEC, levels};
use godwit_test_support::Random;
use godwit_test_support::frame::set_ipv4_checksum;

use super::Case;
use super::batch::{Batch, Lines};
use super::chunk::Part;
use super::ipsec::{inverse_keys, write_image};

/// Number of pairs of an outbound and an inbound SA.
const PAIRS: u64 = 6;
const SEQUENCE_BITS: u32 = 44;

/// Flags of an SA, as in `kernels/ipsec/image.h`.
const USED: u32 = 0x01;
const INBOUND: u32 = 0x02;
const TRANSPORT: u32 = 0x04;
const OUTER_IPV6: u32 = 0x08;
const ESN: u32 = 0x10;
const UDP: u32 = 0x20;
const ANY_TUNNEL_POLICY: u32 = 0x3c0;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Row of `kernels/ipsec/suite.h`.
#[derive(Clone, Copy)]
struct Suite {
    number: u8,
    name: &'static str,
    is_ah: bool,
    is_cbc: bool,
    is_ghash: bool,
    key_bytes: usize,
    /// Lengths of an ICV that the suite allows.
    icv_bytes: &'static [u8],
}

fn suites() -> Vec<Suite> {
    let header = include_str!("../../../ipsec/suite.h");
    let rows = header.lines().filter_map(|line| line.trim().strip_prefix("X(")?.split_once(')'));
    let rows = rows.map(|(row, _)| row.split(", ").collect::<Vec<_>>());
    let suites: Vec<Suite> = rows
        .filter_map(|row| {
            let &[number, name, protocol, cipher, key_bytes, authentication] = &row[..] else { return None };
            let authentication = authentication.strip_prefix("GW_IPSEC_AUTH_")?;
            Some(Suite {
                number: number.parse().ok()?,
                name,
                is_ah: protocol == "GW_IPSEC_AH",
                is_ghash: authentication == "GHASH",
                is_cbc: cipher == "GW_IPSEC_CIPHER_CBC",
                key_bytes: key_bytes.parse().ok()?,
                icv_bytes: match (authentication, cipher) {
                    ("NONE", _) => &[0],
                    ("SHA1" | "XCBC" | "CMAC", _) => &[12],
                    ("SHA384", _) => &[24],
                    ("SHA512", _) => &[32],
                    ("GHASH" | "CCM", "GW_IPSEC_CIPHER_CTR") => &[8, 12, 16],
                    _ => &[16],
                },
            })
        })
        .collect();
    assert!(suites.len() > 20, "suite.h has another format");
    suites
}

/// Pair of SAs, as far as its packets depend on it.
#[derive(Clone, Copy)]
struct Pair {
    flags: u32,
}

impl Pair {
    fn version(self) -> u8 {
        if self.flags & OUTER_IPV6 != 0 { 6 } else { 4 }
    }

    fn is_transport(self) -> bool {
        self.flags & TRANSPORT != 0
    }
}

/// Returns an address of the SAs and of all inner packets. They are equal, because the kernel looks
/// up an inbound SA in transport mode by the destination.
fn end(version: u8, last: u32) -> [u32; 4] {
    if version == 4 { [0xc000_0200 | last, 0, 0, 0] } else { [0x2001_0db8, 0, 0x1234_5678, last] }
}

fn image(suite: Suite, random: &mut Random) -> (Lines, Vec<Pair>) {
    let mut pairs = Vec::new();
    let mut sas: Vec<u32> = Vec::new();
    let mut selectors: Vec<u8> = Vec::new();
    for index in 0..PAIRS as u32 {
        // Tunnel and transport mode over both IP versions, and two random combinations.
        let mode = if index < 4 { index } else { random.below(4) };
        let mut flags = USED | (mode * TRANSPORT) | random.pick(&[0, ESN]);
        if mode & 1 == 0 {
            flags |= random.next_u32() & ANY_TUNNEL_POLICY;
        }
        if !suite.is_ah {
            flags |= random.pick(&[0, UDP]);
        }
        let pair = Pair { flags };
        let icv_bytes = random.pick(suite.icv_bytes);
        let mut authentication: Vec<u32> = (0..16).map(|_| random.next_u32()).collect();
        let more: Vec<u32> = (0..48).map(|_| random.next_u32()).collect();
        let round_key_words = suite.key_bytes + 28;
        let mut keys: Vec<u32> = (0..60).map(|_| random.next_u32()).collect();
        if suite.is_ghash {
            let powers = powers(&authentication[..4]);
            authentication = powers[..16].to_vec();
            // With AES-128, powers 5 to 8 follow the round keys.
            if suite.key_bytes == 16 {
                keys[round_key_words..].copy_from_slice(&powers[16..]);
            }
        }
        if suite.is_cbc {
            keys.truncate(round_key_words);
        }
        let salt = random.next_u32();
        let ports = random.next_u32();
        for direction in [0, INBOUND] {
            let kind = u32::from_le_bytes([suite.number, icv_bytes, 61, 0x2e]);
            sas.extend([0x1000 + index, flags | direction, salt, kind]);
            sas.extend(end(pair.version(), 1));
            sas.extend(end(pair.version(), 2));
            sas.extend([ports, index, direction / INBOUND, 0]);
            sas.extend(&authentication);
            let mut keys = if suite.is_cbc && direction == INBOUND { inverse_keys(&keys) } else { keys.clone() };
            keys.resize(64, 0);
            sas.extend(keys);
            sas.extend(&more);
        }
        selectors.extend(selector(random));
        pairs.push(pair);
    }
    let sas: Vec<u8> = sas.iter().flat_map(|word| word.to_le_bytes()).collect();
    (write_image(&sas, &selectors), pairs)
}

/// Returns the first eight powers of a 128-bit polynomial with the product of POLYVAL, `a b x^-128`
/// (RFC 8452, section 3).
fn powers(key: &[u32]) -> Vec<u32> {
    let key = key.iter().rev().fold(0, |number, word| number << 32 | u128::from(*word));
    let dot = |a: u128, b: u128| {
        (0..128).fold(0, |product, bit| {
            let sum: u128 = product ^ if b >> bit & 1 == 1 { a } else { 0 };
            (sum >> 1) ^ if sum & 1 == 1 { 0xe1 << 120 } else { 0 }
        })
    };
    let powers = std::iter::successors(Some(key), |power| Some(dot(key, *power))).take(8);
    powers.flat_map(|power| (0..4).map(move |word| (power >> (32 * word)) as u32)).collect()
}

/// Returns a selector. Two of three match every packet.
fn selector(random: &mut Random) -> [u8; 64] {
    let mut selector = [0; 64];
    let mut protocol: u16 = 256;
    if random.below(3) == 0 {
        // UDP from 2001:db8::/29, port 0 to 0x7fff.
        selector[..4].copy_from_slice(&0x2001_0db8_u32.to_le_bytes());
        (selector[32], selector[34], selector[35]) = (29, 6, 1);
        protocol = 17;
        for (at, port) in [(40, 0), (42, 0x7fff), (44, 0), (46, 0xffff)] {
            selector[at..at + 2].copy_from_slice(&u16::to_le_bytes(port));
        }
    }
    selector[36..38].copy_from_slice(&protocol.to_le_bytes());
    selector
}

fn ipv4(random: &mut Random, payload_bytes: usize) -> Vec<u8> {
    let mut options = Vec::new();
    for _ in 0..random.below(4) {
        options.extend(match random.below(6) {
            0 => vec![1],
            1 => vec![0x94, 4, 0, 0],
            2 => [&[7, 7, 4][..], &random.bytes(4)].concat(),
            3 => [&[random.pick(&[131, 137]), 11, random.pick(&[4, 8, 12])][..], &random.bytes(8)].concat(),
            4 => [&[0x44, 8][..], &random.bytes(6)].concat(),
            _ => random.bytes(2),
        });
    }
    options.truncate(40);
    options.resize(options.len().next_multiple_of(4), 0);
    let header_bytes = 20 + options.len();
    let mut packet = vec![0x40 | (header_bytes / 4) as u8, random.next_u8()];
    packet.extend(((header_bytes + payload_bytes) as u16).to_be_bytes());
    packet.extend(random.bytes(2));
    // DF in some packets. Some are fragments.
    packet.extend(random.pick(&[[0, 0], [0x40, 0], [0, 0], [0x40, 0], [0, 0], [0x20, 0], [0x20, 3], [0, 7]]));
    packet.extend([random.next_u8(), random.pick(&[17, 17, 6, 1]), 0, 0]);
    packet.extend(end(4, 1)[0].to_be_bytes());
    packet.extend(end(4, 2)[0].to_be_bytes());
    packet.extend(options);
    set_ipv4_checksum(&mut packet);
    packet.extend(random.bytes(payload_bytes));
    packet
}

fn ipv6(random: &mut Random, payload_bytes: usize) -> Vec<u8> {
    let mut kinds = Vec::new();
    for _ in 0..random.below(4) {
        kinds.push(random.pick(&[HOP_BY_HOP, DESTINATION, DESTINATION, ROUTING, ROUTING, FRAGMENT]));
    }
    let last = random.pick(&[17, 17, 6, 58, 59]);
    let mut extensions = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        let mut body = match *kind {
            FRAGMENT => [&[0, 0, random.pick(&[0, 8]), random.pick(&[0, 1])][..], &random.bytes(4)].concat(),
            ROUTING => {
                let addresses = random.below(4);
                let left = random.pick(&[0, 0, 1, 2, 3]);
                let kind = random.pick(&[0, 0, 0, 2, 4]);
                [&[0, 2 * addresses as u8, kind, left, 0, 0, 0, 0][..], &random.bytes(16 * addresses)].concat()
            }
            _ => {
                let mut options = vec![0, 0];
                for _ in 0..random.below(4) {
                    let bytes = random.below(30);
                    let kind = random.pick(&[0x05, 0x3e, 0x1e, 0xfe, 1]);
                    options.extend([&[kind, bytes as u8][..], &random.bytes(bytes)].concat());
                }
                options.resize(options.len().next_multiple_of(8), 0);
                options[1] = (options.len() / 8 - 1) as u8;
                options
            }
        };
        body[0] = kinds.get(index + 1).copied().unwrap_or(last);
        extensions.extend(body);
    }
    let mut packet = vec![0x60 | random.next_u8() & 15];
    packet.extend(random.bytes(3));
    packet.extend(((extensions.len() + payload_bytes) as u16).to_be_bytes());
    packet.extend([kinds.first().copied().unwrap_or(last), random.next_u8()]);
    packet.extend([1, 2].iter().flat_map(|&last| end(6, last)).flat_map(u32::to_be_bytes));
    packet.extend(extensions);
    packet.extend(random.bytes(payload_bytes));
    packet
}

/// Returns a frame for a pair of SAs. In most frames, the IP version suits the SA.
fn frame(random: &mut Random, pair: Pair) -> Vec<u8> {
    let version = if pair.is_transport() && random.below(16) != 0 { pair.version() } else { random.pick(&[4, 6]) };
    // One of six packets has no payload.
    let limit = random.pick(&[1, 100, 100, 100, 100, 600]);
    let payload_bytes = random.below(limit);
    let mut frame = random.bytes(12);
    if random.below(4) == 0 {
        frame.extend([0x81, 0, 1, 2]);
    }
    match version {
        4 => frame.extend([&[0x08, 0x00][..], &ipv4(random, payload_bytes)].concat()),
        _ => frame.extend([&[0x86, 0xdd][..], &ipv6(random, payload_bytes)].concat()),
    }
    frame
}

/// Sometimes changes the frame: a bit, its length, a byte of its headers, or its ECN bits.
fn disturb(random: &mut Random, frame: &mut Vec<u8>) {
    match random.below(8) {
        0 if !frame.is_empty() => {
            let at = random.below(frame.len());
            frame[at] ^= 1 << random.below(8);
        }
        1 => frame.truncate(random.below(frame.len() + 1)),
        2 if frame.len() > 60 => {
            let at = 12 + random.below(48);
            frame[at] = random.next_u8();
        }
        3 => mark_congestion(frame),
        _ => {}
    }
}

/// Sets the ECN bits of a frame with valid headers.
fn mark_congestion(frame: &mut [u8]) {
    let l3 = if frame[12] == 0x81 { 18 } else { 14 };
    let Some(packet) = frame.get_mut(l3..).filter(|packet| packet.len() >= 20) else { return };
    if packet[0] >> 4 == 6 {
        packet[1] |= 3 << 4;
        return;
    }
    packet[1] |= 3;
    set_ipv4_checksum(packet);
}

/// Returns `count` packets for every suite in both directions.
pub(crate) fn suite_parts(count: usize, seed: u64) -> Vec<Part> {
    let mut random = Random::new(seed);
    suites().into_iter().flat_map(|suite| parts_of(suite, count, &mut random)).collect()
}

fn parts_of(suite: Suite, count: usize, random: &mut Random) -> [Part; 2] {
    let (image, pairs) = image(suite, random);
    let variant = u32::from(suite.number) * 2;
    let case = |variant| Case { name: suite.name, kernel: IPSEC, variant, image: image.clone() };
    let numbers: Vec<(u64, u64)> =
        (0..count).map(|_| (random.below(PAIRS), random.next_u64() >> (20 + random.below(40)))).collect();
    let parameter = |(pair, sequence): (u64, u64), direction| (2 * pair + direction) << SEQUENCE_BITS | sequence;
    let plain: Vec<Vec<u8>> = numbers.iter().map(|&(pair, _)| frame(random, pairs[pair as usize])).collect();
    let outbound: Vec<u64> = numbers.iter().map(|&number| parameter(number, 0)).collect();
    let mut sealed = Batch::new(&[]);
    plain.iter().for_each(|frame| sealed.push(frame, 96, 64));
    sealed.parameters.clone_from(&outbound);
    sealed.run(&levels()[0], IPSEC, variant, &image);
    let mut frames: Vec<Vec<u8>> = (0..count).map(|index| sealed.frame(index).to_vec()).collect();
    frames.iter_mut().for_each(|frame| disturb(random, frame));
    let mut plain = plain;
    plain.iter_mut().for_each(|frame| {
        if random.below(4) == 0 {
            disturb(random, frame)
        }
    });
    let mut room = |_: &Vec<u8>| match random.below(16) {
        0 => (random.below(90), 64),
        1 => (90, 0),
        _ => (88 + random.below(30), 64),
    };
    let [plain_rooms, frame_rooms] = [&plain, &frames].map(|frames| frames.iter().map(&mut room).collect());
    let inbound = numbers.iter().map(|&number| parameter(number, 1)).collect();
    [
        Part { case: case(variant), frames: plain, parameters: outbound, rooms: plain_rooms },
        Part { case: case(variant + 1), frames, parameters: inbound, rooms: frame_rooms },
    ]
}

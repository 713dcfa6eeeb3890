//! SAs with random keys, and packets for them in both directions.
//!
//! Round keys and HMAC states are random words that are not derived from a key, because the kernel
//! cannot detect that.

use godwit_kernels::{IPSEC, levels};
use godwit_test_support::Random;
use godwit_test_support::frame::set_ipv4_checksum;

use super::Case;
use super::batch::{Batch, Lines};
use super::chunk::Part;
use super::frames::random_frame;
use super::{DESTINATIONS, PATTERNS};

/// Number of pairs of an outbound and an inbound SA. The inbound SA of the last pair has other
/// round keys, so that authentic packets decrypt to random bytes. The inbound SA of the first pair
/// accepts every packet, the others accept only UDP.
const PAIRS: usize = 4;
const SA_BYTES: usize = 576;
const SELECTOR_BYTES: usize = 64;

pub(crate) fn ipsec_image() -> Lines {
    let mut random = Random::new(77);
    let mut sas = Vec::new();
    let mut selectors = Vec::new();
    for pair in 0..PAIRS {
        let keys: Vec<u32> = (0..44).map(|_| random.next_u32()).collect();
        let states: Vec<u32> = (0..16).map(|_| random.next_u32()).collect();
        let inverse = if pair + 1 == PAIRS { keys.clone() } else { inverse_keys(&keys) };
        for (direction, keys) in [(0, &keys), (1, &inverse)] {
            let front = [0x1000 + pair as u32, 1 | direction << 1, 0, u32::from_le_bytes([0, 12, 64, 0])];
            let endpoints = [0xc000_0201, 0, 0, 0, 0xc000_0202, 0, 0, 0];
            let back = [0, pair as u32, direction, 0];
            let sa: Vec<u32> = [&front[..], &endpoints, &back, &states, keys, &[0; 68]].concat();
            sas.extend(sa.iter().flat_map(|word| word.to_le_bytes()));
        }
        let mut selector = [0; SELECTOR_BYTES];
        let protocol: u16 = if pair == 0 { 256 } else { 17 };
        selector[34] = 4;
        selector[36..38].copy_from_slice(&protocol.to_le_bytes());
        selectors.extend(selector);
    }
    assert_eq!(sas.len(), 2 * PAIRS * SA_BYTES);
    write_image(&sas, &selectors)
}

/// Returns a table image with these SAs and selectors.
pub(crate) fn write_image(sas: &[u8], selectors: &[u8]) -> Lines {
    let mut image = Lines::zeroed(64);
    let sa_offset = image.append(sas) as u32;
    let selector_offset = image.append(selectors) as u32;
    let [sa_count, selector_count] = [sas.len() / SA_BYTES, selectors.len() / SELECTOR_BYTES].map(|count| count as u32);
    let header = [0x4553_5049, sa_count, sa_offset, selector_count, selector_offset];
    for (bytes, word) in image.bytes_mut().chunks_exact_mut(4).zip(header) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    image
}

/// Returns the round keys of the equivalent inverse cipher (FIPS 197, section 5.3.5): in reverse
/// order, with InvMixColumns applied to all except the first and the last.
pub(crate) fn inverse_keys(keys: &[u32]) -> Vec<u32> {
    let last = keys.len() / 4 - 1;
    let rounds = keys.chunks_exact(4).rev().enumerate();
    let is_outer = move |i| i == 0 || i == last;
    rounds.flat_map(|(i, keys)| keys.iter().map(move |&key| if is_outer(i) { key } else { unmix(key) })).collect()
}

fn unmix(column: u32) -> u32 {
    let bytes = column.to_le_bytes();
    u32::from_le_bytes(std::array::from_fn(|row| {
        (0..4).fold(0, |sum, i| sum ^ times([14, 11, 13, 9][i], bytes[(row + i) % 4]))
    }))
}

/// Returns the product of `a` and `b` in GF(2^8) (FIPS 197, section 4.2).
fn times(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while a != 0 {
        product ^= b * (a & 1);
        b = (b << 1) ^ ((b >> 7) * 0x1b);
        a >>= 1;
    }
    product
}

/// Returns a frame with a valid IPv4 packet of `total_bytes` random bytes.
fn valid_frame(random: &mut Random, total_bytes: usize) -> Vec<u8> {
    let mut ip = random.bytes(total_bytes);
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(total_bytes as u16).to_be_bytes());
    ip[9] = random.pick(&[17, 17, 6]);
    set_ipv4_checksum(&mut ip);
    [&random.bytes(12)[..], &[8, 0], &ip].concat()
}

/// Returns frames to encapsulate: packets of every length from 20 to 319 bytes, some of up to 1499
/// bytes, and some damaged ones.
fn plain_frames(random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|i| match random.below(8) {
            0 => random_frame(random, DESTINATIONS, PATTERNS),
            1 if i % 7 == 0 => {
                let bytes = 400 + random.below(1100);
                valid_frame(random, bytes)
            }
            2 => {
                // One bit changes in the version, the header length, the traffic class or the
                // length.
                let mut frame = valid_frame(random, 20 + i % 90);
                frame[14 + random.below(4)] ^= 1 << random.below(8);
                frame
            }
            _ => valid_frame(random, 20 + i % 300),
        })
        .collect()
}

fn parameters(random: &mut Random, count: usize, direction: u64) -> Vec<u64> {
    // Some indices are out of range, and some belong to the other direction.
    let mut sa = || match random.below(20) {
        0 => 2 * PAIRS as u64,
        1 => direction ^ 1,
        _ => 2 * random.below(PAIRS as u64) + direction,
    };
    (0..count as u64).map(|i| sa() << 44 | (i + 1)).collect()
}

/// Returns packets for both variants. Some buffers lack the room for encapsulation.
pub(crate) fn ipsec_parts(count: usize, seed: u64) -> Vec<Part> {
    let mut random = Random::new(seed);
    let plain = plain_frames(&mut random, count);
    let outbound = parameters(&mut random, count, 0);
    let case = |name, variant| Case { name, kernel: IPSEC, variant, image: ipsec_image() };
    let mut sealed = Batch::new(&plain);
    sealed.parameters.clone_from(&outbound);
    sealed.run(&levels()[0], IPSEC, 0, &ipsec_image());
    let mut inbound = parameters(&mut random, count, 1);
    let mut frames = Vec::new();
    for index in 0..count {
        let mut frame = sealed.frame(index).to_vec();
        if random.below(8) != 0 {
            inbound[index] = outbound[index] ^ (1 << 44);
        }
        match random.below(8) {
            0 if !frame.is_empty() => {
                let at = random.below(frame.len());
                frame[at] ^= 1 << random.below(8);
            }
            1 => frame.truncate(random.below(frame.len() + 1)),
            2 if frame.len() >= 34 => {
                // A router in the tunnel reported congestion.
                frame[15] |= 3;
                set_ipv4_checksum(&mut frame[14..34]);
            }
            _ => {}
        }
        frames.push(frame);
    }
    let rooms = |random: &mut Random, frames: &[Vec<u8>]| -> Vec<(usize, usize)> {
        frames
            .iter()
            .map(|_| match random.below(16) {
                0 => (random.below(64), 64),
                1 => (64, 0),
                _ => (44 + random.below(30), 64),
            })
            .collect()
    };
    let [plain_rooms, sealed_rooms] = [&plain, &frames].map(|frames| rooms(&mut random, frames));
    vec![
        Part { case: case("ipsec, outbound", 0), frames: plain, parameters: outbound, rooms: plain_rooms },
        Part { case: case("ipsec, inbound", 1), frames, parameters: inbound, rooms: sealed_rooms },
    ]
}

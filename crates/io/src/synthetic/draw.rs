//! Random numbers that are computed from a position in a sequence. The numbers for one packet do
//! not depend on the numbers for other packets.

use std::net::IpAddr;

use super::units::{Prefix, Size, Span};

/// Returns the random number at `position` in the sequence of `seed`.
///
/// The algorithm is SplitMix64 (Steele, Lea, Flood, OOPSLA '14, figure 15). It computes a number at
/// any position without the numbers before it.
#[inline(always)]
pub(super) fn draw(seed: u64, position: u64) -> u64 {
    let z = seed.wrapping_add(position.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Maps 32 random bits to an integer from 0 to `count` - 1 (Lemire, ACM TOMACS 2019). Omits the
/// rejection step of the algorithm, so the result has a bias below `count` / 2^32.
#[inline(always)]
pub(super) fn below(random: u32, count: u32) -> u32 {
    ((u64::from(random) * u64::from(count)) >> 32) as u32
}

/// Sequence of random numbers that is determined by a seed.
pub(super) struct Draws {
    seed: u64,
    position: u64,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, position: 0 }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.position += 1;
        draw(self.seed, self.position)
    }

    pub(super) fn port(&mut self, span: Span) -> u16 {
        let count = u32::from(span.max - span.min) + 1;
        span.min + below(self.next() as u32, count) as u16
    }

    /// Returns a random address of the prefix. An IPv4 address fills the first 4 bytes of the
    /// result, and an IPv6 address fills all 16 bytes.
    pub(super) fn address(&mut self, prefix: &Prefix) -> [u8; 16] {
        let length_bits = u32::from(prefix.length_bits);
        let mut bytes = [0; 16];
        match prefix.address {
            IpAddr::V4(address) => {
                let host = u32::MAX.checked_shr(length_bits).unwrap_or(0);
                let address = (u32::from(address) & !host) | (self.next() as u32 & host);
                bytes[..4].copy_from_slice(&address.to_be_bytes());
            }
            IpAddr::V6(address) => {
                let host = u128::MAX.checked_shr(length_bits).unwrap_or(0);
                let random = u128::from(self.next()) << 64 | u128::from(self.next());
                bytes = ((u128::from(address) & !host) | (random & host)).to_be_bytes();
            }
        }
        bytes
    }
}

/// Distribution of frame lengths.
#[derive(Clone, Debug)]
pub(super) enum Shares {
    Fixed(u16),
    Uniform {
        min: u16,
        count: u32,
    },
    /// Pairs of a limit and a frame length, sorted by limit. The length of a packet is the first
    /// one whose limit exceeds the packet's random number.
    Mix([(u32, u16); 3]),
}

impl Shares {
    /// Creates the distribution of the frame lengths in `size`. A length below `headers_bytes`
    /// becomes `headers_bytes`.
    pub(super) fn new(size: &Size, headers_bytes: u16) -> Self {
        let Some(shares) = size.shares() else {
            let (min, max) = size.bounds();
            return Self::Uniform { min, count: u32::from(max - min) + 1 };
        };
        if let [(bytes, _)] = shares[..] {
            return Self::Fixed(bytes.max(headers_bytes));
        }
        let total: u32 = shares.iter().map(|(_, share)| share).sum();
        let mut sum = 0;
        let mut limits = [(u32::MAX, 0); 3];
        for (limit, (bytes, share)) in limits.iter_mut().zip(shares) {
            sum += share;
            let below = (u64::from(sum) << 32) / u64::from(total);
            *limit = (below.min(u32::MAX.into()) as u32, bytes.max(headers_bytes));
        }
        Self::Mix(limits)
    }

    /// Returns the length that 32 random bits select.
    #[inline(always)]
    pub(super) fn pick(&self, random: u32) -> u16 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Uniform { min, count } => min + below(random, *count) as u16,
            Self::Mix([(first, short), (second, middle), (_, long)]) => {
                if random < *first {
                    *short
                } else if random < *second {
                    *middle
                } else {
                    *long
                }
            }
        }
    }
}

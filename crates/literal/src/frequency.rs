//! Estimates how often windows (short byte strings) occur in traffic. The builder selects the
//! rarest windows of each pattern.

use crate::image::{fold4, fold8, mix};

/// Binary logarithm of the number of counters in a table.
const BITS: u32 = 18;
const K1: u32 = 0x9e37_79b1;
const K2: u32 = 0x85eb_ca77;

/// Counts how often short byte strings occur in traffic. Strings with the same hash share a
/// counter.
pub struct Frequencies {
    three: Vec<u32>,
    four: Vec<u32>,
    eight: Vec<u32>,
    positions: u64,
}

impl Default for Frequencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Frequencies {
    /// Creates counters that have not counted any traffic. All byte strings of the same length then
    /// have the same probability.
    pub fn new() -> Self {
        let table = || vec![0; 1 << BITS];
        Self { three: table(), four: table(), eight: table(), positions: 0 }
    }

    /// Counts the short byte strings in `traffic`.
    pub fn train(&mut self, traffic: &[u8]) {
        for window in traffic.windows(8) {
            let eight = fold8(window);
            let four = eight as u32;
            self.three[slot(four & 0x00ff_ffff, 0)] += 1;
            self.four[slot(four, 0)] += 1;
            self.eight[slot(four, (eight >> 32) as u32)] += 1;
            self.positions += 1;
        }
    }

    /// Returns the estimated probability that a byte string of length 3, 4 or 8 occurs at a given
    /// position.
    pub fn probability(&self, window: &[u8]) -> f64 {
        let (count, floor) = match window.len() {
            3 => (self.three[slot(fold4(&[window, &[0]].concat()) & 0x00ff_ffff, 0)], 1.0 / f64::from(1 << 21)),
            4 => (self.four[slot(fold4(window), 0)], 1.0 / f64::from(1 << 28)),
            _ => {
                let eight = fold8(window);
                (self.eight[slot(eight as u32, (eight >> 32) as u32)], 1e-12)
            }
        };
        floor + f64::from(count) / (self.positions.max(1) as f64)
    }
}

fn slot(low: u32, high: u32) -> usize {
    (mix(low, high, K1, K2) >> (32 - BITS)) as usize
}

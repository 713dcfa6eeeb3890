//! Random bytes, hex conversion and checksums.

use std::path::{Path, PathBuf};

/// xorshift64* (Vigna, An experimental exploration of Marsaglia's xorshift generators, TOMS 2016).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number in `0..limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((self.next() >> 16) % limit as u64) as usize
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// Sets the checksum of the IPv4 header at the start of `packet`.
pub(crate) fn set_checksum(packet: &mut [u8]) {
    let header_bytes = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let checksum = godwit_wire::checksum::checksum(&packet[..header_bytes]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Returns the path of a file or folder of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

//! Hashes names and prefixes with SipHash-1-3 (Aumasson, Bernstein, "SipHash: a fast short-input
//! PRF", INDOCRYPT 2012).
//!
//! The hash key is secret, so an attacker cannot choose many names for the same bucket.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns a secret key from the operating system.
pub(super) fn random_key() -> [u64; 2] {
    [(); 2].map(|()| RandomState::new().build_hasher().finish())
}

/// Returns the hash of these bytes.
pub(super) fn hash(key: [u64; 2], bytes: &[u8]) -> u64 {
    let mut state = State::new(key);
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| state.word(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len() as u8;
    state.word(u64::from_le_bytes(last));
    state.0[2] ^= 0xff;
    (0..3).for_each(|_| state.round());
    state.0[0] ^ state.0[1] ^ state.0[2] ^ state.0[3]
}

struct State([u64; 4]);

impl State {
    fn new([key0, key1]: [u64; 2]) -> Self {
        let constant = |text: &[u8; 8]| u64::from_be_bytes(*text);
        Self([
            key0 ^ constant(b"somepseu"),
            key1 ^ constant(b"dorandom"),
            key0 ^ constant(b"lygenera"),
            key1 ^ constant(b"tedbytes"),
        ])
    }

    fn word(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.0[0] ^= word;
    }

    fn round(&mut self) {
        let [v0, v1, v2, v3] = &mut self.0;
        *v0 = v0.wrapping_add(*v1);
        *v2 = v2.wrapping_add(*v3);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.rotate_left(32);
        *v2 = v2.wrapping_add(*v1);
        *v0 = v0.wrapping_add(*v3);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, Hasher};

    use super::*;

    /// The default hash function of the standard library is SipHash-1-3 with a key of zeros.
    #[test]
    #[allow(deprecated, reason = "SipHasher13 is not public, but DefaultHasher is SipHasher13 with key 0")]
    fn hash_matches_the_standard_library() {
        let fixed = std::hash::BuildHasherDefault::<std::collections::hash_map::DefaultHasher>::default();
        let bytes: Vec<u8> = (0..=255).cycle().take(700).collect();
        for length in (0..70).chain([255, 256, 257, 700]) {
            let mut hasher = fixed.build_hasher();
            hasher.write(&bytes[..length]);
            assert_eq!(hash([0, 0], &bytes[..length]), hasher.finish(), "{length} bytes");
        }
        assert_ne!(hash([0, 1], &bytes), hash([0, 0], &bytes));
        assert_ne!(random_key(), random_key());
    }
}

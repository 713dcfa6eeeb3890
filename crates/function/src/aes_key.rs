//! AES key expansion (FIPS 197, section 5.2) for the kernels. It runs once per key, and not once
//! per packet.

use zeroize::{Zeroize, Zeroizing};

/// AES round keys in the order of their use: 11, 13 or 15 keys of 16 bytes.
pub(crate) type RoundKeys = Zeroizing<Vec<[u8; 16]>>;

/// Returns the AES round keys for encryption with a key of 16, 24 or 32 bytes. Panics for any other
/// length.
pub(crate) fn expand(key: &[u8]) -> RoundKeys {
    assert!(matches!(key.len(), 16 | 24 | 32), "an AES key cannot have {} bytes", key.len());
    let key_words = key.len() / 4;
    let count = 4 * (key_words + 7);
    let mut words = Zeroizing::new(vec![[0u8; 4]; count]);
    for (word, bytes) in words.iter_mut().zip(key.as_chunks::<4>().0) {
        *word = *bytes;
    }
    let mut round_constant = 1;
    for i in key_words..count {
        let mut word = words[i - 1];
        if i % key_words == 0 {
            word.rotate_left(1);
            word = word.map(substitute);
            word[0] ^= round_constant;
            round_constant = times_x(round_constant);
        } else if key_words > 6 && i % key_words == 4 {
            word = word.map(substitute);
        }
        for row in 0..4 {
            words[i][row] = words[i - key_words][row] ^ word[row];
        }
        word.zeroize();
    }
    let mut keys = RoundKeys::new(vec![[0; 16]; count / 4]);
    for (key, words) in keys.iter_mut().zip(words.as_chunks::<4>().0) {
        key.copy_from_slice(words.as_flattened());
    }
    keys
}

/// Converts AES round keys for encryption to the round keys of the equivalent inverse cipher (FIPS
/// 197, section 5.3.5).
pub(crate) fn invert(mut keys: RoundKeys) -> RoundKeys {
    keys.reverse();
    let last = keys.len() - 1;
    for key in &mut keys[1..last] {
        for column in key.as_chunks_mut::<4>().0 {
            let [a, b, c, d] = *column;
            let row = |a, b, c, d| multiply(a, 14) ^ multiply(b, 11) ^ multiply(c, 13) ^ multiply(d, 9);
            *column = [row(a, b, c, d), row(b, c, d, a), row(c, d, a, b), row(d, a, b, c)];
        }
    }
    keys
}

/// Returns the value of the AES S-box for a byte (FIPS 197, section 5.1.1).
fn substitute(byte: u8) -> u8 {
    // In GF(2^8), the inverse of a byte is its 254th power. The loop multiplies the powers with the
    // exponents 2, 4, 8 and so on up to 128.
    let mut inverse = 1;
    let mut power = byte;
    for _ in 0..7 {
        power = multiply(power, power);
        inverse = multiply(inverse, power);
    }
    let rotated = |bits| inverse.rotate_left(bits);
    inverse ^ rotated(1) ^ rotated(2) ^ rotated(3) ^ rotated(4) ^ 0x63
}

/// Multiplies two elements of GF(2^8) (FIPS 197, section 4.2).
fn multiply(mut a: u8, b: u8) -> u8 {
    let mut product = 0;
    for bit in 0..8 {
        product ^= a & (b >> bit & 1).wrapping_neg();
        a = times_x(a);
    }
    product
}

fn times_x(a: u8) -> u8 {
    a << 1 ^ (0x1b & (a >> 7).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the first and last round keys with the example in FIPS 197, appendix A.1.
    #[test]
    fn expands_the_example_of_the_standard() {
        let key = 0x2b7e1516_28aed2a6_abf71588_09cf4f3c_u128.to_be_bytes();
        let keys = expand(&key);
        assert_eq!(keys[0], key);
        assert_eq!(u128::from_be_bytes(keys[1]), 0xa0fafe17_88542cb1_23a33939_2a6c7605);
        assert_eq!(u128::from_be_bytes(keys[10]), 0xd014f9a8_c9ee2589_e13f0cc8_b6630ca6);
    }

    /// Compares the last round key with the examples in FIPS 197, appendices A.2 and A.3.
    #[test]
    fn expands_the_examples_of_longer_keys() {
        let key = 0x603deb10_15ca71be_2b73aef0_857d7781_u128.to_be_bytes();
        let rest = 0x1f352c07_3b6108d7_2d9810a3_0914dff4_u128.to_be_bytes();
        let keys = expand(&[key, rest].concat());
        assert_eq!(keys.len(), 15);
        assert_eq!(u128::from_be_bytes(keys[14]), 0xfe4890d1_e6188d0b_046df344_706c631e);
        let key = 0x8e73b0f7_da0e6452_c810f32b_809079e5_u128.to_be_bytes();
        let keys = expand(&[&key[..], &0x62f8ead2_522c6b7b_u64.to_be_bytes()].concat());
        assert_eq!(keys.len(), 13);
        assert_eq!(u128::from_be_bytes(keys[12]), 0xe98ba06f_448c773c_8ecc7204_01002202);
    }

    /// Compares round keys of the equivalent inverse cipher with the values `ik_sch` in the example
    /// of FIPS 197, appendix C.1.
    #[test]
    fn inverts_the_example_of_the_standard() {
        let keys = invert(expand(&0x00010203_04050607_08090a0b_0c0d0e0f_u128.to_be_bytes()));
        assert_eq!(u128::from_be_bytes(keys[0]), 0x13111d7f_e3944a17_f307a78b_4d2b30c5);
        assert_eq!(u128::from_be_bytes(keys[1]), 0x13aa29be_9c8faff6_f770f580_00f7bf03);
        assert_eq!(u128::from_be_bytes(keys[10]), 0x00010203_04050607_08090a0b_0c0d0e0f);
    }
}

//! Keys of an SA in the table image, which the kernel reads. `kernels/ipsec/image.h` declares the
//! same layout, beginning with its member `authentication`.
//!
//! ```text
//! 0                            64                     304        320                        512
//! | authentication, 16 words   | keys, 60 words       | reserved | more, 48 words           |
//!   HMAC: inner and outer state  AES: round keys                   HMAC-SHA-384 and -512:
//!   GHASH: powers 1 to 4 of H    ChaCha20: the key                 outer state
//!   XCBC, CMAC: two subkeys                                        XCBC, CMAC: round keys
//! ```
//!
//! The states of HMAC-SHA-384 and HMAC-SHA-512 consist of 64-bit words. Their inner state fills
//! `authentication`.
//!
//! AES-128 has fewer round keys than AES-256. With AES-128, the free space after the round keys
//! holds the powers 5 to 8 of H. The `native` kernel uses them to add eight blocks to the hash at
//! once. For longer keys, this kernel computes the powers itself.

use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256};
use zeroize::Zeroizing;

use super::suite::{Authentication, Cipher, Suite};
use crate::aes_key;

/// Size of the keys of one SA in the table image, in bytes.
pub const KEY_AREA_BYTES: usize = 512;
/// Offset of the keys in the key area, in bytes.
const KEYS: usize = 64;
/// Offset of the powers 5 to 8 of the GHASH key H in an SA's key area, in bytes. Only AES keys of
/// [`AES128_BYTES`] bytes leave space for these powers.
const MORE_POWERS: usize = KEYS + 11 * 16;
const AES128_BYTES: usize = 16;
/// Offset of the outer state of HMAC-SHA1 and HMAC-SHA-256 in the key area, in bytes.
const HMAC_OUTER: usize = 32;
/// Offset of the member `more` in the key area, in bytes.
const MORE: usize = 320;

/// Initial hash value of SHA-1 (FIPS 180-4, section 5.3.1).
const SHA1_INITIAL: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
/// Initial hash value of SHA-256 (FIPS 180-4, section 5.3.3).
const SHA256_INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
/// Initial hash value of SHA-384 (FIPS 180-4, section 5.3.4).
const SHA384_INITIAL: [u64; 8] = [
    0xcbbb_9d5d_c105_9ed8,
    0x629a_292a_367c_d507,
    0x9159_015a_3070_dd17,
    0x152f_ecd8_f70e_5939,
    0x6733_2667_ffc0_0b31,
    0x8eb4_4a87_6858_1511,
    0xdb0c_2e0d_64f9_8fa7,
    0x47b5_481d_befa_4fa4,
];
/// Initial hash value of SHA-512 (FIPS 180-4, section 5.3.5).
const SHA512_INITIAL: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

/// Fills the key area of an SA with this suite.
///
/// `encryption_key` is the key of the cipher or of GMAC, without the salt. It has `suite.key_bytes`
/// bytes. `authentication_key` is the key of HMAC, AES-XCBC or AES-CMAC, or empty. An HMAC key is
/// not longer than a block of the hash. An AES key has 16 bytes.
///
/// # Panics
///
/// Panics if a key has the wrong length, or if `out` does not have [`KEY_AREA_BYTES`] bytes.
pub fn emit_keys(suite: &Suite, inbound: bool, encryption_key: &[u8], authentication_key: &[u8], out: &mut [u8]) {
    assert_eq!(out.len(), KEY_AREA_BYTES);
    assert_eq!(encryption_key.len(), suite.key_bytes, "{}", suite.name);
    out.fill(0);
    match suite.authentication {
        Authentication::None | Authentication::Poly1305 | Authentication::Ccm => {}
        Authentication::Sha1 => {
            put(out, 0, &*sha1_state(authentication_key, 0x36));
            put(out, HMAC_OUTER, &*sha1_state(authentication_key, 0x5c));
        }
        Authentication::Sha256 => {
            put(out, 0, &*sha256_state(authentication_key, 0x36));
            put(out, HMAC_OUTER, &*sha256_state(authentication_key, 0x5c));
        }
        Authentication::Sha384 | Authentication::Sha512 => {
            let initial = if suite.authentication == Authentication::Sha384 { SHA384_INITIAL } else { SHA512_INITIAL };
            put_words(out, 0, &*sha512_state(initial, authentication_key, 0x36));
            put_words(out, MORE, &*sha512_state(initial, authentication_key, 0x5c));
        }
        Authentication::Xcbc | Authentication::Cmac => {
            let (key, subkeys) = if suite.authentication == Authentication::Xcbc {
                xcbc_keys(authentication_key)
            } else {
                cmac_keys(authentication_key)
            };
            out[..KEYS / 2].copy_from_slice(subkeys.as_flattened());
            let round_keys = aes_key::expand(&*key);
            let bytes = round_keys.as_flattened();
            out[MORE..][..bytes.len()].copy_from_slice(bytes);
        }
        Authentication::Ghash => {
            let powers = ghash_powers(encryption_key);
            let (first, more) = powers.split_at(4);
            put_powers(out, 0, first);
            if suite.key_bytes == AES128_BYTES {
                put_powers(out, MORE_POWERS, more);
            }
        }
    }
    if suite.cipher == Cipher::ChaCha20 || suite.key_bytes == 0 {
        out[KEYS..][..encryption_key.len()].copy_from_slice(encryption_key);
        return;
    }
    let mut round_keys = aes_key::expand(encryption_key);
    if inbound && suite.cipher == Cipher::Cbc {
        round_keys = aes_key::invert(round_keys);
    }
    let bytes = round_keys.as_flattened();
    out[KEYS..][..bytes.len()].copy_from_slice(bytes);
}

/// Returns the XOR of `pad` and the HMAC key, which is extended with zeros to the size of a block
/// (RFC 2104, section 2).
fn padded<const BLOCK_BYTES: usize>(key: &[u8], pad: u8) -> Zeroizing<[u8; BLOCK_BYTES]> {
    assert!(key.len() <= BLOCK_BYTES, "an HMAC key longer than a block must be hashed first");
    let mut block = Zeroizing::new([pad; BLOCK_BYTES]);
    block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
    block
}

/// Returns the SHA-1 state after the block that contains the padded HMAC key (RFC 2104, section 4).
fn sha1_state(key: &[u8], pad: u8) -> Zeroizing<[u32; 5]> {
    let mut state = Zeroizing::new(SHA1_INITIAL);
    sha1::block_api::compress(&mut state, std::slice::from_ref(&*padded(key, pad)));
    state
}

/// Returns the SHA-256 state after the block that contains the padded HMAC key (RFC 2104, section
/// 4).
fn sha256_state(key: &[u8], pad: u8) -> Zeroizing<[u32; 8]> {
    let mut state = Zeroizing::new(SHA256_INITIAL);
    sha2::block_api::compress256(&mut state, std::slice::from_ref(&*padded(key, pad)));
    state
}

/// Returns the state of SHA-384 or SHA-512, which differ in the initial hash value, after the block
/// that contains the padded HMAC key (RFC 2104, section 4).
fn sha512_state(initial: [u64; 8], key: &[u8], pad: u8) -> Zeroizing<[u64; 8]> {
    let mut state = Zeroizing::new(initial);
    sha2::block_api::compress512(&mut state, std::slice::from_ref(&*padded(key, pad)));
    state
}

/// AES key of a MAC, and the subkeys for a complete and for an incomplete last block.
type MacKeys = (Zeroizing<[u8; 16]>, Zeroizing<[[u8; 16]; 2]>);

/// Returns the keys K1, K2 and K3 of AES-XCBC-MAC (RFC 3566, section 4, step 1).
fn xcbc_keys(key: &[u8]) -> MacKeys {
    let derived = |byte: u8| {
        let mut block = Zeroizing::new([byte; 16]);
        encrypt_block(key, &mut block);
        block
    };
    (derived(1), Zeroizing::new([*derived(2), *derived(3)]))
}

/// Returns the key and the subkeys K1 and K2 of AES-CMAC (RFC 4493, section 2.3).
fn cmac_keys(key: &[u8]) -> MacKeys {
    let mut block = Zeroizing::new([0; 16]);
    encrypt_block(key, &mut block);
    let double = |a: u128| a << 1 ^ (0x87 & (a >> 127).wrapping_neg());
    let first = double(u128::from_be_bytes(*block));
    let key = Zeroizing::new(key.try_into().expect("the key has 16 bytes"));
    (key, Zeroizing::new([first, double(first)].map(u128::to_be_bytes)))
}

/// Returns the powers 1 to 8 of GHASH's key H (NIST SP 800-38D, section 7.1) in the format of
/// `kernels/dialect/ghash.h`.
fn ghash_powers(key: &[u8]) -> Zeroizing<[u128; 8]> {
    let mut block = Zeroizing::new([0; 16]);
    encrypt_block(key, &mut block);
    let mut powers = Zeroizing::new([times_x(u128::from_be_bytes(*block)); 8]);
    for i in 1..8 {
        powers[i] = dot(powers[0], powers[i - 1]);
    }
    powers
}

fn encrypt_block(key: &[u8], block: &mut [u8; 16]) {
    let block: &mut Array<u8, _> = block.into();
    let message = "the key has 16, 24 or 32 bytes";
    match key.len() {
        16 => Aes128::new_from_slice(key).expect(message).encrypt_block(block),
        24 => Aes192::new_from_slice(key).expect(message).encrypt_block(block),
        _ => Aes256::new_from_slice(key).expect(message).encrypt_block(block),
    }
}

/// Reduction polynomial of the field of POLYVAL, without the term `x^128` (RFC 8452, section 3).
/// Bit `n` is the coefficient of `x^n`.
const POLYNOMIAL: u128 = 0xc200_0000_0000_0000_0000_0000_0000_0001;

fn times_x(a: u128) -> u128 {
    a << 1 ^ (POLYNOMIAL & (a >> 127).wrapping_neg())
}

/// Returns POLYVAL's product `a * b * x^-128` (RFC 8452, section 3).
fn dot(a: u128, b: u128) -> u128 {
    let mut product = 0;
    for bit in 0..128 {
        product ^= a & (b >> bit & 1).wrapping_neg();
        // Each step divides the product by x with a right shift. If bit 0 is set, the polynomial is
        // added first, which clears the bit.
        product = product >> 1 ^ ((POLYNOMIAL >> 1 | 1 << 127) & (product & 1).wrapping_neg());
    }
    product
}

fn put(out: &mut [u8], at: usize, words: &[u32]) {
    for (bytes, word) in out[at..].chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// Writes 64-bit words of a hash state from byte offset `at` on.
fn put_words(out: &mut [u8], at: usize, words: &[u64]) {
    for (bytes, word) in out[at..].chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// Writes powers of the GHASH key H from byte offset `at` on.
fn put_powers(out: &mut [u8], at: usize, powers: &[u128]) {
    for (bytes, power) in out[at..].chunks_exact_mut(16).zip(powers) {
        bytes.copy_from_slice(&power.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares a product with the example in RFC 8452, section 7.
    #[test]
    fn multiplies_the_example_of_the_standard() {
        let a = u128::from_le_bytes(0x66e94bd4_ef8a2c3b_884cfa59_ca342b2e_u128.to_be_bytes());
        let b = u128::from_le_bytes(0xff000000_00000000_00000000_00000000_u128.to_be_bytes());
        assert_eq!(dot(a, b).to_le_bytes(), 0xebe563401e7e91ea3ad6426b8140c394_u128.to_be_bytes());
    }
}

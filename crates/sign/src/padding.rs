//! Pads messages for RSA signatures (RFC 8017, section 9). The private-key operation then uses the
//! padded message.

use aws_lc_rs::digest;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};

use crate::scheme::{Hash, Scheme};

/// Longest hash, in bytes.
const HASH_BYTES_MAX: usize = 64;

/// Returns the DER prefix of `DigestInfo`, which precedes the hash value (RFC 8017, section 9.2,
/// note 1).
fn digest_info(hash: Hash) -> [u8; 19] {
    let (identifier, bytes) = match hash {
        Hash::Sha256 => (1, 32),
        Hash::Sha384 => (2, 48),
        Hash::Sha512 => (3, 64),
    };
    let oid = [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, identifier];
    let mut prefix = [0; 19];
    prefix[..6].copy_from_slice(&[0x30, 17 + bytes, 0x30, 0x0d, 0x06, 0x09]);
    prefix[6..15].copy_from_slice(&oid);
    prefix[15..].copy_from_slice(&[0x05, 0x00, 0x04, bytes]);
    prefix
}

/// Writes the padded message to `into`, which has the length of the modulus. Returns `None` for
/// schemes other than RSA, or if the random number generator fails.
pub(crate) fn pad(scheme: Scheme, message: &[u8], into: &mut [u8]) -> Option<()> {
    match scheme {
        Scheme::RsaPkcs1(hash) => pkcs1(hash, message, into),
        Scheme::RsaPss(hash) => {
            let mut salt = [0; HASH_BYTES_MAX];
            let salt = &mut salt[..hash.algorithm().output_len()];
            SystemRandom::new().fill(salt).ok()?;
            pss(hash, message, salt, into);
        }
        _ => return None,
    }
    Some(())
}

/// EMSA-PKCS1-v1_5 (RFC 8017, section 9.2).
fn pkcs1(hash: Hash, message: &[u8], into: &mut [u8]) {
    let digest = digest::digest(hash.algorithm(), message);
    let tail = into.len() - digest.as_ref().len();
    let info = digest_info(hash);
    into[..2].copy_from_slice(&[0, 1]);
    into[2..tail - info.len() - 1].fill(0xff);
    into[tail - info.len() - 1] = 0;
    into[tail - info.len()..tail].copy_from_slice(&info);
    into[tail..].copy_from_slice(digest.as_ref());
}

/// Pads a message with EMSA-PSS and MGF1 (RFC 8017, sections 9.1.1 and B.2.1). The modulus must
/// consist of whole bytes.
fn pss(hash: Hash, message: &[u8], salt: &[u8], into: &mut [u8]) {
    let algorithm = hash.algorithm();
    let hash_bytes = algorithm.output_len();
    let concatenated = |parts: &[&[u8]]| {
        let mut context = digest::Context::new(algorithm);
        parts.iter().for_each(|part| context.update(part));
        context.finish()
    };
    let digest = concatenated(&[message]);
    let seed = concatenated(&[&[0; 8], digest.as_ref(), salt]);
    let (block, rest) = into.split_at_mut(into.len() - hash_bytes - 1);
    rest[..hash_bytes].copy_from_slice(seed.as_ref());
    rest[hash_bytes] = 0xbc;
    let salt_at = block.len() - salt.len();
    block[..salt_at - 1].fill(0);
    block[salt_at - 1] = 1;
    block[salt_at..].copy_from_slice(salt);
    for (counter, chunk) in (0u32..).zip(block.chunks_mut(hash_bytes)) {
        let mask = concatenated(&[seed.as_ref(), &counter.to_be_bytes()]);
        chunk.iter_mut().zip(mask.as_ref()).for_each(|(byte, mask)| *byte ^= mask);
    }
    // The padded message has one bit less than the modulus.
    block[0] &= 0x7f;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The padded message has the structure 0x00 0x01 PS 0x00 T (RFC 8017, section 9.2).
    #[test]
    fn pkcs1_has_the_structure_of_the_rfc() {
        let mut padded = [0; 256];
        pad(Scheme::RsaPkcs1(Hash::Sha256), b"abc", &mut padded).unwrap();
        let info = [
            0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00, 0x04,
            0x20,
        ];
        // First bytes of the SHA-256 digest of "abc" (FIPS 180-4, appendix B.1 of the 2002
        // edition).
        let digest = [0xba, 0x78, 0x16, 0xbf];
        assert_eq!(padded[..2], [0, 1]);
        assert!(padded[2..204].iter().all(|&byte| byte == 0xff));
        assert_eq!((padded[204], &padded[205..224], &padded[224..228]), (0, &info[..], &digest[..]));
    }

    #[test]
    fn pss_salts_differ_and_the_first_bit_is_clear() {
        let mut padded = [[0xff; 384]; 2];
        for row in &mut padded {
            pad(Scheme::RsaPss(Hash::Sha512), b"abc", row).unwrap();
            assert_eq!((row[0] & 0x80, row[383]), (0, 0xbc));
        }
        assert_ne!(padded[0], padded[1]);
    }
}

//! ECDSA signatures in SIMD lanes. This module creates the nonces and encodes the signatures.
#![allow(unsafe_code, reason = "calls of crypto_mb take pointers to the data of each lane")]

use std::ptr::{null, null_mut};

use aws_lc_rs::digest;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroize;

use super::{LaneJob, Library, is_ok};
use crate::counters::LANES;
use crate::key::Words;
use crate::memory::Locked;
use crate::scheme::{Class, Hash};

/// Number of 64-bit words in the longest scalar, which belongs to P-384.
const SCALAR_WORDS_MAX: usize = 6;
/// Bytes of a scalar of P-384.
const SCALAR_BYTES_MAX: usize = 8 * SCALAR_WORDS_MAX;
/// Number of words for the nonces of all SIMD lanes.
pub(super) const NONCE_WORDS: usize = LANES * SCALAR_WORDS_MAX;

/// Order of the elliptic curve group P-256, least significant word first (FIPS 186-5 and SP
/// 800-186, section 3.2.1).
const P256_ORDER: [u64; 4] =
    [0xf3b9_cac2_fc63_2551, 0xbce6_faad_a717_9e84, 0xffff_ffff_ffff_ffff, 0xffff_ffff_0000_0000];
const P384_ORDER: [u64; 6] = [
    0xecec_196a_ccc5_2973,
    0x581a_0db2_48b0_a77a,
    0xc763_4d81_f437_2ddf,
    0xffff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];

/// Signs up to eight jobs of `class` at once. Returns `None` if the random number generator fails.
pub(super) fn sign(
    library: &Library,
    class: Class,
    jobs: &[LaneJob<'_>],
    nonces: &mut Locked<u64>,
) -> Option<[Option<Vec<u8>>; LANES]> {
    let (order, hash): (&[u64], _) = match class {
        Class::EcdsaP256 => (&P256_ORDER, Hash::Sha256),
        _ => (&P384_ORDER, Hash::Sha384),
    };
    let bytes = 8 * order.len();
    let mut values = [[[0; SCALAR_BYTES_MAX]; 2]; LANES];
    let mut digests = [[0; SCALAR_BYTES_MAX]; LANES];
    let (mut r, mut s) = ([null_mut(); LANES], [null_mut(); LANES]);
    let (mut digest, mut nonce, mut secret) = ([null(); LANES], [null(); LANES], [null(); LANES]);
    for (lane, job) in jobs.iter().enumerate() {
        let Some(Words::Ec(scalar)) = job.key.words().filter(|_| job.key.class() == class) else { continue };
        digests[lane][..bytes].copy_from_slice(digest::digest(hash.algorithm(), job.message).as_ref());
        let words = &mut nonces[lane * SCALAR_WORDS_MAX..][..order.len()];
        make_nonce(order, scalar, &digests[lane][..bytes], words)?;
        nonce[lane] = words.as_ptr();
        secret[lane] = scalar.as_ptr();
        digest[lane] = digests[lane].as_ptr();
        let [first, second] = &mut values[lane];
        (r[lane], s[lane]) = (first.as_mut_ptr(), second.as_mut_ptr());
    }
    // SAFETY: digests, results, nonces and keys have the size of a scalar of `class`.
    let status = unsafe { library.ecdsa_sign(class, [&r, &s], &digest, &nonce, &secret) };
    nonces.zeroize();
    Some(std::array::from_fn(|lane| {
        let [r_value, s_value] = &values[lane];
        let done = !r[lane].is_null() && is_ok(status, lane);
        done.then(|| encode(&r_value[..bytes], &s_value[..bytes]))
    }))
}

/// Writes a uniformly distributed nonce to `into` (FIPS 186-5, appendix A.3.2). The nonce is at
/// least 1 and below the group order.
///
/// The nonce is a hash of fresh random bytes, the key and the message digest. Different messages
/// get different nonces even if the random number generator repeats its output.
fn make_nonce(order: &[u64], key: &[u64], digest: &[u8], into: &mut [u64]) -> Option<()> {
    loop {
        let mut random = [0; 64];
        SystemRandom::new().fill(&mut random).ok()?;
        let mut context = digest::Context::new(&digest::SHA512);
        context.update(&random);
        key.iter().for_each(|word| context.update(&word.to_be_bytes()));
        context.update(digest);
        random.zeroize();
        let candidate = context.finish();
        for (word, bytes) in into.iter_mut().zip(candidate.as_ref().chunks_exact(8)) {
            *word = bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        // A rejected candidate is never used, so the comparison need not take constant time.
        if into.iter().any(|&word| word != 0) && into.iter().rev().lt(order.iter().rev()) {
            return Some(());
        }
    }
}

/// Encodes the signature (r, s) as `Ecdsa-Sig-Value` (RFC 5480, appendix A).
fn encode(r: &[u8], s: &[u8]) -> Vec<u8> {
    let trimmed = |number: &[u8]| {
        let zeros = number.iter().take_while(|&&byte| byte == 0).count();
        let number = &number[zeros.min(number.len() - 1)..];
        let mut bytes = Vec::with_capacity(number.len() + 1);
        if number[0] & 0x80 != 0 {
            bytes.push(0);
        }
        bytes.extend_from_slice(number);
        bytes
    };
    let [r, s] = [trimmed(r), trimmed(s)];
    // Each number of a signature has at most 49 bytes, so every length fits into one byte.
    let mut encoded = vec![0x30, (r.len() + s.len() + 4) as u8];
    for number in [r, s] {
        encoded.extend_from_slice(&[0x02, number.len() as u8]);
        encoded.extend_from_slice(&number);
    }
    encoded
}

//! Private key components as 64-bit words, least significant word first. SIMD code and devices need
//! this form.

use super::private::Private;
use crate::Error;
use crate::memory::Locked;

/// Components of a private key in locked memory.
#[derive(Debug)]
pub(crate) enum Words {
    /// RSA with two primes of equal length and the exponent 65537.
    Rsa(RsaWords),
    /// Scalar of ECDSA.
    Ec(Locked<u64>),
    /// Seed of an Ed25519 key, and the public key.
    Ed25519 {
        /// Seed as in RFC 8032, section 5.1.5.
        seed: Locked<u8>,
        /// Public key as in RFC 8032, section 5.1.5.
        public: [u8; 32],
    },
}

/// Components of an RSA key for the Chinese remainder theorem.
#[derive(Debug)]
pub struct RsaWords {
    /// RSA components p, q, d mod (p-1), d mod (q-1) and 1/q mod p, in this order.
    secret: Locked<u64>,
    modulus: Vec<u64>,
}

impl RsaWords {
    /// Returns the RSA components p, q, d mod (p-1), d mod (q-1) and 1/q mod p. Each component has
    /// half as many words as the modulus.
    pub fn crt(&self) -> [&[u64]; 5] {
        let half = self.modulus.len() / 2;
        [0, 1, 2, 3, 4].map(|part| &self.secret[part * half..(part + 1) * half])
    }

    /// Returns the modulus.
    pub fn modulus(&self) -> &[u64] {
        &self.modulus
    }

    /// Flips one bit of d mod (p-1), so that signatures with this key are wrong.
    #[cfg(test)]
    pub(crate) fn flip_bit(&mut self, bit: usize) {
        let half = self.modulus.len() / 2;
        self.secret[2 * half + bit / 64] ^= 1 << (bit % 64);
    }
}

impl Words {
    /// Returns the key components for SIMD lanes and devices, or `None` if only AWS-LC can use the
    /// key.
    pub(super) fn of(key: &Private<'_>, public: &[u8]) -> Result<Option<Self>, Error> {
        match key {
            Private::Rsa { modulus, exponent, crt, .. } => {
                let half = modulus.len() / 2;
                let [p, q, ..] = crt;
                // crypto_mb requires e = 65537, primes of equal length, and p > q.
                let usable = *exponent == [1, 0, 1] && p.len() == half && q.len() == half && p > q;
                if !usable {
                    return Ok(None);
                }
                let mut secret = Locked::zeroed(5 * half / 8)?;
                for (words, part) in secret.chunks_exact_mut(half / 8).zip(crt) {
                    load(words, part);
                }
                let mut words = vec![0; modulus.len() / 8];
                load(&mut words, modulus);
                Ok(Some(Self::Rsa(RsaWords { secret, modulus: words })))
            }
            Private::Ec { scalar, .. } => {
                let mut words = Locked::zeroed(scalar.len() / 8)?;
                load(&mut words, scalar);
                Ok(Some(Self::Ec(words)))
            }
            Private::Ed25519 { seed } => match public.try_into() {
                Ok(public) => Ok(Some(Self::Ed25519 { seed: Locked::copy_of(*seed)?, public })),
                Err(_) => Ok(None),
            },
        }
    }
}

/// Converts big-endian bytes to words. `words` must be large enough.
fn load(words: &mut [u64], bytes: &[u8]) {
    words.fill(0);
    for (index, byte) in bytes.iter().rev().enumerate() {
        words[index / 8] |= u64::from(*byte) << (index % 8 * 8);
    }
}

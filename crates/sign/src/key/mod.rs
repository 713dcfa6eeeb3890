//! Loads, checks and converts private keys for the processors that sign with them.

mod certificate;
mod load;
mod pem;
mod private;
mod words;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair,
    UnparsedPublicKey,
};

pub use load::{Held, Loaded, load, load_held};
pub use words::RsaWords;
pub(crate) use words::Words;

use crate::error::Reason;
use crate::scheme::{Class, Scheme};
use pem::{Problem, sections};
use private::Private;

/// Private key for signing. All threads and processors share it.
#[derive(Debug)]
pub struct Key {
    class: Class,
    /// Identity of the public key in other processes.
    id: u64,
    /// Public key in the form that [`UnparsedPublicKey`] takes.
    public: Vec<u8>,
    pair: Pair,
    /// Key components for SIMD lanes and devices, or `None` if only AWS-LC can use the key.
    words: Option<Words>,
}

/// Returns a new key as PKCS #8.
fn generate_pkcs8(class: Class) -> Result<Vec<u8>, Unspecified> {
    let rsa = |size| {
        let der: Pkcs8V1Der<'_> = RsaKeyPair::generate(size)?.as_der()?;
        Ok(der.as_ref().to_vec())
    };
    let ecdsa = |algorithm| Ok(EcdsaKeyPair::generate(algorithm)?.to_pkcs8v1()?.as_ref().to_vec());
    match class {
        Class::Rsa2048 => rsa(KeySize::Rsa2048),
        Class::Rsa3072 => rsa(KeySize::Rsa3072),
        Class::Rsa4096 => rsa(KeySize::Rsa4096),
        Class::EcdsaP256 => ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING),
        Class::EcdsaP384 => ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING),
        Class::Ed25519 => Ok(Ed25519KeyPair::generate()?.to_pkcs8v1()?.as_ref().to_vec()),
    }
}

/// Key in the form of AWS-LC.
#[derive(Debug)]
enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ecdsa(Box<EcdsaKeyPair>),
    Ed25519(Box<Ed25519KeyPair>),
    /// Another process holds the private key.
    Elsewhere,
}

/// Returns the first bytes of a public key's SHA-256 hash. Two keys get the same identity with a
/// probability of 2⁻⁶⁴.
fn identity(public: &[u8]) -> u64 {
    let hash = digest(&SHA256, public);
    hash.as_ref().iter().take(8).fold(0, |id, byte| id << 8 | u64::from(*byte))
}

impl Key {
    /// Parses `text`, a PEM file with one private key.
    ///
    /// # Errors
    /// Returns [`crate::Error::Memory`] if key memory cannot be locked. If the content is refused,
    /// the inner result states the reason.
    pub fn from_pem(text: &[u8]) -> Result<Result<Self, Reason>, crate::Error> {
        match Self::parse(text) {
            Ok(key) => Ok(Ok(key)),
            Err(Problem::Content(reason)) => Ok(Err(reason)),
            Err(Problem::Machine(error)) => Err(error),
        }
    }

    /// Parses `bytes`, a private key in the format PKCS #8.
    ///
    /// # Errors
    /// Returns [`crate::Error::Memory`] if key memory cannot be locked. If the content is refused,
    /// the inner result states the reason.
    pub fn from_pkcs8(bytes: &[u8]) -> Result<Result<Self, Reason>, crate::Error> {
        match Private::parse_pkcs8(bytes).map_err(Problem::Content).and_then(|private| Self::of(&private)) {
            Ok(key) => Ok(Ok(key)),
            Err(Problem::Content(reason)) => Ok(Err(reason)),
            Err(Problem::Machine(error)) => Err(error),
        }
    }

    /// Creates a random key for benchmarks and self-tests.
    ///
    /// # Errors
    /// Returns [`crate::Error::Memory`] if key memory cannot be locked.
    ///
    /// # Panics
    /// Panics if AWS-LC cannot create a key, which only happens if the random number generator is
    /// broken.
    pub fn generate(class: Class) -> Result<Self, crate::Error> {
        let bytes = generate_pkcs8(class).expect("AWS-LC creates keys");
        let private = Private::parse_pkcs8(&bytes).expect("AWS-LC writes PKCS #8");
        match Self::of(&private) {
            Err(Problem::Machine(error)) => Err(error),
            key => Ok(key.expect("a key that AWS-LC created is valid")),
        }
    }

    fn parse(text: &[u8]) -> Result<Self, Problem> {
        let sections = sections(text)?;
        let mut keys = sections.iter().filter(|section| Private::is_label(section.label));
        let section = keys.next().ok_or(Reason::NoKey)?;
        if keys.next().is_some() {
            return Err(Reason::SeveralKeys.into());
        }
        if section.label.starts_with(b"ENCRYPTED") || section.is_encrypted() {
            return Err(Reason::Encrypted.into());
        }
        let bytes = section.decode()?;
        Self::of(&Private::parse(section, &bytes)?)
    }

    fn of(private: &Private<'_>) -> Result<Self, Problem> {
        let inconsistent = |error: aws_lc_rs::error::KeyRejected| Reason::Inconsistent(error.to_string());
        let (class, pair) = match private {
            Private::Rsa { modulus, pkcs1, .. } => {
                let bits = modulus.len() * 8 - modulus.first().map_or(0, |byte| byte.leading_zeros() as usize);
                let weak = if bits < 2048 { Reason::Weak { bits } } else { Reason::Unsupported };
                let class = Class::of_rsa(bits).ok_or(weak)?;
                (class, Pair::Rsa(Box::new(RsaKeyPair::from_der(pkcs1).map_err(inconsistent)?)))
            }
            Private::Ec { class, whole, .. } => {
                let algorithm = match class {
                    Class::EcdsaP256 => &ECDSA_P256_SHA256_ASN1_SIGNING,
                    _ => &ECDSA_P384_SHA384_ASN1_SIGNING,
                };
                let pair = EcdsaKeyPair::from_private_key_der(algorithm, whole).map_err(inconsistent)?;
                (*class, Pair::Ecdsa(Box::new(pair)))
            }
            Private::Ed25519 { seed } => {
                let pair = Ed25519KeyPair::from_seed_unchecked(*seed).map_err(inconsistent)?;
                (Class::Ed25519, Pair::Ed25519(Box::new(pair)))
            }
        };
        let public = match &pair {
            Pair::Rsa(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ecdsa(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Elsewhere => Vec::new(),
        };
        let words = Words::of(private, &public)?;
        Ok(Self { class, id: identity(&public), public, pair, words })
    }

    /// Creates a key whose private half is in another process. `public` is encoded like
    /// [`Key::public_key`].
    pub(crate) fn from_public(class: Class, public: Vec<u8>) -> Self {
        Self { class, id: identity(&public), public, pair: Pair::Elsewhere, words: None }
    }

    /// Returns the identity by which processes refer to this key.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the class of the key's jobs.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Returns the encoded public key. The encoding is an `RSAPublicKey` (RFC 8017), an
    /// uncompressed point on the elliptic curve, or the 32 bytes of an Ed25519 key.
    pub fn public_key(&self) -> &[u8] {
        &self.public
    }

    /// Returns the key components for a device, or `None` if devices cannot use this key.
    pub fn rsa(&self) -> Option<&RsaWords> {
        match &self.words {
            Some(Words::Rsa(words)) => Some(words),
            _ => None,
        }
    }

    pub(crate) fn words(&self) -> Option<&Words> {
        self.words.as_ref()
    }

    #[cfg(test)]
    pub(crate) fn words_mut(&mut self) -> Option<&mut Words> {
        self.words.as_mut()
    }

    /// Returns whether `signature` is a valid signature of `message` under this key.
    pub fn verifies(&self, scheme: Scheme, message: &[u8], signature: &[u8]) -> bool {
        scheme.is_of(self.class)
            && UnparsedPublicKey::new(scheme.verification(), &self.public).verify(message, signature).is_ok()
    }

    /// Signs with AWS-LC on the current thread. AWS-LC checks each RSA signature with the public
    /// key before returning it.
    ///
    /// Returns `None` if the scheme does not fit the key, if AWS-LC reports an error, or if another
    /// process holds the private key.
    pub fn sign(&self, scheme: Scheme, message: &[u8]) -> Option<Vec<u8>> {
        if !scheme.is_of(self.class) {
            return None;
        }
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(scheme.rsa_encoding()?, &random, message, &mut signature).ok()?;
                Some(signature)
            }
            Pair::Ecdsa(pair) => Some(pair.sign(&random, message).ok()?.as_ref().to_vec()),
            Pair::Ed25519(pair) => Some(pair.try_sign(message).ok()?.as_ref().to_vec()),
            Pair::Elsewhere => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_pkcs8() {
        let bytes = generate_pkcs8(Class::EcdsaP256).unwrap();
        let key = Key::from_pkcs8(&bytes).unwrap().unwrap();
        let signature = key.sign(Scheme::EcdsaP256Sha256, b"message").unwrap();
        assert!(key.verifies(Scheme::EcdsaP256Sha256, b"message", &signature));
        let damaged = Key::from_pkcs8(&bytes[1..]).unwrap();
        assert!(matches!(damaged, Err(Reason::Damaged(_))), "{damaged:?}");
    }
}

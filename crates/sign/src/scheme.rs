//! Signature schemes of jobs, and classes of jobs that can share a batch.

use aws_lc_rs::digest;
use aws_lc_rs::signature::{
    self, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512,
    RsaEncoding, VerificationAlgorithm,
};

/// Hash function of a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hash {
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// SHA-384 (FIPS 180-4).
    Sha384,
    /// SHA-512 (FIPS 180-4).
    Sha512,
}

impl Hash {
    pub(crate) fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        }
    }
}

/// Signature scheme of a job, as TLS defines it (RFC 8446, section 4.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// RSASSA-PKCS1-v1_5 (RFC 8017, section 8.2).
    RsaPkcs1(Hash),
    /// RSASSA-PSS with MGF1 (RFC 8017, section 8.1). The message and the mask use the same hash
    /// function, and the salt is as long as the hash.
    RsaPss(Hash),
    /// ECDSA on P-256 with SHA-256 (FIPS 186-5), encoded as ASN.1.
    EcdsaP256Sha256,
    /// ECDSA on P-384 with SHA-384 (FIPS 186-5), encoded as ASN.1.
    EcdsaP384Sha384,
    /// Ed25519 (RFC 8032).
    Ed25519,
}

impl Scheme {
    /// All schemes.
    pub const ALL: [Self; 9] = [
        Self::RsaPkcs1(Hash::Sha256),
        Self::RsaPkcs1(Hash::Sha384),
        Self::RsaPkcs1(Hash::Sha512),
        Self::RsaPss(Hash::Sha256),
        Self::RsaPss(Hash::Sha384),
        Self::RsaPss(Hash::Sha512),
        Self::EcdsaP256Sha256,
        Self::EcdsaP384Sha384,
        Self::Ed25519,
    ];

    /// Returns whether keys of `class` can sign with this scheme.
    pub fn is_of(self, class: Class) -> bool {
        match self {
            Self::RsaPkcs1(_) | Self::RsaPss(_) => class.rsa_bits().is_some(),
            Self::EcdsaP256Sha256 => class == Class::EcdsaP256,
            Self::EcdsaP384Sha384 => class == Class::EcdsaP384,
            Self::Ed25519 => class == Class::Ed25519,
        }
    }

    /// Returns AWS-LC's encoding for an RSA scheme.
    pub(crate) fn rsa_encoding(self) -> Option<&'static dyn RsaEncoding> {
        match self {
            Self::RsaPkcs1(Hash::Sha256) => Some(&RSA_PKCS1_SHA256),
            Self::RsaPkcs1(Hash::Sha384) => Some(&RSA_PKCS1_SHA384),
            Self::RsaPkcs1(Hash::Sha512) => Some(&RSA_PKCS1_SHA512),
            Self::RsaPss(Hash::Sha256) => Some(&RSA_PSS_SHA256),
            Self::RsaPss(Hash::Sha384) => Some(&RSA_PSS_SHA384),
            Self::RsaPss(Hash::Sha512) => Some(&RSA_PSS_SHA512),
            _ => None,
        }
    }

    pub(crate) fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::RsaPkcs1(Hash::Sha256) => &signature::RSA_PKCS1_2048_8192_SHA256,
            Self::RsaPkcs1(Hash::Sha384) => &signature::RSA_PKCS1_2048_8192_SHA384,
            Self::RsaPkcs1(Hash::Sha512) => &signature::RSA_PKCS1_2048_8192_SHA512,
            Self::RsaPss(Hash::Sha256) => &signature::RSA_PSS_2048_8192_SHA256,
            Self::RsaPss(Hash::Sha384) => &signature::RSA_PSS_2048_8192_SHA384,
            Self::RsaPss(Hash::Sha512) => &signature::RSA_PSS_2048_8192_SHA512,
            Self::EcdsaP256Sha256 => &signature::ECDSA_P256_SHA256_ASN1,
            Self::EcdsaP384Sha384 => &signature::ECDSA_P384_SHA384_ASN1,
            Self::Ed25519 => &signature::ED25519,
        }
    }
}

/// Class of jobs. Jobs in a batch have the same class, but may have different keys and hash
/// functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// RSA with a modulus of 2048 bits.
    Rsa2048,
    /// RSA with a modulus of 3072 bits.
    Rsa3072,
    /// RSA with a modulus of 4096 bits.
    Rsa4096,
    /// ECDSA on P-256.
    EcdsaP256,
    /// ECDSA on P-384.
    EcdsaP384,
    /// Ed25519.
    Ed25519,
}

impl Class {
    /// All classes, in the order of [`Class::index`].
    pub const ALL: [Self; 6] =
        [Self::Rsa2048, Self::Rsa3072, Self::Rsa4096, Self::EcdsaP256, Self::EcdsaP384, Self::Ed25519];

    /// Returns the index of this class in arrays over all classes.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the modulus size in bits, for RSA.
    pub const fn rsa_bits(self) -> Option<usize> {
        match self {
            Self::Rsa2048 => Some(2048),
            Self::Rsa3072 => Some(3072),
            Self::Rsa4096 => Some(4096),
            _ => None,
        }
    }

    /// Returns the class of RSA keys with a modulus of `bits`.
    pub const fn of_rsa(bits: usize) -> Option<Self> {
        match bits {
            2048 => Some(Self::Rsa2048),
            3072 => Some(Self::Rsa3072),
            4096 => Some(Self::Rsa4096),
            _ => None,
        }
    }

    /// Returns the name in tables and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rsa2048 => "rsa2048",
            Self::Rsa3072 => "rsa3072",
            Self::Rsa4096 => "rsa4096",
            Self::EcdsaP256 => "p256",
            Self::EcdsaP384 => "p384",
            Self::Ed25519 => "ed25519",
        }
    }
}

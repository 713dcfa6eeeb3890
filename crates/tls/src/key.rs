//! Private keys in the form that rustls expects. The current thread's signing service creates their
//! signatures.

use std::sync::Arc;

use godwit_sign::{Class, Hash, Key, Scheme};
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, OtherError, SignatureAlgorithm, SignatureScheme};

use crate::service;

/// Signature schemes for RSA keys, in order of preference. RFC 8446, section 9.1, requires some of
/// them.
const RSA: [(SignatureScheme, Scheme); 6] = [
    (SignatureScheme::RSA_PSS_SHA256, Scheme::RsaPss(Hash::Sha256)),
    (SignatureScheme::RSA_PSS_SHA384, Scheme::RsaPss(Hash::Sha384)),
    (SignatureScheme::RSA_PSS_SHA512, Scheme::RsaPss(Hash::Sha512)),
    (SignatureScheme::RSA_PKCS1_SHA256, Scheme::RsaPkcs1(Hash::Sha256)),
    (SignatureScheme::RSA_PKCS1_SHA384, Scheme::RsaPkcs1(Hash::Sha384)),
    (SignatureScheme::RSA_PKCS1_SHA512, Scheme::RsaPkcs1(Hash::Sha512)),
];
const P256: [(SignatureScheme, Scheme); 1] = [(SignatureScheme::ECDSA_NISTP256_SHA256, Scheme::EcdsaP256Sha256)];
const P384: [(SignatureScheme, Scheme); 1] = [(SignatureScheme::ECDSA_NISTP384_SHA384, Scheme::EcdsaP384Sha384)];
const ED25519: [(SignatureScheme, Scheme); 1] = [(SignatureScheme::ED25519, Scheme::Ed25519)];

/// Private key whose signatures come from the signing service.
#[derive(Debug)]
pub(crate) struct ServiceKey(pub(crate) Arc<Key>);

/// Private key with the scheme of one handshake.
#[derive(Debug)]
struct ServiceSigner {
    key: Arc<Key>,
    name: SignatureScheme,
    scheme: Scheme,
}

fn schemes(class: Class) -> &'static [(SignatureScheme, Scheme)] {
    match class {
        Class::Rsa2048 | Class::Rsa3072 | Class::Rsa4096 => &RSA,
        Class::EcdsaP256 => &P256,
        Class::EcdsaP384 => &P384,
        Class::Ed25519 => &ED25519,
    }
}

impl SigningKey for ServiceKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let &(name, scheme) = schemes(self.0.class()).iter().find(|(name, _)| offered.contains(name))?;
        Some(Box::new(ServiceSigner { key: Arc::clone(&self.0), name, scheme }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.0.class() {
            Class::Rsa2048 | Class::Rsa3072 | Class::Rsa4096 => SignatureAlgorithm::RSA,
            Class::EcdsaP256 | Class::EcdsaP384 => SignatureAlgorithm::ECDSA,
            Class::Ed25519 => SignatureAlgorithm::ED25519,
        }
    }
}

impl Signer for ServiceSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        service::sign(&self.key, self.scheme, message).map_err(|error| Error::Other(OtherError(Arc::new(error))))
    }

    fn scheme(&self) -> SignatureScheme {
        self.name
    }
}

//! Parses private keys in the formats PKCS #8 (RFC 5958), PKCS #1 (RFC 8017, appendix A.1.2) and
//! SEC 1 (RFC 5915).

use der::asn1::{AnyRef, OctetStringRef, UintRef};
use der::{Decode, SliceReader, Tag, TagNumber};

use super::pem::Section;
use crate::error::Reason;
use crate::scheme::Class;

// Contents of object identifiers.
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// Components of a private key. Unless a field states otherwise, they are big-endian numbers
/// without leading zeros.
pub(super) enum Private<'a> {
    Rsa {
        /// The structure `RSAPrivateKey`.
        pkcs1: &'a [u8],
        modulus: &'a [u8],
        exponent: &'a [u8],
        /// p, q, d mod (p-1), d mod (q-1) and 1/q mod p.
        crt: [&'a [u8]; 5],
    },
    Ec {
        class: Class,
        /// The structure that AWS-LC parses: PKCS #8 or SEC 1.
        whole: &'a [u8],
        /// Scalar of fixed length.
        scalar: &'a [u8],
    },
    Ed25519 {
        seed: &'a [u8; 32],
    },
}

const DAMAGED: Reason = Reason::Damaged("its ASN.1 structure is not that of a private key");

impl<'a> Private<'a> {
    pub(super) fn is_label(label: &[u8]) -> bool {
        label.ends_with(b"PRIVATE KEY")
    }

    /// Parses a key in the format PKCS #8.
    pub(super) fn parse_pkcs8(bytes: &'a [u8]) -> Result<Self, Reason> {
        pkcs8(bytes)
    }

    /// Parses the decoded bytes of `section`.
    pub(super) fn parse(section: &Section<'_>, bytes: &'a [u8]) -> Result<Self, Reason> {
        match section.label {
            b"PRIVATE KEY" => pkcs8(bytes),
            b"RSA PRIVATE KEY" => pkcs1(bytes),
            b"EC PRIVATE KEY" => sec1(bytes, bytes, None),
            _ => Err(Reason::Unsupported),
        }
    }
}

/// Reads the elements of a sequence that fills `bytes`.
fn sequence(bytes: &[u8]) -> Result<SliceReader<'_>, Reason> {
    let whole = AnyRef::from_der(bytes).map_err(|_| DAMAGED)?;
    if whole.header().tag() != Tag::Sequence {
        return Err(DAMAGED);
    }
    SliceReader::new(whole.value()).map_err(|_| DAMAGED)
}

fn octets<'a>(reader: &mut SliceReader<'a>) -> Result<&'a [u8], Reason> {
    <&'a OctetStringRef>::decode(reader).map(OctetStringRef::as_bytes).map_err(|_| DAMAGED)
}

fn uint<'a>(reader: &mut SliceReader<'a>) -> Result<&'a [u8], Reason> {
    UintRef::decode(reader).map(|number| number.as_bytes()).map_err(|_| DAMAGED)
}

fn any<'a>(reader: &mut SliceReader<'a>) -> Result<AnyRef<'a>, Reason> {
    AnyRef::decode(reader).map_err(|_| DAMAGED)
}

fn pkcs8(bytes: &[u8]) -> Result<Private<'_>, Reason> {
    let mut fields = sequence(bytes)?;
    uint(&mut fields)?; // version
    let algorithm = any(&mut fields)?;
    let key = octets(&mut fields)?;
    let mut algorithm = SliceReader::new(algorithm.value()).map_err(|_| DAMAGED)?;
    let kind = any(&mut algorithm)?;
    match kind.value() {
        RSA_ENCRYPTION => pkcs1(key),
        EC_PUBLIC_KEY => sec1(bytes, key, Some(any(&mut algorithm)?.value())),
        ED25519 => {
            let mut key = SliceReader::new(key).map_err(|_| DAMAGED)?;
            Ok(Private::Ed25519 { seed: octets(&mut key)?.try_into().map_err(|_| DAMAGED)? })
        }
        _ => Err(Reason::Unsupported),
    }
}

fn pkcs1(bytes: &[u8]) -> Result<Private<'_>, Reason> {
    let mut fields = sequence(bytes)?;
    if uint(&mut fields)? != [0] {
        return Err(Reason::Unsupported); // more than two primes
    }
    let mut next = || uint(&mut fields);
    let (modulus, exponent) = (next()?, next()?);
    next()?; // d
    Ok(Private::Rsa { pkcs1: bytes, modulus, exponent, crt: [next()?, next()?, next()?, next()?, next()?] })
}

/// Parses an `ECPrivateKey`. In SEC 1 files, this structure names the curve. In PKCS #8, the name
/// is elsewhere, so the caller passes it as `curve`.
fn sec1<'a>(whole: &'a [u8], bytes: &'a [u8], curve: Option<&[u8]>) -> Result<Private<'a>, Reason> {
    let mut fields = sequence(bytes)?;
    uint(&mut fields)?; // version
    let scalar = octets(&mut fields)?;
    let curve = match curve {
        Some(curve) => curve,
        None => {
            let parameters = any(&mut fields)?;
            let tag = Tag::ContextSpecific { constructed: true, number: TagNumber(0) };
            if parameters.header().tag() != tag {
                return Err(DAMAGED);
            }
            AnyRef::from_der(parameters.value()).map_err(|_| DAMAGED)?.value()
        }
    };
    let (class, scalar_bytes) = match curve {
        P256 => (Class::EcdsaP256, 32),
        P384 => (Class::EcdsaP384, 48),
        _ => return Err(Reason::Unsupported),
    };
    if scalar.len() == scalar_bytes { Ok(Private::Ec { class, whole, scalar }) } else { Err(DAMAGED) }
}

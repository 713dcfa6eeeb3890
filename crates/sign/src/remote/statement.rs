//! Parts of TLS handshakes that a server signs. The signer builds each message from such a part, so
//! clients cannot get a signature of any other document.

/// Context string that TLS 1.3 signs before the handshake hash (RFC 8446, section 4.4.3).
const CONTEXT: &[u8] = b"TLS 1.3, server CertificateVerify\0";
const SPACES: usize = 64;
/// Size of the two random numbers that TLS 1.2 signs before the key exchange parameters.
const RANDOM_BYTES: usize = 64;
/// Value of `ECCurveType` for a named group (RFC 8422, section 5.4).
const NAMED_CURVE: u8 = 3;

/// Kind of a part of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Handshake hash, which `CertificateVerify` of TLS 1.3 signs.
    Tls13 = 0,
    /// Random numbers and key exchange parameters, which TLS 1.2 signs in `ServerKeyExchange`.
    Tls12 = 1,
}

impl Kind {
    pub(super) fn from_number(number: u64) -> Option<Self> {
        [Self::Tls13, Self::Tls12].into_iter().find(|kind| *kind as u64 == number)
    }
}

/// Splits a message from rustls into its kind and the bytes from which the signer rebuilds it.
/// Returns `None` if the message is not part of a handshake.
pub(super) fn reduce(message: &[u8]) -> Option<(Kind, &[u8])> {
    let tls13 = message.get(..SPACES).filter(|spaces| spaces.iter().all(|byte| *byte == b' '));
    let hash = tls13.and_then(|_| message[SPACES..].strip_prefix(CONTEXT)).filter(|hash| is_hash(hash));
    match hash {
        Some(hash) => Some((Kind::Tls13, hash)),
        None => is_key_exchange(message).then_some((Kind::Tls12, message)),
    }
}

/// Builds the message to sign. Returns `None` if `bytes` are not part of a handshake.
pub(super) fn build(kind: Kind, bytes: &[u8]) -> Option<Vec<u8>> {
    match kind {
        Kind::Tls13 => is_hash(bytes).then(|| [&[b' '; SPACES][..], CONTEXT, bytes].concat()),
        Kind::Tls12 => is_key_exchange(bytes).then(|| bytes.to_vec()),
    }
}

/// The suites of TLS 1.3 use SHA-256 or SHA-384.
fn is_hash(bytes: &[u8]) -> bool {
    [32, 48].contains(&bytes.len())
}

/// Returns whether the bytes are two random numbers and an elliptic curve public key in a named
/// group (RFC 8422, section 5.4).
fn is_key_exchange(bytes: &[u8]) -> bool {
    match bytes.get(RANDOM_BYTES..) {
        Some([NAMED_CURVE, _, _, length, point @ ..]) => point.len() == usize::from(*length) && !point.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_exchange(point: usize) -> Vec<u8> {
        [&[7; 64][..], &[3, 0, 0x1d, point as u8], &vec![9; point]].concat()
    }

    #[test]
    fn handshakes_are_rebuilt_exactly() {
        for length in [32, 48] {
            let message = [&[0x20; 64][..], b"TLS 1.3, server CertificateVerify\0", &vec![5; length]].concat();
            let (kind, bytes) = reduce(&message).unwrap();
            assert_eq!((kind, bytes.len()), (Kind::Tls13, length));
            assert_eq!(build(kind, bytes), Some(message));
        }
        for point in [32, 65, 97] {
            let message = key_exchange(point);
            let (kind, bytes) = reduce(&message).unwrap();
            assert_eq!((kind, build(kind, bytes)), (Kind::Tls12, Some(message.clone())));
        }
    }

    #[test]
    fn nothing_else_is_signed() {
        let client = [&[0x20; 64][..], b"TLS 1.3, client CertificateVerify\0", &[5; 32]].concat();
        let long = [&[0x20; 64][..], CONTEXT, &[5; 33]].concat();
        let mut other_curve = key_exchange(32);
        other_curve[64] = 1;
        let cut = &key_exchange(32)[..99];
        for message in [&client[..], &long, &other_curve, cut, b"", b"{\"alg\":\"RS256\"}", &[0x30; 400]] {
            assert_eq!(reduce(message), None, "{message:x?}");
        }
        for bytes in [&[0; 31][..], &[0; 33], &[], &[0; 64]] {
            assert_eq!(build(Kind::Tls13, bytes), None);
        }
        assert_eq!(build(Kind::Tls12, &[0x20; 98]), None);
    }
}

//! ESP, from the SPI to the ICV (RFC 4303, section 2).

use super::super::suite::{Authentication, Cipher};
use super::super::{DROP_AUTHENTICATION, DROP_MALFORMED, DROP_NO_SA, DROP_PADDING};
use super::association::Association;
use super::crypto;

/// Size of SPI and sequence number, in bytes.
pub(super) const HEADER_BYTES: usize = 8;
/// Size of pad length and next header, in bytes.
const TAIL_BYTES: usize = 2;

/// Returns the size of the IV in a packet, in bytes. It is 16 for CBC (RFC 3602, section 2.1). It
/// is 8 for counter modes (RFC 3686, section 3.1; RFC 4106, section 3.1; RFC 4309, section 3.1; RFC
/// 4543, section 3.1; RFC 7634, section 2).
pub(super) fn iv_bytes(sa: &Association<'_>) -> usize {
    match (sa.suite.cipher, sa.suite.authentication) {
        (Cipher::Cbc, _) => 16,
        (Cipher::Ctr | Cipher::ChaCha20, _) | (Cipher::Null, Authentication::Ghash) => 8,
        (Cipher::Null, _) => 0,
    }
}

/// Returns the ESP packet that contains this payload (RFC 4303, section 3.3.2).
pub(super) fn encapsulate(sa: &Association<'_>, sequence: u64, payload: &[u8], next_header: u8) -> Vec<u8> {
    // The padding bytes 1, 2, 3, … follow the payload. Pad length and next header follow the
    // padding (RFC 4303, section 2.4).
    let block_bytes = block_bytes(sa);
    let pad_bytes = (payload.len() + TAIL_BYTES).next_multiple_of(block_bytes) - payload.len() - TAIL_BYTES;
    let mut data = payload.to_vec();
    data.extend(1..=pad_bytes as u8);
    data.extend([pad_bytes as u8, next_header]);

    let header = [sa.spi.to_be_bytes(), (sequence as u32).to_be_bytes()].concat();
    let iv = iv(sa, sequence);
    let icv = match (sa.suite.cipher, sa.suite.authentication) {
        (Cipher::Ctr, Authentication::Ghash) => {
            let aad = combined_aad(sa, &header, sequence);
            crypto::gcm_encrypt(sa.key, &nonce(sa, &iv), &aad, &mut data).to_vec()
        }
        (Cipher::Ctr, Authentication::Ccm) => {
            let aad = combined_aad(sa, &header, sequence);
            crypto::ccm_encrypt(sa.key, &ccm_nonce(sa, &iv), &aad, sa.icv_bytes, &mut data)
        }
        (Cipher::ChaCha20, _) => {
            let aad = combined_aad(sa, &header, sequence);
            crypto::chacha20_poly1305_encrypt(sa.key, &nonce(sa, &iv), &aad, &mut data).to_vec()
        }
        _ => {
            match sa.suite.cipher {
                Cipher::Cbc => crypto::cbc_encrypt(sa.key, &iv, &mut data),
                Cipher::Ctr => crypto::ctr(sa.key, &nonce(sa, &iv), 1, &mut data),
                Cipher::Null | Cipher::ChaCha20 => {}
            }
            icv(sa, &header, sequence, &iv, &data)
        }
    };
    [&header, &iv, &data, &icv[..sa.icv_bytes]].concat()
}

/// Returns the payload of an ESP packet and its next header (RFC 4303, section 3.4). `sequence`
/// provides the upper half of an extended sequence number, which is not in the packet.
pub(super) fn decapsulate(sa: &Association<'_>, sequence: u64, esp: &[u8]) -> Result<(Vec<u8>, u8), u8> {
    let front_bytes = HEADER_BYTES + iv_bytes(sa);
    let data_bytes = esp.len().checked_sub(front_bytes + sa.icv_bytes).ok_or(DROP_MALFORMED)?;
    if data_bytes == 0 || data_bytes % block_bytes(sa) != 0 {
        return Err(DROP_MALFORMED);
    }
    let (header, rest) = esp.split_at(HEADER_BYTES);
    let (iv, rest) = rest.split_at(front_bytes - HEADER_BYTES);
    let (data, sent) = rest.split_at(data_bytes);
    if header[..4] != sa.spi.to_be_bytes() {
        return Err(DROP_NO_SA);
    }
    let mut data = data.to_vec();
    match (sa.suite.cipher, sa.suite.authentication) {
        (Cipher::Ctr, Authentication::Ghash) => {
            let tag = crypto::gcm_decrypt(sa.key, &nonce(sa, iv), &combined_aad(sa, header, sequence), &mut data);
            check(&tag, sent)?;
        }
        (Cipher::Ctr, Authentication::Ccm) => {
            let aad = combined_aad(sa, header, sequence);
            crypto::ccm_decrypt(sa.key, &ccm_nonce(sa, iv), &aad, &mut data, sent).map_err(|()| DROP_AUTHENTICATION)?;
        }
        (Cipher::ChaCha20, _) => {
            let aad = combined_aad(sa, header, sequence);
            crypto::chacha20_poly1305_decrypt(sa.key, &nonce(sa, iv), &aad, &mut data, sent)
                .map_err(|()| DROP_AUTHENTICATION)?;
        }
        _ => {
            check(&icv(sa, header, sequence, iv, &data), sent)?;
            match sa.suite.cipher {
                Cipher::Cbc => crypto::cbc_decrypt(sa.key, iv, &mut data),
                Cipher::Ctr => crypto::ctr(sa.key, &nonce(sa, iv), 1, &mut data),
                Cipher::Null | Cipher::ChaCha20 => {}
            }
        }
    }
    unpad(data)
}

/// Checks and removes the padding (RFC 4303, section 2.4). Returns the payload and its next header.
fn unpad(mut data: Vec<u8>) -> Result<(Vec<u8>, u8), u8> {
    let (rest, &[pad_bytes, next_header]) = data.split_last_chunk::<TAIL_BYTES>().ok_or(DROP_MALFORMED)?;
    let payload_bytes = rest.len().checked_sub(usize::from(pad_bytes)).ok_or(DROP_PADDING)?;
    if rest[payload_bytes..].iter().zip(1..=pad_bytes).any(|(byte, expected)| *byte != expected) {
        return Err(DROP_PADDING);
    }
    data.truncate(payload_bytes);
    Ok((data, next_header))
}

/// Returns the alignment in bytes of the payload, the padding and the ESP trailer together. It is
/// the block size of the cipher, and at least 4 (RFC 4303, section 2.4).
fn block_bytes(sa: &Association<'_>) -> usize {
    if sa.suite.cipher == Cipher::Cbc { 16 } else { 4 }
}

fn iv(sa: &Association<'_>, sequence: u64) -> Vec<u8> {
    match iv_bytes(sa) {
        16 => sa.cbc_iv(sequence).to_vec(),
        8 => sequence.to_be_bytes().to_vec(),
        _ => Vec::new(),
    }
}

/// Returns the nonce, which consists of salt and IV (RFC 3686, section 4; RFC 4106, section 4; RFC
/// 4543, section 3.2; RFC 7634, section 2). AES-CTR appends a block counter that starts at 1.
pub(super) fn nonce(sa: &Association<'_>, iv: &[u8]) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&sa.salt);
    nonce[4..].copy_from_slice(iv);
    nonce
}

/// Returns the nonce of CCM: a salt of 3 bytes, and the IV (RFC 4309, section 4).
fn ccm_nonce(sa: &Association<'_>, iv: &[u8]) -> [u8; 11] {
    let mut nonce = [0; 11];
    nonce[..3].copy_from_slice(&sa.salt[..3]);
    nonce[3..].copy_from_slice(iv);
    nonce
}

/// Returns the additional authenticated data of combined-mode ciphers. It consists of the SPI and
/// the full sequence number of 32 or 64 bits (RFC 4106, section 5; RFC 4309, section 5; RFC 7634,
/// section 2.1).
fn combined_aad(sa: &Association<'_>, header: &[u8], sequence: u64) -> Vec<u8> {
    let upper = upper_half(sa, sequence);
    [&header[..4], &upper, &header[4..]].concat()
}

/// Returns the upper half of an extended sequence number, or nothing if the SA uses short ones.
fn upper_half(sa: &Association<'_>, sequence: u64) -> Vec<u8> {
    if sa.esn { ((sequence >> 32) as u32).to_be_bytes().to_vec() } else { Vec::new() }
}

/// Returns the full ICV, before truncation, for a suite with separate encryption and
/// authentication.
fn icv(sa: &Association<'_>, header: &[u8], sequence: u64, iv: &[u8], data: &[u8]) -> Vec<u8> {
    // The upper half of the sequence number follows all other authenticated data (RFC 4303, section
    // 2.2.1).
    let upper = upper_half(sa, sequence);
    let pieces = [header, iv, data, &upper];
    match sa.suite.authentication {
        Authentication::Sha1 => crypto::hmac_sha1(sa.authentication_key, &pieces),
        Authentication::Sha256 => crypto::hmac_sha256(sa.authentication_key, &pieces),
        Authentication::Sha384 => crypto::hmac_sha384(sa.authentication_key, &pieces),
        Authentication::Sha512 => crypto::hmac_sha512(sa.authentication_key, &pieces),
        Authentication::Xcbc => crypto::aes_xcbc(sa.authentication_key, &pieces),
        Authentication::Cmac => crypto::aes_cmac(sa.authentication_key, &pieces),
        // With GMAC, nothing is encrypted, and the whole packet is additional authenticated data
        // (RFC 4543, section 3.3).
        Authentication::Ghash => {
            let aad = [&combined_aad(sa, header, sequence), iv, data].concat();
            crypto::gcm_encrypt(sa.key, &nonce(sa, iv), &aad, &mut []).to_vec()
        }
        Authentication::None | Authentication::Poly1305 | Authentication::Ccm => Vec::new(),
    }
}

/// Compares two ICVs in constant time.
pub(super) fn check(computed: &[u8], sent: &[u8]) -> Result<(), u8> {
    let difference = computed.iter().zip(sent).fold(0, |difference, (a, b)| difference | (a ^ b));
    if difference == 0 { Ok(()) } else { Err(DROP_AUTHENTICATION) }
}

//! Authentication Header (AH, RFC 4302) with its ICV.

use super::super::suite::Authentication;
use super::super::{DROP_MALFORMED, DROP_NO_SA};
use super::association::Association;
use super::esp::{check, nonce};
use super::{crypto, ip};

/// Size of the fixed AH fields in bytes: next header, payload length, reserved, SPI and sequence
/// number.
pub(super) const FIXED_BYTES: usize = 12;

/// Returns the size of the IV in bytes. The IV precedes the ICV (RFC 4543, section 4).
fn iv_bytes(sa: &Association<'_>) -> usize {
    if sa.suite.authentication == Authentication::Ghash { 8 } else { 0 }
}

/// Returns the size of the AH header in bytes. It is a multiple of 4 in IPv4 and of 8 in IPv6 (RFC
/// 4302, section 3.3.3.2.1).
pub(super) fn header_bytes(sa: &Association<'_>, ipv6: bool) -> usize {
    (FIXED_BYTES + iv_bytes(sa) + sa.icv_bytes).next_multiple_of(if ipv6 { 8 } else { 4 })
}

/// Inserts the AH header between `front` and `rest`. The length fields in `front` must already
/// include AH.
pub(super) fn add_header(
    sa: &Association<'_>,
    sequence: u64,
    front: &[u8],
    rest: &[u8],
    next_header: u8,
) -> Result<Vec<u8>, u8> {
    let ipv6 = ip::is_ipv6(front);
    let mut header = vec![0; header_bytes(sa, ipv6)];
    header[0] = next_header;
    // The payload length field contains the number of 32-bit words minus 2 (RFC 4302, section 2.2).
    header[1] = (header.len() / 4 - 2) as u8;
    header[4..8].copy_from_slice(&sa.spi.to_be_bytes());
    header[8..12].copy_from_slice(&(sequence as u32).to_be_bytes());
    if iv_bytes(sa) != 0 {
        header[FIXED_BYTES..][..8].copy_from_slice(&sequence.to_be_bytes());
    }
    let mut packet = [front, &header, rest].concat();
    let icv = icv(sa, sequence, &packet, front.len(), true)?;
    packet[front.len() + FIXED_BYTES + iv_bytes(sa)..][..sa.icv_bytes].copy_from_slice(&icv[..sa.icv_bytes]);
    Ok(packet)
}

/// Checks the AH header at offset `at`. Returns the offset of its end and the next header field.
pub(super) fn check_header(sa: &Association<'_>, sequence: u64, packet: &[u8], at: usize) -> Result<(usize, u8), u8> {
    let ah_bytes = header_bytes(sa, ip::is_ipv6(packet));
    let header = packet.get(at..at + ah_bytes).ok_or(DROP_MALFORMED)?;
    // RFC 4302, section 3.3.3.2.1, prohibits padding beyond the alignment. The reserved field is
    // authenticated but ignored.
    if usize::from(header[1]) != ah_bytes / 4 - 2 {
        return Err(DROP_MALFORMED);
    }
    if header[4..8] != sa.spi.to_be_bytes() {
        return Err(DROP_NO_SA);
    }
    let sent = &header[FIXED_BYTES + iv_bytes(sa)..][..sa.icv_bytes];
    check(&icv(sa, sequence, packet, at, false)?, sent)?;
    Ok((at + ah_bytes, header[0]))
}

/// Returns the full ICV of a packet, before truncation. The AH header begins at offset `at`.
fn icv(sa: &Association<'_>, sequence: u64, packet: &[u8], at: usize, outbound: bool) -> Result<Vec<u8>, u8> {
    let mut data = ip::without_mutable_fields(packet, at, outbound)?;
    let iv = data[at + FIXED_BYTES..][..iv_bytes(sa)].to_vec();
    data[at + FIXED_BYTES + iv.len()..][..sa.icv_bytes].fill(0);
    if sa.esn {
        // The upper half of an extended sequence number is authenticated but not transmitted (RFC
        // 4302, section 3.3.3.1).
        data.extend(((sequence >> 32) as u32).to_be_bytes());
    }
    Ok(match sa.suite.authentication {
        Authentication::Sha1 => crypto::hmac_sha1(sa.authentication_key, &[&data]),
        Authentication::Sha256 => crypto::hmac_sha256(sa.authentication_key, &[&data]),
        Authentication::Sha384 => crypto::hmac_sha384(sa.authentication_key, &[&data]),
        Authentication::Sha512 => crypto::hmac_sha512(sa.authentication_key, &[&data]),
        Authentication::Xcbc => crypto::aes_xcbc(sa.authentication_key, &[&data]),
        Authentication::Cmac => crypto::aes_cmac(sa.authentication_key, &[&data]),
        Authentication::Ghash => crypto::gcm_encrypt(sa.key, &nonce(sa, &iv), &data, &mut []).to_vec(),
        Authentication::None | Authentication::Poly1305 | Authentication::Ccm => Vec::new(),
    })
}

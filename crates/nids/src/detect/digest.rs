//! Digests of fields and files.

use md5::Digest;

/// Returns the MD5 digest.
pub fn md5(bytes: &[u8]) -> [u8; 16] {
    md5::Md5::digest(bytes).into()
}

/// Returns the SHA-1 digest.
pub fn sha1(bytes: &[u8]) -> [u8; 20] {
    sha1::Sha1::digest(bytes).into()
}

/// Returns the SHA-256 digest.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    sha2::Sha256::digest(bytes).into()
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

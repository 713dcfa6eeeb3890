//! Reference implementation of `hash`, with the RustCrypto crates.

use md5::{Digest as _, Md5};
use sha1::Sha1;
use sha2::Sha256;

use super::{Over, VARIANT_MD5, VARIANT_SHA1};

/// Returns the bytes of a frame that the digest covers, or `None` if the frame is truncated.
pub(super) fn covered(frame: &[u8], over: Over) -> Option<&[u8]> {
    if frame.len() < godwit_wire::ethernet::HEADER_BYTES {
        return None;
    }
    match over {
        Over::Frame => Some(frame),
        Over::Payload => crate::dpi::reference::payload(frame),
    }
}

/// Returns the digest of a text.
pub(super) fn digest(variant: u8, text: &[u8]) -> Vec<u8> {
    match variant {
        VARIANT_MD5 => Md5::digest(text).to_vec(),
        VARIANT_SHA1 => Sha1::digest(text).to_vec(),
        _ => Sha256::digest(text).to_vec(),
    }
}

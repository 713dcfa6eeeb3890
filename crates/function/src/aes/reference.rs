//! Reference implementation of `aes`, with the RustCrypto crates.

use std::ops::Range;

use aes::Aes128;
use aes::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyInit as _, KeyIvInit as _};
use chacha20poly1305::ChaCha20Poly1305;
use chacha20poly1305::aead::AeadInOut as _;
use godwit_abi::{Descriptor, Outcome};
use godwit_wire::{Ethernet, Ipv4, Ipv6, Vlan, ethernet, ethertype, ipv6, vlan};

use super::{
    DROP_FORGED, DROP_MALFORMED, DROP_NO_ROOM, VARIANT_CBC_DECRYPT, VARIANT_CBC_ENCRYPT,
    VARIANT_CHACHA20_POLY1305_DECRYPT, VERDICT_DONE,
};

const TAG_BYTES: usize = 16;
const KEY: &str = "the key and the IV have the lengths of the cipher";

/// Returns the range of the data in a frame, or `None` if its headers are invalid.
fn data(frame: &[u8]) -> Option<Range<usize>> {
    let outer = Ethernet::new_checked(frame).ok()?;
    let (kind, at) = match outer.ethertype() {
        ethertype::VLAN => {
            let tag = Vlan::new_checked(&frame[ethernet::HEADER_BYTES..]).ok()?;
            (tag.ethertype(), ethernet::HEADER_BYTES + vlan::HEADER_BYTES)
        }
        other => (other, ethernet::HEADER_BYTES),
    };
    let packet = &frame[at..];
    match kind {
        ethertype::IPV4 => {
            let header = Ipv4::new_checked(packet).ok()?;
            Some(at + header.header_bytes()..at + usize::from(header.total_bytes()))
        }
        ethertype::IPV6 => {
            let header = Ipv6::new_checked(packet).ok()?;
            let start = at + ipv6::HEADER_BYTES;
            Some(start..start + usize::from(header.payload_bytes()))
        }
        _ => Some(at..frame.len()),
    }
}

/// Encrypts or decrypts one packet.
pub(super) fn run_ref(buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, key: &[u8], iv: &[u8]) -> Outcome {
    let head = usize::from(descriptor.head);
    let mut length = usize::from(descriptor.length);
    if variant == VARIANT_CHACHA20_POLY1305_DECRYPT {
        let Some(shorter) = length.checked_sub(TAG_BYTES) else { return Outcome::drop(DROP_FORGED) };
        length = shorter;
    }
    let Some(data) = data(&buffer[head..head + length]) else { return Outcome::drop(DROP_MALFORMED) };
    let data = head + data.start..head + data.end;
    let tag_at = head + length..head + length + TAG_BYTES;
    match variant {
        VARIANT_CBC_ENCRYPT => {
            let mut cipher = cbc::Encryptor::<Aes128>::new_from_slices(key, iv).expect(KEY);
            let (blocks, _) = buffer[data].as_chunks_mut::<16>();
            blocks.iter_mut().for_each(|block| cipher.encrypt_block(block.into()));
        }
        VARIANT_CBC_DECRYPT => {
            let mut cipher = cbc::Decryptor::<Aes128>::new_from_slices(key, iv).expect(KEY);
            let (blocks, _) = buffer[data].as_chunks_mut::<16>();
            blocks.iter_mut().for_each(|block| cipher.decrypt_block(block.into()));
        }
        VARIANT_CHACHA20_POLY1305_DECRYPT => {
            let cipher = ChaCha20Poly1305::new_from_slice(key).expect(KEY);
            let tag = <[u8; TAG_BYTES]>::try_from(&buffer[tag_at]).expect("the range has the length of the tag");
            let nonce = <[u8; 12]>::try_from(iv).expect(KEY);
            let decrypted = cipher.decrypt_inout_detached(&nonce.into(), &[], (&mut buffer[data]).into(), &tag.into());
            if decrypted.is_err() {
                return Outcome::drop(DROP_FORGED);
            }
            descriptor.length -= TAG_BYTES as u16;
        }
        _ => {
            if tag_at.end > buffer.len() {
                return Outcome::drop(DROP_NO_ROOM);
            }
            let cipher = ChaCha20Poly1305::new_from_slice(key).expect(KEY);
            let nonce = <[u8; 12]>::try_from(iv).expect(KEY);
            let tag = cipher.encrypt_inout_detached(&nonce.into(), &[], (&mut buffer[data]).into());
            let tag: [u8; TAG_BYTES] = tag.expect("packets are short").into();
            buffer[tag_at].copy_from_slice(&tag);
            descriptor.length += TAG_BYTES as u16;
        }
    }
    Outcome::verdict(VERDICT_DONE)
}

//! The transforms, with RustCrypto's ciphers and hashes.

use aes::cipher::consts::{U12, U16};
use aes::cipher::{
    Block, BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser, KeyInit,
    KeyIvInit, StreamCipher,
};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::AesGcm;
use aes_gcm::aead::AeadInOut;
use chacha20poly1305::ChaCha20Poly1305;
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2::Sha256;

/// One call of a function of a cipher, by the length of the key.
macro_rules! with_aes {
    ($key:expr, $function:ident, $($argument:expr),*) => {
        match $key.len() {
            16 => $function::<Aes128>($key, $($argument),*),
            24 => $function::<Aes192>($key, $($argument),*),
            32 => $function::<Aes256>($key, $($argument),*),
            bytes => unreachable!("no AES key has {bytes} bytes"),
        }
    };
}

/// Enough of AES for everything here.
trait Aes: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + BlockCipherDecrypt + KeyInit {}

impl<C: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + BlockCipherDecrypt + KeyInit> Aes for C {}

const KEY: &str = "the key has the length of the cipher's";

/// AES of one block.
pub(super) fn aes_block(key: &[u8], block: [u8; 16]) -> [u8; 16] {
    fn run<C: Aes>(key: &[u8], block: [u8; 16]) -> [u8; 16] {
        let mut block = Block::<C>::from(block);
        C::new_from_slice(key).expect(KEY).encrypt_block(&mut block);
        block.into()
    }
    with_aes!(key, run, block)
}

/// AES-CBC (SP 800-38A, section 6.2) of whole blocks.
pub(super) fn cbc_encrypt(key: &[u8], iv: &[u8], data: &mut [u8]) {
    fn run<C: Aes>(key: &[u8], iv: &[u8], data: &mut [u8]) {
        let mut cipher = cbc::Encryptor::<C>::new_from_slices(key, iv).expect(KEY);
        data.as_chunks_mut::<16>().0.iter_mut().for_each(|block| cipher.encrypt_block(block.into()));
    }
    with_aes!(key, run, iv, data);
}

/// The reverse.
pub(super) fn cbc_decrypt(key: &[u8], iv: &[u8], data: &mut [u8]) {
    fn run<C: Aes>(key: &[u8], iv: &[u8], data: &mut [u8]) {
        let mut cipher = cbc::Decryptor::<C>::new_from_slices(key, iv).expect(KEY);
        data.as_chunks_mut::<16>().0.iter_mut().for_each(|block| cipher.decrypt_block(block.into()));
    }
    with_aes!(key, run, iv, data);
}

/// AES-CTR both ways, with the counter in the last 32 bits, from `first` on.
pub(super) fn ctr(key: &[u8], nonce: &[u8; 12], first: u32, data: &mut [u8]) {
    fn run<C: Aes>(key: &[u8], block: &[u8], data: &mut [u8]) {
        ctr::Ctr32BE::<C>::new_from_slices(key, block).expect(KEY).apply_keystream(data);
    }
    let block = [&nonce[..], &first.to_be_bytes()].concat();
    with_aes!(key, run, &block, data);
}

/// AES-GCM (SP 800-38D, section 7.1): encrypts and returns the whole tag.
pub(super) fn gcm_encrypt(key: &[u8], nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; 16] {
    fn run<C: Aes>(key: &[u8], nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; 16] {
        let cipher = AesGcm::<C, U12>::new_from_slice(key).expect(KEY);
        let tag = cipher.encrypt_inout_detached(nonce.into(), aad, data.into());
        tag.expect("packets are short").into()
    }
    with_aes!(key, run, nonce, aad, data)
}

/// AES-GCM (section 7.2): decrypts and returns the whole tag, which the caller compares as far as it was sent.
pub(super) fn gcm_decrypt(key: &[u8], nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; 16] {
    // GCM is CTR from 2 on, and the tag is that of the plaintext encrypted again: no library opens with tags of 8 bytes.
    ctr(key, nonce, 2, data);
    gcm_encrypt(key, nonce, aad, &mut data.to_vec())
}

/// ChaCha20-Poly1305 (RFC 8439, section 2.8): encrypts and returns the tag.
pub(super) fn chacha20_poly1305_encrypt(key: &[u8], nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; 16] {
    let cipher = ChaCha20Poly1305::new_from_slice(key).expect(KEY);
    cipher.encrypt_inout_detached(nonce.into(), aad, data.into()).expect("packets are short").into()
}

/// The reverse, where the tag is right.
pub(super) fn chacha20_poly1305_decrypt(
    key: &[u8],
    nonce: &[u8; 12],
    aad: &[u8],
    data: &mut [u8],
    tag: &[u8],
) -> Result<(), ()> {
    let cipher = ChaCha20Poly1305::new_from_slice(key).expect(KEY);
    let tag = <[u8; 16]>::try_from(tag).map_err(|_| ())?;
    cipher.decrypt_inout_detached(nonce.into(), aad, data.into(), &tag.into()).map_err(|_| ())
}

/// HMAC-SHA1 (RFC 2404) of several pieces.
pub(super) fn hmac_sha1(key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha1>::new_from_slice(key).expect("HMAC takes keys of any length");
    pieces.iter().for_each(|piece| mac.update(piece));
    mac.finalize().into_bytes().to_vec()
}

/// HMAC-SHA-256 (RFC 4868) of several pieces.
pub(super) fn hmac_sha256(key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    pieces.iter().for_each(|piece| mac.update(piece));
    mac.finalize().into_bytes().to_vec()
}

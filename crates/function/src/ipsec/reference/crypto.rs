//! Ciphers and hashes of IPsec, from the RustCrypto crates.

use aes::cipher::consts::{U8, U11, U12, U16};
use aes::cipher::{
    Block, BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser, KeyInit,
    KeyIvInit, StreamCipher,
};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::AesGcm;
use aes_gcm::aead::AeadInOut;
use aes_gcm::aead::array::ArraySize;
use ccm::{Ccm, TagSize};
use chacha20poly1305::ChaCha20Poly1305;
use cmac::Cmac;
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};

/// Calls a function with the AES type for the key length.
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

/// Traits of an AES cipher that this module uses.
trait Aes: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + BlockCipherDecrypt + KeyInit {}

impl<C: BlockSizeUser<BlockSize = U16> + BlockCipherEncrypt + BlockCipherDecrypt + KeyInit> Aes for C {}

const KEY: &str = "the key has the length that the cipher needs";

pub(super) fn aes_block(key: &[u8], block: [u8; 16]) -> [u8; 16] {
    fn run<C: Aes>(key: &[u8], block: [u8; 16]) -> [u8; 16] {
        let mut block = Block::<C>::from(block);
        C::new_from_slice(key).expect(KEY).encrypt_block(&mut block);
        block.into()
    }
    with_aes!(key, run, block)
}

/// Encrypts whole blocks with AES-CBC (SP 800-38A, section 6.2).
pub(super) fn cbc_encrypt(key: &[u8], iv: &[u8], data: &mut [u8]) {
    fn run<C: Aes>(key: &[u8], iv: &[u8], data: &mut [u8]) {
        let mut cipher = cbc::Encryptor::<C>::new_from_slices(key, iv).expect(KEY);
        data.as_chunks_mut::<16>().0.iter_mut().for_each(|block| cipher.encrypt_block(block.into()));
    }
    with_aes!(key, run, iv, data);
}

pub(super) fn cbc_decrypt(key: &[u8], iv: &[u8], data: &mut [u8]) {
    fn run<C: Aes>(key: &[u8], iv: &[u8], data: &mut [u8]) {
        let mut cipher = cbc::Decryptor::<C>::new_from_slices(key, iv).expect(KEY);
        data.as_chunks_mut::<16>().0.iter_mut().for_each(|block| cipher.decrypt_block(block.into()));
    }
    with_aes!(key, run, iv, data);
}

/// Encrypts or decrypts with AES-CTR. The block counter is the last 32 bits of the counter block
/// and starts at `first`.
pub(super) fn ctr(key: &[u8], nonce: &[u8; 12], first: u32, data: &mut [u8]) {
    fn run<C: Aes>(key: &[u8], block: &[u8], data: &mut [u8]) {
        ctr::Ctr32BE::<C>::new_from_slices(key, block).expect(KEY).apply_keystream(data);
    }
    let block = [&nonce[..], &first.to_be_bytes()].concat();
    with_aes!(key, run, &block, data);
}

/// Encrypts with AES-GCM (NIST SP 800-38D, section 7.1). Returns the full tag, without truncation.
pub(super) fn gcm_encrypt(key: &[u8], nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; 16] {
    fn run<C: Aes>(key: &[u8], nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; 16] {
        let cipher = AesGcm::<C, U12>::new_from_slice(key).expect(KEY);
        let tag = cipher.encrypt_inout_detached(nonce.into(), aad, data.into());
        tag.expect("packets are short").into()
    }
    with_aes!(key, run, nonce, aad, data)
}

/// Decrypts with AES-GCM (NIST SP 800-38D, section 7.2). Returns the computed tag, which the caller
/// compares with the transmitted tag.
pub(super) fn gcm_decrypt(key: &[u8], nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; 16] {
    // The crate does not support tags of 8 bytes. The data is therefore decrypted with AES-CTR,
    // whose counter starts at 2. Encrypting the plaintext again gives the tag.
    ctr(key, nonce, 2, data);
    gcm_encrypt(key, nonce, aad, &mut data.to_vec())
}

/// Calls a function for the AES key length and the tag size.
macro_rules! with_ccm {
    ($icv_bytes:expr, $key:expr, $function:ident, $($argument:expr),*) => {
        match ($icv_bytes, $key.len()) {
            (8, 16) => $function::<Aes128, U8>($key, $($argument),*),
            (8, 24) => $function::<Aes192, U8>($key, $($argument),*),
            (8, _) => $function::<Aes256, U8>($key, $($argument),*),
            (12, 16) => $function::<Aes128, U12>($key, $($argument),*),
            (12, 24) => $function::<Aes192, U12>($key, $($argument),*),
            (12, _) => $function::<Aes256, U12>($key, $($argument),*),
            (_, 16) => $function::<Aes128, U16>($key, $($argument),*),
            (_, 24) => $function::<Aes192, U16>($key, $($argument),*),
            (_, _) => $function::<Aes256, U16>($key, $($argument),*),
        }
    };
}

/// Encrypts with AES-CCM (RFC 3610) and returns the tag of `icv_bytes` bytes.
pub(super) fn ccm_encrypt(key: &[u8], nonce: &[u8; 11], aad: &[u8], icv_bytes: usize, data: &mut [u8]) -> Vec<u8> {
    fn run<C: Aes, M: ArraySize + TagSize>(key: &[u8], nonce: &[u8; 11], aad: &[u8], data: &mut [u8]) -> Vec<u8> {
        let cipher = Ccm::<C, M, U11>::new_from_slice(key).expect(KEY);
        cipher.encrypt_inout_detached(nonce.into(), aad, data.into()).expect("packets are short").to_vec()
    }
    with_ccm!(icv_bytes, key, run, nonce, aad, data)
}

/// Decrypts with AES-CCM if the tag is correct.
pub(super) fn ccm_decrypt(key: &[u8], nonce: &[u8; 11], aad: &[u8], data: &mut [u8], tag: &[u8]) -> Result<(), ()> {
    fn run<C: Aes, M: ArraySize + TagSize>(
        key: &[u8],
        nonce: &[u8; 11],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8],
    ) -> Result<(), ()> {
        let cipher = Ccm::<C, M, U11>::new_from_slice(key).expect(KEY);
        let tag = tag.try_into().map_err(|_| ())?;
        cipher.decrypt_inout_detached(nonce.into(), aad, data.into(), tag).map_err(|_| ())
    }
    with_ccm!(tag.len(), key, run, nonce, aad, data, tag)
}

/// Encrypts with ChaCha20-Poly1305 (RFC 8439, section 2.8) and returns the tag.
pub(super) fn chacha20_poly1305_encrypt(key: &[u8], nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; 16] {
    let cipher = ChaCha20Poly1305::new_from_slice(key).expect(KEY);
    cipher.encrypt_inout_detached(nonce.into(), aad, data.into()).expect("packets are short").into()
}

/// Decrypts with ChaCha20-Poly1305 if the tag is correct.
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

/// Returns the HMAC-SHA1 (RFC 2404) of concatenated pieces.
pub(super) fn hmac_sha1(key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha1>::new_from_slice(key).expect("HMAC takes keys of any length");
    pieces.iter().for_each(|piece| mac.update(piece));
    mac.finalize().into_bytes().to_vec()
}

/// Returns the HMAC-SHA-256 (RFC 4868) of concatenated pieces.
pub(super) fn hmac_sha256(key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    pieces.iter().for_each(|piece| mac.update(piece));
    mac.finalize().into_bytes().to_vec()
}

/// Returns the HMAC-SHA-384 (RFC 4868) of concatenated pieces.
pub(super) fn hmac_sha384(key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha384>::new_from_slice(key).expect("HMAC takes keys of any length");
    pieces.iter().for_each(|piece| mac.update(piece));
    mac.finalize().into_bytes().to_vec()
}

/// Returns the HMAC-SHA-512 (RFC 4868) of concatenated pieces.
pub(super) fn hmac_sha512(key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha512>::new_from_slice(key).expect("HMAC takes keys of any length");
    pieces.iter().for_each(|piece| mac.update(piece));
    mac.finalize().into_bytes().to_vec()
}

/// Returns the AES-CMAC (RFC 4493) of concatenated pieces.
pub(super) fn aes_cmac(key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
    let mut mac = <Cmac<Aes128> as KeyInit>::new_from_slice(key).expect(KEY);
    pieces.iter().for_each(|piece| mac.update(piece));
    mac.finalize().into_bytes().to_vec()
}

/// Returns the AES-XCBC-MAC of concatenated pieces, which must not all be empty (RFC 3566, section
/// 4).
pub(super) fn aes_xcbc(key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
    let [key_1, key_2, key_3] = [1, 2, 3].map(|byte| aes_block(key, [byte; 16]));
    let xor = |a: [u8; 16], b: [u8; 16]| -> [u8; 16] { std::array::from_fn(|i| a[i] ^ b[i]) };
    let message = pieces.concat();
    let (blocks, last) = message.split_at((message.len() - 1) / 16 * 16);
    let mac = blocks.as_chunks::<16>().0.iter().fold([0; 16], |mac, block| aes_block(&key_1, xor(mac, *block)));
    let mut block = [0; 16];
    block[..last.len()].copy_from_slice(last);
    if last.len() < 16 {
        block[last.len()] = 0x80;
    }
    let subkey = if last.len() == 16 { key_2 } else { key_3 };
    aes_block(&key_1, xor(mac, xor(block, subkey))).to_vec()
}

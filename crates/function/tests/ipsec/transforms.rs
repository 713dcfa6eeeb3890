//! Compares every suite of the kernel with RustCrypto, for random keys, packets and lengths. Both
//! must encapsulate to the same packets. The kernel must decapsulate them correctly, and reject
//! changed packets.

use aes::cipher::{Array, BlockCipherEncrypt, BlockModeEncrypt, KeyInit, KeyIvInit, StreamCipher};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::AesGcm;
use aes_gcm::aead::AeadInOut;
use aes_gcm::aead::consts::{U8, U11, U12, U16};
use ccm::Ccm;
use chacha20poly1305::ChaCha20Poly1305;
use cmac::Cmac;
use godwit_function::ipsec::key_area::{KEY_AREA_BYTES, emit_keys};
use godwit_function::ipsec::suite::{self, Authentication, Cipher, Protocol, SUITES, Suite};
use godwit_test_support::Random;
use godwit_test_support::hex::hex;
use hmac::{Hmac, Mac};

use super::program::check;

/// Flag for extended sequence numbers (ESN) in the field `flags` of an SA.
const ESN: u32 = 0x10;
const SPI: u32 = 0xc0ff_ee01;
const DESTINATION: u32 = 0xc000_0202;

struct Keys {
    suite: &'static Suite,
    number: u8,
    cipher: Vec<u8>,
    hmac: Vec<u8>,
    salt: [u8; 4],
    esn: bool,
    icv_bytes: usize,
}

impl Keys {
    fn random(number: usize, random: &mut Random) -> Self {
        let suite = &SUITES[number];
        let icv_bytes = match suite.authentication {
            Authentication::None => 0,
            Authentication::Sha1 | Authentication::Xcbc | Authentication::Cmac => 12,
            Authentication::Sha384 => 24,
            Authentication::Sha512 => 32,
            // GCM and CCM allow these lengths (RFC 4106, section 6; RFC 4309, section 6). GMAC has
            // only 16 (RFC 4543).
            Authentication::Ghash | Authentication::Ccm if suite.cipher == Cipher::Ctr => [8, 12, 16][random.below(3)],
            _ => 16,
        };
        let hmac_bytes = match suite.authentication {
            Authentication::Sha1 => 20,
            Authentication::Sha256 => 32,
            Authentication::Sha384 => 48,
            Authentication::Sha512 => 64,
            Authentication::Xcbc | Authentication::Cmac => 16,
            _ => 0,
        };
        Self {
            suite,
            number: number as u8,
            cipher: random.bytes(suite.key_bytes),
            hmac: random.bytes(hmac_bytes),
            salt: salt(suite, random),
            esn: random.below(2) == 1,
            icv_bytes,
        }
    }

    /// Returns the SA in the layout of `kernels/ipsec/image.h`, in hexadecimal digits.
    fn image(&self, inbound: bool) -> String {
        let mut sa = [0; 576];
        sa[..4].copy_from_slice(&SPI.to_le_bytes());
        sa[4..8].copy_from_slice(&(1 | (2 * u32::from(inbound)) | if self.esn { ESN } else { 0 }).to_le_bytes());
        sa[8..12].copy_from_slice(&self.salt);
        sa[12] = self.number;
        sa[13] = self.icv_bytes as u8;
        sa[32..36].copy_from_slice(&DESTINATION.to_le_bytes());
        emit_keys(self.suite, inbound, &self.cipher, &self.hmac, &mut sa[64..][..KEY_AREA_BYTES]);
        hex(&sa)
    }

    fn encrypt_block(&self, mut block: [u8; 16]) -> [u8; 16] {
        let array: &mut Array<u8, _> = (&mut block).into();
        match self.cipher.len() {
            16 => Aes128::new_from_slice(&self.cipher).unwrap().encrypt_block(array),
            24 => Aes192::new_from_slice(&self.cipher).unwrap().encrypt_block(array),
            _ => Aes256::new_from_slice(&self.cipher).unwrap().encrypt_block(array),
        }
        block
    }

    fn cbc(&self, iv: &[u8], data: &mut [u8]) {
        macro_rules! encrypt {
            ($aes:ty) => {{
                let mut cbc = cbc::Encryptor::<$aes>::new_from_slices(&self.cipher, iv).unwrap();
                data.chunks_exact_mut(16).for_each(|block| cbc.encrypt_block(block.try_into().unwrap()));
            }};
        }
        match self.cipher.len() {
            16 => encrypt!(Aes128),
            24 => encrypt!(Aes192),
            _ => encrypt!(Aes256),
        }
    }

    fn ctr(&self, iv: &[u8], data: &mut [u8]) {
        // The counter block follows RFC 3686, section 4.
        let counter = [&self.salt[..], iv, &[0, 0, 0, 1]].concat();
        match self.cipher.len() {
            16 => ctr::Ctr32BE::<Aes128>::new_from_slices(&self.cipher, &counter).unwrap().apply_keystream(data),
            24 => ctr::Ctr32BE::<Aes192>::new_from_slices(&self.cipher, &counter).unwrap().apply_keystream(data),
            _ => ctr::Ctr32BE::<Aes256>::new_from_slices(&self.cipher, &counter).unwrap().apply_keystream(data),
        }
    }

    /// Encrypts `data` with CCM and returns the tag.
    fn ccm(&self, iv: &[u8], aad: &[u8], data: &mut [u8]) -> Vec<u8> {
        let nonce: [u8; 11] = [&self.salt[1..], iv].concat().try_into().unwrap();
        macro_rules! encrypt {
            ($aes:ty, $icv:ty) => {
                Ccm::<$aes, $icv, U11>::new_from_slice(&self.cipher)
                    .unwrap()
                    .encrypt_inout_detached((&nonce).into(), aad, data.into())
                    .unwrap()
                    .to_vec()
            };
        }
        macro_rules! of_length {
            ($aes:ty) => {
                match self.icv_bytes {
                    8 => encrypt!($aes, U8),
                    12 => encrypt!($aes, U12),
                    _ => encrypt!($aes, U16),
                }
            };
        }
        match self.cipher.len() {
            16 => of_length!(Aes128),
            24 => of_length!(Aes192),
            _ => of_length!(Aes256),
        }
    }

    /// Encrypts `data` with an AEAD and returns the tag.
    fn aead(&self, iv: &[u8], aad: &[u8], data: &mut [u8]) -> Vec<u8> {
        let nonce: [u8; 12] = [&self.salt[..], iv].concat().try_into().unwrap();
        macro_rules! encrypt {
            ($aead:ty) => {
                <$aead>::new_from_slice(&self.cipher)
                    .unwrap()
                    .encrypt_inout_detached((&nonce).into(), aad, data.into())
                    .unwrap()
                    .to_vec()
            };
        }
        match (self.suite.cipher, self.cipher.len()) {
            (Cipher::ChaCha20, _) => encrypt!(ChaCha20Poly1305),
            (_, 16) => encrypt!(AesGcm<Aes128, U12>),
            (_, 24) => encrypt!(AesGcm<Aes192, U12>),
            _ => encrypt!(AesGcm<Aes256, U12>),
        }
    }

    fn hmac(&self, parts: &[&[u8]]) -> Vec<u8> {
        macro_rules! mac {
            ($hash:ty) => {{
                let mut mac = Hmac::<$hash>::new_from_slice(&self.hmac).unwrap();
                parts.iter().for_each(|part| mac.update(part));
                mac.finalize().into_bytes().to_vec()
            }};
        }
        match self.suite.authentication {
            Authentication::Sha1 => mac!(sha1::Sha1),
            Authentication::Sha384 => mac!(sha2::Sha384),
            Authentication::Sha512 => mac!(sha2::Sha512),
            Authentication::Cmac => {
                let mut mac = <Cmac<Aes128> as KeyInit>::new_from_slice(&self.hmac).unwrap();
                parts.iter().for_each(|part| mac.update(part));
                mac.finalize().into_bytes().to_vec()
            }
            Authentication::Xcbc => self.xcbc(&parts.concat()),
            _ => mac!(sha2::Sha256),
        }
    }

    /// Returns AES-XCBC-MAC (RFC 3566, section 4). It is the last block of CBC with the key K1. The
    /// last plaintext block is combined with K2 or K3.
    fn xcbc(&self, message: &[u8]) -> Vec<u8> {
        let keys = |byte: u8| {
            let mut block = [byte; 16];
            Aes128::new_from_slice(&self.hmac).unwrap().encrypt_block((&mut block).into());
            block
        };
        let mut padded = message.to_vec();
        let mut last_key = keys(2);
        if !message.len().is_multiple_of(16) {
            padded.push(0x80);
            padded.resize(padded.len().next_multiple_of(16), 0);
            last_key = keys(3);
        }
        let last = padded.len() - 16;
        padded[last..].iter_mut().zip(last_key).for_each(|(byte, key)| *byte ^= key);
        let mut cbc = cbc::Encryptor::<Aes128>::new_from_slices(&keys(1), &[0; 16]).unwrap();
        padded.chunks_exact_mut(16).for_each(|block| cbc.encrypt_block(block.try_into().unwrap()));
        padded[last..].to_vec()
    }

    /// Returns the ESP packet from its header to the integrity check value (ICV).
    fn encapsulate(&self, sequence: u64, payload: &[u8]) -> Vec<u8> {
        let mut header = SPI.to_be_bytes().to_vec();
        header.extend((sequence as u32).to_be_bytes());
        // The additional authenticated data follows RFC 4106, section 5, and RFC 4303, section
        // 2.2.1.
        let mut aad = SPI.to_be_bytes().to_vec();
        let mut upper = Vec::new();
        if self.esn {
            upper.extend(((sequence >> 32) as u32).to_be_bytes());
        }
        aad.extend(&upper);
        aad.extend((sequence as u32).to_be_bytes());

        let mut iv = sequence.to_be_bytes().to_vec();
        let mut data = payload.to_vec();
        let tag = match (self.suite.cipher, self.suite.authentication) {
            (Cipher::Ctr, Authentication::Ghash) | (Cipher::ChaCha20, _) => self.aead(&iv, &aad, &mut data),
            (_, Authentication::Ccm) => self.ccm(&iv, &aad, &mut data),
            (_, Authentication::Ghash) => self.aead(&iv, &[&aad, &iv[..], payload].concat(), &mut []),
            (cipher, authentication) => {
                match cipher {
                    Cipher::Cbc => {
                        let mut nonce = SPI.to_be_bytes().to_vec();
                        nonce.extend(sequence.to_be_bytes());
                        nonce.extend(DESTINATION.to_be_bytes());
                        iv = self.encrypt_block(nonce.try_into().unwrap()).to_vec();
                        self.cbc(&iv, &mut data);
                    }
                    Cipher::Ctr => self.ctr(&iv, &mut data),
                    _ => iv.clear(),
                }
                match authentication {
                    Authentication::None => Vec::new(),
                    _ => self.hmac(&[&header, &iv, &data, &upper]),
                }
            }
        };
        [&header, &iv, &data, &tag[..self.icv_bytes]].concat()
    }
}

/// Returns the bytes before the IV in a counter block of the image. CCM has flags and a salt of 3
/// bytes.
fn salt(suite: &Suite, random: &mut Random) -> [u8; 4] {
    let mut salt: [u8; 4] = random.array();
    if suite.authentication == Authentication::Ccm {
        salt[0] = 3;
    }
    salt
}

/// Returns all block-aligned lengths up to 288 bytes, and random ones up to 2000.
fn lengths(random: &mut Random, block_bytes: usize) -> Vec<usize> {
    let short = (0..).map(|i| i * block_bytes).take_while(|&bytes| bytes <= 288);
    let long = (0..24).map(|_| 288 + random.below(1712 / block_bytes) * block_bytes);
    short.chain(long).filter(|&bytes| bytes > 0).collect()
}

#[test]
fn every_esp_suite_equals_rustcrypto() {
    let mut random = Random::new(0x5ea1);
    let mut operations = Vec::new();
    let esp = |(_, suite): &(usize, &Suite)| suite.protocol == Protocol::Esp;
    for (number, suite) in SUITES.iter().enumerate().filter(esp) {
        for bytes in lengths(&mut random, suite.block_bytes()) {
            let keys = Keys::random(number, &mut random);
            let sequence = random.next_u64() >> if keys.esn { 20 } else { 32 };
            let payload = random.bytes(bytes);
            let packet = keys.encapsulate(sequence, &payload);
            let room = vec![0xa5; suite.iv_bytes()];
            let before = hex(&[&packet[..8], &room, &payload].concat());
            let [out, inbound] = [false, true].map(|inbound| suite::variant(number as u8, inbound));
            let operation = format!("encapsulate {out} {} {sequence} {before}", keys.image(false));
            operations.push((operation, hex(&packet), true));
            let image = keys.image(true);
            let decapsulate = |packet: &[u8]| format!("decapsulate {inbound} {image} {sequence} {}", hex(packet));
            operations.push((decapsulate(&packet), hex(&payload), true));
            if keys.icv_bytes != 0 {
                let mut changed = packet;
                // The SPI and the sequence number stay unchanged, because the kernel takes both
                // from the SA and the parameter.
                let at = 8 + random.below(changed.len() - 8);
                changed[at] ^= 1 << random.below(8);
                operations.push((decapsulate(&changed), "no".to_owned(), true));
            }
        }
    }
    check(&operations);
}

#[test]
fn every_ah_suite_equals_rustcrypto() {
    let mut random = Random::new(0xa11);
    let mut operations = Vec::new();
    let ah = |(_, suite): &(usize, &Suite)| suite.protocol == Protocol::Ah;
    for (number, suite) in SUITES.iter().enumerate().filter(ah) {
        for bytes in (1..150).chain([1000, 1999, 2000]) {
            let keys = Keys::random(number, &mut random);
            let sequence = random.next_u64() >> if keys.esn { 20 } else { 32 };
            let data = random.bytes(bytes);
            let iv = random.bytes(8);
            let upper = ((sequence >> 32) as u32).to_be_bytes();
            let suffix: &[u8] = if keys.esn { &upper } else { &[] };
            let tag = match suite.authentication {
                Authentication::Ghash => keys.aead(&iv, &[&data[..], suffix].concat(), &mut []),
                _ => keys.hmac(&[&data, suffix])[..keys.icv_bytes].to_vec(),
            };
            let variant = suite::variant(number as u8, false);
            let operation = format!("ah {variant} {} {sequence} {} {}", keys.image(false), hex(&iv), hex(&data));
            operations.push((operation, hex(&tag), true));
        }
    }
    check(&operations);
}

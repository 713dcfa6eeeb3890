//! Table image of `aes`, whose layout `kernels/aes/aes.h` declares: the IV and the key.

use std::mem::offset_of;

use godwit_kernels::image::{AES_MAGIC, AesImage};
use godwit_packet::{Image, Memory};
use zeroize::Zeroizing;

use super::{Cipher, Direction};
use crate::{Error, aes_key};

/// Creates the table image. Its memory is wiped when it is dropped.
pub(super) fn image(cipher: Cipher, direction: Direction, key: &[u8], iv: &[u8]) -> Result<Image, Error> {
    let image = Image::new(Memory::new(size_of::<AesImage>(), "the key of an aes function")?);
    image.write(offset_of!(AesImage, magic), &AES_MAGIC.to_le_bytes());
    image.write(offset_of!(AesImage, iv), iv);
    let keys = match (cipher, direction) {
        (Cipher::ChaCha20Poly1305, _) => Zeroizing::new(key.to_vec()),
        (Cipher::Aes128Cbc, Direction::Encrypt) => Zeroizing::new(aes_key::expand(key).as_flattened().to_vec()),
        (Cipher::Aes128Cbc, Direction::Decrypt) => {
            Zeroizing::new(aes_key::invert(aes_key::expand(key)).as_flattened().to_vec())
        }
    };
    image.write(offset_of!(AesImage, round_keys), &keys);
    Ok(image)
}

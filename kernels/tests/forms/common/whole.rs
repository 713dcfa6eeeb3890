//! Images and packets of `hash` and `aes`, which process whole packets.

use godwit_kernels::image::{
    AES_MAGIC, AesImage, HASH_MAGIC, HASH_OVER_FRAME, HASH_OVER_PAYLOAD, HASH_STARTS_OFFSET, HashImage,
};
use godwit_kernels::{AES, HASH, levels};
use godwit_test_support::Random;

use super::batch::{Batch, Lines};
use super::chunk::Part;
use super::ipsec::inverse_keys;
use super::{Case, random_frames};

const CBC_DECRYPT: u32 = 1;
const CHACHA20_ENCRYPT: u32 = 2;
const CHACHA20_DECRYPT: u32 = 3;

/// Returns an image of `hash` with an empty list.
fn hash_image(over: u32) -> Lines {
    let header = HashImage { magic: HASH_MAGIC, over, shift: 31, rows: 0, rows_offset: 128, bytes: 128 };
    let mut image = Lines::zeroed(128);
    let header = header.emit();
    assert!(header.len() <= HASH_STARTS_OFFSET);
    image.bytes_mut()[..header.len()].copy_from_slice(&header);
    image
}

/// Returns an image of `aes` with random round keys, or with those of the inverse cipher.
fn aes_image(variant: u32) -> Lines {
    let mut random = Random::new(44);
    let iv = std::array::from_fn(|_| random.next_u32());
    let mut round_keys: [u32; 44] = std::array::from_fn(|_| random.next_u32());
    if variant == CBC_DECRYPT {
        round_keys = inverse_keys(&round_keys).try_into().unwrap();
    }
    let mut image = Lines::zeroed(0);
    image.append(&AesImage { magic: AES_MAGIC, pad: [0; 3], iv, round_keys }.emit());
    image
}

fn case(name: &'static str, kernel: u8, variant: u32, image: Lines) -> Case {
    Case { name, kernel, variant, image }
}

/// Returns packets for every variant of both functions. Most packets for the decryption with a tag
/// are authentic.
pub(crate) fn whole_parts(packets: usize, seed: u64) -> Vec<Part> {
    let hashes = [("md5", 0, HASH_OVER_FRAME), ("sha1", 1, HASH_OVER_PAYLOAD), ("sha256", 2, HASH_OVER_FRAME)];
    let hashes = hashes.into_iter().map(|(name, variant, over)| case(name, HASH, variant, hash_image(over)));
    let ciphers = ["cbc, encrypt", "cbc, decrypt", "chacha20, encrypt", "chacha20, decrypt"];
    let ciphers = ciphers.into_iter().zip(0..).map(|(name, variant)| case(name, AES, variant, aes_image(variant)));
    let mut parts: Vec<Part> = hashes
        .chain(ciphers)
        .zip(0..)
        .map(|(case, index)| Part::new(case, random_frames(packets, seed + index)))
        .collect();
    for part in &mut parts {
        let Case { kernel, variant, .. } = part.case;
        if (kernel, variant) == (AES, CHACHA20_ENCRYPT) {
            // Some packets have too little tailroom.
            let frames = part.frames.iter().enumerate();
            part.rooms = frames.map(|(index, _)| (64 + index % 17, if index % 8 == 0 { 0 } else { 64 })).collect();
        }
        if (kernel, variant) == (AES, CHACHA20_DECRYPT) {
            let mut batch = Batch::new(&part.frames);
            batch.run(&levels()[0], AES, CHACHA20_ENCRYPT, &part.case.image);
            let sealed = (0..packets).filter(|index| index % 8 > 0);
            sealed.for_each(|index| part.frames[index] = batch.frame(index).to_vec());
        }
    }
    parts
}

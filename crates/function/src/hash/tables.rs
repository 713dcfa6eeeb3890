//! Table image of `hash`, whose layout `kernels/hash/hash.h` shows: the digests in ascending order,
//! and the range of digests for each value of their first bits.

use godwit_kernels::image::{
    ALIGNMENT_BYTES, HASH_MAGIC, HASH_OVER_FRAME, HASH_OVER_PAYLOAD, HASH_STARTS_OFFSET, HashImage, HashRow,
};
use godwit_packet::Memory;

use super::{Listed, Over};
use crate::Error;

const ROW_BYTES: usize = size_of::<HashRow>();
/// Maximum number of bits that select a slot. Their indices occupy 64 MiB.
const SLOT_BITS_MAX: u32 = 24;

/// Creates the table image. Returns the memory, and the size of the image in bytes. `listed` is in
/// ascending order, and its digests differ.
///
/// # Errors
/// Returns [`Error::Memory`] if the machine has too little memory. Returns [`Error::Value`] if
/// there are more than 2^31 digests.
pub(super) fn image(listed: &[Listed], over: Over) -> Result<(Memory, usize), Error> {
    let rows = u32::try_from(listed.len()).ok().filter(|&rows| rows <= 1 << 31);
    let rows = rows.ok_or_else(|| Error::value("the file contains more than 2^31 digests"))?;
    let bits = rows.max(2).ilog2().min(SLOT_BITS_MAX);
    let slots = 1_usize << bits;
    let rows_offset = (HASH_STARTS_OFFSET + (slots + 1) * 4).next_multiple_of(ALIGNMENT_BYTES);
    let bytes = rows_offset + listed.len() * ROW_BYTES;
    let mut image = Memory::new(bytes, "the digests of a hash function")?;
    let header = HashImage {
        magic: HASH_MAGIC,
        over: match over {
            Over::Frame => HASH_OVER_FRAME,
            Over::Payload => HASH_OVER_PAYLOAD,
        },
        shift: 32 - bits,
        rows,
        rows_offset: rows_offset as u64,
        bytes: bytes as u64,
    };
    image[..size_of::<HashImage>()].copy_from_slice(&header.emit());
    let mut row = 0;
    let starts = image[HASH_STARTS_OFFSET..rows_offset].chunks_exact_mut(4);
    for (slot, start) in starts.take(slots + 1).enumerate() {
        let is_before = |entry: &&Listed| (words(entry)[0] >> (32 - bits)) < slot as u32;
        row += listed[row..].iter().take_while(is_before).count();
        // At most `rows`, which has 32 bits.
        start.copy_from_slice(&(row as u32).to_le_bytes());
    }
    for (slot, entry) in image[rows_offset..].chunks_exact_mut(ROW_BYTES).zip(listed) {
        slot.copy_from_slice(&HashRow { words: words(entry), line: entry.line, pad: [0; 7] }.emit());
    }
    Ok((image, bytes))
}

/// Returns the big-endian words of a digest.
fn words(entry: &Listed) -> [u32; 8] {
    let (words, _) = entry.digest.as_chunks::<4>();
    std::array::from_fn(|index| u32::from_be_bytes(words[index]))
}

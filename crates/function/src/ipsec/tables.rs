//! The table image: `kernels/ipsec/image.h` draws it.
//!
//! ```text
//! 0        64                          selector_offset
//! | header | SA 0 | SA 1 | ...         | selector 0 | selector 1 | ... |
//!            384 bytes each              64 bytes each
//! ```

use godwit_packet::Memory;

use super::config::Direction;
use super::database::Sa;
use super::key_area::{KEY_AREA_BYTES, emit_keys};
use super::selector::{Ports, Selector};
use super::suite::SUITES;
use crate::Error;

/// The first word of the image.
const MAGIC: u32 = u32::from_le_bytes(*b"IPSE");
const HEADER_BYTES: usize = 64;
const SA_BYTES: usize = 384;
const SELECTOR_BYTES: usize = 64;
const PROTOCOL_ANY: u16 = 256;
const FAMILY_IPV4: u8 = 4;

/// Offsets in an SA, which the kernel's header asserts too.
const SOURCE: usize = 16;
const DESTINATION: usize = 32;
const SELECTOR_FIRST: usize = 52;
const KEYS: usize = 64;

const FLAG_USED: u32 = 1;
const FLAG_INBOUND: u32 = 2;
/// Of the outer header.
const HOP_LIMIT: u8 = 64;

/// The image of these SAs. It holds keys: wipe it before it is freed.
pub(super) fn image(sas: &[Sa]) -> Result<Memory, Error> {
    let selectors: Vec<&Selector> = sas.iter().flat_map(|sa| &sa.selectors).collect();
    let selector_offset = HEADER_BYTES + sas.len() * SA_BYTES;
    let bytes = selector_offset + selectors.len() * SELECTOR_BYTES;
    let Ok(_) = u32::try_from(bytes) else {
        return Err(Error::Value { span: None, message: "the selectors of all SAs take more than 4 GiB".to_owned() });
    };
    let mut image = Memory::new(bytes, "the SAs of an ipsec function")?;
    // All of these are below the size, which fits into 32 bits.
    let header = [sas.len(), HEADER_BYTES, selectors.len(), selector_offset].map(|number| number as u32);
    put(&mut image, 0, &[MAGIC]);
    put(&mut image, 4, &header);

    let mut selector_first = 0;
    for (index, sa) in sas.iter().enumerate() {
        emit_sa(&mut image[HEADER_BYTES + index * SA_BYTES..][..SA_BYTES], sa, selector_first);
        selector_first += sa.selectors.len() as u32;
    }
    for (index, selector) in selectors.iter().enumerate() {
        emit_selector(&mut image[selector_offset + index * SELECTOR_BYTES..][..SELECTOR_BYTES], selector);
    }
    Ok(image)
}

fn emit_sa(out: &mut [u8], sa: &Sa, selector_first: u32) {
    let inbound = sa.direction == Direction::In;
    let keys = &mut out[KEYS..];
    emit_keys(&SUITES[0], inbound, &sa.encryption_key[..], &sa.authentication_key[..], keys);
    let flags = FLAG_USED | if inbound { FLAG_INBOUND } else { 0 };
    // Suite 0 is AES-128-CBC with HMAC-SHA1-96, whose ICV has 12 bytes.
    put(out, 0, &[sa.spi, flags, 0, u32::from_le_bytes([0, 12, HOP_LIMIT, 0])]);
    put(out, SOURCE, &[sa.source]);
    put(out, DESTINATION, &[sa.destination]);
    put(out, SELECTOR_FIRST, &[selector_first, sa.selectors.len() as u32]);
}

fn emit_selector(out: &mut [u8], selector: &Selector) {
    let (source, source_mask) = selector.source.address_and_mask();
    let (destination, destination_mask) = selector.destination.address_and_mask();
    put(out, 0, &[source]);
    put(out, 16, &[destination]);
    let source_ports = selector.source_ports.unwrap_or(Ports::ANY);
    let destination_ports = selector.destination_ports.unwrap_or(Ports::ANY);
    let ports_matter = selector.source_ports.is_some() || selector.destination_ports.is_some();
    let [source_bits, destination_bits] = [source_mask, destination_mask].map(|mask| mask.count_ones() as u8);
    let halves = [
        u16::from_le_bytes([source_bits, destination_bits]),
        u16::from_le_bytes([FAMILY_IPV4, u8::from(ports_matter)]),
        selector.protocol.map_or(PROTOCOL_ANY, u16::from),
        0,
        source_ports.0,
        source_ports.1,
        destination_ports.0,
        destination_ports.1,
    ];
    for (place, half) in out[32..].chunks_exact_mut(2).zip(halves) {
        place.copy_from_slice(&half.to_le_bytes());
    }
}

/// Writes words from byte `at` on.
fn put(out: &mut [u8], at: usize, words: &[u32]) {
    for (place, word) in out[at..].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

// What `_Static_assert` says in image.h.
const _: () = {
    assert!(DESTINATION == SOURCE + 16);
    assert!(SA_BYTES == KEYS + KEY_AREA_BYTES);
    assert!(SELECTOR_BYTES == 16 * 2 + 4 + 4 + 8 + 4 * 4);
};

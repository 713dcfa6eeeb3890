//! Headers of table images, as the kernels read them: the Rust half of each
//! function's `image.h`, which draws the whole image.
//!
//! An image is built on the host, little-endian, and placed at a 64-byte
//! boundary; all offsets count from its first byte and are multiples of 64.
//! `emit` gives the bytes of a struct as they lie in the image.

mod dpi;
mod echo;
mod ipv4;
mod ipv6;
mod l2;
mod ndn;

pub use dpi::*;
pub use echo::*;
pub use ipv4::*;
pub use ipv6::*;
pub use l2::*;
pub use ndn::*;

/// Where parts of an image begin: a multiple of this, bytes.
pub const ALIGNMENT_BYTES: usize = 64;

/// Fields one after another; none of these structs has padding, so they fill it exactly.
fn concat<const N: usize, const FIELDS: usize>(fields: [&[u8]; FIELDS]) -> [u8; N] {
    let mut bytes = [0; N];
    let mut at = 0;
    for field in fields {
        bytes[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
    assert_eq!(at, N, "a struct of an image has a hole");
    bytes
}

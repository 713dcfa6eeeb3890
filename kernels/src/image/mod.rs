//! Structs of table images as the kernels read them. Each is the Rust half of a function's
//! `image.h`, which draws the whole image.
//!
//! The host builds an image in little-endian byte order at a 64-byte boundary. All offsets count
//! from its first byte and are multiples of 64. `emit` returns the bytes of a struct in the image.

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

/// Alignment of the parts of an image, in bytes.
pub const ALIGNMENT_BYTES: usize = 64;

/// Concatenates fields. The structs have no padding, so the fields have exactly their size.
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

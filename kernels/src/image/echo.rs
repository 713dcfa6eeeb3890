//! The table image of `echo`: `kernels/echo/image.h`.

use super::concat;

/// `echo`: the whole image (`gw_echo_image`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoImage {
    /// [`ECHO_MAGIC`].
    pub magic: u32,
    /// Number of ports, 1..=65536.
    pub ports: u32,
}

/// [`EchoImage::magic`].
pub const ECHO_MAGIC: u32 = u32::from_le_bytes(*b"ECHO");

impl EchoImage {
    /// The struct's bytes in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([&self.magic.to_le_bytes(), &self.ports.to_le_bytes()])
    }
}

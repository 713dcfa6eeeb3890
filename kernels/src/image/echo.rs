//! Table image of `echo`, as in `kernels/echo/image.h`.

use super::concat;

/// The whole `echo` image (`gw_echo_image`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoImage {
    /// Must be [`ECHO_MAGIC`].
    pub magic: u32,
    /// Number of ports, 1..=65536.
    pub ports: u32,
}

/// Value of [`EchoImage::magic`].
pub const ECHO_MAGIC: u32 = u32::from_le_bytes(*b"ECHO");

impl EchoImage {
    /// Returns the bytes of the struct in the image.
    pub fn emit(&self) -> [u8; size_of::<Self>()] {
        concat([&self.magic.to_le_bytes(), &self.ports.to_le_bytes()])
    }
}

//! Headers of table images, as the kernels read them: the Rust half of each
//! function's `image.h`. An image is built on the host, little-endian, and
//! placed at a 64-byte boundary; all offsets count from its first byte.

/// Header of an `echo` image (`gw_echo_image`); nothing follows it.
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
    /// The bytes of the image.
    pub fn emit(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.magic.to_le_bytes());
        bytes[4..].copy_from_slice(&self.ports.to_le_bytes());
        bytes
    }
}

//! Table of `echo` in the format that the kernel reads. It holds only the number of ports.

use godwit_kernels::image::{ECHO_MAGIC, EchoImage};
use godwit_packet::Memory;

use crate::Error;

/// Creates the table for `ports` ports.
pub(super) fn image(ports: u32) -> Result<Memory, Error> {
    let bytes = EchoImage { magic: ECHO_MAGIC, ports }.emit();
    let mut image = Memory::new(bytes.len(), "the table of an echo function")?;
    image.copy_from_slice(&bytes);
    Ok(image)
}

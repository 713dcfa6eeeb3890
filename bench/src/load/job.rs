//! The work for one packet of a prepared chunk.

/// The work for one packet.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    /// Index of the function.
    pub(crate) instance: u16,
    /// Variant of the function.
    pub(crate) variant: u8,
    /// Parameter of the kernel.
    pub(crate) parameter: u64,
    /// Variant and parameter with which `ref` first prepares the packet, untimed. It makes the
    /// ciphertext that the function decrypts.
    pub(crate) before: Option<(u8, u64)>,
    /// Class of the packet in a chain.
    pub(crate) row: u8,
}

impl Job {
    /// Returns the job of function `instance` with its default `variant`.
    pub(crate) fn plain(instance: u16, variant: u8) -> Self {
        Self { instance, variant, parameter: 0, before: None, row: 0 }
    }
}

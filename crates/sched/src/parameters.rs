//! Kernel parameters of packets that are inserted together.

/// Kernel parameters of packets that are inserted together. The kernel of a function reads one
/// parameter for each packet.
#[derive(Debug, Clone, Copy)]
pub enum Parameters<'a> {
    /// Each packet has its own parameter.
    Each(&'a [u64]),
    /// All packets have the same parameter.
    Alike(u64),
}

impl<'a> Parameters<'a> {
    /// Returns the parameter of one packet.
    #[inline]
    pub(crate) fn of(self, packet: usize) -> u64 {
        match self {
            Self::Each(parameters) => parameters[packet],
            Self::Alike(parameter) => parameter,
        }
    }

    /// Returns the parameters from the given packet onwards.
    #[inline]
    pub(crate) fn from(self, packet: usize) -> Self {
        match self {
            Self::Each(parameters) => Self::Each(&parameters[packet..]),
            Self::Alike(_) => self,
        }
    }

    /// Writes the parameters of the first packets to `slots`.
    #[inline]
    pub(crate) fn write(self, slots: &mut [u64]) {
        match self {
            Self::Each(parameters) => slots.copy_from_slice(&parameters[..slots.len()]),
            Self::Alike(parameter) => slots.fill(parameter),
        }
    }
}

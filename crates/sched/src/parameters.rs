//! What comes with packets that are inserted together.

/// What the kernel gets to know of packets that are inserted together.
#[derive(Debug, Clone, Copy)]
pub enum Parameters<'a> {
    /// Of each packet.
    Each(&'a [u64]),
    /// The same of all.
    Alike(u64),
}

impl<'a> Parameters<'a> {
    /// That of one packet.
    #[inline]
    pub(crate) fn of(self, packet: usize) -> u64 {
        match self {
            Self::Each(parameters) => parameters[packet],
            Self::Alike(parameter) => parameter,
        }
    }

    /// Those of the packets from one on.
    #[inline]
    pub(crate) fn from(self, packet: usize) -> Self {
        match self {
            Self::Each(parameters) => Self::Each(&parameters[packet..]),
            Self::Alike(_) => self,
        }
    }

    /// Written to these places, those of the first packets.
    #[inline]
    pub(crate) fn write(self, places: &mut [u64]) {
        match self {
            Self::Each(parameters) => places.copy_from_slice(&parameters[..places.len()]),
            Self::Alike(parameter) => places.fill(parameter),
        }
    }
}

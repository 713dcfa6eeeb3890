//! Headroom and tailroom that packets need for encapsulation.

use super::sa::Sa;
use crate::Error;

/// Free space before and after the frame in a packet buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) headroom_bytes: u16,
    pub(super) tailroom_bytes: u16,
    /// Number of unneeded tailroom bytes, by the frame length modulo 16. See
    /// [`Function::tailroom_saved`](crate::Function::tailroom_saved).
    pub(super) tailroom_saved: [u8; 16],
}

impl Room {
    /// Returns the headroom and tailroom that suffice for all of these SAs, and at least the
    /// configured values.
    pub(super) fn new(sas: &[Sa], headroom_bytes: u16, tailroom_bytes: u16) -> Self {
        let max = |bytes: fn(&Sa) -> usize| sas.iter().map(bytes).max().unwrap_or(0) as u16;
        let sa_tailroom = max(Sa::tailroom_bytes);
        let saved = |length: usize| {
            let needed = sas.iter().map(|sa| sa.tail_bytes(length)).max().unwrap_or(0);
            (usize::from(sa_tailroom) - needed) as u8
        };
        // The configuration reserves additional tailroom for SAs that are added later. Such an SA
        // may need all of it at any frame length.
        let tailroom_saved = if tailroom_bytes > sa_tailroom { [0; 16] } else { std::array::from_fn(saved) };
        Self {
            headroom_bytes: headroom_bytes.max(max(Sa::headroom_bytes)),
            tailroom_bytes: tailroom_bytes.max(sa_tailroom),
            tailroom_saved,
        }
    }

    pub(super) fn check(&self, sa: &Sa) -> Result<(), Error> {
        let (headroom, tailroom) = (sa.headroom_bytes(), sa.tailroom_bytes());
        let available = |length: usize| usize::from(self.tailroom_bytes) - usize::from(self.tailroom_saved[length]);
        if headroom > usize::from(self.headroom_bytes) {
            return Err(Error::value(format!(
                "SA \"{}\" needs {headroom} bytes of headroom, but the packets have {}: set headroom_bytes = {headroom} \
                 in the function's stanza",
                sa.name, self.headroom_bytes
            )));
        }
        if (0..16).any(|length| sa.tail_bytes(length) > available(length)) {
            return Err(Error::value(format!(
                "SA \"{}\" needs up to {tailroom} bytes of tailroom, but the packets have less: set tailroom_bytes = {} \
                 in the function's stanza",
                sa.name,
                tailroom.max(usize::from(self.tailroom_bytes) + 1)
            )));
        }
        Ok(())
    }
}

//! The room that SAs need around packets, and what there is.

use super::sa::Sa;

/// Room in front of frames and behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) headroom_bytes: u16,
    pub(super) tailroom_bytes: u16,
    /// See [`Contract::tailroom_saved`](crate::Contract::tailroom_saved).
    pub(super) tailroom_saved: [u8; 16],
}

impl Room {
    /// Enough for each of these SAs, and at least so much.
    pub(super) fn of(sas: &[Sa], headroom_bytes: u16, tailroom_bytes: u16) -> Self {
        let most = |bytes: fn(&Sa) -> usize| sas.iter().map(bytes).max().unwrap_or(0) as u16;
        // What is asked for beyond what SAs need may be needed at any length.
        let of_sas = most(Sa::tailroom_bytes);
        let saved = |length: usize| {
            let needed = sas.iter().map(|sa| sa.tail_bytes(length)).max().unwrap_or(0);
            (usize::from(of_sas) - needed) as u8
        };
        let tailroom_saved = if tailroom_bytes > of_sas { [0; 16] } else { std::array::from_fn(saved) };
        Self {
            headroom_bytes: headroom_bytes.max(most(Sa::headroom_bytes)),
            tailroom_bytes: tailroom_bytes.max(of_sas),
            tailroom_saved,
        }
    }

    /// Whether it is enough for an SA; else the sentence.
    pub(super) fn check(&self, sa: &Sa) -> Result<(), String> {
        let (headroom, tailroom) = (sa.headroom_bytes(), sa.tailroom_bytes());
        let there = |length: usize| usize::from(self.tailroom_bytes) - usize::from(self.tailroom_saved[length]);
        if headroom > usize::from(self.headroom_bytes) {
            return Err(format!(
                "SA \"{}\" puts {headroom} bytes in front of a packet, and there are {}: say headroom_bytes = {headroom} \
                 in the function's stanza",
                sa.name, self.headroom_bytes
            ));
        }
        if (0..16).any(|length| sa.tail_bytes(length) > there(length)) {
            return Err(format!(
                "SA \"{}\" puts up to {tailroom} bytes behind a packet, for which there is no room: say \
                 tailroom_bytes = {} in the function's stanza",
                sa.name,
                tailroom.max(usize::from(self.tailroom_bytes) + 1)
            ));
        }
        Ok(())
    }
}

//! Options of all connections.

use super::policy::OverlapPolicy;

/// Options of all connections.
#[derive(Debug, Clone)]
pub struct Options {
    /// Packets wait for their verdict, so data is processed before it is acknowledged.
    pub inline: bool,
    /// Connections without a handshake are accepted.
    pub midstream: bool,
    /// Connections with packets in one direction only are accepted.
    pub async_oneside: bool,
    /// Policy for overlaps. Inline, the first bytes always win.
    pub policy: OverlapPolicy,
    /// Number of bytes that are stored in each direction; 0 for no limit.
    pub depth: u64,
    /// Treatment of urgent bytes.
    pub urgent: Urgent,
    /// Number of bytes out of order that one direction may hold.
    pub window_max: u64,
    /// The memory for streams is used up, so no more bytes are stored.
    pub full: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            inline: false,
            midstream: false,
            async_oneside: false,
            policy: OverlapPolicy::default(),
            depth: 1 << 20,
            urgent: Urgent::default(),
            window_max: 1 << 20,
            full: false,
        }
    }
}

/// Treatment of urgent bytes. The bytes that an application reads depend on its socket options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgent {
    /// The byte is part of the stream.
    #[default]
    Inline,
    /// The byte is not part of the stream.
    OutOfBand,
}

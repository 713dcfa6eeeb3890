//! Options that apply to all TCP connections.

use super::policy::OverlapPolicy;

/// Options that apply to all TCP connections.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether packets wait for their verdict (inline mode). Data is then processed before the
    /// receiver acknowledges it.
    pub inline: bool,
    /// Whether connections without a handshake are accepted.
    pub midstream: bool,
    /// Whether connections with only one visible direction are accepted.
    pub async_oneside: bool,
    /// Policy for overlapping segments. Inline mode always keeps the bytes that arrive first.
    pub policy: OverlapPolicy,
    /// Maximum number of bytes stored per direction, or 0 for no limit.
    pub depth: u64,
    /// Treatment of urgent bytes.
    pub urgent: Urgent,
    /// Maximum number of out-of-order bytes stored per direction.
    pub window_max: u64,
    /// Whether stream memory is used up. No more bytes are then stored.
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

/// Treatment of TCP urgent bytes. An application's socket options decide whether it reads them with
/// the other bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgent {
    /// The urgent byte is part of the stream.
    #[default]
    Inline,
    /// The urgent byte is not part of the stream.
    OutOfBand,
}

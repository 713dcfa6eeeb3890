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
    /// Whether connections are accepted if only one direction is visible.
    pub async_oneside: bool,
    /// Policy for overlapping segments. In inline mode, the bytes that arrive first are always
    /// kept.
    pub policy: OverlapPolicy,
    /// Number of bytes that are stored for each direction. The value 0 means no limit.
    pub depth: u64,
    /// Treatment of urgent bytes.
    pub urgent: Urgent,
    /// Maximum number of out-of-order bytes that are stored for one direction.
    pub window_max: u64,
    /// Whether the memory for streams is used up, so that no more bytes are stored.
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

/// Treatment of TCP urgent bytes. Whether an application reads them with the other bytes depends on
/// its socket options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgent {
    /// The urgent byte is part of the stream.
    #[default]
    Inline,
    /// The urgent byte is not part of the stream.
    OutOfBand,
}

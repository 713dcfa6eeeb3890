//! States of a TCP connection, named as in RFC 9293. Suricata's rules rely on one difference. After
//! the first FIN, the state is `CloseWait` if the client sent it, and `FinWait1` if the server sent
//! it.

/// State of a TCP connection, in the usual order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum State {
    /// No packet yet.
    #[default]
    None,
    /// A SYN was seen.
    SynSent,
    /// A SYN with ACK was seen.
    SynReceived,
    /// The handshake is complete.
    Established,
    /// The server sent a FIN.
    FinWait1,
    /// The client acknowledged the FIN of the server.
    FinWait2,
    /// Both sides sent a FIN.
    TimeWait,
    /// The server sent its FIN after the client.
    LastAck,
    /// The client sent a FIN.
    CloseWait,
    /// Both sides sent a FIN at the same time.
    Closing,
    /// The connection was reset, or both directions are closed.
    Closed,
}

impl State {
    /// Returns the name in EVE records.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SynSent => "syn_sent",
            Self::SynReceived => "syn_recv",
            Self::Established => "established",
            Self::FinWait1 => "fin_wait1",
            Self::FinWait2 => "fin_wait2",
            Self::TimeWait => "time_wait",
            Self::LastAck => "last_ack",
            Self::CloseWait => "close_wait",
            Self::Closing => "closing",
            Self::Closed => "closed",
        }
    }
}

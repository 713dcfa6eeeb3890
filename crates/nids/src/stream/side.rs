//! State of one direction of a TCP connection.

use super::assembler::Assembler;

/// Maximum number of urgent bytes that one stream leaves out.
const URGENT_MAX: usize = 64;

/// State of one side of a TCP connection: its sequence numbers and sent bytes.
#[derive(Debug, Default)]
pub struct Side {
    /// Initial sequence number.
    pub isn: u32,
    /// Sequence number after the last byte sent.
    pub next_seq: u32,
    /// Highest acknowledgment number that the other side sent.
    pub last_ack: u32,
    /// Sequence number at the end of the receive window. The receiver accepts only bytes before it.
    pub next_win: u32,
    /// Scaled window that this side offers.
    pub window: u32,
    /// Shift of this side's window field.
    pub scale: u8,
    /// Last timestamp value of this side, and the packet's arrival time.
    pub timestamp: Option<(u32, u64)>,
    /// Sequence number and stream offset of a reference byte, from which other offsets are
    /// computed.
    anchor: (u32, u64),
    /// Stream offsets of urgent bytes that the stream leaves out.
    urgent: Vec<u64>,
    /// Bytes that this side sent.
    pub data: Assembler,
    /// Stream offset up to which the protocol parser has received bytes.
    pub app_progress: u64,
    /// Stream offset up to which rules have inspected the raw bytes.
    pub raw_progress: u64,
    /// All TCP flags that packets of this side have had.
    pub flags_seen: u8,
    /// Whether this side sent a FIN.
    pub fin: bool,
    /// Whether later bytes are discarded.
    pub closed: bool,
    /// Whether the maximum number of bytes is stored. Later bytes are then discarded.
    pub depth_reached: bool,
    /// Whether the next packet makes rules inspect all new stream bytes.
    pub trigger_raw: bool,
    /// Whether the inspection has skipped missing bytes.
    pub gap: bool,
    /// Whether the first bytes in this direction belong to no known protocol.
    pub unidentified: bool,
    /// Largest number of separate byte ranges stored at once.
    pub ranges_max: u16,
}

/// Returns whether `a` is before `b`, modulo 2^32.
pub fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Side {
    /// Starts the sequence at `isn`.
    pub fn start(&mut self, isn: u32) {
        self.isn = isn;
        self.next_seq = isn.wrapping_add(1);
        self.last_ack = isn.wrapping_add(1);
        self.next_win = self.next_seq;
        self.anchor = (self.next_seq, 0);
    }

    /// Returns a copy of the state without the stored bytes.
    pub fn numbers(&self) -> Self {
        Self { isn: self.isn, next_seq: self.next_seq, ..Self::default() }
    }

    /// Returns the stream offset of a sequence number, without counting omitted urgent bytes.
    /// Returns `None` before the first byte.
    pub fn offset(&self, seq: u32) -> Option<u64> {
        let offset = self.raw_offset(seq)?;
        let urgent = self.urgent.iter().filter(|urgent| **urgent < offset).count() as u64;
        Some(offset - urgent)
    }

    /// Returns the stream offset of a sequence number, counting all urgent bytes.
    fn raw_offset(&self, seq: u32) -> Option<u64> {
        let distance = i64::from(seq.wrapping_sub(self.anchor.0) as i32);
        u64::try_from(self.anchor.1 as i64 + distance).ok()
    }

    /// Removes the byte with this sequence number from the stream.
    pub fn skip(&mut self, seq: u32) {
        if let Some(offset) = self.raw_offset(seq)
            && !self.urgent.contains(&offset)
            && self.urgent.len() < URGENT_MAX
        {
            self.urgent.push(offset);
        }
    }

    /// Makes the byte with sequence number `seq` the reference for stream offsets. Offsets are
    /// correct within 2^31 bytes of it.
    pub fn move_anchor(&mut self, seq: u32) {
        if let Some(offset) = self.raw_offset(seq) {
            self.anchor = (seq, offset);
        }
    }

    /// Returns the offset of the highest acknowledgment.
    pub fn acked(&self) -> u64 {
        self.offset(self.last_ack).unwrap_or(0)
    }

    /// Raises the highest acknowledgment number to `ack`.
    pub fn acknowledge(&mut self, ack: u32) {
        if before(self.last_ack, ack) {
            self.last_ack = ack;
        }
    }

    /// Raises the next sequence number of this side to `seq`.
    pub fn sent(&mut self, seq: u32) {
        if before(self.next_seq, seq) {
            self.next_seq = seq;
        }
    }
}

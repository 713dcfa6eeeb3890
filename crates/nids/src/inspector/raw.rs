//! Data of streams to rules: without waiting for a parser.
//!
//! Passively, rules see data once it is acknowledged: all new data when enough has arrived, when a
//! transaction is complete, or when the stream ends. Inline, rules see the packet with the data
//! around it, before the packet leaves.

use super::core::{Core, Placed};
use crate::flow::Flow;
use crate::packet::Packet;
use crate::stream::State;
use std::ops::Range;

impl Core {
    /// Returns the range of the stream that rules see with this packet, and the progress after it.
    pub(super) fn raw_view(
        &self,
        packet: &Packet<'_>,
        flow: &mut Flow,
        placed: &Placed,
        is_end: bool,
    ) -> (Option<Range<u64>>, Option<u64>) {
        let Some(session) = flow.session.as_deref_mut() else { return (None, None) };
        let inline = session.is_immediate(&self.settings.stream);
        let state = session.state;
        let chunk = u64::from(self.settings.chunk_bytes[placed.direction as usize]);
        let side = session.side_mut(placed.direction);
        if inline && !is_end {
            if !placed.handled.added {
                return (None, None);
            }
            let Some(start) = packet.tcp().and_then(|tcp| side.offset(tcp.seq)) else { return (None, None) };
            return inline_view(side, start, packet.payload.len() as u64, chunk);
        }
        let acked = side.acked();
        let mut begin = side.raw_progress;
        let mut data = side.data.from(begin);
        if data.is_empty() {
            match side.data.next_after(begin) {
                Some(next) if next <= side.app_progress || is_end || state > State::TimeWait => begin = next,
                _ => return (None, None),
            }
            data = side.data.from(begin);
        }
        let length = if is_end { data.len() as u64 } else { (data.len() as u64).min(acked.saturating_sub(begin)) };
        let ready = is_end || side.trigger_raw || side.depth_reached || state > State::TimeWait || length >= chunk;
        if !ready || length == 0 {
            return (None, None);
        }
        (Some(begin..begin + length), Some(begin + length))
    }
}

/// Returns the packet with the data around it, at most `chunk` bytes or a third more than the
/// packet.
fn inline_view(
    side: &crate::stream::side::Side,
    start: u64,
    length: u64,
    chunk: u64,
) -> (Option<Range<u64>>, Option<u64>) {
    let chunk = if chunk <= length { length + length / 3 } else { chunk };
    let Some((first, bytes)) = side.data.around(start) else { return (None, None) };
    let (mut low, mut high) = (first, first + bytes.len() as u64);
    let end = (start + length).min(high);
    if high - low > chunk {
        let excess = high - low - chunk;
        if high == end {
            low += excess;
        } else if low == start {
            high -= excess;
        } else {
            low = low.max(end.saturating_sub(chunk));
            high = high.min(low + chunk).max(end);
        }
    }
    (Some(low..high), Some(end))
}

//! Passes stream data directly to rules, in addition to the protocol parser.
//!
//! In passive mode, rules see data after the receiver has acknowledged it. They inspect new data
//! when enough bytes have arrived, when a transaction is complete, or when the stream ends. In
//! inline mode, rules inspect each packet with the stream data around it before the packet is
//! forwarded.

use super::core::{Core, Placed};
use crate::flow::Flow;
use crate::packet::Packet;
use crate::stream::State;
use crate::stream::side::Side;
use std::ops::Range;

impl Core {
    /// Returns the stream ranges that rules inspect with this packet, and the stream offset that
    /// the inspection reaches.
    pub(super) fn raw_view(
        &self,
        packet: &Packet<'_>,
        flow: &mut Flow,
        placed: &Placed,
        is_end: bool,
    ) -> (Vec<Range<u64>>, Option<u64>) {
        let none = (Vec::new(), None);
        let encrypted = flow.app.parser.as_ref().is_some_and(|parser| parser.is_encrypted(placed.direction));
        let Some(session) = flow.session.as_deref_mut().filter(|_| !encrypted) else { return none };
        let state = session.state;
        let oneside = session.oneside;
        let chunk = u64::from(self.settings.chunk_bytes[placed.direction as usize]);
        let side = session.side_mut(placed.direction);
        if self.settings.stream.inline && !is_end {
            let start = packet.tcp().and_then(|tcp| side.offset(tcp.seq)).filter(|_| placed.handled.added);
            return start.map_or(none, |start| inline_view(side, start, packet.payload.len() as u64, chunk));
        }
        let limit = if is_end || oneside { side.data.end() } else { side.acked() };
        let forced = is_end || side.trigger_raw || side.depth_reached || state > State::TimeWait;
        let mut ranges = Vec::new();
        let mut progress = side.raw_progress;
        loop {
            let data = side.data.from(progress);
            let length = (data.len() as u64).min(limit.saturating_sub(progress));
            if length > 0 {
                ranges.push(progress..progress + length);
                progress += length;
                continue;
            }
            // Missing bytes are skipped once they can no longer arrive.
            match side.data.next_after(progress) {
                Some(next) if next > progress && (is_end || next <= side.app_progress) => progress = next,
                _ => break,
            }
        }
        let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if total == 0 || !forced && total < chunk {
            return (Vec::new(), None);
        }
        (ranges, Some(progress))
    }
}

/// Returns the stream range around the packet, which has at most `chunk` bytes. For longer packets,
/// the limit is 4/3 of the packet length.
fn inline_view(side: &Side, start: u64, length: u64, chunk: u64) -> (Vec<Range<u64>>, Option<u64>) {
    let chunk = if chunk <= length { length + length / 3 } else { chunk };
    let Some((first, bytes)) = side.data.around(start) else { return (Vec::new(), None) };
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
    (Vec::from([Range { start: low, end: high }]), Some(end))
}

//! Adds the payload of packets to the stream of a connection.

use super::assembler::Inserted;
use super::options::{Options, Urgent};
use super::policy::OverlapPolicy;
use super::session::{OVERLAP_DIFFERS, Session};
use crate::app::Direction;
use crate::packet::{Tcp, tcp as flag};

impl Session {
    /// Adds a packet's payload to the stream, and returns whether bytes were stored. Urgent bytes
    /// are left out if the application reads them separately.
    pub(super) fn store_payload(
        &mut self,
        direction: Direction,
        header: &Tcp,
        payload: &[u8],
        options: &Options,
        events: &mut Vec<&'static str>,
    ) -> bool {
        let at = usize::from(header.urgent).wrapping_sub(1);
        let urgent = header.flags & flag::URG != 0 && at < payload.len() && options.urgent == Urgent::OutOfBand;
        if !urgent {
            return self.store(direction, header.seq, payload, options, events);
        }
        let before = self.store(direction, header.seq, &payload[..at], options, events);
        let seq = header.seq.wrapping_add(at as u32);
        self.pair(direction).0.skip(seq);
        let after = self.store(direction, seq.wrapping_add(1), &payload[at + 1..], options, events);
        before || after
    }

    /// Adds payload to the stream. Returns whether it is stored.
    pub(super) fn store(
        &mut self,
        direction: Direction,
        seq: u32,
        payload: &[u8],
        options: &Options,
        events: &mut Vec<&'static str>,
    ) -> bool {
        let side = self.pair(direction).0;
        if side.closed || payload.is_empty() {
            return false;
        }
        let Some(start) = side.offset(seq).or_else(|| side.offset(seq.wrapping_add(payload.len() as u32)).map(|_| 0))
        else {
            events.push("reassembly_segment_before_base_seq");
            return false;
        };
        let skipped = if side.offset(seq).is_none() { side.isn.wrapping_add(1).wrapping_sub(seq) as usize } else { 0 };
        let mut payload = payload.get(skipped..).unwrap_or(&[]);
        if options.depth > 0 {
            if start >= options.depth {
                side.depth_reached = true;
                return false;
            }
            let room = (options.depth - start) as usize;
            if payload.len() > room {
                payload = &payload[..room];
                side.depth_reached = true;
            }
        }
        if start + payload.len() as u64 > side.data.base() + options.window_max + (1 << 18) {
            events.push("reassembly_no_segment");
            return false;
        }
        if options.full && start + payload.len() as u64 > side.data.end() {
            events.push("reassembly_no_segment");
            self.refused = true;
            return false;
        }
        side.move_anchor(seq);
        let policy = if options.inline { OverlapPolicy::First } else { options.policy };
        let Inserted { differs, .. } = side.data.insert(start, payload, policy);
        side.ranges_max = side.ranges_max.max(side.data.range_count() as u16);
        if differs {
            self.overlaps_different += 1;
            events.push(OVERLAP_DIFFERS);
        }
        true
    }
}

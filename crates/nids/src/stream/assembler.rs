//! Puts the bytes of one direction of a TCP stream in order.
//!
//! Positions are offsets from the first byte of the stream. The buffer holds the bytes from offset
//! `base` on. Missing bytes are zero in the buffer until they arrive:
//!
//! ```text
//!   base                  contiguous                      end
//!    |== segment ==|= segment =|  (gap)  |=== segment ====|
//! ```
//!
//! The boundaries of segments are kept, because the policies for overlapping segments compare them.

use super::policy::OverlapPolicy;
use std::collections::VecDeque;

/// Memory in bytes that an empty buffer keeps for later segments.
const RESERVE_BYTES: usize = 1 << 14;

/// Boundaries of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    start: u64,
    end: u64,
}

/// Result of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inserted {
    /// Number of bytes that were new in the stream.
    pub new_bytes: u64,
    /// Whether the segment contradicts the bytes of earlier segments.
    pub differs: bool,
}

/// Ordered bytes of one direction.
#[derive(Debug, Default)]
pub struct Assembler {
    base: u64,
    data: Vec<u8>,
    segments: VecDeque<Segment>,
    /// Byte ranges that have arrived, sorted and disjoint.
    ranges: Vec<(u64, u64)>,
}

impl Assembler {
    /// Returns the offset of the first stored byte.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Returns the offset after the last stored byte.
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(self.base, |range| range.1)
    }

    /// Returns the memory use of stored bytes and segments, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.data.capacity() + self.segments.capacity() * size_of::<Segment>()
    }

    /// Returns the number of contiguous ranges of bytes.
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the bytes from `offset` to the next gap.
    pub fn from(&self, offset: u64) -> &[u8] {
        match self.ranges.iter().find(|range| range.0 <= offset && offset < range.1) {
            Some(range) => self.slice(offset, range.1),
            None => &[],
        }
    }

    /// Returns the contiguous bytes around `offset`, and the offset of the first byte.
    pub fn around(&self, offset: u64) -> Option<(u64, &[u8])> {
        let range = self.ranges.iter().find(|range| range.0 <= offset && offset < range.1)?;
        Some((range.0, self.slice(range.0, range.1)))
    }

    /// Returns the first offset at or after `offset` at which a byte is stored.
    pub fn next_after(&self, offset: u64) -> Option<u64> {
        self.ranges.iter().find(|range| range.1 > offset).map(|range| range.0.max(offset))
    }

    /// Returns at most `limit` stream bytes, with a short text in place of each gap.
    pub fn with_gaps(&self, limit: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut at = self.base;
        for &(from, to) in &self.ranges {
            if from > at {
                bytes.extend_from_slice(format!("[{} bytes missing]", from - at).as_bytes());
            }
            bytes.extend_from_slice(self.slice(from, to));
            at = to;
            if bytes.len() >= limit {
                break;
            }
        }
        bytes.truncate(limit);
        bytes
    }

    fn slice(&self, from: u64, to: u64) -> &[u8] {
        &self.data[(from - self.base) as usize..(to - self.base) as usize]
    }

    /// Adds a segment. The part before offset `base` is ignored.
    pub fn insert(&mut self, start: u64, bytes: &[u8], policy: OverlapPolicy) -> Inserted {
        let end = start + bytes.len() as u64;
        if end <= self.base || bytes.is_empty() {
            return Inserted::default();
        }
        let (bytes, kept) = (&bytes[self.base.saturating_sub(start) as usize..], start.max(self.base));
        let stored_end = self.end();
        if kept >= stored_end {
            self.append(kept, end, bytes);
            return Inserted { new_bytes: end - kept, differs: false };
        }
        if ((end - self.base) as usize) > self.data.len() {
            self.data.resize((end - self.base) as usize, 0);
        }
        let mut inserted = Inserted::default();
        let mut wins = vec![false; bytes.len()];
        self.fill_gaps(kept, end, bytes, &mut inserted);
        for segment in &self.segments {
            let (low, high) = (segment.start.max(kept), segment.end.min(end));
            if low >= high {
                continue;
            }
            let old = &self.data[(low - self.base) as usize..(high - self.base) as usize];
            let new = &bytes[(low - kept) as usize..(high - kept) as usize];
            if old != new {
                inserted.differs = true;
                if policy.new_wins((segment.start, segment.end), (start, end)) {
                    wins[(low - kept) as usize..(high - kept) as usize].fill(true);
                }
            }
        }
        for (index, byte) in bytes.iter().enumerate().filter(|(index, _)| wins[*index]) {
            self.data[(kept - self.base) as usize + index] = *byte;
        }
        let at = self.segments.partition_point(|segment| segment.start <= start);
        self.segments.insert(at, Segment { start, end });
        self.add_range(kept, end);
        inserted
    }

    /// Adds a segment that lies after all stored bytes.
    fn append(&mut self, start: u64, end: u64, bytes: &[u8]) {
        self.data.resize((start - self.base) as usize, 0);
        self.data.extend_from_slice(bytes);
        self.segments.push_back(Segment { start, end });
        match self.ranges.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => self.ranges.push((start, end)),
        }
    }

    /// Copies the bytes of a segment that have not arrived before.
    fn fill_gaps(&mut self, start: u64, end: u64, bytes: &[u8], inserted: &mut Inserted) {
        let mut at = start;
        for &(from, to) in self.ranges.iter().chain([&(end, end)]) {
            if to < at {
                continue;
            }
            let stop = from.min(end);
            if stop > at {
                let target = (at - self.base) as usize..(stop - self.base) as usize;
                self.data[target].copy_from_slice(&bytes[(at - start) as usize..(stop - start) as usize]);
                inserted.new_bytes += stop - at;
            }
            at = at.max(to);
            if at >= end {
                break;
            }
        }
    }

    fn add_range(&mut self, start: u64, end: u64) {
        let at = self.ranges.partition_point(|range| range.0 < start);
        self.ranges.insert(at, (start, end));
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(self.ranges.len());
        for (from, to) in self.ranges.drain(..) {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        self.ranges = merged;
    }

    /// Removes the bytes before `offset`, once they are at least half of the buffer.
    pub fn discard(&mut self, offset: u64) {
        let offset = offset.min(self.end().max(offset));
        if offset <= self.base {
            return;
        }
        let count = ((offset - self.base) as usize).min(self.data.len());
        if count * 2 < self.data.len() {
            return;
        }
        self.data.copy_within(count.., 0);
        self.data.truncate(self.data.len() - count);
        self.base = offset;
        while self.segments.front().is_some_and(|segment| segment.end <= offset) {
            self.segments.pop_front();
        }
        self.segments.retain(|segment| segment.end > offset);
        self.ranges.retain_mut(|range| {
            range.0 = range.0.max(offset);
            range.1 > offset
        });
        if self.data.is_empty() && self.data.capacity() > RESERVE_BYTES {
            self.data = Vec::new();
        }
    }

    /// Removes all bytes and frees the memory.
    pub fn clear(&mut self) {
        let base = self.end();
        *self = Self { base, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn puts_segments_in_order() {
        let mut stream = Assembler::default();
        assert_eq!(stream.insert(3, b"def", OverlapPolicy::First).new_bytes, 3);
        assert_eq!((stream.from(0), stream.next_after(0)), (&b""[..], Some(3)));
        assert_eq!(stream.insert(0, b"abcX", OverlapPolicy::First), Inserted { new_bytes: 3, differs: true });
        assert_eq!(stream.from(0), b"abcdef");
        stream.discard(4);
        assert_eq!((stream.base(), stream.from(4)), (4, &b"ef"[..]));
        assert_eq!(stream.insert(2, b"cdEFg", OverlapPolicy::First).new_bytes, 1);
        assert_eq!(stream.from(5), b"fg");
    }

    /// Simple reference model of the assembler, which applies the overlap policy to each byte.
    fn model(segments: &[(u64, Vec<u8>)], policy: OverlapPolicy) -> Vec<Option<u8>> {
        let length = segments.iter().map(|(start, bytes)| *start as usize + bytes.len()).max().unwrap_or(0);
        let mut bytes: Vec<Option<u8>> = vec![None; length];
        let mut known: Vec<(u64, u64)> = Vec::new();
        for (start, new) in segments {
            let range = (*start, *start + new.len() as u64);
            for (index, byte) in new.iter().enumerate() {
                let at = *start + index as u64;
                let slot = &mut bytes[at as usize];
                let replaced = known.iter().any(|old| old.0 <= at && at < old.1 && policy.new_wins(*old, range));
                if slot.is_none() || *slot != Some(*byte) && replaced {
                    *slot = Some(*byte);
                }
            }
            known.push(range);
        }
        bytes
    }

    proptest! {
        #[test]
        fn equals_the_model(
            segments in prop::collection::vec((0u64..40, prop::collection::vec(0u8..2, 1..12)), 1..12),
            policy in 0usize..6,
        ) {
            // All bytes of a test segment are equal. The assembler compares an overlap as a whole,
            // but the model compares single bytes. Different bytes in a segment could give
            // different results.
            let policy = OverlapPolicy::ALL[policy];
            let segments: Vec<(u64, Vec<u8>)> =
                segments.iter().enumerate().map(|(i, (at, bytes))| (*at, vec![b'a' + i as u8; bytes.len()])).collect();
            let mut stream = Assembler::default();
            for (start, bytes) in &segments {
                stream.insert(*start, bytes, policy);
            }
            for (at, expected) in model(&segments, policy).into_iter().enumerate() {
                prop_assert_eq!(stream.from(at as u64).first().copied(), expected, "{} {:?}", at, policy);
            }
        }
    }
}

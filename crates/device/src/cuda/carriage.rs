//! How the windows of a chunk come to the device's memory and back.
//!
//! One pass over the packets decides, without sorting: windows that lie side by side, as they do when a worker's packets
//! were received one after another, are one run, or two where the ring began anew between them. Copy engines are told of
//! runs (dense layout) or of rows (slots); everything else the groups of the device fetch and return by themselves, over
//! the bus.

use std::sync::Arc;

use godwit_abi::{Descriptor, WINDOW_UNIT_BYTES};
use godwit_sched::Chunk;

use crate::Program;

/// Copies of a chunk's windows, at the same offsets in arena and shadow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Carriage {
    /// Whole windows.
    Runs(Vec<Run>),
    /// The same columns of slots that follow each other.
    Rows {
        /// Where the slots lie; a run's bytes count whole slots.
        runs: Vec<Run>,
        /// Distance from one slot to the next, bytes.
        pitch: usize,
        /// Bytes of a slot that go to the device.
        columns_in: Columns,
        /// Bytes of a slot that come back.
        columns_out: Columns,
    },
    /// By the groups.
    Groups,
    /// Not at all: packets stay in the device's memory.
    None,
}

/// Bytes from the arena's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

/// A plan, and whether anything comes back.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) carriage: Carriage,
    /// Whether any function writes to its packets.
    pub(super) writes: bool,
    /// Bytes of windows that travel to the device and back.
    pub(super) bytes: [usize; 2],
}

impl Plan {
    /// For packets that are on the device already.
    pub(super) const RESIDENT: Self = Self { carriage: Carriage::None, writes: false, bytes: [0, 0] };
}

/// What copy engines like rows to begin and end at.
const COLUMN_BYTES: usize = 64;
/// A row costs a copy engine no less than so many bytes would (247 million rows a second both ways, on an H200).
const ROW_BYTES_MIN: usize = 206;
/// A packet costs groups so many bytes more than it has: they moved 275 million of 64 bytes a second.
const GROUP_PACKET_BYTES: usize = 96;

/// Windows of one half of the region: those before and those after the place where the ring begins anew lie in
/// different halves, or are one run.
#[derive(Clone, Copy)]
struct Half {
    first: usize,
    last: usize,
    end: usize,
    units: usize,
    packets: usize,
}

impl Half {
    const EMPTY: Self = Self { first: usize::MAX, last: 0, end: 0, units: 0, packets: 0 };

    #[inline]
    fn add(&mut self, window: usize, room: usize) {
        self.first = self.first.min(window);
        self.last = self.last.max(window);
        self.end = self.end.max(window + room);
        self.units += room;
        self.packets += 1;
    }

    /// The one run that its windows make, if they do. Windows do not overlap, so they do when nothing is between them.
    fn run(&self) -> Option<Run> {
        (self.end - self.first == self.units)
            .then(|| Run { offset: self.first * WINDOW_UNIT_BYTES, bytes: self.units * WINDOW_UNIT_BYTES })
    }

    /// The same for slots that are `pitch` apart.
    fn rows(&self, pitch: usize) -> Option<Run> {
        let bytes = (self.last - self.first) * WINDOW_UNIT_BYTES + pitch;
        (bytes == self.packets * pitch).then(|| Run { offset: self.first * WINDOW_UNIT_BYTES, bytes })
    }
}

/// Bytes of windows: first and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) first: usize,
    pub(super) end: usize,
}

impl Columns {
    const NONE: Self = Self { first: usize::MAX, end: 0 };

    fn include(&mut self, first: usize, end: usize) {
        self.first = self.first.min(first);
        self.end = self.end.max(end);
    }

    /// Outwards, within a slot.
    fn rounded(self, pitch: usize) -> Self {
        let first = self.first / COLUMN_BYTES * COLUMN_BYTES;
        Self { first, end: self.end.next_multiple_of(COLUMN_BYTES).min(pitch) }
    }

    pub(super) fn bytes(self) -> usize {
        self.end.saturating_sub(self.first)
    }
}

/// Decides. `middle` is the middle of the worker's region, bytes from the arena's base; `pitch` the distance of slots
/// where the arena has such.
pub(super) fn plan(chunk: &Chunk, programs: &[Arc<dyn Program>], middle: usize, pitch: Option<usize>) -> Plan {
    let middle = middle / WINDOW_UNIT_BYTES;
    let mut halves = [Half::EMPTY; 2];
    let (mut frames, mut read, mut written) = (Columns::NONE, Columns::NONE, Columns::NONE);
    let (mut writes, mut packets, mut group_bytes) = (false, 0, [0, 0]);
    for bin in &chunk.bins {
        let program = &programs[usize::from(bin.instance)];
        let (reads_bytes, writes_bytes) = (usize::from(program.reads_bytes()), usize::from(program.writes_bytes()));
        let mut frame = Columns::NONE;
        for Descriptor { window, head, length, room, .. } in &chunk.descriptors[chunk.range(bin)] {
            let (window, head, length) = (*window as usize, usize::from(*head), usize::from(*length));
            halves[usize::from(window >= middle)].add(window, usize::from(*room));
            group_bytes[0] += length.min(reads_bytes);
            group_bytes[1] += length.min(writes_bytes);
            frame.include(head, head + length);
        }
        packets += usize::from(bin.count);
        frames.include(frame.first, frame.end);
        read.include(frame.first, frame.end);
        match program.writes_bytes() {
            0 => {}
            u16::MAX => {
                let (before, behind) = (program.headroom_bytes(), program.tailroom_bytes());
                written.include(frame.first.saturating_sub(before.into()), frame.end + usize::from(behind));
                writes = true;
            }
            _ => {
                written.include(frame.first, frame.end);
                writes = true;
            }
        }
    }
    let halves = halves.iter().filter(|half| half.packets > 0);
    let (carriage, copied_bytes, cost_bytes) = match pitch {
        None => {
            let runs = halves.map(Half::run).collect::<Option<Vec<Run>>>();
            let bytes: usize = runs.iter().flatten().map(|run| run.bytes).sum();
            (runs.map(Carriage::Runs), [bytes, if writes { bytes } else { 0 }], bytes)
        }
        Some(pitch) => {
            let columns_out = if writes { written.rounded(pitch) } else { Columns::NONE };
            // What comes back of a frame must have gone there.
            read.include(frames.first.max(columns_out.first), frames.end.min(columns_out.end));
            let columns_in = read.rounded(pitch);
            let row_bytes = columns_in.bytes().max(columns_out.bytes()).max(ROW_BYTES_MIN);
            let runs = halves.map(|half| half.rows(pitch)).collect::<Option<Vec<Run>>>();
            let bytes = [packets * columns_in.bytes(), packets * columns_out.bytes()];
            (runs.map(|runs| Carriage::Rows { runs, pitch, columns_in, columns_out }), bytes, packets * row_bytes)
        }
    };
    // Groups reach three quarters of what copy engines do.
    let group_cost_bytes = group_bytes[0] + packets * GROUP_PACKET_BYTES;
    match carriage.filter(|_| cost_bytes * 3 <= group_cost_bytes * 4) {
        Some(carriage) => Plan { carriage, writes, bytes: copied_bytes },
        None => Plan { carriage: Carriage::Groups, writes, bytes: group_bytes },
    }
}

#[cfg(test)]
mod tests;

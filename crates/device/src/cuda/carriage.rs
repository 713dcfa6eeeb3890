//! How the buffers of a chunk come to the device's memory and back.
//!
//! One pass over the packets decides, without sorting, over all bins of which the same is needed together, and a second where
//! the first finds no single run: buffers that lie side by side, as they do when a worker's packets were received one after
//! another, are one run, or two where the ring began anew between them. Copy engines are told of runs (dense layout) or of
//! rows (slots). Small chunks, those of which a function needs little, and buffers that lie scattered the groups of the device
//! fetch and return by themselves, over the bus, with the chunk's arrays.

use godwit_abi::{BUFFER_UNIT_BYTES, Bin, Descriptor, Outcome};
use godwit_packet::{Region, Scan, scan, scan_all};
use godwit_sched::Chunk;

use crate::chain::Needs;
use crate::check::outside;
use crate::{Error, Transfer};

/// Copies of a chunk's buffers, at the same offsets in arena and shadow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Carriage {
    /// Whole buffers.
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
    /// By the groups, and the chunk's arrays too: nothing is copied.
    Reached,
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
    /// Bytes of buffers that travel to the device and back.
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
/// Of a packet in a chunk's arrays, each way: its descriptor with a parameter there, with an outcome, as long, back.
const ARRAYS_PACKET_BYTES: usize = size_of::<Descriptor>() + size_of::<Outcome>();
/// What copies cost a chunk beside what they copy, in bytes that a copy engine moves meanwhile. This and the numbers below were fitted
/// to what `ipsec`, `ipv6` and `l2` reach on an H200 both ways (docs/benchmarks.md).
const COPIES_BYTES: usize = 512 << 10;

/// What it costs the bus when groups reach for packets, in bytes that a copy engine moves meanwhile, by the bytes there and back.
fn reached_cost_bytes(packets: usize, bytes: [usize; 2]) -> usize {
    packets * 60 + bytes[0] * 14 / 10 + bytes[1] * 9 / 10
}

/// Buffers taken together, in units of buffers.
#[derive(Clone, Copy)]
struct Together {
    first: u64,
    /// Where the last begins.
    last: u64,
    end: u64,
    units: u64,
    packets: usize,
}

impl Together {
    const NONE: Self = Self { first: u64::MAX, last: 0, end: 0, units: 0, packets: 0 };

    fn join(&mut self, scan: &Scan, packets: usize) {
        self.first = self.first.min(scan.first.into());
        self.last = self.last.max(scan.last.into());
        self.end = self.end.max(scan.end);
        self.units += scan.units;
        self.packets += packets;
    }

    /// The one run that they make, if they do. Buffers do not overlap, so they do when nothing is between them. Slots are
    /// `pitch` bytes apart.
    fn run(&self, pitch: Option<usize>) -> Option<Run> {
        if self.packets == 0 {
            return None;
        }
        let unit = BUFFER_UNIT_BYTES;
        let offset = self.first as usize * unit;
        match pitch {
            None => (self.end - self.first == self.units).then(|| Run { offset, bytes: self.units as usize * unit }),
            Some(pitch) => {
                let bytes = (self.last - self.first) as usize * unit + pitch;
                (bytes == self.packets * pitch).then_some(Run { offset, bytes })
            }
        }
    }
}

/// The runs that a chunk's buffers make, if they are at most two: a ring that began anew between them has them in
/// different halves of the region, or side by side.
fn runs(chunk: &Chunk, all: &Together, middle: u64, pitch: Option<usize>) -> Option<Vec<Run>> {
    if let Some(run) = all.run(pitch) {
        return Some(vec![run]);
    }
    if all.packets == 0 {
        return Some(Vec::new());
    }
    // Nothing began anew.
    if all.last < middle || all.first >= middle {
        return None;
    }
    let mut halves = [Together::NONE; 2];
    for bin in &chunk.bins {
        let descriptors = &chunk.descriptors[chunk.range(bin)];
        let whole = scan(descriptors, 0);
        let half = |buffer: u32| usize::from(u64::from(buffer) >= middle);
        if half(whole.first) == half(whole.last) {
            halves[half(whole.last)].join(&whole, descriptors.len());
            continue;
        }
        for descriptor in descriptors {
            halves[half(descriptor.buffer)].join(&scan(std::slice::from_ref(descriptor), 0), 1);
        }
    }
    halves.iter().filter(|half| half.packets > 0).map(|half| half.run(pitch)).collect()
}

/// Bytes of buffers: first and end.
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

/// Decides, and checks on the way that all packets are of the worker's region. `pitch` is the distance of slots where the
/// arena has such.
pub(super) fn plan(
    chunk: &Chunk,
    needs: &[Needs],
    region: &Region,
    pitch: Option<usize>,
    transfer: Transfer,
) -> Result<Plan, Error> {
    let (start, bytes) = region.extent();
    let (mut all, mut frames, mut written) = (Together::NONE, Columns::NONE, Columns::NONE);
    let (mut writes, mut reached_bytes) = (false, [0, 0]);
    let (first, end) = (start.div_ceil(BUFFER_UNIT_BYTES) as u64, ((start + bytes) / BUFFER_UNIT_BYTES) as u64);
    let packets_of = |bin: &Bin| &chunk.descriptors[chunk.range(bin)];
    let is_inside = |scan: &Scan| !scan.beyond && u64::from(scan.first) >= first && scan.end <= end;
    let is_lent = |bin: &Bin| region.is_lending() && !packets_of(bin).iter().all(|packet| region.contains(packet));
    let needs_of = |bin: &Bin| &needs[usize::from(bin.instance)];
    // Bins of which the same is needed are looked at together: mostly all.
    for bins in chunk.bins.chunk_by(|one, next| needs_of(one) == needs_of(next)) {
        let needs = needs_of(&bins[0]);
        let packets = bins.iter().map(|bin| usize::from(bin.count)).sum();
        if packets == 0 {
            continue;
        }
        let found = scan_all(bins.iter().map(packets_of), needs.reads_bytes);
        if !is_inside(&found) || bins.iter().any(is_lent) {
            let is_wrong = |bin: &&Bin| !is_inside(&scan(packets_of(bin), 0)) || is_lent(bin);
            return Err(outside(bins.iter().find(is_wrong).unwrap_or(&bins[0])));
        }
        all.join(&found, packets);
        let (head, end, read_bytes) = (found.head as usize, found.frame_end as usize, found.read_bytes as usize);
        frames.include(head, end);
        reached_bytes[0] += read_bytes;
        match needs.writes_bytes {
            0 => {}
            u16::MAX => {
                let (before, behind) = (needs.headroom_bytes, needs.tailroom_bytes);
                written.include(head.saturating_sub(before.into()), end + usize::from(behind));
                // As if every packet grew as far as it can.
                reached_bytes[1] += read_bytes + packets * usize::from(before + behind);
                writes = true;
            }
            writes_bytes => {
                written.include(head, end);
                reached_bytes[1] += packets * usize::from(writes_bytes);
                writes = true;
            }
        }
    }
    let packets = all.packets;
    let runs = runs(chunk, &all, ((start + bytes / 2) / BUFFER_UNIT_BYTES) as u64, pitch);
    let (carriage, copied_bytes, cost_bytes) = match pitch {
        None => {
            let bytes: usize = runs.iter().flatten().map(|run| run.bytes).sum();
            (runs.map(Carriage::Runs), [bytes, if writes { bytes } else { 0 }], bytes)
        }
        Some(pitch) => {
            let columns_out = if writes { written.rounded(pitch) } else { Columns::NONE };
            // What comes back of a frame must have gone there.
            let mut read = frames;
            read.include(frames.first.max(columns_out.first), frames.end.min(columns_out.end));
            let columns_in = read.rounded(pitch);
            let row_bytes = columns_in.bytes().max(columns_out.bytes()).max(ROW_BYTES_MIN);
            let bytes = [packets * columns_in.bytes(), packets * columns_out.bytes()];
            (runs.map(|runs| Carriage::Rows { runs, pitch, columns_in, columns_out }), bytes, packets * row_bytes)
        }
    };
    let is_copied = packets == 0
        || match transfer {
            Transfer::Auto => {
                cost_bytes + packets * ARRAYS_PACKET_BYTES + COPIES_BYTES <= reached_cost_bytes(packets, reached_bytes)
            }
            Transfer::Copy => true,
            Transfer::ZeroCopy => false,
        };
    let (carriage, bytes) = match carriage.filter(|_| is_copied) {
        Some(carriage) => (carriage, copied_bytes),
        None => (Carriage::Reached, reached_bytes),
    };
    Ok(Plan { carriage, writes, bytes })
}

#[cfg(test)]
mod tests;

//! The table as a multibit trie: `kernels/ipv6/image.h` draws it.
//!
//! Built from intervals: the map from addresses to next hops without overlaps. A node divides its part of the address
//! space into 16 to 1024 equal parts; up to six intervals are a bucket, of which one line is read. How far a node divides
//! is decided by what that costs: levels below, against lines.

use godwit_kernels::image::{IPV6_KEYS, IPV6_LINE_BYTES, IPV6_LOW, IPV6_NODE, IPV6_TABLE, Ipv6Bucket};

use super::rib::Interval;
use super::tables::{Full, Writer, leaf};

/// Strides that a node may have.
const STRIDES: [u32; 4] = [6, 8, 10, 12];
/// What a line for each interval costs, in levels.
const LINE_COST: f64 = 0.3;
/// Skipping fewer bits than this is no better than a node.
const SKIPPED_MIN: u32 = 6;

/// From `start` up to the next one, the value of all keys is an entry.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    entry: u32,
}

/// The entry of the addresses of these intervals, of which the first begins at the upper half `from`, and
/// `2^bits` upper halves follow.
pub(super) fn build(intervals: &[Interval], bits: u32, writer: &mut dyn Writer) -> Result<u32, Full> {
    let from = (intervals[0].start >> 64) as u64;
    let mut pieces: Vec<Piece> = Vec::with_capacity(intervals.len());
    let mut at = 0;
    while let Some(first) = intervals.get(at) {
        let high = (first.start >> 64) as u64;
        if first.start as u64 == 0 {
            push(&mut pieces, Piece { start: high, entry: leaf(first.next_hop) });
            at += 1;
            continue;
        }
        // A /64 that is divided: what covers its beginning comes from before.
        let before = intervals[at - 1].next_hop;
        let mut low = vec![Piece { start: 0, entry: leaf(before) }];
        let inside = intervals[at..].iter().take_while(|inside| (inside.start >> 64) as u64 == high);
        low.extend(inside.map(|inside| Piece { start: inside.start as u64, entry: leaf(inside.next_hop) }));
        at += low.len() - 1;
        // One that begins with the /64 itself stands there already.
        let entry = divide(&low, 0, 64, writer)?;
        let line = writer.take(1)?;
        let mut bytes = [0; IPV6_LINE_BYTES];
        bytes[..4].copy_from_slice(&entry.to_le_bytes());
        writer.write(line, &bytes);
        if pieces.last().is_some_and(|last| last.start == high) {
            pieces.pop();
        }
        pieces.push(Piece { start: high, entry: IPV6_LOW | line });
        if let Some(next) = high.checked_add(1) {
            pieces.push(Piece { start: next, entry: leaf(intervals[at - 1].next_hop) });
        }
    }
    // What was begun behind a divided /64 may have been overtaken, or lie behind the end.
    let last = from.wrapping_add(u64::MAX >> (64 - bits));
    pieces.retain(|piece| piece.start <= last);
    divide(&pieces, from, bits, writer)
}

/// A later word about the same key counts; neighbours differ.
fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    if pieces.last().is_some_and(|last| last.start == piece.start) {
        pieces.pop();
    }
    if pieces.last().is_none_or(|last| last.entry != piece.entry) {
        pieces.push(piece);
    }
}

/// The entry of `2^bits` keys from `from` on; the first piece covers `from`, the others begin behind it.
fn divide(pieces: &[Piece], from: u64, bits: u32, writer: &mut dyn Writer) -> Result<u32, Full> {
    let [first, rest @ ..] = pieces else { unreachable!("some piece covers every key") };
    let [second, ..] = rest else { return Ok(first.entry) };
    if rest.len() <= IPV6_KEYS {
        return bucket(pieces, writer);
    }
    let last = pieces[pieces.len() - 1];
    // The bits from which on the borders between pieces differ; shifts are even.
    let differ = (64 - (second.start ^ last.start).leading_zeros()).next_multiple_of(2);
    if differ + SKIPPED_MIN <= bits {
        let inner = second.start >> differ << differ;
        let entry = divide(if second.start == inner { rest } else { pieces }, inner, differ, writer)?;
        let mut around = Vec::with_capacity(3);
        if inner > from {
            around.push(Piece { start: from, entry: first.entry });
        }
        around.push(Piece { start: inner, entry });
        let behind = inner.wrapping_add(1 << differ);
        if behind != from.wrapping_add(size(bits)) {
            around.push(Piece { start: behind, entry: last.entry });
        }
        return bucket(&around, writer);
    }
    let stride = stride(rest, bits);
    if stride == 0 {
        return tree(pieces, writer);
    }
    let shift = bits - stride;
    let line = writer.take(4 << stride >> 6)?;
    let mut entries = Vec::with_capacity(4 << stride);
    let mut at = 0;
    for part in 0..1u64 << stride {
        let start = from + (part << shift);
        while pieces.get(at + 1).is_some_and(|next| next.start <= start) {
            at += 1;
        }
        let end = pieces[at..].partition_point(|piece| piece.start - start.min(piece.start) < size(shift));
        let entry = divide(&pieces[at..at + end.max(1)], start, shift, writer)?;
        entries.extend(entry.to_le_bytes());
    }
    writer.write(line, &entries);
    Ok(IPV6_NODE | (shift / 2) << 25 | (stride / 2 - 3) << 23 | line)
}

/// `2^bits`; 0 for all.
fn size(bits: u32) -> u64 {
    1u64.checked_shl(bits).unwrap_or(0)
}

fn bucket(pieces: &[Piece], writer: &mut dyn Writer) -> Result<u32, Full> {
    let mut bucket =
        Ipv6Bucket { keys: [u64::MAX; IPV6_KEYS], values: [pieces[pieces.len() - 1].entry; IPV6_KEYS + 1] };
    for (slot, piece) in bucket.values.iter_mut().zip(pieces) {
        *slot = piece.entry;
    }
    for (slot, piece) in bucket.keys.iter_mut().zip(&pieces[1..]) {
        *slot = piece.start;
    }
    let line = writer.take(1)?;
    writer.write(line, &bucket.emit());
    Ok(IPV6_TABLE | line)
}

/// Intervals that a bucket holds.
const WIDTH: usize = IPV6_KEYS + 1;

/// Pieces as buckets of buckets, as few as there can be; nothing but comparisons leads through them.
fn tree(pieces: &[Piece], writer: &mut dyn Writer) -> Result<u32, Full> {
    if pieces.len() == 1 {
        return Ok(pieces[0].entry);
    }
    let mut part = 1;
    while part * WIDTH < pieces.len() {
        part *= WIDTH;
    }
    let mut below = Vec::with_capacity(WIDTH);
    for part in pieces.chunks(part) {
        below.push(Piece { start: part[0].start, entry: tree(part, writer)? });
    }
    bucket(&below, writer)
}

/// Levels and lines of a tree of so many pieces.
fn tree_size(pieces: usize) -> (u32, usize) {
    let (mut levels, mut lines, mut count) = (0, 0, pieces);
    while count > 1 {
        count = count.div_ceil(WIDTH);
        levels += 1;
        lines += count;
    }
    (levels, lines)
}

/// How keys with these borders between them are best divided: by a node of some stride, or, 0, by a tree.
fn stride(borders: &[Piece], bits: u32) -> u32 {
    let total = borders.len() as f64;
    let weigh = |levels: f64, lines: usize| levels + LINE_COST * lines as f64 / total;
    let (levels, lines) = tree_size(borders.len() + 1);
    let mut best = (weigh(f64::from(levels), lines), 0);
    for stride in STRIDES.into_iter().filter(|&stride| stride <= bits) {
        let shift = bits - stride;
        let (mut levels, mut lines) = (total, 4 << stride >> 6);
        for part in borders.chunk_by(|a, b| a.start >> shift == b.start >> shift) {
            // Borders that part it further.
            let inside = part.len() - usize::from(part[0].start.trailing_zeros() >= shift);
            let below = tree_size(inside + 1);
            levels += part.len() as f64 * f64::from(below.0);
            lines += below.1;
        }
        let cost = weigh(levels / total, lines);
        if cost < best.0 {
            best = (cost, stride);
        }
    }
    best.1
}

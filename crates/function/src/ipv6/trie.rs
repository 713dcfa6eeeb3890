//! The table as a multibit trie: `kernels/ipv6/image.h` draws it.
//!
//! Built from intervals: the map from addresses to next hops without overlaps. A node divides its part of the address
//! space into 64 to 4096 equal parts; up to six intervals are a bucket, of which one line is read. How a part of the address
//! space is divided is decided by what all ways to divide it cost, down to the leaves: steps of a look-up, against lines.

use std::collections::HashMap;

use godwit_kernels::image::{IPV6_KEYS, IPV6_LINE_BYTES, IPV6_LOW, IPV6_NODE, IPV6_TABLE, Ipv6Bucket};

use super::rib::Interval;
use super::tables::{Full, Writer, leaf};

/// Strides that a node may have.
const STRIDES: [u32; 4] = [6, 8, 10, 12];
/// What a step through a bucket costs, in steps through nodes: those are taken sixteen at once by one gather.
const BUCKET_COST: f64 = 1.5;
/// The same for a bucket that skips bits, above nodes: look-ups that come to such wait for each other once more.
const SKIP_COST: f64 = 3.0;
/// What a line costs, in steps through nodes of one look-up for each border. With 0.3 the 160,147 prefixes of
/// `bench ipv6-lookup` take 4.2 instead of 4.5 ns each, and 15.7 instead of 11.3 MB; 200,000 random ones 21 instead of 13 MB.
const LINE_COST: f64 = 1.0;
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
        let entry = divide(&low, 0, 64, &mut Plans::new(), writer)?;
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
    divide(&pieces, from, bits, &mut Plans::new(), writer)
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
fn divide(pieces: &[Piece], from: u64, bits: u32, plans: &mut Plans, writer: &mut dyn Writer) -> Result<u32, Full> {
    let [first, rest @ ..] = pieces else { unreachable!("some piece covers every key") };
    let [second, ..] = rest else { return Ok(first.entry) };
    let stride = match plan(rest, bits, plans).way {
        Way::Buckets => return tree(pieces, writer),
        Way::Node(stride) => stride,
        Way::Skip => {
            let differ = differing_bits(rest);
            let inner = second.start >> differ << differ;
            let entry = divide(if second.start == inner { rest } else { pieces }, inner, differ, plans, writer)?;
            let mut around = Vec::with_capacity(3);
            if inner > from {
                around.push(Piece { start: from, entry: first.entry });
            }
            around.push(Piece { start: inner, entry });
            let behind = inner.wrapping_add(1 << differ);
            if behind != from.wrapping_add(size(bits)) {
                around.push(Piece { start: behind, entry: pieces[pieces.len() - 1].entry });
            }
            return bucket(&around, writer);
        }
    };
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
        let entry = divide(&pieces[at..at + end.max(1)], start, shift, plans, writer)?;
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

/// How a part of the address space is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// By a node of this stride.
    Node(u32),
    /// By buckets alone.
    Buckets,
    /// By a bucket with one part inside that all borders lie in, and what is around it.
    Skip,
}

/// The cheapest way, and what it costs down to the leaves.
#[derive(Clone, Copy, Debug)]
struct Plan {
    cost: f64,
    way: Way,
}

/// Of each part of the address space that has been thought about: its first key, and how many bits it has.
type Plans = HashMap<(u64, u32), Plan>;

/// How `2^bits` keys with these borders inside are best divided: `borders` are the pieces that begin behind the first key.
///
/// Each part is thought about once, whichever nodes lead there, so that every border is looked at a few times for each of
/// at most 32 lengths.
fn plan(borders: &[Piece], bits: u32, plans: &mut Plans) -> Plan {
    let [first, ..] = borders else { return Plan { cost: 0.0, way: Way::Buckets } };
    let total = borders.len() as f64;
    let (levels, lines) = tree_size(borders.len() + 1);
    let mut best = Plan { cost: BUCKET_COST * f64::from(levels) * total + LINE_COST * lines as f64, way: Way::Buckets };
    if levels == 1 {
        return best;
    }
    let part = (first.start & size(bits).wrapping_neg(), bits);
    if let Some(known) = plans.get(&part) {
        return *known;
    }
    let differ = differing_bits(borders);
    if differ + SKIPPED_MIN <= bits {
        let inside = plan(behind(borders, differ), differ, plans);
        let cost = SKIP_COST * total + LINE_COST + inside.cost;
        if cost < best.cost {
            best = Plan { cost, way: Way::Skip };
        }
    }
    for stride in STRIDES.into_iter().filter(|&stride| stride <= bits) {
        let shift = bits - stride;
        let mut cost = total + LINE_COST * f64::from(4u32 << stride >> 6);
        for part in borders.chunk_by(|a, b| a.start >> shift == b.start >> shift) {
            if cost >= best.cost {
                break;
            }
            cost += plan(behind(part, shift), shift, plans).cost;
        }
        if cost < best.cost {
            best = Plan { cost, way: Way::Node(stride) };
        }
    }
    plans.insert(part, best);
    best
}

/// The borders behind the first key of the `2^bits` that they all lie in.
fn behind(borders: &[Piece], bits: u32) -> &[Piece] {
    &borders[usize::from(borders[0].start.trailing_zeros() >= bits)..]
}

/// How many of the last bits are all that these borders differ in; even, as shifts are.
fn differing_bits(borders: &[Piece]) -> u32 {
    (64 - (borders[0].start ^ borders[borders.len() - 1].start).leading_zeros()).next_multiple_of(2)
}

//! Table of routes as a multibit trie, whose layout `kernels/ipv6/lookup.h` shows.
//!
//! The trie is built from intervals, which map addresses to next hops without overlaps. A node
//! divides its part of the address space into 64 to 4096 equal parts. A bucket holds up to six
//! intervals, and a lookup reads one line of it. The builder computes the cost of every possible
//! division down to the leaves and chooses the cheapest one. The cost adds the steps of lookups and
//! the lines of memory.

use std::collections::HashMap;

use godwit_kernels::image::{IPV6_KEYS, IPV6_LINE_BYTES, IPV6_LOW, IPV6_NODE, IPV6_TABLE, Ipv6Bucket};

use super::rib::Interval;
use super::tables::{Full, Writer, leaf};

/// Possible numbers of address bits that a node consumes.
const STRIDES: [u32; 4] = [6, 8, 10, 12];
/// Cost of a lookup step through a bucket, relative to a step through a trie node. Node steps are
/// cheaper, because one SIMD gather instruction performs sixteen of them.
const BUCKET_COST: f64 = 1.5;
/// Cost of a lookup step through a bucket that skips address bits, relative to a step through a
/// trie node. Such a step needs an additional synchronization of all lookups in the batch.
const SKIP_COST: f64 = 3.0;
/// Cost of 64 bytes of memory, relative to a lookup step through a trie node. A lower value makes
/// lookups faster and the table larger. With the value 0.3, a lookup in `bench ipv6-lookup` takes
/// 4.2 instead of 4.5 ns, but the table takes 15.7 instead of 11.3 MB.
const LINE_COST: f64 = 1.0;
/// Minimum number of address bits that a bucket may skip. For fewer bits, a trie node is at least
/// as good.
const SKIPPED_MIN: u32 = 6;

/// Range of lookup keys with the same table entry. It begins at `start` and ends where the next
/// range begins.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    entry: u32,
}

/// Builds the trie for `intervals` and returns the entry that refers to the trie. Lookup keys are
/// the upper 64 bits of addresses. The trie covers `2^bits` keys from `from` on, and the first
/// interval begins at `from`.
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
        // Several next hops lie within this /64 prefix. The first addresses of the prefix have the
        // next hop of the previous interval.
        let before = intervals[at - 1].next_hop;
        let mut low = vec![Piece { start: 0, entry: leaf(before) }];
        let inside = intervals[at..].iter().take_while(|inside| (inside.start >> 64) as u64 == high);
        low.extend(inside.map(|inside| Piece { start: inside.start as u64, entry: leaf(inside.next_hop) }));
        at += low.len() - 1;
        // The new range replaces an existing range that begins at the same /64 prefix. It leads to
        // all intervals inside the prefix.
        let entry = divide(&low, 0, 64, &mut Divisions::new(), writer)?;
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
    // The last range may begin after the last key of the trie. This happens if the last /64 prefix
    // contains several next hops.
    let last = from.wrapping_add(u64::MAX >> (64 - bits));
    pieces.retain(|piece| piece.start <= last);
    divide(&pieces, from, bits, &mut Divisions::new(), writer)
}

/// Appends a range of keys, which replaces an existing range with the same start. A range with the
/// same table entry as the previous range is left out.
fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    if pieces.last().is_some_and(|last| last.start == piece.start) {
        pieces.pop();
    }
    if pieces.last().is_none_or(|last| last.entry != piece.entry) {
        pieces.push(piece);
    }
}

/// Builds the lookup structure for the `2^bits` keys from `from` on, and returns the entry that
/// refers to it. `pieces` contains the key ranges. The first range covers `from`, and all others
/// begin later.
fn divide(pieces: &[Piece], from: u64, bits: u32, known: &mut Divisions, writer: &mut dyn Writer) -> Result<u32, Full> {
    let [first, rest @ ..] = pieces else { unreachable!("some piece covers every key") };
    let [second, ..] = rest else { return Ok(first.entry) };
    let stride = match cheapest(rest, bits, known).kind {
        DivisionKind::Buckets => return tree(pieces, writer),
        DivisionKind::Node(stride) => stride,
        DivisionKind::Skip => {
            let differ = differing_bits(rest);
            let inner = second.start >> differ << differ;
            let entry = divide(if second.start == inner { rest } else { pieces }, inner, differ, known, writer)?;
            let mut around = Vec::with_capacity(3);
            if inner > from {
                around.push(Piece { start: from, entry: first.entry });
            }
            around.push(Piece { start: inner, entry });
            let end = inner.wrapping_add(1 << differ);
            if end != from.wrapping_add(size(bits)) {
                around.push(Piece { start: end, entry: pieces[pieces.len() - 1].entry });
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
        let entry = divide(&pieces[at..at + end.max(1)], start, shift, known, writer)?;
        entries.extend(entry.to_le_bytes());
    }
    writer.write(line, &entries);
    Ok(IPV6_NODE | (shift / 2) << 25 | (stride / 2 - 3) << 23 | line)
}

/// Returns `2^bits` modulo 2^64.
fn size(bits: u32) -> u64 {
    1u64.checked_shl(bits).unwrap_or(0)
}

fn bucket(pieces: &[Piece], writer: &mut dyn Writer) -> Result<u32, Full> {
    let mut bucket =
        Ipv6Bucket { keys: [u64::MAX; IPV6_KEYS], values: [pieces[pieces.len() - 1].entry; IPV6_KEYS + 1] };
    for (value, piece) in bucket.values.iter_mut().zip(pieces) {
        *value = piece.entry;
    }
    for (key, piece) in bucket.keys.iter_mut().zip(&pieces[1..]) {
        *key = piece.start;
    }
    let line = writer.take(1)?;
    writer.write(line, &bucket.emit());
    Ok(IPV6_TABLE | line)
}

/// Number of intervals that a bucket holds.
const WIDTH: usize = IPV6_KEYS + 1;

/// Builds a search tree of buckets for the key ranges in `pieces`, with as few buckets as possible.
/// Returns the entry that refers to the tree.
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

/// Returns the height and the number of buckets of a search tree with `pieces` key ranges.
fn tree_size(pieces: usize) -> (u32, usize) {
    let (mut levels, mut lines, mut count) = (0, 0, pieces);
    while count > 1 {
        count = count.div_ceil(WIDTH);
        levels += 1;
        lines += count;
    }
    (levels, lines)
}

/// Kind of lookup structure that divides a part of the address space.
#[derive(Clone, Copy, Debug, PartialEq)]
enum DivisionKind {
    /// A trie node that consumes this number of address bits.
    Node(u32),
    /// A search tree of buckets.
    Buckets,
    /// A bucket that skips address bits. All next hop changes lie in one of its intervals, which
    /// another structure divides further.
    Skip,
}

/// Lookup structure for a part of the address space. The cost includes all structures below it.
#[derive(Clone, Copy, Debug)]
struct Division {
    cost: f64,
    kind: DivisionKind,
}

/// Cheapest lookup structure for each examined part of the address space. A part is identified by
/// its first key and its number of bits.
type Divisions = HashMap<(u64, u32), Division>;

/// Returns the cheapest lookup structure for `2^bits` keys. `borders` contains the key ranges that
/// begin after the first key. The results are stored in `known`, and each part of the address space
/// is examined only once.
fn cheapest(borders: &[Piece], bits: u32, known: &mut Divisions) -> Division {
    let [first, ..] = borders else { return Division { cost: 0.0, kind: DivisionKind::Buckets } };
    let total = borders.len() as f64;
    let (levels, lines) = tree_size(borders.len() + 1);
    let cost = BUCKET_COST * f64::from(levels) * total + LINE_COST * lines as f64;
    let mut best = Division { cost, kind: DivisionKind::Buckets };
    if levels == 1 {
        return best;
    }
    let part = (first.start & size(bits).wrapping_neg(), bits);
    if let Some(division) = known.get(&part) {
        return *division;
    }
    let differ = differing_bits(borders);
    if differ + SKIPPED_MIN <= bits {
        let inside = cheapest(inner_borders(borders, differ), differ, known);
        let cost = SKIP_COST * total + LINE_COST + inside.cost;
        if cost < best.cost {
            best = Division { cost, kind: DivisionKind::Skip };
        }
    }
    for stride in STRIDES.into_iter().filter(|&stride| stride <= bits) {
        let shift = bits - stride;
        let mut cost = total + LINE_COST * f64::from(4u32 << stride >> 6);
        for part in borders.chunk_by(|a, b| a.start >> shift == b.start >> shift) {
            if cost >= best.cost {
                break;
            }
            cost += cheapest(inner_borders(part, shift), shift, known).cost;
        }
        if cost < best.cost {
            best = Division { cost, kind: DivisionKind::Node(stride) };
        }
    }
    known.insert(part, best);
    best
}

/// Returns the key ranges that begin after the first key of a part of the address space. The part
/// has `2^bits` keys, and all `borders` begin in it.
fn inner_borders(borders: &[Piece], bits: u32) -> &[Piece] {
    &borders[usize::from(borders[0].start.trailing_zeros() >= bits)..]
}

/// Returns the number of low key bits in which the starts of the ranges differ. The result is
/// rounded up to an even number, because a table entry cannot store an odd number.
fn differing_bits(borders: &[Piece]) -> u32 {
    (64 - (borders[0].start ^ borders[borders.len() - 1].start).leading_zeros()).next_multiple_of(2)
}

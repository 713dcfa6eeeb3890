//! Routes in hash tables that are searched by prefix length (Waldvogel, Varghese, Turner, Plattner,
//! "Scalable High Speed IP Routing Lookups", SIGCOMM 1997). `kernels/ipv6/lookup.h` shows the
//! layout.
//!
//! A *rope* is a sequence of prefix lengths. A lookup tries the lengths of a rope, one after
//! another, until it finds a key. That key has another rope, with which the search continues. A
//! search for a long prefix must therefore find a key at each length that it tries first. Where
//! there is no route, the table holds a *marker*, which carries the entry of the best shorter
//! prefix.
//!
//! Each length in a rope halves the number of remaining prefixes, and not the number of remaining
//! lengths. This order is faster, because half of the prefixes in a real table are /48s.

use std::hash::{BuildHasher, RandomState};

use godwit_kernels::image::{IPV6_LINE_BYTES, IPV6_LOW, IPV6_PROBES, IPV6_TABLE, IPV6_WAYS, Ipv6Hash, Ipv6HashLine};

use super::Route;
use super::tables::{Full, Writer, leaf};
use crate::routes::Address;

/// Maximum number of prefix lengths that a lookup tries.
const ROPE_MAX: usize = 8;
/// Number of hash seeds that are tried before the table is enlarged.
const SEEDS: usize = 4;

/// Lookup key of a hash table: the upper or lower half of a route's prefix, with the entry that a
/// lookup returns.
#[derive(Clone, Copy, Debug)]
struct Key {
    prefix: u64,
    /// Length of this half of the prefix, which is 1 to 64 bits.
    length: u8,
    entry: u32,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    key: Key,
    rope: u64,
}

/// Builds the hash tables for `routes`, which must be sorted. Returns the entry that refers to
/// these hash tables. `outside` is the next hop of addresses that match none of the `routes`.
pub(super) fn build(routes: &[Route], outside: u32, writer: &mut dyn Writer) -> Result<u32, Full> {
    let mut keys: Vec<Key> = Vec::with_capacity(routes.len());
    // The stack holds the routes of at most 64 bits that cover the current address.
    let mut covering: Vec<Route> = Vec::new();
    let mut at = 0;
    while let Some(route) = routes.get(at) {
        let high = (route.prefix >> 64) as u64;
        while covering.last().is_some_and(|last| route.prefix.masked(last.length) != last.prefix) {
            covering.pop();
        }
        if route.length <= 64 {
            covering.push(*route);
            keys.push(Key { prefix: high, length: route.length, entry: leaf(route.next_hop) });
            at += 1;
            continue;
        }
        let around = covering.last().map_or(outside, |last| last.next_hop);
        let inside = routes[at..].iter().take_while(|inside| (inside.prefix >> 64) as u64 == high).count();
        let low = routes[at..at + inside].iter().map(|route| Key {
            prefix: route.prefix as u64,
            length: route.length - 64,
            entry: leaf(route.next_hop),
        });
        at += inside;
        let entry = table(&low.collect::<Vec<_>>(), leaf(around), writer)?;
        let line = writer.take(1)?;
        let mut bytes = [0; IPV6_LINE_BYTES];
        bytes[..4].copy_from_slice(&entry.to_le_bytes());
        writer.write(line, &bytes);
        // This /64 prefix contains longer routes. The entry for these routes replaces the entry of
        // a route to the /64 prefix itself.
        if keys.last().is_some_and(|last| (last.prefix, last.length) == (high, 64)) {
            keys.pop();
        }
        keys.push(Key { prefix: high, length: 64, entry: IPV6_LOW | line });
    }
    table(&keys, leaf(outside), writer)
}

/// Builds a hash table for sorted lookup keys. Returns the entry that refers to this table.
fn table(keys: &[Key], outside: u32, writer: &mut dyn Writer) -> Result<u32, Full> {
    if keys.is_empty() {
        return Ok(outside);
    }
    let mut records = Vec::with_capacity(2 * keys.len());
    let rope = rope(keys.to_vec(), outside, &mut records);
    let mut count_log2 = (records.len() * 2 / IPV6_WAYS).next_power_of_two().trailing_zeros().max(1);
    let mut hash = Ipv6Hash { rope, value: outside, ..Ipv6Hash::default() };
    let lines = loop {
        let placed = (0..SEEDS).find_map(|_| {
            // The hash seed is random and secret, so a peer that announces routes cannot choose
            // prefixes that collide.
            hash.seed = RandomState::new().hash_one(count_log2);
            hash.shift = 64 - count_log2;
            fill(&records, &hash)
        });
        match placed {
            Some(lines) => break lines,
            None => count_log2 += 1,
        }
    };
    let first = writer.take(1 + (1 << count_log2))?;
    let mut bytes = Vec::with_capacity((1 + lines.len()) * IPV6_LINE_BYTES);
    bytes.extend(hash.emit());
    lines.iter().for_each(|line| bytes.extend(line.emit()));
    writer.write(first, &bytes);
    Ok(IPV6_TABLE | first)
}

/// Returns the prefix lengths that a lookup tries, in order, to find the longest key that covers an
/// address. `keys` must be sorted. Appends the required hash table entries to `records`.
fn rope(mut keys: Vec<Key>, outside: u32, records: &mut Vec<Record>) -> u64 {
    let mut rope = 0;
    let mut tried = 0;
    while !keys.is_empty() {
        let length = pivot(&keys, tried);
        rope |= u64::from(length) << (8 * tried);
        tried += 1;
        let mut shorter = Vec::new();
        // The stack holds the keys shorter than `length` that cover the current key.
        let mut covering: Vec<Key> = Vec::new();
        let mut at = 0;
        while let Some(&key) = keys.get(at) {
            while covering.last().is_some_and(|last| masked(key.prefix, last.length) != last.prefix) {
                covering.pop();
            }
            if key.length < length {
                covering.push(key);
                shorter.push(key);
                at += 1;
                continue;
            }
            let prefix = masked(key.prefix, length);
            let mut entry = covering.last().map_or(outside, |last| last.entry);
            if key.length == length {
                entry = key.entry;
                at += 1;
            }
            let inside = keys[at..].iter().take_while(|inside| masked(inside.prefix, length) == prefix).count();
            let longer = keys[at..at + inside].to_vec();
            at += inside;
            let below = self::rope(longer, entry, records);
            records.push(Record { key: Key { prefix, length, entry }, rope: below });
        }
        keys = shorter;
    }
    rope
}

/// Returns the prefix length that a lookup tries next. It is the median length of the keys, unless
/// too many shorter lengths would remain.
fn pivot(keys: &[Key], tried: usize) -> u8 {
    let mut counts = [0usize; 65];
    keys.iter().for_each(|key| counts[usize::from(key.length)] += 1);
    let lengths: Vec<usize> = (1..=64).filter(|&length| counts[length] > 0).collect();
    let shorter_max = (1 << (ROPE_MAX - 1 - tried)) - 1;
    let mut before = 0;
    let half = lengths.iter().position(|&length| {
        before += counts[length];
        2 * before > keys.len()
    });
    lengths[half.unwrap_or(0).min(shorter_max)] as u8
}

/// Stores each record in the 64-byte line that its hash selects, or in one of the next lines.
/// Returns `None` if a record finds no room in these lines.
fn fill(records: &[Record], hash: &Ipv6Hash) -> Option<Vec<Ipv6HashLine>> {
    let count = 1usize << (64 - hash.shift);
    let mut lines = vec![Ipv6HashLine::default(); count];
    for Record { key, rope } in records {
        let home = (hash.hash(key.prefix, key.length) >> hash.shift) as usize;
        let (at, way) = (0..IPV6_PROBES.min(count)).map(|probe| (home + probe) % count).find_map(|at| {
            let way = lines[at].lengths.iter().position(|&length| length == 0);
            if way.is_none() {
                lines[at].more = 1;
            }
            way.map(|way| (at, way))
        })?;
        let line = &mut lines[at];
        (line.keys[way], line.ropes[way]) = (key.prefix, *rope);
        (line.values[way], line.lengths[way]) = (key.entry, key.length);
    }
    Some(lines)
}

fn masked(key: u64, length: u8) -> u64 {
    key & u64::MAX.checked_shl(64 - u32::from(length)).unwrap_or(0)
}

//! Builds a search image from patterns.

use crate::frequency::Frequencies;
use crate::image::{FOLD, GROUPS, HEAD_WORDS, HEADER_BYTES, Image, PATTERN_BYTES, fold4, fold8, group, head, mix};

/// Byte string to search for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// Bytes of the pattern. If `nocase` is set, they are in lower case.
    pub bytes: Vec<u8>,
    /// Whether ASCII letters match in both cases.
    pub nocase: bool,
}

/// Maximum number of windows that the builder considers per pattern. A window is a short substring
/// of a pattern.
const WINDOWS_MAX: usize = 250;

/// Window length and distance between examined text positions, in bytes, for the three pattern
/// groups that have a bit table.
const SHAPES: [(usize, usize); 3] = [(8, 4), (4, 4), (3, 2)];

/// Builds the search image of `patterns`. The number of a pattern is its index. `seed` changes the
/// hash functions, so an attacker cannot prepare colliding patterns or traffic.
pub fn build(patterns: &[Pattern], frequencies: &Frequencies, seed: u64) -> Image {
    Builder::new(patterns, frequencies, seed).build()
}

struct Builder<'a> {
    patterns: &'a [Pattern],
    frequencies: &'a Frequencies,
    k1: u32,
    k2: u32,
    bytes: Vec<u8>,
    head: [u32; HEAD_WORDS],
    groups: [[u32; crate::image::GROUP_WORDS]; GROUPS],
    /// Number of selected windows for each hash value.
    load: Vec<u32>,
    first: Vec<u64>,
}

/// Window of a pattern: a short substring that the search looks for first.
struct Entry {
    hash: u32,
    pattern: u32,
    position: usize,
}

fn group_of(length: usize) -> usize {
    match length {
        0..=3 => 3,
        4..=6 => 2,
        7..=10 => 1,
        _ => 0,
    }
}

impl<'a> Builder<'a> {
    fn new(patterns: &'a [Pattern], frequencies: &'a Frequencies, seed: u64) -> Self {
        // The hash multipliers are two odd constants. The seed changes some of their bits.
        let k1 = 0x9e37_79b1 ^ (seed as u32 & 0x00ff_fffe);
        let k2 = 0x85eb_ca77 ^ ((seed >> 32) as u32 & 0x00ff_fffe);
        Self {
            patterns,
            frequencies,
            k1,
            k2,
            bytes: vec![0; HEADER_BYTES],
            head: [0; HEAD_WORDS],
            groups: [[0; crate::image::GROUP_WORDS]; GROUPS],
            load: vec![0; 1 << 16],
            first: Vec::new(),
        }
    }

    fn build(mut self) -> Image {
        let long = self.patterns.iter().filter(|pattern| pattern.bytes.len() >= 7).count();
        let first_bits = table_bits(long * 4, 10, 18);
        self.first = vec![0; (1 << first_bits) / 64];
        self.pattern_records();
        for group in 0..3 {
            self.table_group(group, first_bits);
        }
        self.short_group();
        let first_at = self.align();
        for word in std::mem::take(&mut self.first) {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.head[head::FIRST_AT] = first_at;
        self.head[head::FIRST_BITS] = first_bits;
        self.head[head::K1] = self.k1;
        self.head[head::K2] = self.k2;
        self.head[head::PATTERNS] = self.patterns.len() as u32;
        self.head[head::LONGEST] = self.patterns.iter().map(|pattern| pattern.bytes.len() as u32).max().unwrap_or(0);
        // The search reads eight entries at once, so padding must follow the last entry.
        self.bytes.extend_from_slice(&[0; 64]);
        self.head[head::BYTES] = self.bytes.len() as u32;
        let words = self.head.iter().chain(self.groups.iter().flatten());
        let header: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        self.bytes[..HEADER_BYTES].copy_from_slice(&header);
        Image::new(&self.bytes)
    }

    /// Pads the image to a multiple of a cache line and returns its length.
    fn align(&mut self) -> u32 {
        self.bytes.resize(self.bytes.len().next_multiple_of(64), 0);
        self.bytes.len() as u32
    }

    fn pattern_records(&mut self) {
        let records_at = self.align() as usize;
        self.head[head::PATTERNS_AT] = records_at as u32;
        self.bytes.resize(records_at + self.patterns.len() * PATTERN_BYTES, 0);
        self.align();
        for (index, pattern) in self.patterns.iter().enumerate() {
            let at = self.bytes.len() as u32;
            let padded = pattern.bytes.len().next_multiple_of(8);
            let masks = pattern.bytes.iter().map(|byte| mask_of(*byte, pattern.nocase));
            let values: Vec<u8> = pattern.bytes.iter().zip(masks.clone()).map(|(byte, mask)| byte & mask).collect();
            self.bytes.extend_from_slice(&values);
            self.bytes.resize(at as usize + padded, 0);
            self.bytes.extend(masks);
            self.bytes.resize(at as usize + 2 * padded, 0);
            let record = records_at + index * PATTERN_BYTES;
            self.bytes[record..record + 4].copy_from_slice(&at.to_le_bytes());
            self.bytes[record + 4..record + 8].copy_from_slice(&(pattern.bytes.len() as u32).to_le_bytes());
        }
    }

    fn table_group(&mut self, number: usize, first_bits: u32) {
        let (width, stride) = SHAPES[number];
        let members: Vec<usize> =
            (0..self.patterns.len()).filter(|index| group_of(self.patterns[*index].bytes.len()) == number).collect();
        let bits = table_bits(members.len() * stride, 10, 20);
        let buckets = table_bits(members.len() * stride, 8, 22).min(bits).saturating_sub(4).max(8);
        let mut table = vec![0u64; (1 << bits) / 64];
        let mut entries = Vec::with_capacity(members.len() * stride);
        for index in &members {
            let start = self.choose(&self.patterns[*index].bytes, width, stride);
            for position in start..start + stride {
                let window = &self.patterns[*index].bytes[position..position + width];
                let (low, high) = folded(window);
                let hash = mix(low, high, self.k1, self.k2);
                self.load[(hash >> 16) as usize] += 1;
                set(&mut table, hash >> (32 - bits));
                if number < 2 {
                    set(&mut self.first, low.wrapping_mul(self.k1) >> (32 - first_bits));
                }
                entries.push(Entry { hash, pattern: *index as u32, position });
            }
        }
        entries.sort_by_key(|entry| entry.hash >> (32 - buckets));
        let back = if width == 8 { 0 } else { 3 };
        self.groups[number][group::PATTERNS] = members.len() as u32;
        self.groups[number][group::BACK] = back;
        self.groups[number][group::ENTRIES] = entries.len() as u32;
        self.write_table(number, bits, &table);
        self.write_buckets(number, buckets, back as usize, &entries);
    }

    /// Returns the pattern offset at which the `stride` consecutive windows with the lowest
    /// expected cost begin.
    fn choose(&self, bytes: &[u8], width: usize, stride: usize) -> usize {
        let costs: Vec<f64> = bytes
            .windows(width)
            .take(WINDOWS_MAX + stride)
            .map(|window| {
                let (low, high) = folded(window);
                let shared = f64::from(self.load[(mix(low, high, self.k1, self.k2) >> 16) as usize]);
                self.frequencies.probability(window) * (1.0 + shared) + 1e-9 * shared
            })
            .collect();
        let sums = costs.windows(stride).map(|costs| costs.iter().sum::<f64>());
        sums.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |best| best.0)
    }

    fn write_table(&mut self, number: usize, bits: u32, table: &[u64]) {
        self.groups[number][group::TABLE_AT] = self.align();
        self.groups[number][group::TABLE_BITS] = bits;
        for word in table {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
    }

    fn write_buckets(&mut self, number: usize, buckets: u32, back: usize, entries: &[Entry]) {
        self.groups[number][group::STARTS_AT] = self.align();
        self.groups[number][group::STARTS_BITS] = buckets;
        let mut next = 0;
        for bucket in 0..1u32 << buckets {
            self.bytes.extend_from_slice(&(next as u32).to_le_bytes());
            while entries.get(next).is_some_and(|entry| entry.hash >> (32 - buckets) == bucket) {
                next += 1;
            }
        }
        self.bytes.extend_from_slice(&(next as u32).to_le_bytes());
        let compared: Vec<([u8; 8], [u8; 8])> = entries.iter().map(|entry| self.compared(entry, back)).collect();
        self.groups[number][group::VALUES_AT] = self.align();
        compared.iter().for_each(|pair| self.bytes.extend_from_slice(&pair.0));
        self.bytes.extend_from_slice(&[0; 64]);
        self.groups[number][group::MASKS_AT] = self.align();
        compared.iter().for_each(|pair| self.bytes.extend_from_slice(&pair.1));
        self.bytes.extend_from_slice(&[0; 64]);
        self.groups[number][group::IDS_AT] = self.align();
        entries.iter().for_each(|entry| self.bytes.extend_from_slice(&entry.pattern.to_le_bytes()));
        self.groups[number][group::POSITIONS_AT] = self.align();
        entries.iter().for_each(|entry| self.bytes.push(entry.position as u8));
    }

    /// Returns the eight pattern bytes of an entry, and the masks for comparing them with the text.
    fn compared(&self, entry: &Entry, back: usize) -> ([u8; 8], [u8; 8]) {
        let pattern = &self.patterns[entry.pattern as usize];
        let (mut values, mut masks) = ([0; 8], [0; 8]);
        for index in 0..8 {
            let Some(at) = (entry.position + index).checked_sub(back) else { continue };
            if let Some(byte) = pattern.bytes.get(at) {
                masks[index] = mask_of(*byte, pattern.nocase);
                values[index] = byte & masks[index];
            }
        }
        (values, masks)
    }

    /// Writes the tables for patterns of one to three bytes. Each table maps a byte value to the
    /// buckets of patterns that may match.
    fn short_group(&mut self) {
        let mut members: Vec<usize> =
            (0..self.patterns.len()).filter(|index| group_of(self.patterns[*index].bytes.len()) == 3).collect();
        members.sort_by_key(|index| self.patterns[*index].bytes.first().map(|byte| byte | FOLD as u8));
        let mut tables = [[0u8; 256]; 3];
        let mut starts = Vec::with_capacity(9);
        for bucket in 0..8 {
            let range = members.len() * bucket / 8..members.len() * (bucket + 1) / 8;
            starts.push(range.start as u32);
            for index in &members[range] {
                let pattern = &self.patterns[*index];
                for (position, table) in tables.iter_mut().enumerate() {
                    for byte in 0..=255u8 {
                        let matches = pattern
                            .bytes
                            .get(position)
                            .is_none_or(|own| (byte ^ own) & mask_of(*own, pattern.nocase) == 0);
                        table[usize::from(byte)] |= u8::from(matches) << bucket;
                    }
                }
            }
        }
        starts.push(members.len() as u32);
        self.head[head::SHORT_AT] = self.align();
        tables.iter().for_each(|table| self.bytes.extend_from_slice(table));
        self.groups[3][group::PATTERNS] = members.len() as u32;
        self.groups[3][group::STARTS_AT] = self.align();
        starts.iter().for_each(|start| self.bytes.extend_from_slice(&start.to_le_bytes()));
        self.groups[3][group::IDS_AT] = self.align();
        members.iter().for_each(|index| self.bytes.extend_from_slice(&(*index as u32).to_le_bytes()));
    }
}

/// Returns the mask for comparing a byte. If case is ignored, the mask clears the ASCII case bit of
/// a letter.
fn mask_of(byte: u8, nocase: bool) -> u8 {
    if nocase && byte.is_ascii_alphabetic() { !0x20 } else { 0xff }
}

fn folded(window: &[u8]) -> (u32, u32) {
    match window.len() {
        3 => (fold4(&[window[0], window[1], window[2], 0]) & 0x00ff_ffff, 0),
        4 => (fold4(window), 0),
        _ => {
            let eight = fold8(window);
            (eight as u32, (eight >> 32) as u32)
        }
    }
}

/// Returns the base-2 logarithm of a table's size in bits, clamped to the range from `low` to
/// `high`.
fn table_bits(entries: usize, low: u32, high: u32) -> u32 {
    (entries.max(1) * 32).next_power_of_two().ilog2().clamp(low, high)
}

fn set(table: &mut [u64], bit: u32) {
    table[(bit / 64) as usize] |= 1 << (bit % 64);
}

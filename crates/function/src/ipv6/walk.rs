//! Lookups on the CPU with the same algorithm as a kernel. They serve the reverse-path filter, the
//! choice of the lookup structure, and tests.

use godwit_kernels::image::{
    IPV6_KEYS, IPV6_LEAF, IPV6_LINE_BYTES, IPV6_LOW, IPV6_NODE, IPV6_NONE, IPV6_PROBES, IPV6_TABLE, IPV6_WAYS, Ipv6Hash,
};

use godwit_packet::Image;

use super::Form;
use super::lines::Run;

/// Mask of the bits that contain the kind of a table entry.
const TAG: u32 = 3 << 30;

/// Table memory from which lookups read words. `at` is the offset of a word in bytes.
pub(super) trait Words: Copy {
    fn u32(self, at: usize) -> u32;
    fn u64(self, at: usize) -> u64;
}

impl Words for &[u8] {
    fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(*self[at..].first_chunk().expect("the offset is within the table"))
    }

    fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(*self[at..].first_chunk().expect("the offset is within the table"))
    }
}

/// Memory of tables that may change during a lookup.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) image: &'a Image,
    pub(super) offset: usize,
}

impl Words for Part<'_> {
    fn u32(self, at: usize) -> u32 {
        self.image.load_u32(self.offset + at)
    }

    fn u64(self, at: usize) -> u64 {
        self.image.load_u64(self.offset + at)
    }
}

/// Tables from which lookups on the CPU read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<W> {
    pub(super) form: Form,
    pub(super) root_bits: u32,
    pub(super) root: W,
    pub(super) lines: W,
}

/// Returns the index of the 64-byte line to which a table entry refers.
pub(super) fn line_of(entry: u32) -> u32 {
    entry & 0x7f_ffff
}

/// Returns the offset of the 64-byte line to which a table entry refers, in bytes from the first
/// line.
fn line_offset(entry: u32) -> usize {
    line_of(entry) as usize * IPV6_LINE_BYTES
}

/// Returns the number of bits by which a lookup shifts the address at a node, and the number of
/// address bits that the node consumes. `entry` refers to the node.
fn node(entry: u32) -> (u32, u32) {
    (entry >> 24 & 62, 6 + (entry >> 22 & 6))
}

impl<W: Words> Table<W> {
    /// Returns the index of the next hop for an address.
    pub(super) fn lookup(&self, address: u128) -> Option<u32> {
        let (high, low) = ((address >> 64) as u64, address as u64);
        let mut entry = self.half(self.root.u32(4 * (high >> (64 - self.root_bits)) as usize), high);
        if entry & TAG == IPV6_LOW {
            entry = self.half(self.lines.u32(line_offset(entry)), low);
        }
        assert_eq!(entry & TAG, IPV6_LEAF, "the lookup of {address:#x} ends without a leaf");
        (entry != IPV6_NONE).then_some(entry)
    }

    fn half(&self, mut entry: u32, key: u64) -> u32 {
        if self.form == Form::Hash {
            return if entry & TAG == IPV6_TABLE { self.hashed(entry, key) } else { entry };
        }
        loop {
            entry = match entry & TAG {
                IPV6_NODE => {
                    let (shift, stride) = node(entry);
                    self.lines.u32(line_offset(entry) + 4 * (key >> shift & ((1 << stride) - 1)) as usize)
                }
                IPV6_TABLE => {
                    let line = line_offset(entry);
                    let rank = (0..IPV6_KEYS).filter(|&at| self.lines.u64(line + 8 * at) <= key).count();
                    self.lines.u32(line + 8 * IPV6_KEYS + 4 * rank)
                }
                _ => return entry,
            };
        }
    }

    fn hashed(&self, entry: u32, key: u64) -> u32 {
        let (table, words) = (line_offset(entry), self.lines);
        let hash = Ipv6Hash { seed: words.u64(table + 8), shift: words.u32(table + 20), ..Ipv6Hash::default() };
        let (mut rope, mut best) = (words.u64(table), words.u32(table + 16));
        while rope != 0 {
            let length = rope as u8;
            rope >>= 8;
            let prefix = key & u64::MAX << (64 - length);
            let mut at = hash.hash(prefix, length) >> hash.shift;
            for _ in 0..IPV6_PROBES {
                let line = table + (1 + at as usize) * IPV6_LINE_BYTES;
                let lengths = words.u32(line + 60).to_le_bytes();
                let found = (0..IPV6_WAYS).find(|&way| words.u64(line + 8 * way) == prefix && lengths[way] == length);
                if let Some(way) = found {
                    rope = words.u64(line + 24 + 8 * way);
                    best = words.u32(line + 48 + 4 * way);
                    break;
                }
                if lengths[3] == 0 {
                    break;
                }
                at = (at + 1) & u64::MAX >> hash.shift;
            }
        }
        best
    }
}

/// Appends the memory ranges of all structures below a table entry to `runs`. The parameters of
/// `read` are the index of a 64-byte line, and the index of a word in the line.
pub(super) fn runs(form: Form, entry: u32, read: &dyn Fn(u32, usize) -> u32, runs: &mut Vec<Run>) {
    let first = line_of(entry);
    match (entry & TAG, form) {
        (IPV6_LEAF, _) => {}
        (IPV6_LOW, _) => {
            runs.push(Run { first, count: 1 });
            self::runs(form, read(first, 0), read, runs);
        }
        (IPV6_NODE, _) => {
            let (_, stride) = node(entry);
            runs.push(Run { first, count: 4 << stride >> 6 });
            for index in 0..1 << stride {
                self::runs(form, read(first, index), read, runs);
            }
        }
        (_, Form::Trie) => {
            runs.push(Run { first, count: 1 });
            let mut before = None;
            for index in 0..=IPV6_KEYS {
                let value = read(first, 2 * IPV6_KEYS + index);
                // The unused values of a bucket repeat the last used value.
                if before.replace(value) != Some(value) {
                    self::runs(form, value, read, runs);
                }
            }
        }
        (_, Form::Hash) => {
            let shift = read(first, 5);
            runs.push(Run { first, count: 1 + (1 << (64 - shift)) });
            let mut below = |value| {
                if value & TAG == IPV6_LOW {
                    self::runs(form, value, read, runs);
                }
            };
            below(read(first, 4));
            for line in first + 1..=first + (1 << (64 - shift)) {
                let lengths = read(line, 15).to_le_bytes();
                for (way, _) in lengths[..IPV6_WAYS].iter().enumerate().filter(|(_, length)| **length == 64) {
                    below(read(line, 12 + way));
                }
            }
        }
    }
}

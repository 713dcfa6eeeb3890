//! Tables that several functions share. A table is built once, and then changes while kernels look
//! up entries.
//!
//! | module | table | used by |
//! |---|---|---|
//! | `exact` | cuckoo hash table | `l2`, declared tables |
//! | `lpm4` | DIR-24-8 | `ipv4`, declared tables |

pub(crate) mod exact;
pub(crate) mod lpm4;

use std::ops::Range;

/// Maximum gap between two changed words of a table, in bytes. Words with a smaller gap are copied
/// to the devices in one transfer.
const NEAR_BYTES: usize = 4096;

/// Returns byte ranges that cover the words at `offsets`. Each word has `bytes` bytes, and the
/// offsets are sorted.
pub(crate) fn ranges(offsets: impl Iterator<Item = usize>, bytes: usize) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for offset in offsets {
        match ranges.last_mut() {
            Some(last) if offset <= last.end + NEAR_BYTES => last.end = last.end.max(offset + bytes),
            _ => ranges.push(offset..offset + bytes),
        }
    }
    ranges
}

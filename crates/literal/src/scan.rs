//! Searches a text for patterns that were compiled into an image. This Rust code and the two
//! versions in C perform the same steps.

use crate::image::{FOLD, Image, PATTERN_BYTES, group, head, mix};
use crate::native::{self, Form};

/// Receives a match. Returns false to end the search.
type Found<'f> = &'f mut dyn FnMut(u32, usize) -> bool;

impl Image {
    /// Calls `found` for each match of a pattern in `text`, in no particular order. The arguments
    /// are the pattern number and the text offset after the match.
    pub fn scan(&self, text: &[u8], mut found: impl FnMut(u32, usize)) {
        self.scan_until(text, |pattern, end| {
            found(pattern, end);
            true
        });
    }

    /// Searches like [`Image::scan`] until `found` returns `false`. Returns whether the search
    /// reached the end of `text`.
    pub fn scan_until(&self, text: &[u8], found: impl FnMut(u32, usize) -> bool) -> bool {
        self.scan_with(Form::best(), text, found)
    }

    /// Searches with one version of the search code until `found` returns `false`. Returns whether
    /// the search reached the end of `text`.
    ///
    /// # Panics
    /// Panics if this CPU does not support the version.
    pub fn scan_with(&self, form: Form, text: &[u8], found: impl FnMut(u32, usize) -> bool) -> bool {
        native::scan(form, self, text, found)
    }

    /// Searches with the Rust version of the code.
    pub(crate) fn scan_rust(&self, text: &[u8], found: Found<'_>) -> bool {
        let (k1, k2) = (self.head(head::K1), self.head(head::K2));
        let is_long = self.group(0, group::PATTERNS) + self.group(1, group::PATTERNS) > 0;
        (!is_long || self.scan_long(text, k1, k2, found))
            && (self.group(2, group::PATTERNS) == 0 || self.scan_medium(text, k1, found))
            && (self.group(3, group::PATTERNS) == 0 || self.scan_short(text, found))
    }

    /// Groups 0 and 1 look up every fourth position.
    fn scan_long(&self, text: &[u8], k1: u32, k2: u32, found: Found<'_>) -> bool {
        let (first_at, first_shift) = (self.head(head::FIRST_AT) as usize, 32 - self.head(head::FIRST_BITS));
        let tables = [0, 1].map(|g| (self.group(g, group::TABLE_AT), 32 - self.group(g, group::TABLE_BITS) as u32));
        let used = [0, 1].map(|g| self.group(g, group::PATTERNS) > 0);
        for at in (0..text.len().saturating_sub(3)).step_by(4) {
            let window = load(text, at);
            let folded = window | FOLD;
            let hash = (folded as u32).wrapping_mul(k1);
            if !self.bit(first_at, hash >> first_shift) {
                continue;
            }
            if used[0] && at + 8 <= text.len() {
                let hash = mix(folded as u32, (folded >> 32) as u32, k1, k2);
                if self.bit(tables[0].0, hash >> tables[0].1) && !self.bucket(0, text, at, hash, found) {
                    return false;
                }
            }
            if used[1] && self.bit(tables[1].0, hash >> tables[1].1) && !self.bucket(1, text, at, hash, found) {
                return false;
            }
        }
        true
    }

    /// Group 2 looks up every second position.
    fn scan_medium(&self, text: &[u8], k1: u32, found: Found<'_>) -> bool {
        let (table_at, shift) = (self.group(2, group::TABLE_AT), 32 - self.group(2, group::TABLE_BITS) as u32);
        for at in (0..text.len().saturating_sub(2)).step_by(2) {
            let folded = (load(text, at) | FOLD) as u32 & 0x00ff_ffff;
            let hash = folded.wrapping_mul(k1);
            if self.bit(table_at, hash >> shift) && !self.bucket(2, text, at, hash, found) {
                return false;
            }
        }
        true
    }

    /// Group 3 looks up every position.
    fn scan_short(&self, text: &[u8], found: Found<'_>) -> bool {
        let tables = self.head(head::SHORT_AT) as usize;
        let byte =
            |table: usize, at: usize| text.get(at).map_or(0xff, |b| self.u8(tables + table * 256 + usize::from(*b)));
        for at in 0..text.len() {
            let mut buckets = byte(0, at) & byte(1, at + 1) & byte(2, at + 2);
            while buckets != 0 {
                let bucket = buckets.trailing_zeros() as usize;
                buckets &= buckets - 1;
                let starts = self.group(3, group::STARTS_AT) + bucket * 4;
                for entry in self.u32(starts)..self.u32(starts + 4) {
                    let id = self.u32(self.group(3, group::IDS_AT) + entry as usize * 4);
                    if !self.verify(id, text, at, found) {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Compares the text at offset `at` with the entries of bucket `number`.
    fn bucket(&self, number: usize, text: &[u8], at: usize, hash: u32, found: Found<'_>) -> bool {
        let bucket = (hash >> (32 - self.group(number, group::STARTS_BITS) as u32)) as usize;
        let starts = self.group(number, group::STARTS_AT) + bucket * 4;
        let (begin, end) = (self.u32(starts) as usize, self.u32(starts + 4) as usize);
        if begin == end {
            return true;
        }
        let around = load_before(text, at, self.group(number, group::BACK));
        let (values, masks) = (self.group(number, group::VALUES_AT), self.group(number, group::MASKS_AT));
        for entry in begin..end {
            if around & self.u64(masks + entry * 8) == self.u64(values + entry * 8) {
                let position = usize::from(self.u8(self.group(number, group::POSITIONS_AT) + entry));
                let id = self.u32(self.group(number, group::IDS_AT) + entry * 4);
                if position <= at && !self.verify(id, text, at - position, found) {
                    return false;
                }
            }
        }
        true
    }

    /// Compares a whole pattern with the text at offset `start`, and reports a match.
    fn verify(&self, id: u32, text: &[u8], start: usize, found: Found<'_>) -> bool {
        let record = self.head(head::PATTERNS_AT) as usize + id as usize * PATTERN_BYTES;
        let (at, length) = (self.u32(record) as usize, self.u32(record + 4) as usize);
        if start + length > text.len() {
            return true;
        }
        let masks = at + length.next_multiple_of(8);
        for index in (0..length).step_by(8) {
            if load(text, start + index) & self.u64(masks + index) != self.u64(at + index) {
                return true;
            }
        }
        found(id, start + length)
    }
}

/// Returns the eight text bytes from offset `at`. Bytes after the end of the text are zero.
#[inline]
fn load(text: &[u8], at: usize) -> u64 {
    match text.get(at..at + 8) {
        Some(&[a, b, c, d, e, f, g, h]) => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => {
            let mut eight = [0; 8];
            let rest = text.get(at..).unwrap_or(&[]);
            eight[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(eight)
        }
    }
}

/// Returns the eight text bytes from offset `at - back`. Bytes outside the text are zero.
#[inline]
fn load_before(text: &[u8], at: usize, back: usize) -> u64 {
    match at.checked_sub(back) {
        Some(start) => load(text, start),
        None => load(text, 0) << ((back - at) * 8),
    }
}

//! Uses PCRE2 for regular expressions with look-around or back-references. Limits bound the time
//! and memory of each search.
#![allow(unsafe_code, reason = "calls the C library PCRE2")]

use super::{Flags, RegexError};
use crate::rules::content::byte_of;
use pcre2_sys as ffi;
use std::ptr;

/// Maximum number of steps per search (Suricata's default for `pcre.match-limit`).
const MATCH_LIMIT: u32 = 3500;
/// Maximum depth per search (Suricata's default for `pcre.match-limit-recursion`).
const DEPTH_LIMIT: u32 = 1500;
/// Maximum memory of one search, in KiB.
const HEAP_LIMIT_KIB: u32 = 1024;
/// Number of recorded capture groups, including the whole match.
const GROUPS: u32 = 16;

/// Compiled expression.
pub(super) struct Code(*mut ffi::pcre2_code_8);

// SAFETY: PCRE2 documents that a compiled pattern is read-only and can be used by several threads
// at the same time (pcre2api, "Multithreading"). No JIT code is attached.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Code {
    pub(super) fn new(pattern: &str, flags: Flags) -> Result<Self, RegexError> {
        let pattern: Vec<u8> = pattern.chars().map(byte_of).collect();
        let mut options = 0;
        for (on, option) in [
            (flags.nocase, ffi::PCRE2_CASELESS),
            (flags.multi_line, ffi::PCRE2_MULTILINE),
            (flags.dot_all, ffi::PCRE2_DOTALL),
            (flags.extended, ffi::PCRE2_EXTENDED),
            (flags.anchored, ffi::PCRE2_ANCHORED),
            (flags.dollar_end_only, ffi::PCRE2_DOLLAR_ENDONLY),
            (flags.swap_greed, ffi::PCRE2_UNGREEDY),
        ] {
            if on {
                options |= option;
            }
        }
        let (mut error, mut offset) = (0, 0);
        // SAFETY: `pattern` is valid for its length, and the out-parameters are valid for writes.
        let code = unsafe {
            ffi::pcre2_compile_8(pattern.as_ptr(), pattern.len(), options, &mut error, &mut offset, ptr::null_mut())
        };
        if code.is_null() { Err(RegexError::Syntax) } else { Ok(Self(code)) }
    }

    /// Returns the memory use of the compiled expression, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let mut size = 0usize;
        // SAFETY: the pattern is valid, and PCRE2_INFO_SIZE writes one size_t.
        unsafe { ffi::pcre2_pattern_info_8(self.0, ffi::PCRE2_INFO_SIZE, ptr::from_mut(&mut size).cast()) };
        size
    }

    /// Returns the names of the capture groups. The first entry belongs to the whole match.
    pub(super) fn names(&self) -> Vec<Option<String>> {
        let (mut count, mut entries, mut entry_bytes) = (0u32, 0u32, 0u32);
        let mut table: *const u8 = ptr::null();
        // SAFETY: the pattern is valid, and each request writes a value of the type given here
        // (pcre2api, "Information about a compiled pattern").
        unsafe {
            ffi::pcre2_pattern_info_8(self.0, ffi::PCRE2_INFO_CAPTURECOUNT, ptr::from_mut(&mut count).cast());
            ffi::pcre2_pattern_info_8(self.0, ffi::PCRE2_INFO_NAMECOUNT, ptr::from_mut(&mut entries).cast());
            ffi::pcre2_pattern_info_8(self.0, ffi::PCRE2_INFO_NAMEENTRYSIZE, ptr::from_mut(&mut entry_bytes).cast());
            ffi::pcre2_pattern_info_8(self.0, ffi::PCRE2_INFO_NAMETABLE, ptr::from_mut(&mut table).cast());
        }
        let mut names = vec![None; count as usize + 1];
        if table.is_null() || entry_bytes < 3 {
            return names;
        }
        // SAFETY: the table has `entries` entries of `entry_bytes` bytes and lives as long as the
        // pattern.
        let table = unsafe { std::slice::from_raw_parts(table, (entries * entry_bytes) as usize) };
        for entry in table.chunks_exact(entry_bytes as usize) {
            let group = usize::from(u16::from_be_bytes([entry[0], entry[1]]));
            let name: Vec<u8> = entry[2..].iter().copied().take_while(|byte| *byte != 0).collect();
            if let Some(slot) = names.get_mut(group) {
                *slot = String::from_utf8(name).ok();
            }
        }
        names
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: the pattern is valid, and nothing else frees it.
        unsafe { ffi::pcre2_code_free_8(self.0) }
    }
}

/// Memory and limits of searches.
pub(super) struct Search {
    data: *mut ffi::pcre2_match_data_8,
    context: *mut ffi::pcre2_match_context_8,
}

// SAFETY: the memory is used only through `&mut self`, and PCRE2 ties it to no thread.
unsafe impl Send for Search {}

/// Result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Match,
    NoMatch,
    /// The search exceeded a limit.
    Limit,
}

impl Search {
    /// Returns `None` if there is no memory.
    pub(super) fn new() -> Option<Self> {
        // SAFETY: both functions accept a null general context, and return null on failure.
        let (data, context) = unsafe {
            (
                ffi::pcre2_match_data_create_8(GROUPS, ptr::null_mut()),
                ffi::pcre2_match_context_create_8(ptr::null_mut()),
            )
        };
        let search = Self { data, context };
        if data.is_null() || context.is_null() {
            return None;
        }
        // SAFETY: the context is valid.
        unsafe {
            ffi::pcre2_set_match_limit_8(context, MATCH_LIMIT);
            ffi::pcre2_set_depth_limit_8(context, DEPTH_LIMIT);
            ffi::pcre2_set_heap_limit_8(context, HEAP_LIMIT_KIB);
        }
        Some(search)
    }

    pub(super) fn find(&mut self, code: &Code, text: &[u8], slots: &mut [Option<usize>]) -> Outcome {
        // SAFETY: pattern, text, data and context are valid; the text is valid for its length.
        let result = unsafe { ffi::pcre2_match_8(code.0, text.as_ptr(), text.len(), 0, 0, self.data, self.context) };
        match result {
            ffi::PCRE2_ERROR_NOMATCH => return Outcome::NoMatch,
            negative if negative < 0 => return Outcome::Limit,
            _ => {}
        }
        // The result 0 means that the pattern has more capture groups than the match data can hold.
        let groups = if result == 0 { GROUPS as usize } else { result as usize };
        // SAFETY: after a match, the vector has two entries for each of `groups` groups.
        let vector = unsafe { std::slice::from_raw_parts(ffi::pcre2_get_ovector_pointer_8(self.data), 2 * groups) };
        slots.fill(None);
        for (slot, at) in slots.iter_mut().zip(vector) {
            *slot = (*at <= text.len()).then_some(*at);
        }
        Outcome::Match
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        // SAFETY: both are valid or null, and nothing else frees them.
        unsafe {
            ffi::pcre2_match_data_free_8(self.data);
            ffi::pcre2_match_context_free_8(self.context);
        }
    }
}

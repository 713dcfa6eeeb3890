//! Tables of `dpi`, whose layout `kernels/dpi/dpi.h` shows. They form an Aho-Corasick automaton
//! (Aho, Corasick, "Efficient String Matching", CACM 18(6), 1975). The failure links are merged
//! into the transition table (section 6 of the paper).
//!
//! The patterns are sorted, so each state of the trie is a range of patterns. States are created in
//! order of depth. The row of a state starts as a copy of the row of its failure state, which has a
//! lower depth and is complete. The children are then added. Each entry is written at most twice.
//!
//! The number of states is known in advance. States with a match are numbered from 0 upwards, and
//! states without a match from the highest number downwards. No state is renumbered.
//!
//! Transitions use classes of bytes. All bytes that no pattern contains share a class, because they
//! behave in the same way. The two cases of a letter share a class if the search ignores the case.
//! Ignoring the case therefore costs the kernel nothing.

use std::collections::VecDeque;

use godwit_kernels::image::{
    ALIGNMENT_BYTES, DPI_CLASS_MAP_OFFSET, DPI_MAGIC, DPI_TRANSITIONS_OFFSET, DpiImage, DpiMatch,
};
use godwit_packet::Memory;

use super::Case;
use crate::Error;

const MATCH_BYTES: usize = size_of::<DpiMatch>();

/// Creates the tables for a list of patterns, in the kernel's format. Returns the tables and their
/// size in bytes. No pattern may be empty.
///
/// # Errors
/// Returns [`Error::Memory`] if the machine has too little memory. Returns [`Error::Value`] if the
/// automaton has too many states.
pub(crate) fn image(patterns: &[Vec<u8>], case: Case) -> Result<(Memory, usize), Error> {
    let classes = Classes::new(patterns, case);
    let sorted = sort(patterns, &classes);
    let states = count_states(&sorted);
    if u32::try_from(states * classes.count).is_err() {
        let message = format!(
            "{} patterns need {states} states with {} transitions each, but a table has room for 2^32 transitions: \
             use fewer or shorter patterns",
            patterns.len(),
            classes.count
        );
        return Err(Error::Value { span: None, message });
    }
    let matches_offset = (DPI_TRANSITIONS_OFFSET + states * classes.count * 4).next_multiple_of(ALIGNMENT_BYTES);
    // Every state has room for a match. The number of states with a match is known only after the
    // automaton is built.
    let mut image = Memory::new(matches_offset + states * MATCH_BYTES, "the patterns of a dpi function")?;

    let mut automaton = Automaton {
        rows: image[DPI_TRANSITIONS_OFFSET..matches_offset].as_chunks_mut().0,
        classes: classes.count as u32,
        matches: Vec::new(),
        others_end: states as u32,
    };
    let start = automaton.fill(&sorted);
    let matches = automaton.matches;

    let bytes = matches_offset + matches.len() * MATCH_BYTES;
    let header = DpiImage {
        magic: DPI_MAGIC,
        states: states as u32,
        classes: classes.count as u32,
        match_states: matches.len() as u32,
        start: start * classes.count as u32,
        patterns: patterns.len() as u32,
        // The length of a pattern fits into 32 bits, because the automaton has at least one state
        // per pattern byte.
        longest_bytes: patterns.iter().map(Vec::len).max().unwrap_or(0) as u32,
        match_limit: (matches.len() * classes.count) as u32,
        matches_offset: matches_offset as u64,
        bytes: bytes as u64,
    };
    image[..size_of::<DpiImage>()].copy_from_slice(&header.emit());
    image[DPI_CLASS_MAP_OFFSET..DPI_TRANSITIONS_OFFSET].copy_from_slice(&classes.of_byte);
    for (slot, entry) in image[matches_offset..].chunks_exact_mut(MATCH_BYTES).zip(&matches) {
        slot.copy_from_slice(&entry.emit());
    }
    Ok((image, bytes))
}

/// Map from bytes to byte classes. The automaton treats all bytes of one class in the same way.
struct Classes {
    of_byte: [u8; 256],
    count: usize,
}

impl Classes {
    fn new(patterns: &[Vec<u8>], case: Case) -> Self {
        let mut used = [false; 256];
        for &byte in patterns.iter().flatten() {
            used[usize::from(case.fold(byte))] = true;
        }
        // Bytes that occur in no pattern form class 0.
        let unused = (0..=255).any(|byte| !used[usize::from(case.fold(byte))]);
        let mut count = usize::from(unused);
        let mut of_byte = [0; 256];
        for byte in 0..=255 {
            if used[byte] {
                // The patterns contain at most 256 different byte values, so the class number fits
                // into a byte.
                of_byte[byte] = count as u8;
                count += 1;
            }
        }
        for byte in 0..=255 {
            of_byte[usize::from(byte)] = of_byte[usize::from(case.fold(byte))];
        }
        Self { of_byte, count }
    }
}

/// Byte classes of a pattern, and the pattern number.
type Sorted = (Vec<u8>, u32);

/// Replaces each byte of the patterns with its class number, and sorts the patterns. Equal patterns
/// are sorted by their numbers.
fn sort(patterns: &[Vec<u8>], classes: &Classes) -> Vec<Sorted> {
    let translate = |pattern: &Vec<u8>| pattern.iter().map(|&byte| classes.of_byte[usize::from(byte)]).collect();
    let mut sorted: Vec<Sorted> = patterns.iter().map(translate).zip(0..).collect();
    sorted.sort_unstable();
    sorted
}

/// Returns the number of states of the trie. Each pattern adds one state for each byte after its
/// common prefix with the previous sorted pattern.
fn count_states(sorted: &[Sorted]) -> usize {
    let mut states = 1;
    let mut last: &[u8] = &[];
    for (pattern, _) in sorted {
        let shared = last.iter().zip(pattern).take_while(|(a, b)| a == b).count();
        states += pattern.len() - shared;
        last = pattern;
    }
    states
}

/// An automaton whose transition table is being filled.
struct Automaton<'a> {
    /// Transition table with one row per state and one entry per byte class. An entry holds the
    /// offset of the next state's row, in little-endian byte order.
    rows: &'a mut [[u8; 4]],
    classes: u32,
    /// Match of each state that completes a pattern, indexed by the state number.
    matches: Vec<DpiMatch>,
    /// Lowest number of a state without a match. Such states are numbered downwards from the
    /// highest number.
    others_end: u32,
}

/// A state whose row must still be written.
struct Node<'a> {
    /// Patterns that begin with the prefix of this state.
    patterns: &'a [Sorted],
    depth: usize,
    state: u32,
    fail: u32,
}

impl Automaton<'_> {
    /// Writes the rows of all states. Returns the number of the start state.
    fn fill(&mut self, sorted: &[Sorted]) -> u32 {
        self.others_end -= 1;
        let start = self.others_end;
        for class in 0..self.classes {
            self.set(start, class, start);
        }
        let mut open = VecDeque::from([Node { patterns: sorted, depth: 0, state: start, fail: start }]);
        while let Some(node) = open.pop_front() {
            if node.state != start {
                self.copy_row(node.fail, node.state);
            }
            let depth = node.depth;
            let longer = node.patterns.iter().position(|(pattern, _)| pattern.len() > depth);
            let longer = &node.patterns[longer.unwrap_or(node.patterns.len())..];
            for patterns in longer.chunk_by(|(a, _), (b, _)| a[depth] == b[depth]) {
                let class = u32::from(patterns[0].0[depth]);
                // The entry still holds the transition from the parent's failure state. This
                // transition leads to the child's failure state.
                let fail = self.next(node.state, class);
                let state = self.number(patterns, depth + 1, fail);
                self.set(node.state, class, state);
                open.push_back(Node { patterns, depth: depth + 1, state, fail });
            }
        }
        start
    }

    /// Assigns a number to a new state. The state matches its own patterns, and all patterns that
    /// its failure state matches.
    fn number(&mut self, patterns: &[Sorted], depth: usize, fail: u32) -> u32 {
        let inherited = self.matches.get(fail as usize).copied();
        let mut matches = inherited.unwrap_or(DpiMatch { pattern: u32::MAX, count: 0 });
        for (_, index) in patterns.iter().take_while(|(pattern, _)| pattern.len() == depth) {
            matches.pattern = matches.pattern.min(*index);
            matches.count += 1;
        }
        if matches.count == 0 {
            self.others_end -= 1;
            return self.others_end;
        }
        self.matches.push(matches);
        self.matches.len() as u32 - 1
    }

    fn at(&self, state: u32, class: u32) -> usize {
        state as usize * self.classes as usize + class as usize
    }

    fn next(&self, state: u32, class: u32) -> u32 {
        u32::from_le_bytes(self.rows[self.at(state, class)]) / self.classes
    }

    fn set(&mut self, state: u32, class: u32, next: u32) {
        let at = self.at(state, class);
        self.rows[at] = (next * self.classes).to_le_bytes();
    }

    fn copy_row(&mut self, from: u32, to: u32) {
        let (from, to) = (self.at(from, 0), self.at(to, 0));
        self.rows.copy_within(from..from + self.classes as usize, to);
    }
}

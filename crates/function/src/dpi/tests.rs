use std::path::Path;

use godwit_kernels::image::{DPI_CLASS_MAP_OFFSET, DPI_TRANSITIONS_OFFSET};
use proptest::prelude::*;

use super::*;
use crate::testing::{self, Directory, run};

fn dpi(patterns: &[&str], case: Case) -> Dpi {
    Dpi::new(patterns.iter().map(|pattern| pattern.as_bytes().to_vec()).collect(), case).unwrap()
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x12, 0x34]);
    frame.extend(payload);
    frame
}

fn outcome(function: &Dpi, payload: &[u8]) -> Outcome {
    run(function, &mut frame(payload))
}

fn found(value: u32, port: u16) -> Outcome {
    Outcome { port, value, ..Outcome::verdict(VERDICT_MATCH) }
}

fn search_image(function: &Dpi, payload: &[u8]) -> reference::Matches {
    search_from(function, payload, 0)
}

/// Searches each segment of the payload separately, as a GPU does. Each search begins before its
/// segment, and thus finds matches across segment borders (`kernels/dpi/group.h`).
fn search_segments(function: &Dpi, payload: &[u8], segment_bytes: usize) -> reference::Matches {
    let longest = u32::from_le_bytes(function.image().to_vec()[24..28].try_into().unwrap()) as usize;
    let mut found = reference::Matches::default();
    for begin in (0..payload.len()).step_by(segment_bytes) {
        let run_up = begin.min(longest.saturating_sub(1));
        let end = payload.len().min(begin + segment_bytes);
        let part = search_from(function, &payload[begin - run_up..end], run_up);
        found.first = if found.count == 0 { part.first } else { found.first };
        found.count += part.count;
    }
    found
}

/// Returns the first matching pattern and the number of matches in a payload. Matches that end
/// within the first `run_up` bytes do not count.
fn search_from(function: &Dpi, payload: &[u8], run_up: usize) -> reference::Matches {
    let image = function.image().to_vec();
    let u32_at = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize;
    let u64_at = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap()) as usize;
    let (states, classes, match_states, mut row) = (u32_at(4), u32_at(8), u32_at(12), u32_at(16));
    let (class_map, transitions, matches) = (DPI_CLASS_MAP_OFFSET, DPI_TRANSITIONS_OFFSET, u64_at(32));
    assert_eq!((u64_at(40), matches % 64), (image.len(), 0));
    assert!(match_states < states && u32_at(28) == match_states * classes);
    let mut found = reference::Matches::default();
    for (at, &byte) in payload.iter().enumerate() {
        let class = usize::from(image[class_map + usize::from(byte)]);
        assert!(class < classes);
        row = u32_at(transitions + (row + class) * 4);
        assert!(row % classes == 0 && row / classes < states);
        if at >= run_up && row / classes < match_states {
            let at = matches + row / classes * 8;
            if found.count == 0 {
                found.first = u32_at(at) as u32;
            }
            found.count += u32_at(at + 4);
        }
    }
    found
}

#[test]
fn the_first_to_end_is_named_and_all_are_counted() {
    // The test uses the example in figure 1 of the paper.
    let function = dpi(&["he", "she", "his", "hers"], Case::Sensitive);
    assert_eq!(outcome(&function, b"ushers"), found(0, 3));
    assert_eq!(outcome(&function, b"his he"), found(2, 2));
    assert_eq!(outcome(&function, b"HERS"), Outcome::verdict(VERDICT_CLEAN));
    assert_eq!(outcome(&function, b""), Outcome::verdict(VERDICT_CLEAN));
    assert_eq!(outcome(&function, &b"he".repeat(30_000)), found(0, 30_000));
}

#[test]
fn equal_patterns_count_each_and_the_lowest_is_named() {
    let function = dpi(&["b", "ab", "ab"], Case::Sensitive);
    assert_eq!(outcome(&function, b"ab"), found(0, 3));
    let function = dpi(&["ab", "b", "AB"], Case::Insensitive);
    assert_eq!(outcome(&function, b"xaBx"), found(0, 3));
}

#[test]
fn case_is_folded_for_letters_only() {
    let function = dpi(&["[a]", "{b}"], Case::Insensitive);
    assert_eq!(outcome(&function, b"[A]"), found(0, 1));
    assert_eq!(outcome(&function, b"{a}"), Outcome::verdict(VERDICT_CLEAN));
    assert_eq!(outcome(&function, b"[B]"), Outcome::verdict(VERDICT_CLEAN));
}

#[test]
fn the_number_of_matches_is_cut_off_at_16_bits() {
    let function = Dpi::new(vec![b"a".to_vec(); 100], Case::Sensitive).unwrap();
    assert_eq!(outcome(&function, &[b'a'; 655]), found(0, 65_500));
    assert_eq!(outcome(&function, &[b'a'; 656]), found(0, 65_535));
}

#[test]
fn every_byte_may_be_in_a_pattern() {
    let function = Dpi::new(vec![(0..=255).collect(), vec![255, 0]], Case::Sensitive).unwrap();
    let payload: Vec<u8> = (0..=255).chain(0..=255).collect();
    let expected = reference::Matches { first: 0, count: 3 };
    assert_eq!(search_image(&function, &payload), expected);
    assert_eq!(reference::search(&payload, function.patterns(), Case::Sensitive), expected);
}

#[test]
fn patterns_come_from_a_file() {
    let directory = Directory::new("dpi-patterns");
    let build = |text: &str, more: &str| {
        std::fs::write(directory.0.join("p.txt"), text).unwrap();
        testing::build(&KIND, &format!("patterns = \"p.txt\"\n{more}"), &[], &directory.0)
    };
    let function = build("# none\nevil\n|90 90|\n", "case = \"insensitive\"").unwrap();
    assert_eq!(run(&*function, &mut frame(b"\x90\x90 EVIL")), found(1, 2));
    let function = build("evil\n", "").unwrap();
    assert_eq!(run(&*function, &mut frame(b"EVIL")), Outcome::verdict(VERDICT_CLEAN));
    for (text, more, part) in [
        ("a\n|9|\n", "", "p.txt:2: "),
        ("# nothing\n", "", "no pattern"),
        ("a", "case = \"upper\"", "upper"),
        ("a", "cases = 1", "cases"),
    ] {
        let error = build(text, more).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    }
    let error = testing::build(&KIND, "", &[], Path::new(".")).err().unwrap().to_string();
    assert!(error.contains("patterns"), "{error}");
}

#[test]
fn more_than_a_table_has_room_for_is_an_error() {
    let error = Dpi::new(vec![Vec::new()], Case::Sensitive).err().unwrap();
    assert!(error.to_string().contains("is empty"), "{error}");
    // The automaton has 24 million states and 256 classes.
    let long = (0..24u8).map(|first| (0..1_000_000u32).map(|at| if at == 0 { first } else { at as u8 }).collect());
    let error = Dpi::new(long.collect(), Case::Sensitive).err().unwrap();
    assert!(error.to_string().contains("fewer or shorter patterns"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Generates patterns of few different letters. Many of these patterns overlap, contain or
    /// equal each other.
    #[test]
    fn the_image_finds_what_a_comparison_finds(
        patterns in prop::collection::vec(prop::collection::vec(0x40u8..0x44, 1..6), 1..30),
        payload in prop::collection::vec(prop_oneof![9 => 0x40u8..0x44, 1 => any::<u8>()], 0..300),
        upper: bool,
    ) {
        let (patterns, case) = match upper {
            // The search ignores the case, so lower-case patterns still match upper-case payloads.
            true => (patterns.iter().map(|p| p.to_ascii_lowercase()).collect(), Case::Insensitive),
            false => (patterns, Case::Sensitive),
        };
        let function = Dpi::new(patterns, case).unwrap();
        let expected = reference::search(&payload, function.patterns(), case);
        prop_assert_eq!(search_image(&function, &payload), expected);
        for segment_bytes in [1, 2, 3, 7, 40, 299] {
            prop_assert_eq!(search_segments(&function, &payload, segment_bytes), expected);
        }
    }
}

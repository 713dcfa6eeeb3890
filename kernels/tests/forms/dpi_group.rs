//! Group form of `dpi`, in which several lanes process one packet, compared with one lane per
//! packet.

use std::iter::zip;

use godwit_abi::Outcome;
use godwit_kernels::DPI;
use godwit_test_support::Random;

use crate::common::batch::Batch;
use crate::common::chunk::{Chunk, Part};
use crate::common::emulation::{Emulation, Launch, Mode, Sanitizer};
use crate::common::opencl::{Bench, devices};
use crate::common::tables::dpi_image;
use crate::common::{Case, PATTERNS, random_frames};

/// Maximum number of lanes per packet, and number of lanes per group. The list is short, because
/// PoCL compiles all kernels again for each entry.
const OPENCL_LANES: [(usize, usize); 2] = [(1, 32), (8, 64)];
/// Sizes of bins, in packets: some leave lanes without a packet, some need more than one round.
const BIN_PACKETS: [usize; 8] = [1, 3, 7, 16, 33, 64, 1, 250];

/// Patterns, and frames that are searched for them.
struct Row {
    name: &'static str,
    patterns: Vec<Vec<u8>>,
    frames: Vec<Vec<u8>>,
}

impl Row {
    fn new(name: &'static str, patterns: &[&[u8]], frames: Vec<Vec<u8>>) -> Self {
        Self { name, patterns: patterns.iter().map(|pattern| pattern.to_vec()).collect(), frames }
    }
}

/// Returns a frame with an unknown EtherType, so that all bytes after the header are payload.
fn frame(payload: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &[0x88, 0xb5], payload].concat()
}

/// Returns digits, which occur only in patterns of random bytes.
fn filler(random: &mut Random, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| random.pick(b"0123456789")).collect()
}

fn rows() -> Vec<Row> {
    vec![nested(), periodic(), single_bytes(), every_offset(), long(), flood(), headers(), no_pattern()]
}

/// Patterns that are prefixes and suffixes of each other, in texts of the same three letters.
fn nested() -> Row {
    let random = &mut Random::new(1);
    let word = |random: &mut Random, longest: usize| {
        let bytes = 1 + random.below(longest);
        (0..bytes).map(|_| random.pick(b"abc")).collect::<Vec<u8>>()
    };
    let mut patterns: Vec<Vec<u8>> = (0..30).map(|_| word(random, 24)).collect();
    for index in 0..30 {
        let cut = random.below(patterns[index].len());
        let (front, back) = (patterns[index][..cut].to_vec(), patterns[index][cut..].to_vec());
        patterns.extend([front, back].into_iter().filter(|part| part.len() > 2));
    }
    patterns.retain(|pattern| pattern.len() > 2);
    let text = |random: &mut Random| {
        let bytes = random.below(1500);
        let mut text = filler(random, bytes);
        for _ in 0..random.below(60) {
            let pattern = &patterns[random.below(patterns.len())];
            let last = bytes.saturating_sub(pattern.len());
            let at = random.below(last + 1);
            let end = bytes.min(at + pattern.len());
            text[at..end].copy_from_slice(&pattern[..end - at]);
        }
        frame(&text)
    };
    let frames = (0..400).map(|_| text(random)).collect();
    Row { name: "nested", patterns, frames }
}

fn periodic() -> Row {
    let texts = (0..200).map(|bytes| b"a".repeat(bytes * 7)).chain((0..200).map(|bytes| b"ab".repeat(bytes * 3)));
    Row::new(
        "periodic",
        &[b"aaaa", b"a", b"aaaaaaaaaaaaa", b"abab", b"babababab"],
        texts.map(|text| frame(&text)).collect(),
    )
}

/// Patterns of one byte, which need no bytes of the previous segment.
fn single_bytes() -> Row {
    let random = &mut Random::new(2);
    let frames = (0..300).map(|bytes| frame(&random.bytes(bytes * 2))).collect();
    Row::new("single bytes", &[b"x", b"\0", b"\xff", b"x"], frames)
}

/// One pattern of 24 bytes at every offset of a payload of 1408 bytes, and no other match. The
/// pattern crosses every border between segments.
fn every_offset() -> Row {
    const PATTERN: &[u8] = b"abcdefghijklmnopqrstuvwx";
    let plant = |at: usize| {
        let mut text = filler(&mut Random::new(3 + at as u64), 1408);
        text[at..at + PATTERN.len()].copy_from_slice(PATTERN);
        frame(&text)
    };
    Row::new("every offset", &[PATTERN, b"rstuvwxy", b"bcdefghijkz"], (0..=1408 - PATTERN.len()).map(plant).collect())
}

/// Patterns that are longer than segments, longer than payloads, and as long as payloads.
fn long() -> Row {
    let random = &mut Random::new(4);
    // Bytes of 200 and more are in no pattern. `dpi_image` needs a class for such bytes.
    let text: Vec<u8> = random.bytes(1400).iter().map(|byte| byte % 200).collect();
    let patterns: Vec<Vec<u8>> =
        vec![text.clone(), text[700..].to_vec(), text[1..300].to_vec(), text[300..331].to_vec(), text[..1399].to_vec()];
    let mut frames = vec![frame(&text), frame(&text[1..]), frame(&text[..1399]), frame(&text.repeat(3)), frame(&[])];
    frames.extend((0..200).map(|_| {
        let from = random.below(1000);
        let to = from + random.below(1400 - from);
        frame(&[&text[from..to], &text[..to - from]].concat())
    }));
    Row { name: "long", patterns, frames }
}

/// More matches than the outcome can hold, in one segment and in the sum of several segments.
fn flood() -> Row {
    let frames = [100, 655, 656, 700, 2000, 5243, 5244, 10_000, 16_000].map(|bytes| frame(&b"a".repeat(bytes)));
    let patterns = vec![b"a".to_vec(); 100];
    Row { name: "flood", patterns, frames: frames.to_vec() }
}

/// Frames with VLAN tags, IPv6, fragments, truncated frames and random bytes.
fn headers() -> Row {
    Row::new("headers", PATTERNS, random_frames(2000, 5))
}

fn no_pattern() -> Row {
    Row::new("no pattern", &[], (0..20).map(|bytes| frame(&b"a".repeat(bytes * 70))).collect())
}

fn cases(rows: &[Row]) -> Vec<Case> {
    let case = |row: &Row| {
        let patterns: Vec<&[u8]> = row.patterns.iter().map(Vec::as_slice).collect();
        Case { name: row.name, kernel: DPI, variant: 0, image: dpi_image(&patterns) }
    };
    rows.iter().map(case).collect()
}

/// Chunk, and its expected result.
struct Expected {
    rows: Vec<Row>,
    chunk: Chunk,
    batch: Batch,
}

fn expected() -> Expected {
    let rows = rows();
    let parts = zip(cases(&rows), &rows).map(|(case, row)| Part::new(case, row.frames.clone()));
    let chunk = Chunk::new(parts.collect(), &BIN_PACKETS);
    let batch = chunk.run_on_cpu();
    assert_variety(&rows, &chunk, &batch);
    Expected { rows, chunk, batch }
}

#[test]
fn several_lanes_find_the_matches_of_one_lane_under_cuda() {
    let Some(emulation) = Emulation::build("dpi", Sanitizer::Addresses) else { return };
    let expected = expected();
    // Whole warps, because loops use the warp functions of CUDA.
    for (threads, seed) in [(288, 1), (288, 2), (32, 3), (64, 4), (160, 5)] {
        let launch = Launch { blocks: 2, threads, seed, mode: Mode::InPlace };
        assert_equal(&expected, &emulation.run(&expected.chunk, launch), &format!("{launch:?}"));
    }
}

#[test]
fn several_lanes_find_the_matches_of_one_lane_under_opencl() {
    let expected = expected();
    for device in devices() {
        for (packet_lanes, group_lanes) in OPENCL_LANES {
            let bench = Bench::new(&device, &format!("-cl-std=CL1.2 -Werror -DGW_PACKET_LANES={packet_lanes}u"));
            let batch = bench.run(&expected.chunk, 2, group_lanes);
            assert_equal(&expected, &batch, &format!("{}, {group_lanes} lanes", bench.name));
        }
    }
}

/// Asserts that the rows contain the cases that their comments state.
fn assert_variety(rows: &[Row], chunk: &Chunk, expected: &Batch) {
    for bin in &chunk.bins {
        let outcomes = &expected.outcomes[bin.first as usize..][..usize::from(bin.count)];
        let expected = match rows[usize::from(bin.instance)].name {
            "every offset" => outcomes.iter().all(|outcome| (outcome.verdict, outcome.port) == (1, 1)),
            "no pattern" => outcomes.iter().all(|outcome| *outcome == Outcome::verdict(0)),
            _ => true,
        };
        assert!(expected, "{outcomes:?}");
    }
    let ports = |port: u16| expected.outcomes.iter().filter(|outcome| outcome.port == port).count();
    assert!(ports(65_535) >= 5 && ports(65_500) >= 1);
    assert!(expected.outcomes.contains(&Outcome::drop(0)));
}

fn assert_equal(Expected { rows, chunk, batch: expected }: &Expected, batch: &Batch, name: &str) {
    for bin in &chunk.bins {
        for at in bin.first as usize..bin.first as usize + usize::from(bin.count) {
            let row = rows[usize::from(bin.instance)].name;
            let context = || format!("{name}: {row}: packet {at} in a bin of {}: {:02x?}", bin.count, batch.frame(at));
            assert_eq!(batch.outcomes[at], expected.outcomes[at], "{}", context());
        }
    }
    assert_eq!(batch.descriptors, expected.descriptors, "{name}");
    assert!(batch.arena.bytes() == chunk.batch.arena.bytes(), "{name}: the arena was written");
}

//! The group form of dpi finds in every payload what one lane finds, however many lanes share a packet.

mod common;
#[path = "common/opencl.rs"]
mod opencl;

use std::iter::zip;

use common::batch::Batch;
use common::chunk::{Chunk, Part};
use common::emulation::{Emulation, Launch, Mode, Sanitizer};
use common::frames::Random;
use common::tables::dpi_image;
use common::{Case, PATTERNS, random_frames};
use godwit_abi::Outcome;
use godwit_kernels::DPI;
use opencl::{Bench, devices};

/// Lanes of a packet at most, and of a group. Few, for PoCL compiles all kernels anew for each.
const OPENCL_LANES: [(usize, usize); 2] = [(1, 32), (8, 64)];
/// Packets of a bin: so few that lanes are left over, and more than a round.
const BIN_PACKETS: [usize; 8] = [1, 3, 7, 16, 33, 64, 1, 250];

/// Patterns, and frames to look for them in.
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

/// A frame of no known EtherType: all behind its header is payload.
fn frame(payload: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &[0x88, 0xb5], payload].concat()
}

/// Bytes that are in no pattern here but those of any bytes.
fn filler(random: &mut Random, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| random.pick(b"0123456789")).collect()
}

fn rows() -> Vec<Row> {
    vec![nested(), periodic(), single_bytes(), at_every_place(), long(), flood(), headers(), no_pattern()]
}

/// Patterns that are each other's prefixes and suffixes, in texts of the same few letters.
fn nested() -> Row {
    let random = &mut Random(1);
    let word = |random: &mut Random, longest: u64| {
        let bytes = 1 + random.below(longest);
        (0..bytes).map(|_| random.pick(b"abc")).collect::<Vec<u8>>()
    };
    let mut patterns: Vec<Vec<u8>> = (0..30).map(|_| word(random, 24)).collect();
    for index in 0..30 {
        let cut = random.below(patterns[index].len() as u64) as usize;
        let (front, back) = (patterns[index][..cut].to_vec(), patterns[index][cut..].to_vec());
        patterns.extend([front, back].into_iter().filter(|part| part.len() > 2));
    }
    patterns.retain(|pattern| pattern.len() > 2);
    let text = |random: &mut Random| {
        let bytes = random.below(1500) as usize;
        let mut text = filler(random, bytes);
        for _ in 0..random.below(60) {
            let pattern = random.below(patterns.len() as u64) as usize;
            let pattern = &patterns[pattern];
            let last = bytes.saturating_sub(pattern.len());
            let at = random.below(last as u64 + 1) as usize;
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

/// Without any run-up.
fn single_bytes() -> Row {
    let random = &mut Random(2);
    let frames = (0..300).map(|bytes| frame(&random.bytes(bytes * 2))).collect();
    Row::new("single bytes", &[b"x", b"\0", b"\xff", b"x"], frames)
}

/// One pattern of 24 bytes at every place of a payload of 1408, and no other match: at every border of segments.
fn at_every_place() -> Row {
    const PATTERN: &[u8] = b"abcdefghijklmnopqrstuvwx";
    let plant = |at: usize| {
        let mut text = filler(&mut Random(3 + at as u64), 1408);
        text[at..at + PATTERN.len()].copy_from_slice(PATTERN);
        frame(&text)
    };
    Row::new("at every place", &[PATTERN, b"rstuvwxy", b"bcdefghijkz"], (0..=1408 - PATTERN.len()).map(plant).collect())
}

/// Patterns longer than segments, than payloads, and as long as these.
fn long() -> Row {
    let random = &mut Random(4);
    // The image of the tests has a class for bytes that no pattern has.
    let text: Vec<u8> = random.bytes(1400).iter().map(|byte| byte % 200).collect();
    let patterns: Vec<Vec<u8>> =
        vec![text.clone(), text[700..].to_vec(), text[1..300].to_vec(), text[300..331].to_vec(), text[..1399].to_vec()];
    let mut frames = vec![frame(&text), frame(&text[1..]), frame(&text[..1399]), frame(&text.repeat(3)), frame(&[])];
    frames.extend((0..200).map(|_| {
        let from = random.below(1000) as usize;
        let to = from + random.below(1400 - from as u64) as usize;
        frame(&[&text[from..to], &text[..to - from]].concat())
    }));
    Row { name: "long", patterns, frames }
}

/// More matches than the outcome can hold, in one segment and only in all together.
fn flood() -> Row {
    let frames = [100, 655, 656, 700, 2000, 5243, 5244, 10_000, 16_000].map(|bytes| frame(&b"a".repeat(bytes)));
    let patterns = vec![b"a".to_vec(); 100];
    Row { name: "flood", patterns, frames: frames.to_vec() }
}

/// Tags, IPv6, fragments, truncated frames and noise.
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

/// What lanes that share packets are to find.
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
    demand_variety(&rows, &chunk, &batch);
    Expected { rows, chunk, batch }
}

#[test]
fn several_lanes_under_cuda_find_what_one_finds() {
    let Some(emulation) = Emulation::build("dpi", Sanitizer::Addresses) else { return };
    let expected = expected();
    // Whole warps: loops ask a warp's lanes together.
    for (threads, seed) in [(288, 1), (288, 2), (32, 3), (64, 4), (160, 5)] {
        let launch = Launch { blocks: 2, threads, seed, mode: Mode::InPlace };
        demand_equal(&expected, &emulation.run(&expected.chunk, launch), &format!("{launch:?}"));
    }
}

#[test]
fn several_lanes_under_opencl_find_what_one_finds() {
    let expected = expected();
    for device in devices() {
        for (packet_lanes, group_lanes) in OPENCL_LANES {
            let bench = Bench::new(&device, &format!("-cl-std=CL1.2 -Werror -DGW_PACKET_LANES={packet_lanes}u"));
            let batch = bench.run(&expected.chunk, 2, group_lanes);
            demand_equal(&expected, &batch, &format!("{}, {group_lanes} lanes", bench.name));
        }
    }
}

/// The rows hold what they promise.
fn demand_variety(rows: &[Row], chunk: &Chunk, expected: &Batch) {
    for bin in &chunk.bins {
        let outcomes = &expected.outcomes[bin.first as usize..][..usize::from(bin.count)];
        let fine = match rows[usize::from(bin.instance)].name {
            "at every place" => outcomes.iter().all(|outcome| (outcome.verdict, outcome.port) == (1, 1)),
            "no pattern" => outcomes.iter().all(|outcome| *outcome == Outcome::verdict(0)),
            _ => true,
        };
        assert!(fine, "{outcomes:?}");
    }
    let ports = |port: u16| expected.outcomes.iter().filter(|outcome| outcome.port == port).count();
    assert!(ports(65_535) >= 5 && ports(65_500) >= 1);
    assert!(expected.outcomes.contains(&Outcome::drop(0)));
}

fn demand_equal(Expected { rows, chunk, batch: expected }: &Expected, batch: &Batch, name: &str) {
    for bin in &chunk.bins {
        for at in bin.first as usize..bin.first as usize + usize::from(bin.count) {
            let row = rows[usize::from(bin.instance)].name;
            let context = || format!("{name}: {row}: packet {at} in a bin of {}: {:02x?}", bin.count, batch.frame(at));
            assert_eq!(batch.outcomes[at], expected.outcomes[at], "{}", context());
        }
    }
    assert_eq!(batch.descriptors, expected.descriptors, "{name}");
    assert!(batch.arena.bytes() == chunk.batch.arena.bytes(), "{name}: something was written");
}

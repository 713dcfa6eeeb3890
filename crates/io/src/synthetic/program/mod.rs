//! A load program describes how the rate, the frame lengths and the proportions of traffic classes
//! change over time. The setting `load = "FILE"` selects it.
//!
//! A program is a list of segments with a constant rate. The number of packets before each segment
//! is known, so each packet belongs to a fixed segment, independent of the clock. The number of a
//! packet determines its length and its class. The position in the segment determines when the
//! packet is due.
//!
//! ```text
//! packets  | 0 .. 999           | 1000 .. 10999                  | 11000 ..
//! segment  | 1 s at 1000 pps    | 1 s at 10000 pps               | ...
//! ```

mod file;

use std::path::Path;

use super::config::{Config, IpVersion};
use super::units::{Rate, Size};
use crate::Error;
pub(super) use file::ClassKeys;
use file::{File, StepKeys};

/// Duration in seconds of the segments that approximate a linear change of the rate. In a segment,
/// the rate is constant.
const RAMP_SECONDS: f64 = 0.01;
/// Maximum number of segments in a program.
const SEGMENTS_MAX: usize = 1_000_000;
/// One second, in nanoseconds.
const SECOND_NS: f64 = 1e9;

#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Periods with a constant rate, in chronological order. After the last segment, the program
    /// ends or starts again.
    segments: Vec<Segment>,
    /// List of the different frame lengths in the program.
    pub(super) sizes: Vec<Size>,
    pub(super) classes: Vec<ClassKeys>,
    repeat: bool,
    /// Number of packets until the load program ends or starts again.
    packets: u64,
    duration_ns: u64,
}

/// A period of time with a constant rate.
#[derive(Clone, Debug, PartialEq)]
struct Segment {
    start_ns: u64,
    first: u64,
    /// Time between two packets, in nanoseconds.
    packet_ns: f64,
    size: usize,
    /// Upper limit of the random numbers for each traffic class. A packet belongs to the first
    /// class whose limit exceeds the packet's random number.
    limits: Vec<u32>,
}

/// Properties of a packet's segment, a period with a constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Position<'a> {
    /// Number of the first packet after the segment.
    pub(super) end: u64,
    /// Number of the first packet of the segment.
    pub(super) first: u64,
    /// Start of the segment in nanoseconds after the start of the load program.
    pub(super) start_ns: u64,
    /// Time between two packets, in nanoseconds.
    pub(super) packet_ns: f64,
    /// Index of the frame lengths in [`Program::sizes`].
    pub(super) size: usize,
    pub(super) limits: &'a [u32],
}

impl Program {
    /// Reads the load program of a port. Returns `None` if the port has no load program.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not a load program.
    pub(super) fn read(config: &Config) -> Result<Option<Self>, Error> {
        let Some(path) = &config.load else { return Ok(None) };
        let text = std::fs::read_to_string(path).map_err(|source| Error::read(path, source))?;
        Self::parse(path, &text, config.size, config.ip).map(Some)
    }

    /// Parses the text of a load program. `size` is the frame length until a step sets another one.
    fn parse(path: &Path, text: &str, size: Size, ip: IpVersion) -> Result<Self, Error> {
        let file = File::parse(path, text, ip)?;
        let mut program = Self {
            segments: Vec::new(),
            sizes: vec![size],
            repeat: file.repeat,
            packets: 0,
            duration_ns: 0,
            classes: file.classes,
        };
        let mut builder = Builder { seconds: 0.0, packets: 0.0, size: 0, limits: equal_limits(program.classes.len()) };
        for step in &file.steps {
            builder.push(&mut program, step);
        }
        program.duration_ns = (builder.seconds * SECOND_NS).round() as u64;
        program.packets = builder.packets.round() as u64;
        let refuse = |reason: String| Error::Load { path: path.to_owned(), place: "the file".to_owned(), reason };
        if program.segments.len() > SEGMENTS_MAX {
            return Err(refuse(format!("the linear changes take more than {SEGMENTS_MAX} steps of 10 ms")));
        }
        if program.packets == 0 || program.duration_ns == 0 {
            return Err(refuse("all steps together have less than one packet".to_owned()));
        }
        Ok(program)
    }

    /// Returns the number of packets that are due `elapsed_ns` nanoseconds after the start of the
    /// program. A packet is due when enough time for all earlier packets has passed at the
    /// configured rate.
    pub(super) fn due(&self, elapsed_ns: u64) -> u64 {
        let (cycle, within_ns) = match self.repeat {
            true => (elapsed_ns / self.duration_ns, elapsed_ns % self.duration_ns),
            false => (0, elapsed_ns.min(self.duration_ns)),
        };
        // The first segment starts at time 0, so at least one segment is found.
        let index = self.segments.partition_point(|segment| segment.start_ns <= within_ns) - 1;
        let segment = &self.segments[index];
        let packets = ((within_ns - segment.start_ns) as f64 / segment.packet_ns) as u64;
        let end = self.segments.get(index + 1).map_or(self.packets, |next| next.first);
        cycle * self.packets + (segment.first + packets).min(end)
    }

    /// Returns the number of packets in the load program, or `u64::MAX` if the program repeats.
    pub(super) fn packets(&self) -> u64 {
        if self.repeat { u64::MAX } else { self.packets }
    }

    /// Returns the segment of the load program that contains packet number `sequence`. In a
    /// segment, the rate is constant. Returns `None` after the end of the program.
    pub(super) fn position(&self, sequence: u64) -> Option<Position<'_>> {
        if !self.repeat && sequence >= self.packets {
            return None;
        }
        let (cycle, within) = (sequence / self.packets, sequence % self.packets);
        // Several segments may start at the same sequence number if some have no packets. The
        // search finds the last one, which contains the packet.
        let index = self.segments.partition_point(|segment| segment.first <= within) - 1;
        let segment = &self.segments[index];
        let end = self.segments.get(index + 1).map_or(self.packets, |next| next.first);
        let before = cycle * self.packets;
        Some(Position {
            end: before + end,
            first: before + segment.first,
            start_ns: cycle * self.duration_ns + segment.start_ns,
            packet_ns: segment.packet_ns,
            size: segment.size,
            limits: &segment.limits,
        })
    }
}

struct Builder {
    seconds: f64,
    packets: f64,
    size: usize,
    limits: Vec<u32>,
}

impl Builder {
    fn push(&mut self, program: &mut Program, step: &StepKeys) {
        if let Some(size) = step.size {
            let known = program.sizes.iter().position(|other| *other == size);
            self.size = known.unwrap_or_else(|| {
                program.sizes.push(size);
                program.sizes.len() - 1
            });
        }
        if let Some(shares) = &step.shares {
            let share = |class: &ClassKeys| shares.get(&class.name).copied().unwrap_or(0.0);
            self.limits = limits(&program.classes.iter().map(share).collect::<Vec<_>>());
        }
        let mean_bits = 8.0 * program.sizes[self.size].mean_bytes();
        let pps = |rate: Rate| match rate {
            Rate::PacketsPerS(pps) => pps,
            Rate::BitsPerS(bits) => bits / mean_bits,
            Rate::Max => 0.0,
        };
        let (from, to) = (pps(step.rate), pps(step.to.unwrap_or(step.rate)));
        let parts = if from == to { 1.0 } else { (step.seconds / RAMP_SECONDS).ceil() };
        let parts = parts.min(SEGMENTS_MAX as f64 + 1.0);
        for part in 0..parts as usize {
            // A linear rate change is divided into parts with a constant rate. Each part has the
            // linear rate at its midpoint, so the total number of packets stays the same.
            let rate = from + (to - from) * (part as f64 + 0.5) / parts;
            program.segments.push(Segment {
                start_ns: (self.seconds * SECOND_NS).round() as u64,
                first: self.packets.round() as u64,
                packet_ns: SECOND_NS / rate,
                size: self.size,
                limits: self.limits.clone(),
            });
            self.seconds += step.seconds / parts;
            self.packets += rate * step.seconds / parts;
        }
    }
}

fn equal_limits(classes: usize) -> Vec<u32> {
    limits(&vec![1.0; classes])
}

/// Converts the proportions of the traffic classes to limits for 32-bit random numbers. The limit
/// of a class is the sum of the proportions up to this class, scaled to 2^32.
fn limits(shares: &[f64]) -> Vec<u32> {
    let total: f64 = shares.iter().sum();
    let mut sum = 0.0;
    let limit = |share: &f64| {
        sum += share;
        (sum / total * 4_294_967_296.0) as u32
    };
    let mut limits: Vec<u32> = shares.iter().map(limit).collect();
    // Rounding can make the limit of the last class too low. Some random numbers would then select
    // no class. The last class with a proportion above 0 therefore gets the maximum limit.
    let last = shares.iter().rposition(|share| *share > 0.0);
    last.into_iter().for_each(|last| limits[last..].fill(u32::MAX));
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Program, Error> {
        Program::parse(Path::new("load.toml"), text, Size::Fixed(60), IpVersion::V4)
    }

    const TWO_STEPS: &str = r#"
        [[step]]
        seconds = 1.0
        rate = "1000pps"
        [[step]]
        seconds = 0.5
        rate = "10kpps"
        size = 512
    "#;

    #[test]
    fn packets_are_due_at_the_rate_of_their_step() {
        let program = parse(TWO_STEPS).expect("valid");
        let due = [0, 1_000_000, 999_999_999, 1_000_000_000, 1_000_100_000, 1_250_000_000, 1_500_000_000, u64::MAX];
        assert_eq!(due.map(|elapsed_ns| program.due(elapsed_ns)), [0, 1, 999, 1000, 1001, 3500, 6000, 6000]);
        let position = program.position(1000).expect("a packet");
        assert_eq!((position.first, position.end, position.start_ns, position.size), (1000, 6000, 1_000_000_000, 1));
        assert_eq!(program.position(999).expect("a packet").size, 0);
        assert_eq!(program.position(6000), None);
    }

    #[test]
    fn cycles_repeat_with_whole_packets() {
        let program = parse(&format!("repeat = true\n{TWO_STEPS}")).expect("valid");
        assert_eq!(program.due(1_500_000_000), 6000);
        assert_eq!(program.due(2_600_000_000), 7000 + 1000);
        let position = program.position(6_000_000_000 + 5).expect("a packet");
        assert_eq!((position.first, position.start_ns), (6_000_000_000, 1_500_000_000_000_000));
    }

    #[test]
    fn every_packet_is_due_in_its_own_segment() {
        let text = r#"
            repeat = true
            [[step]]
            seconds = 0.3
            rate = "1kpps"
            to = "90kpps"
            [[step]]
            seconds = 0.2
            rate = "1Mbps"
            size = "imix"
            [[step]]
            seconds = 0.000002
            rate = "1pps"
        "#;
        let program = parse(text).expect("valid");
        let mut sequence = 0;
        while sequence < 3 * program.packets {
            let position = program.position(sequence).expect("repeats");
            assert!((position.first..position.end).contains(&sequence));
            let due_ns =
                position.start_ns + ((sequence - position.first + 1) as f64 * position.packet_ns).ceil() as u64;
            let due = program.due(due_ns + 1);
            assert!(due > sequence && due <= sequence + 2, "{sequence}: {due}");
            sequence += 1 + sequence / 97;
        }
        // The first step lasts 0.3 s at an average rate of 45.5 kpps. The second step lasts 0.2 s
        // at 1 Mbps with frames of 360 bytes.
        assert!(program.packets.abs_diff(13_650 + 69) <= 3, "{}", program.packets);
    }

    #[test]
    fn shares_become_limits() {
        assert_eq!(limits(&[1.0, 3.0]), [1 << 30, u32::MAX]);
        assert_eq!(limits(&[0.0, 1.0, 0.0]), [0, u32::MAX, u32::MAX]);
        assert!(limits(&[]).is_empty());
    }

    #[test]
    fn bad_programs_are_refused_with_their_place() {
        let step = "[[step]]\nseconds = 1.0\nrate = \"1kpps\"\n";
        for (text, place, part) in [
            ("", "the file", "0 [[step]]"),
            ("steps = 3", "line 1", "unknown field"),
            ("[[step]]\nseconds = 1.0", "line 1", "rate"),
            ("[[step]]\nseconds = 0.0\nrate = \"1kpps\"", "step 1", "seconds = 0"),
            ("[[step]]\nseconds = 1.0\nrate = \"max\"", "step 1", "10Mpps"),
            ("[[step]]\nseconds = 1.0\nrate = \"fast\"", "line 3", "not a rate"),
            (&format!("{step}shares = {{ a = 1 }}"), "step 1", "no class `a`"),
            (&format!("{step}shares = {{ a = 0 }}\n[[class]]\nname = \"a\""), "step 1", "above 0"),
            (&format!("{step}[[class]]\nname = \"a\"\n[[class]]\nname = \"a\""), "class `a`", "two classes"),
            (&format!("{step}[[class]]\nname = \"a\"\nsource = \"fd00::/8\""), "class `a`", "IP version"),
            ("[[step]]\nseconds = 0.00001\nrate = \"1pps\"", "the file", "less than one packet"),
            ("[[step]]\nseconds = 86000.0\nrate = \"1pps\"\nto = \"2pps\"", "the file", "10 ms"),
        ] {
            let error = parse(text).map(|_| ()).expect_err(text).to_string();
            assert!(error.contains("load.toml") && error.contains(place) && error.contains(part), "{text}: {error}");
        }
    }
}

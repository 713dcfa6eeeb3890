//! Search for many byte strings, one core: the forms of `godwit-literal`. Peer: Vectorscan.
//!
//! Each row has a kind of text. The sum of a round covers number and end of every match, so all
//! competitors report the same matches. `GODWIT_RULES` names a rule file, whose patterns replace
//! the 10,000 generated ones.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Instant;

use godwit_nids::literal::{Form, Frequencies, Image, Pattern, build};
use godwit_nids::rules::{RuleSet, Variables};

use crate::error::Error;
use crate::load::frames::Random;
use crate::load::patterns::{MATCHING_PERCENT, patterns};
use crate::load::routes;
use crate::load::size::Size;
use crate::progress::Progress;
use crate::run::options::{Context, KEY, Value};
use crate::run::peer::{self, Peer};
use crate::run::rounds::{Race, report_ratio};
use crate::run::row::{Details, Row};

/// Payload of a full frame.
const PACKET_BYTES: usize = 1408;
/// The same, as a frame size.
const PACKET_SIZE: Size = Size::Bytes(PACKET_BYTES as u16);
/// Minimum pattern length. Fast pattern sets of real rules contain no shorter patterns.
const PATTERN_BYTES_MIN: usize = 4;
/// Text with the language of web pages and programs. The second half is for training, and the first
/// half is searched.
const TEXT: &str = concat!(
    include_str!("../../../docs/configuration.md"),
    include_str!("../../../docs/functions/ipsec.md"),
    include_str!("../../../ARCHITECTURE.md"),
    include_str!("../run/rounds.rs"),
    include_str!("../../../docs/troubleshooting.md"),
    include_str!("../../../docs/functions/nids.md"),
    include_str!("../../../docs/benchmarks/README.md"),
    include_str!("../run/options.rs"),
);
/// Head of a request, before the text of a packet.
const HEAD: &str = "GET /index.html?page=17&lang=en HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: Mozilla/5.0 \
    (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\nAccept: text/html,application/xhtml+xml\r\n\
    Accept-Language: en-US,en;q=0.5\r\nConnection: keep-alive\r\nCookie: session=0f3a9c\r\n\r\n";

/// Kind of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    /// Random bytes. The number is the percentage of packets that contain a pattern.
    Random(u32),
    /// Text after the head of a request. The number is the percentage of packets that contain a
    /// pattern.
    Pages(u32),
}

impl Value for Text {
    const EXPECTED: &str = "random, random30, text or text30";
    fn parse(text: &str) -> Option<Self> {
        match text {
            "random" => Some(Self::Random(0)),
            "random30" => Some(Self::Random(MATCHING_PERCENT)),
            "text" => Some(Self::Pages(0)),
            "text30" => Some(Self::Pages(MATCHING_PERCENT)),
            _ => None,
        }
    }
}

impl Text {
    fn name(self) -> &'static str {
        match self {
            Self::Random(0) => "random",
            Self::Random(_) => "random30",
            Self::Pages(0) => "text",
            Self::Pages(_) => "text30",
        }
    }

    /// Returns packets, back to back.
    fn packets(self, count: usize, patterns: &[Pattern]) -> Vec<u8> {
        let mut random = Random::new(1408);
        let mut bytes = vec![0; count * PACKET_BYTES];
        let half = TEXT.len() as u32 / 2;
        for packet in bytes.chunks_mut(PACKET_BYTES) {
            let percent = match self {
                Self::Random(percent) => {
                    packet.fill_with(|| random.next_u32() as u8);
                    percent
                }
                Self::Pages(percent) => {
                    let head = HEAD.as_bytes();
                    packet[..head.len()].copy_from_slice(head);
                    let from = random.below(half - PACKET_BYTES as u32) as usize;
                    let page = &TEXT.as_bytes()[from..];
                    let rest = PACKET_BYTES - head.len();
                    packet[head.len()..].copy_from_slice(&page[..rest]);
                    percent
                }
            };
            let pattern = &patterns[random.below(patterns.len() as u32) as usize].bytes;
            if random.below(100) < percent && pattern.len() < packet.len() {
                let at = random.below((packet.len() - pattern.len()) as u32) as usize;
                packet[at..at + pattern.len()].copy_from_slice(pattern);
            }
        }
        bytes
    }
}

/// Returns the patterns of the rule file `GODWIT_RULES`, or generated patterns.
fn pattern_set() -> Result<Vec<Pattern>, Error> {
    let Some(file) = std::env::var_os("GODWIT_RULES") else {
        let words = patterns().into_iter();
        return Ok(words.map(|word| Pattern { bytes: word.into_bytes(), nocase: false }).collect());
    };
    let set = RuleSet::load(&[file], &Variables::default(), true).map_err(Error::setup)?;
    let contents = set.rules.iter().filter_map(|rule| rule.prefilter_content());
    let mut known = HashSet::new();
    let mut patterns: Vec<Pattern> = contents
        .map(|(_, content)| Pattern { bytes: content.bytes.to_vec(), nocase: content.nocase })
        .filter(|pattern| (PATTERN_BYTES_MIN..1000).contains(&pattern.bytes.len()))
        .collect();
    patterns.retain(|pattern| known.insert(pattern.clone()));
    Ok(patterns)
}

/// Searches all packets. Returns the time in nanoseconds and the sum of the matches.
fn round(image: &Image, form: Form, packets: &[u8]) -> (f64, u64) {
    let started = Instant::now();
    let mut sum = 0_u64;
    for (number, packet) in (0..).zip(packets.chunks(PACKET_BYTES)) {
        image.scan_with(form, packet, |id, end| {
            let place = (end as u64).wrapping_mul(2_654_435_761).wrapping_add(number);
            sum = sum.wrapping_add(u64::from(id + 1).wrapping_mul(place));
            true
        });
    }
    (started.elapsed().as_nanos() as f64, sum)
}

/// Starts Vectorscan, if it was built.
fn vectorscan(patterns: &[Pattern], packets: &[u8], progress: &mut Progress<'_>) -> Result<Option<Peer>, Error> {
    let Some(path) = peer::find_or_report("vectorscan", progress) else { return Ok(None) };
    let mut lines = String::new();
    for pattern in patterns {
        let hex: String = pattern.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(lines, "{} {hex}", u8::from(pattern.nocase)).map_err(Error::setup)?;
    }
    let (list, text) = (routes::temporary(lines.as_bytes())?, routes::temporary(packets)?);
    let bytes = PACKET_BYTES.to_string();
    Peer::start(&path, &[list.path().as_os_str(), text.path().as_os_str(), bytes.as_ref()]).map(Some)
}

/// Measures every kind of text.
pub(super) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let Context { common, values } = context;
    let texts: Vec<Text> = values.list(KEY.name)?;
    let patterns = pattern_set()?;
    let started = Instant::now();
    let mut frequencies = Frequencies::new();
    frequencies.train(&TEXT.as_bytes()[TEXT.len() / 2..]);
    let image = build(&patterns, &frequencies, 1);
    progress(&format!(
        "{} patterns: image of {} KiB built in {} ms",
        patterns.len(),
        image.len_bytes() >> 10,
        started.elapsed().as_millis()
    ));
    let count = if common.brief() { 64 } else { 4096 };
    let mut rows = Vec::new();
    for text in texts {
        let packets = text.packets(count, &patterns);
        let details = Details::default().with("key", text.name());
        let mut race = Race::new(count);
        for form in Form::ALL.into_iter().filter(|form| form.is_supported()) {
            let (image, packets) = (&image, &packets);
            race.ours(form.name(), 1, &details, move || Ok(round(image, form, packets)));
        }
        if common.peers
            && let Some(peer) = vectorscan(&patterns, &packets, progress)?
        {
            race.peer("vectorscan", peer, &details, vec![("block".to_owned(), 1, "go".to_owned())]);
        }
        let mut measured = race.run(common)?;
        for row in &mut measured {
            row.size = Some(PACKET_SIZE);
            row.gbps = row.mpps * (PACKET_BYTES * 8) as f64 / 1e3;
        }
        report_ratio(&measured, progress);
        rows.append(&mut measured);
    }
    Ok(rows)
}

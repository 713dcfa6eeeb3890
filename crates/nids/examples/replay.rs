//! Inspects the packets of a capture file and writes EVE records (JSON lines) to standard output.
//!
//! ```text
//! replay RULES CAPTURE [NAME=VALUE]...
//! ```

use godwit_nids::eve::stats_record;
use godwit_nids::literal::Frequencies;
use godwit_nids::packet::LinkType;
use godwit_nids::rules::RuleSet;
use godwit_nids::{Inspector, Settings, detect::Engine};
use std::io::Write;
use std::sync::Arc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Err(message) = run(&arguments) {
        eprintln!("{message}");
        std::process::exit(2);
    }
}

fn run(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [rules, capture, options @ ..] = arguments else {
        return Err("usage: replay RULES CAPTURE [NAME=VALUE]...".into());
    };
    let mut settings = Settings::default();
    for option in options {
        let (name, value) = option.split_once('=').ok_or(format!("{option:?} is not NAME=VALUE"))?;
        if let Err(error) = settings.set(name, value) {
            eprintln!("ignored: {error}");
        }
    }
    let set = RuleSet::load(&[rules], &settings.variables, false)?;
    for rule in &set.unsupported {
        eprintln!("unsupported: {rule}");
    }
    let engine = Arc::new(Engine::new(set, &Frequencies::new(), 1));
    let mut inspector = Inspector::new(engine, settings);
    let bytes = std::fs::read(capture).map_err(|error| format!("{capture}: {error}"))?;
    let mut number = 0;
    for (link, time, frame) in frames(&bytes).ok_or(format!("{capture} is not a capture"))? {
        number += 1;
        if let Some(link) = LinkType::from_capture(link) {
            inspector.frame(link, frame, number, time);
        }
    }
    inspector.finish();
    let stats = inspector.stats();
    stats_record(&stats, 0, inspector.records());
    Ok(std::io::stdout().write_all(inspector.records())?)
}

/// Returns the link type, the time in microseconds and the bytes of each frame in a capture file.
fn frames(bytes: &[u8]) -> Option<Vec<(u32, u64, &[u8])>> {
    let magic = bytes.get(..4)?;
    let (little, nanos) = match magic {
        [0xd4, 0xc3, 0xb2, 0xa1] => (true, false),
        [0xa1, 0xb2, 0xc3, 0xd4] => (false, false),
        [0x4d, 0x3c, 0xb2, 0xa1] => (true, true),
        [0xa1, 0xb2, 0x3c, 0x4d] => (false, true),
        [0x0a, 0x0d, 0x0d, 0x0a] => return frames_ng(bytes),
        _ => return None,
    };
    let word = |at: usize| -> Option<u32> {
        let four = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if little { u32::from_le_bytes(four) } else { u32::from_be_bytes(four) })
    };
    let link = word(20)? & 0xffff;
    let mut at = 24;
    let mut frames = Vec::new();
    while let (Some(seconds), Some(fraction), Some(length)) = (word(at), word(at + 4), word(at + 8)) {
        let Some(frame) = bytes.get(at + 16..at + 16 + length as usize) else { break };
        let micros = if nanos { fraction / 1000 } else { fraction };
        frames.push((link, u64::from(seconds) * 1_000_000 + u64::from(micros), frame));
        at += 16 + length as usize;
    }
    Some(frames)
}

fn frames_ng(bytes: &[u8]) -> Option<Vec<(u32, u64, &[u8])>> {
    let word = |at: usize| -> Option<u32> { Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?)) };
    let (mut at, mut frames, mut links) = (0, Vec::new(), Vec::new());
    while let (Some(kind), Some(length)) = (word(at), word(at + 4)) {
        match kind {
            1 => links.push(word(at + 8)? & 0xffff),
            6 => {
                let link = *links.get(word(at + 8)? as usize)?;
                let time = u64::from(word(at + 12)?) << 32 | u64::from(word(at + 16)?);
                let captured = word(at + 20)? as usize;
                frames.push((link, time, bytes.get(at + 28..at + 28 + captured)?));
            }
            _ => {}
        }
        at += length.max(12) as usize;
    }
    Some(frames)
}

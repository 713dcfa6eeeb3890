//! Probes: packets that say which they are and when they were made, so that who gets them back knows what became of the others.
//!
//! The last bytes of the payload, at an even distance from the transport header so that its checksum is mended word by word:
//!
//! ```text
//! | magic 2 | run 2 | number 4 | time made, ns 8 |     little-endian
//! ```
//! Numbers count modulo 2^32. A packet of another run (one that was late) is told by its `run`.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use godwit_wire::FiveTuple;
use serde::Serialize;

use crate::{Clock, Histogram};

/// Bytes of a probe.
pub const PROBE_BYTES: usize = 16;
const MAGIC: u16 = 0x6764;

/// What the packets of one run have in common, and what was found of them. Clones are of the same run.
#[derive(Clone, Debug)]
pub struct Probes {
    run: u16,
    found: Arc<Mutex<Found>>,
}

/// What became of probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProbeReport {
    /// Different packets that came back.
    pub received: u64,
    /// Packets that came back once more.
    pub duplicates: u64,
    /// Packets that came behind one of the same flow that was made later (RFC 4737).
    pub reordered: u64,
    /// Packets that came and are not of this run, or no probes at all.
    pub foreign: u64,
    /// Half of the packets took no longer, nanoseconds.
    pub p50_ns: u64,
    /// 90 % took no longer.
    pub p90_ns: u64,
    /// 99 % took no longer.
    pub p99_ns: u64,
    /// 99.9 % took no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

#[derive(Debug, Default)]
struct Found {
    report: ProbeReport,
    latency: Histogram,
    seen: Seen,
}

/// A set of numbers.
#[derive(Debug, Default)]
struct Seen {
    words: Vec<u64>,
}

impl Seen {
    /// False where it was there already.
    fn insert(&mut self, number: u32) -> bool {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if word >= self.words.len() {
            self.words.resize((word + 1).next_power_of_two(), 0);
        }
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        is_new
    }

    /// Adds another set; returns how many were in both.
    fn merge(&mut self, other: &Self) -> u64 {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        let mut both = 0;
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            both += u64::from((*word & other).count_ones());
            *word |= other;
        }
        both
    }
}

impl Default for Probes {
    fn default() -> Self {
        Self::new()
    }
}

impl Probes {
    /// Of a new run.
    pub fn new() -> Self {
        // Another process, at another time, begins elsewhere.
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let run = NEXT.fetch_add(1, Ordering::Relaxed) ^ (Clock::Machine.now_ns() >> 20) as u16;
        Self { run, found: Arc::default() }
    }

    /// Makes a generated packet a probe. One that is too short stays as it is.
    pub(super) fn mark(&self, frame: &mut [u8], number: u64, now_ns: u64) {
        let parsed = godwit_wire::parse(frame);
        let Some((place, checksum)) = place(&parsed) else { return };
        let mut probe = [0; PROBE_BYTES];
        probe[..2].copy_from_slice(&MAGIC.to_le_bytes());
        probe[2..4].copy_from_slice(&self.run.to_le_bytes());
        probe[4..8].copy_from_slice(&(number as u32).to_le_bytes());
        probe[8..].copy_from_slice(&now_ns.to_le_bytes());
        let Some(old) = frame.get(place..place + PROBE_BYTES) else { return };
        let mended = mend(u16::from_be_bytes([frame[checksum], frame[checksum + 1]]), old, &probe);
        frame[place..place + PROBE_BYTES].copy_from_slice(&probe);
        frame[checksum..checksum + 2].copy_from_slice(&mended.to_be_bytes());
    }

    /// One that looks at what comes back; each worker has its own.
    pub(super) fn finder(&self) -> Finder {
        Finder { probes: self.clone(), found: Found::default(), latest: HashMap::default(), now_ns: 0 }
    }

    /// What all finders that have finished found.
    pub fn report(&self) -> ProbeReport {
        let found = self.found();
        let quantile = |share| found.latency.quantile(share);
        ProbeReport {
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: found.latency.max(),
            ..found.report
        }
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at what comes back.
#[derive(Debug)]
pub(super) struct Finder {
    probes: Probes,
    found: Found,
    /// For each flow, as it came, the latest number.
    latest: HashMap<u64, u32, BuildHasherDefault<Word>>,
    now_ns: u64,
}

impl Finder {
    /// Reads the clock; once for all packets of a call.
    pub(super) fn turn(&mut self) {
        self.now_ns = Clock::Machine.now_ns();
    }

    /// Looks at a packet.
    pub(super) fn look(&mut self, frame: &[u8]) {
        let parsed = godwit_wire::parse(frame);
        let probe = place(&parsed).and_then(|(place, _)| frame.get(place..place + PROBE_BYTES)?.try_into().ok());
        let probe: Option<[u8; PROBE_BYTES]> = probe;
        let (Some(probe), Some(tuple)) = (probe, &parsed.five_tuple) else {
            self.found.report.foreign += 1;
            return;
        };
        let half = |at: usize| u16::from_le_bytes([probe[at], probe[at + 1]]);
        if half(0) != MAGIC || half(2) != self.probes.run {
            self.found.report.foreign += 1;
            return;
        }
        let number = u32::from_le_bytes([probe[4], probe[5], probe[6], probe[7]]);
        let made_ns = probe[8..].iter().rev().fold(0, |time, &byte| time << 8 | u64::from(byte));
        if !self.found.seen.insert(number) {
            self.found.report.duplicates += 1;
            return;
        }
        self.found.report.received += 1;
        self.found.latency.record(self.now_ns.saturating_sub(made_ns), 1);
        let latest = self.latest.entry(flow(tuple)).or_insert(number);
        // Numbers wrap around.
        if (number.wrapping_sub(*latest) as i32) < 0 {
            self.found.report.reordered += 1;
        } else {
            *latest = number;
        }
    }

    /// Adds what was found to what others found.
    pub(super) fn finish(&mut self) {
        let own = std::mem::take(&mut self.found);
        let mut all = self.probes.found();
        let both = all.seen.merge(&own.seen);
        all.latency.merge(&own.latency);
        all.report.received += own.report.received - both;
        all.report.duplicates += own.report.duplicates + both;
        all.report.reordered += own.report.reordered;
        all.report.foreign += own.report.foreign;
    }
}

/// Where the probe of a packet is, and the checksum of its transport header; `None` where it has none.
fn place(parsed: &godwit_wire::Parsed) -> Option<(usize, usize)> {
    let tuple = parsed.five_tuple.as_ref()?;
    let (header_bytes, checksum) = match tuple.protocol {
        17 => (8, 6),
        6 => (20, 16),
        _ => return None,
    };
    let transport = parsed.l4_offset;
    let payload = parsed.l3_end.checked_sub(transport + header_bytes + PROBE_BYTES)?;
    (transport > 0 && !parsed.fragment).then_some((transport + header_bytes + payload / 2 * 2, transport + checksum))
}

/// The checksum after words have changed (RFC 1624). Zero, of UDP over IPv4, says that there is none.
fn mend(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    if checksum == 0 {
        return 0;
    }
    let words = |bytes: &[u8], flip: u16| {
        bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]) ^ flip)).sum::<u32>()
    };
    let mut sum = u32::from(!checksum) + words(old, 0xffff) + words(new, 0);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    match !(sum as u16) {
        0 => 0xffff,
        mended => mended,
    }
}

/// A word that names a flow.
fn flow(tuple: &FiveTuple) -> u64 {
    let mut word = Word::default();
    (tuple.source, tuple.destination, tuple.source_port, tuple.destination_port, tuple.protocol).hash(&mut word);
    word.finish()
}

/// Multiplies and folds: fast, for what no attacker chooses.
#[derive(Default)]
struct Word(u64);

impl Hasher for Word {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x2545_f491_4f6c_dd1d) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use godwit_packet::{Arena, ArenaConfig, Batch, Steering};

    use super::*;
    use crate::QueueContext;
    use crate::synthetic::{Config, receiver};

    /// Frames of a port whose packets are probes.
    fn frames(text: &str, probes: &Probes) -> Vec<Vec<u8>> {
        let mut config: Config = toml::from_str(&format!("packets = 400\nprobe = true\n{text}")).unwrap();
        config.validate().unwrap();
        config.probes = Some(probes.clone());
        let steering = Arc::new(Steering::new(1, None));
        let mut queue = receiver(&config, QueueContext { port: 0, worker: 0, steering }).unwrap();
        let arena = ArenaConfig { packets: 512, ..ArenaConfig::default() };
        let mut region = Arena::new(arena, 1).unwrap().split().remove(0);
        let mut batch = Batch::default();
        while batch.len() < 400 {
            queue.receive(&mut region, &mut batch, 100).unwrap();
        }
        batch.descriptors.iter().map(|descriptor| region.frame(descriptor).to_vec()).collect()
    }

    fn found(frames: &[Vec<u8>], probes: &Probes) -> ProbeReport {
        let mut finder = probes.finder();
        finder.turn();
        frames.iter().for_each(|frame| finder.look(frame));
        finder.finish();
        probes.report()
    }

    #[test]
    fn loss_duplicates_and_order_are_seen() {
        let probes = Probes::new();
        let mut sent = frames("flows = 1", &probes);
        sent.truncate(100);
        sent.swap(10, 11);
        sent.remove(50);
        sent.push(sent[20].clone());
        sent.push(vec![0; 60]);
        let foreign = frames("flows = 1", &Probes { run: probes.run ^ 1, ..Probes::new() });
        sent.push(foreign[0].clone());
        let report = found(&sent, &probes);
        assert_eq!((report.received, report.duplicates, report.reordered, report.foreign), (99, 1, 1, 2));
        assert!(report.p50_ns > 0 && report.p50_ns <= report.p999_ns && report.p999_ns <= report.max_ns);
    }

    #[test]
    fn flows_may_overtake_each_other() {
        let probes = Probes::new();
        let mut sent = frames("flows = 7\nsize = \"imix\"", &probes);
        sent.sort_by_key(|frame| frame[34..36].to_vec());
        let report = found(&sent, &probes);
        assert_eq!((report.received, report.reordered), (400, 0));
    }

    #[test]
    fn two_workers_that_find_the_same_packet_found_a_duplicate() {
        let probes = Probes::new();
        let sent = frames("flows = 3", &probes);
        found(&sent[..300], &probes);
        let report = found(&sent[200..], &probes);
        assert_eq!((report.received, report.duplicates), (400, 100));
    }

    /// Receivers drop packets with wrong checksums.
    #[test]
    fn checksums_stay_right() {
        for text in [
            "size = 61",
            "size = { min = 80, max = 300 }\nip = \"v6\"",
            "protocol = \"tcp\"\nsize = { min = 75, max = 99 }",
        ] {
            let plain: Config = toml::from_str(&format!("packets = 400\n{text}")).unwrap();
            plain.validate().unwrap();
            let probes = Probes::new();
            for frame in frames(text, &probes) {
                assert!(is_right(&frame), "{text}: {frame:02x?}");
            }
            assert_eq!(probes.report().received, 0);
        }
    }

    fn is_right(frame: &[u8]) -> bool {
        let parsed = godwit_wire::parse(frame);
        let protocol = parsed.five_tuple.as_ref().unwrap().protocol;
        let addresses = if parsed.ip_version == 4 { 26..34 } else { 22..54 };
        let segment = &frame[parsed.l4_offset..parsed.l3_end];
        if protocol == 17 && segment[6..8] == [0, 0] {
            return parsed.ip_version == 4;
        }
        let sum = |bytes: &[u8]| {
            bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum::<u32>()
        };
        let mut total = sum(&frame[addresses]) + sum(segment) + segment.len() as u32 + u32::from(protocol);
        while total >> 16 != 0 {
            total = (total & 0xffff) + (total >> 16);
        }
        total == 0xffff
    }
}

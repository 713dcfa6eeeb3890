//! Probes are packets that contain their number and the time of their generation. The receiver uses
//! these values to compute packet loss, reordering and latency.
//!
//! The probe data occupies the last bytes of the payload, at an even distance from the transport
//! header. The checksum can then be updated in 16-bit words. The sizes of the fields are in bytes:
//!
//! ```text
//! | magic 2 | run 2 | number 4 | time of generation, ns 8 |     little-endian
//! ```
//!
//! Numbers count modulo 2^32. The field `run` identifies late packets of an earlier run.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use godwit_wire::FiveTuple;
use serde::Serialize;

use crate::{Clock, Histogram};

/// Length of a probe in bytes.
pub const PROBE_BYTES: usize = 16;
const MAGIC: u16 = 0x6764;

/// Shared state and statistics of all probes of one run. A probe is a packet that contains its
/// number and the time of its generation. Clones share this state.
#[derive(Clone, Debug)]
pub struct Probes {
    run: u16,
    statistics: Arc<Mutex<Statistics>>,
}

/// Statistics of received probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProbeReport {
    /// Number of different packets that were received.
    pub received: u64,
    /// Number of packets that were received again.
    pub duplicates: u64,
    /// Number of reordered packets (RFC 4737). A reordered packet arrives after a packet of the
    /// same flow with a higher number.
    pub reordered: u64,
    /// Number of received packets that are not probes of this run.
    pub foreign: u64,
    /// Median latency, in nanoseconds.
    pub p50_ns: u64,
    /// 90th percentile of the latency, in nanoseconds.
    pub p90_ns: u64,
    /// 99th percentile of the latency, in nanoseconds.
    pub p99_ns: u64,
    /// 99.9th percentile of the latency, in nanoseconds.
    pub p999_ns: u64,
    /// Maximum latency, in nanoseconds.
    pub max_ns: u64,
}

#[derive(Debug, Default)]
struct Statistics {
    report: ProbeReport,
    latency: Histogram,
    seen: Seen,
}

/// Set of the packet numbers that were received.
#[derive(Debug, Default)]
struct Seen {
    words: Vec<u64>,
}

impl Seen {
    /// Adds a number to the set. Returns `false` if the set already contains it.
    fn insert(&mut self, number: u32) -> bool {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if word >= self.words.len() {
            self.words.resize((word + 1).next_power_of_two(), 0);
        }
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        is_new
    }

    /// Adds all elements of another set. Returns the number of elements that both sets contain.
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
    /// Creates the shared state of a new run.
    pub fn new() -> Self {
        // The run number depends on the clock, so different processes get different run numbers.
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let run = NEXT.fetch_add(1, Ordering::Relaxed) ^ (Clock::Machine.now_ns() >> 20) as u16;
        Self { run, statistics: Arc::default() }
    }

    /// Writes a probe into a generated packet. Does not change a packet that is too short for a
    /// probe.
    pub(super) fn mark(&self, frame: &mut [u8], number: u64, now_ns: u64) {
        let parsed = godwit_wire::parse(frame);
        let Some((offset, checksum)) = locate(&parsed) else { return };
        let mut probe = [0; PROBE_BYTES];
        probe[..2].copy_from_slice(&MAGIC.to_le_bytes());
        probe[2..4].copy_from_slice(&self.run.to_le_bytes());
        probe[4..8].copy_from_slice(&(number as u32).to_le_bytes());
        probe[8..].copy_from_slice(&now_ns.to_le_bytes());
        let Some(old) = frame.get(offset..offset + PROBE_BYTES) else { return };
        let updated = update_checksum(u16::from_be_bytes([frame[checksum], frame[checksum + 1]]), old, &probe);
        frame[offset..offset + PROBE_BYTES].copy_from_slice(&probe);
        frame[checksum..checksum + 2].copy_from_slice(&updated.to_be_bytes());
    }

    /// Creates a checker for received probes, for one worker.
    pub(super) fn checker(&self) -> ProbeChecker {
        ProbeChecker { probes: self.clone(), statistics: Statistics::default(), latest: HashMap::default(), now_ns: 0 }
    }

    /// Returns the statistics of all checkers that have finished.
    pub fn report(&self) -> ProbeReport {
        let statistics = self.statistics();
        let quantile = |share| statistics.latency.quantile(share);
        ProbeReport {
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: statistics.latency.max(),
            ..statistics.report
        }
    }

    fn statistics(&self) -> MutexGuard<'_, Statistics> {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks the received probes of one worker.
#[derive(Debug)]
pub(super) struct ProbeChecker {
    probes: Probes,
    statistics: Statistics,
    /// Latest number that was received of each flow.
    latest: HashMap<u64, u32, BuildHasherDefault<WordHasher>>,
    now_ns: u64,
}

impl ProbeChecker {
    /// Reads the clock. All packets of one `transmit` call get the same reception time.
    pub(super) fn read_clock(&mut self) {
        self.now_ns = Clock::Machine.now_ns();
    }

    /// Checks a received packet and updates the statistics.
    pub(super) fn check(&mut self, frame: &[u8]) {
        let parsed = godwit_wire::parse(frame);
        let probe = locate(&parsed).and_then(|(offset, _)| frame.get(offset..offset + PROBE_BYTES)?.try_into().ok());
        let probe: Option<[u8; PROBE_BYTES]> = probe;
        let (Some(probe), Some(tuple)) = (probe, &parsed.five_tuple) else {
            self.statistics.report.foreign += 1;
            return;
        };
        let half = |at: usize| u16::from_le_bytes([probe[at], probe[at + 1]]);
        if half(0) != MAGIC || half(2) != self.probes.run {
            self.statistics.report.foreign += 1;
            return;
        }
        let number = u32::from_le_bytes([probe[4], probe[5], probe[6], probe[7]]);
        let made_ns = probe[8..].iter().rev().fold(0, |time, &byte| time << 8 | u64::from(byte));
        if !self.statistics.seen.insert(number) {
            self.statistics.report.duplicates += 1;
            return;
        }
        self.statistics.report.received += 1;
        self.statistics.latency.record(self.now_ns.saturating_sub(made_ns), 1);
        let latest = self.latest.entry(flow(tuple)).or_insert(number);
        // Packet numbers wrap around. The sign of their difference tells which number is later.
        if (number.wrapping_sub(*latest) as i32) < 0 {
            self.statistics.report.reordered += 1;
        } else {
            *latest = number;
        }
    }

    /// Adds the statistics of this checker to the shared statistics.
    pub(super) fn finish(&mut self) {
        let own = std::mem::take(&mut self.statistics);
        let mut all = self.probes.statistics();
        let both = all.seen.merge(&own.seen);
        all.latency.merge(&own.latency);
        all.report.received += own.report.received - both;
        all.report.duplicates += own.report.duplicates + both;
        all.report.reordered += own.report.reordered;
        all.report.foreign += own.report.foreign;
    }
}

/// Returns the offset of the probe and the offset of the transport checksum in a packet. Returns
/// `None` if the packet has no room for a probe.
fn locate(parsed: &godwit_wire::Parsed) -> Option<(usize, usize)> {
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

/// Returns the new checksum of a packet after some of its words were changed (RFC 1624). A checksum
/// of zero stays zero, because it means that a UDP packet over IPv4 has no checksum.
fn update_checksum(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
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
        updated => updated,
    }
}

/// Returns a hash of the flow.
fn flow(tuple: &FiveTuple) -> u64 {
    let mut word = WordHasher::default();
    (tuple.source, tuple.destination, tuple.source_port, tuple.destination_port, tuple.protocol).hash(&mut word);
    word.finish()
}

/// Hash function that multiplies each word and combines the halves of the product. It is fast but
/// does not resist attacks, so it hashes only values that no attacker chooses.
#[derive(Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
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

    /// Returns the frames of a port whose packets are probes.
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

    fn statistics(frames: &[Vec<u8>], probes: &Probes) -> ProbeReport {
        let mut checker = probes.checker();
        checker.read_clock();
        frames.iter().for_each(|frame| checker.check(frame));
        checker.finish();
        probes.report()
    }

    #[test]
    fn loss_duplicates_and_reordering_are_detected() {
        let probes = Probes::new();
        let mut sent = frames("flows = 1", &probes);
        sent.truncate(100);
        sent.swap(10, 11);
        sent.remove(50);
        sent.push(sent[20].clone());
        sent.push(vec![0; 60]);
        let foreign = frames("flows = 1", &Probes { run: probes.run ^ 1, ..Probes::new() });
        sent.push(foreign[0].clone());
        let report = statistics(&sent, &probes);
        assert_eq!((report.received, report.duplicates, report.reordered, report.foreign), (99, 1, 1, 2));
        assert!(report.p50_ns > 0 && report.p50_ns <= report.p999_ns && report.p999_ns <= report.max_ns);
    }

    #[test]
    fn reordering_between_flows_is_not_counted() {
        let probes = Probes::new();
        let mut sent = frames("flows = 7\nsize = \"imix\"", &probes);
        sent.sort_by_key(|frame| frame[34..36].to_vec());
        let report = statistics(&sent, &probes);
        assert_eq!((report.received, report.reordered), (400, 0));
    }

    #[test]
    fn packet_received_by_two_workers_is_a_duplicate() {
        let probes = Probes::new();
        let sent = frames("flows = 3", &probes);
        statistics(&sent[..300], &probes);
        let report = statistics(&sent[200..], &probes);
        assert_eq!((report.received, report.duplicates), (400, 100));
    }

    /// Receivers drop packets with wrong checksums.
    #[test]
    fn checksums_stay_valid() {
        for text in [
            "size = 61",
            "size = { min = 80, max = 300 }\nip = \"v6\"",
            "protocol = \"tcp\"\nsize = { min = 75, max = 99 }",
        ] {
            let plain: Config = toml::from_str(&format!("packets = 400\n{text}")).unwrap();
            plain.validate().unwrap();
            let probes = Probes::new();
            for frame in frames(text, &probes) {
                assert!(is_valid(&frame), "{text}: {frame:02x?}");
            }
            assert_eq!(probes.report().received, 0);
        }
    }

    fn is_valid(frame: &[u8]) -> bool {
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

//! Transmit queue of a synthetic port. It counts packets and frees their buffers. It can also
//! compute a digest of the packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use godwit_packet::Outgoing;

use super::config::Config;
use super::probe::{ProbeChecker, Probes};
use crate::{Departure, Error, PortCounters, Transmit};

/// Digest of all packets that were sent to the port, for the comparison of runs.
///
/// It is the sum of the hashes of all frames, modulo 2^64. The order of the packets does not change
/// it. With an exclusive or, two equal packets would cancel out. The digest does not resist an
/// attacker.
#[derive(Clone, Debug, Default)]
pub struct Digest(Arc<AtomicU64>);

impl Digest {
    /// Creates a digest to which no packet was added yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the digest of all packets that were sent so far.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Creates the transmit queue of one worker. With `digest = true` in the configuration, the queue
/// adds the hashes of its packets to `digest`, which all workers share.
pub fn transmitter(config: &Config, digest: &Digest) -> Box<dyn Transmit> {
    let digest = config.digest.then(|| digest.clone());
    let checker = config.probes.as_ref().map(Probes::checker);
    Box::new(Transmitter { digest, checker, counters: PortCounters::default() })
}

struct Transmitter {
    digest: Option<Digest>,
    checker: Option<ProbeChecker>,
    counters: PortCounters,
}

impl Transmit for Transmitter {
    fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, Error> {
        if let Some(digest) = &self.digest {
            let frames = packets.iter().map(|departure| hash(buffers.frame(&departure.descriptor)));
            digest.0.fetch_add(frames.fold(0, u64::wrapping_add), Ordering::Relaxed);
        }
        if let Some(checker) = &mut self.checker {
            checker.read_clock();
            packets.iter().for_each(|departure| checker.check(buffers.frame(&departure.descriptor)));
        }
        self.counters.sent_bytes += packets.iter().map(|departure| u64::from(departure.descriptor.length)).sum::<u64>();
        buffers.release_all(packets);
        self.counters.sent_packets += packets.len() as u64;
        Ok(packets.len())
    }

    fn settled(&mut self, sequence: u64) -> Result<(), Error> {
        if let Some(checker) = self.checker.as_mut().filter(|_| sequence == u64::MAX) {
            checker.finish();
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Hashes a frame in words of 8 bytes. Each step multiplies by an odd constant and combines the two
/// halves of the product. The function hashes the length first, because the last word is padded.
fn hash(frame: &[u8]) -> u64 {
    let mix = |state: u64, word: u64| {
        let product = u128::from(state ^ word) * 0x9e37_79b9_7f4a_7c15;
        (product >> 64) as u64 ^ product as u64
    };
    let (words, rest) = frame.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let start = mix(0x2545_f491_4f6c_dd1d, frame.len() as u64);
    let state = words.iter().fold(start, |state, word| mix(state, u64::from_le_bytes(*word)));
    mix(mix(state, u64::from_le_bytes(last)), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_depends_on_every_byte_and_the_length() {
        let frame: Vec<u8> = (0..67).collect();
        let mut seen = std::collections::HashSet::from([hash(&frame)]);
        for at in 0..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 1;
            assert!(seen.insert(hash(&changed)), "byte {at}");
        }
        assert!(seen.insert(hash(&[frame, vec![0]].concat())));
    }
}

//! The transmit queue: counts packets, digests them if asked to, and returns their buffers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use godwit_packet::Outgoing;

use super::config::Config;
use super::probe::{Finder, Probes};
use crate::{Departure, Error, PortCounters, Transmit};

/// What all workers sent to the port, as one number: equal packets in any order give equal digests.
///
/// The sum, modulo 2^64, of a hash of each frame. (A sum and not an exclusive or: two equal packets must not cancel out.)
/// For comparing runs; it withstands no attacker.
#[derive(Clone, Debug, Default)]
pub struct Digest(Arc<AtomicU64>);

impl Digest {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The digest of all calls of `transmit` that have returned.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One worker's transmit queue. With `digest = true` in the configuration it adds to `digest`, of which all workers get a clone.
pub fn transmitter(config: &Config, digest: &Digest) -> Box<dyn Transmit> {
    let digest = config.digest.then(|| digest.clone());
    let finder = config.probes.as_ref().map(Probes::finder);
    Box::new(Transmitter { digest, finder, counters: PortCounters::default() })
}

struct Transmitter {
    digest: Option<Digest>,
    finder: Option<Finder>,
    counters: PortCounters,
}

impl Transmit for Transmitter {
    fn transmit(&mut self, buffers: &mut Outgoing<'_>, packets: &[Departure]) -> Result<usize, Error> {
        if let Some(digest) = &self.digest {
            let frames = packets.iter().map(|departure| hash(buffers.frame(&departure.descriptor)));
            digest.0.fetch_add(frames.fold(0, u64::wrapping_add), Ordering::Relaxed);
        }
        if let Some(finder) = &mut self.finder {
            finder.turn();
            packets.iter().for_each(|departure| finder.look(buffers.frame(&departure.descriptor)));
        }
        self.counters.sent_bytes += packets.iter().map(|departure| u64::from(departure.descriptor.length)).sum::<u64>();
        buffers.release_all(packets);
        self.counters.sent_packets += packets.len() as u64;
        Ok(packets.len())
    }

    fn settled(&mut self, sequence: u64) -> Result<(), Error> {
        if let Some(finder) = self.finder.as_mut().filter(|_| sequence == u64::MAX) {
            finder.finish();
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// A word at a time: multiply by an odd constant, fold the halves of the product. Length first, so that padding counts.
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
    fn hash_sees_every_byte_and_the_length() {
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

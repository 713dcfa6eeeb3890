//! Inbound packets whose kernel has not finished, in a replay.
//!
//! The check of a sequence number depends on the numbers of all earlier packets, but those of
//! packets in flight are not known to be authentic yet. A live gateway checks against what it
//! knows. A replay must give the same output with any number of packets in flight. It therefore
//! prepares a packet only if the packets in flight cannot change the result of its check.

use std::collections::{HashMap, HashSet};

use godwit_abi::Descriptor;
use godwit_packet::Region;

use super::database::{Database, Decided};
use super::sa_and_sequence;
use super::state::{Forecast, States};
use crate::Work;

/// Numbers in flight of each inbound SA.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    sas: HashMap<u32, Numbers>,
    /// Numbers of ready packets that are not prepared yet. They count as in flight.
    ready: Vec<(u32, u64)>,
}

/// Numbers in flight of one inbound SA.
#[derive(Debug, Default)]
struct Numbers {
    numbers: HashSet<u64>,
    /// Largest number since there were none.
    largest: u64,
}

impl InFlight {
    fn insert(&mut self, sa: u32, number: u64) {
        let numbers = self.sas.entry(sa).or_default();
        numbers.numbers.insert(number);
        numbers.largest = numbers.largest.max(number);
    }

    fn remove(&mut self, sa: u32, number: u64) {
        if let Some(numbers) = self.sas.get_mut(&sa) {
            numbers.numbers.remove(&number);
            if numbers.numbers.is_empty() {
                self.sas.remove(&sa);
            }
        }
    }

    fn largest(&self, sa: u32) -> Option<u64> {
        self.sas.get(&sa).map(|numbers| numbers.largest)
    }

    fn has(&self, sa: u32, number: u64) -> bool {
        self.sas.get(&sa).is_some_and(|numbers| numbers.numbers.contains(&number))
    }

    /// Returns the number of packets, from the first one on, whose checks do not depend on the
    /// packets in flight. All of them may be prepared together.
    pub(super) fn ready(&mut self, database: &Database, region: &Region, packets: &[Descriptor]) -> usize {
        self.forget_ready();
        let policies = database.policies.load();
        let is_fragment = |packet: &Descriptor| database.lengths.bucket_of_fragment(region.frame(packet)).is_some();
        // A fragment may complete a packet of any SA, so it is prepared alone.
        if packets.first().is_some_and(is_fragment) {
            return usize::from(self.sas.is_empty());
        }
        let mut waits = |packet: &Descriptor| {
            let decision = database.apply_port(database.decide(&policies, region.frame(packet)), packet.port);
            match decision.decided() {
                Decided::Decrypt(sa, low) => !self.is_ready(&database.states, sa, low),
                _ => false,
            }
        };
        packets.iter().position(|packet| is_fragment(packet) || waits(packet)).unwrap_or(packets.len())
    }

    fn is_ready(&mut self, states: &States, sa: u32, low: u32) -> bool {
        match states.forecast(sa, low, self.largest(sa)) {
            Forecast::Settled => true,
            Forecast::Number(number) if !self.has(sa, number) => {
                self.insert(sa, number);
                self.ready.push((sa, number));
                true
            }
            Forecast::Number(_) | Forecast::Open => false,
        }
    }

    fn forget_ready(&mut self) {
        for (sa, number) in std::mem::take(&mut self.ready) {
            self.remove(sa, number);
        }
    }

    /// Records the packets that were prepared.
    pub(super) fn prepared(&mut self, work: impl Iterator<Item = Work>) {
        self.forget_ready();
        for (sa, number) in work.filter_map(inbound_number) {
            self.insert(sa, number);
        }
    }

    /// Records that the kernel has finished packets.
    pub(super) fn completed(&mut self, parameters: &[u64]) {
        for &parameter in parameters {
            let (sa, number) = sa_and_sequence(parameter);
            self.remove(sa, number);
        }
    }
}

/// Returns the SA and the sequence number of a packet to decapsulate.
fn inbound_number(work: Work) -> Option<(u32, u64)> {
    match work {
        Work::Run { variant, parameter } if variant & 1 == 1 => Some(sa_and_sequence(parameter)),
        _ => None,
    }
}

//! What a worker does behind the kernel: frames get the tags of the ports they leave by, and the control side is told of
//! sources that it should hear of.
//!
//! Each worker has a queue of its own to the control side, bounded, and never waits: what has no room is not told, and
//! counted; the source's next frame comes to the same. A source that is new has many frames under way before it is in the table.
//! Those tell nothing after the first one: what was told lately is remembered, until the control side has looked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use godwit_abi::{Descriptor, Outcome, VERDICT_DROP};
use godwit_packet::Region;
use godwit_wire::{Ethernet, MacAddress};

use super::{FLAGS, NOTICE, SET, key, tags};
use crate::{HostHalf, Work};

/// Sources that one worker can tell of until the control side looks.
pub(super) const QUEUE: usize = 4096;
/// Sources that are remembered as told; a power of two.
const TOLD: usize = 1024;

/// A source, and the port it was heard at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) key: u64,
    pub(super) port: u8,
}

/// What workers, the control side and whoever reads counters share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// How often the control side has looked.
    pub(super) looks: AtomicU32,
    /// Those of the contract, each by its name.
    pub(super) addresses: AtomicU64,
    pub(super) learned: AtomicU64,
    pub(super) moved: AtomicU64,
    pub(super) aged: AtomicU64,
    pub(super) displaced: AtomicU64,
    pub(super) unheard: AtomicU64,
    pub(super) not_learned: AtomicU64,
}

impl Shared {
    /// The values of the contract's counters.
    pub(super) fn counts(&self) -> Vec<u64> {
        let Self { looks: _, addresses, learned, moved, aged, displaced, unheard, not_learned } = self;
        let counts = [addresses, learned, moved, aged, displaced, unheard, not_learned];
        counts.map(|count| count.load(Ordering::Relaxed)).into()
    }
}

/// Counts up what only this thread changes.
pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// A worker's end.
pub(super) struct Ear {
    queue: SyncSender<Heard>,
    shared: Arc<Shared>,
    /// By a hash: what was told, and between which looks.
    told: Box<[(Heard, u32)]>,
    unheard: u64,
}

impl Ear {
    /// The other end besides.
    pub(super) fn new(shared: Arc<Shared>) -> (Self, Receiver<Heard>) {
        let (queue, heard) = sync_channel(QUEUE);
        let nothing = (Heard { key: u64::MAX, port: 0 }, 0);
        (Self { queue, shared, told: vec![nothing; TOLD].into(), unheard: 0 }, heard)
    }

    pub(super) fn hear(&mut self, heard: Heard) {
        let looks = self.shared.looks.load(Ordering::Relaxed);
        let place = heard.key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TOLD.trailing_zeros());
        let told = &mut self.told[place as usize];
        if *told == (heard, looks) {
            return;
        }
        match self.queue.try_send(heard) {
            Ok(()) => *told = (heard, looks),
            Err(_) => {
                self.unheard += 1;
                // Told in steps, so that a flood of new sources does not make workers share a line for each frame.
                if self.unheard.is_power_of_two() || self.unheard.is_multiple_of(1024) {
                    self.tell_unheard();
                }
            }
        }
    }

    fn tell_unheard(&mut self) {
        self.shared.unheard.fetch_add(std::mem::take(&mut self.unheard), Ordering::Relaxed);
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.tell_unheard();
    }
}

/// A worker's host half.
pub(super) struct Host {
    ear: Ear,
}

impl Host {
    pub(super) fn new(ear: Ear) -> Self {
        Self { ear }
    }
}

impl HostHalf for Host {
    fn prepares(&self) -> bool {
        false
    }

    fn prepare(&mut self, _region: &Region, descriptors: &[Descriptor], work: &mut Vec<Work>) {
        work.resize(work.len() + descriptors.len(), Work::Run { variant: 0, parameter: 0 });
    }

    fn finish(&mut self, region: &mut Region, descriptors: &mut [Descriptor], outcomes: &mut [Outcome]) {
        if outcomes.iter().fold(0, |all, outcome| all | outcome.value) & FLAGS == 0 {
            return;
        }
        for (descriptor, outcome) in descriptors.iter_mut().zip(outcomes) {
            let flags = outcome.value & FLAGS;
            if flags == 0 {
                continue;
            }
            outcome.value &= !FLAGS;
            let vid = outcome.value as u16;
            if flags & NOTICE != 0 {
                let source = Ethernet::new_checked(region.frame(descriptor)).map_or(MacAddress([0; 6]), |e| e.source());
                self.ear.hear(Heard { key: key(vid, source), port: descriptor.port });
            }
            if outcome.verdict != VERDICT_DROP && flags & SET != 0 {
                let mut edited = *descriptor;
                tags::apply(region.buffer_mut(descriptor), &mut edited, flags & SET, vid);
                *descriptor = edited;
            }
        }
    }
}

//! CPU part of the switch on each worker. After the kernel, it adds and removes VLAN tags, and
//! reports source addresses to the housekeeping thread.
//!
//! Each worker reports source addresses through a bounded queue and never waits. If the queue is
//! full, a report is dropped and counted, and the next frame from the same source causes another
//! report. Many frames from a new source can arrive before its address is in the table. A worker
//! therefore remembers its recent reports until the next housekeeping, and does not repeat them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use godwit_abi::{Descriptor, Outcome, VERDICT_DROP};
use godwit_packet::Region;
use godwit_wire::{Ethernet, MacAddress};

use super::{FLAGS, NOTICE, SET, key, tags};
use crate::Complete;

/// Capacity of a worker's queue, in reports.
pub(super) const QUEUE: usize = 4096;
/// Number of recent reports that a worker remembers and does not repeat. It must be a power of two.
const RECENT: usize = 1024;

/// Report that a frame with the source address `key` arrived on `port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) key: u64,
    pub(super) port: u8,
}

/// State shared by the workers, the housekeeping thread and counter readers.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    /// Number of completed housekeeping rounds.
    pub(super) rounds: AtomicU32,
    /// The remaining fields are the counters of the contract.
    pub(super) addresses: AtomicU64,
    pub(super) learned: AtomicU64,
    pub(super) moved: AtomicU64,
    pub(super) aged: AtomicU64,
    pub(super) displaced: AtomicU64,
    pub(super) unheard: AtomicU64,
    pub(super) not_learned: AtomicU64,
}

impl SharedState {
    /// Returns the counters, in the order of the contract.
    pub(super) fn counts(&self) -> Vec<u64> {
        let Self { rounds: _, addresses, learned, moved, aged, displaced, unheard, not_learned } = self;
        let counts = [addresses, learned, moved, aged, displaced, unheard, not_learned];
        counts.map(|count| count.load(Ordering::Relaxed)).into()
    }
}

/// Increments a counter.
pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Sending end of a worker's queue for source address reports.
pub(super) struct NoticeSender {
    queue: SyncSender<Notice>,
    shared: Arc<SharedState>,
    /// Recently sent reports, indexed by a hash of the address. Each entry also has the number of
    /// the housekeeping interval in which the report was sent.
    recent: Box<[(Notice, u32)]>,
    unheard: u64,
}

impl NoticeSender {
    /// Creates a queue of reports and returns both ends of it.
    pub(super) fn new(shared: Arc<SharedState>) -> (Self, Receiver<Notice>) {
        let (queue, receiver) = sync_channel(QUEUE);
        let nothing = (Notice { key: u64::MAX, port: 0 }, 0);
        (Self { queue, shared, recent: vec![nothing; RECENT].into(), unheard: 0 }, receiver)
    }

    pub(super) fn send(&mut self, notice: Notice) {
        let round = self.shared.rounds.load(Ordering::Relaxed);
        let slot = notice.key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT.trailing_zeros());
        let recent = &mut self.recent[slot as usize];
        if *recent == (notice, round) {
            return;
        }
        match self.queue.try_send(notice) {
            Ok(()) => *recent = (notice, round),
            Err(_) => {
                self.unheard += 1;
                // All workers share one counter. Each worker updates it rarely, because many
                // updates would contend for its cache line.
                if self.unheard.is_power_of_two() || self.unheard.is_multiple_of(1024) {
                    self.publish_unheard();
                }
            }
        }
    }

    fn publish_unheard(&mut self) {
        self.shared.unheard.fetch_add(std::mem::take(&mut self.unheard), Ordering::Relaxed);
    }
}

impl Drop for NoticeSender {
    fn drop(&mut self) {
        self.publish_unheard();
    }
}

/// CPU part of the switch on one worker.
pub(super) struct Host {
    sender: NoticeSender,
}

impl Host {
    pub(super) fn new(sender: NoticeSender) -> Self {
        Self { sender }
    }
}

impl Complete for Host {
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
                self.sender.send(Notice { key: key(vid, source), port: descriptor.port });
            }
            if outcome.verdict != VERDICT_DROP && flags & SET != 0 {
                let mut edited = *descriptor;
                tags::apply(region.buffer_mut(descriptor), &mut edited, flags & SET, vid);
                *descriptor = edited;
            }
        }
    }
}

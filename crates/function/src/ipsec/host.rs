//! What is decided per packet before the kernel: which SA, and which sequence number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{BUCKETS, Region};

use super::database::{Database, Decision};
use super::{DROP_SEQUENCE_EXHAUSTED, DROP_WRONG_WORKER, VARIANT_DECRYPT, VARIANT_ENCRYPT, parameter};
use crate::{HostHalf, Work};

/// The last sequence number that an SA used; on a cache line of its own, because only the SA's owner writes it.
///
/// It lives with the function and not with the host half, so that no number, and so no IV, comes twice when workers
/// are started again.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Sequence(AtomicU32);

impl Sequence {
    /// The next number, from 1 on (RFC 4303, section 2.2); `None` once all are used: the counter must not cycle
    /// (section 3.3.3).
    fn next(&self) -> Option<u32> {
        // One worker owns the SA, so nobody writes in between, and nothing else is ordered by it.
        let next = self.0.load(Ordering::Relaxed).checked_add(1)?;
        self.0.store(next, Ordering::Relaxed);
        Some(next)
    }

    #[cfg(test)]
    pub(super) fn set_last(&self, last: u32) {
        self.0.store(last, Ordering::Relaxed);
    }
}

/// The host half of one worker.
pub(super) struct IpsecHost {
    database: Arc<Database>,
    /// Per SA.
    sequences: Arc<[Sequence]>,
    /// Per SA: whether its packets are steered to this worker.
    owned: Vec<bool>,
    /// Of the batch at hand.
    decisions: Vec<Decision>,
}

impl IpsecHost {
    pub(super) fn new(database: Arc<Database>, sequences: Arc<[Sequence]>, worker: usize, workers: usize) -> Self {
        // As `Steering::worker` computes it.
        let owner = |sa| database.sa_key(sa) as usize % BUCKETS % workers.max(1);
        let owned = (0..database.sas.len()).map(|sa| owner(sa as u32) == worker).collect();
        Self { database, sequences, owned, decisions: Vec::new() }
    }

    fn work(&self, decision: Decision) -> Work {
        match decision {
            Decision::Pass(verdict) => Work::Done(Outcome::verdict(verdict as u8)),
            Decision::Drop(reason) => Work::Done(Outcome::drop(reason as u8)),
            Decision::Decrypt(sa) => Work::Run { variant: VARIANT_DECRYPT, parameter: parameter(sa, 0) },
            Decision::Encrypt(sa) if !self.owned[sa as usize] => Work::Done(Outcome::drop(DROP_WRONG_WORKER)),
            Decision::Encrypt(sa) => match self.sequences[sa as usize].next() {
                Some(sequence) => Work::Run { variant: VARIANT_ENCRYPT, parameter: parameter(sa, sequence.into()) },
                None => Work::Done(Outcome::drop(DROP_SEQUENCE_EXHAUSTED)),
            },
        }
    }
}

impl HostHalf for IpsecHost {
    fn prepare(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut Vec<Work>) {
        // Two passes: each waits for one kind of memory only, and the waits of one pass overlap.
        let mut decisions = std::mem::take(&mut self.decisions);
        decisions.clear();
        decisions.extend(descriptors.iter().map(|descriptor| self.database.decide(region.frame(descriptor))));
        work.extend(decisions.iter().map(|decision| self.work(*decision)));
        self.decisions = decisions;
    }
}

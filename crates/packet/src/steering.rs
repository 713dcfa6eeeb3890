//! Which worker a packet belongs to: receive-side scaling in software.

use std::sync::Arc;

use godwit_wire::Parsed;

use crate::flow::Toeplitz;

/// Entries of the indirection table. A NIC's has 128 too.
pub const BUCKETS: usize = 128;

/// A key wider than the flow: packets with equal keys go to the same worker.
///
/// Given by a function that keeps state for many flows at once (an SA).
pub trait SteerKey: Send + Sync {
    /// The key of a packet; `flow_hash` where the function keeps no such state for it.
    fn steer_key(&self, frame: &[u8], parsed: &Parsed, flow_hash: u32) -> u32;
}

/// Flow hash → bucket → worker.
#[derive(Clone)]
pub struct Steering {
    toeplitz: Toeplitz,
    workers: usize,
    key: Option<Arc<dyn SteerKey>>,
}

impl Steering {
    /// Spreads the buckets evenly over `workers` (at least 1); `key` replaces the flow hash as the key.
    pub fn new(workers: usize, key: Option<Arc<dyn SteerKey>>) -> Self {
        Self { toeplitz: Toeplitz::symmetric(), workers: workers.max(1), key }
    }

    /// The symmetric hash of the packet's flow.
    #[inline(always)]
    pub fn flow_hash(&self, parsed: &Parsed) -> u32 {
        self.toeplitz.hash_parsed(parsed)
    }

    /// The worker of a packet whose flow hash is known.
    #[inline]
    pub fn worker(&self, frame: &[u8], parsed: &Parsed, flow_hash: u32) -> usize {
        if self.workers == 1 {
            return 0;
        }
        self.worker_of(self.bucket(frame, parsed, flow_hash))
    }

    /// The bucket of a packet, below [`BUCKETS`]. It does not depend on the number of workers.
    #[inline]
    pub fn bucket(&self, frame: &[u8], parsed: &Parsed, flow_hash: u32) -> usize {
        let key = match &self.key {
            Some(key) => key.steer_key(frame, parsed, flow_hash),
            None => flow_hash,
        };
        key as usize % BUCKETS
    }

    /// The worker that owns a bucket.
    #[inline]
    pub fn worker_of(&self, bucket: usize) -> usize {
        bucket % self.workers
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.workers
    }
}

//! Selects the worker for each packet: receive-side scaling in software.

use std::sync::Arc;

use godwit_wire::Parsed;

use crate::flow::Toeplitz;

/// Number of entries in the indirection table, as in a typical NIC.
pub const BUCKETS: usize = 128;

/// A steering key that covers several flows. All packets with the same key go to the same worker.
///
/// A function provides it if it keeps state for several flows, such as an IPsec SA.
pub trait SteerKey: Send + Sync {
    /// Returns the key of a packet, or `flow_hash` if the function has no shared state for it.
    fn steer_key(&self, frame: &[u8], parsed: &Parsed, flow_hash: u32) -> u32;
}

/// Mapping from flow hash to bucket to worker.
///
/// ```
/// use godwit_packet::Steering;
///
/// let steering = Steering::new(4, None);
/// let frame = [0; 60];
/// let parsed = godwit_wire::parse(&frame);
/// let worker = steering.worker(&frame, &parsed, steering.flow_hash(&parsed));
/// assert!(worker < steering.workers());
/// ```
#[derive(Clone)]
pub struct Steering {
    toeplitz: Toeplitz,
    workers: usize,
    key: Option<Arc<dyn SteerKey>>,
}

impl Steering {
    /// Distributes the buckets evenly over `workers` (at least 1). `key` replaces the flow hash.
    pub fn new(workers: usize, key: Option<Arc<dyn SteerKey>>) -> Self {
        Self { toeplitz: Toeplitz::symmetric(), workers: workers.max(1), key }
    }

    /// Returns the symmetric hash of the packet's flow.
    #[inline(always)]
    pub fn flow_hash(&self, parsed: &Parsed) -> u32 {
        self.toeplitz.hash_parsed(parsed)
    }

    /// Returns the worker of a packet whose flow hash is known.
    #[inline]
    pub fn worker(&self, frame: &[u8], parsed: &Parsed, flow_hash: u32) -> usize {
        if self.workers == 1 {
            return 0;
        }
        self.worker_of(self.bucket(frame, parsed, flow_hash))
    }

    /// Returns the bucket of a packet, below [`BUCKETS`]. It does not depend on the
    /// number of workers.
    #[inline]
    pub fn bucket(&self, frame: &[u8], parsed: &Parsed, flow_hash: u32) -> usize {
        let key = match &self.key {
            Some(key) => key.steer_key(frame, parsed, flow_hash),
            None => flow_hash,
        };
        key as usize % BUCKETS
    }

    /// Returns the worker that owns a bucket.
    #[inline]
    pub fn worker_of(&self, bucket: usize) -> usize {
        bucket % self.workers
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.workers
    }
}

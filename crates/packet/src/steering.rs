//! Selects the worker that processes each packet. It distributes packets by flow hash in software,
//! like receive-side scaling (RSS) in a NIC.

use std::sync::Arc;

use godwit_wire::Parsed;

use crate::flow::Toeplitz;

/// Number of hash buckets. A typical NIC has the same number of entries in its RSS indirection
/// table.
pub const BUCKETS: usize = 128;

/// Computes a key that selects the worker of a packet. The same worker processes all packets with
/// the same key.
///
/// A function provides such a key if several flows share its state. For example, all flows through
/// one IPsec SA share the state of the SA.
pub trait SteerKey: Send + Sync {
    /// Returns the key of a packet. Returns `flow_hash` if the packet's flow shares no state with
    /// other flows.
    fn steer_key(&self, frame: &[u8], parsed: &Parsed, flow_hash: u32) -> u32;
}

/// Assigns packets to workers. The flow hash of a packet selects one of the hash buckets, and each
/// bucket belongs to a worker.
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
    /// Distributes the hash buckets evenly over `workers` workers, at least one. If `key` is given,
    /// its keys replace the flow hash of packets.
    pub fn new(workers: usize, key: Option<Arc<dyn SteerKey>>) -> Self {
        Self { toeplitz: Toeplitz::symmetric(), workers: workers.max(1), key }
    }

    /// Returns the flow hash of a packet. Both directions of a flow have the same hash.
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

    /// Returns the index of the hash bucket of a packet, which is below [`BUCKETS`]. The index does
    /// not depend on the number of workers.
    #[inline]
    pub fn bucket(&self, frame: &[u8], parsed: &Parsed, flow_hash: u32) -> usize {
        let key = match &self.key {
            Some(key) => key.steer_key(frame, parsed, flow_hash),
            None => flow_hash,
        };
        key as usize % BUCKETS
    }

    /// Returns the worker to which a hash bucket belongs.
    #[inline]
    pub fn worker_of(&self, bucket: usize) -> usize {
        bucket % self.workers
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.workers
    }
}

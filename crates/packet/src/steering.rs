//! Selects the worker for each packet by the packet's flow hash. This is receive-side scaling (RSS)
//! in software.

use std::sync::Arc;

use godwit_wire::Parsed;

use crate::flow::Toeplitz;

/// Number of hash buckets. The RSS indirection table of a typical NIC has the same size.
pub const BUCKETS: usize = 128;

/// Bucket of a packet that every worker can process, because its flow shares no state with others.
pub const ANY_WORKER: u8 = u8::MAX;

/// Computes a steering key, which selects the worker of a packet. All packets with the same
/// steering key go to the same worker.
///
/// A packet-processing function provides this key if several flows share state. For example, all
/// flows through one IPsec SA share the state of the SA.
pub trait SteerKey: Send + Sync {
    /// Returns the steering key of a packet. If the packet's flow shares no state with other flows,
    /// this key is `flow_hash`.
    fn steer_key(&self, frame: &[u8], parsed: &Parsed, flow_hash: u32) -> u32;

    /// Writes the hash bucket of each frame to `buckets`, or [`ANY_WORKER`] if the frame has no
    /// steering key. Both slices have the same length.
    fn buckets(&self, frames: &[&[u8]], buckets: &mut [u8]) {
        // A key that equals the first value of the flow hash is either that flow hash or a steering
        // key. A second call with another flow hash decides.
        const FLOW_HASH: u32 = 0x9e37_79b9;
        for (frame, bucket) in frames.iter().zip(buckets) {
            let parsed = godwit_wire::parse(frame);
            let key = self.steer_key(frame, &parsed, FLOW_HASH);
            let is_any = key == FLOW_HASH && self.steer_key(frame, &parsed, !FLOW_HASH) == !FLOW_HASH;
            *bucket = if is_any { ANY_WORKER } else { (key as usize % BUCKETS) as u8 };
        }
    }
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
    /// its steering keys replace the flow hashes.
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

    /// Returns the index of the packet's hash bucket, below [`BUCKETS`]. The number of workers does
    /// not change the index.
    #[inline]
    pub fn bucket(&self, frame: &[u8], parsed: &Parsed, flow_hash: u32) -> usize {
        let key = match &self.key {
            Some(key) => key.steer_key(frame, parsed, flow_hash),
            None => flow_hash,
        };
        key as usize % BUCKETS
    }

    /// Returns the same steering without steering keys, as by a NIC that knows only flows.
    pub fn by_flow(&self) -> Self {
        Self { key: None, ..self.clone() }
    }

    /// Returns the steering key, or `None` if the flow hash selects the worker of every packet.
    pub fn key(&self) -> Option<&dyn SteerKey> {
        self.key.as_deref()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Key that is the first byte of the frame, or the flow hash if this byte is 0.
    struct FirstByte;

    impl SteerKey for FirstByte {
        fn steer_key(&self, frame: &[u8], _parsed: &Parsed, flow_hash: u32) -> u32 {
            match frame[0] {
                0 => flow_hash,
                // The key equals the flow hash that `buckets` uses.
                255 => 0x9e37_79b9,
                key => key.into(),
            }
        }
    }

    #[test]
    fn only_frames_without_a_key_belong_to_any_worker() {
        let frames: Vec<[u8; 60]> = [0, 1, 127, 130, 255].map(|first| [first; 60]).to_vec();
        let frames: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
        let mut buckets = [9; 5];
        FirstByte.buckets(&frames, &mut buckets);
        assert_eq!(buckets, [ANY_WORKER, 1, 127, 2, (0x9e37_79b9_usize % BUCKETS) as u8]);
    }
}
